// L3: the register tile: R rows × N vectors of C stay in registers while k runs. Everything in linalg is this tile.
#pragma once

#include <ogive/config.hpp>
#include <ogive/simd/batch.hpp>

#include <type_traits>
#include <utility>

namespace ogive {
inline namespace OGIVE_ABI {
namespace linalg {

/// A row-major matrix: row i starts at data + i · stride, elements of a row are neighbours.
template <class T>
struct panel {
  T* data;
  index_t stride;

  OGIVE_INLINE constexpr T* row(index_t i) const noexcept { return data + i * stride; }
  OGIVE_INLINE constexpr panel from(index_t i, index_t j) const noexcept { return {row(i) + j, stride}; }
  constexpr operator panel<const T>() const noexcept requires(!std::is_const_v<T>) { return {data, stride}; }
};

/// What becomes of a finished sum: C_ij ← f(i, j, Σ_k, C_ij), a vector of columns j, j + 1, … at a time. C is read only
/// where `reads` says so; otherwise it may hold anything. A type of this form may be given in place of these; one with
/// a member `put(p, x)` stores whole vectors itself, one with a member `begin(k)` is told where a dense product begins
/// with a tile, k terms deep.
struct overwrite {  // C = Σ
  static constexpr bool reads = false;
  template <class V>
  OGIVE_INLINE V operator()(index_t, index_t, V sum, V) const noexcept {
    return sum;
  }
};

struct add {  // C = C + Σ
  static constexpr bool reads = true;
  template <class V>
  OGIVE_INLINE V operator()(index_t, index_t, V sum, V c) const noexcept {
    return c + sum;
  }
};

struct subtract {  // C = C − Σ
  static constexpr bool reads = true;
  template <class V>
  OGIVE_INLINE V operator()(index_t, index_t, V sum, V c) const noexcept {
    return c - sum;
  }
};

template <class T>
struct scale_rows {  // C = r_i Σ
  const T* r;
  static constexpr bool reads = false;
  template <class V>
  OGIVE_INLINE V operator()(index_t i, index_t, V sum, V) const noexcept {
    return V(r[i]) * sum;
  }
};

template <class T>
struct scale_rows_add {  // C = C + r_i Σ
  const T* r;
  static constexpr bool reads = true;
  template <class V>
  OGIVE_INLINE V operator()(index_t i, index_t, V sum, V c) const noexcept {
    return simd::fma(V(r[i]), sum, c);
  }
};

template <class T>
struct subtract_scaled_rows {  // C = C − r_i Σ
  const T* r;
  static constexpr bool reads = true;
  template <class V>
  OGIVE_INLINE V operator()(index_t i, index_t, V sum, V c) const noexcept {
    return simd::fnma(V(r[i]), sum, c);
  }
};

template <class T>
struct decay {  // C = d C + Σ
  T d;
  static constexpr bool reads = true;
  template <class V>
  OGIVE_INLINE V operator()(index_t, index_t, V sum, V c) const noexcept {
    return simd::fma(V(d), c, sum);
  }
};

template <class T>
struct decay_rows {  // C = d_i C + Σ
  const T* d;
  static constexpr bool reads = true;
  template <class V>
  OGIVE_INLINE V operator()(index_t i, index_t, V sum, V c) const noexcept {
    return simd::fma(V(d[i]), c, sum);
  }
};

namespace detail {

/// Rows and vectors of a tile: enough sums to hide the latency of fma on every port, few enough to stay in registers
/// beside a row of B and an element of A, and rows that divide a chunk. Chosen by measurement at 64 × 64 … 128 × 128.
template <class T, std::size_t RegisterBytes>
struct tile_shape {
#if defined(__aarch64__)
  static constexpr std::size_t rows = 8, vectors = 2;  // 32 registers
#else
  static constexpr std::size_t rows = 4, vectors = 2;  // 16 registers, one of which a product needs for itself
#endif
};
template <class T>
struct tile_shape<T, 32> {
  static constexpr std::size_t rows = 4, vectors = 3;
};
template <>
struct tile_shape<float, 64> {
  static constexpr std::size_t rows = 4, vectors = 4;
};
template <>
struct tile_shape<double, 64> {  // a third vector, since panels of double outgrow L1
  static constexpr std::size_t rows = 8, vectors = 3;
};

template <class T, class Arch>
using shape_of = tile_shape<T, sizeof(simd::batch<T, Arch>)>;

/// Rows of a tile that is N vectors wide: a narrow one has more, so that its sums hide the latency as well.
template <class T, class Arch, std::size_t N>
inline constexpr std::size_t tile_rows = (2 * N <= shape_of<T, Arch>::vectors ? 2 : 1) * shape_of<T, Arch>::rows;

/// A step of 1 that the compiler knows.
struct one {
  constexpr operator index_t() const noexcept { return 1; }
};

/// The left operand: element (i, k) at data[i · row + k · depth].
template <class T, class Row, class Depth>
struct left {
  const T* data;
  Row row;
  Depth depth;

  OGIVE_INLINE left from(index_t i, index_t k) const noexcept { return {data + i * row + k * depth, row, depth}; }
  OGIVE_INLINE T operator()(index_t i, index_t k) const noexcept { return data[i * row + k * depth]; }
};

/// N vectors of neighbouring columns; with Partial the last one is cut off after some lanes.
template <class T, class Arch, std::size_t N, bool Partial>
struct columns {
  using vec = simd::batch<T, Arch>;
  simd::lanes<T, Arch> last;

  template <std::size_t J>
  OGIVE_INLINE vec load(const T* p) const noexcept {
    constexpr index_t at = static_cast<index_t>(J) * simd::width<T, Arch>;
    if constexpr (Partial && J == N - 1) {
      return simd::load(p + at, last);
    } else {
      return simd::load<Arch>(p + at);
    }
  }
  template <std::size_t J>
  OGIVE_INLINE void store(T* p, const vec& x) const noexcept {
    constexpr index_t at = static_cast<index_t>(J) * simd::width<T, Arch>;
    if constexpr (Partial && J == N - 1) {
      simd::store(p + at, x, last);
    } else {
      simd::store(p + at, x);
    }
  }
};

/// How a term enters a sum.
struct plus {
  template <class V>
  static OGIVE_INLINE V step(const V& a, const V& b, const V& sum) noexcept {
    return simd::fma(a, b, sum);
  }
};
struct minus {
  template <class V>
  static OGIVE_INLINE V step(const V& a, const V& b, const V& sum) noexcept {
    return simd::fnma(a, b, sum);
  }
};

/// R × N vectors of sums. All loops over them are pack expansions: an array of vectors that is indexed by constants
/// only lives in registers.
template <class T, class Arch, std::size_t R, std::size_t N, bool Partial>
class tile {
 public:
  using vec = simd::batch<T, Arch>;
  using cols = columns<T, Arch, N, Partial>;
  template <std::size_t M>
  using narrower = tile<T, Arch, R, M, false>;  // without the last vectors

  static constexpr index_t rows = R;
  static constexpr std::size_t vectors = N;

  OGIVE_INLINE explicit tile(const cols& c) noexcept : cols_(c) {}

  OGIVE_INLINE void zero() noexcept { zero(all{}); }

  OGIVE_INLINE void load(panel<const T> from) noexcept { load(from, all{}); }

  /// sum_i ± Σ_k a_ik b_k
  template <class Sign, class A>
  OGIVE_INLINE void product(index_t k, A a, panel<const T> b) noexcept {
    for (; k > 0; --k, b.data += b.stride, a = a.from(0, 1)) {
      load_row(b.data, across{});
      step<Sign, 0, R>(a, all{});
    }
  }

  /// The triangle on the diagonal: column j of A meets row j of B for the rows i ≥ j, or i > j when strict.
  template <bool Strict, class A>
  OGIVE_INLINE void triangle(const A& a, panel<const T> b) noexcept {
    triangle<Strict>(a, b, down{});
  }

  /// The same of Aᵀ: row j of B meets the rows i ≤ j, or i < j when strict.
  template <bool Strict, class A>
  OGIVE_INLINE void turned_triangle(const A& a, panel<const T> b) noexcept {
    turned_triangle<Strict>(a, b, down{});
  }

  /// From the top down, the rows below each row lose (or gain) their multiple of it.
  template <class Sign, class A>
  OGIVE_INLINE void substitute(const A& a) noexcept {
    substitute<Sign>(a, down{});
  }

  /// C_ij ← finish(i, j, sum, C_ij) for the rows from i and the columns from j on.
  template <class Finish>
  OGIVE_INLINE void drain(index_t i, index_t j, panel<T> c, const Finish& finish) const noexcept {
    drain(i, j, c, finish, all{});
  }

 private:
  using all = std::make_index_sequence<R * N>;
  using across = std::make_index_sequence<N>;
  using down = std::make_index_sequence<R>;

  template <std::size_t... I>
  OGIVE_INLINE void zero(std::index_sequence<I...>) noexcept {
    ((sum_[I] = vec(T(0))), ...);
  }
  template <std::size_t... I>
  OGIVE_INLINE void load(panel<const T> from, std::index_sequence<I...>) noexcept {
    ((sum_[I] = cols_.template load<I % N>(from.row(static_cast<index_t>(I / N)))), ...);
  }
  template <std::size_t... J>
  OGIVE_INLINE void load_row(const T* p, std::index_sequence<J...>) noexcept {
    ((b_[J] = R > 1 ? simd::keep(cols_.template load<J>(p)) : cols_.template load<J>(p)), ...);
  }
  template <std::size_t Row, std::size_t... J>
  OGIVE_INLINE void take_row(std::index_sequence<J...>) noexcept {
    ((b_[J] = sum_[Row * N + J]), ...);
  }
  /// One k, for the rows First ≤ i < Last: no other row is touched, not even by a product with zero.
  template <class Sign, std::size_t First, std::size_t Last, class A, std::size_t... I>
  OGIVE_INLINE void step(const A& a, std::index_sequence<I...>) noexcept {
    ((I / N < First || I / N >= Last
          ? void()
          : void(sum_[I] = Sign::step(vec(a(static_cast<index_t>(I / N), 0)), b_[I % N], sum_[I]))),
     ...);
  }
  template <bool Strict, class A, std::size_t... J>
  OGIVE_INLINE void turned_triangle(const A& a, panel<const T> b, std::index_sequence<J...>) noexcept {
    ((load_row(b.row(static_cast<index_t>(J)), across{}), this->template step < plus, 0,
      Strict ? J : J + 1 > (a.from(0, static_cast<index_t>(J)), all{})),
     ...);
  }
  template <bool Strict, class A, std::size_t... J>
  OGIVE_INLINE void triangle(const A& a, panel<const T> b, std::index_sequence<J...>) noexcept {
    ((load_row(b.row(static_cast<index_t>(J)), across{}), this->template step < plus, Strict ? J + 1 : J,
      R > (a.from(0, static_cast<index_t>(J)), all{})),
     ...);
  }
  template <class Sign, class A, std::size_t... J>
  OGIVE_INLINE void substitute(const A& a, std::index_sequence<J...>) noexcept {
    ((take_row<J>(across{}), step<Sign, J + 1, R>(a.from(0, static_cast<index_t>(J)), all{})), ...);
  }
  template <class Finish, std::size_t... I>
  OGIVE_INLINE void drain(index_t i, index_t j, panel<T> c, const Finish& finish,
                          std::index_sequence<I...>) const noexcept {
    const panel<T> at = c.from(i, j);
    (finish_vector<I>(i + static_cast<index_t>(I / N), j, at.row(static_cast<index_t>(I / N)), finish), ...);
  }
  template <std::size_t I, class Finish>
  OGIVE_INLINE void finish_vector(index_t i, index_t j, T* p, const Finish& finish) const noexcept {
    constexpr index_t right = static_cast<index_t>(I % N) * simd::width<T, Arch>;
    vec before{};
    if constexpr (Finish::reads) before = cols_.template load<I % N>(p);
    const vec result = finish(i, j + right, sum_[I], before);
    if constexpr (!(Partial && I % N == N - 1) && requires { finish.put(p + right, result); }) {
      finish.put(p + right, result);
    } else {
      cols_.template store<I % N>(p, result);
    }
  }

  cols cols_;
  vec sum_[R * N];
  vec b_[N];
};

}  // namespace detail
}  // namespace linalg
}  // namespace OGIVE_ABI
}  // namespace ogive

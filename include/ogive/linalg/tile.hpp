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
  constexpr operator panel<const T>() const noexcept requires(!std::is_const_v<T>) { return {data, stride}; }
};

/// What becomes of a finished sum: C_ij ← f(i, j, Σ_k, C_ij), a vector of columns j, j + 1, … at a time. C is read only
/// where `reads` says so; otherwise it may hold anything. A type of this form may be given in place of these.
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
  static constexpr std::size_t rows = 4, vectors = 3;  // 16 registers
};
template <>
struct tile_shape<float, 64> {
  static constexpr std::size_t rows = 8, vectors = 2;  // 32 registers
};
template <>
struct tile_shape<double, 64> {
  static constexpr std::size_t rows = 8,
                               vectors = 3;  // 32 registers; a third vector, since panels of double outgrow L1
};

template <class T, class Arch>
using shape_of = tile_shape<T, sizeof(simd::batch<T, Arch>)>;

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

template <class T, class Arch, std::size_t R, std::size_t N, bool Partial>
struct tile {
  using vec = simd::batch<T, Arch>;
  using cols = columns<T, Arch, N, Partial>;
  using all = std::make_index_sequence<R * N>;
  using across = std::make_index_sequence<N>;
  using down = std::make_index_sequence<R>;
  template <std::size_t M>
  using narrower = tile<T, Arch, R, M, false>;  // without the last vectors

  static constexpr index_t rows = R;
  static constexpr std::size_t vectors = N;

  vec sum[R * N];  // indexed by constants only, so that it lives in registers
  vec b[N];

  template <std::size_t... I>
  OGIVE_INLINE void zero(std::index_sequence<I...>) noexcept {
    ((sum[I] = vec(T(0))), ...);
  }
  template <std::size_t... J>
  OGIVE_INLINE void row(const T* p, const cols& c, std::index_sequence<J...>) noexcept {
    ((b[J] = c.template load<J>(p)), ...);
  }
  /// sum_i += a_i b for the rows i ≥ First: a row above is not touched, not even by a product with zero.
  template <std::size_t First, class A, std::size_t... I>
  OGIVE_INLINE void step(const A& a, std::index_sequence<I...>) noexcept {
    ((I / N >= First ? void(sum[I] = simd::fma(vec(a(static_cast<index_t>(I / N), 0)), b[I % N], sum[I])) : void()),
     ...);
  }
  /// The triangle on the diagonal: column j of A meets row j of B for the rows i ≥ j, or i > j when strict.
  template <bool Strict, class A, std::size_t... J>
  OGIVE_INLINE void triangle(const A& a, const T* p, index_t stride, const cols& c,
                             std::index_sequence<J...>) noexcept {
    ((row(p + static_cast<index_t>(J) * stride, c, across{}),
      step<J + (Strict ? 1 : 0)>(a.from(0, static_cast<index_t>(J)), all{})),
     ...);
  }
  template <std::size_t First, class A, std::size_t... I>
  OGIVE_INLINE void step_back(const A& a, std::index_sequence<I...>) noexcept {
    ((I / N >= First ? void(sum[I] = simd::fnma(vec(a(static_cast<index_t>(I / N), 0)), b[I % N], sum[I])) : void()),
     ...);
  }
  template <class A>
  OGIVE_INLINE void product(index_t k, A a, const T* p, index_t stride, const cols& c) noexcept {
    for (; k > 0; --k, p += stride, a = a.from(0, 1)) {
      row(p, c, across{});
      step<0>(a, all{});
    }
  }
  template <class A>
  OGIVE_INLINE void subtract_product(index_t k, A a, const T* p, index_t stride, const cols& c) noexcept {
    for (; k > 0; --k, p += stride, a = a.from(0, 1)) {
      row(p, c, across{});
      step_back<0>(a, all{});
    }
  }
  /// Rows below each row of the tile lose its multiple, from the top down.
  template <class A, std::size_t... J>
  OGIVE_INLINE void substitute(const A& a, std::index_sequence<J...>) noexcept {
    ((take<J>(across{}), step_back<J + 1>(a.from(0, static_cast<index_t>(J)), all{})), ...);
  }
  template <std::size_t R0, std::size_t... J>
  OGIVE_INLINE void take(std::index_sequence<J...>) noexcept {
    ((b[J] = sum[R0 * N + J]), ...);
  }
  template <std::size_t... I>
  OGIVE_INLINE void fill(panel<const T> from, const cols& c, std::index_sequence<I...>) noexcept {
    ((sum[I] = c.template load<I % N>(from.row(static_cast<index_t>(I / N)))), ...);
  }
  template <class Finish, std::size_t... I>
  OGIVE_INLINE void drain(index_t i, index_t j, panel<T> out, const cols& c, const Finish& finish,
                          std::index_sequence<I...>) const noexcept {
    (put<I>(i, j, out, c, finish), ...);
  }
  template <std::size_t I, class Finish>
  OGIVE_INLINE void put(index_t i, index_t j, panel<T> out, const cols& c, const Finish& finish) const noexcept {
    constexpr index_t below = static_cast<index_t>(I / N);
    constexpr index_t right = static_cast<index_t>(I % N) * simd::width<T, Arch>;
    T* p = out.row(i + below) + j;
    vec before{};
    if constexpr (Finish::reads) before = c.template load<I % N>(p);
    c.template store<I % N>(p, finish(i + below, j + right, sum[I], before));
  }
};

}  // namespace detail
}  // namespace linalg
}  // namespace OGIVE_ABI
}  // namespace ogive

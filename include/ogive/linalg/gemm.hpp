// L3: products of panels of the size of a chunk (16 … 256 each way), which live in L1 or L2 and are used as they lie.
//
//   gemm_ab    C ← A B         A [m, k]  B [k, n]
//   gemm_atb   C ← Aᵀ B        A [k, m]  B [k, n], and with a second product in the same sum gemm_atb_pair
//   gemm_abt   C ← A Bᵀ        A [m, k]  B [n, k]
//   gemm_tril  C ← tril(A) B   A [m, m]  B [m, n], and with tril(A)ᵀ gemm_tril_turned
//
// C [m, n] must not overlap A or B. Any m, n, k ≥ 0. Nothing outside the panels is read or written, and of a row only
// its n (or k, or m) elements, so rows need no padding. Every Σ_k starts from zero and runs k = 0, 1, … with one fma
// per term: an element has the same bits whatever m, n, the tile, the strides or the alignment, and however C is split.
#pragma once

#include <ogive/linalg/tile.hpp>
#include <ogive/linalg/transpose.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace linalg {

namespace detail {

/// C = Σ A_p B_p over some products of equal depth, all of it.
template <class T, class A, class Finish, std::size_t Products = 1>
struct dense_kernel {
  index_t k;
  A a[Products];
  panel<const T> b[Products];
  panel<T> c;
  Finish finish;

  static OGIVE_INLINE index_t first_row(index_t) noexcept { return 0; }

  template <class Tile>
  OGIVE_INLINE void run(index_t i, index_t j, const typename Tile::cols& cols) const noexcept {
    Tile sums(cols);
    const panel<T> to = c;  // copies, since the compiler must take it that stores change what a reference names
    const Finish last = finish;
    if constexpr (requires { last.begin(k); }) last.begin(static_cast<index_t>(Products) * k);
    sums.zero();
    [&]<std::size_t... P>(std::index_sequence<P...>) __attribute__((always_inline)) {
      (sums.template product<plus>(k, a[P].from(i, 0), b[P].from(0, j)), ...);
    }
    (std::make_index_sequence<Products>{});
    sums.drain(i, j, to, last);
  }
};

/// C = A B on and below the diagonal; vectors of a tile's rows that lie above it altogether are left out.
template <class T, class A, class Finish, class Arch>
struct lower_kernel {
  dense_kernel<T, A, Finish> dense;

  static OGIVE_INLINE index_t first_row(index_t j) noexcept { return j; }

  template <class Tile>
  OGIVE_INLINE void run(index_t i, index_t j, const typename Tile::cols& cols) const noexcept {
    if constexpr (Tile::vectors > 1) {
      using narrow = typename Tile::template narrower<Tile::vectors - 1>;
      const index_t last_vector = j + static_cast<index_t>(Tile::vectors - 1) * simd::width<T, Arch>;
      if (i + Tile::rows <= last_vector) return run<narrow>(i, j, typename narrow::cols{cols.last});
    }
    dense.template run<Tile>(i, j, cols);
  }
};

/// C = tril(A) B: row i sums k ≤ i, or k < i when strict.
template <bool Strict, class T, class A, class Finish>
struct triangular_kernel {
  A a;
  panel<const T> b;
  panel<T> c;
  Finish finish;

  static OGIVE_INLINE index_t first_row(index_t) noexcept { return 0; }

  template <class Tile>
  OGIVE_INLINE void run(index_t i, index_t j, const typename Tile::cols& cols) const noexcept {
    Tile sums(cols);
    sums.zero();
    sums.template product<plus>(i, a.from(i, 0), b.from(0, j));
    sums.template triangle<Strict>(a.from(i, i), b.from(i, j));
    sums.drain(i, j, c, finish);
  }
};

/// C = tril(A)ᵀ B: row j sums i ≥ j, or i > j when strict.
template <bool Strict, class T, class A, class Finish>
struct turned_triangular_kernel {
  index_t m;
  A a;  // Aᵀ
  panel<const T> b;
  panel<T> c;
  Finish finish;

  static OGIVE_INLINE index_t first_row(index_t) noexcept { return 0; }

  template <class Tile>
  OGIVE_INLINE void run(index_t i, index_t j, const typename Tile::cols& cols) const noexcept {
    Tile sums(cols);
    sums.zero();
    sums.template turned_triangle<Strict>(a.from(i, i), b.from(i, j));
    const index_t below = i + Tile::rows;
    sums.template product<plus>(m - below, a.from(i, below), b.from(below, j));
    sums.drain(i, j, c, finish);
  }
};

template <std::size_t R, std::size_t N, bool Partial, class T, class Arch, class Kernel>
void sweep_rows(index_t i, index_t m, index_t j, const columns<T, Arch, N, Partial>& cols,
                const Kernel& kernel) noexcept {
  constexpr auto rows = static_cast<index_t>(R);
  for (; i + rows <= m; i += rows) kernel.template run<tile<T, Arch, R, N, Partial>>(i, j, cols);
  if constexpr (R > 1) {
    if (i < m) sweep_rows<R / 2>(i, m, j, cols, kernel);
  }
}

template <std::size_t N, bool Partial, class T, class Arch, class Kernel>
OGIVE_INLINE void sweep_column(index_t m, index_t j, index_t last, const Kernel& kernel) noexcept {
  sweep_rows<tile_rows<T, Arch, N>>(kernel.first_row(j), m, j, columns<T, Arch, N, Partial>{simd::lanes<T, Arch>(last)},
                                    kernel);
}

/// Runs the kernel on tiles that cover the m × n elements of C: down the rows, then along the columns.
template <class T, class Arch, class Kernel>
void sweep(index_t m, index_t n, const Kernel& kernel) noexcept {
  constexpr std::size_t N = shape_of<T, Arch>::vectors;
  constexpr index_t W = simd::width<T, Arch>, block = static_cast<index_t>(N) * W;
  index_t j = 0;
  for (; j + block <= n; j += block) sweep_column<N, false, T, Arch>(m, j, W, kernel);
  if constexpr (N > 2) {
    for (; j + 2 * W <= n; j += 2 * W) sweep_column<2, false, T, Arch>(m, j, W, kernel);
  }
  if (j + W < n) {
    sweep_column<2, true, T, Arch>(m, j, n - j - W, kernel);
  } else if (j < n) {
    sweep_column<1, true, T, Arch>(m, j, n - j, kernel);
  }
}

/// A parameter whose type follows from another argument, so that {pointer, stride} converts.
template <class T>
using given = std::type_identity_t<panel<const T>>;

}  // namespace detail

/// The tile that most of C is made of.
template <class T, class Arch>
struct whole_tile {
  static constexpr index_t rows = static_cast<index_t>(detail::shape_of<T, Arch>::rows);
  static constexpr index_t columns = static_cast<index_t>(detail::shape_of<T, Arch>::vectors) * simd::width<T, Arch>;
};

/// C ← A B, A [m, k], B [k, n].
template <class Arch = simd::default_arch, class T, class Finish = overwrite>
OGIVE_INLINE void gemm_ab(index_t m, index_t n, index_t k, detail::given<T> a, detail::given<T> b, panel<T> c,
                          const Finish& finish = {}) noexcept {
  using A = detail::left<T, index_t, detail::one>;
  detail::sweep<T, Arch>(m, n, detail::dense_kernel<T, A, Finish>{k, {A{a.data, a.stride, {}}}, {b}, c, finish});
}

/// C ← Aᵀ B, A [k, m], B [k, n].
template <class Arch = simd::default_arch, class T, class Finish = overwrite>
OGIVE_INLINE void gemm_atb(index_t m, index_t n, index_t k, detail::given<T> a, detail::given<T> b, panel<T> c,
                           const Finish& finish = {}) noexcept {
  using A = detail::left<T, detail::one, index_t>;
  detail::sweep<T, Arch>(m, n, detail::dense_kernel<T, A, Finish>{k, {A{a.data, {}, a.stride}}, {b}, c, finish});
}

/// C ← A₀ᵀ B₀ + A₁ᵀ B₁, A₀ and A₁ [k, m], B₀ and B₁ [k, n]: C is read and written once.
template <class Arch = simd::default_arch, class T, class Finish = overwrite>
OGIVE_INLINE void gemm_atb_pair(index_t m, index_t n, index_t k, detail::given<T> a0, detail::given<T> b0,
                                detail::given<T> a1, detail::given<T> b1, panel<T> c,
                                const Finish& finish = {}) noexcept {
  using A = detail::left<T, detail::one, index_t>;
  detail::sweep<T, Arch>(m, n,
                         detail::dense_kernel<T, A, Finish, 2>{
                             k, {A{a0.data, {}, a0.stride}, A{a1.data, {}, a1.stride}}, {b0, b1}, c, finish});
}

/// Elements of scratch that gemm_abt and gemm_abt_lower want: B turned round.
template <class T, class Arch = simd::default_arch>
constexpr index_t gemm_abt_scratch(index_t n, index_t k) noexcept {
  return padded_stride<T, Arch>(n) * k;
}

/// C ← A Bᵀ, A [m, k], B [n, k], with gemm_abt_scratch(n, k) elements of scratch.
template <class Arch = simd::default_arch, class T, class Finish = overwrite>
OGIVE_INLINE void gemm_abt(index_t m, index_t n, index_t k, detail::given<T> a, detail::given<T> b, panel<T> c,
                           std::type_identity_t<T>* scratch, const Finish& finish = {}) noexcept {
  const panel<T> bt{scratch, padded_stride<T, Arch>(n)};
  transpose<Arch>(n, k, b, bt);
  gemm_ab<Arch>(m, n, k, a, bt, c, finish);
}

/// The elements of A B with j ≤ i (A [m, k], B [k, n]); those above the diagonal are unspecified.
template <class Arch = simd::default_arch, class T, class Finish = overwrite>
OGIVE_INLINE void gemm_ab_lower(index_t m, index_t n, index_t k, detail::given<T> a, detail::given<T> b, panel<T> c,
                                const Finish& finish = {}) noexcept {
  using A = detail::left<T, index_t, detail::one>;
  detail::sweep<T, Arch>(m, n < m ? n : m,
                         detail::lower_kernel<T, A, Finish, Arch>{{k, {A{a.data, a.stride, {}}}, {b}, c, finish}});
}

/// The elements of A Bᵀ with j ≤ i (A [m, k], B [n, k]), with gemm_abt_scratch(n, k) elements of scratch.
template <class Arch = simd::default_arch, class T, class Finish = overwrite>
OGIVE_INLINE void gemm_abt_lower(index_t m, index_t n, index_t k, detail::given<T> a, detail::given<T> b, panel<T> c,
                                 std::type_identity_t<T>* scratch, const Finish& finish = {}) noexcept {
  const panel<T> bt{scratch, padded_stride<T, Arch>(n)};
  transpose<Arch>(n, k, b, bt);
  gemm_ab_lower<Arch>(m, n, k, a, bt, c, finish);
}

/// C ← tril(A) B, A [m, m], B [m, n]: C_i = Σ_{j ≤ i} A_ij B_j. A above the diagonal is never read, and row j of B
/// never meets a row of C above j, not even by a product with zero: NaN and infinity there stay there.
template <class Arch = simd::default_arch, class T, class Finish = overwrite>
OGIVE_INLINE void gemm_tril(index_t m, index_t n, detail::given<T> a, detail::given<T> b, panel<T> c,
                            const Finish& finish = {}) noexcept {
  using A = detail::left<T, index_t, detail::one>;
  detail::sweep<T, Arch>(m, n, detail::triangular_kernel<false, T, A, Finish>{A{a.data, a.stride, {}}, b, c, finish});
}

/// The same without the diagonal: C_i = Σ_{j < i} A_ij B_j.
template <class Arch = simd::default_arch, class T, class Finish = overwrite>
OGIVE_INLINE void gemm_strict_tril(index_t m, index_t n, detail::given<T> a, detail::given<T> b, panel<T> c,
                                   const Finish& finish = {}) noexcept {
  using A = detail::left<T, index_t, detail::one>;
  detail::sweep<T, Arch>(m, n, detail::triangular_kernel<true, T, A, Finish>{A{a.data, a.stride, {}}, b, c, finish});
}

/// C ← tril(A)ᵀ B, A [m, m], B [m, n]: C_j = Σ_{i ≥ j} A_ij B_i. A above the diagonal is never read, and row i of B
/// never meets a row of C below i.
template <class Arch = simd::default_arch, class T, class Finish = overwrite>
OGIVE_INLINE void gemm_tril_turned(index_t m, index_t n, detail::given<T> a, detail::given<T> b, panel<T> c,
                                   const Finish& finish = {}) noexcept {
  using A = detail::left<T, detail::one, index_t>;
  detail::sweep<T, Arch>(
      m, n, detail::turned_triangular_kernel<false, T, A, Finish>{m, A{a.data, {}, a.stride}, b, c, finish});
}

/// The same without the diagonal: C_j = Σ_{i > j} A_ij B_i.
template <class Arch = simd::default_arch, class T, class Finish = overwrite>
OGIVE_INLINE void gemm_strict_tril_turned(index_t m, index_t n, detail::given<T> a, detail::given<T> b, panel<T> c,
                                          const Finish& finish = {}) noexcept {
  using A = detail::left<T, detail::one, index_t>;
  detail::sweep<T, Arch>(
      m, n, detail::turned_triangular_kernel<true, T, A, Finish>{m, A{a.data, {}, a.stride}, b, c, finish});
}

}  // namespace linalg
}  // namespace OGIVE_ABI
}  // namespace ogive

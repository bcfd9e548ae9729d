// L3: the unit lower triangular solve of the delta rule.
#pragma once

#include <ogive/linalg/gemm.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace linalg {

namespace detail {

/// X_i = B_i ± Σ_{j < i} A_ij X_j, a tile of rows at a time: the finished rows by fma, then down the tile itself.
template <class Sign, class T, class A>
struct solve_kernel {
  A a;
  panel<T> x;

  static OGIVE_INLINE index_t first_row(index_t) noexcept { return 0; }

  template <class Tile>
  OGIVE_INLINE void run(index_t i, index_t j, const typename Tile::cols& cols) const noexcept {
    const panel<const T> found = x;
    Tile sums(cols);
    sums.load(found.from(i, j));
    sums.template product<Sign>(i, a.from(i, 0), found.from(0, j));
    sums.template substitute<Sign>(a.from(i, i));
    sums.drain(i, j, x, overwrite{});
  }
};

}  // namespace detail

/// X = (I + strictly_lower(A))⁻¹ B in place of B: A [m, m], B [m, n]. A on and above the diagonal is never read. Row i
/// is B_i less the terms j = 0, 1, … in this order, so the bits do not depend on how the columns are split.
template <class Arch = simd::default_arch, class T>
OGIVE_INLINE void solve_unit_lower(index_t m, index_t n, detail::given<T> a, panel<T> b) noexcept {
  using A = detail::left<T, index_t, detail::one>;
  detail::sweep<T, Arch>(m, n, detail::solve_kernel<detail::minus, T, A>{A{a.data, a.stride, {}}, b});
}

/// X = (I − strictly_lower(A))⁻¹ B in place of B, the same solve with the other sign: X_i = B_i + Σ_{j < i} A_ij X_j.
template <class Arch = simd::default_arch, class T>
OGIVE_INLINE void accumulate_unit_lower(index_t m, index_t n, detail::given<T> a, panel<T> b) noexcept {
  using A = detail::left<T, index_t, detail::one>;
  detail::sweep<T, Arch>(m, n, detail::solve_kernel<detail::plus, T, A>{A{a.data, a.stride, {}}, b});
}

}  // namespace linalg
}  // namespace OGIVE_ABI
}  // namespace ogive

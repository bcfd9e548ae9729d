// L3: one row times a matrix, c ← a B, for products of so few rows that the tile of a gemm would wait for its own sums:
// as many neighbouring columns as there is room for are summed at a time. Elements have the bits of gemm_ab.
#pragma once

#include <ogive/linalg/gemm.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace linalg {

namespace detail {

inline constexpr std::size_t row_vectors = 8;

template <std::size_t N, class T, class Arch, class Kernel>
OGIVE_INLINE void run_last_columns(index_t j, index_t n, const Kernel& kernel) noexcept {
  const index_t last = n - j - static_cast<index_t>(N - 1) * simd::width<T, Arch>;
  if (last > 0) {
    kernel.template run<tile<T, Arch, 1, N, true>>(0, j, columns<T, Arch, N, true>{simd::lanes<T, Arch>(last)});
  } else if constexpr (N > 1) {
    run_last_columns<N - 1, T, Arch>(j, n, kernel);
  }
}

}  // namespace detail

/// c [n] ← a [k] B [k, n]; c must not overlap a or B.
template <class Arch = simd::default_arch, class T, class Finish = overwrite>
OGIVE_NOINLINE void gemv_ab(index_t n, index_t k, const std::type_identity_t<T>* a, detail::given<T> b, T* c,
                            const Finish& finish = {}) noexcept {
  using A = detail::left<T, index_t, detail::one>;
  constexpr std::size_t N = detail::row_vectors;
  constexpr index_t W = simd::width<T, Arch>, block = static_cast<index_t>(N) * W;
  const detail::dense_kernel<T, A, Finish> kernel{k, {A{a, 0, {}}}, {b}, panel<T>{c, 0}, finish};
  const detail::columns<T, Arch, N, false> whole{simd::lanes<T, Arch>(W)};
  index_t j = 0;
  for (; j + block <= n; j += block) kernel.template run<detail::tile<T, Arch, 1, N, false>>(0, j, whole);
  detail::run_last_columns<N, T, Arch>(j, n, kernel);
}

}  // namespace linalg
}  // namespace OGIVE_ABI
}  // namespace ogive

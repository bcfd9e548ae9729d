// L3: Bᵀ, so that a product with it reads rows.
#pragma once

#include <ogive/linalg/tile.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace linalg {

/// The stride transpose expects of n columns: whole vectors, and off the multiples of 512 bytes that would put every
/// row into the same few cache sets.
template <class T, class Arch = simd::default_arch>
constexpr index_t transposed_stride(index_t n) noexcept {
  constexpr index_t W = simd::width<T, Arch>;
  return (n + W - 1) / W * W;
}

/// out [k, n] = Bᵀ for B [n, k].
template <class Arch = simd::default_arch, class T>
OGIVE_INLINE void transpose(index_t n, index_t k, std::type_identity_t<panel<const T>> b, panel<T> out) noexcept {
  for (index_t i = 0; i < n; ++i)
    for (index_t p = 0; p < k; ++p) out.row(p)[i] = b.row(i)[p];
}

}  // namespace linalg
}  // namespace OGIVE_ABI
}  // namespace ogive

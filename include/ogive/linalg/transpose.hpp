// L3: Bᵀ, so that a product with it reads rows.
#pragma once

#include <ogive/linalg/tile.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace linalg {

/// A row stride for n columns: whole vectors, and no multiple of 512 bytes, which would put all rows of a column into a
/// few sets of the first cache.
template <class T, class Arch = simd::default_arch>
constexpr index_t padded_stride(index_t n) noexcept {
  constexpr index_t W = simd::width<T, Arch>, way = 512 / static_cast<index_t>(sizeof(T));
  const index_t vectors = (n + W - 1) / W * W;
  return vectors % way == 0 ? vectors + W : vectors;
}

namespace detail {

/// The address of row I of a block, where the rows before it have been asked for: four from one address.
template <std::size_t I, class T>
OGIVE_INLINE T* next_row(panel<T>& block) noexcept {
  if constexpr (I > 0 && I % 4 == 0) block.data = simd::keep(block.row(4));
  return block.row(I % 4);
}

/// A whole block, the width each way.
template <class Arch, class T, std::size_t... I>
OGIVE_INLINE void transpose_block(panel<const T> b, panel<T> out, std::index_sequence<I...>) noexcept {
  simd::batch<T, Arch> x[] = {simd::load<Arch>(next_row<I>(b))...};
  simd::transpose(x);
  (simd::store(next_row<I>(out), x[I]), ...);
}

/// `rows` × `depth` elements, at most the width each way.
template <class Arch, class T>
void transpose_edge(index_t rows, index_t depth, panel<const T> b, panel<T> out) noexcept {
  using V = simd::batch<T, Arch>;
  const simd::lanes<T, Arch> read(depth), written(rows);
  V x[V::size];
  for (index_t i = 0; i < simd::width<T, Arch>; ++i) x[i] = i < rows ? simd::load(b.row(i), read) : V(T(0));
  simd::transpose(x);
  for (index_t p = 0; p < depth; ++p) simd::store(out.row(p), x[p], written);
}

}  // namespace detail

/// out [k, n] = Bᵀ for B [n, k]; they must not overlap.
template <class Arch = simd::default_arch, class T>
void transpose(index_t n, index_t k, std::type_identity_t<panel<const T>> b, panel<T> out) noexcept {
  constexpr index_t W = simd::width<T, Arch>;
  for (index_t i = 0; i < n; i += W) {
    for (index_t p = 0; p < k; p += W) {
      const panel<const T> from = b.from(i, p);
      const panel<T> to = out.from(p, i);
      if (n - i >= W && k - p >= W) {
        detail::transpose_block<Arch, T>(from, to, std::make_index_sequence<simd::batch<T, Arch>::size>{});
      } else {
        detail::transpose_edge<Arch, T>(n - i < W ? n - i : W, k - p < W ? k - p : W, from, to);
      }
    }
  }
}

}  // namespace linalg
}  // namespace OGIVE_ABI
}  // namespace ogive

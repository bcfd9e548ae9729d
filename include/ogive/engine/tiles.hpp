// L5: blocks of a tensor through a function into panels, and back, whichever axis has its neighbours in memory.
#pragma once

#include <ogive/core/accum.hpp>
#include <ogive/core/view.hpp>
#include <ogive/simd/batch.hpp>

#include <algorithm>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

struct as_it_is {
  template <class V>
  OGIVE_INLINE V operator()(const V& x, index_t, index_t) const noexcept {
    return x;
  }
};

/// panel[i][j] = f(x[i][j], i, j), a vector of columns j at a time; f sees 0 in the lanes past the last column.
template <class Acc, class T, class F = as_it_is>
OGIVE_INLINE void load_tile(const view<const T, 2>& x, Acc* panel, index_t stride, const F& f = {}) noexcept {
  using vector = simd::batch<Acc>;
  using arch = simd::default_arch;
  constexpr index_t W = simd::width<Acc>;
  const index_t rows = x.extent(0);
  const index_t columns = x.extent(1);
  if (x.stride(0) == 1 && x.stride(1) != 1 && rows > 1) {
    for (index_t j = 0; j < columns; j += W) {
      const index_t across = std::min(W, columns - j);
      for (index_t i = 0; i < rows; i += W) {
        const index_t down = std::min(W, rows - i);
        vector block[vector::size];
        for (index_t c = 0; c < across; ++c) block[c] = simd::load_as<Acc, arch>(x.pointer(i, j + c), down);
        for (index_t c = across; c < W; ++c) block[c] = vector(Acc(0));
        simd::transpose(block);
        for (index_t r = 0; r < down; ++r) simd::store(panel + (i + r) * stride + j, f(block[r], i + r, j));
      }
    }
    return;
  }
  for (index_t j = 0; j < columns; j += W) {  // columns outside: a row's few vectors would become a call of memmove
    for (index_t i = 0; i < rows; ++i) {
      const vector v = simd::load_strided<Acc, arch>(x.pointer(i, j), x.stride(1), columns - j);
      simd::store(panel + i * stride + j, f(v, i, j));
    }
  }
}

/// x[i][j] = panel[i][j], rounded to the storage type.
template <class Acc, class T>
OGIVE_INLINE void store_tile(const Acc* panel, index_t stride, const view<T, 2>& x) noexcept {
  using vector = simd::batch<Acc>;
  constexpr index_t W = simd::width<Acc>;
  const index_t rows = x.extent(0);
  const index_t columns = x.extent(1);
  if (x.stride(0) == 1 && x.stride(1) != 1 && rows > 1) {
    for (index_t j = 0; j < columns; j += W) {
      for (index_t i = 0; i < rows; i += W) {
        const index_t down = std::min(W, rows - i);
        vector block[vector::size];
        for (index_t r = 0; r < down; ++r) block[r] = simd::load(panel + (i + r) * stride + j);
        for (index_t r = down; r < W; ++r) block[r] = vector(Acc(0));
        simd::transpose(block);
        for (index_t c = 0; c < std::min(W, columns - j); ++c) simd::store_as(x.pointer(i, j + c), block[c], down);
      }
    }
    return;
  }
  for (index_t j = 0; j < columns; j += W) {
    for (index_t i = 0; i < rows; ++i) {
      simd::store_strided(x.pointer(i, j), x.stride(1), simd::load(panel + i * stride + j), columns - j);
    }
  }
}

/// Zeros in the padded width of rows [begin, end).
template <class Acc>
OGIVE_INLINE void zero_tile(Acc* panel, index_t stride, index_t begin, index_t end, index_t columns) noexcept {
  constexpr index_t W = simd::width<Acc>;
  for (index_t j = 0; j < columns; j += W) {
    for (index_t i = begin; i < end; ++i) simd::store(panel + i * stride + j, simd::batch<Acc>(Acc(0)));
  }
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

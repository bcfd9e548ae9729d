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
  OGIVE_INLINE auto operator()(index_t) const noexcept {
    return [](const auto& x, index_t) noexcept { return x; };
  }
};

/// Whether walking down a column is walking along memory.
template <class T>
bool columns_are_contiguous(const view<T, 2>& x) noexcept {
  return x.stride(0) == 1 && x.stride(1) != 1 && x.extent(0) > 1;
}

/// panel[i][j] = f(j)(x[i][j], i), a vector of columns j at a time; f(j)(·, i) sees 0 in the lanes past the last
/// column. Columns are the outer loop: f(j) is made once, and a row's few vectors do not become a call of memmove.
template <class Acc, class T, class F = as_it_is>
OGIVE_INLINE void load_tile(const view<const T, 2>& x, Acc* panel, index_t stride, const F& f = {}) noexcept {
  using vector = simd::batch<Acc>;
  using arch = simd::default_arch;
  constexpr index_t W = simd::width<Acc>;
  const index_t rows = x.extent(0);
  for (index_t j = 0; j < x.extent(1); j += W) {
    const index_t across = std::min(W, x.extent(1) - j);
    const auto change = f(j);
    if (columns_are_contiguous(x)) {
      for (index_t i = 0; i < rows; i += W) {
        const index_t down = std::min(W, rows - i);
        vector block[vector::size];
        for (index_t c = 0; c < across; ++c) block[c] = simd::load_as<Acc, arch>(x.pointer(i, j + c), down);
        for (index_t c = across; c < W; ++c) block[c] = vector(Acc(0));
        simd::transpose(block);
        for (index_t r = 0; r < down; ++r) simd::store(panel + (i + r) * stride + j, change(block[r], i + r));
      }
      continue;
    }
    const auto down = [&](const auto& read) __attribute__((always_inline)) {
      const T* from = x.pointer(0, j);
      for (index_t i = 0; i < rows; ++i, from += x.stride(0)) {
        simd::store(panel + i * stride + j, change(read(from), i));
      }
    };
    if (x.stride(1) == 1 && across == W) {
      down([](const T* from) __attribute__((always_inline)) { return simd::load_as<Acc, arch>(from); });
    } else {
      down([&](const T* from) { return simd::load_strided<Acc, arch>(from, x.stride(1), across); });
    }
  }
}

/// x[i][j] = panel[i][j], rounded to the storage type; `past` the caches, in columns whose rows are aligned vectors.
template <class Acc, class T>
OGIVE_INLINE void store_tile(const Acc* panel, index_t stride, const view<T, 2>& x, bool past = false) noexcept {
  using vector = simd::batch<Acc>;
  constexpr index_t W = simd::width<Acc>;
  const index_t rows = x.extent(0);
  for (index_t j = 0; j < x.extent(1); j += W) {
    const index_t across = std::min(W, x.extent(1) - j);
    if (columns_are_contiguous(x)) {
      for (index_t i = 0; i < rows; i += W) {
        const index_t down = std::min(W, rows - i);
        vector block[vector::size];
        for (index_t r = 0; r < down; ++r) block[r] = simd::load(panel + (i + r) * stride + j);
        for (index_t r = down; r < W; ++r) block[r] = vector(Acc(0));
        simd::transpose(block);
        if constexpr (std::is_same_v<T, Acc>) {
          if (past && down == W) {
            for (index_t c = 0; c < across; ++c) simd::stream(x.pointer(i, j + c), block[c]);
            continue;
          }
        }
        for (index_t c = 0; c < across; ++c) simd::store_as(x.pointer(i, j + c), block[c], down);
      }
    } else if (x.stride(1) == 1 && across == W) {
      for (index_t i = 0; i < rows; ++i) simd::store_as(x.pointer(i, j), simd::load(panel + i * stride + j));
    } else {
      for (index_t i = 0; i < rows; ++i) {
        simd::store_strided(x.pointer(i, j), x.stride(1), simd::load(panel + i * stride + j), across);
      }
    }
  }
}

/// The same, added to what x holds where `add` says so. The panel then has what x has.
template <class Acc, class T>
OGIVE_INLINE void drain_tile(Acc* panel, index_t stride, const view<T, 2>& x, bool add) noexcept {
  if (add) {
    load_tile(view<const T, 2>(x), panel, stride, [&](index_t j) noexcept {
      return [=](const simd::batch<Acc>& before, index_t i) noexcept {
        return before + simd::load(panel + i * stride + j);
      };
    });
  }
  store_tile(panel, stride, x);
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

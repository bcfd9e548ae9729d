// L7: rows in memory as vectors, whatever their storage and stride.
#pragma once

#include <ogive/core/view.hpp>
#include <ogive/simd/batch.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// `length` numbers, a vector of Acc at a time: those from j on, 0 past the end. An absent row is false.
template <class Acc, class T>
struct row_of {
  using vector = simd::batch<Acc>;
  T* data = nullptr;
  index_t stride = 0;
  index_t length = 0;

  OGIVE_INLINE vector operator()(index_t j) const noexcept {
    if (stride == 1 && j + simd::width<Acc> <= length) return simd::load_as<Acc, simd::default_arch>(data + j);
    return simd::load_strided<Acc, simd::default_arch>(data + j * stride, stride, length - j);
  }
  OGIVE_INLINE void write(index_t j, const vector& v) const noexcept {
    if (stride == 1 && j + simd::width<Acc> <= length) return simd::store_as(data + j, v);
    simd::store_strided(data + j * stride, stride, v, length - j);
  }
  OGIVE_INLINE void write(index_t j, const vector& v, bool accumulate) const noexcept {
    write(j, accumulate ? (*this)(j) + v : v);
  }
  explicit operator bool() const noexcept { return data != nullptr; }
};

/// The last axis of x at some indices of the others.
template <class Acc, class T, std::size_t Rank, class... Index>
row_of<Acc, T> row_at(const view<T, Rank>& x, Index... index) noexcept {
  if (!x.present()) return {};
  return {x.pointer(index..., index_t(0)), x.stride(Rank - 1), x.extent(Rank - 1)};
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

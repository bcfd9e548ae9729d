// L1: the owning sibling of view, for tests, examples and small programs. Operators only ever see views.
#pragma once

#include <ogive/core/memory.hpp>
#include <ogive/core/view.hpp>

#include <algorithm>
#include <memory>
#include <utility>

namespace ogive {

/// Row-major, aligned to 64 bytes, zero-filled; in large pages from 1 MiB on, where the system has them.
template <class T, std::size_t Rank>
class tensor {
 public:
  tensor() noexcept = default;
  /// \throws shape_error when no memory could hold it.
  explicit tensor(const shape<Rank>& extents, T fill = T{})
      : tensor(extents, core::row_major(possible(extents, volume_of(extents))), fill) {}

  /// With strides of its own (padded rows); `fill` goes to the padding too.
  tensor(const shape<Rank>& extents, const shape<Rank>& strides, T fill)
      : extents_(possible(extents, std::max(volume_of(extents), reach_of(extents, strides)))), strides_(strides) {
    index_t last = 0;
    for (std::size_t axis = 0; axis < Rank; ++axis) last += std::max<index_t>(extents[axis] - 1, 0) * strides[axis];
    held_ = core::volume(extents) == 0 ? 0 : last + 1;
    const auto bytes = static_cast<std::size_t>(std::max<index_t>(held_, 1)) * sizeof(T);
    data_ = {static_cast<T*>(core::allocate(bytes)), release{bytes}};
    std::uninitialized_fill_n(data_.get(), held_, fill);
  }

  /// A copy of an absent tensor is absent, and so is what has been moved from.
  tensor(const tensor& other) {
    if (!other.data_) return;
    *this = tensor(other.extents_, other.strides_, T{});
    std::copy_n(other.data_.get(), held_, data_.get());
  }
  tensor(tensor&& other) noexcept { swap(other); }
  tensor& operator=(tensor other) noexcept {
    swap(other);
    return *this;
  }
  ~tensor() = default;

  view<T, Rank> all() noexcept { return data_ ? view<T, Rank>(data_.get(), extents_, strides_) : view<T, Rank>(); }
  view<const T, Rank> all() const noexcept {
    return data_ ? view<const T, Rank>(data_.get(), extents_, strides_) : view<const T, Rank>();
  }
  operator view<T, Rank>() noexcept { return all(); }
  operator view<const T, Rank>() const noexcept { return all(); }

  T* data() noexcept { return data_.get(); }
  const T* data() const noexcept { return data_.get(); }
  /// All elements in memory order, padding included.
  std::span<T> flat() noexcept { return {data_.get(), static_cast<std::size_t>(held_)}; }
  std::span<const T> flat() const noexcept { return {data_.get(), static_cast<std::size_t>(held_)}; }
  index_t size() const noexcept { return data_ ? core::volume(extents_) : 0; }
  index_t extent(std::size_t axis) const noexcept { return extents_[axis]; }
  const shape<Rank>& extents() const noexcept { return extents_; }

  template <class... Index>
  T& operator()(Index... index) noexcept {
    return all()(index...);
  }
  template <class... Index>
  const T& operator()(Index... index) const noexcept {
    return all()(index...);
  }

 private:
  void swap(tensor& other) noexcept {
    std::swap(extents_, other.extents_);
    std::swap(strides_, other.strides_);
    std::swap(held_, other.held_);
    std::swap(data_, other.data_);
  }

  // In double: what has as many elements as this would wrap round an integer, to few.
  static double volume_of(const shape<Rank>& extents) noexcept {
    double product = 1;
    for (const index_t extent : extents) product *= static_cast<double>(std::max<index_t>(extent, 1));
    return product;
  }
  static double reach_of(const shape<Rank>& extents, const shape<Rank>& strides) noexcept {
    double last = 0;
    for (std::size_t axis = 0; axis < Rank; ++axis) {
      last += static_cast<double>(std::max<index_t>(extents[axis], 1) - 1) * static_cast<double>(strides[axis]);
    }
    return last;
  }
  static const shape<Rank>& possible(const shape<Rank>& extents, double elements) {
    if (elements * sizeof(T) < 0x1p62) return extents;
    raise(status(status_code::shape) << "ogive::tensor: no memory could hold " << std::span<const index_t>(extents)
                                     << " elements");
  }

  struct release {
    std::size_t bytes = 0;
    void operator()(T* data) const noexcept { core::release(data, bytes); }
  };
  static_assert(std::is_trivially_destructible_v<T>, "ogive::tensor holds numbers");

  shape<Rank> extents_{};
  shape<Rank> strides_{};
  index_t held_ = 0;
  std::unique_ptr<T, release> data_;
};

}  // namespace ogive

// L1: a pointer with signed extents and signed strides. The words are mdspan's.
#pragma once

#include <ogive/core/error.hpp>

#include <array>
#include <concepts>
#include <ranges>
#include <type_traits>

namespace ogive {

template <std::size_t Rank>
using shape = std::array<index_t, Rank>;

namespace core {

template <std::size_t Rank>
constexpr shape<Rank> row_major(const shape<Rank>& extents) noexcept {
  shape<Rank> strides{};
  index_t step = 1;
  for (std::size_t axis = Rank; axis-- > 0;) {
    strides[axis] = step;
    step *= extents[axis];
  }
  return strides;
}

template <std::size_t Rank>
constexpr index_t volume(const shape<Rank>& extents) noexcept {
  index_t product = 1;
  for (const index_t extent : extents) product *= extent;
  return product;
}

}  // namespace core

/// A rank-`Rank` window onto memory somebody else owns. Strides are in elements, in any order, of any sign, and may be
/// 0 (a broadcast). A default-constructed view is absent: `present()` is false, which is how optional fields are left
/// out. A view of no elements (L = 0) is present.
template <class T, std::size_t Rank>
class view {
 public:
  using element_type = T;
  using value_type = std::remove_const_t<T>;
  static constexpr std::size_t rank = Rank;

  constexpr view() noexcept = default;

  /// Row-major over `extents`.
  constexpr view(T* data, const shape<Rank>& extents) noexcept
      : data_(data), extents_(extents), strides_(core::row_major(extents)), present_(true) {}

  constexpr view(T* data, const shape<Rank>& extents, const shape<Rank>& strides) noexcept
      : data_(data), extents_(extents), strides_(strides), present_(true) {}

  /// Row-major over a contiguous range (std::vector, std::span, …). \throws shape_error when the sizes differ.
  template <std::ranges::contiguous_range Range>
  requires std::convertible_to<decltype(std::ranges::data(std::declval<Range&>())), T*>
  constexpr view(Range&& range, const shape<Rank>& extents) : view(std::ranges::data(range), extents) {
    const auto held = static_cast<index_t>(std::ranges::size(range));
    if (held != core::volume(extents)) {
      raise(status(status_code::shape) << "ogive::view: a range of " << held << " elements cannot be seen as "
                                       << std::span<const index_t>(extents));
    }
  }

  /// From one dimension of contiguous data, its extent is its size.
  template <std::ranges::contiguous_range Range>
  requires(Rank == 1) && std::convertible_to<decltype(std::ranges::data(std::declval<Range&>())), T*> constexpr view(
                             Range&& range) noexcept
      : view(std::ranges::data(range), shape<1>{static_cast<index_t>(std::ranges::size(range))}) {}

  /// A view of mutable elements is a view of constant ones.
  constexpr operator view<const T, Rank>() const noexcept requires(!std::is_const_v<T>) {
    return present_ ? view<const T, Rank>(data_, extents_, strides_) : view<const T, Rank>();
  }

  constexpr bool present() const noexcept { return present_; }
  constexpr T* data() const noexcept { return data_; }
  constexpr index_t extent(std::size_t axis) const noexcept { return extents_[axis]; }
  constexpr index_t stride(std::size_t axis) const noexcept { return strides_[axis]; }
  constexpr const shape<Rank>& extents() const noexcept { return extents_; }
  constexpr const shape<Rank>& strides() const noexcept { return strides_; }
  constexpr index_t size() const noexcept { return present_ ? core::volume(extents_) : 0; }
  constexpr bool empty() const noexcept { return size() == 0; }

  template <std::convertible_to<index_t>... Index>
  requires(sizeof...(Index) == Rank) constexpr T& operator()(Index... index) const noexcept {
    return *pointer(static_cast<index_t>(index)...);
  }

  /// The address of an element; also valid one past the end of an axis.
  template <std::convertible_to<index_t>... Index>
  requires(sizeof...(Index) == Rank) constexpr T* pointer(Index... index) const noexcept {
    const shape<Rank> at{static_cast<index_t>(index)...};
    index_t offset = 0;
    for (std::size_t axis = 0; axis < Rank; ++axis) offset += at[axis] * strides_[axis];
    return data_ + offset;
  }

  /// Drops the first axis.
  constexpr decltype(auto) operator[](index_t i) const noexcept {
    if constexpr (Rank == 1) {
      return static_cast<T&>(data_[i * strides_[0]]);
    } else {
      shape<Rank - 1> extents{};
      shape<Rank - 1> strides{};
      for (std::size_t axis = 1; axis < Rank; ++axis) {
        extents[axis - 1] = extents_[axis];
        strides[axis - 1] = strides_[axis];
      }
      return view<T, Rank - 1>(data_ + i * strides_[0], extents, strides);
    }
  }

  /// `count` positions of `axis` from `begin` on.
  constexpr view slice(std::size_t axis, index_t begin, index_t count) const noexcept {
    view part = *this;
    part.data_ = data_ + begin * strides_[axis];
    part.extents_[axis] = count;
    return part;
  }

  /// Axis i of the result is axis `axes[i]` of this view: `v.permute({0, 2, 1, 3})`.
  constexpr view permute(const std::array<std::size_t, Rank>& axes) const noexcept {
    view turned = *this;
    for (std::size_t axis = 0; axis < Rank; ++axis) {
      turned.extents_[axis] = extents_[axes[axis]];
      turned.strides_[axis] = strides_[axes[axis]];
    }
    return turned;
  }

 private:
  T* data_ = nullptr;
  shape<Rank> extents_{};
  shape<Rank> strides_{};
  bool present_ = false;
};

/// [B, H, L, D] memory seen in ogive's order [B, L, H, D].
template <class T>
constexpr view<T, 4> from_bhld(const view<T, 4>& x) noexcept {
  return x.permute({0, 2, 1, 3});
}

/// [B, D, L] memory (channels first) seen in ogive's order [B, L, D].
template <class T>
constexpr view<T, 3> from_bdl(const view<T, 3>& x) noexcept {
  return x.permute({0, 2, 1});
}

/// A state kept as [.., V, K] seen as ogive's [.., K, V]. Nothing moves: both orders have a native sweep.
template <class T>
constexpr view<T, 4> from_v_first(const view<T, 4>& x) noexcept {
  return x.permute({0, 1, 3, 2});
}

}  // namespace ogive

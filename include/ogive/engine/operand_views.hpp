// L5: an operator's letters in the shapes that the engine's operands have.
#pragma once

#include <ogive/core/view.hpp>

#include <cmath>
#include <optional>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// The factor of q where queries and keys are features of softmax's kind: 1/√K unless given.
template <class Acc>
Acc scale_or_root(const std::optional<Acc>& scale, index_t key_dim) noexcept {
  return scale ? *scale : Acc(1) / std::sqrt(static_cast<Acc>(key_dim));
}

/// x [H] as [B, L, H], or x [H, K] as [B, L, H, K]: the same for every token.
template <class T, std::size_t Rank>
view<T, Rank + 2> over_time(const view<T, Rank>& x, index_t batch, index_t length) noexcept {
  if (!x.present()) return {};
  shape<Rank + 2> extents{batch, length}, strides{0, 0};
  for (std::size_t axis = 0; axis < Rank; ++axis) {
    extents[axis + 2] = x.extent(axis);
    strides[axis + 2] = x.stride(axis);
  }
  return {x.data(), extents, strides};
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

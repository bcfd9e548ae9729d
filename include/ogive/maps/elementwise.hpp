// L4: feature maps that take every number on its own.
#pragma once

#include <ogive/maps/feature_map.hpp>
#include <ogive/simd/math.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace maps {

namespace detail {

template <class T>
OGIVE_INLINE T pick(bool condition, T a, T b) noexcept {
  return condition ? a : b;
}
template <class T, class Arch>
OGIVE_INLINE simd::batch<T, Arch> pick(const simd::batch_mask<T, Arch>& condition, const simd::batch<T, Arch>& a,
                                       const simd::batch<T, Arch>& b) noexcept {
  return simd::select(condition, a, b);
}

}  // namespace detail

/// φ(x) = elu(x) + 1 = x + 1 for x > 0, eˣ otherwise: never formed as (eˣ − 1) + 1, so the relative accuracy is that of
/// exp however negative x is. Katharopoulos et al., Transformers are RNNs, arXiv:2006.16236.
struct elu1 {
  template <class X>
  X operator()(X x) const noexcept {
    return detail::pick(x > X(0), x + X(1), simd::exp(x));
  }
  template <class X>
  X slope(X x) const noexcept {
    return detail::pick(x > X(0), X(1), simd::exp(x));
  }
};

/// φ(x) = max(x, 0); NaN stays NaN. The slope at 0 is 0.
struct relu {
  template <class X>
  X operator()(X x) const noexcept {
    return detail::pick(x < X(0), X(0), x);
  }
  template <class X>
  X slope(X x) const noexcept {
    return detail::pick(x > X(0), X(1), X(0));
  }
};

/// φ(x) = max(x, 0)². So et al., Primer, arXiv:2109.08668.
struct squared_relu {
  template <class X>
  X operator()(X x) const noexcept {
    const X positive = relu{}(x);
    return positive * positive;
  }
  template <class X>
  X slope(X x) const noexcept {
    return X(2) * relu{}(x);
  }
};

/// φ(x) = eˣ
struct exponential {
  template <class X>
  X operator()(X x) const noexcept {
    return simd::exp(x);
  }
  template <class X>
  X slope(X x) const noexcept {
    return simd::exp(x);
  }
};

}  // namespace maps
}  // namespace OGIVE_ABI
}  // namespace ogive

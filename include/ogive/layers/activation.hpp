// L7: the functions that layers put around a sum, with their slopes.
#pragma once

#include <ogive/simd/math.hpp>

namespace ogive {

/// σ in the formulas of layers.
enum class activation {
  none,
  silu,     ///< x / (1 + e⁻ˣ), also called swish
  sigmoid,  ///< 1 / (1 + e⁻ˣ)
};

inline namespace OGIVE_ABI {
namespace detail {

template <class T, class Arch>
OGIVE_INLINE simd::batch<T, Arch> activate(activation f, const simd::batch<T, Arch>& x) noexcept {
  switch (f) {
    case activation::silu:
      return simd::silu(x);
    case activation::sigmoid:
      return simd::sigmoid(x);
    default:
      return x;
  }
}

/// dσ/dx. 1 − s(x) is written s(−x), which keeps its digits; −∞ is taken for the lowest number, as silu does.
template <class T, class Arch>
OGIVE_INLINE simd::batch<T, Arch> slope(activation f, const simd::batch<T, Arch>& x) noexcept {
  using vector = simd::batch<T, Arch>;
  const vector one(T(1));
  switch (f) {
    case activation::silu: {
      const vector finite = simd::max(vector(std::numeric_limits<T>::lowest()), x);
      return simd::sigmoid(finite) * simd::fma(finite, simd::sigmoid(-finite), one);
    }
    case activation::sigmoid:
      return simd::sigmoid(x) * simd::sigmoid(-x);
    default:
      return one;
  }
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

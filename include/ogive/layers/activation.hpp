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

/// σ(x) and dσ/dx, from one exponential. s(x) and s(−x) = 1 − s(x) both keep their digits; −∞ is taken for the lowest
/// number, as silu does.
template <class T, class Arch>
struct with_slope {
  using vector = simd::batch<T, Arch>;
  vector value, slope;

  OGIVE_INLINE with_slope(activation f, const vector& x) noexcept : value(x), slope(vector(T(1))) {
    if (f == activation::none) return;
    const vector one(T(1)), e = simd::exp(-simd::abs(x)), large = simd::divide(one, e + one), small = e * large;
    const auto negative = x < vector(T(0));
    const vector s = simd::select(negative, small, large), rest = simd::select(negative, large, small);
    if (f == activation::sigmoid) {
      value = s;
      slope = s * rest;
    } else {
      const vector finite = simd::max(vector(std::numeric_limits<T>::lowest()), x);
      value = finite * s;
      slope = s * simd::fma(finite, rest, one);
    }
  }
};
template <class T, class Arch>
with_slope(activation, const simd::batch<T, Arch>&) -> with_slope<T, Arch>;

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

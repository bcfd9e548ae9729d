// L2: 2^(x y), the decay of a state whose rate and time step are two numbers: the product is never rounded.
#pragma once

#include <ogive/simd/math.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace simd {

namespace detail {

/// 2^−g on |g| ≤ 1/2 as a polynomial that is exactly 1 at 0: minimax fits of the relative error, 9.2e-8 and 3.4e-18.
/// The slope at 0, which long memories feel, is right to 2.9e-7 and 1e-17.
template <class T>
struct halving;
template <>
struct halving<float> {
  static constexpr float c[] = {1.0F,
                                -0.69314697759899203815F,
                                0.2402224208537670947F,
                                -0.055507337434700852738F,
                                0.0096715126399564551514F,
                                -0.001326472714007201332F};
};
template <>
struct halving<double> {
  static constexpr double c[] = {1.0,
                                 -0.69314718055994532581,
                                 0.2402265069591013126,
                                 -0.055504108664820083227,
                                 0.0096181291075940921,
                                 -0.0013333558146774620517,
                                 0.0001540353045711209086,
                                 -0.000015252733493127489,
                                 1.3215435282308487999e-6,
                                 -1.0178199571842137974e-7,
                                 7.0737832485031332991e-9,
                                 -4.4347712982003767083e-10};
};

}  // namespace detail

/// How far |x y| may go in `exp2_product`: beyond it the remainder of the product is no fraction any more.
template <class T>
inline constexpr T exp2_product_limit = sizeof(T) == 4 ? T(0x1p50) : T(0x1p140);

/// 2^(x y) for |x y| ≤ exp2_product_limit; 0 and ∞ beyond the range of T, exactly 1 where the product is 0. Relative
/// error: 1.5 ulp, whatever x y is. `Any` lifts the limit, at the price of two operations.
///
/// Where vectors have no instruction that scales by 2ⁿ the product is rounded (its rounding error comes on top), there
/// is no limit, and results are 0 below 2^−126.5 (float) or 2^−1022.5 and infinite from 2^127.5 or 2^1023.5 on.
template <bool Any = false, class T, class Arch>
OGIVE_INLINE batch<T, Arch> exp2_product(const batch<T, Arch>& x, const batch<T, Arch>& y) noexcept {
  using vector = batch<T, Arch>;
  using register_type = typename vector::register_type;
  using M = detail::math<T>;
  if constexpr (requires(register_type r) { native::scale2(r, r); }) {
    const vector n = simd::fma(x, y, vector(M::round)) - vector(M::round);
    vector g = simd::fnma(x, y, n);
    if constexpr (Any) g = simd::max(simd::min(g, vector(T(1))), vector(T(-1)));
    return simd::scale2(detail::polynomial(detail::halving<T>::c, g), n);
  } else {
    const vector t = simd::max(vector(-M::bias), simd::min(vector(M::bias + T(1)), x * y));
    const vector lifted = t + vector(M::round + M::bias);  // its low bits are n + bias, which become the exponent
    const vector g = (lifted - vector(M::round + M::bias)) - t;
    return detail::polynomial(detail::halving<T>::c, g) *
           simd::from_bits<T, Arch>(simd::to_bits(lifted) << M::mantissa);
  }
}

}  // namespace simd
}  // namespace OGIVE_ABI
}  // namespace ogive

// L2: the functions the operators are made of, for whole vectors of float and double and, to the same bits, for
// scalars.
//
// Errors are bounds in units in the last place of the exact result, a little above the largest found over dense samples
// of the whole range: with fma / without (SSE2). NaN gives NaN. Results below the normal range are subnormal, unless
// the caller flushes them (flush_subnormals). A lane has the same bits whatever the width, on every machine with fma.
// The polynomials are minimax fits of the relative error on the reduced argument.
#pragma once

#include <ogive/simd/batch.hpp>

#include <bit>
#include <cmath>
#include <concepts>
#include <limits>

namespace ogive {
inline namespace OGIVE_ABI {
namespace simd {

namespace detail {

template <class T>
struct math;

template <>
struct math<float> {
  static constexpr int mantissa = 23, sign = 31;
  static constexpr float bias = 127.0F;
  static constexpr float round = 0x1.8p23F;  // added and taken away again it rounds; the low bits then hold the integer
  static constexpr float exp_lowest = -105.0F, exp_highest = 89.0F;     // exp is 0 below and infinite above
  static constexpr float exp2_lowest = -151.0F, exp2_highest = 129.0F;  // likewise
  static constexpr float expm1_lowest = -20.0F;                         // expm1 is −1 below
  static constexpr float smallest_normal = 0x1p-126F, lift = 0x1p24F, lift_exponent = 24.0F;
  static constexpr float root_half = 0x1.6a09e6p-1F;
  static constexpr float log2_e = 0x1.715476p+0F, two_over_pi = 0x1.45f306p-1F;
  static constexpr float ln2[] = {0x1.62e4p-1F, 0x1.7f7d1cp-20F};  // the first times any exponent is exact
  static constexpr float half_pi[] = {0x1.921fb6p+0F, -0x1.777a5cp-25F, -0x1.ee59dap-50F};
  static constexpr float half_pi_short[] = {0x1.92p+0F, 0x1.fcp-12F, -0x1.58p-21F,
                                            0x1.1p-30F, 0x1.68p-39F, 0x1.84698ap-48F};
  static constexpr float trigonometric_limit = 1e5F;
  // (eʳ − 1 − r) / r², |r| ≤ ln 2 / 2
  static constexpr float exp[] = {0x1.fffffcp-2F, 0x1.555492p-3F, 0x1.5558f4p-5F, 0x1.123a2p-7F, 0x1.6a23c6p-10F};
  // 2ʳ, |r| ≤ 1/2
  static constexpr float exp2[] = {1.0F,          0x1.62e43p-1F,  0x1.ebfbdcp-3F, 0x1.c6aee6p-5F,
                                   0x1.3b2d5p-7F, 0x1.5f3f3p-10F, 0x1.41fb7ep-13F};
  // (2 atanh(√z) / √z − 2) / z, √z = f / (2 + f), 1 + f in [√½, √2]
  static constexpr float log[] = {0x1.55557ap-1F, 0x1.995e7cp-2F, 0x1.31e9fep-2F};
  // (sin(√z) / √z − 1) / z and (cos √z − 1 + z/2) / z², √z ≤ π/4
  static constexpr float sin[] = {-0x1.555546p-3F, 0x1.11073p-7F, -0x1.994056p-13F};
  static constexpr float cos[] = {0x1.55554ap-5F, -0x1.6c0c28p-10F, 0x1.99e87ap-16F};
};

template <>
struct math<double> {
  static constexpr int mantissa = 52, sign = 63;
  static constexpr double bias = 1023.0;
  static constexpr double round = 0x1.8p52;
  static constexpr double exp_lowest = -746.0, exp_highest = 710.0;
  static constexpr double exp2_lowest = -1076.0, exp2_highest = 1025.0;
  static constexpr double expm1_lowest = -40.0;
  static constexpr double smallest_normal = 0x1p-1022, lift = 0x1p54, lift_exponent = 54.0;
  static constexpr double root_half = 0x1.6a09e667f3bcdp-1;
  static constexpr double log2_e = 0x1.71547652b82fep+0, two_over_pi = 0x1.45f306dc9c883p-1;
  static constexpr double ln2[] = {0x1.62e42fefa38p-1, 0x1.ef35793c7673p-45};
  static constexpr double half_pi[] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110};
  static constexpr double half_pi_short[] = {0x1.921fb54p+0, 0x1.10b461p-30, 0x1.a62633p-58, 0x1.45c06e0e68948p-86};
  static constexpr double trigonometric_limit = 1e8;
  static constexpr double exp[] = {
      0x1.000000000000ap-1,  0x1.55555555554f9p-3,  0x1.555555555083fp-5, 0x1.1111111127d18p-7, 0x1.6c16c18438826p-10,
      0x1.a01a012a0aad3p-13, 0x1.a01999e2d7a23p-16, 0x1.71df25bfa575p-19, 0x1.28ad9b210432p-22, 0x1.ad7f279511fe8p-26};
  static constexpr double exp2[] = {1.0,
                                    0x1.62e42fefa39efp-1,
                                    0x1.ebfbdff82c5a5p-3,
                                    0x1.c6b08d7049fe6p-5,
                                    0x1.3b2ab6fba0079p-7,
                                    0x1.5d87fe78cdb3cp-10,
                                    0x1.4309130efb84bp-13,
                                    0x1.ffcbfba899129p-17,
                                    0x1.62bfc73ff7494p-20,
                                    0x1.b5267de1bc844p-24,
                                    0x1.e61bfa5ee54d1p-28,
                                    0x1.e79b7c5cfb0fdp-32};
  static constexpr double log[] = {0x1.5555555555593p-1, 0x1.999999997f8a8p-2, 0x1.249249423e3d3p-2,
                                   0x1.c71c51c6848acp-3, 0x1.74664d70911ddp-3, 0x1.39a02f9a90b21p-3,
                                   0x1.2f15b3a6c05ep-3};
  static constexpr double sin[] = {-0x1.5555555555548p-3, 0x1.111111110f78fp-7,   -0x1.a01a019bf575fp-13,
                                   0x1.71de356037fb8p-19, -0x1.ae5e546c9f20fp-26, 0x1.5d8dfc8e9f293p-33};
  static constexpr double cos[] = {0x1.555555555554bp-5,   -0x1.6c16c16c14f47p-10, 0x1.a01a019c7cd6dp-16,
                                   -0x1.27e4f7e53c9ffp-22, 0x1.1ee9d3dba4359p-29,  -0x1.8fa29086be375p-37};
};

/// Σ_i c[i] xⁱ from index I on.
template <std::size_t I = 0, class V, class T, std::size_t N>
OGIVE_INLINE V polynomial(const T (&c)[N], const V& x) noexcept {
  if constexpr (I == N - 1) {
    return V(c[I]);
  } else {
    return simd::fma(x, polynomial<I + 1>(c, x), V(c[I]));
  }
}

/// x − n Σ c[i], a term at a time.
template <std::size_t I = 0, class V, class T, std::size_t N>
OGIVE_INLINE V less_multiple(V x, const V& n, const T (&c)[N]) noexcept {
  if constexpr (I == N) {
    return x;
  } else {
    return less_multiple<I + 1>(simd::fnma(n, V(c[I]), x), n, c);
  }
}

/// 2ⁿ for whole n within the normal exponents.
template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> power_of_two(const batch<T, Arch>& n) noexcept {
  const batch<T, Arch> lifted = n + batch<T, Arch>(math<T>::round + math<T>::bias);
  return simd::from_bits<T, Arch>(simd::to_bits(lifted) << math<T>::mantissa);
}

/// x = n ln 2 + r, |r| ≤ ln 2 / 2, n whole.
template <class T, class Arch>
struct reduced {
  batch<T, Arch> n, r;
  OGIVE_INLINE explicit reduced(const batch<T, Arch>& x) noexcept {
    const batch<T, Arch> round(math<T>::round);
    n = simd::fma(x, batch<T, Arch>(math<T>::log2_e), round) - round;
    r = less_multiple(x, n, math<T>::ln2);
  }
};

/// u = 2ᵏ m with m in [√½, √2), for positive normal u.
template <class T, class Arch>
struct split {
  batch<T, Arch> k, m;
  OGIVE_INLINE explicit split(const batch<T, Arch>& u) noexcept {
    using M = math<T>;
    using V = batch<T, Arch>;
    constexpr auto one = std::bit_cast<bits_t<T>>(T(1)), root = std::bit_cast<bits_t<T>>(M::root_half);
    constexpr auto fraction = std::bit_cast<bits_t<T>>(M::smallest_normal) - 1U;
    constexpr T whole = M::round / T(1.5);
    const auto bits = simd::to_bits(u) + (one - root);  // counted from √½, the exponent field is k
    m = simd::from_bits<T, Arch>((bits & fraction) + root);
    k = simd::from_bits<T, Arch>((bits >> M::mantissa) | std::bit_cast<bits_t<T>>(whole)) - V(whole + M::bias);
  }
};

/// k ln 2 + ln(1 + f), 1 + f in [√½, √2]; with s = f / (2 + f), ln(1 + f) = 2 atanh s = f − s (f − (2 atanh s − 2 s) /
/// s).
template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> log_of(const batch<T, Arch>& k, const batch<T, Arch>& f) noexcept {
  using M = math<T>;
  using V = batch<T, Arch>;
  const V s = simd::divide(f, f + V(T(2)));
  const V z = s * s;
  const V rest = s * simd::fnma(z, polynomial(M::log, z), f);
  return simd::fma(k, V(M::ln2[0]), f - simd::fnma(k, V(M::ln2[1]), rest));
}

/// `result` where x is positive and finite: −inf at 0, NaN below, x itself at +inf and NaN.
template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> log_edges(const batch<T, Arch>& x, const batch<T, Arch>& result) noexcept {
  using V = batch<T, Arch>;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  const V below = simd::select(x == V(T(0)), V(-infinity), V(std::numeric_limits<T>::quiet_NaN()));
  return simd::select(x <= V(T(0)), below, simd::select(x < V(infinity), result, x));
}

/// std::sin and std::cos for the lanes with |x| > limit.
template <class T, class Arch>
OGIVE_NOINLINE void sincos_far(const batch<T, Arch>& x, batch<T, Arch>& s, batch<T, Arch>& c) noexcept {
  alignas(64) T lane[3][batch<T, Arch>::size];
  x.store_aligned(lane[0]);
  s.store_aligned(lane[1]);
  c.store_aligned(lane[2]);
  for (std::size_t i = 0; i < batch<T, Arch>::size; ++i) {
    if (!(std::fabs(lane[0][i]) > math<T>::trigonometric_limit)) continue;
    lane[1][i] = std::sin(lane[0][i]);
    lane[2][i] = std::cos(lane[0][i]);
  }
  s = batch<T, Arch>::load_aligned(lane[1]);
  c = batch<T, Arch>::load_aligned(lane[2]);
}

}  // namespace detail

/// eˣ. Error 0.95 / 1.25.
template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> exp(const batch<T, Arch>& x) noexcept {
  using M = detail::math<T>;
  using V = batch<T, Arch>;
  const detail::reduced<T, Arch> y(simd::min(V(M::exp_highest), simd::max(V(M::exp_lowest), x)));
  const V tail = simd::fma(y.r, detail::polynomial(M::exp, y.r), V(T(1)));
  return simd::scale2(simd::fma(y.r, tail, V(T(1))), y.n);
}

/// 2ˣ. Error 1.0 / 1.3. Two operations cheaper than exp: for exponents that can carry log2 e from the start.
template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> exp2(const batch<T, Arch>& x) noexcept {
  using M = detail::math<T>;
  using V = batch<T, Arch>;
  const V y = simd::min(V(M::exp2_highest), simd::max(V(M::exp2_lowest), x));
  const V n = (y + V(M::round)) - V(M::round);
  return simd::scale2(detail::polynomial(M::exp2, y - n), n);
}

/// eˣ − 1, to full relative accuracy around 0. Error 2.1 / 2.2.
template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> expm1(const batch<T, Arch>& x) noexcept {
  using M = detail::math<T>;
  using V = batch<T, Arch>;
  const detail::reduced<T, Arch> y(simd::min(V(M::exp_highest), simd::max(V(M::expm1_lowest), x)));
  const V small = simd::fma(y.r * y.r, detail::polynomial(M::exp, y.r), y.r);
  // Half of everything, since 2ⁿ itself overflows at the largest n whose result does not.
  const V scale = detail::power_of_two(y.n - V(T(1)));
  const V half = simd::fma(scale, small, scale - V(T(0.5)));
  return half + half;
}

/// ln x. −inf at 0, NaN below. Error 0.95 / 0.95.
template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> log(const batch<T, Arch>& x) noexcept {
  using M = detail::math<T>;
  using V = batch<T, Arch>;
  const auto subnormal = x < V(M::smallest_normal);
  const detail::split<T, Arch> u(simd::select(subnormal, x * V(M::lift), x));
  const V k = u.k - simd::select(subnormal, V(M::lift_exponent), V(T(0)));
  return detail::log_edges(x, detail::log_of(k, u.m - V(T(1))));
}

/// ln(1 + x), to full relative accuracy around 0. −inf at −1, NaN below. Error 1.6 / 1.6.
template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> log1p(const batch<T, Arch>& x) noexcept {
  using M = detail::math<T>;
  using V = batch<T, Arch>;
  const V one(T(1));
  const V sum = one + x;
  const V lost = simd::min(one, x) - (sum - simd::max(one, x));
  const detail::split<T, Arch> u(sum);
  // Far up `lost` is 0 and the power need only be finite.
  const V shrink = detail::power_of_two(-simd::min(u.k, V((M::bias + T(1)) / T(2))));
  return detail::log_edges(sum, detail::log_of(u.k, simd::fma(lost, shrink, u.m - one)));
}

/// ln(1 + eˣ), to full relative accuracy where it falls like eˣ; x for large x. Error 1.8 / 1.9.
template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> softplus(const batch<T, Arch>& x) noexcept {
  using V = batch<T, Arch>;
  const V one(T(1));
  const V e = simd::exp(-simd::abs(x));
  // 1 + e lies in [1, 2]: from √2 on it is 2 (1 + f).
  const auto upper = e > V(T(2) * detail::math<T>::root_half - T(1));
  const V f = simd::select(upper, (e - one) * V(T(0.5)), e);
  return simd::max(V(T(0)), x) + detail::log_of(simd::select(upper, one, V(T(0))), f);
}

/// 1 / (1 + e⁻ˣ). Error 2.4 / 2.4.
template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> sigmoid(const batch<T, Arch>& x) noexcept {
  using V = batch<T, Arch>;
  const V e = simd::exp(-simd::abs(x));
  return simd::divide(simd::select(x < V(T(0)), e, V(T(1))), e + V(T(1)));
}

/// x / (1 + e⁻ˣ), −0 at −inf. Error 3.1 / 3.1; where the sigmoid is subnormal, half its unit times x.
template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> silu(const batch<T, Arch>& x) noexcept {
  using V = batch<T, Arch>;
  return simd::max(V(std::numeric_limits<T>::lowest()), x) * simd::sigmoid(x);
}

/// s = sin x and c = cos x. Error 1.6 / 3.3. Beyond |x| = 1e5 (float) or 1e8 (double) a lane at a time by std::sin and
/// std::cos. NaN at ±inf.
template <class T, class Arch>
OGIVE_INLINE void sincos(const batch<T, Arch>& x, batch<T, Arch>& s, batch<T, Arch>& c) noexcept {
  using M = detail::math<T>;
  using V = batch<T, Arch>;
  const V whole = simd::fma(x, V(M::two_over_pi), V(M::round));
  const V n = whole - V(M::round);
  V r;
  if constexpr (has_fma<T, Arch>) {
    r = detail::less_multiple(x, n, M::half_pi);
  } else {
    r = detail::less_multiple(x, n, M::half_pi_short);  // n times each but the last is exact
  }
  const V z = r * r;
  const V sine = simd::fma(r * z, detail::polynomial(M::sin, z), r);
  const V cosine = simd::fma(z * z, detail::polynomial(M::cos, z), simd::fnma(z, V(T(0.5)), V(T(1))));
  // The low two bits of n are the quadrant: odd ones swap, the second bit of n and of n + 1 is the sign.
  const auto quadrant = simd::to_bits(whole);
  const auto odd = simd::from_bits<T, Arch>((quadrant << M::sign) | simd::to_bits(V(T(1)))) < V(T(0));
  const auto sign_s = (quadrant & 2U) << (M::sign - 1), sign_c = ((quadrant + 1U) & 2U) << (M::sign - 1);
  s = simd::from_bits<T, Arch>(simd::to_bits(simd::select(odd, cosine, sine)) ^ sign_s);
  c = simd::from_bits<T, Arch>(simd::to_bits(simd::select(odd, sine, cosine)) ^ sign_c);
  if (simd::any(simd::abs(x) > V(M::trigonometric_limit))) detail::sincos_far(x, s, c);
}

template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> sin(const batch<T, Arch>& x) noexcept {
  batch<T, Arch> s, c;
  simd::sincos(x, s, c);
  return s;
}

template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> cos(const batch<T, Arch>& x) noexcept {
  batch<T, Arch> s, c;
  simd::sincos(x, s, c);
  return c;
}

/// e^(re + i im) = out_re + i out_im
template <class T, class Arch>
OGIVE_INLINE void cexp(const batch<T, Arch>& re, const batch<T, Arch>& im, batch<T, Arch>& out_re,
                       batch<T, Arch>& out_im) noexcept {
  batch<T, Arch> s, c;
  simd::sincos(im, s, c);
  const batch<T, Arch> radius = simd::exp(re);
  out_re = radius * c;
  out_im = radius * s;
}

// One number: the bits a lane would have.

template <std::floating_point T>
OGIVE_INLINE T exp(T x) noexcept {
  return simd::first(simd::exp(batch<T>(x)));
}
template <std::floating_point T>
OGIVE_INLINE T exp2(T x) noexcept {
  return simd::first(simd::exp2(batch<T>(x)));
}
template <std::floating_point T>
OGIVE_INLINE T expm1(T x) noexcept {
  return simd::first(simd::expm1(batch<T>(x)));
}
template <std::floating_point T>
OGIVE_INLINE T log(T x) noexcept {
  return simd::first(simd::log(batch<T>(x)));
}
template <std::floating_point T>
OGIVE_INLINE T log1p(T x) noexcept {
  return simd::first(simd::log1p(batch<T>(x)));
}
template <std::floating_point T>
OGIVE_INLINE T softplus(T x) noexcept {
  return simd::first(simd::softplus(batch<T>(x)));
}
template <std::floating_point T>
OGIVE_INLINE T sigmoid(T x) noexcept {
  return simd::first(simd::sigmoid(batch<T>(x)));
}
template <std::floating_point T>
OGIVE_INLINE T silu(T x) noexcept {
  return simd::first(simd::silu(batch<T>(x)));
}
template <std::floating_point T>
OGIVE_INLINE T sin(T x) noexcept {
  return simd::first(simd::sin(batch<T>(x)));
}
template <std::floating_point T>
OGIVE_INLINE T cos(T x) noexcept {
  return simd::first(simd::cos(batch<T>(x)));
}

}  // namespace simd
}  // namespace OGIVE_ABI
}  // namespace ogive

// L5: vectors of numbers of modes, real or complex, with the same words for both.
#pragma once

#include <ogive/simd/batch.hpp>

#include <type_traits>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// Real parts and imaginary ones of as many numbers as there are lanes.
template <class Acc, class Arch = simd::default_arch>
struct complex_vector {
  simd::batch<Acc, Arch> re, im;
};
template <bool Complex, class Acc, class Arch = simd::default_arch>
using mode_vector = std::conditional_t<Complex, complex_vector<Acc, Arch>, simd::batch<Acc, Arch>>;

template <bool Complex, class Arch = simd::default_arch, class Acc>
OGIVE_INLINE mode_vector<Complex, Acc, Arch> load_mode(const Acc* p) noexcept {
  if constexpr (Complex) {
    return {simd::load<Arch>(p), simd::load<Arch>(p + simd::width<Acc, Arch>)};
  } else {
    return simd::load<Arch>(p);
  }
}
template <class Acc, class Arch>
OGIVE_INLINE void store_mode(Acc* p, const simd::batch<Acc, Arch>& x) noexcept {
  simd::store(p, x);
}
template <class Acc, class Arch>
OGIVE_INLINE void store_mode(Acc* p, const complex_vector<Acc, Arch>& x) noexcept {
  simd::store(p, x.re);
  simd::store(p + simd::width<Acc, Arch>, x.im);
}

/// x y + z; the conjugate; s x for real s; x y; x + y; one of two; Re (x conj(y)) + z.
template <class Acc, class Arch>
OGIVE_INLINE auto mode_fma(const simd::batch<Acc, Arch>& x, const simd::batch<Acc, Arch>& y,
                           const simd::batch<Acc, Arch>& z) noexcept {
  return simd::fma(x, y, z);
}
template <class Acc, class Arch>
OGIVE_INLINE auto mode_fma(const complex_vector<Acc, Arch>& x, const complex_vector<Acc, Arch>& y,
                           const complex_vector<Acc, Arch>& z) noexcept {
  return complex_vector<Acc, Arch>{simd::fma(x.re, y.re, simd::fnma(x.im, y.im, z.re)),
                                   simd::fma(x.re, y.im, simd::fma(x.im, y.re, z.im))};
}
template <class Acc, class Arch>
OGIVE_INLINE auto conjugate(const simd::batch<Acc, Arch>& x) noexcept {
  return x;
}
template <class Acc, class Arch>
OGIVE_INLINE auto conjugate(const complex_vector<Acc, Arch>& x) noexcept {
  return complex_vector<Acc, Arch>{x.re, -x.im};
}
template <class Acc, class Arch>
OGIVE_INLINE auto scaled(const simd::batch<Acc, Arch>& x, const simd::batch<Acc, Arch>& s) noexcept {
  return x * s;
}
template <class Acc, class Arch>
OGIVE_INLINE auto scaled(const complex_vector<Acc, Arch>& x, const simd::batch<Acc, Arch>& s) noexcept {
  return complex_vector<Acc, Arch>{x.re * s, x.im * s};
}
template <class Acc, class Arch>
OGIVE_INLINE auto times(const simd::batch<Acc, Arch>& x, const simd::batch<Acc, Arch>& y) noexcept {
  return x * y;
}
template <class Acc, class Arch>
OGIVE_INLINE auto times(const complex_vector<Acc, Arch>& x, const complex_vector<Acc, Arch>& y) noexcept {
  return complex_vector<Acc, Arch>{simd::fnma(x.im, y.im, x.re * y.re), simd::fma(x.re, y.im, x.im * y.re)};
}
template <class Acc, class Arch>
OGIVE_INLINE auto mode_sum(const simd::batch<Acc, Arch>& x, const simd::batch<Acc, Arch>& y) noexcept {
  return x + y;
}
template <class Acc, class Arch>
OGIVE_INLINE auto mode_sum(const complex_vector<Acc, Arch>& x, const complex_vector<Acc, Arch>& y) noexcept {
  return complex_vector<Acc, Arch>{x.re + y.re, x.im + y.im};
}
template <class Acc, class Arch>
OGIVE_INLINE auto mode_select(const simd::batch_mask<Acc, Arch>& mask, const simd::batch<Acc, Arch>& x,
                              const simd::batch<Acc, Arch>& y) noexcept {
  return simd::select(mask, x, y);
}
template <class Acc, class Arch>
OGIVE_INLINE auto mode_select(const simd::batch_mask<Acc, Arch>& mask, const complex_vector<Acc, Arch>& x,
                              const complex_vector<Acc, Arch>& y) noexcept {
  return complex_vector<Acc, Arch>{simd::select(mask, x.re, y.re), simd::select(mask, x.im, y.im)};
}
template <class Acc, class Arch>
OGIVE_INLINE auto inner(const simd::batch<Acc, Arch>& x, const simd::batch<Acc, Arch>& y,
                        const simd::batch<Acc, Arch>& z) noexcept {
  return simd::fma(x, y, z);
}
template <class Acc, class Arch>
OGIVE_INLINE auto inner(const complex_vector<Acc, Arch>& x, const complex_vector<Acc, Arch>& y,
                        const simd::batch<Acc, Arch>& z) noexcept {
  return simd::fma(x.re, y.re, simd::fma(x.im, y.im, z));
}

/// From memory where real and imaginary parts are neighbours, `count` numbers of parts in all, 0 in the other lanes;
/// and back. Which lane a number is in is the same for all calls, but is not its place in memory.
template <bool Complex, class Arch = simd::default_arch, class Acc>
OGIVE_INLINE mode_vector<Complex, Acc, Arch> load_interleaved(const Acc* p, index_t count) noexcept {
  constexpr index_t W = simd::width<Acc, Arch>;
  if constexpr (Complex) {
    if (count >= 2 * W) {
      const auto pair = simd::split_pairs(simd::load<Arch>(p), simd::load<Arch>(p + W));
      return {pair.first, pair.second};
    }
    const index_t beyond = count > W ? count - W : 0;
    const auto high = beyond > 0 ? simd::load<Arch>(p + W, beyond) : simd::batch<Acc, Arch>(Acc(0));
    const auto pair = simd::split_pairs(simd::load<Arch>(p, count), high);
    return {pair.first, pair.second};
  } else {
    return count >= W ? simd::load<Arch>(p) : simd::load<Arch>(p, count);
  }
}
template <class Acc, class Arch>
OGIVE_INLINE void store_interleaved(Acc* p, const simd::batch<Acc, Arch>& x, index_t count) noexcept {
  count >= simd::width<Acc, Arch> ? simd::store(p, x) : simd::store(p, x, count);
}
template <class Acc, class Arch>
OGIVE_INLINE void store_interleaved(Acc* p, const complex_vector<Acc, Arch>& x, index_t count) noexcept {
  constexpr index_t W = simd::width<Acc, Arch>;
  const auto pair = simd::join_pairs(x.re, x.im);
  store_interleaved(p, pair.first, count);
  if (count > W) store_interleaved(p + W, pair.second, count - W);
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

// L2: one vector of float or double. The only file that names xsimd: what differs between its versions, what it lacks
// (one-instruction fma on AVX-512, partial loads) and what the library wants the same to the bit everywhere is here.
//
// Call these functions qualified (simd::fma): a batch is an xsimd batch, so argument-dependent lookup finds xsimd's
// too. Write simd::fma where a fused operation is meant and never a * b + c: some compilers fuse that by themselves.
#pragma once

#include <ogive/config.hpp>
#include <ogive/core/half.hpp>
#include <ogive/simd/native.hpp>

#include <xsimd/xsimd.hpp>

#include <type_traits>
#include <utility>

namespace ogive {
inline namespace OGIVE_ABI {
namespace simd {

using default_arch = xsimd::default_arch;

/// A register of T; `batch<T, Arch>::size` is its width. Operators + - * / and comparisons are elementwise.
template <class T, class Arch = default_arch>
using batch = xsimd::batch<T, Arch>;

/// One truth value per lane.
template <class T, class Arch = default_arch>
using batch_mask = xsimd::batch_bool<T, Arch>;

/// The width as a signed number, which is what loops count in.
template <class T, class Arch = default_arch>
inline constexpr index_t width = static_cast<index_t>(batch<T, Arch>::size);

template <class... Archs>
struct arch_list {};

/// Every register width this build can use, the widest first: for tests and benchmarks.
#if defined(__AVX512F__) && defined(__FMA__)
using all_archs = arch_list<default_arch, xsimd::fma3<xsimd::avx2>, xsimd::sse2>;
#elif defined(__AVX__)
using all_archs = arch_list<default_arch, xsimd::sse2>;
#else
using all_archs = arch_list<default_arch>;
#endif

namespace detail {

template <class T, class Arch>
inline constexpr std::size_t bytes = sizeof(T) * batch<T, Arch>::size;

template <class T>
using bits_t = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

template <class T, std::size_t W>
struct lane_table {
  alignas(64) T values[W];
  constexpr lane_table() noexcept : values() {
    for (std::size_t i = 0; i < W; ++i) values[i] = static_cast<T>(i);
  }
};
template <class T, std::size_t W>
inline constexpr lane_table<T, W> lanes_from_zero{};

}  // namespace detail

// Memory.

template <class T, class Arch = default_arch>
OGIVE_INLINE batch<T, Arch> broadcast(T x) noexcept {
  return batch<T, Arch>(x);
}

/// `width` elements from p, aligned or not.
template <class Arch = default_arch, class T>
OGIVE_INLINE batch<T, Arch> load(const T* p) noexcept {
  return batch<T, Arch>::load_unaligned(p);
}

template <class T, class Arch>
OGIVE_INLINE void store(T* p, const batch<T, Arch>& x) noexcept {
  x.store_unaligned(p);
}

/// x, which stays in a register while it is used. GCC reads what it has loaded anew for each use, as an operand from
/// memory: with several uses to a load that takes more loads than there are ports.
template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> keep(const batch<T, Arch>& x) noexcept {
  auto kept = static_cast<typename batch<T, Arch>::register_type>(x);
  if constexpr (requires { native::keep(kept); }) native::keep(kept);
  return kept;
}

/// The same of an address: those after it are made from it, and not all at once before the first is used, for which
/// there are too few registers.
template <class T>
OGIVE_INLINE T* keep(T* p) noexcept {
#if defined(__GNUC__)
  __asm__("" : "+r"(p));
#endif
  return p;
}

/// The first `count` lanes, 0 ≤ count; more than the width means all. Made once, used for many loads and stores.
template <class T, class Arch = default_arch>
class lanes {
 public:
  using native_type = native::partial<T, detail::bytes<T, Arch>>;

  OGIVE_INLINE explicit lanes(index_t count) noexcept
      : mask_(native_type::first(count < width<T, Arch> ? count : width<T, Arch>)) {
    OGIVE_ASSERT(count >= 0);
  }
  OGIVE_INLINE typename native_type::mask mask() const noexcept { return mask_; }

 private:
  typename native_type::mask mask_;
};

/// The chosen lanes from p, 0 in the others; no memory past them is touched.
template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> load(const T* p, const lanes<T, Arch>& some) noexcept {
  using native_type = typename lanes<T, Arch>::native_type;
  if constexpr (requires { native_type::load(p, some.mask()); }) {
    return native_type::load(p, some.mask());
  } else {
    alignas(64) T buffer[batch<T, Arch>::size] = {};
    for (index_t i = 0; i < some.mask(); ++i) buffer[i] = p[i];
    return batch<T, Arch>::load_aligned(buffer);
  }
}

/// Writes the chosen lanes of x to p; no memory past them is touched.
template <class T, class Arch>
OGIVE_INLINE void store(T* p, const batch<T, Arch>& x, const lanes<T, Arch>& some) noexcept {
  using native_type = typename lanes<T, Arch>::native_type;
  if constexpr (requires { native_type::store(p, some.mask(), x); }) {
    native_type::store(p, some.mask(), x);
  } else {
    alignas(64) T buffer[batch<T, Arch>::size];
    x.store_aligned(buffer);
    for (index_t i = 0; i < some.mask(); ++i) p[i] = buffer[i];
  }
}

/// The first `count` elements from p (any count ≥ 0; the width at most), 0 in the other lanes.
template <class Arch = default_arch, class T>
OGIVE_INLINE batch<T, Arch> load(const T* p, index_t count) noexcept {
  return simd::load(p, lanes<T, Arch>(count));
}

template <class T, class Arch>
OGIVE_INLINE void store(T* p, const batch<T, Arch>& x, index_t count) noexcept {
  simd::store(p, x, lanes<T, Arch>(count));
}

/// p[0 … width) = x past the caches, where the machine can; p is aligned to a vector. `stream_fence` ends a row of them
/// before other threads may read.
template <class T, class Arch>
OGIVE_INLINE void stream(T* p, const batch<T, Arch>& x) noexcept {
  using register_type = typename batch<T, Arch>::register_type;
  if constexpr (requires(register_type r) { native::stream(p, r); }) {
    native::stream(p, static_cast<register_type>(x));
  } else {
    simd::store(p, x);
  }
}
OGIVE_INLINE void stream_fence() noexcept { native::fence(); }

// Storage types.

/// `width` elements of float16, bfloat16, float or double as a batch of T.
template <class T, class Arch = default_arch, class S>
OGIVE_INLINE batch<T, Arch> load_as(const S* p) noexcept {
  using native_type = native::converted<S, T, detail::bytes<T, Arch>>;
  if constexpr (std::is_same_v<S, T>) {
    return simd::load<Arch>(p);
  } else if constexpr (requires { native_type::load(p); }) {
    return native_type::load(p);
  } else {
    alignas(64) T buffer[batch<T, Arch>::size];
    for (index_t i = 0; i < width<T, Arch>; ++i) buffer[i] = static_cast<T>(p[i]);
    return batch<T, Arch>::load_aligned(buffer);
  }
}

/// x in the storage type S, rounded to nearest, ties to even. double reaches the 16-bit types by way of float.
template <class S, class T, class Arch>
OGIVE_INLINE void store_as(S* p, const batch<T, Arch>& x) noexcept {
  using native_type = native::converted<S, T, detail::bytes<T, Arch>>;
  if constexpr (std::is_same_v<S, T>) {
    simd::store(p, x);
  } else if constexpr (requires { native_type::store(p, x); }) {
    native_type::store(p, x);
  } else {
    alignas(64) T buffer[batch<T, Arch>::size];
    x.store_aligned(buffer);
    for (index_t i = 0; i < width<T, Arch>; ++i) p[i] = static_cast<S>(buffer[i]);
  }
}

/// The first `count` elements, 0 in the other lanes; no memory past them is touched.
template <class T, class Arch = default_arch, class S>
OGIVE_INLINE batch<T, Arch> load_as(const S* p, index_t count) noexcept {
  using native_type = native::converted<S, T, detail::bytes<T, Arch>>;
  if constexpr (std::is_same_v<S, T>) {
    return simd::load<Arch>(p, count);
  } else if constexpr (requires { native_type::load(p, lanes<T, Arch>(count).mask()); }) {
    return native_type::load(p, lanes<T, Arch>(count).mask());
  } else {
    if (count >= width<T, Arch>) return simd::load_as<T, Arch>(p);
    S buffer[batch<T, Arch>::size] = {};
    for (index_t i = 0; i < count; ++i) buffer[i] = p[i];
    return simd::load_as<T, Arch>(buffer);
  }
}

template <class S, class T, class Arch>
OGIVE_INLINE void store_as(S* p, const batch<T, Arch>& x, index_t count) noexcept {
  using native_type = native::converted<S, T, detail::bytes<T, Arch>>;
  if constexpr (std::is_same_v<S, T>) {
    simd::store(p, x, count);
  } else if constexpr (requires { native_type::store(p, lanes<T, Arch>(count).mask(), x); }) {
    native_type::store(p, lanes<T, Arch>(count).mask(), x);
  } else {
    if (count >= width<T, Arch>) return simd::store_as(p, x);
    S buffer[batch<T, Arch>::size];
    simd::store_as(buffer, x);
    for (index_t i = 0; i < count; ++i) p[i] = buffer[i];
  }
}

/// Lane i from p[i · stride] for i < count, 0 in the other lanes. Any stride, 0 and negative included.
template <class T, class Arch = default_arch, class S>
OGIVE_INLINE batch<T, Arch> load_strided(const S* p, index_t stride, index_t count = width<T, Arch>) noexcept {
  if (stride == 1) return simd::load_as<T, Arch>(p, count);
  S buffer[batch<T, Arch>::size] = {};
  for (index_t i = 0; i < width<T, Arch> && i < count; ++i) buffer[i] = p[i * stride];
  return simd::load_as<T, Arch>(buffer);
}

/// p[i · stride] = lane i for i < count.
template <class S, class T, class Arch>
OGIVE_INLINE void store_strided(S* p, index_t stride, const batch<T, Arch>& x,
                                index_t count = width<T, Arch>) noexcept {
  if (stride == 1) return simd::store_as(p, x, count);
  S buffer[batch<T, Arch>::size];
  simd::store_as(buffer, x);
  for (index_t i = 0; i < width<T, Arch> && i < count; ++i) p[i * stride] = buffer[i];
}

// Arithmetic.

/// Whether fma rounds once. Without such an instruction (SSE2) it is a product and a sum.
template <class T, class Arch = default_arch>
inline constexpr bool has_fma = requires(typename batch<T, Arch>::register_type r) {
  native::fma(r, r, r);
};

/// a · b + c
template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> fma(const batch<T, Arch>& a, const batch<T, Arch>& b, const batch<T, Arch>& c) noexcept {
  using register_type = typename batch<T, Arch>::register_type;
  if constexpr (has_fma<T, Arch>) {
    return native::fma(static_cast<register_type>(a), static_cast<register_type>(b), static_cast<register_type>(c));
  } else {
    return a * b + c;
  }
}

/// c − a · b
template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> fnma(const batch<T, Arch>& a, const batch<T, Arch>& b, const batch<T, Arch>& c) noexcept {
  using register_type = typename batch<T, Arch>::register_type;
  if constexpr (has_fma<T, Arch>) {
    return native::fnma(static_cast<register_type>(a), static_cast<register_type>(b), static_cast<register_type>(c));
  } else {
    return c - a * b;
  }
}

/// a / b, rounded correctly; xsimd's operator / of floats on AArch64 is an estimate with two Newton steps.
template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> divide(const batch<T, Arch>& a, const batch<T, Arch>& b) noexcept {
  using register_type = typename batch<T, Arch>::register_type;
  if constexpr (requires(register_type r) { native::divide(r, r); }) {
    return native::divide(static_cast<register_type>(a), static_cast<register_type>(b));
  } else {
    return a / b;
  }
}

/// The smaller; NaN where b is NaN.
template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> min(const batch<T, Arch>& a, const batch<T, Arch>& b) noexcept {
  using register_type = typename batch<T, Arch>::register_type;
  if constexpr (requires(register_type r) { native::min(r, r); }) {
    return native::min(static_cast<register_type>(a), static_cast<register_type>(b));
  } else {
    return xsimd::min(a, b);
  }
}

/// The larger; NaN where b is NaN.
template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> max(const batch<T, Arch>& a, const batch<T, Arch>& b) noexcept {
  using register_type = typename batch<T, Arch>::register_type;
  if constexpr (requires(register_type r) { native::max(r, r); }) {
    return native::max(static_cast<register_type>(a), static_cast<register_type>(b));
  } else {
    return xsimd::max(a, b);
  }
}

template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> abs(const batch<T, Arch>& x) noexcept {
  return xsimd::abs(x);
}

/// √x, rounded correctly.
template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> sqrt(const batch<T, Arch>& x) noexcept {
  using register_type = typename batch<T, Arch>::register_type;
  if constexpr (requires(register_type r) { native::sqrt(r); }) {
    return native::sqrt(static_cast<register_type>(x));
  } else {
    return xsimd::sqrt(x);
  }
}

/// a where the mask is set, else b.
template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> select(const batch_mask<T, Arch>& mask, const batch<T, Arch>& a,
                                   const batch<T, Arch>& b) noexcept {
  return xsimd::select(mask, a, b);
}

template <class T, class Arch>
OGIVE_INLINE bool any(const batch_mask<T, Arch>& mask) noexcept {
  return xsimd::any(mask);
}

/// 0, 1, …, width − 1.
template <class T, class Arch = default_arch>
OGIVE_INLINE batch<T, Arch> iota() noexcept {
  return batch<T, Arch>::load_aligned(detail::lanes_from_zero<T, batch<T, Arch>::size>.values);
}

/// A mask of the first `count` lanes, for select.
template <class T, class Arch = default_arch>
OGIVE_INLINE batch_mask<T, Arch> first_n(index_t count) noexcept {
  return iota<T, Arch>() < batch<T, Arch>(static_cast<T>(count));
}

/// Lane 0.
template <class T, class Arch>
OGIVE_INLINE T first(const batch<T, Arch>& x) noexcept {
  return static_cast<typename batch<T, Arch>::register_type>(x)[0];
}

// Reductions.

namespace detail {

/// The halving tree: lane i with lane i + W/2, then W/4, …
template <class T, class Arch, class Operation>
OGIVE_INLINE T halve(const batch<T, Arch>& x, Operation combine) noexcept {
  alignas(64) T lane[batch<T, Arch>::size];
  x.store_aligned(lane);
  for (std::size_t half = batch<T, Arch>::size / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) lane[i] = combine(lane[i], lane[i + half]);
  return lane[0];
}

// By pack expansion: indices that the compiler knows keep the registers of an array out of memory.
template <class T, class Arch, std::size_t... I>
OGIVE_INLINE batch<T, Arch> sum_registers(const batch<T, Arch>* x, std::index_sequence<I...>) noexcept {
  const typename batch<T, Arch>::register_type r[] = {x[I]...};
  return native::sum_all(r);
}
template <class T, class Arch, std::size_t... I>
OGIVE_INLINE void transpose_registers(batch<T, Arch>* x, std::index_sequence<I...>) noexcept {
  typename batch<T, Arch>::register_type r[] = {x[I]...};
  native::transpose(r);
  ((x[I] = r[I]), ...);
}

}  // namespace detail

/// The sum of the lanes, by the halving tree (lane i + lane i + W/2, …): the same bits from every compiler.
template <class T, class Arch>
OGIVE_INLINE T reduce_add(const batch<T, Arch>& x) noexcept {
  using register_type = typename batch<T, Arch>::register_type;
  if constexpr (requires(register_type r) { native::sum(r); }) {
    return native::sum(static_cast<register_type>(x));
  } else {
    return detail::halve(x, [](T a, T b) { return a + b; });
  }
}

/// Lane i is reduce_add(x[i]), to the bit, for `width` batches.
template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> reduce_add_all(const batch<T, Arch>* x) noexcept {
  using register_type = typename batch<T, Arch>::register_type;
  constexpr std::size_t W = batch<T, Arch>::size;
  if constexpr (requires(const register_type* r) { native::sum_all(r); }) {
    return detail::sum_registers(x, std::make_index_sequence<W>{});
  } else {
    alignas(64) T sums[W];
    for (std::size_t i = 0; i < W; ++i) sums[i] = simd::reduce_add(x[i]);
    return batch<T, Arch>::load_aligned(sums);
  }
}

/// Lane j of x[i] and lane i of x[j] change places, for `width` batches.
template <class T, class Arch>
OGIVE_INLINE void transpose(batch<T, Arch>* x) noexcept {
  using register_type = typename batch<T, Arch>::register_type;
  constexpr std::size_t W = batch<T, Arch>::size;
  if constexpr (requires(register_type * r) { native::transpose(r); }) {
    detail::transpose_registers(x, std::make_index_sequence<W>{});
  } else {
    alignas(64) T lane[W][W], turned[W][W];
    for (std::size_t i = 0; i < W; ++i) x[i].store_aligned(lane[i]);
    for (std::size_t i = 0; i < W; ++i)
      for (std::size_t j = 0; j < W; ++j) turned[j][i] = lane[i][j];
    for (std::size_t i = 0; i < W; ++i) x[i] = batch<T, Arch>::load_unaligned(turned[i]);
  }
}

// Pairs of neighbouring lanes: complex numbers as they lie in memory.

/// Of two vectors (x0, x1, x2, x3, …) all first lanes of pairs, x0, x2, …, and all second ones, in one order, which is
/// the machine's; `join_pairs` of the two gives the vectors back.
template <class T, class Arch>
OGIVE_INLINE std::pair<batch<T, Arch>, batch<T, Arch>> split_pairs(const batch<T, Arch>& a,
                                                                   const batch<T, Arch>& b) noexcept {
  using register_type = typename batch<T, Arch>::register_type;
  constexpr std::size_t W = batch<T, Arch>::size;
  if constexpr (requires(register_type r) { native::split_pairs(r, r); }) {
    register_type first = a, second = b;
    native::split_pairs(first, second);
    return {first, second};
  } else {
    alignas(64) T lanes[2 * W], first[W], second[W];
    a.store_aligned(lanes);
    b.store_unaligned(lanes + W);
    for (std::size_t i = 0; i < W; ++i) {
      first[i] = lanes[2 * i];
      second[i] = lanes[2 * i + 1];
    }
    return {batch<T, Arch>::load_aligned(first), batch<T, Arch>::load_aligned(second)};
  }
}
template <class T, class Arch>
OGIVE_INLINE std::pair<batch<T, Arch>, batch<T, Arch>> join_pairs(const batch<T, Arch>& first,
                                                                  const batch<T, Arch>& second) noexcept {
  using register_type = typename batch<T, Arch>::register_type;
  constexpr std::size_t W = batch<T, Arch>::size;
  if constexpr (requires(register_type r) { native::join_pairs(r, r); }) {
    register_type a = first, b = second;
    native::join_pairs(a, b);
    return {a, b};
  } else {
    alignas(64) T lanes[2 * W], x[W], y[W];
    first.store_aligned(x);
    second.store_aligned(y);
    for (std::size_t i = 0; i < W; ++i) {
      lanes[2 * i] = x[i];
      lanes[2 * i + 1] = y[i];
    }
    return {batch<T, Arch>::load_unaligned(lanes), batch<T, Arch>::load_unaligned(lanes + W)};
  }
}

/// The largest lane. A NaN lane makes it unspecified which.
template <class T, class Arch>
OGIVE_INLINE T reduce_max(const batch<T, Arch>& x) noexcept {
  using register_type = typename batch<T, Arch>::register_type;
  if constexpr (requires(register_type r) { native::largest(r); }) {
    return native::largest(static_cast<register_type>(x));
  } else {
    return detail::halve(x, [](T a, T b) { return a < b ? b : a; });
  }
}

/// The smallest lane.
template <class T, class Arch>
OGIVE_INLINE T reduce_min(const batch<T, Arch>& x) noexcept {
  return -simd::reduce_max(-x);
}

// Bits, for the functions of math.hpp.

/// The lanes as unsigned integers; & | ^ << >> by a number work on them.
template <class T, class Arch>
OGIVE_INLINE auto to_bits(const batch<T, Arch>& x) noexcept {
#if XSIMD_VERSION_MAJOR < 11
  return xsimd::bitwise_cast<xsimd::batch<detail::bits_t<T>, Arch>>(x);
#else
  return xsimd::bitwise_cast<detail::bits_t<T>>(x);
#endif
}

template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> from_bits(const xsimd::batch<detail::bits_t<T>, Arch>& x) noexcept {
#if XSIMD_VERSION_MAJOR < 11
  return xsimd::bitwise_cast<xsimd::batch<T, Arch>>(x);
#else
  return xsimd::bitwise_cast<T>(x);
#endif
}

/// x · 2ⁿ, rounded once, for whole n with |n| ≤ 2 · (largest exponent − 1) and x a normal number or 0.
template <class T, class Arch>
OGIVE_INLINE batch<T, Arch> scale2(const batch<T, Arch>& x, const batch<T, Arch>& n) noexcept {
  using register_type = typename batch<T, Arch>::register_type;
  if constexpr (requires(register_type r) { native::scale2(r, r); }) {
    return native::scale2(static_cast<register_type>(x), static_cast<register_type>(n));
  } else {
    // 1.5 · 2^mantissa + bias: adding a whole number m leaves m + bias in the low bits, ready to become the exponent.
    constexpr int mantissa = sizeof(T) == 4 ? 23 : 52;
    constexpr T biased = sizeof(T) == 4 ? T(0x1.8p23) + T(127) : T(0x1.8p52) + T(1023);
    const batch<T, Arch> lift(biased);
    const batch<T, Arch> half = simd::fma(n, batch<T, Arch>(T(0.5)), lift);
    const batch<T, Arch> rest = (n - (half - lift)) + lift;
    return x * simd::from_bits<T, Arch>(simd::to_bits(half) << mantissa) *
           simd::from_bits<T, Arch>(simd::to_bits(rest) << mantissa);
  }
}

}  // namespace simd
}  // namespace OGIVE_ABI
}  // namespace ogive

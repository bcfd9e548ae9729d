// L2: what one instruction, or a short known sequence, does on raw registers. Private to simd/ and linalg/: batch.hpp
// takes a function from here where the register has it, and its portable twin elsewhere.
#pragma once

#include <ogive/config.hpp>
#include <ogive/core/half.hpp>

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace ogive {
inline namespace OGIVE_ABI {
namespace simd::native {

struct none;  // keeps every name below declared where an instruction set has none of its overloads
none fma(none&, none&, none&);
none fnma(none&, none&, none&);
none divide(none&, none&);
none sqrt(none&);
none min(none&, none&);
none max(none&, none&);
none stream(none&);
void keep(none&);
none scale2(none&, none&);
none sum(none&);
none largest(none&);
none sum_all(const none*);
void transpose(none*);
void split_pairs(none&, none&);
void join_pairs(none&, none&);

/// How the first lanes of a register of `Bytes` bytes are read and written. The portable twin copies; a specialisation
/// has a mask. Both touch no byte past `count` elements, and lanes that are not read are 0.
template <class T, std::size_t Bytes>
struct partial;

/// How a register of T is read from and written to memory that holds S, rounding to nearest, ties to even.
template <class S, class T, std::size_t Bytes>
struct converted;

// Arithmetic. The machine's min and max give b where either is NaN; xsimd passes (a, b) or (b, a) on, by version.
#if defined(__SSE2__)
OGIVE_INLINE __m128 min(__m128 a, __m128 b) noexcept { return _mm_min_ps(a, b); }
OGIVE_INLINE __m128d min(__m128d a, __m128d b) noexcept { return _mm_min_pd(a, b); }
OGIVE_INLINE __m128 max(__m128 a, __m128 b) noexcept { return _mm_max_ps(a, b); }
OGIVE_INLINE __m128d max(__m128d a, __m128d b) noexcept { return _mm_max_pd(a, b); }
#endif
#if defined(__AVX__)
OGIVE_INLINE __m256 min(__m256 a, __m256 b) noexcept { return _mm256_min_ps(a, b); }
OGIVE_INLINE __m256d min(__m256d a, __m256d b) noexcept { return _mm256_min_pd(a, b); }
OGIVE_INLINE __m256 max(__m256 a, __m256 b) noexcept { return _mm256_max_ps(a, b); }
OGIVE_INLINE __m256d max(__m256d a, __m256d b) noexcept { return _mm256_max_pd(a, b); }
#endif
#if defined(__AVX512F__)
OGIVE_INLINE __m512 min(__m512 a, __m512 b) noexcept { return _mm512_min_ps(a, b); }
OGIVE_INLINE __m512d min(__m512d a, __m512d b) noexcept { return _mm512_min_pd(a, b); }
OGIVE_INLINE __m512 max(__m512 a, __m512 b) noexcept { return _mm512_max_ps(a, b); }
OGIVE_INLINE __m512d max(__m512d a, __m512d b) noexcept { return _mm512_max_pd(a, b); }
#endif
#if defined(__FMA__)
OGIVE_INLINE __m128 fma(__m128 a, __m128 b, __m128 c) noexcept { return _mm_fmadd_ps(a, b, c); }
OGIVE_INLINE __m128d fma(__m128d a, __m128d b, __m128d c) noexcept { return _mm_fmadd_pd(a, b, c); }
OGIVE_INLINE __m256 fma(__m256 a, __m256 b, __m256 c) noexcept { return _mm256_fmadd_ps(a, b, c); }
OGIVE_INLINE __m256d fma(__m256d a, __m256d b, __m256d c) noexcept { return _mm256_fmadd_pd(a, b, c); }
OGIVE_INLINE __m128 fnma(__m128 a, __m128 b, __m128 c) noexcept { return _mm_fnmadd_ps(a, b, c); }
OGIVE_INLINE __m128d fnma(__m128d a, __m128d b, __m128d c) noexcept { return _mm_fnmadd_pd(a, b, c); }
OGIVE_INLINE __m256 fnma(__m256 a, __m256 b, __m256 c) noexcept { return _mm256_fnmadd_ps(a, b, c); }
OGIVE_INLINE __m256d fnma(__m256d a, __m256d b, __m256d c) noexcept { return _mm256_fnmadd_pd(a, b, c); }
#endif
#if defined(__AVX512F__)
OGIVE_INLINE __m512 fma(__m512 a, __m512 b, __m512 c) noexcept { return _mm512_fmadd_ps(a, b, c); }
OGIVE_INLINE __m512d fma(__m512d a, __m512d b, __m512d c) noexcept { return _mm512_fmadd_pd(a, b, c); }
OGIVE_INLINE __m512 fnma(__m512 a, __m512 b, __m512 c) noexcept { return _mm512_fnmadd_ps(a, b, c); }
OGIVE_INLINE __m512d fnma(__m512d a, __m512d b, __m512d c) noexcept { return _mm512_fnmadd_pd(a, b, c); }
OGIVE_INLINE __m512 scale2(__m512 x, __m512 n) noexcept { return _mm512_scalef_ps(x, n); }
OGIVE_INLINE __m512d scale2(__m512d x, __m512d n) noexcept { return _mm512_scalef_pd(x, n); }
#endif
#if defined(__aarch64__)
OGIVE_INLINE float32x4_t fma(float32x4_t a, float32x4_t b, float32x4_t c) noexcept { return vfmaq_f32(c, a, b); }
OGIVE_INLINE float64x2_t fma(float64x2_t a, float64x2_t b, float64x2_t c) noexcept { return vfmaq_f64(c, a, b); }
OGIVE_INLINE float32x4_t fnma(float32x4_t a, float32x4_t b, float32x4_t c) noexcept { return vfmsq_f32(c, a, b); }
OGIVE_INLINE float64x2_t fnma(float64x2_t a, float64x2_t b, float64x2_t c) noexcept { return vfmsq_f64(c, a, b); }
OGIVE_INLINE float32x4_t divide(float32x4_t a, float32x4_t b) noexcept { return vdivq_f32(a, b); }
OGIVE_INLINE float32x4_t sqrt(float32x4_t x) noexcept { return vsqrtq_f32(x); }
#endif

// A whole aligned vector past the caches: its line is not read first. `fence` makes such stores visible to others.
#if defined(__SSE2__)
OGIVE_INLINE void stream(float* p, __m128 x) noexcept { _mm_stream_ps(p, x); }
OGIVE_INLINE void stream(double* p, __m128d x) noexcept { _mm_stream_pd(p, x); }
OGIVE_INLINE void fence() noexcept { _mm_sfence(); }
#else
OGIVE_INLINE void fence() noexcept {}
#endif
#if defined(__AVX__)
OGIVE_INLINE void stream(float* p, __m256 x) noexcept { _mm256_stream_ps(p, x); }
OGIVE_INLINE void stream(double* p, __m256d x) noexcept { _mm256_stream_pd(p, x); }
#endif
#if defined(__AVX512F__)
OGIVE_INLINE void stream(float* p, __m512 x) noexcept { _mm512_stream_ps(p, x); }
OGIVE_INLINE void stream(double* p, __m512d x) noexcept { _mm512_stream_pd(p, x); }
#endif

// x, which the compiler must hold in a register.
#if defined(__SSE2__) && defined(__GNUC__)
OGIVE_INLINE void keep(__m128& x) noexcept { __asm__("" : "+x"(x)); }
OGIVE_INLINE void keep(__m128d& x) noexcept { __asm__("" : "+x"(x)); }
#endif
#if defined(__AVX__) && defined(__GNUC__)
OGIVE_INLINE void keep(__m256& x) noexcept { __asm__("" : "+x"(x)); }
OGIVE_INLINE void keep(__m256d& x) noexcept { __asm__("" : "+x"(x)); }
#endif
#if defined(__AVX512F__) && defined(__GNUC__)
OGIVE_INLINE void keep(__m512& x) noexcept { __asm__("" : "+v"(x)); }
OGIVE_INLINE void keep(__m512d& x) noexcept { __asm__("" : "+v"(x)); }
#endif

// Sums over lanes: always the halving tree, lane i + lane i + W/2, so every path gives the same bits.
#if defined(__SSE2__)
OGIVE_INLINE float sum(__m128 x) noexcept {
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}
OGIVE_INLINE double sum(__m128d x) noexcept { return _mm_cvtsd_f64(_mm_add_sd(x, _mm_unpackhi_pd(x, x))); }
OGIVE_INLINE float largest(__m128 x) noexcept {
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps(x, x, 1)));
}
OGIVE_INLINE double largest(__m128d x) noexcept { return _mm_cvtsd_f64(_mm_max_sd(x, _mm_unpackhi_pd(x, x))); }

/// Lane i of the result is the sum over the lanes of x[i].
OGIVE_INLINE __m128d sum_all(const __m128d* x) noexcept {
  return _mm_add_pd(_mm_unpacklo_pd(x[0], x[1]), _mm_unpackhi_pd(x[0], x[1]));
}
OGIVE_INLINE __m128 sum_all(const __m128* x) noexcept {
  const __m128 ac = _mm_add_ps(_mm_shuffle_ps(x[0], x[2], 0x44), _mm_shuffle_ps(x[0], x[2], 0xee));
  const __m128 bd = _mm_add_ps(_mm_shuffle_ps(x[1], x[3], 0x44), _mm_shuffle_ps(x[1], x[3], 0xee));
  const __m128 low = _mm_unpacklo_ps(ac, bd), high = _mm_unpackhi_ps(ac, bd);  // a0 b0 a1 b1, c0 d0 c1 d1
  return _mm_add_ps(_mm_shuffle_ps(low, high, 0x44), _mm_shuffle_ps(low, high, 0xee));
}
#endif
#if defined(__AVX__)
OGIVE_INLINE __m128 low(__m256 x) noexcept { return _mm256_castps256_ps128(x); }
OGIVE_INLINE __m128 high(__m256 x) noexcept { return _mm256_extractf128_ps(x, 1); }
OGIVE_INLINE __m128d low(__m256d x) noexcept { return _mm256_castpd256_pd128(x); }
OGIVE_INLINE __m128d high(__m256d x) noexcept { return _mm256_extractf128_pd(x, 1); }
OGIVE_INLINE float sum(__m256 x) noexcept { return sum(_mm_add_ps(low(x), high(x))); }
OGIVE_INLINE double sum(__m256d x) noexcept { return sum(_mm_add_pd(low(x), high(x))); }
OGIVE_INLINE float largest(__m256 x) noexcept { return largest(_mm_max_ps(low(x), high(x))); }
OGIVE_INLINE double largest(__m256d x) noexcept { return largest(_mm_max_pd(low(x), high(x))); }

OGIVE_INLINE __m256 fold(__m256 a, __m256 b) noexcept {  // the 128-bit halves of a added, then those of b
  return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}
OGIVE_INLINE __m256d fold(__m256d a, __m256d b) noexcept {
  return _mm256_add_pd(_mm256_permute2f128_pd(a, b, 0x20), _mm256_permute2f128_pd(a, b, 0x31));
}
OGIVE_INLINE __m256d sum_all(const __m256d* x) noexcept {
  const __m256d a = fold(x[0], x[2]), b = fold(x[1], x[3]);
  return _mm256_add_pd(_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
}
OGIVE_INLINE __m256 sum_all(const __m256* x) noexcept {
  const __m256 a = fold(x[0], x[4]), b = fold(x[1], x[5]), c = fold(x[2], x[6]), d = fold(x[3], x[7]);
  const __m256 ac = _mm256_add_ps(_mm256_shuffle_ps(a, c, 0x44), _mm256_shuffle_ps(a, c, 0xee));
  const __m256 bd = _mm256_add_ps(_mm256_shuffle_ps(b, d, 0x44), _mm256_shuffle_ps(b, d, 0xee));
  const __m256 low = _mm256_unpacklo_ps(ac, bd), high = _mm256_unpackhi_ps(ac, bd);
  return _mm256_add_ps(_mm256_shuffle_ps(low, high, 0x44), _mm256_shuffle_ps(low, high, 0xee));
}
#endif
#if defined(__AVX512F__)
OGIVE_INLINE __m256 low(__m512 x) noexcept { return _mm512_castps512_ps256(x); }
OGIVE_INLINE __m256 high(__m512 x) noexcept { return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1)); }
OGIVE_INLINE __m256d low(__m512d x) noexcept { return _mm512_castpd512_pd256(x); }
OGIVE_INLINE __m256d high(__m512d x) noexcept { return _mm512_extractf64x4_pd(x, 1); }
OGIVE_INLINE float sum(__m512 x) noexcept { return sum(_mm256_add_ps(low(x), high(x))); }
OGIVE_INLINE double sum(__m512d x) noexcept { return sum(_mm256_add_pd(low(x), high(x))); }
OGIVE_INLINE float largest(__m512 x) noexcept { return largest(_mm256_max_ps(low(x), high(x))); }
OGIVE_INLINE double largest(__m512d x) noexcept { return largest(_mm256_max_pd(low(x), high(x))); }

OGIVE_INLINE __m512 fold_halves(__m512 a, __m512 b) noexcept {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}
OGIVE_INLINE __m512 fold_quarters(__m512 a, __m512 b) noexcept {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
OGIVE_INLINE __m512d fold_halves(__m512d a, __m512d b) noexcept {
  return _mm512_add_pd(_mm512_shuffle_f64x2(a, b, 0x44), _mm512_shuffle_f64x2(a, b, 0xee));
}
OGIVE_INLINE __m512d fold_quarters(__m512d a, __m512d b) noexcept {
  return _mm512_add_pd(_mm512_shuffle_f64x2(a, b, 0x88), _mm512_shuffle_f64x2(a, b, 0xdd));
}
OGIVE_INLINE __m512d sum_all(const __m512d* x) noexcept {
  const __m512d a = fold_quarters(fold_halves(x[0], x[2]), fold_halves(x[4], x[6]));
  const __m512d b = fold_quarters(fold_halves(x[1], x[3]), fold_halves(x[5], x[7]));
  return _mm512_add_pd(_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
}
OGIVE_INLINE __m512 sum_all(const __m512* x) noexcept {
  const __m512 a = fold_quarters(fold_halves(x[0], x[4]), fold_halves(x[8], x[12]));
  const __m512 b = fold_quarters(fold_halves(x[1], x[5]), fold_halves(x[9], x[13]));
  const __m512 c = fold_quarters(fold_halves(x[2], x[6]), fold_halves(x[10], x[14]));
  const __m512 d = fold_quarters(fold_halves(x[3], x[7]), fold_halves(x[11], x[15]));
  const __m512 ac = _mm512_add_ps(_mm512_shuffle_ps(a, c, 0x44), _mm512_shuffle_ps(a, c, 0xee));
  const __m512 bd = _mm512_add_ps(_mm512_shuffle_ps(b, d, 0x44), _mm512_shuffle_ps(b, d, 0xee));
  const __m512 low = _mm512_unpacklo_ps(ac, bd), high = _mm512_unpackhi_ps(ac, bd);
  return _mm512_add_ps(_mm512_shuffle_ps(low, high, 0x44), _mm512_shuffle_ps(low, high, 0xee));
}
#endif

// Pairs of neighbouring lanes, as complex numbers lie in memory: of two vectors all first lanes into one and all second
// ones into the other, both in one order, whichever it is; and back.
#if defined(__SSE2__)
OGIVE_INLINE void split_pairs(__m128& a, __m128& b) noexcept {
  const __m128 first = _mm_shuffle_ps(a, b, 0x88);
  b = _mm_shuffle_ps(a, b, 0xdd);
  a = first;
}
OGIVE_INLINE void join_pairs(__m128& a, __m128& b) noexcept {
  const __m128 low = _mm_unpacklo_ps(a, b);
  b = _mm_unpackhi_ps(a, b);
  a = low;
}
OGIVE_INLINE void split_pairs(__m128d& a, __m128d& b) noexcept {
  const __m128d first = _mm_unpacklo_pd(a, b);
  b = _mm_unpackhi_pd(a, b);
  a = first;
}
OGIVE_INLINE void join_pairs(__m128d& a, __m128d& b) noexcept { split_pairs(a, b); }
#endif
#if defined(__AVX__)
OGIVE_INLINE void split_pairs(__m256& a, __m256& b) noexcept {
  const __m256 first = _mm256_shuffle_ps(a, b, 0x88);
  b = _mm256_shuffle_ps(a, b, 0xdd);
  a = first;
}
OGIVE_INLINE void join_pairs(__m256& a, __m256& b) noexcept {
  const __m256 low = _mm256_unpacklo_ps(a, b);
  b = _mm256_unpackhi_ps(a, b);
  a = low;
}
OGIVE_INLINE void split_pairs(__m256d& a, __m256d& b) noexcept {
  const __m256d first = _mm256_unpacklo_pd(a, b);
  b = _mm256_unpackhi_pd(a, b);
  a = first;
}
OGIVE_INLINE void join_pairs(__m256d& a, __m256d& b) noexcept { split_pairs(a, b); }
#endif
#if defined(__AVX512F__)
OGIVE_INLINE void split_pairs(__m512& a, __m512& b) noexcept {
  const __m512 first = _mm512_shuffle_ps(a, b, 0x88);
  b = _mm512_shuffle_ps(a, b, 0xdd);
  a = first;
}
OGIVE_INLINE void join_pairs(__m512& a, __m512& b) noexcept {
  const __m512 low = _mm512_unpacklo_ps(a, b);
  b = _mm512_unpackhi_ps(a, b);
  a = low;
}
OGIVE_INLINE void split_pairs(__m512d& a, __m512d& b) noexcept {
  const __m512d first = _mm512_unpacklo_pd(a, b);
  b = _mm512_unpackhi_pd(a, b);
  a = first;
}
OGIVE_INLINE void join_pairs(__m512d& a, __m512d& b) noexcept { split_pairs(a, b); }
#endif

// W rows of W lanes, turned round in place.
#if defined(__SSE2__)
OGIVE_INLINE void transpose(__m128d* x) noexcept {
  const __m128d low = _mm_unpacklo_pd(x[0], x[1]);
  x[1] = _mm_unpackhi_pd(x[0], x[1]);
  x[0] = low;
}
OGIVE_INLINE void transpose(__m128* x) noexcept {
  const __m128 ab = _mm_unpacklo_ps(x[0], x[1]), AB = _mm_unpackhi_ps(x[0], x[1]);
  const __m128 cd = _mm_unpacklo_ps(x[2], x[3]), CD = _mm_unpackhi_ps(x[2], x[3]);
  x[0] = _mm_shuffle_ps(ab, cd, 0x44);
  x[1] = _mm_shuffle_ps(ab, cd, 0xee);
  x[2] = _mm_shuffle_ps(AB, CD, 0x44);
  x[3] = _mm_shuffle_ps(AB, CD, 0xee);
}
#endif
#if defined(__AVX__)
/// 4 × 4 inside each 128-bit lane of x[0], x[1], x[2], x[3].
OGIVE_INLINE void transpose_lanes(__m256* x) noexcept {
  const __m256 ab = _mm256_unpacklo_ps(x[0], x[1]), AB = _mm256_unpackhi_ps(x[0], x[1]);
  const __m256 cd = _mm256_unpacklo_ps(x[2], x[3]), CD = _mm256_unpackhi_ps(x[2], x[3]);
  x[0] = _mm256_shuffle_ps(ab, cd, 0x44);
  x[1] = _mm256_shuffle_ps(ab, cd, 0xee);
  x[2] = _mm256_shuffle_ps(AB, CD, 0x44);
  x[3] = _mm256_shuffle_ps(AB, CD, 0xee);
}
OGIVE_INLINE void transpose_lanes(__m256d* x) noexcept {
  const __m256d low = _mm256_unpacklo_pd(x[0], x[1]);
  x[1] = _mm256_unpackhi_pd(x[0], x[1]);
  x[0] = low;
}
OGIVE_INLINE void swap_halves(__m256& a, __m256& b) noexcept {
  const __m256 low = _mm256_permute2f128_ps(a, b, 0x20);
  b = _mm256_permute2f128_ps(a, b, 0x31);
  a = low;
}
OGIVE_INLINE void swap_halves(__m256d& a, __m256d& b) noexcept {
  const __m256d low = _mm256_permute2f128_pd(a, b, 0x20);
  b = _mm256_permute2f128_pd(a, b, 0x31);
  a = low;
}
OGIVE_INLINE void transpose(__m256d* x) noexcept {
  transpose_lanes(x);
  transpose_lanes(x + 2);
  swap_halves(x[0], x[2]);
  swap_halves(x[1], x[3]);
}
OGIVE_INLINE void transpose(__m256* x) noexcept {
  transpose_lanes(x);
  transpose_lanes(x + 4);
  swap_halves(x[0], x[4]);
  swap_halves(x[1], x[5]);
  swap_halves(x[2], x[6]);
  swap_halves(x[3], x[7]);
}
#endif
#if defined(__AVX512F__)
OGIVE_INLINE void transpose_lanes(__m512* x) noexcept {
  const __m512 ab = _mm512_unpacklo_ps(x[0], x[1]), AB = _mm512_unpackhi_ps(x[0], x[1]);
  const __m512 cd = _mm512_unpacklo_ps(x[2], x[3]), CD = _mm512_unpackhi_ps(x[2], x[3]);
  x[0] = _mm512_shuffle_ps(ab, cd, 0x44);
  x[1] = _mm512_shuffle_ps(ab, cd, 0xee);
  x[2] = _mm512_shuffle_ps(AB, CD, 0x44);
  x[3] = _mm512_shuffle_ps(AB, CD, 0xee);
}
OGIVE_INLINE void transpose_lanes(__m512d* x) noexcept {
  const __m512d low = _mm512_unpacklo_pd(x[0], x[1]);
  x[1] = _mm512_unpackhi_pd(x[0], x[1]);
  x[0] = low;
}
/// 4 × 4 blocks of 128 bits.
OGIVE_INLINE void transpose_quarters(__m512& a, __m512& b, __m512& c, __m512& d) noexcept {
  const __m512 ab = _mm512_shuffle_f32x4(a, b, 0x88), AB = _mm512_shuffle_f32x4(a, b, 0xdd);
  const __m512 cd = _mm512_shuffle_f32x4(c, d, 0x88), CD = _mm512_shuffle_f32x4(c, d, 0xdd);
  a = _mm512_shuffle_f32x4(ab, cd, 0x88);
  b = _mm512_shuffle_f32x4(AB, CD, 0x88);
  c = _mm512_shuffle_f32x4(ab, cd, 0xdd);
  d = _mm512_shuffle_f32x4(AB, CD, 0xdd);
}
OGIVE_INLINE void transpose_quarters(__m512d& a, __m512d& b, __m512d& c, __m512d& d) noexcept {
  const __m512d ab = _mm512_shuffle_f64x2(a, b, 0x88), AB = _mm512_shuffle_f64x2(a, b, 0xdd);
  const __m512d cd = _mm512_shuffle_f64x2(c, d, 0x88), CD = _mm512_shuffle_f64x2(c, d, 0xdd);
  a = _mm512_shuffle_f64x2(ab, cd, 0x88);
  b = _mm512_shuffle_f64x2(AB, CD, 0x88);
  c = _mm512_shuffle_f64x2(ab, cd, 0xdd);
  d = _mm512_shuffle_f64x2(AB, CD, 0xdd);
}
OGIVE_INLINE void transpose(__m512d* x) noexcept {
  transpose_lanes(x);
  transpose_lanes(x + 2);
  transpose_lanes(x + 4);
  transpose_lanes(x + 6);
  transpose_quarters(x[0], x[2], x[4], x[6]);
  transpose_quarters(x[1], x[3], x[5], x[7]);
}
OGIVE_INLINE void transpose(__m512* x) noexcept {
  transpose_lanes(x);
  transpose_lanes(x + 4);
  transpose_lanes(x + 8);
  transpose_lanes(x + 12);
  transpose_quarters(x[0], x[4], x[8], x[12]);
  transpose_quarters(x[1], x[5], x[9], x[13]);
  transpose_quarters(x[2], x[6], x[10], x[14]);
  transpose_quarters(x[3], x[7], x[11], x[15]);
}
#endif

// The first lanes.
template <class T, std::size_t Bytes>
struct partial {
  using mask = index_t;
  static OGIVE_INLINE mask first(index_t count) noexcept { return count; }
};

#if defined(__AVX__)
alignas(64) inline constexpr std::int32_t lane_mask[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};

template <>
struct partial<float, 16> {
  using mask = __m128i;
  static OGIVE_INLINE mask first(index_t count) noexcept {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(lane_mask + 8 - count));
  }
  static OGIVE_INLINE __m128 load(const float* p, mask m) noexcept { return _mm_maskload_ps(p, m); }
  static OGIVE_INLINE void store(float* p, mask m, __m128 x) noexcept { _mm_maskstore_ps(p, m, x); }
};
template <>
struct partial<double, 16> {
  using mask = __m128i;
  static OGIVE_INLINE mask first(index_t count) noexcept {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(lane_mask + 8 - 2 * count));
  }
  static OGIVE_INLINE __m128d load(const double* p, mask m) noexcept { return _mm_maskload_pd(p, m); }
  static OGIVE_INLINE void store(double* p, mask m, __m128d x) noexcept { _mm_maskstore_pd(p, m, x); }
};
template <>
struct partial<float, 32> {
  using mask = __m256i;
  static OGIVE_INLINE mask first(index_t count) noexcept {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(lane_mask + 8 - count));
  }
  static OGIVE_INLINE __m256 load(const float* p, mask m) noexcept { return _mm256_maskload_ps(p, m); }
  static OGIVE_INLINE void store(float* p, mask m, __m256 x) noexcept { _mm256_maskstore_ps(p, m, x); }
};
template <>
struct partial<double, 32> {
  using mask = __m256i;
  static OGIVE_INLINE mask first(index_t count) noexcept {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(lane_mask + 8 - 2 * count));
  }
  static OGIVE_INLINE __m256d load(const double* p, mask m) noexcept { return _mm256_maskload_pd(p, m); }
  static OGIVE_INLINE void store(double* p, mask m, __m256d x) noexcept { _mm256_maskstore_pd(p, m, x); }
};
#endif
#if defined(__AVX512F__)
template <>
struct partial<float, 64> {
  using mask = __mmask16;
  static OGIVE_INLINE mask first(index_t count) noexcept { return static_cast<mask>((1U << count) - 1U); }
  static OGIVE_INLINE __m512 load(const float* p, mask m) noexcept { return _mm512_maskz_loadu_ps(m, p); }
  static OGIVE_INLINE void store(float* p, mask m, __m512 x) noexcept { _mm512_mask_storeu_ps(p, m, x); }
};
template <>
struct partial<double, 64> {
  using mask = __mmask8;
  static OGIVE_INLINE mask first(index_t count) noexcept { return static_cast<mask>((1U << count) - 1U); }
  static OGIVE_INLINE __m512d load(const double* p, mask m) noexcept { return _mm512_maskz_loadu_pd(m, p); }
  static OGIVE_INLINE void store(double* p, mask m, __m512d x) noexcept { _mm512_mask_storeu_pd(p, m, x); }
};
#endif

// Storage types.
#if defined(__SSE2__)
template <>
struct converted<bfloat16, float, 16> {
  static OGIVE_INLINE __m128 load(const bfloat16* p) noexcept {
    const __m128i bits = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), bits));
  }
};
template <>
struct converted<float, double, 16> {
  static OGIVE_INLINE __m128d load(const float* p) noexcept {
    return _mm_cvtps_pd(_mm_castpd_ps(_mm_load_sd(reinterpret_cast<const double*>(p))));
  }
  static OGIVE_INLINE void store(float* p, __m128d x) noexcept {
    _mm_store_sd(reinterpret_cast<double*>(p), _mm_castps_pd(_mm_cvtpd_ps(x)));
  }
};
#endif
#if defined(__AVX2__)
template <>
struct converted<bfloat16, float, 32> {
  static OGIVE_INLINE __m256 load(const bfloat16* p) noexcept {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static OGIVE_INLINE void store(bfloat16* p, __m256 x) noexcept {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i even = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(even, quiet, nan), 16);
    const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
  }
};
template <>
struct converted<float, double, 32> {
  static OGIVE_INLINE __m256d load(const float* p) noexcept { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
  static OGIVE_INLINE void store(float* p, __m256d x) noexcept { _mm_storeu_ps(p, _mm256_cvtpd_ps(x)); }
};
template <>
struct converted<double, float, 32> {
  static OGIVE_INLINE __m256 load(const double* p) noexcept {
    const __m128 low = _mm256_cvtpd_ps(_mm256_loadu_pd(p)), high = _mm256_cvtpd_ps(_mm256_loadu_pd(p + 4));
    return _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
  }
  static OGIVE_INLINE void store(double* p, __m256 x) noexcept {
    _mm256_storeu_pd(p, _mm256_cvtps_pd(low(x)));
    _mm256_storeu_pd(p + 4, _mm256_cvtps_pd(high(x)));
  }
};
#endif
#if defined(__F16C__)
template <>
struct converted<float16, float, 16> {
  static OGIVE_INLINE __m128 load(const float16* p) noexcept {
    return _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static OGIVE_INLINE void store(float16* p, __m128 x) noexcept {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
};
template <>
struct converted<float16, float, 32> {
  static OGIVE_INLINE __m256 load(const float16* p) noexcept {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static OGIVE_INLINE void store(float16* p, __m256 x) noexcept {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
};
#endif
#if defined(__AVX512F__)
OGIVE_INLINE __m512 widen(bfloat16, __m256i bits) noexcept {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
OGIVE_INLINE __m512 widen(float16, __m256i bits) noexcept { return _mm512_cvtph_ps(bits); }

OGIVE_INLINE __m256i narrow(bfloat16, __m512 x) noexcept {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i even = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512i kept = _mm512_mask_or_epi32(even, nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16));
}
OGIVE_INLINE __m256i narrow(float16, __m512 x) noexcept { return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT); }

/// The 16-bit types.
template <class S>
requires(sizeof(S) == 2) struct converted<S, float, 64> {
  static OGIVE_INLINE __m512 load(const S* p) noexcept {
    return widen(S(), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static OGIVE_INLINE void store(S* p, __m512 x) noexcept {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(S(), x));
  }
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  static OGIVE_INLINE __m512 load(const S* p, __mmask16 some) noexcept {
    return widen(S(), _mm256_maskz_loadu_epi16(some, p));
  }
  static OGIVE_INLINE void store(S* p, __mmask16 some, __m512 x) noexcept {
    _mm256_mask_storeu_epi16(p, some, narrow(S(), x));
  }
#endif
};
template <>
struct converted<float, double, 64> {
  static OGIVE_INLINE __m512d load(const float* p) noexcept { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }
  static OGIVE_INLINE void store(float* p, __m512d x) noexcept { _mm256_storeu_ps(p, _mm512_cvtpd_ps(x)); }
};
template <>
struct converted<double, float, 64> {
  static OGIVE_INLINE __m512 load(const double* p) noexcept {
    const __m256d low = _mm256_castps_pd(_mm512_cvtpd_ps(_mm512_loadu_pd(p)));
    const __m256d high = _mm256_castps_pd(_mm512_cvtpd_ps(_mm512_loadu_pd(p + 8)));
    return _mm512_castpd_ps(_mm512_insertf64x4(_mm512_castpd256_pd512(low), high, 1));
  }
  static OGIVE_INLINE void store(double* p, __m512 x) noexcept {
    _mm512_storeu_pd(p, _mm512_cvtps_pd(low(x)));
    _mm512_storeu_pd(p + 8, _mm512_cvtps_pd(high(x)));
  }
};
#endif

}  // namespace simd::native
}  // namespace OGIVE_ABI
}  // namespace ogive

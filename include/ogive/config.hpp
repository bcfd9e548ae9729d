// L0: what every header of ogive stands on: compiler facts, the ABI namespace, assertions.
#pragma once

#include <ogive/version.hpp>

#include <cstddef>
#include <cstdint>

#if defined(_MSVC_LANG) ? _MSVC_LANG < 202002L : __cplusplus < 202002L
#error "ogive needs C++20: compile with -std=c++20 or newer"
#endif

#if defined(__FAST_MATH__) && !defined(OGIVE_ALLOW_FAST_MATH)
#error \
    "ogive: -ffast-math reassociates the range reductions of exp and log and folds NaN checks away; results would be wrong. Build without it (or define OGIVE_ALLOW_FAST_MATH and own the consequences)."
#endif

#if defined(_MSC_VER) && !defined(__clang__)
#define OGIVE_INLINE __forceinline
#define OGIVE_NOINLINE __declspec(noinline)
#define OGIVE_RESTRICT __restrict
#else
#define OGIVE_INLINE inline __attribute__((always_inline))
#define OGIVE_NOINLINE __attribute__((noinline))
#define OGIVE_RESTRICT __restrict__
#endif

// Below the public door nothing throws: a broken precondition there is a bug of ogive itself.
#if defined(OGIVE_ENABLE_ASSERTIONS)
#include <cassert>
#define OGIVE_ASSERT(condition) assert(condition)
#define OGIVE_ABI_ASSERT a1
#else
#define OGIVE_ASSERT(condition) static_cast<void>(sizeof(!(condition)))
#define OGIVE_ABI_ASSERT a0
#endif

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__)
#define OGIVE_ABI_ISA avx512
#elif defined(__AVX2__) && defined(__FMA__)
#define OGIVE_ABI_ISA avx2
#elif defined(__AVX__)
#define OGIVE_ABI_ISA avx
#elif defined(__SSE4_2__)
#define OGIVE_ABI_ISA sse42
#elif defined(__SSE2__)
#define OGIVE_ABI_ISA sse2
#elif defined(__aarch64__)
#define OGIVE_ABI_ISA neon64
#else
#define OGIVE_ABI_ISA generic
#endif

#if defined(_OPENMP)
#define OGIVE_ABI_OPENMP omp
#else
#define OGIVE_ABI_OPENMP seq
#endif

#define OGIVE_DETAIL_ABI2(major, minor, isa, assertion, threads) v##major##_##minor##_##isa##_##assertion##_##threads
#define OGIVE_DETAIL_ABI1(major, minor, isa, assertion, threads) \
  OGIVE_DETAIL_ABI2(major, minor, isa, assertion, threads)

/// The inline namespace of everything that is compiled differently under different flags: kernels, engines,
/// operators. Units built with other flags get other symbols, so the linker cannot merge a wide kernel into a
/// narrow unit. Views, options and errors sit in plain `ogive`: they are the same everywhere and cross units.
#define OGIVE_ABI \
  OGIVE_DETAIL_ABI1(OGIVE_VERSION_MAJOR, OGIVE_VERSION_MINOR, OGIVE_ABI_ISA, OGIVE_ABI_ASSERT, OGIVE_ABI_OPENMP)

namespace ogive {

/// Extents, strides, token and head numbers: signed, wide enough for B·L·H·K.
using index_t = std::ptrdiff_t;

}  // namespace ogive

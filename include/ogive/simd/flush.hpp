// L2: subnormal numbers as zero, for as long as an object lives.
#pragma once

#include <ogive/config.hpp>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace ogive {

/// While it lives, the calling thread's vector unit reads and writes subnormal numbers as zero (x86: FTZ and DAZ of
/// MXCSR; AArch64: FZ of FPCR); then the caller's mode returns. A state that decays into subnormals otherwise costs
/// tens of times more per update. It does nothing on other machines. Since a compiler may move arithmetic across it,
/// the protected work belongs in a call that is not inlined.
class flush_subnormals {
 public:
  OGIVE_INLINE flush_subnormals() noexcept : before_(get()) { set(before_ | mask); }
  OGIVE_INLINE ~flush_subnormals() { set(before_); }
  flush_subnormals(const flush_subnormals&) = delete;
  flush_subnormals& operator=(const flush_subnormals&) = delete;

 private:
#if defined(__SSE2__)
  using word = unsigned;
  static constexpr word mask = 0x8040U;
  static OGIVE_INLINE word get() noexcept { return _mm_getcsr(); }
  static OGIVE_INLINE void set(word value) noexcept { _mm_setcsr(value); }
#elif defined(__aarch64__)
  using word = std::uint64_t;
  static constexpr word mask = word{1} << 24;
  static OGIVE_INLINE word get() noexcept {
    word value;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static OGIVE_INLINE void set(word value) noexcept { __asm__ __volatile__("msr fpcr, %0" : : "r"(value) : "memory"); }
#else
  using word = unsigned;
  static constexpr word mask = 0;
  static OGIVE_INLINE word get() noexcept { return 0; }
  static OGIVE_INLINE void set(word) noexcept {}
#endif

  word before_;
};

}  // namespace ogive

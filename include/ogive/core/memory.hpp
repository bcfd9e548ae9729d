// L1: memory for many numbers. The rows of one head lie kilobytes apart, so that a walk over its tokens meets a new
// page at nearly every row; in large pages it stays within what the processor's table of pages holds.
#pragma once

#include <ogive/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <span>

#if defined(__linux__) && __has_include(<sys/mman.h>)
#include <sys/mman.h>
#endif

namespace ogive {

/// Asks the system to back `memory` with large pages, as far as it covers whole ones; call it before the memory is
/// first written. `tensor` and a context's own scratch do so; this is for memory of your own. Linux has such pages
/// where /sys/kernel/mm/transparent_hugepage/enabled says `madvise` or `always`. Returns whether the system took the
/// advice: without it everything is as right, and slower by some 25 to 40 % where heads are read one by one.
inline bool advise_large_pages(std::span<std::byte> memory) noexcept;

namespace core {

/// Of x86-64, and of AArch64 with pages of 4 KiB.
inline constexpr std::size_t large_page = std::size_t{1} << 21;

/// Half a large page and more starts at the boundary of one, so that all of it can lie in such.
constexpr std::size_t alignment_of(std::size_t bytes) noexcept { return bytes >= large_page / 2 ? large_page : 64; }

/// Uninitialised, aligned to 64 bytes at least, in large pages where there is enough of it. What no machine has is
/// refused before it is rounded up, which would wrap round to next to nothing.
inline void* allocate(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) {
    raise(status(status_code::scratch) << "ogive: more memory is asked for than there can be");
  }
  const std::size_t alignment = alignment_of(bytes);
  if (alignment == large_page) bytes = (bytes + large_page - 1) / large_page * large_page;
  void* memory = ::operator new (bytes, std::align_val_t{alignment});
  if (alignment == large_page) advise_large_pages({static_cast<std::byte*>(memory), bytes});
  return memory;
}

/// What `allocate(bytes)` gave, or nothing.
inline void release(void* memory, std::size_t bytes) noexcept {
  ::operator delete (memory, std::align_val_t{alignment_of(bytes)});
}

}  // namespace core

inline bool advise_large_pages([[maybe_unused]] std::span<std::byte> memory) noexcept {
#if defined(MADV_HUGEPAGE)
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uintptr_t first = (begin + core::large_page - 1) / core::large_page * core::large_page;
  const std::uintptr_t last = (begin + memory.size()) / core::large_page * core::large_page;
  return last > first && ::madvise(memory.data() + (first - begin), last - first, MADV_HUGEPAGE) == 0;
#else
  return false;
#endif
}

}  // namespace ogive

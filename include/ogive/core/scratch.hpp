// L1: the memory a verb works in: carved from one buffer, never allocated below the door.
#pragma once

#include <ogive/core/view.hpp>

namespace ogive {

/// Carves aligned pieces off a buffer, or, with no buffer, only counts what it would carve.
class arena {
 public:
  static constexpr std::size_t alignment = 64;

  constexpr arena() noexcept = default;
  constexpr arena(std::byte* begin, std::size_t capacity) noexcept : begin_(begin), capacity_(capacity) {}

  /// Room for `count` elements of T at a 64-byte boundary. Contents are whatever was there.
  template <class T>
  T* take(index_t count) noexcept {
    const std::size_t at = used_;
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + alignment - 1) / alignment * alignment;
    if (begin_ == nullptr) return nullptr;
    OGIVE_ASSERT(used_ <= capacity_);
    return reinterpret_cast<T*>(begin_ + at);
  }
  constexpr std::size_t used() const noexcept { return used_; }

 private:
  std::byte* begin_ = nullptr;
  std::size_t capacity_ = 0;
  std::size_t used_ = 0;
};

}  // namespace ogive

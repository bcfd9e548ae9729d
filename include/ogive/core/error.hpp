// L1: what a verb says when its arguments do not fit, as a value first and as an exception at the door.
#pragma once

#include <ogive/config.hpp>

#include <array>
#include <span>
#include <string_view>

#if defined(__cpp_exceptions)
#include <stdexcept>
#else
#include <cstdio>
#include <cstdlib>
#endif

namespace ogive {

enum class status_code {
  ok,
  shape,    ///< extents, strides, overlap, groups, offsets
  value,    ///< an option or parameter outside its range
  scratch,  ///< a caller-owned scratch buffer is too small
};

/// The answer of `check`: a code and a text in a fixed buffer. Never allocates.
class [[nodiscard]] status {
 public:
  status() noexcept = default;
  explicit status(status_code code) noexcept : code_(code) {}

  explicit operator bool() const noexcept { return code_ == status_code::ok; }
  status_code code() const noexcept { return code_; }
  const char* text() const noexcept { return text_.data(); }

  /// Appends to the text; what does not fit is cut.
  status& operator<<(std::string_view words) noexcept {
    for (const char letter : words) {
      if (used_ + 1 < text_.size()) text_[used_++] = letter;
    }
    text_[used_] = '\0';
    return *this;
  }
  status& operator<<(index_t number) noexcept {
    std::array<char, 24> digits{};
    std::size_t at = digits.size();
    auto rest = number < 0 ? 0 - static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
    do {
      digits[--at] = static_cast<char>('0' + rest % 10);
      rest /= 10;
    } while (rest != 0);
    if (number < 0) digits[--at] = '-';
    return *this << std::string_view(digits.data() + at, digits.size() - at);
  }
  /// A shape, as [2, 64, 8, 128].
  status& operator<<(std::span<const index_t> shape) noexcept {
    *this << "[";
    for (std::size_t i = 0; i < shape.size(); ++i) *this << (i == 0 ? "" : ", ") << shape[i];
    return *this << "]";
  }

 private:
  status_code code_ = status_code::ok;
  std::size_t used_ = 0;
  std::array<char, 320> text_{};
};

#if defined(__cpp_exceptions)

/// Extents, strides, overlap or groups that do not fit; names operator, field, both shapes and the remedy.
class shape_error : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// Throws what a failed status says: shape_error for shapes, std::invalid_argument for the rest.
[[noreturn]] inline void raise(const status& failed) {
  if (failed.code() == status_code::shape) throw shape_error(failed.text());
  throw std::invalid_argument(failed.text());
}

#else

#if !defined(OGIVE_FAIL)
/// Without exceptions: replace this to decide what a refused call does. It must not return.
#define OGIVE_FAIL(text) (std::fputs(text, stderr), std::fputs("\n", stderr), std::abort())
#endif

[[noreturn]] inline void raise(const status& failed) {
  OGIVE_FAIL(failed.text());
  std::abort();
}

#endif

inline void require(const status& checked) {
  if (!checked) raise(checked);
}

}  // namespace ogive

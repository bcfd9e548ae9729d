// L1: what a forward keeps for its backward.
#pragma once

#include <ogive/core/tensor.hpp>

#include <array>
#include <cstring>

namespace ogive {

/// What `forward` keeps for `backward`, which then has no need of a sweep of its own: the state before every `interval`
/// tokens of each sequence. The first is among them, so that the state may be swept in place.
///
///   checkpoints kept;
///   forward(op, st, o, how, ctx, kept);
///   backward(op, st, d_o, d_st, d, how, ctx, kept);
///
/// It owns its memory, which grows where a call needs more and stays for the next one. Backward refuses checkpoints of
/// another operator, of other shapes or of other sequences; that the numbers are those of the same call is the caller's
/// word. It is written by one forward at a time.
class checkpoints {
 public:
  checkpoints() noexcept = default;
  explicit checkpoints(index_t interval) noexcept : interval_(interval) {}

  /// Tokens from one to the next, and a chunk of the backward, at most 256: 0 = automatic. It has nothing to do with
  /// the chunks of the forward.
  index_t interval() const noexcept { return interval_; }
  std::size_t capacity() const noexcept { return memory_.flat().size(); }

  // The engines' own.

  /// What a call is: checkpoints are good for another one that is the same.
  struct call {
    const char* op = nullptr;
    std::array<index_t, 13> numbers{};

    bool operator==(const call& other) const noexcept {
      return op != nullptr && other.op != nullptr && std::strcmp(op, other.op) == 0 && numbers == other.numbers;
    }
  };
  /// Makes room, at the door of a verb.
  void reserve(std::size_t bytes) {
    if (bytes <= capacity()) return;
    of_ = {};
    memory_ = tensor<std::byte, 1>({static_cast<index_t>(bytes)});
  }
  /// What they are of; `begin` leaves zeros where something else was.
  const call& of() const noexcept { return of_; }
  void begin(const call& what) noexcept {
    if (!(what == of_)) std::fill_n(memory_.data(), memory_.size(), std::byte{0});
    of_ = what;
  }
  const std::byte* data() const noexcept { return memory_.data(); }
  std::byte* data() noexcept { return memory_.data(); }

 private:
  index_t interval_ = 0;
  call of_{};
  tensor<std::byte, 1> memory_{};
};

}  // namespace ogive

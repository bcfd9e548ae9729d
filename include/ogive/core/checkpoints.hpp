// L1: what a forward keeps for its backward.
#pragma once

#include <ogive/core/options.hpp>
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
    std::array<index_t, 12> numbers{};
    integers offsets{}, lengths{};

    bool operator==(const call& other) const noexcept {
      return op != nullptr && other.op != nullptr && std::strcmp(op, other.op) == 0 && numbers == other.numbers &&
             difference(offsets, other.offsets) < 0 && difference(lengths, other.lengths) < 0;
    }
  };
  /// The first entry that two lists do not share, −1 if there is none.
  static index_t difference(const integers& a, const integers& b) noexcept {
    const index_t both = std::min(a.size(), b.size());
    for (index_t i = 0; i < both; ++i) {
      if (a.at(i) != b.at(i)) return i;
    }
    return a.size() == b.size() ? -1 : both;
  }
  /// Makes room, at the door of a verb, for a call with lists of so many entries.
  void reserve(std::size_t bytes, index_t entries) {
    if (bytes <= capacity() && entries <= lists_.size()) return;
    of_ = {};
    if (bytes > capacity()) memory_ = tensor<std::byte, 1>({static_cast<index_t>(bytes)});
    if (entries > lists_.size()) lists_ = tensor<std::int64_t, 1>({entries});
  }
  /// Whether their interval is one.
  status check(const char* op) const noexcept {
    if (interval_ >= 0) return {};
    return status(status_code::value) << op << ": checkpoints have an interval of " << interval_
                                      << ", must be 0 (automatic) or a number of tokens";
  }
  /// What they are of, its lists their own; `begin` leaves zeros where something else was.
  call of() const noexcept {
    call what = of_;
    const std::span<const std::int64_t> lists(lists_.data(), static_cast<std::size_t>(offsets_ + lengths_));
    what.offsets = lists.first(static_cast<std::size_t>(offsets_));
    what.lengths = lists.last(static_cast<std::size_t>(lengths_));
    return what;
  }
  void begin(const call& what) noexcept {
    if (what == of()) return;
    std::fill_n(memory_.data(), memory_.size(), std::byte{0});
    of_ = {what.op, what.numbers};
    offsets_ = what.offsets.size();
    lengths_ = what.lengths.size();
    for (index_t i = 0; i < offsets_; ++i) lists_(i) = what.offsets.at(i);
    for (index_t i = 0; i < lengths_; ++i) lists_(offsets_ + i) = what.lengths.at(i);
  }
  const std::byte* data() const noexcept { return memory_.data(); }
  std::byte* data() noexcept { return memory_.data(); }

 private:
  index_t interval_ = 0;
  call of_{};
  index_t offsets_ = 0, lengths_ = 0;  // entries
  tensor<std::int64_t, 1> lists_{};
  tensor<std::byte, 1> memory_{};
};

}  // namespace ogive

// L1: how to compute, and the small words that say what.
#pragma once

#include <ogive/core/view.hpp>

namespace ogive {

/// Which of the equal forms of an operator runs.
enum class form {
  automatic,    ///< chosen from shape, type, instruction set and whether a state is given
  left,         ///< (QKᵀ)V: O(n²d), no state
  right,        ///< Q(KᵀV): O(nd²), non-causal operators
  recurrent,    ///< token by token through the state
  chunked,      ///< matrix products over chunks, the state between them
  convolution,  ///< with the kernel of a time-invariant operator, by fast Fourier transforms
};

/// Its word, for messages.
constexpr const char* to_string(form f) noexcept {
  constexpr const char* words[] = {"automatic", "left", "right", "recurrent", "chunked", "convolution"};
  return words[static_cast<int>(f)];
}

/// How to compute, never what: no option changes a result beyond rounding.
struct options {
  ogive::form form = form::automatic;
  index_t chunk = 0;        ///< tokens per chunk, 0 = automatic; clamped to [1, 256]
  index_t time_split = 0;   ///< tokens per segment of a scan over time, at least 32; 0 = automatic
  bool accumulate = false;  ///< backward adds to the gradients instead of overwriting them
};

/// First argument of a verb's noexcept twin: the caller has called `check` with the same arguments and it passed, and
/// the context has room for `scratch_bytes`. `step(prechecked, op, state, o, options, context)`.
struct prechecked_t {};
inline constexpr prechecked_t prechecked{};

/// Which key head a value head reads when there are fewer key heads (H = n·Hk).
enum class heads {
  consecutive,  ///< h div (H / Hk): neighbours share
  tiled,        ///< h mod Hk
};

/// A list of integers kept by the caller, int32 or int64: offsets of packed sequences (cu_seqlens: sequence s has the
/// tokens [at(s), at(s + 1)) of a batch of one), or lengths.
class integers {
 public:
  constexpr integers() noexcept = default;
  constexpr integers(std::span<const std::int32_t> list) noexcept
      : narrow_(list.data()), size_(list.size()), present_(true) {}
  constexpr integers(std::span<const std::int64_t> list) noexcept
      : wide_(list.data()), size_(list.size()), present_(true) {}
  template <std::ranges::contiguous_range Range>
  requires std::same_as<std::ranges::range_value_t<Range>, std::int32_t>
  constexpr integers(const Range& range) noexcept : integers(std::span<const std::int32_t>(range)) {}
  template <std::ranges::contiguous_range Range>
  requires std::same_as<std::ranges::range_value_t<Range>, std::int64_t>
  constexpr integers(const Range& range) noexcept : integers(std::span<const std::int64_t>(range)) {}

  constexpr bool present() const noexcept { return present_; }
  constexpr index_t size() const noexcept { return static_cast<index_t>(size_); }
  constexpr index_t at(index_t i) const noexcept {
    return narrow_ != nullptr ? static_cast<index_t>(narrow_[i]) : static_cast<index_t>(wide_[i]);
  }

 private:
  const std::int32_t* narrow_ = nullptr;
  const std::int64_t* wide_ = nullptr;
  std::size_t size_ = 0;
  bool present_ = false;
};

/// Where ε stands in the quotient of normalised linear attention; z = Σ φ(k).
enum class eps_placement {
  sum,         ///< φ(q)·S / (φ(q)·z + ε)                 fast-transformers; the default
  scaled_sum,  ///< s φ(q)·S / (s φ(q)·z + ε), s = scale   flash-linear-attention
  each_key,    ///< φ(q)·S / (φ(q)·(z + ε))               performer, causal
  none,        ///< φ(q)·S / (φ(q)·z)                     performer, non-causal
};

}  // namespace ogive

// L5: what an operator tells the diagonal engine: its sizes, how its operands are made, and the hooks between its
// arguments and the engine's panels.
//
//   h_t = a_t ⊙ h_{t-1} + b_t,   y_t = Re ⟨c_t, h_t⟩,   h ∈ R^{D×N} or C^{D×N}
//
// Lanes are channels. Operands are `factored` where a_t = exp(δ_t A), b_t = x_t B_t and c_t = C_t with δ, x per
// channel and B, C shared by the channels of a block: then neither a nor b is ever stored. They are `direct` where N =
// 1, y = h and the operator hands its tensors to a sweep that reads and writes them where they lie. Anything else is
// `expanded`: the operator's hook writes a, b and c of a few tokens into panels.
#pragma once

#include <ogive/core/check.hpp>
#include <ogive/engine/tiles.hpp>
#include <ogive/engine/time_segments.hpp>

#include <complex>
#include <concepts>
#include <type_traits>

namespace ogive {
inline namespace OGIVE_ABI {

namespace detail {

template <class Number>
inline constexpr bool is_complex = requires(Number z) {
  z.imag();
};

/// The real type of a number.
template <class Number>
using real_of = typename std::conditional_t<is_complex<Number>, Number, std::complex<Number>>::value_type;

}  // namespace detail

/// The sizes of one call.
struct diagonal_extents {
  index_t batch = 0;
  index_t length = 0;
  index_t channels = 0;
  index_t states = 0;
};

/// Which part of the sequence a hook fills or drains: `count` tokens of batch row `batch` from `token` on, in
/// `channels` channels from `channel` on. Tokens from `live` on (counted like `count`) are padding: nothing of them
/// but c may reach a panel. `position` is the place of the first token in its own sequence, `first` whether the tile is
/// the first of its task.
struct diagonal_tile {
  index_t batch = 0;
  index_t token = 0;
  index_t count = 0;
  index_t live = 0;
  index_t position = 0;
  index_t channel = 0;
  index_t channels = 0;
  bool first = true;
};

namespace detail {

/// The part of a tensor [B, L, D] that the first `count` tokens of a tile cover.
template <class X>
view<X, 2> tile_of(const view<X, 3>& x, const diagonal_tile& at, index_t count) noexcept {
  return {x.pointer(at.batch, at.token, at.channel), {count, at.channels}, {x.stride(1), x.stride(2)}};
}

/// Whether the channels of all these tensors [B, L, D] are neighbours, absent ones aside.
template <class... X>
constexpr bool in_rows(const view<X, 3>&... x) noexcept {
  return ((!x.present() || x.stride(2) == 1) && ...);
}

}  // namespace detail

/// The panels of a task. Rows are `row` channels wide; `planes` is 2 where numbers are complex, real parts first. What
/// a hook leaves in c or `own` stays for the later tiles of its task, which are no longer than the first.
template <class Acc>
struct diagonal_panels {
  bool factored;
  index_t row;
  index_t states;
  index_t planes;
  Acc* delta;  ///< [tokens, row]: δ, 0 for padding
  Acc* x;      ///< [tokens, row], 0 for padding
  Acc* y;      ///< [tokens, row]
  Acc* B;      ///< [tokens, shared_row]: 0 for padding
  Acc* C;      ///< [tokens, shared_row]
  index_t shared_row;
  const Acc* A;  ///< [states, planes, row]
  Acc* a;        ///< [tokens, states, planes, row], expanded operands: 1 for padding
  Acc* b;        ///< likewise, 0 for padding
  Acc* c;        ///< likewise
  Acc* own;      ///< [states, planes, row], the operator's own
};

/// The rows of the next tile in the tensors that it reads and writes: rows of tokens are far apart in memory, often a
/// page each, where no hardware prefetcher follows. The sweep asks for a cache line of each per token; a burst of
/// requests would fill the line buffers and stall.
struct diagonal_ahead {
  static constexpr int streams = 4;
  const char* row[streams] = {};
  index_t step[streams] = {};     ///< bytes from token to token
  index_t element[streams] = {};  ///< bytes from channel to channel

  /// The tensor x [B, L, D], `at` being this tile. Left out where channels are no neighbours or no tile follows.
  template <class X>
  void follow(int stream, const view<X, 3>& x, const diagonal_tile& at) noexcept {
    if (!x.present() || x.stride(2) != 1 || at.token + at.count >= x.extent(1)) return;
    row[stream] = reinterpret_cast<const char*>(x.pointer(at.batch, at.token + at.count, at.channel));
    step[stream] = x.stride(1) * static_cast<index_t>(sizeof(X));
    element[stream] = static_cast<index_t>(sizeof(X));
  }
};

/// The state of a sweep over a tile, [row] each; of what is `carried` only.
template <class Acc>
struct direct_state {
  detail::carried what;
  Acc* h;
  Acc* alone;  ///< the state that the segment leaves of one of zeros
  Acc* decay;  ///< the product of its decays
};

/// The hooks of an operator that is bound to its output.
template <class Acc>
struct diagonal_hooks {
  const void* bound;
  void (*load)(const void* bound, const diagonal_tile& at, const diagonal_panels<Acc>& to) noexcept;
  diagonal_ahead (*ahead)(const void* bound, const diagonal_tile& at) noexcept;
  void (*expand)(const void* bound, const diagonal_tile& at, const diagonal_panels<Acc>& to) noexcept;
  void (*store)(const void* bound, const diagonal_tile& at, const diagonal_panels<Acc>& from) noexcept;
  void (*sweep)(const void* bound, const diagonal_tile& at, const diagonal_panels<Acc>& panels,
                const direct_state<Acc>& s) noexcept;  ///< of direct operands, all by itself
};

/// An operator of the diagonal engine: an aggregate of views with its letters, and below them
/// - `scalar` (the tensors' type), `number` (of A and the state: real or complex), `state_of<S>`, `default_state`,
///   `name`;
/// - `extents()`, `offsets`, `lengths`, `rates()` (A, [D, N]), `check_fields(checker&)`,
///   `check_written(checker&, name, view)`, which keeps a written view apart from the inputs;
/// - `shared_run()`: from every multiple of it on so many channels share B and C, 0 where operands are not factored;
/// - the members `load(at, panels)` (δ and x, and B and C where factored), `expand(at, panels)` (a, b, c),
///   `store(at, panels, y)`, for both accumulators, and `ahead(at, y)`. One whose operands are direct has in their
///   place `swept_in_place(tensors...)`, whether these and its own have neighbouring channels, and
///   `sweep(at, panels, state, y)`, which calls the engine's.
/// One with gradients has the types `gradient`, which mirrors its fields, and `default_state_gradient`, and
/// - `check_gradients(checker&, d)`, and `for_gradients(d, f)` that calls f(name, gradient) for all of them;
/// - where A, B and C are among its fields, `group_size(B or C)`: neighbouring channels that share it;
/// - `gradient_reads_output(d)`: whether y is needed;
/// - the adjoints of the hooks: `cotangent(at, panels, adjoints, d_y)` before a tile, `contract(at, panels, adjoints)`
///   of `expand`, `store_gradients(at, panels, adjoints, d_y, d, accumulate)` of `load` and `store`, and, when all
///   tokens are done, `finish_gradients(at, panels, adjoints, d, accumulate)`; of direct operands there is
///   `adjoint(at, panels, adjoints, state, d_y, d)` instead.
template <class Op>
concept diagonal_operator = requires(const Op& op) {
  typename Op::scalar;
  typename Op::number;
  typename Op::default_state;
  { op.extents() } -> std::same_as<diagonal_extents>;
  { op.shared_run() } -> std::same_as<index_t>;
};

namespace detail {

/// Operators whose operands are direct.
template <class Op>
concept has_direct_operands = requires(const Op& op) {
  op.swept_in_place();
};

/// Operators that have the engine's own operands as fields, whose gradients the engine then sums.
template <class Op>
concept has_shared_operands = requires(const Op& op) {
  op.A, op.B, op.C;
};

}  // namespace detail

}  // namespace OGIVE_ABI
}  // namespace ogive

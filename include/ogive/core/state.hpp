// L1: states in and out: pools with slots, in place or slot to slot, K-first or V-first.
#pragma once

#include <ogive/core/accum.hpp>
#include <ogive/core/options.hpp>
#include <ogive/core/tensor.hpp>

namespace ogive {

/// The pair {initial, final} of a matrix state S ∈ R^{K×V}. Each is a pool [slots, H, K, V] with an optional slot per
/// sequence: no slots means that sequence s uses slot s; slot −1 starts at zero, or discards. Both may be the same
/// memory: then nothing is copied. Either may be absent: start at zero; not wanted. The storage S is independent of
/// the tensors' type; with S = double the sweep adds in double. A V-first pool is a permuted view (`from_v_first`).
///
/// States on the way are kept too, each straight in a slot of its own (−1: not wanted), which no other list of the call
/// names, none for padding:
/// - `snapshots`: the state after each token, in the slot that snapshot_slots names, [B, L] ([1, L] packed), so that
///   speculated tokens can be taken back.
/// - `boundaries`: the state after n tokens of a whole sequence where n is a multiple of `interval`. `position` tokens
///   (per sequence, 0 if absent) came before this call. The i-th boundary that sequence s reaches in it goes into the
///   slot boundary_slots(s, i), [sequences, at least the most that one reaches]. Chunks end at boundaries, wanted or
///   not: a run that starts from one, with its `interval` and `position`, has the bits of a run that came through it,
///   with form and chunk given.
template <storage S>
struct state {
  using storage_type = S;
  view<const S, 4> initial{};
  view<S, 4> final{};
  view<const std::int32_t, 1> initial_slots{};
  view<const std::int32_t, 1> final_slots{};
  view<S, 4> snapshots{};
  view<const std::int32_t, 2> snapshot_slots{};
  view<S, 4> boundaries{};
  view<const std::int32_t, 2> boundary_slots{};
  index_t interval = 0;
  integers position{};
};

/// A matrix state with the normaliser z ∈ R^K of linear attention, pools [slots, H, K].
template <storage S>
struct linear_attention_state {
  using storage_type = S;
  view<const S, 4> initial{};
  view<S, 4> final{};
  view<const S, 3> z_initial{};
  view<S, 3> z_final{};
  view<const std::int32_t, 1> initial_slots{};
  view<const std::int32_t, 1> final_slots{};
  view<S, 4> snapshots{};
  view<S, 3> z_snapshots{};
  view<const std::int32_t, 2> snapshot_slots{};
  view<S, 4> boundaries{};
  view<S, 3> z_boundaries{};
  view<const std::int32_t, 2> boundary_slots{};
  index_t interval = 0;
  integers position{};
};

/// The state h of the diagonal engine, pools [slots, D, N]; S may be complex.
template <class S>
struct diagonal_state {
  using storage_type = S;
  view<const S, 3> initial{};
  view<S, 3> final{};
  view<const std::int32_t, 1> initial_slots{};
  view<const std::int32_t, 1> final_slots{};
};

/// The inputs that a causal convolution reaches back to, pools [slots, D, Lk − 1], the newest last.
template <storage S>
struct history_state {
  using storage_type = S;
  view<const S, 3> initial{};
  view<S, 3> final{};
  view<const std::int32_t, 1> initial_slots{};
  view<const std::int32_t, 1> final_slots{};
};

/// A state h that all channels share, pools [slots, N]; S may be complex.
template <class S>
struct vector_state {
  using storage_type = S;
  view<const S, 2> initial{};
  view<S, 2> final{};
  view<const std::int32_t, 1> initial_slots{};
  view<const std::int32_t, 1> final_slots{};
};

/// For `backward`: the cotangent of the final state, read, and the gradient of the initial one, written, each with one
/// entry per sequence, [sequences, H, K, V]. Either may be absent: zero; not wanted.
template <storage S>
struct state_gradient {
  using storage_type = S;
  view<const S, 4> final{};
  view<S, 4> initial{};
};

/// The same with the normaliser's, [sequences, H, K].
template <storage S>
struct linear_attention_state_gradient {
  using storage_type = S;
  view<const S, 4> final{};
  view<S, 4> initial{};
  view<const S, 3> z_final{};
  view<S, 3> z_initial{};
};

/// The same of the diagonal engine, [sequences, D, N].
template <class S>
struct diagonal_state_gradient {
  using storage_type = S;
  view<const S, 3> final{};
  view<S, 3> initial{};
};

/// The same of a state that all channels share, [sequences, N].
template <class S>
struct vector_state_gradient {
  using storage_type = S;
  view<const S, 2> final{};
  view<S, 2> initial{};
};

/// The same of a history, [sequences, D, Lk − 1].
template <storage S>
struct history_state_gradient {
  using storage_type = S;
  view<const S, 3> final{};
  view<S, 3> initial{};
};

/// A zeroed pool [slots, H, K, V] whose rows are padded where V·sizeof(S) is a multiple of 512 bytes: rows that far
/// apart fall on too few sets of the first-level cache. Aligned to 64 bytes.
template <storage S>
tensor<S, 4> make_state(index_t slots, index_t heads, index_t key_dim, index_t value_dim) {
  constexpr index_t line = 64 / static_cast<index_t>(sizeof(S));
  const index_t row = (value_dim + line - 1) / line * line + ((value_dim % (8 * line)) == 0 ? line : 0);
  return tensor<S, 4>({slots, heads, key_dim, value_dim}, {heads * key_dim * row, key_dim * row, row, 1}, S{});
}

}  // namespace ogive

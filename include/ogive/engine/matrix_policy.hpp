// L5: what an operator tells the matrix engine: three policies, its sizes, and the hooks between its arguments and
// the engine's panels.
//
//   S_t = D_t S_{t-1} + k_t v_tᵀ,   o_t = S_tᵀ q_t,   S ∈ R^{K×V}
#pragma once

#include <ogive/core/options.hpp>
#include <ogive/engine/rows.hpp>

#include <concepts>

namespace ogive {
inline namespace OGIVE_ABI {

/// D_t: the identity, or exp(g_t) for a log decay g_t per head and token.
enum class decay { none, scalar };

/// What is added to the decayed state: k_t v_tᵀ.
enum class write { additive };

/// Which state a token reads: the one after its own write.
enum class read { after };

/// The sizes of one call. Value heads own the states; several may share a key head and a query head, or several query
/// heads may read one state.
struct matrix_extents {
  index_t batch = 0;
  index_t length = 0;
  index_t query_heads = 0;
  index_t key_heads = 0;
  index_t heads = 0;
  index_t key_dim = 0;
  index_t value_dim = 0;
  index_t input_dim = 0;  // elements of a row before the operator's own map: loads of q and k get room for a chunk
};

/// Panels are rows of `stride` elements, one per token. A load fills `at.count` rows, zeros where a token is padding
/// or masked, and may work in `room`, a panel for rows before a map; `load_v` also gives the log decays. `store` drains
/// o; `denominator` holds φ(q)·z per token when the operator asked for a normaliser, else it is null.
template <class Acc>
struct matrix_hooks {
  const void* op;
  void (*load_q)(const void* op, const tokens& at, Acc* q, index_t stride, Acc* room) noexcept;
  void (*load_k)(const void* op, const tokens& at, Acc* k, index_t stride, Acc* room) noexcept;
  void (*load_v)(const void* op, const tokens& at, Acc* v, index_t stride, Acc* log_decay, Acc* room) noexcept;
  detail::rows_ahead (*values_ahead)(const void* op, const tokens& at) noexcept;
  detail::rows_ahead (*outputs_ahead)(const void* op, const tokens& at) noexcept;
  void (*store)(const void* op, const tokens& at, Acc* o, index_t stride, const Acc* denominator, Acc* room) noexcept;
};

/// An operator of the matrix engine: an aggregate of views with its letters, and below them
/// - `scalar` (the tensors' type), `default_state`, `name`, the policies `decays`, `writes`, `reads`;
/// - `extents()`, `sequences()`, `check_fields(checker&)`;
/// - load_q, load_k, load_v and store for both accumulators and value_rows(), members that a binding turns into hooks.
template <class Op>
concept matrix_operator = requires(const Op& op) {
  typename Op::scalar;
  typename Op::default_state;
  { Op::decays } -> std::convertible_to<decay>;
  { Op::writes } -> std::convertible_to<write>;
  { Op::reads } -> std::convertible_to<read>;
  { op.extents() } -> std::same_as<matrix_extents>;
};

}  // namespace OGIVE_ABI
}  // namespace ogive

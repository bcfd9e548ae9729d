// L5: what an operator tells the matrix engine: three policies, its sizes, and the hooks between its arguments and
// the engine's panels.
//
//   S_t = D_t S_{t-1} + W_t,   o_t = S_tᵀ q_t  or  S_{t-1}ᵀ q_t + (q_t·(u ⊙ k_t)) v_t,   S ∈ R^{K×V}
#pragma once

#include <ogive/core/check.hpp>
#include <ogive/engine/rows.hpp>

#include <algorithm>
#include <concepts>

namespace ogive {
inline namespace OGIVE_ABI {

/// D_t: the identity, exp(g_t) for a log decay g_t per head and token, or Diag(exp(g_t)) for one per key channel.
enum class decay { none, scalar, per_key };

/// W_t, what is added to the decayed state.
enum class write {
  additive,  ///< k_t v_tᵀ
  delta,     ///< k_t u_tᵀ, u_t = β_t ⊙ (v_t − (D_t S_{t-1})ᵀ k_t): what k_t read is replaced
  low_rank,  ///< k_t v_tᵀ + b_t w_tᵀ, w_t = S_{t-1}ᵀ a_t: removal along a_t, formed before the decay
};

/// Which state a token reads: the one after its own write, or the one before it, plus a bonus for its own write. A
/// sweep without outputs reads none, whatever the operator does.
enum class read { after, before, none };

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

/// Whose rows of the next chunk to ask for early.
enum class operand { query, key, value, output };

/// Rows that lie in memory as a panel would hold them. No data: they do not.
template <class Element>
struct lying_rows {
  Element* data = nullptr;
  index_t stride = 0;

  Element* operator[](index_t row) const noexcept { return data + row * stride; }
};

/// Panels are rows of `stride` elements, one per token. A load fills `at.count` rows, zeros where a token is padding
/// or masked, and may work in `room`, a panel for rows before a map; `load_v` also gives the scalar log decays. `store`
/// drains o; `denominator` holds φ(q)·z per token when the operator asked for a normaliser, else it is null. The last
/// four are there for the policies that want them: log decays per key channel (of a value head), β (of a value head;
/// one per token, or a row of V), the rows a and b (of a key head), and the bonus u (a row of K, of a value head).
/// `lying`, which an operator may leave out, says which rows of q, k and v need no load, `lying_output` which of o no
/// store; of v `load_v` is then asked for the log decays alone, without a panel.
template <class Acc>
struct matrix_hooks {
  const void* op;
  void (*load_q)(const void* op, const tokens& at, Acc* q, index_t stride, Acc* room) noexcept;
  void (*load_k)(const void* op, const tokens& at, Acc* k, index_t stride, Acc* room) noexcept;
  void (*load_v)(const void* op, const tokens& at, Acc* v, index_t stride, Acc* log_decay, Acc* room) noexcept;
  void (*ahead)(const void* op, operand which, const tokens& at, detail::lines_ahead& lines) noexcept;
  void (*store)(const void* op, const tokens& at, Acc* o, index_t stride, const Acc* denominator, Acc* room) noexcept;
  void (*load_gates)(const void* op, const tokens& at, Acc* g, index_t stride) noexcept = nullptr;
  void (*load_beta)(const void* op, const tokens& at, Acc* beta, index_t stride) noexcept = nullptr;
  void (*load_removal)(const void* op, const tokens& at, Acc* a, Acc* b, index_t stride) noexcept = nullptr;
  bool (*load_bonus)(const void* op, index_t head, Acc* u) noexcept = nullptr;
  lying_rows<const Acc> (*lying)(const void* op, operand which, const tokens& at) noexcept = nullptr;
  lying_rows<Acc> (*lying_output)(const void* op, const tokens& at) noexcept = nullptr;
  bool beta_per_value = false;
};

/// Gradients that somebody wants: what depends on rows of q, on those of k, of removals and of u, and on those of v.
struct wanted_rows {
  bool queries = true;
  bool keys = true;
  bool values = true;
};

/// The adjoints of the hooks: panels of gradients go to the caller's gradients, where these are wanted. `store` turns
/// the cotangent of o into d_o, and into the gradient of the denominator; where `outputs` says so it is given what the
/// forward stored. For load_q rows of padding are live where their output is asked for. load_v is also given d_o, for
/// what a token reads of its own value beside the state. load_gates is given the gradient of k too, for operators whose
/// k is made of the gates. What is a sum over tokens and sequences is added to.
template <class Acc>
struct matrix_adjoints {
  const void* op;
  bool outputs;
  bool decays;  // wanted
  wanted_rows rows;
  void (*ahead)(const void* op, const tokens& at, detail::lines_ahead& lines) noexcept;  // of the cotangents of o
  void (*store)(const void* op, const tokens& at, const Acc* o, const Acc* denominator, Acc* d_o, index_t stride,
                Acc* d_denominator, Acc* room) noexcept;
  void (*load_q)(const void* op, const tokens& at, Acc* d_q, index_t stride, Acc* room) noexcept;
  void (*load_k)(const void* op, const tokens& at, Acc* d_k, index_t stride, Acc* room) noexcept;
  void (*load_v)(const void* op, const tokens& at, Acc* d_v, const Acc* d_o, index_t stride, const Acc* d_log_decay,
                 Acc* room) noexcept;
  void (*load_gates)(const void* op, const tokens& at, Acc* d_g, const Acc* d_k, index_t stride,
                     Acc* room) noexcept = nullptr;
  void (*load_beta)(const void* op, const tokens& at, Acc* d_beta, index_t stride, Acc* room) noexcept = nullptr;
  void (*load_removal)(const void* op, const tokens& at, Acc* d_a, Acc* d_b, index_t stride,
                       Acc* room) noexcept = nullptr;
  void (*load_bonus)(const void* op, index_t head, const Acc* d_u) noexcept = nullptr;
};

/// An operator of the matrix engine: an aggregate of views with its letters, and below them
/// - `scalar` (the tensors' type), `default_state`, `name`, the policies `decays`, `writes`, `reads`;
/// - `extents()`, `sequences()`, `check_fields(checker&)`;
/// - load_q, load_k, load_v and store for both accumulators, and ahead(which, at, lines), members that a binding turns
/// into hooks,
///   and load_gates, load_beta, load_removal and load_bonus where the policies want them;
/// - for backward the types `gradient` and `default_state_gradient`, and for each hook its adjoint, adjoint_q and so
/// on.
template <class Op>
concept matrix_operator = requires(const Op& op) {
  typename Op::scalar;
  typename Op::default_state;
  { Op::decays } -> std::convertible_to<decay>;
  { Op::writes } -> std::convertible_to<write>;
  { Op::reads } -> std::convertible_to<read>;
  { op.extents() } -> std::same_as<matrix_extents>;
};

namespace detail {

/// Rows of a view where they are whole vectors of the accumulation type, one element after the other.
template <class Acc, class T>
lying_rows<std::conditional_t<std::is_const_v<T>, const Acc, Acc>> rows_if_lying(const view<T, 4>& x,
                                                                                 const tokens& at) noexcept {
  if constexpr (std::is_same_v<std::remove_const_t<T>, Acc>) {
    if (x.stride(3) == 1 && x.extent(3) % simd::width<Acc> == 0) {
      const view<T, 2> rows = rows_of(x, at, at.count);
      return {rows.data(), rows.stride(0)};
    }
  }
  return {};
}

/// The rules of shared heads: Hk divides H, and Hq divides H or H divides Hq.
inline void check_heads(core::checker& ask, index_t Hq, index_t Hk, index_t H) noexcept {
  ask.divides("Hk (heads of k)", Hk, "H (heads of v)", H);
  if (Hq > H) {
    ask.divides("H (heads of v)", H, "Hq (heads of q)", Hq);
    return;
  }
  ask.divides("Hq (heads of q)", Hq, "H (heads of v)", H);
  ask.divides("the smaller of Hq and Hk", std::min(Hq, Hk), "the larger", std::max(Hq, Hk));
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

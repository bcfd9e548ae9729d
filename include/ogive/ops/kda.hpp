// Kimi Delta Attention (KDA): the gated delta rule with a gate for every key channel.
//
//   S' = Diag(exp(g_t)) S_{t-1}
//   S_t = S' + k_t u_tᵀ,   u_t = β_t (v_t − S'ᵀ k_t),   o_t = s S_tᵀ q_t           S ∈ R^{K×V}
//
// Kimi Team, Kimi Linear, arXiv:2510.26692.
#pragma once

#include <ogive/engine/matrix_backward.hpp>
#include <ogive/engine/operand_views.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

/// q [B, L, Hq, K], k [B, L, Hk, K], v [B, L, H, V], g [B, L, H, K], beta [B, L, H]; o [B, L, max(H, Hq), V]. Hk
/// divides H, and Hq divides H or H divides Hq. State [slots, H, K, V].
template <storage T>
struct kda {
  using scalar = T;
  using accum = accum_t<T>;

  view<const T, 4> q{}, k{}, v{};
  view<const accum, 4> g{};          ///< natural log of the decay
  view<const accum, 3> beta{};       ///< β, in [0, 2] in models
  std::optional<accum> scale{};      ///< s, 1/√K by default
  std::optional<accum> qk_l2norm{};  ///< ε: q and k are first divided by √(Σx² + ε)
  integers lengths{};                ///< per sequence; tokens from there on neither decay nor write
  integers offsets{};                ///< packed sequences, a state each
  heads head_map = heads::consecutive;

  struct gradient {
    view<T, 4> q{}, k{}, v{};
    view<accum, 4> g{};
    view<accum, 3> beta{};
  };

  static constexpr const char* name = "kda";
  template <storage S>
  using state_of = state<S>;
  using default_state = state<accum>;
  using default_state_gradient = state_gradient<accum>;

  matrix_operands<T, decay::per_key, write::delta> operands() const noexcept {
    return {.name = name,
            .q = q,
            .k = k,
            .v = v,
            .scale = detail::scale_or_root(scale, q.extent(3)),
            .l2norm = qk_l2norm,
            .gates = g,
            .beta = beta,
            .lengths = lengths,
            .offsets = offsets,
            .head_map = head_map};
  }
  operand_gradients<T> gradients(const gradient& d) const noexcept {
    return {.q = d.q, .k = d.k, .v = d.v, .gates = d.g, .beta = d.beta};
  }
};

}  // namespace OGIVE_ABI
}  // namespace ogive

// Gated linear attention: a gate for every key channel.
//
//   S_t = Diag(exp(g_t)) S_{t-1} + k_t v_tᵀ,   o_t = s S_tᵀ q_t   S ∈ R^{K×V}
//
// As one matrix, o_i = s Σ_{j≤i} (Σ_κ q_iκ k_jκ exp(g_{j+1,κ} + … + g_{i,κ})) v_j.
// Yang et al., Gated Linear Attention Transformers with Hardware-Efficient Training, arXiv:2312.06635.
#pragma once

#include <ogive/engine/matrix_backward.hpp>
#include <ogive/engine/operand_views.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

/// q [B, L, Hq, K], k [B, L, Hk, K], v [B, L, H, V], g [B, L, H, K]; o [B, L, max(H, Hq), V]. Hk divides H, and Hq
/// divides H or H divides Hq. State [slots, H, K, V].
template <storage T>
struct gla {
  using scalar = T;
  using accum = accum_t<T>;

  view<const T, 4> q{}, k{}, v{};
  view<const accum, 4> g{};          ///< natural log of the decay
  std::optional<accum> scale{};      ///< s, 1/√K by default
  std::optional<accum> qk_l2norm{};  ///< ε: q and k are first divided by √(Σx² + ε)
  integers lengths{};                ///< per sequence; tokens from there on neither decay nor write
  integers offsets{};                ///< packed sequences, a state each
  heads head_map = heads::consecutive;

  struct gradient {
    view<T, 4> q{}, k{}, v{};
    view<accum, 4> g{};
  };

  static constexpr const char* name = "gla";
  template <storage S>
  using state_of = state<S>;
  using default_state = state<accum>;
  using default_state_gradient = state_gradient<accum>;

  matrix_operands<T, decay::per_key> operands() const noexcept {
    return {.name = name,
            .q = q,
            .k = k,
            .v = v,
            .scale = detail::scale_or_root(scale, q.extent(3)),
            .l2norm = qk_l2norm,
            .gates = g,
            .lengths = lengths,
            .offsets = offsets,
            .head_map = head_map};
  }
  operand_gradients<T> gradients(const gradient& d) const noexcept {
    return {.q = d.q, .k = d.k, .v = d.v, .gates = d.g};
  }
};

}  // namespace OGIVE_ABI
}  // namespace ogive

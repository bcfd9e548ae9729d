// Gated linear attention with one gate per head and token; also SSD in attention's letters.
//
//   S_t = exp(g_t) S_{t-1} + k_t v_tᵀ,   o_t = s S_tᵀ q_t        S ∈ R^{K×V}
//
// As one matrix, o = s ((Q Kᵀ) ∘ D) V with D_ij = exp(g_{j+1} + … + g_i), j ≤ i.
// Yang et al., arXiv:2312.06635 (section 4).
#pragma once

#include <ogive/engine/matrix_backward.hpp>
#include <ogive/engine/operand_views.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

/// q [B, L, Hq, K], k [B, L, Hk, K], v [B, L, H, V], g [B, L, H]; o [B, L, max(H, Hq), V]. Hk divides H, and Hq divides
/// H or H divides Hq. State [slots, H, K, V].
template <storage T>
struct simple_gla {
  using scalar = T;
  using accum = accum_t<T>;

  view<const T, 4> q{}, k{}, v{};
  view<const accum, 3> g{};          ///< natural log of the decay
  std::optional<accum> scale{};      ///< s, 1/√K by default
  std::optional<accum> qk_l2norm{};  ///< ε: q and k are first divided by √(Σx² + ε)
  integers lengths{};                ///< per sequence; tokens from there on neither decay nor write
  integers offsets{};                ///< packed sequences, a state each
  heads head_map = heads::consecutive;

  struct gradient {
    view<T, 4> q{}, k{}, v{};
    view<accum, 3> g{};
  };

  static constexpr const char* name = "simple_gla";
  template <storage S>
  using state_of = state<S>;
  using default_state = state<accum>;
  using default_state_gradient = state_gradient<accum>;

  matrix_operands<T, decay::scalar> operands() const noexcept {
    return {.name = name,
            .q = q,
            .k = k,
            .v = v,
            .scale = detail::scale_or_root(scale, q.extent(3)),
            .l2norm = qk_l2norm,
            .g = g,
            .lengths = lengths,
            .offsets = offsets,
            .head_map = head_map};
  }
  operand_gradients<T> gradients(const gradient& d) const noexcept { return {.q = d.q, .k = d.k, .v = d.v, .g = d.g}; }
};

}  // namespace OGIVE_ABI
}  // namespace ogive

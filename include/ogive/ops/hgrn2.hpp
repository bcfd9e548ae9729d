// HGRN2: the forget gate decays each key channel, and what it leaves free is the key.
//
//   f_t = exp(g_t)
//   S_t = Diag(f_t) S_{t-1} + (1 − f_t) v_tᵀ,   o_t = s S_tᵀ q_t  S ∈ R^{K×V}
//
// Qin et al., HGRN2: Gated Linear RNNs with State Expansion, arXiv:2404.07904. The paper has s = 1.
#pragma once

#include <ogive/engine/matrix_backward.hpp>
#include <ogive/engine/operand_views.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

/// q [B, L, Hq, K], v [B, L, H, V], g [B, L, H, K]; o [B, L, max(H, Hq), V]. Hq divides H or H divides Hq. State
/// [slots, H, K, V].
template <storage T>
struct hgrn2 {
  using scalar = T;
  using accum = accum_t<T>;

  view<const T, 4> q{}, v{};
  view<const accum, 4> g{};          ///< natural log of the forget gate
  std::optional<accum> scale{};      ///< s, 1/√K by default
  std::optional<accum> qk_l2norm{};  ///< ε: q and the key 1 − f are divided by √(Σx² + ε)
  integers lengths{};                ///< per sequence; tokens from there on neither decay nor write
  integers offsets{};                ///< packed sequences, a state each
  heads head_map = heads::consecutive;

  struct gradient {
    view<T, 4> q{}, v{};
    view<accum, 4> g{};
  };

  static constexpr const char* name = "hgrn2";
  template <storage S>
  using state_of = state<S>;
  using default_state = state<accum>;
  using default_state_gradient = state_gradient<accum>;

  matrix_operands<T, decay::per_key> operands() const noexcept {
    return {.name = name,
            .q = q,
            .v = v,
            .scale = detail::scale_or_root(scale, q.extent(3)),
            .l2norm = qk_l2norm,
            .gates = g,
            .free_keys = true,
            .lengths = lengths,
            .offsets = offsets,
            .head_map = head_map};
  }
  operand_gradients<T> gradients(const gradient& d) const noexcept { return {.q = d.q, .v = d.v, .gates = d.g}; }
};

}  // namespace OGIVE_ABI
}  // namespace ogive

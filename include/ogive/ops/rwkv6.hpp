// RWKV-6 (Finch): RWKV-5 with a decay that every token chooses.
//
//   o_t = s (S_{t-1} + (u ⊙ k_t) v_tᵀ)ᵀ r_t
//   S_t = Diag(exp(w_t)) S_{t-1} + k_t v_tᵀ                      S ∈ R^{K×V}
//
// Peng et al., Eagle and Finch, arXiv:2404.05892.
#pragma once

#include <ogive/engine/matrix_backward.hpp>
#include <ogive/engine/operand_views.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

/// r [B, L, Hr, K], k [B, L, Hk, K], v [B, L, H, V], w [B, L, H, K], u [H, K]; o [B, L, max(H, Hr), V]. Hk divides H,
/// and Hr divides H or H divides Hr. State [slots, H, K, V].
template <storage T>
struct rwkv6 {
  using scalar = T;
  using accum = accum_t<T>;

  view<const T, 4> r{}, k{}, v{};
  view<const accum, 4> w{};          ///< natural log of the decay
  view<const accum, 2> u{};          ///< the bonus, no exponential taken; absent: a token does not see its own value
  accum scale = 1;                   ///< s
  std::optional<accum> qk_l2norm{};  ///< ε: r and k are first divided by √(Σx² + ε), for the bonus too
  integers lengths{};                ///< per sequence; tokens from there on neither decay nor write
  integers offsets{};                ///< packed sequences, a state each
  heads head_map = heads::consecutive;

  struct gradient {
    view<T, 4> r{}, k{}, v{};
    view<accum, 4> w{};
    view<accum, 2> u{};
  };

  static constexpr const char* name = "rwkv6";
  template <storage S>
  using state_of = state<S>;
  using default_state = state<accum>;
  using default_state_gradient = state_gradient<accum>;

  matrix_operands<T, decay::per_key, write::additive, read::before> operands() const noexcept {
    return {.name = name,
            .q = r,
            .k = k,
            .v = v,
            .scale = scale,
            .l2norm = qk_l2norm,
            .gates = w,
            .u = u,
            .lengths = lengths,
            .offsets = offsets,
            .head_map = head_map,
            .names = {.q = "r", .g = "w"}};
  }
  operand_gradients<T> gradients(const gradient& d) const noexcept {
    return {.q = d.r, .k = d.k, .v = d.v, .gates = d.w, .u = d.u};
  }
};

}  // namespace OGIVE_ABI
}  // namespace ogive

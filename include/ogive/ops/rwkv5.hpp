// RWKV-5 (Eagle): a decay per key channel that never changes; a token reads the state before its own write, and its own
// value through the bonus u.
//
//   o_t = s (S_{t-1} + (u ⊙ k_t) v_tᵀ)ᵀ r_t
//   S_t = Diag(exp(w)) S_{t-1} + k_t v_tᵀ                        S ∈ R^{K×V}
//
// Peng et al., Eagle and Finch, arXiv:2404.05892.
#pragma once

#include <ogive/engine/matrix_backward.hpp>
#include <ogive/engine/operand_views.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

/// r [B, L, Hr, K], k [B, L, Hk, K], v [B, L, H, V], w and u [H, K]; o [B, L, max(H, Hr), V]. Hk divides H, and Hr
/// divides H or H divides Hr. State [slots, H, K, V].
template <storage T>
struct rwkv5 {
  using scalar = T;
  using accum = accum_t<T>;

  view<const T, 4> r{}, k{}, v{};
  view<const accum, 2> w{};          ///< natural log of the decay: −exp of what checkpoints hold
  view<const accum, 2> u{};          ///< the bonus, no exponential taken; absent: a token does not see its own value
  accum scale = 1;                   ///< s
  std::optional<accum> qk_l2norm{};  ///< ε: r and k are first divided by √(Σx² + ε), for the bonus too
  integers lengths{};                ///< per sequence; tokens from there on neither decay nor write
  integers offsets{};                ///< packed sequences, a state each
  heads head_map = heads::consecutive;

  struct gradient {
    view<T, 4> r{}, k{}, v{};
    view<accum, 2> w{}, u{};
  };

  static constexpr const char* name = "rwkv5";
  template <storage S>
  using state_of = state<S>;
  using default_state = state<accum>;
  using default_state_gradient = state_gradient<accum>;

  void check_own(core::checker& ask) const noexcept {
    ask.given("r", r).given("v", v).given("w", w);
    ask.extents("w", w, {v.extent(2), r.extent(3)}, "[H, K], H as v, K as r");
  }

  matrix_operands<T, decay::per_key, write::additive, read::before> operands() const noexcept {
    return {.name = name,
            .q = r,
            .k = k,
            .v = v,
            .scale = scale,
            .l2norm = qk_l2norm,
            .gates = detail::over_time(w, r.extent(0), r.extent(1)),
            .over_time = true,
            .u = u,
            .lengths = lengths,
            .offsets = offsets,
            .head_map = head_map,
            .names = {.q = "r", .g = "w"}};
  }
  operand_gradients<T> gradients(const gradient& d) const noexcept {
    return {.q = d.r,
            .k = d.k,
            .v = d.v,
            .gates = detail::over_time(d.w, r.extent(0), r.extent(1)),
            .u = d.u,
            .over_time = true};
  }
};

}  // namespace OGIVE_ABI
}  // namespace ogive

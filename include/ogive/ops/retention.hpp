// Retention, the operator of RetNet, and Lightning attention: a decay per head that never changes.
//
//   S_t = γ_h S_{t-1} + k_t v_tᵀ,   o_t = s S_tᵀ q_t             S ∈ R^{K×V}
//
// As one matrix, o = s ((Q Kᵀ) ∘ D) V with D_ij = γ_h^{i−j}, j ≤ i. RetNet takes γ_h = 1 − 2^{−5−h}, Lightning
// attention γ_h = exp(−slope_h). Sun et al., Retentive Network, arXiv:2307.08621. Qin et al., Lightning Attention-2,
// arXiv:2401.04658.
#pragma once

#include <ogive/engine/matrix_backward.hpp>
#include <ogive/engine/operand_views.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

/// q [B, L, Hq, K], k [B, L, Hk, K], v [B, L, H, V], log_gamma [H]; o [B, L, max(H, Hq), V]. Hk divides H, and Hq
/// divides H or H divides Hq. State [slots, H, K, V]. Rotations of q and k (xPos) and the norm behind it are the
/// caller's.
template <storage T>
struct retention {
  using scalar = T;
  using accum = accum_t<T>;

  view<const T, 4> q{}, k{}, v{};
  view<const accum, 1> log_gamma{};  ///< natural log of γ
  std::optional<accum> scale{};      ///< s, 1/√K by default
  std::optional<accum> qk_l2norm{};  ///< ε: q and k are first divided by √(Σx² + ε)
  integers lengths{};                ///< per sequence; tokens from there on neither decay nor write
  integers offsets{};                ///< packed sequences, a state each
  heads head_map = heads::consecutive;

  struct gradient {
    view<T, 4> q{}, k{}, v{};
    view<accum, 1> log_gamma{};
  };

  static constexpr const char* name = "retention";
  template <storage S>
  using state_of = state<S>;
  using default_state = state<accum>;
  using default_state_gradient = state_gradient<accum>;

  void check_own(core::checker& ask) const noexcept {
    ask.given("v", v).given("log_gamma", log_gamma).extents("log_gamma", log_gamma, {v.extent(2)}, "[H], H as v");
  }

  matrix_operands<T, decay::scalar> operands() const noexcept {
    return {.name = name,
            .q = q,
            .k = k,
            .v = v,
            .scale = detail::scale_or_root(scale, q.extent(3)),
            .l2norm = qk_l2norm,
            .g = detail::over_time(log_gamma, q.extent(0), q.extent(1)),
            .over_time = true,
            .lengths = lengths,
            .offsets = offsets,
            .head_map = head_map,
            .names = {.g = "log_gamma"}};
  }
  operand_gradients<T> gradients(const gradient& d) const noexcept {
    return {
        .q = d.q, .k = d.k, .v = d.v, .g = detail::over_time(d.log_gamma, q.extent(0), q.extent(1)), .over_time = true};
  }
};

/// The same operator under its other name.
template <storage T>
using lightning_attention = retention<T>;

}  // namespace OGIVE_ABI
}  // namespace ogive

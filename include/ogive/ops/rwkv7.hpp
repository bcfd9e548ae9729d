// RWKV-7 (Goose): what the removal key κ holds is taken out at the rate a, channel by channel, while all else decays.
//
//   S_t = Diag(exp(w_t)) S_{t-1} − (κ_t ⊙ a_t) (S_{t-1}ᵀ κ_t)ᵀ + k_t v_tᵀ     S ∈ R^{K×V}
//   o_t = s S_tᵀ r_t
//
// The removal reads the state before the decay. Peng et al., RWKV-7 "Goose", arXiv:2503.14456.
#pragma once

#include <ogive/engine/matrix_backward.hpp>
#include <ogive/engine/operand_views.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

/// r [B, L, Hr, K], w [B, L, H, K], k, kk and a [B, L, Hk, K], v [B, L, H, V]; o [B, L, max(H, Hr), V]. Hk divides H,
/// and Hr divides H or H divides Hr. State [slots, H, K, V].
template <storage T>
struct rwkv7 {
  using scalar = T;
  using accum = accum_t<T>;

  view<const T, 4> r{};
  view<const accum, 4> w{};  ///< natural log of the decay
  view<const T, 4> k{}, v{};
  view<const T, 4> kk{};             ///< κ, of length one in the model
  view<const T, 4> a{};              ///< in (0, 1) in the model
  accum scale = 1;                   ///< s
  std::optional<accum> qk_l2norm{};  ///< ε: r and k are first divided by √(Σx² + ε); κ is not
  integers lengths{};                ///< per sequence; tokens from there on neither decay nor write
  integers offsets{};                ///< packed sequences, a state each
  heads head_map = heads::consecutive;

  struct gradient {
    view<T, 4> r{};
    view<accum, 4> w{};
    view<T, 4> k{}, v{}, kk{}, a{};
  };

  static constexpr const char* name = "rwkv7";
  template <storage S>
  using state_of = state<S>;
  using default_state = state<accum>;
  using default_state_gradient = state_gradient<accum>;

  void check_own(core::checker& ask) const noexcept { ask.given("a", a); }

  matrix_operands<T, decay::per_key, write::low_rank> operands() const noexcept {
    return {.name = name,
            .q = r,
            .k = k,
            .v = v,
            .scale = scale,
            .l2norm = qk_l2norm,
            .gates = w,
            .a = kk,
            .a_factor = -1,
            .b = kk,
            .b_times = a,
            .lengths = lengths,
            .offsets = offsets,
            .head_map = head_map,
            .names = {.q = "r", .g = "w", .a = "kk", .b = "kk", .b_times = "a"}};
  }
  operand_gradients<T> gradients(const gradient& d) const noexcept {
    return {.q = d.r, .k = d.k, .v = d.v, .gates = d.w, .a = d.kk, .b_times = d.a, .one_a_and_b = true};
  }
};

}  // namespace OGIVE_ABI
}  // namespace ogive

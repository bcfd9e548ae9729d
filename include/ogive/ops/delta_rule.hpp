// The delta rule (DeltaNet, fast weights): what a key reads is replaced, not added to.
//
//   u_t = β_t ⊙ (v_t − S_{t-1}ᵀ k_t)
//   S_t = S_{t-1} + k_t u_tᵀ,   o_t = s S_tᵀ q_t                 S ∈ R^{K×V}
//
// With keys of length one β = 1 stores v exactly, and up to β = 2 nothing grows.
// Schlag, Irie, Schmidhuber, Linear Transformers Are Secretly Fast Weight Programmers, arXiv:2102.11174; Yang et al.,
// Parallelizing Linear Transformers with the Delta Rule over Sequence Length, arXiv:2406.06484.
#pragma once

#include <ogive/engine/matrix_backward.hpp>
#include <ogive/engine/operand_views.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

/// q [B, L, Hq, K], k [B, L, Hk, K], v [B, L, H, V], and one of beta [B, L, H], beta_per_value [B, L, H, V]; o
/// [B, L, max(H, Hq), V]. Hk divides H, and Hq divides H or H divides Hq. State [slots, H, K, V].
template <storage T>
struct delta_rule {
  using scalar = T;
  using accum = accum_t<T>;

  view<const T, 4> q{}, k{}, v{};
  view<const accum, 3> beta{};            ///< β, in [0, 2] in models
  view<const accum, 4> beta_per_value{};  ///< β of each value channel
  std::optional<accum> scale{};           ///< s, 1/√K by default
  std::optional<accum> qk_l2norm{};       ///< ε: q and k are first divided by √(Σx² + ε)
  integers lengths{};                     ///< per sequence; tokens from there on do not write
  integers offsets{};                     ///< packed sequences, a state each
  heads head_map = heads::consecutive;

  struct gradient {
    view<T, 4> q{}, k{}, v{};
    view<accum, 3> beta{};
    view<accum, 4> beta_per_value{};
  };

  static constexpr const char* name = "delta_rule";
  template <storage S>
  using state_of = state<S>;
  using default_state = state<accum>;
  using default_state_gradient = state_gradient<accum>;

  void check_own(core::checker& ask) const noexcept {
    if (ask && beta.present() && beta_per_value.present()) {
      ask.refuse("beta", status_code::value) << "and beta_per_value are both given; give one of them";
    }
  }

  matrix_operands<T, decay::none, write::delta> operands() const noexcept {
    return {.name = name,
            .q = q,
            .k = k,
            .v = v,
            .scale = detail::scale_or_root(scale, q.extent(3)),
            .l2norm = qk_l2norm,
            .beta = beta,
            .beta_per_value = beta_per_value,
            .lengths = lengths,
            .offsets = offsets,
            .head_map = head_map};
  }
  operand_gradients<T> gradients(const gradient& d) const noexcept {
    return {.q = d.q, .k = d.k, .v = d.v, .beta = d.beta, .beta_per_value = d.beta_per_value};
  }
};

/// The same operator under its older name.
template <storage T>
using fast_weights = delta_rule<T>;

}  // namespace OGIVE_ABI
}  // namespace ogive

// The generalised delta rule with an identity plus low-rank transition (IPLR).
//
//   S_t = (I + b_t a_tᵀ) S_{t-1} + k_t v_tᵀ,   o_t = s S_tᵀ q_t   S ∈ R^{K×V}
//
// The delta rule is a = −k, b = β k with values β v. Yang et al., Parallelizing Linear Transformers with the Delta Rule
// over Sequence Length, arXiv:2406.06484.
#pragma once

#include <ogive/engine/matrix_backward.hpp>
#include <ogive/engine/operand_views.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

/// q [B, L, Hq, K], k, a and b [B, L, Hk, K], v [B, L, H, V]; o [B, L, max(H, Hq), V]. Hk divides H, and Hq divides H
/// or H divides Hq. State [slots, H, K, V].
template <storage T>
struct iplr {
  using scalar = T;
  using accum = accum_t<T>;

  view<const T, 4> q{}, k{}, v{};
  view<const T, 4> a{}, b{};         ///< what is read, and where it is written; alpha and beta elsewhere
  std::optional<accum> scale{};      ///< s, 1/√K by default
  std::optional<accum> qk_l2norm{};  ///< ε: q and k are first divided by √(Σx² + ε)
  integers lengths{};                ///< per sequence; tokens from there on do not write
  integers offsets{};                ///< packed sequences, a state each
  heads head_map = heads::consecutive;

  struct gradient {
    view<T, 4> q{}, k{}, v{}, a{}, b{};
  };

  static constexpr const char* name = "iplr";
  template <storage S>
  using state_of = state<S>;
  using default_state = state<accum>;
  using default_state_gradient = state_gradient<accum>;

  matrix_operands<T, decay::none, write::low_rank> operands() const noexcept {
    return {.name = name,
            .q = q,
            .k = k,
            .v = v,
            .scale = detail::scale_or_root(scale, q.extent(3)),
            .l2norm = qk_l2norm,
            .a = a,
            .b = b,
            .lengths = lengths,
            .offsets = offsets,
            .head_map = head_map};
  }
  operand_gradients<T> gradients(const gradient& d) const noexcept {
    return {.q = d.q, .k = d.k, .v = d.v, .a = d.a, .b = d.b};
  }
};

}  // namespace OGIVE_ABI
}  // namespace ogive

// Causal linear attention: softmax's exp(q·k) replaced by φ(q)·φ(k), so that the past is a sum of fixed size.
//
//   S_t = S_{t-1} + φ(k_t) v_tᵀ     z_t = z_{t-1} + φ(k_t)         S ∈ R^{K×V}, z ∈ R^K
//   o_t = S_tᵀ φ(q_t) / (φ(q_t)·z_t + ε)                           normalised; the quotient is 0 where its
//                                                                  denominator is 0 or subnormal
//   o_t = s S_tᵀ φ(q_t)                                            unnormalised
//
// Katharopoulos et al., Transformers are RNNs, arXiv:2006.16236. Four rules for ε are in use: see eps_placement.
#pragma once

#include <ogive/engine/feature_attention.hpp>
#include <ogive/maps/polynomial.hpp>

#include <optional>

namespace ogive {
inline namespace OGIVE_ABI {

/// q [B, L, Hq, D], k [B, L, Hk, D], v [B, L, H, V]; o [B, L, max(H, Hq), V]. Hk divides H, and Hq divides H or H
/// divides Hq. State S [slots, H, K, V] and z [slots, H, K], K = features of D.
template <storage T, feature_map Map = maps::identity>
struct linear_attention {
  using scalar = T;
  using accum = accum_t<T>;

  view<const T, 4> q{}, k{}, v{};
  Map map{};
  bool normalise = true;
  std::optional<accum> scale{};      ///< s, 1/√K by default; a normalised quotient only sees it under scaled_sum
  std::optional<accum> qk_l2norm{};  ///< ε: q and k are divided by √(Σx² + ε) before the map
  accum eps = std::is_same_v<accum, double> ? accum(1e-12) : accum(1e-6);
  eps_placement eps_at = eps_placement::sum;
  view<const bool, 2> key_mask{};  ///< [B, L]; false: the token is not written
  integers lengths{};              ///< per sequence; tokens from there on are not written
  integers offsets{};              ///< packed sequences, a state each
  heads head_map = heads::consecutive;
  index_t position = 0;  ///< absolute position of the first token, for maps that need it

  struct gradient {
    view<T, 4> q{}, k{}, v{};
    map_gradient<Map> map{};  ///< of what the map has learned: sums over everything that is mapped, q and k
  };

  static constexpr const char* name = "linear_attention";
  template <storage S>
  using state_of = linear_attention_state<S>;
  using default_state = linear_attention_state<accum>;
  using default_state_gradient = linear_attention_state_gradient<accum>;

  detail::feature_attention<T, Map> operands() const noexcept {
    return {.q = q,
            .k = k,
            .v = v,
            .map = map,
            .normalise = normalise,
            .scale = scale,
            .qk_l2norm = qk_l2norm,
            .eps = eps,
            .eps_at = eps_at,
            .key_mask = key_mask,
            .lengths = lengths,
            .offsets = offsets,
            .head_map = head_map,
            .position = position};
  }
  static typename detail::feature_attention<T, Map>::gradient gradients(const gradient& d) noexcept {
    return {.q = d.q, .k = d.k, .v = d.v, .map = d.map};
  }
};

/// Based, scores 1 + t + t²/2, and ReBased, scores t² of normalised rows, t = s q·k with the map's own s. Models divide
/// by the sum of scores with ε = 1e-6, or not at all: then `.normalise = false, .scale = 1`.
/// Arora et al., arXiv:2402.18668. Aksenov et al., arXiv:2402.10644.
template <storage T>
using based = linear_attention<T, maps::taylor>;
template <storage T>
using rebased = linear_attention<T, maps::rebased<accum_t<T>>>;

}  // namespace OGIVE_ABI
}  // namespace ogive

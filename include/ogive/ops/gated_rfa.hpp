// Gated random feature attention: linear attention that prefers recent tokens. State and normaliser are moving
// averages, a token keeping f_t of what there was.
//
//   S_t = f_t S_{t-1} + (1 − f_t) φ(k_t) v_tᵀ     z_t = f_t z_{t-1} + (1 − f_t) φ(k_t)     f_t = exp(g_t)
//   o_t = S_tᵀ φ(q_t) / (φ(q_t)·z_t + ε)   or   s S_tᵀ φ(q_t)                              S ∈ R^{K×V}, z ∈ R^K
//
// The rules of the quotient are those of linear attention. Peng et al., Random Feature Attention, arXiv:2103.02143,
// section 3.2, whose g_t is f_t here: sigmoid(w·x_t + b), the logarithm of which `layers/gates.hpp` gives.
#pragma once

#include <ogive/maps/random_features.hpp>
#include <ogive/ops/linear_attention.hpp>
#include <ogive/simd/math.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// Linear attention under gates g [B, L, Hk]: 1 − f weighs a key in S and in z alike, so that heads which share keys
/// share their gates.
template <storage T, feature_map Map>
struct gated_features : linear_attention<T, Map> {
  using ungated = linear_attention<T, Map>;
  using ungated::k, ungated::v, ungated::key_mask;

  view<const accum_t<T>, 3> g{};

  static constexpr const char* name = "gated_rfa";
  static constexpr decay decays = decay::scalar;

  void check_fields(core::checker& ask) const noexcept {
    ungated::check_fields(ask);
    ask.given("g", g);
    ask.extents("g", g, {k.extent(0), k.extent(1), k.extent(2)}, "[B, L, Hk] as k: a gate weighs a key");
  }
  template <class X, std::size_t Rank>
  void check_written(core::checker& ask, const char* field, const view<X, Rank>& x) const noexcept {
    ungated::check_written(ask, field, x);
    ask.apart(field, x, "g", g);
  }

  gated_features columns(index_t first, index_t count) const noexcept {
    gated_features part = *this;
    part.v = v.slice(3, first, count);
    return part;
  }

  template <class Acc>
  void load_k(const tokens& at, Acc* panel, index_t stride, Acc* room) const noexcept {
    ungated::load_k(at, panel, stride, room);
    const index_t K = this->extents().key_dim;
    for (index_t i = 0; i < at.live; ++i) {
      const auto free = -simd::expm1(simd::batch<Acc>(log_gate<Acc>(at, i, at.head)));
      change_rows(panel + i * stride, stride, 1, K, [&](index_t, index_t, auto x) noexcept { return free * x; });
    }
  }
  template <class Acc>
  void load_v(const tokens& at, Acc* panel, index_t stride, Acc* log_decay, Acc* room) const noexcept {
    ungated::load_v(at, panel, stride, log_decay, room);
    const index_t Hk = k.extent(2);
    const index_t key = this->head_map == heads::tiled ? at.head % Hk : at.head / (v.extent(2) / Hk);
    for (index_t i = 0; i < at.count; ++i) log_decay[i] = i < at.live ? log_gate<Acc>(at, i, key) : Acc(0);
  }

 private:
  /// g of the i-th token, 0 for one that is masked: it leaves everything as it is.
  template <class Acc>
  Acc log_gate(const tokens& at, index_t i, index_t head) const noexcept {
    const index_t t = at.token + i;
    return key_mask.present() && !key_mask(at.batch, t) ? Acc(0) : static_cast<Acc>(g(at.batch, t, head));
  }
};

}  // namespace detail

/// q [B, L, Hq, D], k [B, L, Hk, D], v [B, L, H, V], g [B, L, Hk]; o [B, L, max(H, Hq), V]. Hk divides H, and Hq
/// divides H or H divides Hq. State S [slots, H, K, V] and z [slots, H, K], K = features of D.
template <storage T, feature_map Map = maps::random_features<accum_t<T>>>
struct gated_rfa {
  using scalar = T;
  using accum = accum_t<T>;

  view<const T, 4> q{}, k{}, v{};
  view<const accum, 3> g{};  ///< natural log of f, ≤ 0
  Map map{};
  bool normalise = true;
  std::optional<accum> scale{};  ///< s, 1/√K by default; a normalised quotient only sees it under scaled_sum
  accum eps = std::is_same_v<accum, double> ? accum(1e-12) : accum(1e-6);
  eps_placement eps_at = eps_placement::sum;
  view<const bool, 2> key_mask{};  ///< [B, L]; false: the token neither decays nor writes
  integers lengths{};              ///< per sequence; tokens from there on neither decay nor write
  integers offsets{};              ///< packed sequences, a state each
  heads head_map = heads::consecutive;
  index_t position = 0;  ///< absolute position of the first token, for maps that need it

  static constexpr const char* name = "gated_rfa";
  template <storage S>
  using state_of = linear_attention_state<S>;
  using default_state = linear_attention_state<accum>;

  detail::gated_features<T, Map> operands() const noexcept {
    return {{.q = q,
             .k = k,
             .v = v,
             .map = map,
             .normalise = normalise,
             .scale = scale,
             .eps = eps,
             .eps_at = eps_at,
             .key_mask = key_mask,
             .lengths = lengths,
             .offsets = offsets,
             .head_map = head_map,
             .position = position},
            g};
  }
};

}  // namespace OGIVE_ABI
}  // namespace ogive

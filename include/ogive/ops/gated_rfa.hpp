// Gated random feature attention: linear attention that prefers recent tokens. State and normaliser are moving
// averages, a token keeping f_t of what there was.
//
//   S_t = f_t S_{t-1} + (1 − f_t) φ(k_t) v_tᵀ     z_t = f_t z_{t-1} + (1 − f_t) φ(k_t)     f_t = exp(g_t)
//   o_t = S_tᵀ φ(q_t) / (φ(q_t)·z_t + ε)   or   s S_tᵀ φ(q_t)                              S ∈ R^{K×V}, z ∈ R^K
//
// The rules of the quotient are those of linear attention. Peng et al., Random Feature Attention, arXiv:2103.02143,
// section 3.2, whose g_t is f_t here: sigmoid(w·x_t + b), the logarithm of which `layers/gates.hpp` gives.
#pragma once

#include <ogive/engine/feature_attention.hpp>
#include <ogive/maps/random_features.hpp>
#include <ogive/simd/math.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// Linear attention under gates g [B, L, Hk]: 1 − f weighs a key in S and in z alike, so that heads which share keys
/// share their gates.
template <storage T, feature_map Map>
struct gated_features : feature_attention<T, Map> {
  using ungated = feature_attention<T, Map>;
  using ungated::k, ungated::v, ungated::key_mask;

  view<const accum_t<T>, 3> g{};

  static constexpr const char* name = "gated_rfa";
  static constexpr decay decays = decay::scalar;
  static constexpr bool gates_of_keys = true;  // to the gradient of one, all heads of its key add

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

  /// Where every value has a key of its own, the gate of a row is that of its head.
  std::optional<gated_features> turned() const noexcept {
    const std::optional<ungated> features = ungated::turned();
    if (!features || k.extent(2) != v.extent(2)) return {};
    gated_features all = *this;
    static_cast<ungated&>(all) = *features;
    all.g = from_bdl(g);
    return all;
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
    for (index_t i = 0; i < at.count; ++i)
      log_decay[i] = i < at.live ? log_gate<Acc>(at, i, key_head(at.head)) : Acc(0);
  }

  struct gradient {
    typename ungated::gradient features{};
    view<accum_t<T>, 3> g{};
  };
  template <class F>
  void for_gradients(const gradient& d, const F& f) const noexcept {
    ungated::for_gradients(d.features, f);
    f("g", g, d.g);
  }
  weight_sums<Map> weights(const gradient& d) const noexcept { return ungated::weights(d.features); }
  template <class F>
  static constexpr void for_sums(const gradient&, const F&) noexcept {}
  static bool wants_decays(const gradient& d) noexcept { return d.g.present(); }
  bool wants_outputs(const gradient& d) const noexcept { return ungated::wants_outputs(d.features); }
  wanted_rows wants_rows(const gradient& d) const noexcept { return ungated::wants_rows(d.features); }
  template <class Acc>
  index_t adjoint_room(index_t chunk) const noexcept {
    const matrix_extents n = this->extents();
    return std::max(ungated::template adjoint_room<Acc>(chunk),
                    chunk * (padded<Acc>(n.key_dim) + padded<Acc>(n.input_dim)));
  }

  template <class Acc>
  void adjoint_store(const tokens& at, const view<const T, 4>& d_o, const Acc* sums, const Acc* denominator, Acc* panel,
                     index_t stride, Acc* d_denominator, Acc* room, const gradient& d, bool accumulate) const noexcept {
    ungated::adjoint_store(at, d_o, sums, denominator, panel, stride, d_denominator, room, d.features, accumulate);
  }
  template <class Acc>
  void adjoint_q(const tokens& at, Acc* panel, index_t stride, Acc* room, const gradient& d, bool accumulate,
                 Acc* sums) const noexcept {
    ungated::adjoint_q(at, panel, stride, room, d.features, accumulate, sums);
  }
  /// Comes after those of all values of a key, which begin the gradient of its gate.
  template <class Acc>
  void adjoint_k(const tokens& at, Acc* panel, index_t stride, Acc* room, const gradient& d, bool accumulate,
                 Acc* sums) const noexcept {
    using vector = simd::batch<Acc>;
    const index_t K = this->extents().key_dim, columns = padded<Acc>(K);
    if (d.g.present()) ungated::load_k(at, room, columns, room + at.count * columns);
    for (index_t i = 0; i < at.live; ++i) {
      const vector log_f(log_gate<Acc>(at, i, at.head)), free = -simd::expm1(log_f);
      vector along(Acc(0));
      change_rows(panel + i * stride, stride, 1, K, [&](index_t, index_t j, auto x) noexcept {
        if (d.g.present()) along = simd::fma(simd::load(room + i * columns + j), x, along);
        return free * x;
      });
      if (d.g.present()) add_gate(d, at, i, at.head, -simd::reduce_add(along * simd::exp(log_f)));
    }
    ungated::adjoint_k(at, panel, stride, room, d.features, accumulate, sums);
  }
  template <class Acc>
  void adjoint_v(const tokens& at, Acc* panel, const Acc* d_o, index_t stride, const Acc* d_log_decay, Acc* room,
                 const gradient& d, bool accumulate) const noexcept {
    const index_t Hk = k.extent(2);
    const bool first = this->head_map == heads::tiled ? at.head < Hk : at.head % (v.extent(2) / Hk) == 0;
    for (index_t i = 0; d.g.present() && i < at.count; ++i) {
      if (first && !accumulate) d.g(at.batch, at.token + i, key_head(at.head)) = accum_t<T>(0);
      if (i < at.live) add_gate(d, at, i, key_head(at.head), d_log_decay[i]);
    }
    ungated::adjoint_v(at, panel, d_o, stride, d_log_decay, room, d.features, accumulate);
  }

 private:
  index_t key_head(index_t head) const noexcept {
    const index_t Hk = k.extent(2);
    return this->head_map == heads::tiled ? head % Hk : head / (v.extent(2) / Hk);
  }
  bool masked(const tokens& at, index_t i) const noexcept {
    return key_mask.present() && !key_mask(at.batch, at.token + i);
  }
  template <class Acc>
  void add_gate(const gradient& d, const tokens& at, index_t i, index_t head, Acc own) const noexcept {
    if (!masked(at, i)) d.g(at.batch, at.token + i, head) += static_cast<accum_t<T>>(own);
  }
  /// g of the i-th token, 0 for one that is masked: it leaves everything as it is.
  template <class Acc>
  Acc log_gate(const tokens& at, index_t i, index_t head) const noexcept {
    return masked(at, i) ? Acc(0) : static_cast<Acc>(g(at.batch, at.token + i, head));
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
  std::optional<accum> scale{};      ///< s, 1/√K by default; a normalised quotient only sees it under scaled_sum
  std::optional<accum> qk_l2norm{};  ///< ε: q and k are divided by √(Σx² + ε) before the map
  accum eps = std::is_same_v<accum, double> ? accum(1e-12) : accum(1e-6);
  eps_placement eps_at = eps_placement::sum;
  view<const bool, 2> key_mask{};  ///< [B, L]; false: the token neither decays nor writes
  integers lengths{};              ///< per sequence; tokens from there on neither decay nor write
  integers offsets{};              ///< packed sequences, a state each
  heads head_map = heads::consecutive;
  index_t position = 0;  ///< absolute position of the first token, for maps that need it

  struct gradient {
    view<T, 4> q{}, k{}, v{};
    view<accum, 3> g{};
    map_gradient<Map> map{};  ///< of what the map has learned
  };

  static constexpr const char* name = "gated_rfa";
  template <storage S>
  using state_of = linear_attention_state<S>;
  using default_state = linear_attention_state<accum>;
  using default_state_gradient = linear_attention_state_gradient<accum>;

  detail::gated_features<T, Map> operands() const noexcept {
    return {{.q = q,
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
             .position = position},
            g};
  }
  static typename detail::gated_features<T, Map>::gradient gradients(const gradient& d) noexcept {
    return {{.q = d.q, .k = d.k, .v = d.v, .map = d.map}, d.g};
  }
};

}  // namespace OGIVE_ABI
}  // namespace ogive

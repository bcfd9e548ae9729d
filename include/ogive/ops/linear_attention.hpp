// Causal linear attention: softmax's exp(q·k) replaced by φ(q)·φ(k), so that the past is a sum of fixed size.
//
//   S_t = S_{t-1} + φ(k_t) v_tᵀ     z_t = z_{t-1} + φ(k_t)         S ∈ R^{K×V}, z ∈ R^K
//   o_t = S_tᵀ φ(q_t) / (φ(q_t)·z_t + ε)                           normalised; the quotient is 0 where its
//                                                                  denominator is 0 or subnormal
//   o_t = s S_tᵀ φ(q_t)                                            unnormalised
//
// Katharopoulos et al., Transformers are RNNs, arXiv:2006.16236. Four rules for ε are in use: see eps_placement.
#pragma once

#include <ogive/engine/matrix_backward.hpp>
#include <ogive/engine/product_binding.hpp>
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
  std::optional<accum> scale{};  ///< s, 1/√K by default; a normalised quotient only sees it under scaled_sum
  accum eps = std::is_same_v<accum, double> ? accum(1e-12) : accum(1e-6);
  eps_placement eps_at = eps_placement::sum;
  view<const bool, 2> key_mask{};  ///< [B, L]; false: the token is not written
  integers lengths{};              ///< per sequence; tokens from there on are not written
  integers offsets{};              ///< packed sequences, a state each
  heads head_map = heads::consecutive;
  index_t position = 0;  ///< absolute position of the first token, for maps that need it

  struct gradient {
    view<T, 4> q{}, k{}, v{};
  };

  static constexpr const char* name = "linear_attention";
  static constexpr decay decays = decay::none;
  static constexpr write writes = write::additive;
  static constexpr read reads = read::after;
  template <storage S>
  using state_of = linear_attention_state<S>;
  using default_state = linear_attention_state<accum>;
  using default_state_gradient = linear_attention_state_gradient<accum>;

  matrix_extents extents() const noexcept {
    return {.batch = q.extent(0),
            .length = q.extent(1),
            .query_heads = q.extent(2),
            .key_heads = k.extent(2),
            .heads = v.extent(2),
            .key_dim = features(map, k.extent(3)),
            .value_dim = v.extent(3),
            .input_dim = detail::room_dim(map, k.extent(3))};
  }

  void check_fields(core::checker& ask) const noexcept {
    const index_t b = q.extent(0), l = q.extent(1), d = q.extent(3);
    ask.given("q", q).given("k", k).given("v", v);
    ask.extents("k", k, {b, l, -1, d}, "[B, L, Hk, D], B, L and D as q");
    ask.extents("v", v, {b, l, -1, -1}, "[B, L, H, V], B and L as q");
    detail::check_heads(ask, q.extent(2), k.extent(2), v.extent(2));
    ask.extents("key_mask", key_mask, {b, l}, "[B, L] as q");
    if (const status fits = check_map(map, q.extents(), side::query); ask && !fits) {
      ask.refuse("map", fits.code()) << fits.text();
    }
    if (const status fits = check_map(map, k.extents(), side::key); ask && !fits) {
      ask.refuse("map", fits.code()) << fits.text();
    }
  }
  template <class X, std::size_t Rank>
  void check_written(core::checker& ask, const char* field, const view<X, Rank>& x) const noexcept {
    ask.apart(field, x, "q", q).apart(field, x, "k", k).apart(field, x, "v", v);
  }

  /// Rows to ask for early.
  void ahead(operand which, const tokens& at, detail::lines_ahead& lines) const noexcept {
    lines.add(detail::ahead_of(which == operand::query ? q : which == operand::key ? k : v, at));
  }

  /// The operator on `count` columns of V.
  linear_attention columns(index_t first, index_t count) const noexcept {
    linear_attention part = *this;
    part.v = v.slice(3, first, count);
    return part;
  }

  template <class Acc>
  void load_q(tokens at, Acc* panel, index_t stride, Acc* room) const noexcept {
    at.live = at.count;  // padding reads too
    detail::load_features(map, q, at, {.position = position, .which = side::query}, panel, stride, room);
  }
  template <class Acc>
  void load_k(const tokens& at, Acc* panel, index_t stride, Acc* room) const noexcept {
    detail::load_features(map, k, at, {.position = position, .which = side::key}, panel, stride, room);
    detail::clear_masked(key_mask, at, panel, stride, detail::padded<Acc>(features(map, k.extent(3))));
  }
  template <class Acc>
  void load_v(const tokens& at, Acc* panel, index_t stride, Acc*, Acc*) const noexcept {
    detail::load_tokens(v, at, panel, stride);
    detail::clear_masked(key_mask, at, panel, stride, detail::padded<Acc>(v.extent(3)));
  }
  template <class Acc>
  void store(const tokens& at, Acc* panel, index_t stride, const Acc* denominator, Acc*,
             const view<T, 4>& o) const noexcept {
    const detail::quotient<Acc> divide = quotient<Acc>();
    for (index_t i = 0; i < at.count; ++i) {
      const detail::row_factor<Acc> factor = divide.factor(normalise ? denominator[i] : Acc(1));
      detail::change_rows(panel + i * stride, stride, 1, v.extent(3),
                          [&](index_t, index_t, auto sum) noexcept { return factor(sum); });
    }
    detail::store_tokens(panel, stride, o, at);
  }

  /// (φ(Q) φ(K)ᵀ under the causal mask) V, for options{.form = form::left}.
  template <class State>
  void left(const State& st, const view<T, 4>& o, context& ctx) const {
    using Acc = sweep_t<T, typename State::storage_type>;
    const detail::product_binding<linear_attention, State, Acc> bound{*this, st, o};
    const detail::product_problem<Acc> p = bound.problem();
    ctx.reserve(static_cast<std::size_t>(ctx.workers()) * detail::left_product_bytes(p));
    if (p.outputs) detail::left_product(p, ctx);
  }
  template <class Acc>
  std::size_t left_bytes() const noexcept {
    const linear_attention_state<Acc> st{.initial = view<const Acc, 4>(nullptr, {})};
    const view<T, 4> o;
    return detail::left_product_bytes(
        detail::product_binding<linear_attention, linear_attention_state<Acc>, Acc>{*this, st, o}.problem());
  }

  /// Calls f(name, field, its gradient) for all of them.
  template <class F>
  void for_gradients(const gradient& d, const F& f) const noexcept {
    f("q", q, d.q), f("k", k, d.k), f("v", v, d.v);
  }
  static constexpr bool sums_over_time(const gradient&) noexcept { return false; }
  static constexpr bool wants_decays(const gradient&) noexcept { return false; }
  bool wants_outputs(const gradient&) const noexcept { return normalise; }
  static constexpr void clear(index_t, const gradient&) noexcept {}
  /// Elements of scratch that the adjoints want for a chunk: rows of x, its gradient, and what the map wants.
  template <class Acc>
  index_t adjoint_room(index_t chunk) const noexcept {
    static_assert(explain_differentiable_map<Map>());
    const index_t D = detail::padded<Acc>(k.extent(3));
    return chunk * (D + detail::adjoint_room_dim<Acc>(map, k.extent(3))) + D;
  }

  template <class Acc>
  void adjoint_q(tokens at, Acc* panel, index_t stride, Acc* room, const gradient& d, bool accumulate) const noexcept {
    at.live = at.count;  // padding reads too
    if (d.q.present()) pull(q, at, side::query, panel, stride, room, d.q, accumulate);
  }
  template <class Acc>
  void adjoint_k(const tokens& at, Acc* panel, index_t stride, Acc* room, const gradient& d,
                 bool accumulate) const noexcept {
    if (d.k.present()) pull(k, at, side::key, panel, stride, room, d.k, accumulate);
  }
  template <class Acc>
  void adjoint_v(const tokens& at, Acc* panel, const Acc*, index_t stride, const Acc*, Acc* room, const gradient& d,
                 bool accumulate) const noexcept {
    detail::clear_masked(key_mask, at, panel, stride, detail::padded<Acc>(v.extent(3)));
    detail::store_gradient(panel, stride, d.v, at, accumulate, room);
  }
  /// o = n / D for the sums n and D = φ(q)·z + ε: dn = do / D, dD = −(do·o) / D.
  template <class Acc>
  void adjoint_store(const tokens& at, const view<const T, 4>& d_o, const Acc* sums, const Acc* denominator, Acc* panel,
                     index_t stride, Acc* d_denominator, Acc*, const gradient&, bool) const noexcept {
    using vector = simd::batch<Acc>;
    detail::load_rows(detail::rows_of(d_o, at, at.count), panel, stride);
    const detail::quotient<Acc> divide = quotient<Acc>();
    for (index_t i = 0; i < at.count; ++i) {
      const detail::row_factor<Acc> factor = divide.factor(normalise ? denominator[i] : Acc(1));
      vector along(Acc(0));
      for (index_t j = 0; j < v.extent(3); j += simd::width<Acc>) {
        Acc* to = panel + i * stride + j;
        if (normalise) along = simd::fma(simd::load(to), factor(simd::load(sums + i * stride + j)), along);
        simd::store(to, factor(simd::load(to)));
      }
      if (normalise) d_denominator[i] = -factor(simd::reduce_add(along));
    }
  }

  template <class Acc>
  detail::quotient<Acc> quotient() const noexcept {
    return detail::quotient<Acc>::of(*this, extents().key_dim);
  }

 private:
  /// Through the map, and out.
  template <class Acc>
  void pull(const view<const T, 4>& x, const tokens& at, side which, const Acc* panel, index_t stride, Acc* room,
            const view<T, 4>& d_x, bool accumulate) const noexcept {
    const index_t D = detail::padded<Acc>(x.extent(3));
    Acc* rest = room + at.count * D;
    detail::features_adjoint(map, x, at, {.position = position, .which = which}, panel, stride, room, D, rest);
    if (which == side::key) detail::clear_masked(key_mask, at, room, D, D);
    detail::store_gradient(room, D, d_x, at, accumulate, rest);
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

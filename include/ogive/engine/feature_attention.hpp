// L5: attention by features of queries and keys, with a normaliser: what linear attention and its gated kin are made
// of.
#pragma once

#include <ogive/engine/matrix_backward.hpp>
#include <ogive/engine/product_binding.hpp>

#include <optional>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// The fields and rules of linear_attention.
template <storage T, feature_map Map>
struct feature_attention {
  using scalar = T;
  using accum = accum_t<T>;

  view<const T, 4> q{}, k{}, v{};
  Map map{};
  bool normalise = true;
  std::optional<accum> scale{};
  std::optional<accum> qk_l2norm{};
  accum eps = std::is_same_v<accum, double> ? accum(1e-12) : accum(1e-6);
  eps_placement eps_at = eps_placement::sum;
  view<const bool, 2> key_mask{};
  integers lengths{};
  integers offsets{};
  heads head_map = heads::consecutive;
  index_t position = 0;

  struct gradient {
    view<T, 4> q{}, k{}, v{};
    map_gradient<Map> map{};
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
            .input_dim = room_dim(map, k.extent(3))};
  }

  void check_fields(core::checker& ask) const noexcept {
    const index_t b = q.extent(0), l = q.extent(1), d = q.extent(3);
    ask.given("q", q).given("k", k).given("v", v);
    ask.extents("k", k, {b, l, -1, d}, "[B, L, Hk, D], B, L and D as q");
    ask.extents("v", v, {b, l, -1, -1}, "[B, L, H, V], B and L as q");
    check_heads(ask, q.extent(2), k.extent(2), v.extent(2));
    ask.extents("key_mask", key_mask, {b, l}, "[B, L] as q");
    check_features(ask, *this);
  }
  template <class X, std::size_t Rank>
  void check_written(core::checker& ask, const char* field, const view<X, Rank>& x) const noexcept {
    ask.apart(field, x, "q", q).apart(field, x, "k", k).apart(field, x, "v", v).apart(field, x, "key_mask", key_mask);
    for_parameters(map, {},
                   [&](const char* weight, const auto& w, const auto&) noexcept { ask.apart(field, x, weight, w); });
  }

  /// Rows to ask for early.
  void ahead(operand which, const tokens& at, lines_ahead& lines) const noexcept {
    lines.add(ahead_of(which == operand::query ? q : which == operand::key ? k : v, at));
  }

  /// The operator on `count` columns of V.
  feature_attention columns(index_t first, index_t count) const noexcept {
    feature_attention part = *this;
    part.v = v.slice(3, first, count);
    return part;
  }

  /// The operator with its axes of tokens and heads exchanged, as hooks see them; not where a row's place matters.
  std::optional<feature_attention> turned() const noexcept {
    if (!placeless_map<Map> || key_mask.present()) return {};
    feature_attention all = *this;
    for (view<const T, 4>* x : {&all.q, &all.k, &all.v}) *x = from_bhld(*x);
    return all;
  }

  template <class Acc>
  void load_q(tokens at, Acc* panel, index_t stride, Acc* room) const noexcept {
    at.live = at.count;  // padding reads too
    load_features(map, q, at, {.position = position, .which = side::query}, qk_l2norm, panel, stride, room);
  }
  template <class Acc>
  void load_k(const tokens& at, Acc* panel, index_t stride, Acc* room) const noexcept {
    load_features(map, k, at, {.position = position, .which = side::key}, qk_l2norm, panel, stride, room);
    clear_masked(key_mask, at, panel, stride, padded<Acc>(features(map, k.extent(3))));
  }
  template <class Acc>
  void load_v(const tokens& at, Acc* panel, index_t stride, Acc*, Acc*) const noexcept {
    load_tokens(v, at, panel, stride);
    clear_masked(key_mask, at, panel, stride, padded<Acc>(v.extent(3)));
  }
  template <class Acc>
  void store(const tokens& at, Acc* panel, index_t stride, const Acc* denominator, Acc*,
             const view<T, 4>& o) const noexcept {
    const detail::quotient<Acc> divide = quotient<Acc>();
    for (index_t i = 0; i < at.count; ++i) {
      const row_factor<Acc> factor = divide.factor(normalise ? denominator[i] : Acc(1));
      change_rows(panel + i * stride, stride, 1, v.extent(3),
                  [&](index_t, index_t, auto sum) noexcept { return factor(sum); });
    }
    store_tokens(panel, stride, o, at);
  }

  /// (φ(Q) φ(K)ᵀ under the causal mask) V, for options{.form = form::left}.
  template <class State>
  void left(const State& st, const view<T, 4>& o, context& ctx) const {
    using Acc = sweep_t<T, typename State::storage_type>;
    const product_binding<feature_attention, State, Acc> bound{*this, st, o};
    const product_problem<Acc> p = bound.problem();
    ctx.reserve(static_cast<std::size_t>(ctx.workers()) * left_product_bytes(p));
    if (p.outputs) left_product(p, ctx);
  }
  template <class Acc>
  std::size_t left_bytes() const noexcept {
    const linear_attention_state<Acc> st{.initial = view<const Acc, 4>(nullptr, {})};
    const view<T, 4> o;
    return left_product_bytes(
        product_binding<feature_attention, linear_attention_state<Acc>, Acc>{*this, st, o}.problem());
  }

  /// Calls f(name, field, its gradient) for all of them.
  template <class F>
  void for_gradients(const gradient& d, const F& f) const noexcept {
    f("q", q, d.q), f("k", k, d.k), f("v", v, d.v);
    for_parameters(map, d.map, f);
  }
  /// What the map has learned, for all heads.
  weight_sums<Map> weights(const gradient& d) const noexcept { return {map, d.map}; }
  template <class F>
  static constexpr void for_sums(const gradient&, const F&) noexcept {}
  static constexpr bool wants_decays(const gradient&) noexcept { return false; }
  bool wants_outputs(const gradient&) const noexcept { return normalise; }
  wanted_rows wants_rows(const gradient& d) const noexcept {
    bool learned = false;
    if constexpr (requires { weights(d); }) learned = weights(d).wanted();
    return {d.q.present() || learned, d.k.present() || learned, d.v.present()};
  }
  /// Elements of scratch that the adjoints want for a chunk.
  template <class Acc>
  index_t adjoint_room(index_t chunk) const noexcept {
    static_assert(explain_differentiable_map<Map>());
    return pulled_room<Acc>(map, k.extent(3), chunk);
  }

  template <class Acc>
  void adjoint_q(const tokens& at, Acc* panel, index_t stride, Acc* room, const gradient& d, bool accumulate,
                 Acc* sums) const noexcept {
    pull(q, {}, at, side::query, panel, stride, room, d.q, accumulate, sums);
  }
  template <class Acc>
  void adjoint_k(const tokens& at, Acc* panel, index_t stride, Acc* room, const gradient& d, bool accumulate,
                 Acc* sums) const noexcept {
    pull(k, key_mask, at, side::key, panel, stride, room, d.k, accumulate, sums);
  }
  template <class Acc>
  void adjoint_v(const tokens& at, Acc* panel, const Acc*, index_t stride, const Acc*, Acc* room, const gradient& d,
                 bool accumulate) const noexcept {
    clear_masked(key_mask, at, panel, stride, padded<Acc>(v.extent(3)));
    store_gradient(panel, stride, d.v, at, accumulate, room);
  }
  template <class Acc>
  void adjoint_store(const tokens& at, const view<const T, 4>& d_o, const Acc* sums, const Acc* denominator, Acc* panel,
                     index_t stride, Acc* d_denominator, Acc*, const gradient&, bool) const noexcept {
    quotient<Acc>().pull(d_o, at, sums, denominator, panel, stride, d_denominator);
  }

  template <class Acc>
  detail::quotient<Acc> quotient() const noexcept {
    return detail::quotient<Acc>::of(*this, extents().key_dim);
  }

 private:
  template <class Acc>
  void pull(const view<const T, 4>& x, const view<const bool, 2>& keep, const tokens& at, side which, const Acc* panel,
            index_t stride, Acc* room, const view<T, 4>& d_x, bool accumulate, Acc* sums) const noexcept {
    if (!d_x.present() && sums == nullptr) return;
    store_pulled(map, x, at, {.position = position, .which = which}, qk_l2norm, keep, panel, stride, d_x, accumulate,
                 room, sums);
  }
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

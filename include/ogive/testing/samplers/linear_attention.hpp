// Samples of causal linear attention, with the twins of its maps.
#pragma once

#include <ogive/maps/cosformer.hpp>
#include <ogive/maps/elementwise.hpp>
#include <ogive/maps/polynomial.hpp>
#include <ogive/ops/linear_attention.hpp>
#include <ogive/reference/feature_maps.hpp>
#include <ogive/reference/linear_attention.hpp>
#include <ogive/testing/samplers/heads.hpp>

namespace ogive::testing {

/// Draws a map and evaluates its definition on rows. `signed_features`: features may cancel, so quotients of them have
/// no bound; `positioned`: they depend on the place of the token; `widest`: the longest rows that it is drawn for, 65
/// unless said; define_magnitudes: its features of the magnitudes of all terms, where rounding is not relative to them.
template <class Map>
struct map_sampler;

template <>
struct map_sampler<maps::identity> {
  static constexpr bool positioned = false;
  static constexpr bool signed_features = false;  // operands are drawn positive instead
  static maps::identity draw(rng&, memory&, index_t) { return {}; }
  template <class Acc, class T>
  static tensor<Acc, 2> define(const maps::identity&, const view<T, 2>& rows, const map_site&) {
    return reference::identity<Acc>(rows);
  }
};
template <>
struct map_sampler<maps::elu1> {
  static constexpr bool positioned = false;
  static constexpr bool signed_features = false;
  static maps::elu1 draw(rng&, memory&, index_t) { return {}; }
  template <class Acc, class T>
  static tensor<Acc, 2> define(const maps::elu1&, const view<T, 2>& rows, const map_site&) {
    return reference::elu1<Acc>(rows);
  }
};
template <>
struct map_sampler<maps::taylor> {
  static constexpr bool positioned = false;
  static constexpr bool signed_features = true;
  static constexpr index_t widest = 5;
  static maps::taylor draw(rng&, memory&, index_t) { return {}; }
  template <class Acc, class T>
  static tensor<Acc, 2> define(const maps::taylor&, const view<T, 2>& rows, const map_site&) {
    return reference::taylor<Acc>(rows);
  }
};
/// Rows that are normalised lose digits where they differ little from their mean.
template <class P>
struct map_sampler<maps::rebased<P>> {
  static constexpr bool positioned = false;
  static constexpr bool signed_features = true;
  static constexpr index_t widest = 8;
  static maps::rebased<P> draw(rng& random, memory& room, index_t d) {
    maps::rebased<P> map{.normalise = coin(random), .eps = random.uniform(0.5, 1)};
    if (coin(random)) map.gamma = draw_uniform<P>(random, room, shape<1>{d}, 0.5, 1.5);
    if (coin(random)) map.beta = draw_uniform<P>(random, room, shape<1>{d});
    return map;
  }
  template <class Acc, class T>
  static tensor<Acc, 2> define(const maps::rebased<P>& map, const view<T, 2>& rows, const map_site&) {
    return reference::rebased<Acc>(rows, map.normalise, map.gamma, map.beta, map.eps);
  }
  /// γ (|x| + mean |x|) / √ε + |β|, squared.
  template <class Acc, class T>
  static tensor<Acc, 2> define_magnitudes(const maps::rebased<P>& map, const view<T, 2>& rows, const map_site&) {
    const index_t d = rows.extent(1);
    tensor<Acc, 2> u(rows.extents());
    for (index_t r = 0; r < rows.extent(0); ++r) {
      Acc mean(0);
      for (index_t c = 0; c < d; ++c) mean += std::fabs(static_cast<Acc>(rows(r, c))) / static_cast<Acc>(d);
      for (index_t c = 0; c < d; ++c) {
        u(r, c) = std::fabs(static_cast<Acc>(rows(r, c)));
        if (map.normalise) u(r, c) = (u(r, c) + mean) / std::sqrt(static_cast<Acc>(map.eps));
        if (map.gamma.present()) u(r, c) *= std::fabs(static_cast<Acc>(map.gamma(c)));
        if (map.beta.present()) u(r, c) += std::fabs(static_cast<Acc>(map.beta(c)));
      }
    }
    return reference::rebased<Acc>(view<const Acc, 2>(u.all()), false);
  }
};
template <>
struct map_sampler<maps::cosformer> {
  static constexpr bool positioned = true;
  static constexpr bool signed_features = true;
  static maps::cosformer draw(rng& random, memory&, index_t) { return {.M = random.integer(50, 200)}; }
  template <class Acc, class T>
  static tensor<Acc, 2> define(const maps::cosformer& map, const view<T, 2>& rows, const map_site& first) {
    return reference::cosformer<Acc>(rows, map.M, map.base + first.position);
  }
};

template <class Map>
constexpr index_t widest_rows() {
  if constexpr (requires { map_sampler<Map>::widest; }) {
    return map_sampler<Map>::widest;
  } else {
    return 65;
  }
}

/// Rows as features: φ of every token, normalised if so, at its place in its own sequence; or of their magnitudes.
template <class Op, class T>
view<double, 4> features_of(const Op& op, memory& room, const view<const T, 4>& x, side which,
                            bool magnitudes = false) {
  using wide = std::conditional_t<std::is_same_v<typename Op::accum, double>, long double, double>;
  const index_t K = features(op.map, x.extent(3));
  const auto given = room.copy<double>(x);
  for (index_t b = 0; op.qk_l2norm && b < x.extent(0); ++b) {
    for (index_t t = 0; t < x.extent(1); ++t) {
      for (index_t h = 0; h < x.extent(2); ++h) {
        memory::assign(given[b][t][h], reference::key_row<wide>(op, x, b, t, h).all());
      }
    }
  }
  const auto y = room.take<double>(shape<4>{x.extent(0), x.extent(1), x.extent(2), K});
  for (const reference::sequence& s : reference::sequences(op, x.extent(0), x.extent(1))) {
    for (index_t h = 0; h < x.extent(2); ++h) {
      const auto rows = view<const double, 4>(given)[s.batch].slice(0, s.begin, s.end - s.begin).permute({1, 0, 2})[h];
      const auto to = y[s.batch].slice(0, s.begin, s.end - s.begin).permute({1, 0, 2})[h];
      const map_site first{op.position, which, s.batch, h};
      using sampled = map_sampler<decltype(op.map)>;
      memory::assign(to, sampled::template define<wide>(op.map, rows, first).all());
      if constexpr (requires { sampled::template define_magnitudes<wide>(op.map, rows, first); }) {
        if (magnitudes) memory::assign(to, sampled::template define_magnitudes<wide>(op.map, rows, first).all());
      }
    }
  }
  return y;
}

/// The operator in double, with features for q and k.
template <template <class, class> class Attention, class T, class Map>
Attention<double, maps::identity> featured(const Attention<T, Map>& op, memory& room, bool magnitudes = false) {
  Attention<double, maps::identity> wide;
  wide.q = features_of(op, room, op.q, side::query, magnitudes);
  wide.k = features_of(op, room, op.k, side::key, magnitudes);
  wide.v = room.copy<double>(op.v);
  wide.normalise = op.normalise;
  if (op.scale) wide.scale = static_cast<double>(*op.scale);
  wide.eps = static_cast<double>(op.eps);
  wide.eps_at = op.eps_at;
  wide.key_mask = op.key_mask;
  wide.lengths = op.lengths;
  if constexpr (requires { op.offsets; }) wide.offsets = op.offsets;
  if constexpr (requires { op.g; }) wide.g = room.copy<double>(op.g);
  wide.head_map = op.head_map;
  return wide;
}

/// What samples of causal and non-causal linear attention have in common.
template <template <class, class> class Attention, class T, class Map>
struct linear_attention_sampler {
  using op = Attention<T, Map>;
  static constexpr std::tuple<> parameters{};
  static constexpr bool positioned = map_sampler<Map>::positioned;

  static op draw(rng& random, memory& room, index_t batch, index_t length, index_t keys) {
    const head_counts heads_of = draw_heads(random);
    const index_t D = odd_extent(random, widest_rows<Map>());
    op x;
    x.map = map_sampler<Map>::draw(random, room, D);
    x.normalise = !map_sampler<Map>::signed_features && coin(random);
    const double low = x.normalise && std::is_same_v<Map, maps::identity> ? 0.1 : -1;
    x.q = draw_uniform<T>(random, room, shape<4>{batch, length, heads_of.queries, D}, low);
    x.k = draw_uniform<T>(random, room, shape<4>{batch, keys, heads_of.keys, D}, low);
    x.v = draw_uniform<T>(random, room, shape<4>{batch, keys, heads_of.values, odd_extent(random, 65)});
    if (coin(random)) x.scale = static_cast<accum_t<T>>(random.uniform(0.1, 2));
    draw_l2norm(random, x);
    x.eps = static_cast<accum_t<T>>(random.uniform(0, 1));  // so large that its place is seen
    x.eps_at = static_cast<eps_placement>(random.integer(0, 3));
    x.head_map = coin(random) ? heads::tiled : heads::consecutive;
    x.position = random.integer(0, 3);
    if (coin(random)) {
      const auto mask = room.take<bool>(shape<2>{batch, keys});
      for_each(mask, [&](bool& keep, index_t) { keep = random.integer(0, 3) > 0; });
      x.key_mask = mask;
    }
    return x;
  }

  static shape<4> output(const op& x) {
    return {x.q.extent(0), x.q.extent(1), std::max(x.v.extent(2), x.q.extent(2)), x.v.extent(3)};
  }
  static shape<3> slot(const op& x) { return {x.v.extent(2), features(x.map, x.q.extent(3)), x.v.extent(3)}; }

  template <class Acc, class State>
  static void define(const op& x, const State& st, const view<double, 4>& o) {
    memory room;
    reference::evaluate<Acc>(featured(x, room), st, o);
  }
  template <class Acc, class State>
  static void define_masked(const op& x, const State& st, const view<double, 4>& o) {
    memory room;
    reference::evaluate_masked<Acc>(featured(x, room), st, o);
  }
  static Attention<double, maps::identity> absolute(const op& x, memory& room) {
    auto all = featured(x, room, true);
    all.q = testing::absolute(room, all.q);
    all.k = testing::absolute(room, all.k);
    all.v = testing::absolute(room, all.v);
    return all;
  }
  /// Sums over the keys and over the features, for numerator and denominator; sixteen for the map, which may double
  /// those of its rows.
  static index_t roundings(const op& x) {
    const index_t D = x.q.extent(3);
    return 2 * (x.k.extent(1) + features(x.map, D) + 16 + 2 * l2norm_roundings(x, D));
  }
};

template <storage T, feature_map Map>
struct sampler<linear_attention<T, Map>> : linear_attention_sampler<linear_attention, T, Map> {
  using op = linear_attention<T, Map>;
  static constexpr std::tuple tokens{&op::k, &op::q, &op::v, &op::key_mask};
  static constexpr std::tuple gradients{&gradient<op>::k, &gradient<op>::q, &gradient<op>::v};
  static constexpr bool left_product = true;  // a form of `forward`

  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    return linear_attention_sampler<ogive::linear_attention, T, Map>::draw(random, room, batch, length, length);
  }
};

}  // namespace ogive::testing

// Samples of gated RFA.
#pragma once

#include <ogive/ops/gated_rfa.hpp>
#include <ogive/testing/samplers/linear_attention.hpp>
#include <ogive/testing/samplers/matrix_state.hpp>

namespace ogive::testing {

/// Of directions: features of at most 1, whose arguments are of the size of a normal number.
template <class P>
struct map_sampler<maps::random_features<P>> {
  static constexpr bool positioned = false;
  static constexpr bool signed_features = true;
  static maps::random_features<P> draw(rng& random, memory& room, index_t d) {
    const auto W = room.take<P>(shape<2>{random.integer(1, 17), d});
    fill_normal(random, W);
    return {.W = W, .normalised = true};
  }
  template <class Acc, class T>
  static tensor<Acc, 2> define(const maps::random_features<P>& map, const view<T, 2>& rows, const map_site&) {
    return reference::random_features<Acc>(rows, map.W, map.normalised);
  }
};

template <storage T, feature_map Map>
struct sampler<gated_rfa<T, Map>> : linear_attention_sampler<gated_rfa, T, Map> {
  using op = gated_rfa<T, Map>;
  using base = linear_attention_sampler<gated_rfa, T, Map>;
  static constexpr std::tuple tokens{&op::k, &op::q, &op::v, &op::g, &op::key_mask};
  static constexpr std::tuple gradients{&gradient<op>::k, &gradient<op>::q, &gradient<op>::v, &gradient<op>::g};

  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    op x = base::draw(random, room, batch, length, length);
    x.g = draw_uniform<accum_t<T>>(random, room, shape<3>{batch, length, x.k.extent(2)}, -1, 0);
    return x;
  }
  /// Lengthens short rows, whose directions have steep slopes. A denominator of next to nothing, 1 − f, is steep beside
  /// a small ε.
  static void smooth(op& x) {
    x.eps += 1;
    for (const auto& rows : {x.q, x.k}) {
      for (index_t b = 0; b < rows.extent(0); ++b) {
        for (index_t t = 0; t < rows.extent(1); ++t) {
          for (index_t h = 0; h < rows.extent(2); ++h) {
            const auto row = rows[b][t][h];
            double square = 0;
            for (index_t j = 0; j < row.extent(0); ++j)
              square += static_cast<double>(row[j]) * static_cast<double>(row[j]);
            if (square < 0.5) const_cast<T&>(row[0]) += row[0] < T(0) ? T(-1) : T(1);
          }
        }
      }
    }
  }
  /// None that grows: its weight would be negative.
  static void harden(rng& random, op& x) { harden_gates(random, x.g); }

  /// With an ε in every denominator: what a gate of next to nothing lets in is none.
  static void strengthen(rng& random, op& x) {
    harden(random, x);
    if (x.eps_at == eps_placement::none) x.eps_at = eps_placement::sum;
  }

  /// Those of linear attention; for numerator and denominator a few more per token, and those of its decay.
  static index_t roundings(const op& x) {
    return base::roundings(x) + 2 * (6 * x.k.extent(1) + 6 * decay_roundings<accum_t<T>>());
  }
};

}  // namespace ogive::testing

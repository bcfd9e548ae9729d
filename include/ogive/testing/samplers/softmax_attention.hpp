// Samples of softmax attention.
#pragma once

#include <ogive/ops/softmax_attention.hpp>
#include <ogive/reference/softmax_attention.hpp>
#include <ogive/testing/samplers.hpp>

namespace ogive::testing {

template <storage T>
struct sampler<softmax_attention<T>> {
  using op = softmax_attention<T>;
  static constexpr std::tuple tokens{&op::q};
  static constexpr std::tuple keys{&op::k, &op::v};
  static constexpr std::tuple<> parameters{};

  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    const index_t H = random.integer(1, 3);
    const index_t S = odd_extent(random, 100);
    const index_t D = odd_extent(random, 65);
    op x;
    x.q = draw_uniform<T>(random, room, shape<4>{batch, length, H * random.integer(1, 3), D});
    x.k = draw_uniform<T>(random, room, shape<4>{batch, S, H, D});
    x.v = draw_uniform<T>(random, room, shape<4>{batch, S, H, odd_extent(random, 65)});
    x.causal = coin(random);
    if (coin(random)) x.position = random.integer(0, S);
    if (coin(random)) x.window = random.integer(1, 2 * S);
    if (coin(random)) x.scale = static_cast<accum_t<T>>(random.uniform(0.05, 1));
    return x;
  }

  static shape<4> output(const op& x) { return {x.q.extent(0), x.q.extent(1), x.q.extent(2), x.v.extent(3)}; }
  template <class Acc>
  static void define(const op& x, const view<double, 4>& o) {
    reference::evaluate<Acc>(x, o);
  }
  static op absolute(op x, memory& room) {
    x.v = testing::absolute(room, x.v);
    return x;
  }
  /// Sums over the keys; an exponent loses D units in the last place of the sizes its score sums, and so does its
  /// exponential relative to itself.
  static index_t roundings(const op& x) {
    const double D = static_cast<double>(x.q.extent(3));
    const double scale = x.scale ? static_cast<double>(*x.scale) : 1 / std::sqrt(D);
    return 2 * (x.k.extent(1) + 16) + static_cast<index_t>(2 * D * (scale * D + 1));
  }
};

}  // namespace ogive::testing

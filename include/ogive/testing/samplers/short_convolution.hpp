// Samples of the short convolution.
#pragma once

#include <ogive/layers/short_convolution.hpp>
#include <ogive/reference/short_convolution.hpp>
#include <ogive/testing/samplers.hpp>

namespace ogive::testing {

template <storage T, storage P>
struct sampler<short_convolution<T, P>> {
  using op = short_convolution<T, P>;
  static constexpr std::tuple tokens{&op::x};
  static constexpr std::tuple parameters{&op::weight, &op::bias};

  /// Widths of at least 2, so that there is a state.
  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    const index_t D = coin(random) ? random.integer(1, 40) : 16 * random.integer(1, 12);
    const index_t W = random.integer(2, 8);
    op x;
    x.x = draw_uniform<T>(random, room, shape<3>{batch, length, D});
    x.weight = draw_uniform<P>(random, room, shape<2>{D, W});
    if (coin(random)) x.bias = draw_uniform<P>(random, room, shape<1>{D});
    if (coin(random)) x.activation = activation::silu;
    return x;
  }

  static shape<3> output(const op& x) { return x.x.extents(); }
  static shape<2> slot(const op& x) { return {x.x.extent(2), x.weight.extent(1) - 1}; }

  template <class Acc, class State>
  static void define(const op& x, const State& st, const view<double, 3>& y) {
    reference::evaluate<Acc>(x, st, y);
  }
  /// silu is at most as steep as 1.1 and no further from 0 than its argument.
  static op absolute(op x, memory& room) {
    x.x = testing::absolute(room, x.x);
    x.weight = testing::absolute(room, x.weight);
    x.bias = testing::absolute(room, x.bias);
    x.activation = activation::none;
    return x;
  }
  static index_t roundings(const op& x) { return 2 * x.weight.extent(1) + 16; }
};

}  // namespace ogive::testing

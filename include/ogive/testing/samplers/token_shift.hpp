// Samples of the token shift.
#pragma once

#include <ogive/layers/token_shift.hpp>
#include <ogive/reference/token_shift.hpp>
#include <ogive/testing/samplers.hpp>

namespace ogive::testing {

template <storage T, storage P>
struct sampler<token_shift<T, P>> {
  using op = token_shift<T, P>;
  static constexpr std::tuple tokens{&op::x, &op::mix};
  static constexpr std::tuple parameters{&op::mu};

  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    const index_t D = odd_extent(random, 100), M = random.integer(1, 4);
    op x;
    x.x = draw_uniform<T>(random, room, shape<3>{batch, length, D});
    const index_t kind = random.integer(0, 2);
    if (kind != 1) x.mu = draw_uniform<P>(random, room, shape<2>{M, D}, -0.5, 0.5);
    if (kind != 0) x.mix = draw_uniform<T>(random, room, shape<4>{batch, length, M, D}, -0.5, 0.5);
    return x;
  }

  static shape<4> output(const op& x) { return {x.x.extent(0), x.x.extent(1), x.mixtures(), x.x.extent(2)}; }
  static shape<2> slot(const op& x) { return {x.x.extent(2), 1}; }

  template <class Acc, class State>
  static void define(const op& x, const State& st, const view<double, 4>& y) {
    reference::evaluate<Acc>(x, st, y);
  }
  /// Inputs and states are at most 1, and so is μ + mix: no output has terms of more than |x_t| + |x_{t−1} − x_t| ≤ 3.
  static op absolute(op x, memory& room) {
    const auto constant = [&](const auto& of, double number) {
      const auto y = room.copy(of);
      using X = typename std::remove_cvref_t<decltype(y)>::value_type;
      if (y.present()) for_each(y, [&](X& element, index_t) { element = X(number); });
      return y;
    };
    x.x = constant(x.x, 3);
    x.mu = constant(x.mu, 0);
    x.mix = constant(x.mix, 0);
    return x;
  }
  static index_t roundings(const op&) { return 16; }
};

}  // namespace ogive::testing

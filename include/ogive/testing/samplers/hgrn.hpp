// Samples of HGRN.
#pragma once

#include <ogive/ops/hgrn.hpp>
#include <ogive/reference/hgrn.hpp>
#include <ogive/testing/samplers.hpp>

namespace ogive::testing {

template <storage T>
struct sampler<hgrn<T>> {
  using op = hgrn<T>;
  using accum = accum_t<T>;
  static constexpr bool splits_time = true;
  static constexpr std::tuple tokens{&op::x, &op::g};
  static constexpr std::tuple<> parameters{};
  static constexpr std::tuple gradients{&op::gradient::x, &op::gradient::g};

  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    const shape<3> all{batch, length, odd_extent(random, 100)};
    return {.x = draw_uniform<T>(random, room, all), .g = draw_uniform<accum>(random, room, all, -2, 0)};
  }

  /// Gates that keep everything, next to nothing, nothing, and that grow.
  static void harden(rng& random, op& x) {
    constexpr accum gates[] = {
        accum(0), accum(-1e-6), accum(-50), accum(-1e4), -std::numeric_limits<accum>::infinity(), accum(0.01)};
    for_each(x.g, [&](const accum& g, index_t) { const_cast<accum&>(g) = gates[random.integer(0, 5)]; });
  }

  static shape<3> output(const op& x) { return x.x.extents(); }
  static shape<2> slot(const op& x) { return {x.x.extent(2), 1}; }

  template <class Acc, class State>
  static void define(const op& x, const State& st, const view<double, 3>& o) {
    reference::evaluate<Acc>(x, st, o);
  }
  static op absolute(op x, memory& room) {
    x.x = testing::absolute(room, x.x);
    return x;
  }
  /// A product and a sum per token, and an exponential.
  static index_t roundings(const op& x) { return 4 * x.x.extent(1) + 8; }
};

}  // namespace ogive::testing

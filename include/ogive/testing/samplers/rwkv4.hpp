// Samples of RWKV-4. Its states are not drawn like others: β is positive, and zeros are no other way to say nothing.
#pragma once

#include <ogive/ops/rwkv4.hpp>
#include <ogive/reference/rwkv4.hpp>
#include <ogive/testing/samplers.hpp>

namespace ogive::testing {

template <storage T>
struct sampler<rwkv4<T>> {
  using op = rwkv4<T>;
  using accum = accum_t<T>;
  static constexpr std::tuple tokens{&op::k, &op::v};
  static constexpr std::tuple parameters{&op::w, &op::u};
  static constexpr std::tuple gradients{&gradient<op>::k, &gradient<op>::v, &gradient<op>::w, &gradient<op>::u};

  /// Keys up to 30 and, now and then, beyond what an exponential can hold.
  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    const index_t C = odd_extent(random, 100);
    const double size = coin(random) ? 2 : 30;
    op x;
    const auto k = draw_uniform<T>(random, room, shape<3>{batch, length, C}, -size, size);
    for_each(k, [&](T& element, index_t) {
      if (random.integer(0, 50) == 0) element = T(coin(random) ? 500.0F : -500.0F);
    });
    x.k = k;
    x.v = draw_uniform<T>(random, room, shape<3>{batch, length, C});
    x.w = draw_uniform<accum>(random, room, shape<1>{C}, -2, 0);
    x.u = draw_uniform<accum>(random, room, shape<1>{C});
    return x;
  }

  static shape<3> output(const op& x) { return x.k.extents(); }
  static shape<2> slot(const op& x) { return {3, x.k.extent(2)}; }

  template <class Acc, class State>
  static void define(const op& x, const State& st, const view<double, 3>& o) {
    reference::evaluate<Acc>(x, st, o);
  }
};

}  // namespace ogive::testing

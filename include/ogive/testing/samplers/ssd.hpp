// Samples of SSD.
#pragma once

#include <ogive/ops/ssd.hpp>
#include <ogive/reference/ssd.hpp>
#include <ogive/testing/samplers/heads.hpp>

namespace ogive::testing {

template <storage T>
struct sampler<ssd<T>> {
  using op = ssd<T>;
  using accum = accum_t<T>;
  static constexpr std::tuple tokens{&op::x, &op::dt, &op::B, &op::C, &op::z};
  static constexpr std::tuple parameters{&op::A, &op::D, &op::dt_bias};
  static constexpr std::tuple gradients{&gradient<op>::x, &gradient<op>::dt, &gradient<op>::B, &gradient<op>::C,
                                        &gradient<op>::z, &gradient<op>::A,  &gradient<op>::D, &gradient<op>::dt_bias};

  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    constexpr index_t counts[] = {1, 2, 3, 4, 6, 9};
    const index_t H = counts[random.integer(0, 5)];
    const index_t G = divisor_of(random, H);
    const index_t P = odd_extent(random, 65);
    const index_t N = odd_extent(random, 65);
    op x;
    x.dt_softplus = coin(random);
    x.x = draw_uniform<T>(random, room, shape<4>{batch, length, H, P});
    x.dt = draw_uniform<accum>(random, room, shape<3>{batch, length, H}, x.dt_softplus ? -3 : 0.01, 1);
    x.A = draw_uniform<accum>(random, room, shape<1>{H}, -2, -0.1);
    x.B = draw_uniform<T>(random, room, shape<4>{batch, length, G, N});
    x.C = draw_uniform<T>(random, room, shape<4>{batch, length, G, N});
    if (coin(random)) x.D = draw_uniform<accum>(random, room, shape<2>{H, coin(random) ? P : 1});
    if (coin(random)) x.z = draw_uniform<T>(random, room, shape<4>{batch, length, H, P}, -3, 3);
    if (coin(random)) x.dt_bias = draw_uniform<accum>(random, room, shape<1>{H}, 0, 0.5);
    if (coin(random)) {
      x.dt_min = accum(0.05);
      x.dt_max = accum(0.5);
    }
    x.head_map = coin(random) ? heads::tiled : heads::consecutive;
    draw_l2norm(random, x);
    return x;
  }

  /// Steps of nothing, of next to nothing and of hundreds; one head that grows, one that resets with every token.
  static void harden(rng& random, op& x) {
    constexpr accum steps[] = {accum(1e-6), accum(0.1), accum(1), accum(50), accum(200), accum(1e4)};
    x.dt_min = 0;
    x.dt_max = std::numeric_limits<accum>::infinity();
    x.dt_softplus = false;
    x.dt_bias = {};
    for_each(x.dt, [&](const accum& d, index_t) { const_cast<accum&>(d) = steps[random.integer(0, 5)]; });
    const index_t H = x.A.extent(0);
    if (H > 1) const_cast<accum&>(x.A(0)) = -std::numeric_limits<accum>::infinity();
    if (H > 2) {
      const_cast<accum&>(x.A(1)) = accum(0.05);
      for_each(x.dt.slice(2, 1, 1), [](const accum& d, index_t) { const_cast<accum&>(d) = accum(1); });
    }
  }

  /// Decays from −50 to −1e-6, side by side. Steps of next to nothing may be moved below 0.
  static void strengthen(rng& random, op& x) {
    constexpr accum steps[] = {accum(5e-7), accum(0.05), accum(1), accum(25)};
    x.dt_min = -1;
    x.dt_max = std::numeric_limits<accum>::infinity();
    x.dt_softplus = false;
    x.dt_bias = {};
    for_each(x.A, [](const accum& a, index_t h) { const_cast<accum&>(a) = accum(-2) / static_cast<accum>(1 + h); });
    for_each(x.dt, [&](const accum& d, index_t) { const_cast<accum&>(d) = steps[random.integer(0, 3)]; });
  }

  /// Moves steps away from the limits, where they have no slope.
  static void smooth(op& x) {
    for_each(x.dt, [&](const accum& dt, index_t i) {
      const accum bias = x.dt_bias.present() ? x.dt_bias[i % x.dt.extent(2)] : accum(0);
      const auto near = [&](accum limit) {
        const accum raw = dt + bias, d = x.dt_softplus ? reference::softplus(raw) : raw;
        return std::fabs(d - limit) < accum(0.01);
      };
      while (near(x.dt_min) || near(x.dt_max)) const_cast<accum&>(dt) += accum(0.01);
    });
  }

  static shape<4> output(const op& x) { return x.x.extents(); }
  static shape<3> slot(const op& x) { return {x.x.extent(2), x.B.extent(3), x.x.extent(3)}; }

  template <class Acc, class State>
  static void define(const op& x, const State& st, const view<double, 4>& y) {
    reference::evaluate<Acc>(x, st, y);
  }
  template <class Acc, class State>
  static void define_masked(const op& x, const State& st, const view<double, 4>& y) {
    reference::evaluate_masked<Acc>(x, st, y);
  }
  static op absolute(op x, memory& room) {
    x.x = testing::absolute(room, x.x);
    x.B = testing::absolute(room, x.B);
    x.C = testing::absolute(room, x.C);
    x.D = testing::absolute(room, x.D);
    return x;
  }
  /// Δ is a factor of what is written, beside decays that it makes vanish.
  static double largest_step(const op& x) { return max_abs(x.dt); }
  /// Sums over the tokens and the state; a few per token for its decay, whose exponent loses |g| units of its last
  /// place, up to where the exponential is 0.
  static index_t roundings(const op& x) {
    const double vanished = -std::log(static_cast<double>(std::numeric_limits<accum>::min()));
    const index_t N = x.B.extent(3);
    return 6 * x.x.extent(1) + 2 * N + l2norm_roundings(x, N) + 32 + 6 * static_cast<index_t>(vanished);
  }
};

}  // namespace ogive::testing

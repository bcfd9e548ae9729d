// Samples of the systems whose channels share a state: dense ones, S5, LRU.
#pragma once

#include <ogive/ops/lru.hpp>
#include <ogive/ops/lti.hpp>
#include <ogive/ops/s5.hpp>
#include <ogive/testing/samplers/spectral_norms.hpp>

namespace ogive::testing {

/// What they have in common.
template <class Op>
struct shared_state_sampler {
  static constexpr std::tuple tokens{&Op::u};

  static shape<3> output(const Op& x) { return {x.u.extent(0), x.u.extent(1), x.C.extent(0)}; }
  static shape<1> slot(const Op& x) { return {x.C.extent(1)}; }
  template <class Acc, class State>
  static void define(const Op& x, const State& st, const view<double, 3>& y) {
    reference::evaluate<Acc>(x, st, y);
  }
};

template <storage T>
struct sampler<lti<T>> : shared_state_sampler<lti<T>> {
  using op = lti<T>;
  using accum = accum_t<T>;
  static constexpr std::tuple parameters{&op::A_bar, &op::B_bar, &op::C, &op::D};
  static constexpr std::tuple gradients{&gradient<op>::u, &gradient<op>::A_bar, &gradient<op>::B_bar, &gradient<op>::C,
                                        &gradient<op>::D};

  /// Rows of A̅ sum to less than one.
  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    const index_t M = odd_extent(random, 40), N = odd_extent(random, 64), P = odd_extent(random, 40);
    const double most = 1 / static_cast<double>(N);
    op x;
    x.u = draw_uniform<T>(random, room, shape<3>{batch, length, M});
    x.A_bar = draw_uniform<accum>(random, room, shape<2>{N, N}, -most, most);
    x.B_bar = draw_uniform<accum>(random, room, shape<2>{N, M});
    x.C = draw_uniform<accum>(random, room, shape<2>{P, N});
    if (coin(random)) x.D = draw_uniform<accum>(random, room, shape<2>{P, M});
    return x;
  }
  static spectral_norms<op> absolute(op x, memory& room) {
    x.u = testing::absolute(room, x.u);
    x.A_bar = testing::absolute(room, x.A_bar);
    x.B_bar = testing::absolute(room, x.B_bar);
    x.C = testing::absolute(room, x.C);
    x.D = testing::absolute(room, x.D);
    return {x};
  }
  /// A sum over the state and the inputs per token, then over the state and the inputs once more.
  static index_t roundings(const op& x) {
    const index_t M = x.u.extent(2), N = x.A_bar.extent(0);
    return x.u.extent(1) * (N + 1) + 2 * M + N + 4;
  }
};

template <storage T>
struct sampler<s5<T>> : shared_state_sampler<s5<T>> {
  using op = s5<T>;
  using accum = accum_t<T>;
  using number = typename op::number;
  static constexpr std::tuple parameters{&op::A, &op::B, &op::C, &op::dt, &op::D};
  static constexpr std::tuple gradients{&gradient<op>::u, &gradient<op>::A,  &gradient<op>::B,
                                        &gradient<op>::C, &gradient<op>::dt, &gradient<op>::D};

  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    const index_t M = odd_extent(random, 40), N = odd_extent(random, 65), P = coin(random) ? M : odd_extent(random, 40);
    op x;
    x.u = draw_uniform<T>(random, room, shape<3>{batch, length, M});
    const auto A = room.take<number>(shape<1>{N});
    for_each(A, [&](number& rate, index_t) {
      rate = number(static_cast<accum>(-random.uniform(0, 2)), static_cast<accum>(random.uniform(-3, 3)));
    });
    x.A = A;
    x.B = draw_uniform<number>(random, room, shape<2>{N, M});
    x.C = draw_uniform<number>(random, room, shape<2>{P, N});
    x.dt = draw_uniform<accum>(random, room, shape<1>{N}, 0.01, 1);
    if (M == P && coin(random)) x.D = draw_uniform<accum>(random, room, shape<1>{M});
    constexpr discretisation stable[] = {discretisation::zoh, discretisation::mamba, discretisation::bilinear,
                                         discretisation::backward_euler, discretisation::generalised_bilinear};
    x.rule = stable[random.integer(0, 4)];
    if (x.rule == discretisation::generalised_bilinear) x.alpha = 0.75;
    return x;
  }

  /// Steps of next to nothing and of hundreds, rates of 0 and of what is gone at once.
  static void harden(rng& random, op& x) {
    constexpr accum steps[] = {accum(1e-6), accum(0.1), accum(1), accum(50), accum(200)};
    for_each(x.dt, [&](const accum& d, index_t) { const_cast<accum&>(d) = steps[random.integer(0, 4)]; });
    const index_t N = x.A.extent(0);
    const_cast<number&>(x.A(0)) = number(-1000);
    if (N > 1) const_cast<number&>(x.A(1)) = number(0);
    if (N > 2) const_cast<number&>(x.A(2)) = number(0, 2);
  }

  /// Modes |a| and |w|, as the rule exp(Δ A), Δ makes them of log|a|/Δ and a B that has the rest.
  static spectral_norms<op> absolute(op x, memory& room) {
    const auto rates = room.copy(x.A);
    const auto in = room.copy(testing::absolute(room, x.B));
    for (index_t n = 0; n < x.A.extent(0); ++n) {
      const auto mode = x.template mode<double>(n);
      const auto step = static_cast<double>(x.dt[n]);
      rates[n] = number(static_cast<accum>(std::log(std::abs(mode.a)) / step));
      for (index_t m = 0; m < in.extent(1); ++m) in(n, m) *= static_cast<accum>(std::abs(mode.w) / step);
    }
    x.A = rates;
    x.B = in;
    x.rule = discretisation::mamba;
    x.u = testing::absolute(room, x.u);
    x.C = testing::absolute(room, x.C);
    x.D = testing::absolute(room, x.D);
    return {x};
  }
  /// Three products of two numbers per token and the error of a, then sums over inputs and modes; some for a and w.
  static index_t roundings(const op& x) { return 8 * x.u.extent(1) + 4 * (x.u.extent(2) + x.A.extent(0)) + 32; }
};

template <storage T>
struct sampler<lru<T>> : shared_state_sampler<lru<T>> {
  using op = lru<T>;
  using accum = accum_t<T>;
  using number = typename op::number;
  static constexpr std::tuple parameters{&op::nu_log, &op::theta_log, &op::gamma_log, &op::B, &op::C, &op::D};
  static constexpr std::tuple gradients{&gradient<op>::u,         &gradient<op>::nu_log, &gradient<op>::theta_log,
                                        &gradient<op>::gamma_log, &gradient<op>::B,      &gradient<op>::C,
                                        &gradient<op>::D};

  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    const index_t M = odd_extent(random, 40), N = odd_extent(random, 65), P = coin(random) ? M : odd_extent(random, 40);
    op x;
    x.u = draw_uniform<T>(random, room, shape<3>{batch, length, M});
    x.nu_log = draw_uniform<accum>(random, room, shape<1>{N}, -6, 0);
    x.theta_log = draw_uniform<accum>(random, room, shape<1>{N}, -3, 1);
    if (coin(random)) x.gamma_log = draw_uniform<accum>(random, room, shape<1>{N}, -2, 0);
    x.B = draw_uniform<number>(random, room, shape<2>{N, M});
    x.C = draw_uniform<number>(random, room, shape<2>{P, N});
    if (M == P && coin(random)) x.D = draw_uniform<accum>(random, room, shape<1>{M});
    return x;
  }
  /// Modes that never forget, and modes that do so at once.
  static void harden(rng& random, op& x) {
    constexpr accum sizes[] = {accum(-30), accum(-12), accum(-3), accum(2), accum(6)};
    for_each(x.nu_log, [&](const accum& nu, index_t) { const_cast<accum&>(nu) = sizes[random.integer(0, 4)]; });
  }
  static spectral_norms<op> absolute(op x, memory& room) {
    const auto angles = room.copy(x.theta_log);
    for_each(angles, [](accum& angle, index_t) { angle = -std::numeric_limits<accum>::infinity(); });
    x.theta_log = angles;
    x.u = testing::absolute(room, x.u);
    x.B = testing::absolute(room, x.B);
    x.C = testing::absolute(room, x.C);
    x.D = testing::absolute(room, x.D);
    return {x};
  }
  static index_t roundings(const op& x) { return 8 * x.u.extent(1) + 4 * (x.u.extent(2) + x.C.extent(1)) + 32; }
};

}  // namespace ogive::testing

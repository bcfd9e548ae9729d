// Samples of the selective scan.
#pragma once

#include <ogive/ops/selective_scan.hpp>
#include <ogive/reference/selective_scan.hpp>
#include <ogive/testing/samplers.hpp>

namespace ogive::testing {

template <storage T, class AType>
struct sampler<selective_scan<T, AType>> {
  using op = selective_scan<T, AType>;
  using accum = accum_t<T>;
  using operand = typename op::operand;
  static constexpr bool splits_time = true;
  static constexpr std::tuple tokens{&op::u, &op::dt, &op::B, &op::C, &op::z};
  static constexpr std::tuple parameters{&op::A, &op::D, &op::dt_bias};
  static constexpr std::tuple gradients{&gradient<op>::u, &gradient<op>::dt, &gradient<op>::B, &gradient<op>::C,
                                        &gradient<op>::z, &gradient<op>::A,  &gradient<op>::D, &gradient<op>::dt_bias};

  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    // Half of the samples are as models are: few groups, each of many channels, all operands per token.
    const bool usual = coin(random);
    const index_t G = random.integer(1, 2);
    const index_t D = !usual ? random.integer(1, 40) : G == 1 ? random.integer(1, 100) : G * 16 * random.integer(1, 3);
    const index_t N = odd_extent(random, 17);
    op x;
    x.dt_softplus = coin(random);
    x.u = draw_uniform<T>(random, room, shape<3>{batch, length, D});
    x.dt = draw_uniform<accum>(random, room, shape<3>{batch, length, D}, x.dt_softplus ? -3 : 0.01, 1);
    const auto A = room.take<AType>(shape<2>{D, N});
    for_each(A, [&](AType& rate, index_t) {
      const auto decay = static_cast<accum>(-random.uniform(0.1, 2));
      if constexpr (op::complex) {
        rate = AType(decay, static_cast<accum>(random.uniform(-3, 3)));
      } else {
        rate = decay;
      }
    });
    x.A = A;
    const auto operand_of = [&] {
      if (usual || random.integer(0, 2) > 0) {
        const index_t groups = usual ? G : divisor_of(random, D);
        return view<const operand, 4>(draw_uniform<operand>(random, room, shape<4>{batch, length, groups, N}));
      }
      return constant_over_time(view<const operand, 2>(draw_uniform<operand>(random, room, shape<2>{D, N})), batch,
                                length);
    };
    x.B = operand_of();
    x.C = operand_of();
    if (coin(random)) x.D = draw_uniform<accum>(random, room, shape<1>{D});
    if (coin(random)) x.z = draw_uniform<T>(random, room, shape<3>{batch, length, D}, -3, 3);
    if (coin(random)) x.dt_bias = draw_uniform<accum>(random, room, shape<1>{D}, 0, 0.5);
    if (!usual && coin(random)) x.rule = discretisation::zoh;
    return x;
  }

  /// Steps of next to nothing and of hundreds; real rates of 0, of growth and of −∞.
  static void harden(rng& random, op& x) {
    constexpr accum steps[] = {accum(1e-6), accum(0.1), accum(1), accum(50), accum(200)};
    x.dt_softplus = false;
    x.dt_bias = {};
    const index_t D = x.u.extent(2);
    for_each(x.dt, [&](const accum& d, index_t i) {
      const_cast<accum&>(d) = i % D == 1 ? accum(1) : steps[random.integer(0, 4)];
    });
    if constexpr (!op::complex) {
      const_cast<AType&>(x.A(0, 0)) = -std::numeric_limits<AType>::infinity();
      const index_t N = x.A.extent(1);
      if (D > 1) const_cast<AType&>(x.A(1, 0)) = AType(0.05);
      if (D > 2) const_cast<AType&>(x.A(2, N - 1)) = AType(0);
    }
  }

  static shape<3> output(const op& x) { return x.u.extents(); }
  static shape<2> slot(const op& x) { return {x.u.extent(2), x.A.extent(1)}; }

  template <class Acc, class State>
  static void define(const op& x, const State& st, const view<double, 3>& y) {
    reference::evaluate<Acc>(x, st, y);
  }
  static op absolute(op x, memory& room) {
    x.u = testing::absolute(room, x.u);
    x.B = testing::absolute(room, x.B);
    x.C = testing::absolute(room, x.C);
    x.D = testing::absolute(room, x.D);
    if constexpr (op::complex) {
      const auto decay = room.copy(x.A);
      for_each(decay, [](AType& rate, index_t) { rate = AType(rate.real()); });
      x.A = decay;
    }
    return x;
  }
  /// Δ is a factor of what is written, beside decays that it makes vanish.
  static double largest_step(const op& x) { return max_abs(x.dt); }
  /// Sums over the tokens and the state; a few per token for its decay, whose exponent loses |g| units of its last
  /// place, up to where the exponential is 0. Angles are three times as long.
  static index_t roundings(const op& x) {
    const double vanished = -std::log(static_cast<double>(std::numeric_limits<accum>::min()));
    return (op::complex ? 20 : 6) * (x.u.extent(1) + static_cast<index_t>(vanished)) + 2 * x.A.extent(1) + 32;
  }
};

}  // namespace ogive::testing

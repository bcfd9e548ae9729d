// Samples of S4D.
#pragma once

#include <ogive/ops/s4d.hpp>
#include <ogive/testing/samplers/spectral_norms.hpp>

namespace ogive::testing {

template <storage T, class AType>
struct sampler<s4d<T, AType>> {
  using op = s4d<T, AType>;
  using accum = accum_t<T>;
  static constexpr std::tuple tokens{&op::u};
  static constexpr std::tuple parameters{&op::A, &op::B, &op::C, &op::dt, &op::D};
  static constexpr std::tuple gradients{&op::gradient::u, &op::gradient::A,  &op::gradient::B,
                                        &op::gradient::C, &op::gradient::dt, &op::gradient::D};

  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    const index_t D = odd_extent(random, 40), N = odd_extent(random, op::complex ? 33 : 65);
    op x;
    x.u = draw_uniform<T>(random, room, shape<3>{batch, length, D});
    const auto A = room.take<AType>(shape<2>{D, N});
    for_each(A, [&](AType& rate, index_t) {
      rate = AType(static_cast<accum>(-random.uniform(0.1, 2)));
      if constexpr (op::complex) rate += AType(0, static_cast<accum>(random.uniform(-20, 20)));
    });
    x.A = A;
    x.B = draw_uniform<AType>(random, room, shape<2>{D, N});
    x.C = draw_uniform<AType>(random, room, shape<2>{D, N});
    x.dt = draw_uniform<accum>(random, room, shape<1>{D}, 0.001, 0.1);
    if (coin(random)) x.D = draw_uniform<accum>(random, room, shape<1>{D});
    constexpr discretisation rules[] = {discretisation::zoh,      discretisation::zoh,
                                        discretisation::bilinear, discretisation::mamba,
                                        discretisation::euler,    discretisation::backward_euler,
                                        discretisation::none,     discretisation::generalised_bilinear};
    x.rule = rules[random.integer(0, 7)];
    x.alpha = random.uniform(0.3, 1);
    const bool steps = x.rule == discretisation::none || x.rule == discretisation::euler;
    if (steps) {  // |Ā| < 1
      for_each(A, [&](AType& rate, index_t) {
        rate = AType(static_cast<accum>(random.uniform(-0.6, 0.6)));
        if constexpr (op::complex) rate += AType(0, static_cast<accum>(random.uniform(-0.6, 0.6)));
        if (x.rule == discretisation::euler) rate = (rate - AType(1)) / accum(0.1);
      });
    }
    return x;
  }

  /// Slower modes: differences cut off what grows with the fifth power of a rate.
  static void smooth(op& x) {
    if (x.rule == discretisation::none) return;
    for_each(x.A, [](const AType& rate, index_t) {
      if constexpr (op::complex) {
        const_cast<AType&>(rate) = AType(std::max(rate.real(), accum(-1)), rate.imag() / accum(20));
      } else {
        const_cast<AType&>(rate) = std::max(rate, accum(-1));
      }
    });
  }

  /// Modes that never fade, and ones that are gone at once.
  static void harden(rng& random, op& x) {
    if (x.rule == discretisation::none || x.rule == discretisation::euler) return;
    for_each(x.A, [&](const AType& rate, index_t) {
      constexpr accum rates[] = {accum(0), accum(-1e-6), accum(-1), accum(-500), accum(-1e5)};
      const accum re = rates[random.integer(0, 4)];
      if constexpr (op::complex) {
        const_cast<AType&>(rate) = AType(re, rate.imag());
      } else {
        const_cast<AType&>(rate) = re;
      }
    });
  }

  static shape<3> output(const op& x) { return x.u.extents(); }
  static shape<2> slot(const op& x) { return {x.A.extent(0), x.A.extent(1)}; }

  template <class Acc, class State>
  static void define(const op& x, const State& st, const view<double, 3>& y) {
    reference::evaluate<Acc>(x, st, y);
  }
  /// The same modes with Ā and B̄ as moduli.
  static spectral_norms<op> absolute(op x, memory& room) {
    const auto A_bar = room.take<AType>(x.A.extents()), B_bar = room.take<AType>(x.A.extents());
    discretise(x, A_bar, B_bar);
    x.u = testing::absolute(room, x.u);
    x.A = testing::absolute(room, view<const AType, 2>(A_bar));
    x.B = testing::absolute(room, view<const AType, 2>(B_bar));
    x.C = testing::absolute(room, x.C);
    x.D = testing::absolute(room, x.D);
    x.rule = discretisation::none;
    return {x};
  }
  /// A complex product, b u and a sum per token, ā and b̄ rounded; the sum over the modes.
  static index_t roundings(const op& x) { return (op::complex ? 12 : 5) * x.u.extent(1) + 2 * x.A.extent(1) + 16; }
};

}  // namespace ogive::testing

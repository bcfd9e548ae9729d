// Samples of S4.
#pragma once

#include <ogive/ops/s4.hpp>
#include <ogive/reference/s4.hpp>
#include <ogive/testing/samplers.hpp>

namespace ogive::testing {

/// The moduli of u, of all coefficients and of C and D: what a system of them gives is what the terms of S4 sum up to.
struct s4_magnitudes {
  view<const double, 3> u{};
  view<const double, 2> A{}, B{}, C{};
  view<const double, 3> U{}, Q{};
  view<const double, 1> D{};
  integers lengths{}, offsets{};
};

template <>
struct sampler<s4_magnitudes> {
  template <class Acc, class State>
  static void define(const s4_magnitudes& x, const State& given, const view<double, 3>& y) {
    const auto st = reference::state_of(given);
    const index_t N = x.A.extent(1), R = x.U.extent(1);
    for (index_t c = 0; c < x.u.extent(2); ++c) {
      index_t s = 0;
      for (const auto& [b, begin, end, live] : reference::sequences(x, x.u.extent(0), x.u.extent(1))) {
        auto h = reference::load<double, std::complex<double>>(st.initial, st.initial_slots, s, c, {N});
        for (index_t t = begin; t < end; ++t) {
          std::vector<double> read(static_cast<std::size_t>(R));
          double sum = x.D.present() ? x.D(c) * x.u(b, t, c) : 0;
          for (index_t r = 0; r < R; ++r)
            for (index_t n = 0; n < N; ++n) read[static_cast<std::size_t>(r)] += 2 * x.Q(c, r, n) * std::abs(h(n));
          for (index_t n = 0; n < N; ++n) {
            double next = x.A(c, n) * std::abs(h(n)) + x.B(c, n) * x.u(b, t, c);
            for (index_t r = 0; r < R; ++r) next += x.U(c, r, n) * read[static_cast<std::size_t>(r)];
            if (t < live) h(n) = next;
            sum += 2 * x.C(c, n) * std::abs(h(n));
          }
          if (y.present()) y(b, t, c) = sum;
        }
        reference::store(st.final, st.final_slots, s, c, h);
        ++s;
      }
    }
  }
};

template <storage T>
struct sampler<s4<T>> {
  using op = s4<T>;
  using accum = accum_t<T>;
  using number = typename op::number;
  static constexpr std::tuple tokens{&op::u};
  static constexpr std::tuple parameters{&op::Lambda, &op::P, &op::B, &op::C, &op::dt, &op::D, &op::Q};
  using slope = typename op::gradient;
  static constexpr std::tuple gradients{&slope::u, &slope::Lambda, &slope::P, &slope::B,
                                        &slope::C, &slope::dt,     &slope::D, &slope::Q};

  /// P so small that the moduli of A̅ hardly grow.
  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    const index_t D = odd_extent(random, 20), N = odd_extent(random, 9), R = random.integer(0, 3);
    const double small = 1 / std::sqrt(static_cast<double>(N));
    op x;
    x.u = draw_uniform<T>(random, room, shape<3>{batch, length, D});
    const auto Lambda = room.take<number>(shape<2>{D, N});
    for_each(Lambda, [&](number& mode, index_t) {
      mode = number(static_cast<accum>(-random.uniform(0, 2)), static_cast<accum>(random.uniform(-20, 20)));
    });
    x.Lambda = Lambda;
    x.P = draw_uniform<number>(random, room, shape<3>{D, R, N}, -small, small);
    x.B = draw_uniform<number>(random, room, shape<2>{D, N});
    x.C = draw_uniform<number>(random, room, shape<2>{D, N});
    x.dt = draw_uniform<accum>(random, room, shape<1>{D}, 0.001, 0.1);
    if (coin(random)) x.D = draw_uniform<accum>(random, room, shape<1>{D});
    if (coin(random)) {  // the same, discretised
      const auto a = room.take<number>(shape<2>{D, N}), B_bar = room.take<number>(shape<2>{D, N});
      const auto U = room.take<number>(shape<3>{D, R, N}), Q = room.take<number>(shape<3>{D, R, N});
      discretise(x, a, B_bar, U, Q);
      x.Lambda = a;
      x.B = B_bar;
      x.P = U;
      x.Q = Q;
      x.dt = {};
    }
    return x;
  }

  /// Slower modes: differences cut off what grows with the fifth power of a rate.
  static void smooth(op& x) {
    if (x.Q.present()) return;
    for_each(x.Lambda, [](const number& mode, index_t) {
      const_cast<number&>(mode) = number(std::max(mode.real(), accum(-1)), mode.imag() / accum(20));
    });
  }

  /// Modes that never fade, ones that are gone at once, and long steps.
  static void harden(rng& random, op& x) {
    if (x.Q.present()) return;
    for_each(x.Lambda, [&](const number& mode, index_t) {
      constexpr accum rates[] = {accum(0), accum(-1e-6), accum(-1), accum(-500), accum(-1e5)};
      const_cast<number&>(mode) = number(rates[random.integer(0, 4)], mode.imag());
    });
  }

  static shape<3> output(const op& x) { return x.u.extents(); }
  static shape<2> slot(const op& x) { return {x.channels(), x.states()}; }

  template <class Acc, class State>
  static void define(const op& x, const State& st, const view<double, 3>& y) {
    reference::evaluate<Acc>(x, st, y);
  }

  static s4_magnitudes absolute(const op& x, memory& room) {
    const index_t D = x.channels(), N = x.states(), R = x.rank();
    const auto A = room.take<double>(shape<2>{D, N}), B = room.take<double>(shape<2>{D, N});
    const auto C = room.take<double>(shape<2>{D, N});
    const auto U = room.take<double>(shape<3>{D, R, N}), Q = room.take<double>(shape<3>{D, R, N});
    tensor<std::complex<double>, 1> a({N}), b({N});
    tensor<std::complex<double>, 2> u({R, N}), q({R, N});
    for (index_t d = 0; d < D; ++d) {
      x.coefficients(d, {a, u, q, b});
      for (index_t n = 0; n < N; ++n) {
        A(d, n) = std::abs(a(n));
        B(d, n) = std::abs(b(n));
        C(d, n) = std::abs(std::complex<double>(x.C(d, n)));
        for (index_t r = 0; r < R; ++r) {
          U(d, r, n) = std::abs(u(r, n));
          Q(d, r, n) = std::abs(q(r, n));
        }
      }
    }
    s4_magnitudes size{.A = A, .B = B, .C = C, .U = U, .Q = Q, .lengths = x.lengths, .offsets = x.offsets};
    const auto in = room.take<double>(x.u.extents());
    for (index_t i = 0; i < in.extent(0); ++i)
      for (index_t t = 0; t < in.extent(1); ++t)
        for (index_t d = 0; d < D; ++d) in(i, t, d) = std::abs(static_cast<double>(x.u(i, t, d)));
    size.u = in;
    if (x.D.present()) {
      const auto skip = room.take<double>(shape<1>{D});
      for (index_t d = 0; d < D; ++d) skip(d) = std::abs(static_cast<double>(x.D(d)));
      size.D = skip;
    }
    return size;
  }
  /// Per token the sums that read the state, R of them that write it, and a complex product; as many again for the
  /// coefficients, which solve R equations. Then the sum over the modes.
  static index_t roundings(const op& x) {
    const index_t N = x.states(), R = x.rank();
    return x.u.extent(1) * 2 * (2 * N + 4 * R + 10) + 4 * N + 32;
  }
};

}  // namespace ogive::testing

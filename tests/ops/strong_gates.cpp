// A gate that forgets nearly everything is worth its exponential, however small: values, states and outputs before it
// that are larger by as much leave what they would leave without it. So do gradients.
#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/delta_rules.hpp>
#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/samplers/low_rank.hpp>
#include <ogive/testing/samplers/ssd.hpp>

#include "tests/catch.hpp"

using namespace ogive;

namespace {

constexpr index_t strong = 58;  // sums of numbers of e^58 and e^-58, and of their products with others, are floats

/// The values of an operator, or their gradients: v, or x of SSD.
template <class X>
auto& values_of(X& of) {
  if constexpr (requires { of.v; }) {
    return of.v;
  } else {
    return of.x;
  }
}

/// Arguments with a gate of 0 here and there, and the same with −58 in its place, or −29 twice.
template <class Op>
struct exchanged {
  using S = testing::storage_of<Op>;
  testing::trial<Op> x;
  testing::memory room{};
  testing::state_for<Op, S> given{}, large{};
  testing::cotangents_of<Op> c{}, small{};
  Op op{};
  index_t L, H;
  tensor<double, 3> tail;  // [B, L + 1, H]: the strong gates from a token on

  explicit exchanged(std::uint64_t seed)
      : x(seed, 65),
        L(testing::length_of(x.op)),
        H(values_of(x.op).extent(2)),
        tail({testing::sequence_count(x.op), L + 1, H}, 0.0) {
    if constexpr (requires { x.op.u; }) x.op.u = {};  // what a bonus reads has not gone through the gate
    if constexpr (requires { x.op.dt; }) {
      testing::for_each(x.op.dt, [](const S& step, index_t) { const_cast<S&>(step) = std::fabs(step); });
      x.op.dt_softplus = false;
      x.op.dt_bias = {};
      x.op.dt_min = 0, x.op.dt_max = std::numeric_limits<S>::infinity();
    }
    given = testing::draw_state<S>(x.random, x.room, x.op, tail.extent(0));
    c = testing::detail::draw_cotangents(x.random, x.room, x.op);
    tensor<double, 3> gamma({tail.extent(0), L, H}, 0.0);
    for (index_t b = 0; b < tail.extent(0); ++b) {
      for (index_t h = 0; h < H; ++h) {
        const bool twice = testing::coin(x.random);
        for (int i = 0; i < (twice ? 2 : 1); ++i) {
          gamma(b, x.random.integer(0, L - 1), h) -= static_cast<double>(twice ? strong / 2 : strong);
        }
        for (index_t t = L; t-- > 0;) tail(b, t, h) = tail(b, t + 1, h) + gamma(b, t, h);
      }
    }
    op = testing::copy_of(x.op, room);
    for_gates(x.op, gamma, [](auto& g, double) { g = 0; });
    for_gates(op, gamma, [](auto& g, double own) { g = static_cast<std::remove_cvref_t<decltype(g)>>(own); });
    values_of(op) = scaled(values_of(op), 1, -1);
    large = given;
    large.initial = room.copy(given.initial);
    scale_states(large.initial, -1);
    small = c;
    small.o = scaled(c.o, reads, 1);
  }

  static constexpr int reads = [] {
    if constexpr (requires(Op some) { some.operands(); }) {
      return decltype(std::declval<Op>().operands())::reads == read::after ? 1 : 0;
    } else {
      return Op::reads == read::after ? 1 : 0;
    }
  }();

  /// x [B, L, ·, V] times e^±tail, `after` the token's own gate or before it.
  template <class X>
  view<const X, 4> scaled(const view<const X, 4>& from, int after, double sign) {
    const auto to = room.copy(from);
    scale_rows(to, after, sign);
    return to;
  }
  template <class X>
  void scale_rows(const view<X, 4>& rows, int after, double sign) const {
    const bool outputs = rows.extent(2) != H;
    for (index_t h = 0; h < H; ++h) {
      const auto scale = [&](index_t head) {
        for (index_t b = 0; b < rows.extent(0); ++b) {
          for (index_t t = 0; t < L; ++t) {
            testing::for_each(rows[b][t][head], times(std::exp(sign * tail(b, t + after, h))));
          }
        }
      };
      if constexpr (requires { op.operands(); }) {
        if (outputs) reference::detail::for_outputs(op, h, [&](index_t out, index_t) { scale(out); });
      }
      if (!outputs) scale(h);
    }
  }
  template <class X>
  void scale_states(const view<X, 4>& states, double sign) const {
    for (index_t b = 0; b < states.extent(0); ++b) {
      for (index_t h = 0; h < H; ++h) testing::for_each(states[b][h], times(std::exp(sign * tail(b, 0, h))));
    }
  }
  static auto times(double by) {
    return [by](const auto& number, index_t) {
      auto& to = const_cast<std::remove_cvref_t<decltype(number)>&>(number);
      to = static_cast<std::remove_cvref_t<decltype(number)>>(static_cast<double>(to) * by);
    };
  }
  /// f(gate, γ) for the gates of strong tokens. Removals read before the gate: there is none at them. Nor are there
  /// values of SSD, whose steps weigh them, too.
  template <class F>
  void for_gates(Op& some, const tensor<double, 3>& gamma, const F& f) const {
    for (index_t b = 0; b < gamma.extent(0); ++b) {
      for (index_t t = 0; t < L; ++t) {
        for (index_t h = 0; h < H; ++h) {
          if (gamma(b, t, h) == 0) continue;
          const auto set = [&](const auto& g, double own) { f(const_cast<std::remove_cvref_t<decltype(g)>&>(g), own); };
          const auto all = [&](const auto& gates) {
            testing::for_each(gates, [&](const auto& g, index_t) { set(g, gamma(b, t, h)); });
          };
          if constexpr (requires { some.dt; }) {
            set(some.dt(b, t, h), gamma(b, t, h) / static_cast<double>(some.A(h)));
            testing::for_each(some.x[b][t][h], times(0));
          } else if constexpr (requires { some.w; }) {
            all(some.w[b][t][h]);
          } else if constexpr (decltype(some.g)::rank == 3) {
            set(some.g(b, t, h), gamma(b, t, h));
          } else {
            all(some.g[b][t][h]);
          }
          if constexpr (requires { some.b; }) testing::for_each(some.b[b][t], times(0));
        }
      }
    }
  }
  /// The exponent of a chunk is a sum of up to L gates, each of which rounds it by up to so many units.
  index_t roundings() const { return L * strong; }
};

}  // namespace

TEMPLATE_TEST_CASE("what stands before a strong gate counts as its exponential", "", simple_gla<float>, gla<float>,
                   rwkv6<float>, gated_delta_rule<float>, kda<float>, dplr<float>, ssd<float>) {
  OGIVE_SEED(seed, 340);
  testing::for_seeds(seed, 6, [](std::uint64_t s) {
    const exchanged<TestType> e(s);
    const testing::definition<TestType> right(e.x.op, e.given);
    for (const testing::way& how : testing::ways<TestType>()) {
      const auto got = testing::run<float>(how, e.op, e.large);
      e.scale_rows(got.o, e.reads, 1);
      INFO(e.x << how);
      CHECK(right.excess(got, 1 + e.roundings()) == "");
    }
  });
}

TEMPLATE_TEST_CASE("gradients of what stands before a strong gate count as its exponential", "", simple_gla<double>,
                   gla<double>, rwkv6<double>, gated_delta_rule<double>, kda<double>, dplr<double>) {
  OGIVE_SEED(seed, 341);
  testing::for_seeds(seed, 6, [](std::uint64_t s) {
    const exchanged<TestType> e(s);
    const auto right = testing::detail::run_backward(e.x.op, e.given, e.c, {});
    const double most = testing::detail::largest_gradient(e.x.op, right);
    const double bound =
        testing::detail::gradient_bound(e.x.op, most) + testing::tolerance<double>(e.roundings(), 1 + most);
    for (const index_t chunk : {0, 1, 3, 16, 64}) {
      auto got = testing::detail::run_backward(e.op, e.large, e.small, {.chunk = chunk});
      e.scale_rows(values_of(got.d), 1, -1);
      e.scale_states(got.st.initial, -1);
      if constexpr (requires { got.d.b; }) {  // a removal at a strong gate would have steep slopes
        got.d.b = right.d.b;
      }
      INFO(e.x << "chunks of " << chunk);
      CHECK(testing::detail::gradient_gap(e.op, got, right, bound) == "");
    }
  });
}

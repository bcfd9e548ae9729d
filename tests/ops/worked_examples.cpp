// A scalar system held over its steps, through the selective scan: numbers that can be checked by hand.
#include <ogive/ops/selective_scan.hpp>
#include <ogive/reference/selective_scan.hpp>

#include <vector>

#include "tests/within.hpp"

using namespace ogive;
using tests::WithinDecimals;
using tests::WithinRoundings;

namespace {

/// h' = −h + 2 x, held over steps of 0.5.
struct held_system {
  std::vector<double> x, dt;
  double A = -1, B = 2, C = 1;

  explicit held_system(std::vector<double> input) : x(std::move(input)), dt(x.size(), 0.5) {}

  selective_scan<double> op() const {
    const auto L = static_cast<index_t>(x.size());
    selective_scan<double> scan;
    scan.u = {x, {1, L, 1}};
    scan.dt = {dt, {1, L, 1}};
    scan.A = {&A, {1, 1}};
    scan.B = constant_over_time(view<const double, 2>(&B, {1, 1}), 1, L);
    scan.C = constant_over_time(view<const double, 2>(&C, {1, 1}), 1, L);
    scan.rule = discretisation::zoh;
    return scan;
  }
};

}  // namespace

TEST_CASE("a system held over its steps is the continuous one") {
  const step_pair<double> pair = discretise(discretisation::zoh, 0.5, -1.0, 2.0);
  CHECK_THAT(pair.A, WithinDecimals(0.6065, 4));
  CHECK_THAT(pair.B, WithinDecimals(0.7869, 4));

  const held_system ones({1, 1});
  tensor<double, 3> h({1, 2, 1});
  const auto continuous = [](double t) { return 2 * (1 - std::exp(-t)); };
  const auto right = [&] {
    CHECK_THAT(h(0, 1, 0), WithinDecimals(1.2642, 4));
    // B̄: an exponential (two), the quotient and the product; then Ā (two), its product and the sum.
    CHECK_THAT(h(0, 0, 0), WithinRoundings<double>(continuous(0.5), 4));
    CHECK_THAT(h(0, 1, 0), WithinRoundings<double>(continuous(1), 8));
  };
  SECTION("definition") { reference::evaluate<double>(ones.op(), diagonal_state<double>(), h.all()); }
  SECTION("recurrent") { recurrent(ones.op(), {}, h.all()); }
  SECTION("forward") { forward(ones.op(), {}, h.all()); }
  SECTION("step by step") {
    tensor<double, 3> state({1, 1, 1});
    for (index_t t = 0; t < 2; ++t) {
      auto one = ones.op();
      one.u = one.u.slice(1, t, 1);
      one.dt = one.dt.slice(1, t, 1);
      one.B = one.B.slice(1, t, 1);
      one.C = one.C.slice(1, t, 1);
      step(one, state.all(), h.all().slice(1, t, 1));
    }
    CHECK(state(0, 0, 0) == h(0, 1, 0));
  }
  right();
}

TEST_CASE("the scan is a convolution with its kernel") {
  const held_system system({2, 4, 0, 8}), impulse({1, 0, 0, 0});
  tensor<double, 3> y({1, 4, 1}), K({1, 4, 1});
  forward(system.op(), {}, y.all());
  forward(impulse.op(), {}, K.all());
  double convolved = 0;
  for (index_t lag = 0; lag < 4; ++lag) convolved += K(0, lag, 0) * system.x[static_cast<std::size_t>(3 - lag)];
  CHECK_THAT(convolved, WithinDecimals(7.80468, 5));
  // The same Ā and B̄ on both sides: a product and a sum a token.
  CHECK_THAT(y(0, 3, 0), WithinRoundings<double>(convolved, 2 * 4));
}

// The code of docs/state_space.md, as it stands, and the numbers that the page says it gives.
#include <ogive/maps/discretisation_dense.hpp>
#include <ogive/ops/lti.hpp>
#include <ogive/ops/prepared.hpp>
#include <ogive/ops/s4d.hpp>
#include <ogive/ops/s5.hpp>

#include "tests/within.hpp"

using namespace ogive;
using tests::WithinDecimals;
using tests::WithinRoundings;

TEST_CASE("the numbers of the page on state-space systems are what its code gives", "[docs]") {
#include "state_space.hpp"

  CHECK_THAT(held.A, WithinDecimals(0.6065, 4));
  CHECK_THAT(held.B, WithinDecimals(0.7869, 4));
  CHECK_THAT(h[0], WithinDecimals(0.7869, 4));
  CHECK_THAT(h[1], WithinDecimals(1.2642, 4));
  CHECK_THAT(h[1], WithinRoundings<double>(2 * -std::expm1(-1.0), 8));
  CHECK(streamed[0] == h[0]);
  CHECK(streamed[1] == h[1]);
  CHECK(memory == h[1]);
  CHECK(filtered[0] == h[0]);
  CHECK(filtered[1] == h[1]);
  CHECK(filter.state()(0, 0) == h[1]);

  const double kernel_of_page[] = {0.7869, 0.4773, 0.2895, 0.1756};
  for (int l = 0; l < 4; ++l) CHECK_THAT(K[l], WithinDecimals(kernel_of_page[l], 4));
  CHECK_THAT(convolved, WithinDecimals(7.80468, 5));
  CHECK_THAT(y[3], WithinRoundings<double>(convolved, 2 * 4));

  for (int t = 0; t < 4; ++t) CHECK_THAT(fast[t], WithinRoundings<double>(y[t], 64));

  const double rotating[] = {0.1919, 0.1648, 0.1245, 0.0761};
  for (int l = 0; l < 4; ++l) {
    CHECK_THAT(K_dense[l], WithinDecimals(rotating[l], 4));
    CHECK_THAT(K_mode[l], WithinRoundings<double>(K_dense[l], 64));
  }

  CHECK_THAT(sound[3], WithinDecimals(2.1855, 4));
  for (int t = 0; t < 4; ++t) {
    double sum = 0;
    for (int l = 0; l <= t; ++l) sum += K_mode[l] * x[t - l];
    CHECK_THAT(sound[t], WithinRoundings<double>(sum, 64));
    CHECK_THAT(whole[t], WithinRoundings<double>(sum, 64));
  }
  const double half = dt / 2;
  s4d<double> faster = resonance;
  faster.u = {x, {1, 4, 1}};
  faster.dt = {&half, {1}};
  double expected[4];
  recurrent(faster, {}, view<double, 3>(expected, {1, 4, 1}));
  for (int t = 0; t < 4; ++t) CHECK(doubled[t] == expected[t]);
}

// The code of docs/state_space.md, as it stands, and the numbers that the page says it gives.
#include <ogive/maps/discretisation_dense.hpp>
#include <ogive/maps/hippo.hpp>
#include <ogive/ops/lti.hpp>
#include <ogive/ops/prepared.hpp>
#include <ogive/ops/s4.hpp>
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

  const double legs_of_page[] = {-1, 0, 0, 0, -1.7321, -2, 0, 0}, B_of_page[] = {1, 1.7321, 2.2361, 2.6458};
  for (int i = 0; i < 8; ++i) CHECK_THAT(A_legs[i], WithinDecimals(legs_of_page[i], 4));
  for (int n = 0; n < 4; ++n) CHECK_THAT(B_legs[n], WithinDecimals(B_of_page[n], 4));
  double dense_A_bar[16], dense_B_bar[4], K_of_dense[300];
  discretise_dense(discretisation::bilinear, {&dt, {1}}, {A_legs, {4, 4}}, {B_legs, {4, 1}}, {dense_A_bar, {1, 4, 4}},
                   {dense_B_bar, {1, 4, 1}});
  const lti<double> dense{
      .u = {x, {1, 4, 1}}, .A_bar = {dense_A_bar, {4, 4}}, .B_bar = {dense_B_bar, {4, 1}}, .C = {B_legs, {1, 4}}};
  kernel(dense, view<double, 3>(K_of_dense, {1, 1, 300}));
  // Of the largest tap: matrices of four numbers that are no larger than 8, three times.
  const double tolerance = testing::tolerance<double>(3 * 4, 8 * 8, K_of_dense[0]);
  for (int l = 0; l < 300; ++l) CHECK_THAT(K_long[l], tests::WithinAbs(K_of_dense[l], tolerance));
  const double legs_kernel[] = {1.0881, 0.3269, -0.0263, -0.1582};
  double now = 0;
  for (int l = 0; l < 4; ++l) {
    CHECK_THAT(K_legs[l], WithinDecimals(legs_kernel[l], 4));
    CHECK_THAT(K_legs[l], tests::WithinAbs(K_long[l], tolerance));
    CHECK_THAT(K_turned[l], tests::WithinAbs(K_legs[l], tolerance));
    now += K_of_dense[l] * x[3 - l];
  }
  CHECK_THAT(remembered[3], WithinDecimals(8.2833, 4));
  CHECK_THAT(remembered[3], tests::WithinAbs(now, 14 * tolerance));

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

  CHECK_THAT(loss[0], WithinDecimals(0.7507, 4));
  CHECK_THAT(loss[1], WithinDecimals(0.0111, 4));
}

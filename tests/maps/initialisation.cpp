#include <ogive/maps/initialisation.hpp>

#include "tests/within.hpp"

using namespace ogive;
using tests::WithinDigits;
using tests::WithinRoundings;

TEST_CASE("worked example: S4D-Lin, S4D-Inv and S4D-Real for N = 8") {
  tensor<std::complex<double>, 2> A({2, 4});
  s4d_lin(A.all());
  CHECK(A(1, 0) == std::complex<double>(-0.5, 0));
  CHECK_THAT(A(1, 3).imag(), WithinDigits(-9.424777960769, 13));
  s4d_inv(A.all());
  CHECK_THAT(A(0, 0).imag(), WithinDigits(-17.8253536263, 12));
  CHECK_THAT(A(0, 3).imag(), WithinDigits(-0.36378272707, 11));
  s4d_inv(A.all(), {.real = 3, .imag = 0.5});
  CHECK(A(0, 0).real() == -1.5);
  CHECK_THAT(A(0, 0).imag(), WithinDigits(-17.8253536263 / 2, 12));
  s4d_real(A.all());
  CHECK(A(1, 3) == std::complex<double>(-4, 0));
}

TEST_CASE("strides and float: the numbers of double, rounded once") {
  tensor<std::complex<double>, 2> wide({3, 5});
  tensor<std::complex<float>, 2> turned({5, 3});
  s4d_inv(wide.all());
  s4d_inv(turned.all().permute({1, 0}));
  for (index_t d = 0; d < 3; ++d)
    for (index_t n = 0; n < 5; ++n) CHECK(turned(n, d) == std::complex<float>(wide(d, n)));
}

TEST_CASE("steps are log-uniform, never below the floor, and softplus gives them back") {
  OGIVE_SEED(seed, 71);
  testing::rng random(seed);
  const index_t D = 1000;
  tensor<double, 1> u({D}), dt({D}), bias({D});
  testing::fill_uniform(random, u.all(), 0, 1);
  u(0) = 0;
  const step_range range{.min = 1e-4, .max = 1e-1, .floor = 5e-4};
  log_uniform_steps(std::as_const(u).all(), dt.all(), range);
  softplus_bias(std::as_const(dt).all(), bias.all());
  CHECK(dt(0) == range.floor);
  for (index_t d = 0; d < D; ++d) {
    // log Δ of up to 9.3 in magnitude is rounded three times before exp.
    CHECK_THAT(dt(d), WithinRoundings<double>(std::fmax(1e-4 * std::pow(1e3, u(d)), 5e-4), 3 * 10 + 2));
    // softplus′ ≤ 1: the rounding of the bias, up to 7.6, is the error of Δ.
    CHECK(std::abs(std::log1p(std::exp(bias(d))) - dt(d)) <= testing::tolerance<double>(4, dt(d) * (1 + 8)));
  }
}

TEST_CASE("the inverse of softplus from tiny to large") {
  for (const double y : {1e-300, 1e-20, 1e-3, 0.7, 1.0, 20.0, 700.0}) {
    const double x = inverse_softplus(y);
    // The error of x, |x| roundings, moves softplus(x) by that times its slope, which is at most min(1, y).
    CHECK_THAT(std::log1p(std::exp(-std::abs(x))) + std::fmax(x, 0),
               WithinRoundings<double>(y, 4 + 2 * static_cast<index_t>(std::abs(x))));
  }
}

TEST_CASE("A of Mamba and of Mamba-2") {
  tensor<double, 2> A_log({2, 16});
  mamba_A_log(A_log.all());
  CHECK(A_log(1, 0) == 0);
  CHECK(A_log(0, 15) == std::log(16.0));
  tensor<double, 1> u({3});
  u(1) = 0.5;
  u(2) = 1 - 0x1p-53;
  tensor<float, 1> one({3});
  mamba2_A_log(std::as_const(u).all(), one.all());
  CHECK(one(0) == 0);
  CHECK(one(1) == static_cast<float>(std::log(8.5)));
  CHECK(one(2) == static_cast<float>(std::log(16.0)));
}

TEST_CASE("bad steps are refused and nothing is written") {
  const tensor<double, 1> u({3});
  tensor<double, 1> dt({3}, 7.0);
  CHECK_THROWS_WITH(log_uniform_steps(u.all(), dt.all(), {.min = 0}), tests::ContainsSubstring("range.min = 0.0"));
  CHECK_THROWS_AS(log_uniform_steps(u.all(), dt.all(), {.min = -1e-3}), std::invalid_argument);
  CHECK_THROWS_WITH(log_uniform_steps(u.all(), dt.all(), {.min = 0.2, .max = 0.1}),
                    tests::ContainsSubstring("0.2") && tests::ContainsSubstring("larger than range.max = 0.1"));
  CHECK_THROWS_AS(log_uniform_steps(u.all(), dt.all().slice(0, 0, 2)), shape_error);
  tensor<double, 1> bias({3}, 7.0);
  CHECK_THROWS_WITH(softplus_bias(u.all(), bias.all()), tests::ContainsSubstring("dt entry 0 is 0.0"));
  tensor<double, 1> row({4}, 0.5);  // in place is well, a step aside is not
  const view<const double, 1> steps = row.all().slice(0, 0, 3);
  CHECK_THROWS_AS(softplus_bias(steps, row.all().slice(0, 1, 3)), shape_error);
  CHECK_NOTHROW(softplus_bias(steps, row.all().slice(0, 0, 3)));
  CHECK_THROWS_WITH(mamba2_A_log(u.all(), dt.all(), 0), tests::ContainsSubstring("low = 0.0"));
  CHECK_THROWS_WITH(mamba2_A_log(u.all(), dt.all(), 3, 2), tests::ContainsSubstring("at most high = 2.0"));
  for (index_t d = 0; d < 3; ++d) CHECK((dt(d) == 7 && bias(d) == 7));
  tensor<std::complex<double>, 2> A({2, 2});
  CHECK_THROWS_AS(s4d_lin(view<std::complex<double>, 2>(A.data(), {2, 2}, {0, 1})), shape_error);
  CHECK_THROWS_AS(s4d_lin(view<std::complex<double>, 2>()), shape_error);
}

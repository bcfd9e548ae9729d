#include <ogive/maps/discretisation.hpp>
#include <ogive/reference/discretisation.hpp>
#include <ogive/testing/compare.hpp>

#include <string>

#include "tests/within.hpp"

using namespace ogive;
using tests::WithinDecimals;
using tests::WithinDigits;
using tests::WithinRel;

namespace {

using complex = std::complex<double>;
using complex_long = std::complex<long double>;

/// |got − exact| / |exact|, both as long double; 0 where both are 0.
template <class X, class E>
double off(const X& got, const E& exact) {
  const auto error = std::abs(E(got) - exact);
  return error == 0 ? 0 : static_cast<double>(error / std::abs(exact));
}

/// A real ΔA, its exponential, the quotient and the product with ΔB: six roundings, relative to the result.
constexpr double few = testing::tolerance<double>(6);

}  // namespace

TEST_CASE("worked example: zero-order hold of A = −1, B = 2 over Δ = 0.5") {
  const auto [A, B] = discretise(discretisation::zoh, 0.5, -1.0, 2.0);
  CHECK_THAT(A, WithinDecimals(0.6065, 4));
  CHECK_THAT(B, WithinDecimals(0.7869, 4));
  const double h1 = B;
  const double h2 = A * h1 + B;
  CHECK_THAT(h2, WithinDecimals(1.2642, 4));
  // The continuous solution for x = 1 is h(t) = B/A (e^(At) − 1), here at t = 1.
  CHECK_THAT(h2, WithinRel(2 * (1 - std::exp(-1.0)), few));

  const double x[] = {2, 4, 0, 8};
  double y = 0, kernel = B;
  for (int j = 3; j >= 0; --j, kernel *= A) y += kernel * x[j];
  CHECK_THAT(y, WithinDecimals(7.80468, 5));
}

TEST_CASE("C25: the exact rule and Mamba's") {
  const auto exact = discretise(discretisation::zoh, 1.0, -1.0, 1.0);
  CHECK_THAT(exact.A, WithinDigits(0.367879441171, 12));
  CHECK_THAT(exact.B, WithinDigits(0.632120558829, 12));
  const auto mamba = discretise(discretisation::mamba, 1.0, -1.0, 1.0);
  CHECK(mamba.A == exact.A);
  CHECK(mamba.B == 1.0);
  CHECK(discretise(discretisation::zoh, 1.0, -1.0F, 1.0F).B == static_cast<float>(exact.B));
}

TEST_CASE("C72: complex exponentials have the right sign") {
  const auto pair = discretise(discretisation::mamba, 1.0, complex(-0.299318, 2.94764), complex(1));
  CHECK_THAT(pair.A.real(), WithinDecimals(-0.7274, 4));
}

TEST_CASE("real rules are right relative to themselves from A = 0 to huge") {
  OGIVE_SEED(seed, 31);
  testing::rng random(seed);
  for (int i = 0; i < 4000; ++i) {
    const double dt = std::ldexp(1 + random.unit(), static_cast<int>(random.integer(-30, 8)));
    const double size = std::ldexp(1 + random.unit(), static_cast<int>(random.integer(-40, 12)));
    const double A = i % 50 == 0 ? 0 : (i % 9 == 0 ? std::min(size, 600 / dt) : -size);
    const double B = random.uniform(-3, 3);
    INFO("dt " << dt << " A " << A);
    const long double Al = A, Bl = B, dtl = dt;
    const auto zoh = discretise(discretisation::zoh, dt, A, B);
    const auto exact = reference::zoh(Al, Bl, dtl);
    // exp of an exponent beyond −708 is subnormal or 0.
    if (exact.first > std::numeric_limits<double>::min()) CHECK(off(zoh.A, exact.first) <= few);
    CHECK(off(zoh.B, exact.second) <= few);
    const auto mamba = discretise(discretisation::mamba, dt, A, B);
    CHECK(mamba.A == zoh.A);
    CHECK(off(mamba.B, dtl * Bl) <= few);
    for (const double alpha : {0.0, 0.25, 0.5, 0.7, 1.0}) {
      const auto got = discretise(discretisation::generalised_bilinear, dt, A, B, alpha);
      const long double a = alpha;
      const long double denominator = 1 - a * dtl * Al;
      const auto rational = reference::generalised_bilinear(Al, Bl, dtl, a);
      // Near the pole and the zero the long double's own error counts; with A < 0 there is no pole.
      const double own = 0x1p-62 * static_cast<double>(std::abs(dtl * Al) / std::abs(1 + (1 - a) * dtl * Al));
      if (A <= 0 || std::abs(denominator) > 0.5) {
        CHECK(off(got.A, rational.first) <= few + own);
        CHECK(off(got.B, rational.second) <= few);
      }
    }
  }
}

TEST_CASE("the named rules are the generalised bilinear rule at 0, 1/2 and 1") {
  const complex A(-0.3, 5), B(1, 2);
  for (const auto& [rule, alpha] : {std::pair{discretisation::euler, 0.0}, std::pair{discretisation::bilinear, 0.5},
                                    std::pair{discretisation::backward_euler, 1.0}}) {
    const auto named = discretise(rule, 0.1, A, B, 0.123);
    const auto general = discretise(discretisation::generalised_bilinear, 0.1, A, B, alpha);
    CHECK(named.A == general.A);
    CHECK(named.B == general.B);
  }
  CHECK(discretise(discretisation::euler, 0.1, -10.0, 1.0).A == std::fma(0.1, -10.0, 1.0));
  constexpr double half = 1e6 * -1e8 / 2, expected = (1 + half) / (1 - half);
  CHECK_THAT(discretise(discretisation::bilinear, 1e6, -1e8, 1.0).A, WithinRel(expected, few));
}

TEST_CASE("complex rules are right relative to their modulus, also near multiples of 2 pi i") {
  OGIVE_SEED(seed, 32);
  testing::rng random(seed);
  for (int i = 0; i < 4000; ++i) {
    // A step of eight bits: its product with A is exact in long double, and rounded in double.
    const double dt =
        std::ldexp(static_cast<double>(random.integer(128, 255)), static_cast<int>(random.integer(-20, -2)));
    double re = -std::ldexp(random.unit(), static_cast<int>(random.integer(-40, 8))) / dt;
    double im = random.uniform(-40, 40) / dt;
    if (i % 3 == 0) im = 2 * std::numbers::pi * static_cast<double>(random.integer(-20, 20)) / dt;
    if (i % 5 == 0) re = 0;
    if (i % 7 == 0) im *= 0x1p-40;
    const complex A(re, im), B(random.uniform(), random.uniform());
    const complex_long Al(A), Bl(B);
    INFO("dt " << dt << " A " << A);
    const auto zoh = discretise(discretisation::zoh, dt, A, B);
    const auto exact = reference::zoh(Al, Bl, static_cast<long double>(dt));
    // Four more roundings than a real one: the parts' products and sums.
    CHECK(off(zoh.A, exact.first) <= testing::tolerance<double>(10));
    // exp(z) − 1 smaller than a rounding error of z keeps fewer digits.
    const double left = static_cast<double>(std::abs(reference::exp_minus_1(static_cast<long double>(dt) * Al)));
    const double nearness = left == 0 ? 0 : std::numeric_limits<double>::epsilon() * std::abs(dt * A) / left;
    CHECK(off(zoh.B, exact.second) <= testing::tolerance<double>(10) * (1 + nearness));
    for (const double alpha : {0.25, 0.5, 1.0}) {
      const auto got = discretise(discretisation::generalised_bilinear, dt, A, B, alpha);
      const auto rational =
          reference::generalised_bilinear(Al, Bl, static_cast<long double>(dt), static_cast<long double>(alpha));
      CHECK(off(got.A, rational.first) <= testing::tolerance<double>(10));
      CHECK(off(got.B, rational.second) <= testing::tolerance<double>(10));
    }
  }
}

TEMPLATE_TEST_CASE("a view per step and mode, in any strides", "", float, double, std::complex<float>, complex) {
  using X = TestType;
  using Real = typename maps::detail::parts<X>::real;
  const index_t L = 5, N = 3;
  OGIVE_SEED(seed, 33);
  testing::rng random(seed);
  tensor<X, 2> AB({2, N});
  testing::fill_uniform(random, AB.all());
  tensor<Real, 1> dt({L});
  testing::fill_uniform(random, dt.all(), 0.01, 1);
  tensor<X, 2> A_bar({L, N}), turned({N, L});
  discretise<X>(discretisation::zoh, dt, AB.all()[0], AB.all()[1], A_bar, turned.all().permute({1, 0}));
  for (index_t l = 0; l < L; ++l)
    for (index_t n = 0; n < N; ++n) {
      const auto pair = discretise(discretisation::zoh, static_cast<double>(dt(l)), AB(0, n), AB(1, n));
      CHECK(A_bar(l, n) == pair.A);
      CHECK(turned(n, l) == pair.B);
    }
  CHECK_THROWS_AS(discretise<X>(discretisation::zoh, dt, AB.all()[0], AB.all()[1], A_bar, turned), shape_error);
  CHECK_THROWS_AS(discretise<X>(discretisation::zoh, dt, AB.all()[0], AB.all()[1], A_bar, A_bar), shape_error);
  tensor<X, 2> both(A_bar.extents());  // A in the memory of Ā
  CHECK_THROWS_AS(discretise<X>(discretisation::zoh, dt, both.all()[0], AB.all()[1], both, A_bar), shape_error);
  CHECK_THROWS_WITH(discretise<X>(discretisation::generalised_bilinear, dt, AB.all()[0], AB.all()[1], A_bar,
                                  turned.all().permute({1, 0}), 1.5),
                    tests::ContainsSubstring("alpha = 1.5"));
}

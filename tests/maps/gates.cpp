#include <ogive/maps/gates.hpp>
#include <ogive/testing/compare.hpp>

#include "tests/catch.hpp"

using namespace ogive;

TEST_CASE("C09: softplus keeps its digits for negative inputs, in every lane and in the tail") {
  // Relative errors, stated by C09.
  constexpr float of_float = 1e-5F;
  constexpr double of_double = 1e-13;
  const std::pair<double, double> cases[] = {
      {-80, 1.8048513878e-35}, {-50, 1.9287498480e-22}, {-20, 2.0611536203e-09}, {-15, 3.0590227371e-07},
      {-3, 0.0485873516},      {0, 0.6931471806},       {3, 3.0485873516},       {20, 20}};
  for (const auto& [x, value] : cases) {
    std::vector<float> y(23);
    for (index_t i = 0; i < 23; i += simd::width<float>) {
      const index_t count = std::min(simd::width<float>, 23 - i);
      simd::store(y.data() + i, simd::softplus(simd::broadcast(static_cast<float>(x))), count);
    }
    for (const float lane : y) CHECK_THAT(lane, tests::WithinRel(static_cast<float>(value), of_float));
    CHECK(simd::softplus(static_cast<float>(x)) == y[0]);
    const double exact = std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
    CHECK_THAT(simd::softplus(x), tests::WithinRel(exact, of_double));
  }
  CHECK(simd::softplus(-100.0F) >= 0);
  CHECK(simd::softplus(-100.0F) <= std::numeric_limits<float>::min());
}

TEMPLATE_TEST_CASE("A is minus the exponential of its logarithm", "", float, double) {
  using T = TestType;
  tensor<T, 2> A_log({3, 5});
  for (index_t d = 0; d < 3; ++d)
    for (index_t n = 0; n < 5; ++n) A_log(d, n) = std::log(static_cast<T>(n + 1)) - static_cast<T>(d);
  tensor<T, 2> A({5, 3});
  A_from_log(A_log, A.all().permute({1, 0}));
  for (index_t d = 0; d < 3; ++d)
    for (index_t n = 0; n < 5; ++n) {
      const double exact = -std::exp(static_cast<double>(A_log(d, n)));
      CHECK(std::abs(static_cast<double>(A(n, d)) - exact) <= testing::tolerance<T>(2) * std::abs(exact));
    }
  A_from_log(A_log, A_log.all());
  CHECK(A_log(2, 4) == A(4, 2));
  CHECK_THROWS_AS(A_from_log(A_log, A.all()), shape_error);
}

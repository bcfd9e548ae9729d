#include <ogive/core/half.hpp>
#include <ogive/core/tensor.hpp>
#include <ogive/testing/rng.hpp>

#include "tests/catch.hpp"

using namespace ogive;
using ogive::testing::rng;

TEST_CASE("splitmix64 gives the published sequence of U(1)") {
  rng random(1);
  CHECK(random.uniform() == 0.13312315034456179);
  CHECK(random.uniform() == 0.49156351452540226);
  CHECK(random.uniform() == 0.94200550717359244);
}

TEST_CASE("integers stay inside their bounds and reach both") {
  OGIVE_SEED(seed, 2);
  rng random(seed);
  bool low = false;
  bool high = false;
  for (int i = 0; i < 1000; ++i) {
    const index_t n = random.integer(-2, 3);
    REQUIRE((n >= -2 && n <= 3));
    low = low || n == -2;
    high = high || n == 3;
  }
  CHECK(low);
  CHECK(high);
}

TEST_CASE("normal draws have the moments of the normal distribution") {
  OGIVE_SEED(seed, 3);
  rng random(seed);
  constexpr int n = 100'000;
  double sum = 0;
  double square = 0;
  double fourth = 0;
  for (int i = 0; i < n; ++i) {
    const double x = random.normal();
    sum += x;
    square += x * x;
    fourth += x * x * x * x;
  }
  // Five standard deviations of each sample moment: Var x = 1, Var x² = 2, Var x⁴ = 96.
  const double wide = 5 / std::sqrt(static_cast<double>(n));
  CHECK(std::fabs(sum / n) < wide);
  CHECK(std::fabs(square / n - 1) < wide * std::sqrt(2.0));
  CHECK(std::fabs(fourth / n - 3) < wide * std::sqrt(96.0));
}

TEST_CASE("fill goes in row-major order, whatever the strides are") {
  tensor<float, 2> rows({3, 5});
  tensor<float, 2> columns({5, 3});
  rng a(7);
  rng b(7);
  testing::fill_uniform(a, rows.all());
  testing::fill_uniform(b, columns.all().permute({1, 0}));
  for (index_t i = 0; i < 3; ++i) {
    for (index_t j = 0; j < 5; ++j) CHECK(rows(i, j) == columns(j, i));
  }
  CHECK(rows(0, 0) == static_cast<float>(rng(7).uniform()));
}

TEST_CASE("fill takes every storage type and complex numbers") {
  tensor<bfloat16, 1> halves({4});
  tensor<std::complex<float>, 1> pairs({2});
  rng a(7);
  rng b(7);
  testing::fill_uniform(a, halves.all());
  testing::fill_uniform(b, pairs.all());
  CHECK(static_cast<float>(halves(2)) == static_cast<float>(bfloat16(pairs(1).real())));
}

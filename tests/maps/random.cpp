#include <ogive/maps/random.hpp>
#include <ogive/maps/random_features.hpp>

#include <string>

#include "tests/catch.hpp"

using namespace ogive;

namespace {

double dot(const tensor<double, 2>& W, index_t a, index_t b) {
  double sum = 0;
  for (index_t i = 0; i < W.extent(1); ++i) sum += W(a, i) * W(b, i);
  return sum;
}

/// Of the bits of all elements in memory order: differs when any of them does.
template <class T>
std::uint64_t checksum(const tensor<T, 2>& W) {
  using bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  std::uint64_t sum = 0xcbf29ce484222325U;
  for (const T number : W.flat()) sum = (sum ^ std::bit_cast<bits>(number)) * 0x100000001b3U;
  return sum;
}

}  // namespace

TEST_CASE("projections are the same to the bit on every platform") {
  maps::generator random(1);
  CHECK(random.uniform() == 0.13312315034456179);
  CHECK(random.uniform() == 0.49156351452540226);
  CHECK(random.uniform() == 0.94200550717359244);

  const auto gaussian = maps::gaussian_projection<double>(70, 33, 5);
  const auto orthogonal = maps::orthogonal_projection<double>(70, 33, 5);
  const auto fixed = maps::orthogonal_projection<float>(70, 33, 5, maps::row_norm::sqrt_d);
  CHECK(gaussian(0, 0) == -0x1.42a6bbbf4c1dep-1);
  CHECK(gaussian(69, 32) == 0x1.89925448221b1p+0);
  CHECK(orthogonal(0, 0) == -0x1.5b209e26c606ep-1);
  CHECK(orthogonal(69, 32) == -0x1.4d3188e61074ep-2);
  CHECK(checksum(gaussian) == 0x9c76112148121324U);
  CHECK(checksum(orthogonal) == 0xca63686340303817U);
  CHECK(checksum(fixed) == 0x9474196eeeb47538U);
}

TEST_CASE("our logarithm is within two units of the last place") {
  maps::generator random(3);
  for (int i = 0; i < 20000; ++i) {
    double x = (random.uniform() + 1) / 2 + 0x1p-60;
    if (i % 3 == 0) x = std::ldexp(x, -static_cast<int>(random.bits() % 300));
    if (i % 5 == 0) x = 1 - x * 0x1p-20;
    const double exact = std::log(x);
    CHECK(std::abs(maps::detail::fixed_log(x) - exact) <= 3 * std::numeric_limits<double>::epsilon() * std::abs(exact));
  }
  CHECK(maps::detail::fixed_log(1) == 0);
}

TEST_CASE("normal numbers have the moments of normal numbers") {
  maps::generator random(11);
  const int n = 400000;
  double moment[5] = {};
  for (int i = 0; i < n; ++i) {
    const double x = random.normal();
    moment[1] += x / n;
    moment[2] += x * x / n;
    moment[3] += x * x * x / n;
    moment[4] += x * x * x * x / n;
  }
  // Five standard deviations of the mean of n draws of x, x², x³, x⁴: variances 1, 2, 15, 96.
  const auto within = [&](double variance) { return 5 * std::sqrt(variance / n); };
  CHECK(std::abs(moment[1]) < within(1));
  CHECK(std::abs(moment[2] - 1) < within(2));
  CHECK(std::abs(moment[3]) < within(15));
  CHECK(std::abs(moment[4] - 3) < within(96));
}

TEST_CASE("rows of an orthogonal projection are orthogonal within blocks of d, with the lengths asked for") {
  const index_t d = GENERATE(1, 2, 7, 64);
  const index_t M = 2 * d + (d + 1) / 2;
  const auto fixed = maps::orthogonal_projection<double>(M, d, 21, maps::row_norm::sqrt_d);
  const auto chi = maps::orthogonal_projection<double>(M, d, 21);
  const double bound = 16 * static_cast<double>(d * d) * std::numeric_limits<double>::epsilon();
  double mean_square = 0;
  for (index_t a = 0; a < M; ++a) {
    CHECK(std::abs(dot(fixed, a, a) - static_cast<double>(d)) <= bound);
    mean_square += dot(chi, a, a) / static_cast<double>(M * d);
    for (index_t b = 0; b < a; ++b) {
      if (a / d == b / d) CHECK(std::abs(dot(fixed, a, b)) <= bound);
      if (a / d == b / d) CHECK(std::abs(dot(chi, a, b)) <= 4 * bound);
    }
  }
  // |w|² is chi-squared: mean d, variance 2 d.
  CHECK(std::abs(mean_square - 1) < 5 * std::sqrt(2 / static_cast<double>(M * d)));
}

TEST_CASE("directions are uniform: a block is a Haar rotation, signs included") {
  // First coordinates of unit rows in three dimensions are uniform on [−1, 1].
  const index_t n = 30000;
  const auto W = maps::orthogonal_projection<double>(n, 3, 5, maps::row_norm::sqrt_d);
  double mean[3] = {}, square[3] = {};
  for (index_t j = 0; j < n; ++j) {
    mean[j % 3] += W(j, j % 3) / std::sqrt(3.0) / static_cast<double>(n / 3);
    square[j % 3] += W(j, j % 3) * W(j, j % 3) / 3 / static_cast<double>(n / 3);
  }
  for (int i = 0; i < 3; ++i) {
    CHECK(std::abs(mean[i]) < 5 * std::sqrt(1 / 3.0 / (n / 3)));
    CHECK(std::abs(square[i] - 1 / 3.0) < 5 * std::sqrt(4 / 45.0 / (n / 3)));
  }
}

TEST_CASE("FAVOR+ estimates exp(q.k/sqrt d), orthogonal rows with less variance than independent ones") {
  const index_t d = 16, M = 16, draws = 300;
  tensor<double, 2> x({2, d});
  maps::generator random(8);
  for (double& number : x.flat()) number = random.normal();
  double target = 0;
  for (index_t i = 0; i < d; ++i) target += x(0, i) * x(1, i);
  target = std::exp(target / std::sqrt(static_cast<double>(d)));

  const auto statistics = [&](const auto& draw) {
    double mean = 0, variance = 0;
    for (index_t n = 0; n < draws; ++n) {
      const tensor<double, 2> W = draw(static_cast<std::uint64_t>(n));
      tensor<double, 2> y({2, M});
      apply_map<double>(maps::favor<double>{.W = W, .eps = 0, .stabilise_queries = false}, x.all(), y.all(), {});
      const double estimate = dot(y, 0, 1);
      mean += estimate / draws;
      variance += (estimate - target) * (estimate - target) / draws;
    }
    CHECK(std::abs(mean - target) < 5 * std::sqrt(variance / draws));
    return variance;
  };
  const double independent = statistics([&](std::uint64_t s) { return maps::gaussian_projection<double>(M, d, s); });
  const double orthogonal = statistics([&](std::uint64_t s) { return maps::orthogonal_projection<double>(M, d, s); });
  CHECK(orthogonal < independent);
}

TEST_CASE("a projection without features or columns is refused by name") {
  const index_t none = GENERATE(0, -1);
  CHECK_THROWS_AS(maps::gaussian_projection<float>(none, 3, 1), std::invalid_argument);
  CHECK_THROWS_AS(maps::orthogonal_projection<float>(3, none, 1), std::invalid_argument);
  try {
    maps::orthogonal_projection<float>(0, 3, 1);
  } catch (const std::invalid_argument& refused) {
    CHECK(std::string(refused.what()) == "ogive::maps::orthogonal_projection: features = 0 must be at least 1");
  }
}

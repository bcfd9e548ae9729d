#include <ogive/testing/compare.hpp>
#include <ogive/testing/finite_differences.hpp>

#include "tests/catch.hpp"

using namespace ogive;

TEST_CASE("finite differences give the gradient and leave their argument as it was") {
  OGIVE_SEED(seed, 17);
  testing::rng random(seed);
  tensor<double, 2> memory({5, 3});
  testing::fill_normal(random, memory.all());
  const auto x = memory.all().permute({1, 0});
  const tensor<double, 2> before = memory;

  double size = 0;
  const auto f = [&] {
    double sum = 0;
    testing::for_each(
        x, [&](double element, index_t position) { sum += std::exp(element) * static_cast<double>(position + 1); });
    size = std::fmax(size, std::fabs(sum));
    return sum;
  };
  const auto gradient = testing::finite_differences(x, f);

  tensor<double, 2> expected(x.extents());
  for (index_t i = 0; i < x.extent(0); ++i) {
    for (index_t j = 0; j < x.extent(1); ++j) {
      expected(i, j) = std::exp(x(i, j)) * static_cast<double>(i * x.extent(1) + j + 1);
    }
  }
  // Rounding of one call over h, and h⁴/30 times the fifth derivative, which is the gradient itself here.
  const double h = testing::difference_step();
  const double bound =
      testing::tolerance<double>(2 * x.size(), size) / h + std::pow(h, 4) * testing::max_abs(expected.all());
  CHECK(testing::compare(gradient.all(), expected.all(), bound, {.scale = 1}));
  CHECK(testing::compare(memory.all(), before.all(), 0));
}

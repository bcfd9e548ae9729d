#include <ogive/engine/fft.hpp>
#include <ogive/testing/compare.hpp>

#include "tests/catch.hpp"

using namespace ogive;
using namespace ogive::testing;

TEST_CASE("sizes of transforms have small factors and are multiples of four") {
  CHECK(fft_size(0) == 4);
  CHECK(fft_size(4) == 4);
  CHECK(fft_size(5) == 8);
  CHECK(fft_size(13) == 16);
  CHECK(fft_size(17) == 20);
  CHECK(fft_size(43) == 48);
  CHECK(fft_size(16385) == 17280);
  CHECK(fft_size(32768) == 32768);
}

TEMPLATE_TEST_CASE("a real transform is its definition, and its inverse undoes it", "", float, double) {
  OGIVE_SEED(seed, 410);
  rng random(seed);
  constexpr double tau = 6.283185307179586476925286766559;
  context ctx;
  auto& plans = ctx.cache<fft_plans<TestType>>();
  for (const index_t n : {4, 8, 12, 20, 60, 256, 360}) {
    CAPTURE(n);
    plans.make(n, 2);
    CHECK(&plans.at(n, 0) != &plans.at(n, 1));
    real_fft<TestType>& fft = ctx.cache<fft_plans<TestType>>().at(n, 1);
    tensor<TestType, 1> x({n}), back({n});
    tensor<std::complex<TestType>, 1> X({fft.bins()});
    fill_uniform(random, x.all(), -1, 1);
    fft.forward(x.data(), X.data());
    fft.inverse(X.data(), back.data());
    const double size = norm(x.all()), bound = tolerance<TestType>(64, size);
    for (index_t k = 0; k < fft.bins(); ++k) {
      std::complex<double> sum = 0;
      for (index_t j = 0; j < n; ++j) {
        sum +=
            static_cast<double>(x(j)) * std::polar(1.0, -tau * static_cast<double>(j * k % n) / static_cast<double>(n));
      }
      CHECK(std::abs(sum - std::complex<double>(X(k))) <= bound * std::sqrt(static_cast<double>(n)));
    }
    for (index_t j = 0; j < n; ++j) CHECK(std::fabs(static_cast<double>(back(j) - x(j))) <= bound);
  }
}

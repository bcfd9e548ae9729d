#include <ogive/reference/activations.hpp>
#include <ogive/reference/feature_maps.hpp>
#include <ogive/testing/compare.hpp>

#include "tests/within.hpp"

using namespace ogive;
using tests::WithinAbs;
using tests::WithinDecimals;
using tests::WithinDigits;
using tests::WithinRel;
using tests::WithinRoundings;

namespace {

tensor<double, 2> normal(testing::rng& source, index_t rows, index_t columns) {
  tensor<double, 2> x({rows, columns});
  testing::fill_normal(source, x.all());
  return x;
}

double dot(const tensor<double, 2>& a, index_t i, const tensor<double, 2>& b, index_t j) {
  double sum = 0;
  for (index_t c = 0; c < a.extent(1); ++c) sum += a(i, c) * b(j, c);
  return sum;
}

/// Bound on the rounding error of a_0·a_j: its sum, and five roundings of each of two features.
double error_of_dot(const tensor<double, 2>& a, index_t j) {
  return testing::tolerance<double>(a.extent(1) + 10, std::sqrt(dot(a, 0, a, 0)), std::sqrt(dot(a, j, a, j)));
}

}  // namespace

TEST_CASE("maps whose features multiply to a known similarity") {
  OGIVE_SEED(seed, 6);
  testing::rng source(seed);
  const index_t d = GENERATE(1, 2, 5);
  const auto x = normal(source, 4, d);
  const double s = dot(x, 0, x, 1) / std::sqrt(static_cast<double>(d));
  const auto based = reference::taylor<double>(x.all());
  CHECK(based.extent(1) == 1 + d + d * (d + 1) / 2);
  CHECK_THAT(dot(based, 0, based, 1), WithinAbs(1 + s + s * s / 2, error_of_dot(based, 1)));
  const auto rebased = reference::rebased<double>(x.all(), false);
  CHECK_THAT(dot(rebased, 0, rebased, 1), WithinAbs(s * s, error_of_dot(rebased, 1)));
  const auto cosine = reference::cosformer<double>(x.all(), 8, 3);
  const auto plain = reference::relu<double>(x.all());
  CHECK_THAT(dot(cosine, 0, cosine, 3),
             WithinAbs(dot(plain, 0, plain, 3) * std::cos(std::numbers::pi * 3 / 16), error_of_dot(cosine, 3)));
}

TEST_CASE("random features approach their kernels") {
  OGIVE_SEED(seed, 7);
  testing::rng source(seed);
  const index_t d = 3, M = 40000;
  auto x = normal(source, 2, d);
  for (double& number : x.flat()) number *= 0.5;
  const auto W = normal(source, M, d);
  const double noise = 5 / std::sqrt(static_cast<double>(M));
  const double qk = dot(x, 0, x, 1);
  const double scaled = std::exp(qk / std::sqrt(static_cast<double>(d)));
  const auto favor = reference::favor<double>(x.all(), W.all(), reference::stabiliser::none, 0);
  CHECK_THAT(dot(favor, 0, favor, 1), WithinAbs(scaled, 4 * noise));
  const auto pairs = reference::favor_pairs<double>(x.all(), W.all());
  CHECK_THAT(dot(pairs, 0, pairs, 1), WithinAbs(scaled, 4 * noise));
  const auto rfa = reference::random_features<double>(x.all(), W.all());
  CHECK_THAT(dot(rfa, 0, rfa, 1), WithinAbs(std::exp(qk), 8 * noise));
  const auto fourier = reference::random_fourier<double>(x.all(), W.all(), 1.0);
  const double square = dot(x, 0, x, 0) + dot(x, 1, x, 1) - 2 * qk;
  CHECK_THAT(dot(fourier, 0, fourier, 1), WithinAbs(std::exp(-square / 2), noise));
}

TEST_CASE("a stabiliser changes features by a factor per row, or by one for all") {
  OGIVE_SEED(seed, 8);
  testing::rng source(seed);
  const auto x = normal(source, 5, 4);
  const auto W = normal(source, 6, 4);
  const auto plain = reference::favor<double>(x.all(), W.all(), reference::stabiliser::none, 0);
  const auto by_row = reference::favor<double>(x.all(), W.all(), reference::stabiliser::row, 0);
  const auto by_all = reference::favor<double>(x.all(), W.all(), reference::stabiliser::all_rows, 0);
  // Two exponents, sums of d and more, and their exponentials. No exponent, with or without a stabiliser, exceeds size.
  const double widest = testing::norm(x.all()), size = 2 * testing::norm(W.all()) * widest + widest * widest / 2;
  const index_t roundings = 2 * (4 + 8);
  const double bound = testing::tolerance<double>(roundings, 1 + size);
  for (index_t r = 0; r < 5; ++r) {
    for (index_t m = 0; m < 6; ++m) {
      CHECK_THAT(by_row(r, m) / by_row(r, 0), WithinRel(plain(r, m) / plain(r, 0), bound));
      CHECK_THAT(by_all(r, m) / by_all(0, 0), WithinRel(plain(r, m) / plain(0, 0), bound));
    }
  }
}

TEST_CASE("elementwise maps keep digits at the ends") {
  const std::vector<double> numbers{-700, -60, -1e-300, 0, 2};
  const view<const double, 2> x(numbers, {1, 5});
  CHECK(testing::flatten(reference::elu1<double>(x).all()) == std::vector{std::exp(-700.), std::exp(-60.), 1., 1., 3.});
  CHECK(testing::flatten(reference::squared_relu<double>(x).all()) == std::vector{0., 0., 0., 0., 4.});
  const double square = std::exp(2.0);
  // An exponential (two), a sum of five, the quotient.
  CHECK_THAT(reference::softmax<double>(x)(0, 4), WithinRoundings<double>(square / (square + 2), 8));
  CHECK_THAT(reference::softplus(-50.0), WithinDigits(1.9287498480e-22, 11));
  CHECK_THAT(reference::softplus(-3.0), WithinDecimals(0.0485873516, 10));
  CHECK(reference::silu(-800.0) == 0);
  CHECK(reference::sigmoid(800.0) == 1);
}

TEST_CASE("DPFP multiplies neighbours around the ring") {
  const std::vector<double> numbers{1, -2};
  const view<const double, 2> x(numbers, {1, 2});  // r = [1, 0, 0, 2]
  CHECK(testing::flatten(reference::dpfp<double>(x, 2).all()) == std::vector{2., 0., 0., 0., 0., 0., 0., 0.});
  CHECK(testing::flatten(reference::dpfp<double>(x, 1, true).all()) == std::vector{0., 0., 0., 0.});
}

TEST_CASE("a map over every head of a tensor") {
  tensor<float, 4> x({2, 3, 2, 2});
  for (index_t i = 0; i < x.size(); ++i) x.data()[i] = static_cast<float>(i);
  const auto y = reference::for_heads<double>(
      x.all(), [](const auto& rows, index_t, index_t) { return reference::taylor<double>(rows); });
  CHECK(y.extents() == shape<4>{2, 3, 2, 6});
  CHECK_THAT(y(1, 2, 1, 1), WithinRoundings<double>(22 / std::pow(2, 0.25), 4));
}

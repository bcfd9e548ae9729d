#include <ogive/core/tensor.hpp>
#include <ogive/testing/compare.hpp>

#include <limits>

#include "tests/within.hpp"

using namespace ogive;
using ogive::testing::compare;
using ogive::testing::rule;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double missing = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("max_norm measures in units of the largest expected value") {
  const std::vector<double> expected{1, -8, 0.5};
  const std::vector<double> got{1, -8, 0.75};
  const auto result = compare(got, expected, 1.0 / 32);
  CHECK(result.error == 1.0 / 32);
  CHECK(result.position == 2);
  CHECK(result.ok);
  CHECK_FALSE(compare(got, expected, 1.0 / 33).ok);
  CHECK(compare(got, expected, 1, {.scale = 0.5}).error == 0.5);
  CHECK(compare(got, expected, 1, {.scale = 0}).error == infinity);
}

TEST_CASE("elementwise_rel holds each element to its own size, complex ones to their modulus") {
  const std::vector<double> expected{0x1p-60, 3, 4, 0};
  const std::vector<double> got{0x1.8p-60, 3, 4, 0};
  CHECK(compare(got, expected, 1, {.rule = rule::elementwise_rel}).error == 0.5);
  CHECK(compare(std::vector<double>{0, 1e-30}, std::vector<double>{0, 0}, 1, {.rule = rule::elementwise_rel}).error ==
        infinity);
  const auto complex = compare(std::vector<double>{3, 4.625}, std::vector<double>{3, 4}, 0.125,
                               {.rule = rule::elementwise_rel, .complex = true});
  CHECK(complex.error == 0.125);
  CHECK(complex.position == 1);
}

TEST_CASE("per_leading_index takes a scale for each index of the first axis") {
  tensor<double, 2> expected({2, 2});
  tensor<double, 2> got({2, 2});
  expected(0, 0) = got(0, 0) = 1000;
  expected(1, 1) = 1;
  got(1, 1) = 1.25;
  const auto result = compare(got.all(), expected.all(), 0.1, {.rule = rule::per_leading_index});
  CHECK(result.error == 0.25);
  CHECK(result.position == 3);
  CHECK_FALSE(result.ok);
  CHECK(compare(got.all(), expected.all(), 0.1).ok);
}

TEST_CASE("what is not finite must be expected") {
  CHECK_FALSE(compare(std::vector<double>{1, missing}, std::vector<double>{1, 1}, infinity / 2).error < infinity);
  CHECK_FALSE(compare(std::vector<double>{missing}, std::vector<double>{1}, 1e300).ok);
  CHECK_FALSE(compare(std::vector<double>{1}, std::vector<double>{missing}, 1e300).ok);
  CHECK_FALSE(compare(std::vector<double>{-infinity}, std::vector<double>{infinity}, 1e300).ok);
  CHECK_FALSE(compare(std::vector<double>{0, 1}, std::vector<double>{infinity, 1}, 1e300).ok);
  CHECK(compare(std::vector<double>{missing, infinity, 2}, std::vector<double>{missing, infinity, 2}, 0).ok);
  CHECK_FALSE(compare(std::vector<double>{missing, 2}, std::vector<double>{infinity, 2}, 1e300).ok);
}

TEST_CASE("the largest of numbers that are not all numbers is none") {
  CHECK(testing::max_abs(std::vector<double>{1, -3, 2}) == 3);
  CHECK(std::isnan(testing::max_abs(std::vector<double>{1, missing, 2})));
}

TEST_CASE("no elements are equal; another number of them is not") {
  const std::vector<double> none;
  CHECK(compare(none, none, 0).ok);
  CHECK_FALSE(compare(none, std::vector<double>{1}, 1e300).ok);
  CHECK_THROWS_AS(compare(tensor<double, 1>({2}).all(), tensor<double, 1>({3}).all(), 0), shape_error);
}

TEST_CASE("tolerance grows with the length and with the norms, and knows the storage type") {
  STATIC_REQUIRE(testing::tolerance<double>(10) == 10 * std::numeric_limits<double>::epsilon());
  STATIC_REQUIRE(testing::tolerance<float>(3, 2.0, 5.0) ==
                 30 * static_cast<double>(std::numeric_limits<float>::epsilon()));
  STATIC_REQUIRE(testing::tolerance<bfloat16>(1) > testing::unit_roundoff<bfloat16>());
  // Rounding to a 16-bit type stays within its unit roundoff, and reaches half of it.
  for (const float x : {1.00390625F, 1.001953125F}) {
    CHECK(std::fabs(static_cast<float>(bfloat16(x)) - x) <= x * testing::unit_roundoff<bfloat16>());
  }
}

TEST_CASE("single numbers within their roundings, or within the digits that were printed") {
  const double eps = std::numeric_limits<double>::epsilon();
  CHECK_THAT(3 * (1 + 4 * eps), tests::WithinRoundings<double>(3, 5));
  CHECK_THAT(3 * (1 + 6 * eps), !tests::WithinRoundings<double>(3, 5));
  CHECK_THAT(3 * (1 + 6 * eps), tests::WithinRoundings<float>(3, 1));
  CHECK_THAT(0.60653, tests::WithinDecimals(0.6065, 4));
  CHECK_THAT(0.60656, !tests::WithinDecimals(0.6065, 4));
  CHECK_THAT(-1234.4, tests::WithinDigits(-1234, 4));
  CHECK_THAT(-1234.6, !tests::WithinDigits(-1234, 4));
  CHECK_THAT(1.00049e-22, tests::WithinDigits(1e-22, 4));
  CHECK_THAT(1.00051e-22, !tests::WithinDigits(1e-22, 4));
}

#include <ogive/maps/elementwise.hpp>
#include <ogive/maps/polynomial.hpp>
#include <ogive/maps/random_features.hpp>
#include <ogive/testing/compare.hpp>

#include <cstring>
#include <limits>
#include <string>

#include "tests/catch.hpp"

using namespace ogive;

namespace {

// Maps a user would write, and things that are none.
struct cube {
  template <class X>
  X operator()(X x) const {
    return x * x * x;
  }
};
struct hat {  // |x| (1 − |x|) between −1 and 1, x / 2 elsewhere
  template <class X>
  X operator()(X x) const {
    if constexpr (std::floating_point<X>) {
      return x > -1 && x < 1 ? std::abs(x) * (1 - std::abs(x)) : x / 2;
    } else {
      X y = simd::abs(x);
      y *= 1 - y;
      const auto outside = x <= -1 || !(x < X(1));
      return simd::select(outside, x / 2, y) * X(y == y);
    }
  }
};
struct only_scalars {
  double operator()(double x) const { return x < 2 ? x : 2; }
};
struct sum_and_position {
  index_t features(index_t) const { return 2; }
  template <class Acc>
  void operator()(view<const Acc, 2> x, view<Acc, 2> y, const map_site& first) const {
    for (index_t r = 0; r < x.extent(0); ++r) {
      y(r, 0) = x(r, 0) + x(r, x.extent(1) - 1);
      y(r, 1) = static_cast<Acc>(1000 * (first.position + r) + 100 * first.batch + 10 * first.head) +
                (first.which == side::key ? Acc(1) : Acc(0));
    }
  }
};
struct nothing {};
struct only_counts {
  index_t features(index_t d) const { return d; }
};
struct only_float_rows : only_counts {
  void operator()(view<const float, 2>, view<float, 2>, const map_site&) const {}
};

static_assert(elementwise_map<maps::identity> && elementwise_map<cube> && elementwise_map<only_scalars>);
static_assert(explain_feature_map<hat>() && explain_feature_map<maps::elu1>() && explain_feature_map<maps::relu>());
static_assert(explain_feature_map<maps::squared_relu>() && explain_feature_map<maps::exponential>());
static_assert(row_map<sum_and_position> && !elementwise_map<sum_and_position>);
static_assert(!feature_map<nothing> && !feature_map<only_counts> && !feature_map<only_float_rows>);
static_assert(explain_feature_map<cube>() && explain_feature_map<sum_and_position>());
static_assert(row_map<maps::favor<float>> && std::is_trivially_copyable_v<maps::favor<float>>);

template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const std::invalid_argument& refused) {
    return refused.what();
  }
  return {};
}

}  // namespace

TEMPLATE_TEST_CASE("an elementwise map gives every element the same bits wherever it lies", "", maps::elu1, hat) {
  const TestType map;
  const auto n = GENERATE(range<index_t>(0, 70));
  std::vector<float> x(static_cast<std::size_t>(n));
  for (index_t i = 0; i < n; ++i) x[static_cast<std::size_t>(i)] = 0.25F * static_cast<float>(i) - 8;
  std::vector<float> y(x.size(), -1);
  apply_map<float>(map, {x, {1, n}}, {y, {1, n}}, {});
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(y[i] == map(x[i]));
  apply_map<float>(map, {x, {1, n}}, {x, {1, n}}, {});
  CHECK(x == y);
}

TEMPLATE_TEST_CASE("evaluate maps tensors of any strides and storage", "", float, double, bfloat16, float16) {
  using T = TestType;
  const index_t B = 2, L = 70, H = 3, d = 5;
  OGIVE_SEED(seed, 1);
  testing::rng random(seed);
  tensor<T, 4> x({B, H, L, d});  // heads first in memory
  testing::fill_normal(random, x.all());
  const view<const T, 4> seen = from_bhld(view<T, 4>(x));
  tensor<T, 4> y({B, L, H, d});
  tensor<T, 4> turned({d, H, L, B});

  evaluate(cube{}, seen, y.all());
  evaluate(cube{}, seen, turned.all().permute({3, 2, 1, 0}));
  testing::for_each(y.all(), [&](T& element, index_t position) {
    const index_t i = position % d, h = position / d % H, t = position / d / H % L, b = position / d / H / L;
    const auto number = static_cast<accum_t<T>>(x(b, h, t, i));
    CHECK(static_cast<accum_t<T>>(element) == static_cast<accum_t<T>>(static_cast<T>(number * number * number)));
    CHECK(static_cast<accum_t<T>>(element) == static_cast<accum_t<T>>(turned(i, h, t, b)));
  });
  evaluate(only_scalars{}, seen, y.all());
  CHECK(static_cast<accum_t<T>>(y(1, 69, 2, 4)) <= 2);
}

TEST_CASE("a row map learns where its rows stand") {
  tensor<double, 4> x({2, 70, 3, 4}, 1.5);
  tensor<double, 4> y({2, 70, 3, 2});
  evaluate(sum_and_position{}, x, y.all(), {.position = 7, .which = side::key, .batch = 1, .head = 2});
  for (index_t b = 0; b < 2; ++b)
    for (index_t t = 0; t < 70; ++t)
      for (index_t h = 0; h < 3; ++h) {
        CHECK(y(b, t, h, 0) == 3);
        CHECK(y(b, t, h, 1) == static_cast<double>(1000 * (7 + t) + 100 * (1 + b) + 10 * (2 + h) + 1));
      }
}

TEST_CASE("empty tensors are mapped to empty tensors") {
  tensor<float, 4> x({2, 0, 3, 4});
  tensor<float, 4> y({2, 0, 3, 15});
  CHECK_NOTHROW(evaluate(maps::taylor{}, x, y.all()));
}

TEST_CASE("what does not fit is refused before anything is written") {
  tensor<float, 4> x({1, 2, 3, 4});
  tensor<float, 4> y({1, 2, 3, 5}, 9.0F);
  CHECK_THROWS_AS(evaluate(cube{}, x, y.all()), shape_error);
  CHECK_THAT(message_of([&] { evaluate(cube{}, x, y.all()); }),
             tests::ContainsSubstring("y has shape [1, 2, 3, 5], expected [1, 2, 3, 4]"));
  CHECK(y(0, 1, 2, 4) == 9.0F);

  const tensor<float, 2> W({8, 3});
  tensor<float, 4> features({1, 2, 3, 8}, 9.0F);
  CHECK_THAT(message_of([&] { evaluate(maps::favor<float>{.W = W}, x, features.all()); }),
             tests::ContainsSubstring("ogive::maps::favor: W has shape [8, 3], rows of 4 numbers need [8, 4]"));
  CHECK_THAT(message_of([&] { evaluate(maps::random_fourier<float>{}, x, features.all()); }),
             tests::ContainsSubstring("W is absent"));
  const tensor<float, 2> none({0, 4});
  CHECK_THAT(message_of([&] { evaluate(maps::random_features<float>{.W = none}, x, features.all()); }),
             tests::ContainsSubstring("ogive::maps::random_features: W has 0 features"));
  const tensor<float, 2> fits({8, 4});
  const tensor<float, 2> table({1, 2});
  const map_site keys{.which = side::key};
  CHECK_THAT(
      message_of([&] { evaluate(maps::favor<float>{.W = fits, .key_stabiliser = table}, x, features.all(), keys); }),
      tests::ContainsSubstring("key_stabiliser has shape [1, 2], expected [1, 3]"));
  CHECK(features(0, 1, 2, 7) == 9.0F);
}

TEST_CASE("C72: the exponential of a vector, wherever it lies, keeps its range reduction") {
  constexpr float tolerated = 1e-4F;  // relative, stated by C72
  const std::vector<float> x(67, -0.500448F);
  std::vector<float> y(67);
  apply_map<float>(maps::exponential{}, {x, {1, 67}}, {y, {1, 67}}, {});
  for (const float value : y) CHECK_THAT(value, tests::WithinRel(0.606259F, tolerated));
}

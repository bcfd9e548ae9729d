#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/hgrn.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("HGRN keeps the laws", "", float, double, bfloat16) {
  OGIVE_SEED(seed, 200);
  tests::check_laws<hgrn<TestType>>(seed);
}

TEST_CASE("HGRN with a state of another type") {
  OGIVE_SEED(seed, 201);
  tests::check_law(testing::law_of_states<hgrn<float>, double>(), seed);
  tests::check_law(testing::law_of_states<hgrn<float>, bfloat16>(), seed);
}

TEST_CASE("HGRN: gates of minus infinity forget everything, to the bit") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const tensor<float, 3> x({1, 5, 1}, 0.75F);
  tensor<float, 3> g({1, 5, 1}, -0.5F), o({1, 5, 1}), h({1, 1, 1}, 1e30F);
  for (const index_t t : {0, 3}) g(0, t, 0) = -inf;
  for (const testing::way& how : testing::ways<hgrn<float>>()) {
    CAPTURE(how);
    h(0, 0, 0) = 1e30F;
    context serial;
    testing::call(how, hgrn<float>{.x = x, .g = g}, diagonal_state<float>{.initial = h, .final = h}, o.all(), serial);
    CHECK(o(0, 0, 0) == 0.75F);
    CHECK(o(0, 1, 0) > 0.75F);
    CHECK(o(0, 3, 0) == 0.75F);
    CHECK(h(0, 0, 0) == o(0, 4, 0));
  }
}

TEMPLATE_TEST_CASE("gradients of HGRN keep the laws", "", float, double) {
  OGIVE_SEED(seed, 202);
  for (const testing::law& law : testing::gradient_laws<hgrn<TestType>>()) tests::check_law(law, seed);
}

TEST_CASE("gradients of HGRN in narrow types are those of double, rounded") {
  OGIVE_SEED(seed, 203);
  tests::check_law(testing::law_of_rounded_gradients<hgrn<float>, hgrn<double>>(), seed);
  tests::check_law(testing::law_of_rounded_gradients<hgrn<bfloat16>, hgrn<double>>(), seed);
}

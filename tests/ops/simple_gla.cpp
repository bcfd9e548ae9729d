#include <ogive/testing/samplers/gated.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEST_CASE("Simple GLA keeps the laws") {
  OGIVE_SEED(seed, 102);
  tests::check_laws<simple_gla<float>>(seed);
}

TEMPLATE_TEST_CASE("Simple GLA in another type", "", double, bfloat16) {
  OGIVE_SEED(seed, 103);
  tests::check_law(testing::law_of_states<simple_gla<TestType>, accum_t<TestType>>(), seed);
}

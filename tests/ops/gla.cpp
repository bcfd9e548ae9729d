#include <ogive/testing/samplers/gated.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEST_CASE("GLA keeps the laws") {
  OGIVE_SEED(seed, 104);
  tests::check_laws<gla<float>>(seed);
}

TEMPLATE_TEST_CASE("GLA in another type", "", double, bfloat16) {
  OGIVE_SEED(seed, 105);
  tests::check_law(testing::law_of_states<gla<TestType>, accum_t<TestType>>(), seed);
}

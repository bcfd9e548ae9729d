#include <ogive/testing/samplers/shared_state.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEST_CASE("dense systems keep the laws") {
  OGIVE_SEED(seed, 420);
  tests::check_laws<lti<float>>(seed);
}

TEMPLATE_TEST_CASE("dense systems in another type", "", double, bfloat16) {
  OGIVE_SEED(seed, 421);
  tests::check_law(testing::law_of_states<lti<TestType>, accum_t<TestType>>(), seed);
}

TEMPLATE_TEST_CASE("dense systems with a state of another type", "", double, bfloat16) {
  OGIVE_SEED(seed, 422);
  tests::check_law(testing::law_of_states<lti<float>, TestType>(), seed);
}

#include <ogive/testing/samplers/delta_rules.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEST_CASE("The delta rule keeps the laws") {
  OGIVE_SEED(seed, 118);
  tests::check_laws<delta_rule<float>>(seed);
}

TEMPLATE_TEST_CASE("The delta rule in another type", "", double, bfloat16) {
  OGIVE_SEED(seed, 119);
  tests::check_law(testing::law_of_states<delta_rule<TestType>, accum_t<TestType>>(), seed);
}

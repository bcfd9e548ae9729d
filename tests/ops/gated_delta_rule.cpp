#include <ogive/testing/samplers/delta_rules.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEST_CASE("The gated delta rule keeps the laws") {
  OGIVE_SEED(seed, 120);
  tests::check_laws<gated_delta_rule<float>>(seed);
}

TEMPLATE_TEST_CASE("The gated delta rule in another type", "", double, bfloat16) {
  OGIVE_SEED(seed, 121);
  tests::check_law(testing::law_of_states<gated_delta_rule<TestType>, accum_t<TestType>>(), seed);
}

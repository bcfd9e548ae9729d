#include <ogive/testing/samplers/delta_rules.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEST_CASE("KDA keeps the laws") {
  OGIVE_SEED(seed, 122);
  tests::check_laws<kda<float>>(seed);
}

TEMPLATE_TEST_CASE("KDA in another type", "", double, bfloat16) {
  OGIVE_SEED(seed, 123);
  tests::check_law(testing::law_of_states<kda<TestType>, accum_t<TestType>>(), seed);
}

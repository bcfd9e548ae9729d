#include <ogive/testing/samplers/gated.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEST_CASE("Retention keeps the laws") {
  OGIVE_SEED(seed, 100);
  tests::check_laws<retention<float>>(seed);
}

TEMPLATE_TEST_CASE("Retention in another type", "", double, bfloat16) {
  OGIVE_SEED(seed, 101);
  tests::check_law(testing::law_of_states<retention<TestType>, accum_t<TestType>>(), seed);
}

#include <ogive/testing/samplers/ssd.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("SSD keeps the laws", "", float, double, bfloat16, float16) {
  OGIVE_SEED(seed, 20);
  tests::check_laws<ssd<TestType>>(seed);
}

TEMPLATE_TEST_CASE("SSD with a state of another type", "", float, double, bfloat16, float16) {
  OGIVE_SEED(seed, 21);
  tests::check_law(testing::law_of_states<ssd<float>, TestType>(), seed);
}

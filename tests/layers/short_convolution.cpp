#include <ogive/testing/samplers/short_convolution.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("the short convolution keeps the laws", "", float, double, bfloat16, float16) {
  OGIVE_SEED(seed, 40);
  tests::check_laws<short_convolution<TestType>>(seed);
}

TEMPLATE_TEST_CASE("the short convolution with a state of another type", "", float, double, bfloat16, float16) {
  OGIVE_SEED(seed, 41);
  tests::check_law(testing::law_of_states<short_convolution<float>, TestType>(), seed);
}

// The short convolution with a state of another type.
#include <ogive/testing/samplers/short_convolution.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("the short convolution with a state of another type", "", double, bfloat16, float16) {
  OGIVE_SEED(seed, 42);
  tests::check_law(testing::law_of_states<short_convolution<float>, TestType>(), seed);
}

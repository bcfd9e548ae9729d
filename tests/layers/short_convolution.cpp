#include <ogive/testing/samplers/short_convolution.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("the short convolution keeps the laws", "", float, double) {
  OGIVE_SEED(seed, 40);
  tests::check_laws<short_convolution<TestType>>(seed);
}

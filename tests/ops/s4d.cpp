#include <ogive/testing/samplers/s4d.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("S4D keeps the laws", "", float, double, bfloat16) {
  OGIVE_SEED(seed, 210);
  tests::check_laws<s4d<TestType>>(seed);
}

TEST_CASE("S4D with real modes keeps the laws") {
  OGIVE_SEED(seed, 211);
  tests::check_laws<s4d<float, float>>(seed);
}

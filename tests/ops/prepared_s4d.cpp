#include <ogive/testing/samplers/s4d.hpp>

#include "tests/ops/prepared.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("S4D, prepared", "", s4d<float>, s4d<double>, s4d<bfloat16>, (s4d<float, float>)) {
  OGIVE_SEED(seed, 720);
  tests::check_prepared<TestType>(seed);
}

#include <ogive/testing/samplers/s4.hpp>

#include "tests/ops/prepared.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("S4, prepared", "", s4<float>, s4<double>) {
  OGIVE_SEED(seed, 740);
  tests::check_prepared<TestType>(seed);
}

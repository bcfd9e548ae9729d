#include <ogive/testing/samplers/shared_state.hpp>

#include "tests/ops/prepared.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("systems with a shared state, prepared", "", lti<float>, s5<float>, lru<float>, s5<double>) {
  OGIVE_SEED(seed, 760);
  tests::check_prepared<TestType>(seed);
}

#include <ogive/testing/samplers/low_rank.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEST_CASE("DPLR keeps the laws") {
  OGIVE_SEED(seed, 114);
  tests::check_laws<dplr<float>>(seed);
}

TEMPLATE_TEST_CASE("DPLR in another type", "", double, bfloat16) {
  OGIVE_SEED(seed, 115);
  tests::check_law(testing::law_of_states<dplr<TestType>, accum_t<TestType>>(), seed);
}

#include <ogive/testing/samplers/low_rank.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEST_CASE("IPLR keeps the laws") {
  OGIVE_SEED(seed, 116);
  tests::check_laws<iplr<float>>(seed);
}

TEMPLATE_TEST_CASE("IPLR in another type", "", double, bfloat16) {
  OGIVE_SEED(seed, 117);
  tests::check_law(testing::law_of_states<iplr<TestType>, accum_t<TestType>>(), seed);
}

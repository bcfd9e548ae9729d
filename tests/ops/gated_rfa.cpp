#include <ogive/testing/samplers/gated_rfa.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("gated RFA keeps the laws", "", maps::random_features<float>, maps::elu1) {
  OGIVE_SEED(seed, 210);
  tests::check_laws<gated_rfa<float, TestType>>(seed);
}

TEMPLATE_TEST_CASE("gated RFA in another type", "", double, bfloat16) {
  OGIVE_SEED(seed, 211);
  tests::check_law(testing::law_of_states<gated_rfa<TestType, maps::elu1>, accum_t<TestType>>(), seed);
}

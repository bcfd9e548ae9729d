#include <ogive/testing/samplers/gated.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEST_CASE("HGRN2 keeps the laws") {
  OGIVE_SEED(seed, 106);
  tests::check_laws<hgrn2<float>>(seed);
}

TEMPLATE_TEST_CASE("HGRN2 in another type", "", double, bfloat16) {
  OGIVE_SEED(seed, 107);
  tests::check_law(testing::law_of_states<hgrn2<TestType>, accum_t<TestType>>(), seed);
}

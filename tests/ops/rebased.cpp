#include <ogive/testing/samplers/linear_attention.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEST_CASE("ReBased keeps the laws") {
  OGIVE_SEED(seed, 214);
  tests::check_laws<linear_attention<float, maps::rebased<float>>>(seed);
}

TEMPLATE_TEST_CASE("ReBased in another type", "", double, bfloat16) {
  OGIVE_SEED(seed, 215);
  using Op = linear_attention<TestType, maps::rebased<accum_t<TestType>>>;
  tests::check_law(testing::law_of_states<Op, accum_t<TestType>>(), seed);
}

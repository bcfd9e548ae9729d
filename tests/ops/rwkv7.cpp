#include <ogive/testing/samplers/low_rank.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEST_CASE("RWKV-7 keeps the laws") {
  OGIVE_SEED(seed, 112);
  tests::check_laws<rwkv7<float>>(seed);
}

TEMPLATE_TEST_CASE("RWKV-7 in another type", "", double, bfloat16) {
  OGIVE_SEED(seed, 113);
  tests::check_law(testing::law_of_states<rwkv7<TestType>, accum_t<TestType>>(), seed);
}

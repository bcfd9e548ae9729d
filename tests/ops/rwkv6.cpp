#include <ogive/testing/samplers/gated.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEST_CASE("RWKV-6 keeps the laws") {
  OGIVE_SEED(seed, 110);
  tests::check_laws<rwkv6<float>>(seed);
}

TEMPLATE_TEST_CASE("RWKV-6 in another type", "", double, bfloat16) {
  OGIVE_SEED(seed, 111);
  tests::check_law(testing::law_of_states<rwkv6<TestType>, accum_t<TestType>>(), seed);
}

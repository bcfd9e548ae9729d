#include <ogive/testing/samplers/gated.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEST_CASE("RWKV-5 keeps the laws") {
  OGIVE_SEED(seed, 108);
  tests::check_laws<rwkv5<float>>(seed);
}

TEMPLATE_TEST_CASE("RWKV-5 in another type", "", double, bfloat16) {
  OGIVE_SEED(seed, 109);
  tests::check_law(testing::law_of_states<rwkv5<TestType>, accum_t<TestType>>(), seed);
}

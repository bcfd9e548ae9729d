#include <ogive/testing/samplers/shared_state.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEST_CASE("the LRU keeps the laws") {
  OGIVE_SEED(seed, 440);
  tests::check_laws<lru<float>>(seed);
}

TEMPLATE_TEST_CASE("the LRU in another type", "", double, bfloat16) {
  OGIVE_SEED(seed, 441);
  tests::check_law(testing::law_of_states<lru<TestType>, std::complex<accum_t<TestType>>>(), seed);
}

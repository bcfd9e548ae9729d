#include <ogive/testing/samplers/shared_state.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEST_CASE("S5 keeps the laws") {
  OGIVE_SEED(seed, 430);
  tests::check_laws<s5<float>>(seed);
}

TEMPLATE_TEST_CASE("S5 in another type", "", double, float16) {
  OGIVE_SEED(seed, 431);
  tests::check_law(testing::law_of_states<s5<TestType>, std::complex<accum_t<TestType>>>(), seed);
}

TEST_CASE("S5 with a state of doubles") {
  OGIVE_SEED(seed, 432);
  tests::check_law(testing::law_of_states<s5<float>, std::complex<double>>(), seed);
}

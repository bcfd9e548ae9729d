#include <ogive/testing/samplers/selective_scan.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("the selective scan keeps the laws", "", float, double, bfloat16, float16) {
  OGIVE_SEED(seed, 30);
  tests::check_laws<selective_scan<TestType>>(seed);
}

TEMPLATE_TEST_CASE("the complex selective scan keeps the laws", "", float, double, bfloat16) {
  OGIVE_SEED(seed, 31);
  tests::check_laws<selective_scan<TestType, std::complex<accum_t<TestType>>>>(seed);
}

TEMPLATE_TEST_CASE("the selective scan with a state of another type", "", float, double, bfloat16, float16) {
  OGIVE_SEED(seed, 32);
  tests::check_law(testing::law_of_states<selective_scan<float>, TestType>(), seed);
}

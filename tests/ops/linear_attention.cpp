#include <ogive/testing/samplers/linear_attention.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("linear attention keeps the laws", "", float, double, bfloat16, float16) {
  OGIVE_SEED(seed, 10);
  tests::check_laws<linear_attention<TestType>>(seed);
}

TEMPLATE_TEST_CASE("linear attention keeps the laws with a map", "", maps::elu1, maps::taylor, maps::cosformer) {
  OGIVE_SEED(seed, 11);
  tests::check_laws<linear_attention<float, TestType>>(seed);
}

TEMPLATE_TEST_CASE("linear attention with a state of another type", "", float, double, bfloat16, float16) {
  OGIVE_SEED(seed, 12);
  tests::check_law(testing::law_of_states<linear_attention<float>, TestType>(), seed);
}

#include "tests/laws/laws.hpp"

#include <ogive/testing/samplers/noncausal_linear_attention.hpp>

using namespace ogive;

TEMPLATE_TEST_CASE("linear attention without time keeps the laws", "", float, double, bfloat16, float16) {
  OGIVE_SEED(seed, 40);
  tests::check_laws<noncausal_linear_attention<TestType>>(seed);
}

TEMPLATE_TEST_CASE("linear attention without time keeps the laws with a map", "", maps::elu1, maps::taylor,
                   maps::cosformer) {
  OGIVE_SEED(seed, 41);
  tests::check_laws<noncausal_linear_attention<float, TestType>>(seed);
}

TEMPLATE_TEST_CASE("linear attention without time with a state of another type", "", float, double, bfloat16, float16) {
  OGIVE_SEED(seed, 42);
  tests::check_law(testing::law_of_states<noncausal_linear_attention<float>, TestType>(), seed);
}

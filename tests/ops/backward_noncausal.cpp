#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/noncausal_linear_attention.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("gradients of linear attention without time", "", maps::identity, maps::elu1, maps::taylor,
                   maps::cosformer) {
  OGIVE_SEED(seed, 207);
  for (const testing::law& law : testing::gradient_laws<noncausal_linear_attention<double, TestType>>()) {
    tests::check_law(law, seed);
  }
}

TEMPLATE_TEST_CASE("gradients of linear attention without time in float", "", maps::identity, maps::elu1) {
  OGIVE_SEED(seed, 208);
  tests::check_law(testing::law_of_rounded_gradients<noncausal_linear_attention<float, TestType>,
                                                     noncausal_linear_attention<double, TestType>>(),
                   seed);
}

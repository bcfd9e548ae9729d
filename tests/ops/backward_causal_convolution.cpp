#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/causal_convolution.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEST_CASE("gradients of the causal convolution") {
  OGIVE_SEED(seed, 407);
  using Op = causal_convolution<double>;
  for (const testing::law& law : testing::gradient_laws<Op>()) tests::check_law(law, seed);
}

TEMPLATE_TEST_CASE("gradients of the causal convolution in other types", "", float, bfloat16) {
  OGIVE_SEED(seed, 408);
  tests::check_law(testing::law_of_rounded_gradients<causal_convolution<TestType>, causal_convolution<double>>(), seed);
}

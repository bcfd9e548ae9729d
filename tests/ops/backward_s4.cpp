#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/s4.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEST_CASE("gradients of S4") {
  OGIVE_SEED(seed, 470);
  for (const testing::law& law : testing::gradient_laws<s4<double>>()) tests::check_law(law, seed);
}

TEMPLATE_TEST_CASE("gradients of S4 in other types", "", float, bfloat16) {
  OGIVE_SEED(seed, 471);
  tests::check_law(testing::law_of_rounded_gradients<s4<TestType>, s4<double>>(), seed);
}

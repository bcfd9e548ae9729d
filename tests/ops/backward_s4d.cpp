#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/s4d.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("gradients of S4D keep the laws", "", s4d<double>, (s4d<double, double>)) {
  OGIVE_SEED(seed, 230);
  for (const testing::law& law : testing::gradient_laws<TestType>()) tests::check_law(law, seed);
}

TEST_CASE("gradients of S4D in float are those of double, rounded") {
  OGIVE_SEED(seed, 231);
  tests::check_law(testing::law_of_rounded_gradients<s4d<float>, s4d<double>>(), seed);
}

#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/delta_rules.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("gradients of the delta rules", "", delta_rule<double>, gated_delta_rule<double>, kda<double>) {
  OGIVE_SEED(seed, 202);
  for (const testing::law& law : testing::gradient_laws<TestType>()) tests::check_law(law, seed);
}

TEST_CASE("gradients of the delta rules in other types") {
  OGIVE_SEED(seed, 211);
  SECTION(gated_delta_rule<float>::name) {
    tests::check_law(testing::law_of_rounded_gradients<gated_delta_rule<float>, gated_delta_rule<double>>(), seed);
  }
  SECTION(kda<float>::name) { tests::check_law(testing::law_of_rounded_gradients<kda<float>, kda<double>>(), seed); }
  SECTION(delta_rule<float>::name) {
    tests::check_law(testing::law_of_rounded_gradients<delta_rule<float>, delta_rule<double>>(), seed);
  }
}

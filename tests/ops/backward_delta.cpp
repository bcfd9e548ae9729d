#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/delta_rules.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("gradients of the delta rules", "", delta_rule<double>, gated_delta_rule<double>, kda<double>) {
  OGIVE_SEED(seed, 202);
  for (const testing::law& law : testing::gradient_laws<TestType>()) tests::check_law(law, seed);
}

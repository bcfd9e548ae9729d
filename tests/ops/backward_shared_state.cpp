#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/shared_state.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("gradients of systems whose channels share a state", "", lti<double>, s5<double>, lru<double>) {
  OGIVE_SEED(seed, 470);
  for (const testing::law& law : testing::gradient_laws<TestType>()) tests::check_law(law, seed);
}

TEST_CASE("gradients of systems whose channels share a state, in other types") {
  OGIVE_SEED(seed, 471);
  SECTION(lti<float>::name) { tests::check_law(testing::law_of_rounded_gradients<lti<float>, lti<double>>(), seed); }
  SECTION(s5<float>::name) { tests::check_law(testing::law_of_rounded_gradients<s5<float>, s5<double>>(), seed); }
  SECTION(lru<float>::name) { tests::check_law(testing::law_of_rounded_gradients<lru<float>, lru<double>>(), seed); }
}

#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/gated.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("gradients of operators that decay and add", "", simple_gla<double>, retention<double>, gla<double>,
                   hgrn2<double>, rwkv5<double>, rwkv6<double>) {
  OGIVE_SEED(seed, 201);
  for (const testing::law& law : testing::gradient_laws<TestType>()) tests::check_law(law, seed);
}

TEST_CASE("gradients of operators that decay and add in other types") {
  OGIVE_SEED(seed, 211);
  SECTION(gla<float>::name) { tests::check_law(testing::law_of_rounded_gradients<gla<float>, gla<double>>(), seed); }
  SECTION(rwkv5<float>::name) {
    tests::check_law(testing::law_of_rounded_gradients<rwkv5<float>, rwkv5<double>>(), seed);
  }
  SECTION(simple_gla<float>::name) {
    tests::check_law(testing::law_of_rounded_gradients<simple_gla<float>, simple_gla<double>>(), seed);
  }
}

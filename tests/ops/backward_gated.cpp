#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/gated.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("gradients of operators that decay and add", "", simple_gla<double>, retention<double>, gla<double>,
                   hgrn2<double>, rwkv5<double>, rwkv6<double>) {
  OGIVE_SEED(seed, 201);
  for (const testing::law& law : testing::gradient_laws<TestType>()) tests::check_law(law, seed);
}

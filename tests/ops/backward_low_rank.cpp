#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/low_rank.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("gradients of low-rank removals", "", rwkv7<double>, dplr<double>, iplr<double>) {
  OGIVE_SEED(seed, 203);
  for (const testing::law& law : testing::gradient_laws<TestType>()) tests::check_law(law, seed);
}

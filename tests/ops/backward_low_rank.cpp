#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/low_rank.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("gradients of low-rank removals", "", rwkv7<double>, dplr<double>, iplr<double>) {
  OGIVE_SEED(seed, 203);
  for (const testing::law& law : testing::gradient_laws<TestType>()) tests::check_law(law, seed);
}

TEST_CASE("gradients of low-rank removals in other types") {
  OGIVE_SEED(seed, 211);
  SECTION(rwkv7<float>::name) {
    tests::check_law(testing::law_of_rounded_gradients<rwkv7<float>, rwkv7<double>>(), seed);
  }
  SECTION(iplr<float>::name) { tests::check_law(testing::law_of_rounded_gradients<iplr<float>, iplr<double>>(), seed); }
}

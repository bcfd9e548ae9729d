#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/ssd.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEST_CASE("gradients of SSD") {
  OGIVE_SEED(seed, 204);
  for (const testing::law& law : testing::gradient_laws<ssd<double>>()) tests::check_law(law, seed);
}

TEST_CASE("gradients of SSD in other types") {
  OGIVE_SEED(seed, 211);
  SECTION(ssd<float>::name) { tests::check_law(testing::law_of_rounded_gradients<ssd<float>, ssd<double>>(), seed); }
  SECTION("bfloat16") { tests::check_law(testing::law_of_rounded_gradients<ssd<bfloat16>, ssd<double>>(), seed); }
}

#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/linear_attention.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEST_CASE("gradients of ReBased") {
  OGIVE_SEED(seed, 216);
  using Op = linear_attention<double, maps::rebased<double>>;
  for (const testing::law& law : testing::gradient_laws<Op>()) tests::check_law(law, seed);
}

#include <ogive/testing/samplers/token_shift.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("the token shift keeps the laws", "", float, bfloat16) {
  OGIVE_SEED(seed, 90);
  tests::check_laws<token_shift<TestType>>(seed);
}

#include <ogive/testing/samplers/softmax_attention.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("softmax attention keeps the laws", "", float, double, bfloat16, float16) {
  OGIVE_SEED(seed, 50);
  tests::check_laws<softmax_attention<TestType>>(seed);
}

#include <ogive/testing/samplers/short_convolution.hpp>
#include <ogive/testing/samplers/token_shift.hpp>

#include "tests/ops/snapshots.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("layers with a window keep states on the way", "", short_convolution<float>, token_shift<float>) {
  OGIVE_SEED(seed, 65);
  tests::check_kept_states<TestType, bfloat16>(seed, 12);
}

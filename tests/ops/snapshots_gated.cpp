#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/samplers/gated_rfa.hpp>

#include "tests/ops/snapshots.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("states of gates are kept on the way", "", retention<float>, simple_gla<float>, hgrn2<float>,
                   rwkv5<float>, (gated_rfa<float, maps::elu1>)) {
  OGIVE_SEED(seed, 153);
  tests::check_kept_states<TestType>(seed);
}

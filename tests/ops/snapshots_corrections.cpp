#include <ogive/testing/samplers/delta_rules.hpp>
#include <ogive/testing/samplers/low_rank.hpp>

#include "tests/ops/snapshots.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("states of corrections are kept on the way", "", delta_rule<float>, kda<float>, rwkv7<float>,
                   dplr<float>, iplr<float>, rwkv7<double>) {
  OGIVE_SEED(seed, 152);
  tests::check_kept_states<TestType>(seed);
}

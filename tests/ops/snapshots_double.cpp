#include <ogive/testing/samplers/delta_rules.hpp>
#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/samplers/linear_attention.hpp>
#include <ogive/testing/samplers/ssd.hpp>

#include "tests/ops/snapshots.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("states are kept on the way, in double", "", linear_attention<double>, ssd<double>, gla<double>,
                   gated_delta_rule<double>, rwkv6<double>) {
  OGIVE_SEED(seed, 151);
  tests::check_kept_states<TestType, bfloat16>(seed);
}

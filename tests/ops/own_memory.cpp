#include "tests/ops/own_memory.hpp"

#include <ogive/testing/samplers/delta_rules.hpp>
#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/samplers/gated_rfa.hpp>
#include <ogive/testing/samplers/hgrn.hpp>
#include <ogive/testing/samplers/low_rank.hpp>
#include <ogive/testing/samplers/noncausal_linear_attention.hpp>
#include <ogive/testing/samplers/rwkv4.hpp>
#include <ogive/testing/samplers/selective_scan.hpp>
#include <ogive/testing/samplers/ssd.hpp>

using namespace ogive;

TEMPLATE_TEST_CASE("what is written has memory of its own, and every extent is asked for", "", linear_attention<float>,
                   gated_rfa<float>, noncausal_linear_attention<float>, ssd<float>, retention<float>, gla<float>,
                   hgrn2<float>, rwkv4<float>, rwkv5<float>, rwkv6<float>, rwkv7<float>, dplr<float>, iplr<float>,
                   delta_rule<float>, gated_delta_rule<float>, kda<float>, selective_scan<float>, hgrn<float>) {
  OGIVE_SEED(seed, 310);
  tests::check_doors<TestType>(seed);
}

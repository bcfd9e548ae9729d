#include <ogive/testing/samplers/delta_rules.hpp>
#include <ogive/testing/samplers/low_rank.hpp>

#include "tests/ops/backward_bfloat16.hpp"

using namespace ogive;
using tests::check_rounded_gradients;

TEST_CASE("gradients of bfloat16 are those of double, rounded: writes that correct") {
  SECTION("delta rule") { check_rounded_gradients<delta_rule<bfloat16>, delta_rule<double>>(); }
  SECTION("gated delta rule") { check_rounded_gradients<gated_delta_rule<bfloat16>, gated_delta_rule<double>>(); }
  SECTION("KDA") { check_rounded_gradients<kda<bfloat16>, kda<double>>(); }
  SECTION("IPLR") { check_rounded_gradients<iplr<bfloat16>, iplr<double>>(); }
  SECTION("DPLR") { check_rounded_gradients<dplr<bfloat16>, dplr<double>>(); }
  SECTION("RWKV-7") { check_rounded_gradients<rwkv7<bfloat16>, rwkv7<double>>(); }
}

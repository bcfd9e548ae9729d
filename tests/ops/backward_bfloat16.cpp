#include "tests/ops/backward_bfloat16.hpp"

#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/samplers/gated_rfa.hpp>
#include <ogive/testing/samplers/linear_attention.hpp>

using namespace ogive;
using tests::check_rounded_gradients;

TEST_CASE("gradients of bfloat16 are those of double, rounded: writes that add") {
  SECTION("linear attention") {
    check_rounded_gradients<linear_attention<bfloat16, maps::elu1>, linear_attention<double, maps::elu1>>();
  }
  SECTION("retention") { check_rounded_gradients<retention<bfloat16>, retention<double>>(); }
  SECTION("simple GLA") { check_rounded_gradients<simple_gla<bfloat16>, simple_gla<double>>(); }
  SECTION("GLA") { check_rounded_gradients<gla<bfloat16>, gla<double>>(); }
  SECTION("HGRN2") { check_rounded_gradients<hgrn2<bfloat16>, hgrn2<double>>(); }
  SECTION("RWKV-5") { check_rounded_gradients<rwkv5<bfloat16>, rwkv5<double>>(); }
  SECTION("RWKV-6") { check_rounded_gradients<rwkv6<bfloat16>, rwkv6<double>>(); }
  SECTION("gated RFA") { check_rounded_gradients<gated_rfa<bfloat16, maps::elu1>, gated_rfa<double, maps::elu1>>(); }
}

#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/delta_rules.hpp>
#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/samplers/gated_rfa.hpp>
#include <ogive/testing/samplers/low_rank.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEST_CASE("gradients of bfloat16 are those of double, rounded") {
  OGIVE_SEED(seed, 212);
  const auto check = [&]<class Narrow, class Wide>(Narrow, Wide) {
    tests::check_law(testing::law_of_rounded_gradients<Narrow, Wide>(), seed);
  };
  SECTION("retention") { check(retention<bfloat16>(), retention<double>()); }
  SECTION("HGRN2") { check(hgrn2<bfloat16>(), hgrn2<double>()); }
  SECTION("RWKV-6") { check(rwkv6<bfloat16>(), rwkv6<double>()); }
  SECTION("KDA") { check(kda<bfloat16>(), kda<double>()); }
  SECTION("DPLR") { check(dplr<bfloat16>(), dplr<double>()); }
  SECTION("RWKV-7") { check(rwkv7<bfloat16>(), rwkv7<double>()); }
  SECTION("gated RFA") { check(gated_rfa<bfloat16, maps::elu1>(), gated_rfa<double, maps::elu1>()); }
}

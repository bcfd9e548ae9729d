#include "tests/ops/qk_l2norm.hpp"

#include <ogive/testing/samplers/delta_rules.hpp>
#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/samplers/low_rank.hpp>

using namespace ogive;
using namespace ogive::tests;

TEMPLATE_TEST_CASE("q and k are normalised before anything else, and rows of zeros stay zeros", "", retention<double>,
                   simple_gla<double>, gla<double>, rwkv5<double>, rwkv6<double>, rwkv7<double>, dplr<double>,
                   iplr<double>, delta_rule<double>, gated_delta_rule<double>, kda<double>) {
  OGIVE_SEED(seed, 220);
  check_l2norm<TestType>(seed);
}

TEST_CASE("the key of HGRN2, 1 - f, is normalised, and has a gradient where nothing is forgotten") {
  OGIVE_SEED(seed, 221);
  rng random(seed);
  memory room;
  const shape<4> keys{2, 19, 3, 5}, values{2, 19, 3, 7};
  const auto g = room.take<double>(keys), k = room.take<double>(keys), f = room.take<double>(keys);
  for_each(g, [&](double& gate, index_t i) { gate = i / 5 % 3 == 0 ? 0 : -random.unit(); });  // whole rows of 0
  for_each(k, [&](double& key, index_t i) { key = -std::expm1(g.data()[i]); });
  for_each(f, [&](double& gate, index_t i) { gate = std::exp(g.data()[i]); });
  const auto q = draw_uniform<double>(random, room, keys), v = draw_uniform<double>(random, room, values);
  const auto d_o = draw_uniform<double>(random, room, values);
  const hgrn2<double> op{.q = q, .v = v, .g = g, .qk_l2norm = l2norm_eps};
  const gla<double> same{.q = q, .k = k, .v = v, .g = g, .qk_l2norm = l2norm_eps};

  const auto dq = room.take<double>(keys), dv = room.take<double>(values), dg = room.take<double>(keys);
  const auto q_of = room.take<double>(keys), k_of = room.take<double>(keys), v_of = room.take<double>(values),
             g_of = room.take<double>(keys);
  for (const index_t chunk : {0, 1, 7}) {
    backward(op, {}, d_o, {}, {.q = dq, .v = dv, .g = dg}, {.chunk = chunk});
    backward(same, {}, d_o, {}, {.q = q_of, .k = k_of, .v = v_of, .g = g_of}, {.chunk = chunk});
    for_each(g_of, [&](double& d, index_t i) { d -= f.data()[i] * k_of.data()[i]; });
    for (const auto& [d, right] : {std::pair(dq, q_of), std::pair(dv, v_of), std::pair(dg, g_of)}) {
      double size = 1;  // up to 1/√ε
      for (const double slope : flatten(right)) size = std::fmax(size, std::fabs(slope));
      const auto gap = compare(d, view<const double, 4>(right), tolerance<double>(19 + 5 + 8), {.scale = size});
      INFO(gap);
      CHECK(gap.ok);
    }
  }
}

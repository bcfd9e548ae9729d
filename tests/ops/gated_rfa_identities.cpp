// Identities of gated RFA: where it is another operator, it gives the same.
#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/samplers/gated_rfa.hpp>

#include "tests/ops/identities.hpp"

using namespace ogive;
using namespace ogive::tests;

TEMPLATE_TEST_CASE("gated RFA without a normaliser is simple GLA on values times 1 - f", "", float, double) {
  OGIVE_SEED(seed, 212);
  for_seeds(seed, 16, [](std::uint64_t s) {
    trial<gated_rfa<TestType, maps::identity>> x(s);
    auto& op = x.op;
    op.normalise = false;
    op.key_mask = {};
    const index_t H = op.v.extent(2), Hk = op.k.extent(2);
    const auto v = x.room.copy(op.v);
    const auto g = x.room.template take<TestType>(shape<3>{v.extent(0), v.extent(1), H});
    for (index_t b = 0; b < v.extent(0); ++b) {
      for (index_t t = 0; t < v.extent(1); ++t) {
        for (index_t h = 0; h < H; ++h) {
          g(b, t, h) = op.g(b, t, reference::read_by(h, H, Hk, op.head_map));
          for (index_t c = 0; c < v.extent(3); ++c) v(b, t, h, c) *= -std::expm1(g(b, t, h));
        }
      }
    }
    const simple_gla<TestType> same{
        .q = op.q, .k = op.k, .v = v, .g = g, .scale = op.scale, .qk_l2norm = op.qk_l2norm, .head_map = op.head_map};
    check_same(x, op, same, false);
  });
}

TEMPLATE_TEST_CASE("gated RFA that keeps (n - 1)/n of n tokens is linear attention", "", float, double) {
  OGIVE_SEED(seed, 213);
  for_seeds(seed, 8, [](std::uint64_t s) {
    using sums = linear_attention<TestType, maps::elu1>;
    using averages = gated_rfa<TestType, maps::elu1>;
    trial<sums> x(s);
    auto& op = x.op;
    op.normalise = true;
    op.eps_at = eps_placement::none;
    op.key_mask = {};
    const auto g = x.room.template take<TestType>(shape<3>{op.k.extent(0), op.k.extent(1), op.k.extent(2)});
    for (index_t t = 0; t < g.extent(1); ++t) {
      for_each(g.slice(1, t, 1), [&](TestType& gate, index_t) { gate = -std::log1p(1 / static_cast<TestType>(t)); });
    }
    const averages same{.q = op.q,
                        .k = op.k,
                        .v = op.v,
                        .g = g,
                        .qk_l2norm = op.qk_l2norm,
                        .eps_at = op.eps_at,
                        .head_map = op.head_map,
                        .position = op.position};
    const definition<sums, TestType> expected(op, {});
    const index_t roundings = sampler<averages>::roundings(same);
    const auto forgotten = draw_state<TestType>(x.random, x.room, same, sequence_count(same));
    for (const way& how : ways<averages>()) {
      outcome<sums, TestType> got{memory()};
      const auto ran = run<TestType>(how, same, forgotten);
      got.o = ran.o;
      INFO(x << how);
      CHECK(expected.excess(got, roundings) == "");
    }
  });
}

TEST_CASE("the gates of gated RFA are those of its keys") {
  const tensor<float, 4> q({1, 3, 4, 2}), k({1, 3, 2, 2}), v({1, 3, 4, 2});
  const tensor<float, 3> per_key({1, 3, 2}), per_value({1, 3, 4});
  tensor<float, 4> o({1, 3, 4, 2});
  gated_rfa<float, maps::elu1> op{.q = q, .k = k, .v = v, .g = per_key};
  CHECK(check(op, {}, o.all()));
  op.g = per_value;
  CHECK_THAT(std::string(check(op, {}, o.all()).text()), ContainsSubstring("a gate weighs a key"));
}

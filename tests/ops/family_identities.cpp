// Identities between operators that decay and add: where two of them are one, they give the same.
#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/samplers/linear_attention.hpp>
#include <ogive/testing/samplers/ssd.hpp>

#include "tests/ops/identities.hpp"

using namespace ogive;
using namespace ogive::tests;

TEMPLATE_TEST_CASE("GLA with equal gates is simple GLA", "", float, double) {
  OGIVE_SEED(seed, 145);
  for_seeds(seed, 8, [](std::uint64_t s) {
    trial<simple_gla<TestType>> x(s);
    const auto& op = x.op;
    const gla<TestType> same{.q = op.q,
                             .k = op.k,
                             .v = op.v,
                             .g = for_keys(op.g, op.q.extent(3)),
                             .scale = op.scale,
                             .qk_l2norm = op.qk_l2norm,
                             .head_map = op.head_map};
    check_same(x, op, same, false);
  });
}

TEMPLATE_TEST_CASE("simple GLA is SSD in other letters", "", float, double) {
  OGIVE_SEED(seed, 146);
  for_seeds(seed, 8, [](std::uint64_t s) {
    trial<ssd<TestType>> x(s);
    auto& op = x.op;
    op.D = {};
    op.z = {};
    op.dt_bias = {};
    op.dt_softplus = false;
    op.dt = testing::absolute(x.room, op.dt);
    op.dt_min = 0;
    op.dt_max = std::numeric_limits<TestType>::infinity();
    const index_t H = op.x.extent(2), P = op.x.extent(3);
    const auto v = x.room.copy(op.x);
    for_each(v, [&](TestType& element, index_t i) { element *= op.dt.data()[i / P]; });
    const auto g = x.room.copy(op.dt);
    for_each(g, [&](TestType& element, index_t i) { element *= op.A(i % H); });
    const simple_gla<TestType> same{
        .q = op.C, .k = op.B, .v = v, .g = g, .scale = TestType(1), .qk_l2norm = op.qk_l2norm, .head_map = op.head_map};
    check_same(x, op, same, true);
  });
}

TEMPLATE_TEST_CASE("retention is simple GLA with gates that stay", "", float, double) {
  OGIVE_SEED(seed, 147);
  for_seeds(seed, 8, [](std::uint64_t s) {
    trial<retention<TestType>> x(s);
    const auto& op = x.op;
    const view<const TestType, 3> g(op.log_gamma.data(), {op.v.extent(0), op.v.extent(1), op.v.extent(2)}, {0, 0, 1});
    const simple_gla<TestType> same{
        .q = op.q, .k = op.k, .v = op.v, .g = g, .scale = op.scale, .qk_l2norm = op.qk_l2norm, .head_map = op.head_map};
    check_same(x, op, same, true);
  });
}

TEMPLATE_TEST_CASE("retention that forgets nothing is linear attention without a normaliser", "", float, double) {
  OGIVE_SEED(seed, 148);
  for_seeds(seed, 8, [](std::uint64_t s) {
    trial<retention<TestType>> x(s);
    auto& op = x.op;
    op.log_gamma = filled<TestType, 1>(x.room, op.log_gamma.extents(), 0);
    const linear_attention<TestType> same{.q = op.q,
                                          .k = op.k,
                                          .v = op.v,
                                          .normalise = false,
                                          .scale = op.scale,
                                          .qk_l2norm = op.qk_l2norm,
                                          .head_map = op.head_map};
    check_same(x, op, same, false);
  });
}

TEMPLATE_TEST_CASE("HGRN2 is GLA whose keys are what its gates leave free", "", float, double) {
  OGIVE_SEED(seed, 149);
  for_seeds(seed, 8, [](std::uint64_t s) {
    trial<hgrn2<TestType>> x(s);
    const auto& op = x.op;
    const auto k = x.room.copy(op.g);
    for_each(k, [](TestType& element, index_t) { element = -std::expm1(element); });
    const gla<TestType> same{
        .q = op.q, .k = k, .v = op.v, .g = op.g, .scale = op.scale, .qk_l2norm = op.qk_l2norm, .head_map = op.head_map};
    check_same(x, op, same, false);
  });
}

TEMPLATE_TEST_CASE("RWKV-5 is RWKV-6 with decays that stay", "", float, double) {
  OGIVE_SEED(seed, 150);
  for_seeds(seed, 8, [](std::uint64_t s) {
    trial<rwkv5<TestType>> x(s);
    const auto& op = x.op;
    const index_t K = op.r.extent(3);
    const view<const TestType, 4> w(op.w.data(), {op.v.extent(0), op.v.extent(1), op.v.extent(2), K}, {0, 0, K, 1});
    const rwkv6<TestType> same{.r = op.r,
                               .k = op.k,
                               .v = op.v,
                               .w = w,
                               .u = op.u,
                               .scale = op.scale,
                               .qk_l2norm = op.qk_l2norm,
                               .head_map = op.head_map};
    check_same(x, op, same, true);
  });
}

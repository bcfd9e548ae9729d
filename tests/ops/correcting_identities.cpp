// Identities between operators whose writes depend on the state: where two of them are one, they give the same.
#include <ogive/testing/samplers/delta_rules.hpp>
#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/samplers/low_rank.hpp>

#include "tests/ops/identities.hpp"

using namespace ogive;
using namespace ogive::tests;

TEMPLATE_TEST_CASE("KDA with equal gates is the gated delta rule", "", float, double) {
  OGIVE_SEED(seed, 140);
  for_seeds(seed, 8, [](std::uint64_t s) {
    trial<gated_delta_rule<TestType>> x(s);
    const auto& op = x.op;
    const kda<TestType> same{.q = op.q,
                             .k = op.k,
                             .v = op.v,
                             .g = for_keys(op.g, op.q.extent(3)),
                             .beta = op.beta,
                             .scale = op.scale,
                             .qk_l2norm = op.qk_l2norm,
                             .head_map = op.head_map};
    check_same(x, op, same, false);
  });
}

TEMPLATE_TEST_CASE("the gated delta rule that forgets nothing is the delta rule", "", float, double) {
  OGIVE_SEED(seed, 141);
  for_seeds(seed, 8, [](std::uint64_t s) {
    trial<delta_rule<TestType>> x(s);
    auto& op = x.op;
    if (!op.beta.present()) {
      op.beta = view<const TestType, 4>(op.beta_per_value).permute({3, 0, 1, 2})[0];
      op.beta_per_value = {};
    }
    const gated_delta_rule<TestType> same{.q = op.q,
                                          .k = op.k,
                                          .v = op.v,
                                          .g = filled<TestType, 3>(x.room, op.beta.extents(), 0),
                                          .beta = op.beta,
                                          .scale = op.scale,
                                          .qk_l2norm = op.qk_l2norm,
                                          .head_map = op.head_map};
    check_same(x, op, same, true);
  });
}

TEMPLATE_TEST_CASE("the delta rule is an identity plus low rank, whatever beta and however often a key comes", "",
                   float, double) {
  OGIVE_SEED(seed, 142);
  for_seeds(seed, 5, [](std::uint64_t s) {
    trial<delta_rule<TestType>> x(s);
    auto& op = x.op;
    if (coin(x.random)) sampler<delta_rule<TestType>>::harden(x.random, op);
    op.qk_l2norm = {};
    const index_t K = op.k.extent(3), rows = op.k.extent(0) * op.k.extent(1) * op.k.extent(2);
    const auto k = x.room.copy(op.k);
    for (index_t row = 0; row < rows; ++row) {
      const view<TestType, 1> one(k.data() + row * K, {K});
      const auto length = static_cast<TestType>(norm(view<const TestType, 1>(one)));
      for_each(one, [&](TestType& element, index_t) { element = length > 0 ? element / length : TestType(0); });
    }
    op.k = k;
    op.beta_per_value = {};
    const auto scaled = [&](const auto& field, TestType by) {
      const auto y = x.room.copy(field);
      for_each(y, [&](TestType& element, index_t) { element *= by; });
      return view<const TestType, 4>(y);
    };
    const shape<3> tokens{op.v.extent(0), op.v.extent(1), op.v.extent(2)};
    const shape<4> gates{tokens[0], tokens[1], tokens[2], K};
    for (const TestType beta : {TestType(0.5), TestType(1), TestType(2)}) {
      CAPTURE(beta);
      op.beta = filled<TestType, 3>(x.room, tokens, beta);
      const auto v = scaled(op.v, beta), a = scaled(op.k, TestType(-1)), b = scaled(op.k, beta);
      const auto none = filled<TestType, 4>(x.room, gates, 0);
      check_same(
          x, op,
          iplr<TestType>{.q = op.q, .k = op.k, .v = v, .a = a, .b = b, .scale = op.scale, .head_map = op.head_map},
          false);
      check_same(
          x, op,
          dplr<TestType>{
              .q = op.q, .k = op.k, .v = v, .a = a, .b = b, .g = none, .scale = op.scale, .head_map = op.head_map},
          false);
      check_same(x, op,
                 rwkv7<TestType>{.r = op.q,
                                 .w = none,
                                 .k = op.k,
                                 .v = v,
                                 .kk = op.k,
                                 .a = filled<TestType, 4>(x.room, op.k.extents(), beta),
                                 .scale = op.scale.value_or(1 / std::sqrt(static_cast<TestType>(K))),
                                 .head_map = op.head_map},
                 false);
    }
  });
}

TEMPLATE_TEST_CASE("RWKV-7 is a diagonal plus low rank", "", float, double) {
  OGIVE_SEED(seed, 143);
  for_seeds(seed, 8, [](std::uint64_t s) {
    trial<rwkv7<TestType>> x(s);
    const auto& op = x.op;
    const auto a = x.room.copy(op.kk), b = x.room.copy(op.kk);
    for_each(a, [](TestType& element, index_t) { element = -element; });
    for_each(b, [&](TestType& element, index_t i) { element *= op.a.data()[i]; });
    const dplr<TestType> same{.q = op.r,
                              .k = op.k,
                              .v = op.v,
                              .a = a,
                              .b = b,
                              .g = op.w,
                              .scale = op.scale,
                              .qk_l2norm = op.qk_l2norm,
                              .head_map = op.head_map};
    check_same(x, op, same, true);
  });
}

TEMPLATE_TEST_CASE("a diagonal of ones plus low rank is an identity plus low rank", "", float, double) {
  OGIVE_SEED(seed, 144);
  for_seeds(seed, 8, [](std::uint64_t s) {
    trial<iplr<TestType>> x(s);
    const auto& op = x.op;
    const shape<4> gates{op.v.extent(0), op.v.extent(1), op.v.extent(2), op.q.extent(3)};
    const dplr<TestType> same{.q = op.q,
                              .k = op.k,
                              .v = op.v,
                              .a = op.a,
                              .b = op.b,
                              .g = filled<TestType, 4>(x.room, gates, 0),
                              .scale = op.scale,
                              .qk_l2norm = op.qk_l2norm,
                              .head_map = op.head_map};
    check_same(x, op, same, false);
  });
}

TEMPLATE_TEST_CASE("tiled heads are consecutive heads in another order, whatever decays and corrects", "", kda<double>,
                   rwkv7<double>, rwkv6<float>) {
  OGIVE_SEED(seed, 151);
  using Op = TestType;
  using S = storage_of<Op>;
  for_seeds(seed, 24, [](std::uint64_t s) {
    trial<Op> x(s);
    const auto q = reference::detail::queries_of(x.op);
    const index_t H = x.op.v.extent(2), Hk = x.op.k.extent(2);
    if (q.extent(2) != Hk) return;
    x.op.head_map = heads::tiled;
    // Consecutive head h reads key head h div (H/Hk); tiled head t reads t mod Hk: they meet at this t.
    const auto tiled_of = [&](index_t h) { return h % (H / Hk) * Hk + h / (H / Hk); };
    Op sorted = x.op;
    sorted.head_map = heads::consecutive;
    const auto sort = [&](auto& field, std::size_t axis) {
      if (!field.present()) return;
      const auto own = x.room.copy(field);
      for (index_t h = 0; h < H; ++h) memory::assign(own.slice(axis, h, 1), field.slice(axis, tiled_of(h), 1));
      field = own;
    };
    sort(sorted.v, 2);
    if constexpr (requires { sorted.g; }) sort(sorted.g, 2);
    if constexpr (requires { sorted.w; }) sort(sorted.w, 2);
    if constexpr (requires { sorted.beta; }) sort(sorted.beta, 2);
    if constexpr (requires { sorted.u; }) sort(sorted.u, 0);
    for (const way& how : ways<Op>()) {
      const auto tiled = run<S>(how, x.op, {});
      const auto consecutive = run<S>(how, sorted, {});
      for (index_t h = 0; h < H; ++h) {
        INFO(x << how);
        CHECK(difference(consecutive.o.slice(2, h, 1), tiled.o.slice(2, tiled_of(h), 1)) == "");
        CHECK(difference(consecutive.st.final.slice(1, h, 1), tiled.st.final.slice(1, tiled_of(h), 1)) == "");
      }
    }
  });
}

// Identities between operators with a matrix state: where two of them are one, they give the same.
#include <ogive/testing/samplers/delta_rules.hpp>
#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/samplers/linear_attention.hpp>
#include <ogive/testing/samplers/low_rank.hpp>
#include <ogive/testing/samplers/ssd.hpp>
#include <ogive/testing/trials.hpp>

#include "tests/catch.hpp"

using namespace ogive;
using namespace ogive::testing;

namespace {

/// What a run of another operator left, to be held against the definition of this one.
template <class Op, class S, class Other>
outcome<Op, S> as(const outcome<Other, S>& ran) {
  outcome<Op, S> same{memory()};
  same.o = ran.o;
  same.st.initial = ran.st.initial;
  same.st.final = ran.st.final;
  return same;
}

/// `other` gives what `op` is defined to give, in every form; and its bits where the operations are the same.
template <class Op, class Other>
void check_same(const trial<Op>& x, const Op& op, const Other& other, bool to_the_bit) {
  using T = typename Op::scalar;
  memory room;
  rng random(x.seed);
  const auto given = draw_state<T>(random, room, op, sequence_count(op));
  const state_for<Other, T> same{.initial = given.initial};
  const definition<Op> expected(op, given);
  for (const way& how : ways<Op>()) {
    const auto got = run<T>(how, other, same);
    INFO(x << how);
    CHECK(expected.excess(as<Op, T>(got), length_of(op)) == "");
    const bool chosen = how.kind == way::kind::forward || (how.kind == way::kind::chunked && how.chunk == 0);
    if (!to_the_bit || chosen) continue;  // forms and chunks may be chosen by the policies
    const auto own = run<T>(how, op, given);
    CHECK(difference(got.o, own.o) == "");
    CHECK(difference(got.st.final, own.st.final) == "");
  }
}

/// g [B, L, H] for every key channel.
template <class T>
view<const T, 4> for_keys(const view<const T, 3>& g, index_t K) {
  return {g.data(), {g.extent(0), g.extent(1), g.extent(2), K}, {g.stride(0), g.stride(1), g.stride(2), 0}};
}

template <class T, std::size_t Rank>
view<const T, Rank> filled(memory& room, const shape<Rank>& extents, T number) {
  const auto x = room.take<T>(extents);
  for_each(x, [&](T& element, index_t) { element = number; });
  return x;
}

}  // namespace

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

TEMPLATE_TEST_CASE("the delta rule is an identity plus low rank", "", float, double) {
  OGIVE_SEED(seed, 142);
  for_seeds(seed, 8, [](std::uint64_t s) {
    trial<delta_rule<TestType>> x(s);
    auto& op = x.op;
    op.qk_l2norm = {};
    const TestType shorter = TestType(1) / std::sqrt(static_cast<TestType>(op.k.extent(3)));
    const auto k = x.room.template take<TestType>(op.k.extents());  // no longer than one
    for_each(k, [&](TestType& element, index_t i) { element = op.k.data()[i] * shorter; });
    op.k = k;
    op.beta = filled<TestType, 3>(x.room, {op.v.extent(0), op.v.extent(1), op.v.extent(2)}, 0.5);
    op.beta_per_value = {};
    const auto scaled = [&](const auto& field, TestType by) {
      const auto y = x.room.copy(field);
      for_each(y, [&](TestType& element, index_t) { element *= by; });
      return view<const TestType, 4>(y);
    };
    const iplr<TestType> same{.q = op.q,
                              .k = op.k,
                              .v = scaled(op.v, TestType(0.5)),
                              .a = scaled(op.k, TestType(-1)),
                              .b = scaled(op.k, TestType(0.5)),
                              .scale = op.scale,
                              .head_map = op.head_map};
    check_same(x, op, same, false);
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
    const dplr<TestType> same{
        .q = op.r, .k = op.k, .v = op.v, .a = a, .b = b, .g = op.w, .scale = op.scale, .head_map = op.head_map};
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
                              .head_map = op.head_map};
    check_same(x, op, same, false);
  });
}

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
        .q = op.C, .k = op.B, .v = v, .g = g, .scale = TestType(1), .head_map = op.head_map};
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
        .q = op.q, .k = op.k, .v = op.v, .g = g, .scale = op.scale, .head_map = op.head_map};
    check_same(x, op, same, true);
  });
}

TEMPLATE_TEST_CASE("retention that forgets nothing is linear attention without a normaliser", "", float, double) {
  OGIVE_SEED(seed, 148);
  for_seeds(seed, 8, [](std::uint64_t s) {
    trial<retention<TestType>> x(s);
    auto& op = x.op;
    op.log_gamma = filled<TestType, 1>(x.room, op.log_gamma.extents(), 0);
    const linear_attention<TestType> same{
        .q = op.q, .k = op.k, .v = op.v, .normalise = false, .scale = op.scale, .head_map = op.head_map};
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
    const gla<TestType> same{.q = op.q, .k = k, .v = op.v, .g = op.g, .scale = op.scale, .head_map = op.head_map};
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
    const rwkv6<TestType> same{
        .r = op.r, .k = op.k, .v = op.v, .w = w, .u = op.u, .scale = op.scale, .head_map = op.head_map};
    check_same(x, op, same, true);
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

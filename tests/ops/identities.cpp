// Identities between operators: where two of them are one, they give the same.
#include <ogive/testing/samplers/noncausal_linear_attention.hpp>
#include <ogive/testing/samplers/selective_scan.hpp>
#include <ogive/testing/samplers/ssd.hpp>
#include <ogive/testing/trials.hpp>

#include "tests/catch.hpp"

using namespace ogive;
using namespace ogive::testing;

TEMPLATE_TEST_CASE("SSD is a selective scan whose channels of a head share A and dt", "", float, double) {
  OGIVE_SEED(seed, 60);
  for_seeds(seed, 10, [](std::uint64_t s) {
    trial<ssd<TestType>> x(s);
    x.op.head_map = heads::consecutive;
    const auto [B, L, H, P] = x.op.x.extents();
    const index_t N = x.op.B.extent(3);
    const auto flat = [&, L = L, H = H, P = P, B = B](const view<const TestType, 4>& from) {
      return view<const TestType, 3>(from.data(), {B, L, H * P});
    };
    // [B, L, H] and [H, …] read once per channel: every channel of a head the same number
    const auto dt = x.room.template take<TestType>(shape<3>{B, L, H * P});
    for_each(dt, [&, P = P](TestType& d, index_t i) { d = x.op.dt.data()[i / P]; });
    const auto per_channel = [&, H = H, P = P](const auto& of_head) {
      const auto y = x.room.template take<TestType>(shape<1>{H * P});
      for_each(y, [&](TestType& number, index_t c) { number = of_head(c / P, c % P); });
      return view<const TestType, 1>(y);
    };
    const auto A = x.room.template take<TestType>(shape<2>{H * P, N});
    for_each(A, [&, P = P](TestType& rate, index_t i) { rate = x.op.A(i / (P * N)); });
    if (x.op.dt_max < 1) return;  // a scan has no limits of its own
    x.op.qk_l2norm = {};

    selective_scan<TestType> scan{.u = flat(x.op.x), .dt = dt, .A = A, .B = x.op.B, .C = x.op.C};
    if (x.op.D.present()) {
      scan.D = per_channel([&](index_t h, index_t c) { return x.op.D(h, x.op.D.extent(1) == 1 ? 0 : c); });
    }
    if (x.op.z.present()) scan.z = flat(x.op.z);
    if (x.op.dt_bias.present()) scan.dt_bias = per_channel([&](index_t h, index_t) { return x.op.dt_bias(h); });
    scan.dt_softplus = x.op.dt_softplus;

    const definition<ssd<TestType>> expected(x.op, {});
    outcome<ssd<TestType>, TestType> scanned{memory()};
    scanned.o = scanned.room.template take<TestType>(x.op.x.extents());
    forward(scan, {}, view<TestType, 3>(scanned.o.data(), scan.u.extents()));
    INFO(x);
    CHECK(expected.excess(scanned, 1) == "");
    CHECK(expected.excess(run<TestType>({way::kind::chunked}, x.op, {}), 1) == "");
  });
}

TEMPLATE_TEST_CASE("SSD that forgets nothing is linear attention", "", float, double) {
  OGIVE_SEED(seed, 61);
  for_seeds(seed, 10, [](std::uint64_t s) {
    trial<linear_attention<TestType>> x(s);
    x.op.normalise = false;
    x.op.scale = TestType(1);
    x.op.key_mask = {};
    if (x.op.q.extent(2) != x.op.k.extent(2)) return;
    const tensor<TestType, 3> dt({x.op.v.extent(0), x.op.v.extent(1), x.op.v.extent(2)}, TestType(1));
    const tensor<TestType, 1> A({x.op.v.extent(2)}, TestType(0));
    const ssd<TestType> dual{.x = x.op.v,
                             .dt = dt,
                             .A = A,
                             .B = x.op.k,
                             .C = x.op.q,
                             .qk_l2norm = x.op.qk_l2norm,
                             .head_map = x.op.head_map};
    const auto expected = run<TestType>({way::kind::chunked, 16}, x.op, {});
    const auto got = run<TestType>({way::kind::chunked, 16}, dual, {});
    INFO(x);
    CHECK(difference(got.o, expected.o) == "");
    CHECK(difference(got.st.final, expected.st.final) == "");
  });
}

TEMPLATE_TEST_CASE("the last row of causal linear attention has seen every key", "", float, double) {
  OGIVE_SEED(seed, 62);
  for_seeds(seed, 10, [](std::uint64_t s) {
    trial<linear_attention<TestType>> x(s);
    const auto& op = x.op;
    const index_t last = op.q.extent(1) - 1;
    const noncausal_linear_attention<TestType> all{.q = op.q.slice(1, last, 1),
                                                   .k = op.k,
                                                   .v = op.v,
                                                   .normalise = op.normalise,
                                                   .scale = op.scale,
                                                   .qk_l2norm = op.qk_l2norm,
                                                   .eps = op.eps,
                                                   .eps_at = op.eps_at,
                                                   .key_mask = op.key_mask,
                                                   .head_map = op.head_map};
    const definition<noncausal_linear_attention<TestType>> expected(all, {});
    outcome<noncausal_linear_attention<TestType>, TestType> got{memory()};
    const auto causal = run<TestType>({way::kind::chunked}, op, {});
    got.o = causal.o.slice(1, last, 1);
    INFO(x);
    CHECK(expected.excess(got, 1) == "");
  });
}

TEMPLATE_TEST_CASE("tiled heads are consecutive heads in another order", "", float, double) {
  OGIVE_SEED(seed, 63);
  for_seeds(seed, 10, [](std::uint64_t s) {
    trial<ssd<TestType>> x(s);
    x.op.head_map = heads::tiled;
    const index_t H = x.op.x.extent(2);
    const index_t G = x.op.B.extent(2);
    // Consecutive head h reads group h div (H/G); tiled head t reads t mod G: they meet at t = (h mod H/G) G + h div
    // H/G.
    const auto tiled_of = [&](index_t h) { return h % (H / G) * G + h / (H / G); };
    auto sorted = x.op;
    const auto sort = [&](auto& field, std::size_t axis) {
      if (!field.present()) return;
      const auto own = x.room.copy(field);
      for (index_t h = 0; h < H; ++h) memory::assign(own.slice(axis, h, 1), field.slice(axis, tiled_of(h), 1));
      field = own;
    };
    sort(sorted.x, 2);
    sort(sorted.dt, 2);
    sort(sorted.z, 2);
    sort(sorted.A, 0);
    sort(sorted.D, 0);
    sort(sorted.dt_bias, 0);
    sorted.head_map = heads::consecutive;
    for (const way& how : ways<ssd<TestType>>()) {
      const auto tiled = run<TestType>(how, x.op, {});
      const auto consecutive = run<TestType>(how, sorted, {});
      for (index_t h = 0; h < H; ++h) {
        INFO(x << how);
        CHECK(difference(consecutive.o.slice(2, h, 1), tiled.o.slice(2, tiled_of(h), 1)) == "");
        CHECK(difference(consecutive.st.final.slice(1, h, 1), tiled.st.final.slice(1, tiled_of(h), 1)) == "");
      }
    }
  });
}

#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/noncausal_linear_attention.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("gradients of linear attention without time", "", maps::identity, maps::elu1, maps::taylor,
                   maps::cosformer) {
  OGIVE_SEED(seed, 207);
  for (const testing::law& law : testing::gradient_laws<noncausal_linear_attention<double, TestType>>()) {
    tests::check_law(law, seed);
  }
}

TEMPLATE_TEST_CASE("gradients of linear attention without time in float", "", maps::identity, maps::elu1) {
  OGIVE_SEED(seed, 208);
  tests::check_law(testing::law_of_rounded_gradients<noncausal_linear_attention<float, TestType>,
                                                     noncausal_linear_attention<double, TestType>>(),
                   seed);
}

TEST_CASE("gradients of linear attention without time are slopes wherever its epsilon stands") {
  OGIVE_SEED(seed, 210);
  testing::report found;
  for (std::uint64_t turn = 0; turn < 8; ++turn) {  // some six quotients for each of the four places
    testing::detail::gradients_are_slopes<noncausal_linear_attention<double, maps::elu1>>(seed + turn, found);
  }
  INFO(found.text());
  CHECK(found.ok());
}

TEST_CASE("heads that share a query or a key sum the gradients that each would have alone") {
  OGIVE_SEED(seed, 209);
  using Op = noncausal_linear_attention<double, maps::elu1>;
  testing::rng random(seed);
  struct head_counts {
    index_t queries, keys, values;
  };
  const head_counts all = GENERATE(head_counts{2, 3, 6}, head_counts{4, 6, 12}, head_counts{12, 2, 4},
                                   head_counts{8, 8, 8}, head_counts{16, 8, 8});
  const index_t Hq = all.queries, Hk = all.keys, H = all.values;
  const heads head_map = GENERATE(heads::consecutive, heads::tiled);
  CAPTURE(Hq, Hk, H, head_map);
  const index_t B = 5, L = 70, S = 67, O = std::max(Hq, H);
  testing::memory room;
  Op op;
  op.q = testing::draw_uniform<double>(random, room, shape<4>{B, L, Hq, 3});
  op.k = testing::draw_uniform<double>(random, room, shape<4>{B, S, Hk, 3});
  op.v = testing::draw_uniform<double>(random, room, shape<4>{B, S, H, 5});
  op.head_map = head_map;
  testing::cotangents_of<Op> c;
  c.o = testing::draw_uniform<double>(random, room, shape<4>{B, L, O, 5});
  const auto together = testing::detail::run_backward(op, Op::default_state{}, c, {});

  testing::gradients_found<Op> sums{testing::memory()};
  testing::detail::for_gradients(op, sums.d, [&](const auto& x, auto& d) {
    d = sums.room.take<double>(x.extents());
    testing::for_each(d, [](double& number, index_t) { number = 0; });
  });
  const auto read_by = [&](index_t reader, index_t many, index_t few) {
    return head_map == heads::consecutive ? reader / (many / few) : reader % few;
  };
  for (index_t b = 0; b < B; ++b) {
    for (index_t o = 0; o < O; ++o) {
      const index_t h = read_by(o, O, H);
      const auto head = [&](const auto& x, index_t number) { return x.slice(0, b, 1).slice(2, number, 1); };
      const auto of_q = [&](const auto& x) { return head(x, read_by(o, O, Hq)); };
      const auto of_k = [&](const auto& x) { return head(x, read_by(h, H, Hk)); };
      Op alone = op;
      alone.q = of_q(op.q), alone.k = of_k(op.k), alone.v = head(op.v, h);
      backward(alone, {}, head(c.o, o), sums.st, {of_q(sums.d.q), of_k(sums.d.k), head(sums.d.v, h)},
               {.accumulate = true});
    }
  }
  const double bound = testing::detail::gradient_bound(op, testing::detail::largest_gradient(op, sums));
  CHECK(testing::detail::gradient_gap(op, together, sums, bound) == "");
}

TEST_CASE("backward of linear attention without time refuses what does not fit") {
  using Op = noncausal_linear_attention<float>;
  const tensor<float, 4> q({2, 3, 1, 4}), k({2, 5, 1, 4}), v({2, 5, 2, 6}), d_o({2, 3, 2, 6});
  tensor<float, 4> d_q(q.extents()), d_k(k.extents()), d_v(v.extents()), S({2, 2, 4, 6});
  tensor<float, 3> z({2, 2, 4});
  Op op;
  op.q = q, op.k = k, op.v = v;
  const Op::gradient d{d_q.all(), d_k.all(), d_v.all()};
  const Op::default_state_gradient both{.initial = S.all(), .z_initial = z.all()};
  const Op::default_state none;
  CHECK(check_backward(op, none, d_o, both, d));
  CHECK_FALSE(check_backward(op, none, d_o, both, d, {.form = form::left}));
  CHECK_FALSE(check_backward(op, none, d_o, both, d, {.chunk = -1}));
  CHECK_FALSE(check_backward(op, none, v.all(), both, d));
  CHECK_FALSE(check_backward(op, none, d_o, both, {d_k.all(), d_k.all(), d_v.all()}));
  CHECK_FALSE(check_backward(op, none, d_o, both, {d_q.all(), d_k.all(), d_k.all()}));
  CHECK_FALSE(check_backward(op, none, d_o, both, {{}, d_v.all().slice(2, 0, 1).slice(3, 0, 4), d_v.all()}));
  CHECK_FALSE(check_backward(op, none, d_o, {.z_initial = z.all()}, d));
  CHECK_FALSE(check_backward(op, none, d_o, {.z_final = z.all()}, d));
  CHECK_FALSE(check_backward(op, {.initial = S.all()}, d_o, Op::default_state_gradient(), d));
  CHECK_FALSE(check_backward(op, {.initial = S.all(), .z_initial = z.all()}, d_o, both, d));
}

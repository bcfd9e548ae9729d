#include <ogive/ops/delta_rule.hpp>
#include <ogive/ops/gated_delta_rule.hpp>
#include <ogive/ops/linear_attention.hpp>
#include <ogive/ops/rwkv7.hpp>
#include <ogive/ops/ssd.hpp>
#include <ogive/testing/compare.hpp>
#include <ogive/testing/rng.hpp>

#include "tests/catch.hpp"

using namespace ogive;

namespace {

int calls_of_workers = 0;

/// Contexts of several workers, who take turns.
context in_turn(int workers) {
  static const auto pool = [](int count, const worker_body& body) {
    ++calls_of_workers;
    for (int worker = 0; worker < count; ++worker) body(worker);
  };
  return context::fork_join(pool, workers);
}

/// Outputs and final states of a call on head 0 of two, and on that head alone, which is cut into pieces of V.
template <class Op, class Alone>
void check_pieces(const Op& both, const Alone& head, index_t L, index_t K, index_t V) {
  tensor<float, 4> S({1, 2, K, V}), s({1, 1, K, V}), o({1, L, 2, V}), alone({1, L, 1, V});
  testing::rng random(3);
  testing::fill_uniform(random, S.all(), -1, 1);
  for (index_t i = 0; i < K; ++i) {
    for (index_t j = 0; j < V; ++j) s(0, 0, i, j) = S(0, 0, i, j);
  }
  const auto same = [&] {
    bool all = true;
    for (index_t t = 0; t < L; ++t) {
      for (index_t j = 0; j < V; ++j) all = all && o(0, t, 0, j) == alone(0, t, 0, j);
    }
    for (index_t i = 0; i < K; ++i) {
      for (index_t j = 0; j < V; ++j) all = all && S(0, 0, i, j) == s(0, 0, i, j);
    }
    return all;
  };
  for (const int workers : {2, 3, 8}) {
    CAPTURE(workers);
    context ctx = in_turn(workers);
    for (const form how : {form::recurrent, form::chunked}) {
      forward(both, S, o, {.form = how}, ctx);
      forward(head, s, alone, {.form = how}, ctx);
      CHECK(same());
    }
    step(both, S, o, {}, ctx);
    step(head, s, alone, {}, ctx);
    CHECK(same());
  }
  step(both, S, o);  // one worker takes the whole
  step(head, s, alone);
  CHECK(same());
}

template <class T, std::size_t Rank>
view<const T, Rank> first_head(const view<const T, Rank>& x, std::size_t axis) {
  return x.slice(axis, 0, 1);
}

}  // namespace

TEST_CASE("One state alone is cut into pieces of V that change no bit", "") {
  const index_t L = 37, K = 40, V = GENERATE(64, 72, 200, 256, 300);
  testing::rng random(5);
  tensor<float, 4> q({1, L, 2, K}), k({1, L, 2, K}), a({1, L, 2, K}), w({1, L, 2, K}), v({1, L, 2, V});
  tensor<float, 3> g({1, L, 2}), beta({1, L, 2});
  for (auto* x : {&q, &k, &a, &v}) testing::fill_uniform(random, x->all(), -0.2, 0.2);
  testing::fill_uniform(random, w.all(), -0.6, 0);
  testing::fill_uniform(random, g.all(), -0.6, 0);
  testing::fill_uniform(random, beta.all(), 0, 1);
  {
    gated_delta_rule<float> op{.q = q, .k = k, .v = v, .g = g, .beta = beta};
    auto head = op;
    head.q = first_head(op.q, 2), head.k = first_head(op.k, 2), head.v = first_head(op.v, 2);
    head.g = first_head(op.g, 2), head.beta = first_head(op.beta, 2);
    check_pieces(op, head, L, K, V);
  }
  {
    tensor<float, 4> own({1, L, 2, V});
    testing::fill_uniform(random, own.all(), 0, 1);
    delta_rule<float> op{.q = q, .k = k, .v = v, .beta_per_value = own};
    auto head = op;
    head.q = first_head(op.q, 2), head.k = first_head(op.k, 2), head.v = first_head(op.v, 2);
    head.beta_per_value = first_head(op.beta_per_value, 2);
    check_pieces(op, head, L, K, V);
  }
  {
    rwkv7<float> op{.r = q, .w = w, .k = k, .v = v, .kk = a, .a = k};
    auto head = op;
    head.r = first_head(op.r, 2), head.w = first_head(op.w, 2), head.k = first_head(op.k, 2);
    head.v = first_head(op.v, 2), head.kk = first_head(op.kk, 2), head.a = first_head(op.a, 2);
    check_pieces(op, head, L, K, V);
  }
  {
    tensor<float, 1> A({2}, -1.0F);
    tensor<float, 2> D({2, V});
    testing::fill_uniform(random, D.all(), -1, 1);
    ssd<float> op{.x = v, .dt = beta, .A = A, .B = k, .C = q, .D = D, .z = v};
    auto head = op;
    head.x = first_head(op.x, 2), head.dt = first_head(op.dt, 2), head.A = first_head(op.A, 0);
    head.B = first_head(op.B, 2), head.C = first_head(op.C, 2), head.D = first_head(op.D, 0);
    head.z = first_head(op.z, 2);
    check_pieces(op, head, L, K, V);
  }
}

TEST_CASE("Pieces of V divide by one normaliser, which one of them saves") {
  const int workers = GENERATE(2, 8);
  const index_t L = 37, K = 40, V = GENERATE(64, 72, 300), each = 8, kept = L / each;
  testing::rng random(7);
  tensor<float, 4> q({1, L, 2, K}), k({1, L, 2, K}), v({1, L, 2, V}), S0({1, 2, K, V});
  tensor<float, 3> z0({1, 2, K});
  for (auto* x : {&q, &k, &v, &S0}) testing::fill_uniform(random, x->all(), -0.5, 0.5);
  testing::fill_uniform(random, z0.all(), 1, 2);
  tensor<std::int32_t, 2> slots({1, kept});
  for (index_t i = 0; i < kept; ++i) slots(0, i) = static_cast<std::int32_t>(i);
  struct left {
    tensor<float, 4> o, S, boundaries;
    tensor<float, 3> z, z_boundaries;
    left(index_t H, index_t length, index_t keys, index_t values, index_t states)
        : o({1, length, H, values}),
          S({1, H, keys, values}),
          boundaries({states, H, keys, values}),
          z({1, H, keys}),
          z_boundaries({states, H, keys}) {}
  };
  const auto run = [&](index_t H, bool given, bool leaves, const options& how) {
    linear_attention<float, maps::elu1> op{
        .q = q.all().slice(2, 0, H), .k = k.all().slice(2, 0, H), .v = v.all().slice(2, 0, H)};
    left to(H, L, K, V, kept);
    linear_attention_state<float> st;
    if (given) st.initial = S0.all().slice(1, 0, H), st.z_initial = z0.all().slice(1, 0, H);
    if (leaves) {
      st.final = to.S, st.z_final = to.z;
      st.boundaries = to.boundaries, st.z_boundaries = to.z_boundaries;
      st.boundary_slots = slots, st.interval = each;
    }
    calls_of_workers = 0;
    context ctx = in_turn(workers);
    forward(op, st, to.o, how, ctx);
    CHECK((calls_of_workers > 0) == (H == 2 || !given || !leaves));
    return to;
  };
  const auto same = [](const auto& both, const auto& alone, std::size_t axis) {
    return testing::compare(both.all().slice(axis, 0, 1), alone.all(), 0);
  };
  for (const form how : {form::recurrent, form::chunked}) {
    for (const auto& [given, leaves] : {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
      CAPTURE(static_cast<int>(how), given, leaves);
      const left both = run(2, given, leaves, {.form = how}), alone = run(1, given, leaves, {.form = how});
      CHECK(same(both.o, alone.o, 2));
      CHECK(same(both.S, alone.S, 1));
      CHECK(same(both.boundaries, alone.boundaries, 1));
      CHECK(same(both.z, alone.z, 1));
      CHECK(same(both.z_boundaries, alone.z_boundaries, 1));
    }
  }
}

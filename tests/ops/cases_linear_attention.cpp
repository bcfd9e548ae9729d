// Faults that users of linear attention met elsewhere, and worked examples, as right values.
#include <ogive/maps/elementwise.hpp>
#include <ogive/ops/noncausal_linear_attention.hpp>
#include <ogive/testing/samplers/linear_attention.hpp>
#include <ogive/testing/trials.hpp>

#include "tests/within.hpp"

using namespace ogive;
using testing::way;
using tests::WithinRoundings;

namespace {

/// Roundings of a weighted mean over L keys of one feature. Numerator and denominator: two features (two each), their
/// product, the product with v, L sums; then the quotient.
constexpr index_t roundings(index_t L) { return 2 * (4 + 2 + L) + 1; }

}  // namespace

TEST_CASE("an additive memory reads what was written under a key, and what overlaps it") {
  const std::vector<double> keys{1, 0, 0.6, 0.8, 1, 0, 0, 1};
  const std::vector<double> values{1, 0, 0, 1, 2, 0, 3, 1};
  const std::vector<double> queries{1, 0, 1, 0, 1, 0, 1, 0};
  tensor<double, 4> o({1, 4, 1, 2});
  const linear_attention<double> op{.q = view<const double, 4>(queries, {1, 4, 1, 2}),
                                    .k = view<const double, 4>(keys, {1, 4, 1, 2}),
                                    .v = view<const double, 4>(values, {1, 4, 1, 2}),
                                    .normalise = false,
                                    .scale = 1.0};
  for (const form how : {form::recurrent, form::chunked, form::automatic}) {
    forward(op, {}, o, {.form = how});
    CHECK(o(0, 3, 0, 0) == 3);
    CHECK(o(0, 3, 0, 1) == 0.6);
  }
  const noncausal_linear_attention<double> all{
      .q = op.q.slice(1, 0, 1), .k = op.k, .v = op.v, .normalise = false, .scale = 1.0};
  for (const form how : {form::left, form::right}) {
    forward(all, {}, o.all().slice(1, 0, 1), {.form = how});
    CHECK(o(0, 0, 0, 0) == 3);
    CHECK(o(0, 0, 0, 1) == 0.6);
  }
}

TEST_CASE("sums over a million tokens lose what their order says, and no more") {
  OGIVE_SEED(seed, 180);
  constexpr index_t L = 1000000, chunk = 64;
  testing::rng random(seed);
  const float one = 1;
  tensor<float, 4> k({1, L, 1, 1}), v({1, L, 1, 1}), o({1, L, 1, 1});
  long double exact = 0;
  for (index_t t = 0; t < L; ++t) {
    k(0, t, 0, 0) = static_cast<float>(random.unit());
    v(0, t, 0, 0) = static_cast<float>(random.unit());
    exact += static_cast<long double>(k(0, t, 0, 0)) * static_cast<long double>(v(0, t, 0, 0));
  }
  const linear_attention<float> op{
      .q = view<const float, 4>(&one, {1, L, 1, 1}, {0, 0, 0, 0}), .k = k, .v = v, .normalise = false, .scale = 1.0F};
  const auto last = [&](auto storage, const way& how, double roundings_of_sum) {
    using S = decltype(storage);
    tensor<S, 4> sum({1, 1, 1, 1});
    context serial;
    testing::call(how, op, linear_attention_state<S>{.final = sum}, o.all(), serial);
    INFO(how);
    CHECK_THAT(static_cast<double>(sum(0, 0, 0, 0)), tests::WithinRel(static_cast<double>(exact), roundings_of_sum));
    const double stored = testing::unit_roundoff<float>();
    CHECK_THAT(static_cast<double>(o(0, L - 1, 0, 0)),
               tests::WithinRel(static_cast<double>(exact), roundings_of_sum + 2 * stored));
  };
  // Token by token a rounding each; in chunks those of one chunk and one for each.
  last(1.0F, {way::kind::recurrent}, testing::tolerance<float>(L + 1));
  last(1.0F, {way::kind::chunked, chunk}, testing::tolerance<float>(chunk + L / chunk + 1));
  last(1.0, {way::kind::recurrent}, testing::tolerance<double>(L + 1));
  last(1.0, {way::kind::chunked, chunk}, testing::tolerance<double>(chunk + L / chunk + 1));
}

TEST_CASE("C11: the mean survives features that are next to nothing") {
  const tensor<double, 4> x({1, 4, 1, 1}, -60.0);
  const std::vector<double> values{1, 2, 3, 4};
  const view<const double, 4> v(values, {1, 4, 1, 1});
  tensor<double, 4> o({1, 4, 1, 1});
  const linear_attention<double, maps::elu1> op{.q = x, .k = x, .v = v, .eps = 0};
  for (const form how : {form::recurrent, form::chunked}) {
    forward(op, {}, o, {.form = how});
    for (index_t t = 0; t < 4; ++t) {
      CHECK_THAT(o(0, t, 0, 0), WithinRoundings<double>(1 + 0.5 * static_cast<double>(t), roundings(t + 1)));
    }
  }
  const noncausal_linear_attention<double, maps::elu1> all{.q = x, .k = x, .v = v, .eps = 0};
  for (const form how : {form::left, form::right}) {
    forward(all, {}, o, {.form = how});
    for (index_t t = 0; t < 4; ++t) CHECK_THAT(o(0, t, 0, 0), WithinRoundings<double>(2.5, roundings(4)));
  }
}

TEST_CASE("C11: a normaliser that vanishes gives 0, never NaN or infinity") {
  const float c = 2;
  const tensor<float, 4> v({1, 4, 1, 1}, c);
  for (const float q_at : {-200.0F, -60.0F, -1.0F, 0.0F, 1.0F, 60.0F, 200.0F}) {
    for (const float k_at : {-200.0F, -60.0F, -1.0F, 0.0F, 1.0F, 60.0F, 200.0F}) {
      for (const float eps : {0.0F, 1e-6F}) {
        const tensor<float, 4> q({1, 4, 1, 1}, q_at), k({1, 4, 1, 1}, k_at);
        tensor<float, 4> o({1, 4, 1, 1});
        const auto check = [&](const char* what, bool causal) {
          const auto phi = [](float x) { return x > 0 ? x + 1 : std::exp(x); };
          for (index_t t = 0; t < 4; ++t) {
            INFO(what << ", q " << q_at << ", k " << k_at << ", eps " << eps << ", token " << t);
            const float weight = phi(q_at) * phi(k_at) * static_cast<float>(causal ? t + 1 : 4);
            const float got = o(0, t, 0, 0);
            CHECK(std::isfinite(got));
            if (weight < std::numeric_limits<float>::min()) {
              CHECK(got == 0);
            } else {
              CHECK_THAT(got, WithinRoundings<float>(c * weight / (weight + eps), roundings(4)));
            }
          }
        };
        const linear_attention<float, maps::elu1> op{.q = q, .k = k, .v = v, .eps = eps};
        forward(op, {}, o, {.form = form::recurrent});
        check("recurrent", true);
        forward(op, {}, o, {.form = form::chunked});
        check("chunked", true);
        const noncausal_linear_attention<float, maps::elu1> all{.q = q, .k = k, .v = v, .eps = eps};
        forward(all, {}, o, {.form = form::left});
        check("left", false);
        forward(all, {}, o, {.form = form::right});
        check("right", false);
      }
    }
  }
}

TEMPLATE_TEST_CASE("C11: a denominator next to the largest number still divides, and one of 0 gives 0 in every form",
                   "", float, double) {
  using T = TestType;
  const T most = std::numeric_limits<T>::max();
  const T infinity = std::numeric_limits<T>::infinity();
  const index_t L = 5, V = 3;
  const auto check = [&](T q_at, T v_at, auto expected, bool causal) {
    const tensor<T, 4> q({1, L, 1, 1}, q_at), k({1, L, 1, 1}, std::sqrt(most) / 3), v({1, L, 1, V}, v_at);
    const auto run = [&](const auto& op, form how) {
      tensor<T, 4> o({1, L, 1, V}, T(7));
      forward(op, {}, o, {.form = how});
      for (index_t t = 0; t < L; ++t) {
        INFO("causal " << causal << ", form " << static_cast<int>(how) << ", token " << t);
        for (index_t c = 0; c < V; ++c) expected(o(0, t, 0, c));
      }
    };
    if (causal) {
      const linear_attention<T> op{.q = q, .k = k, .v = v, .eps = 0};
      for (const form how : {form::recurrent, form::chunked, form::left, form::automatic}) run(op, how);
    } else {
      const noncausal_linear_attention<T> op{.q = q, .k = k, .v = v, .eps = 0};
      for (const form how : {form::right, form::left, form::automatic}) run(op, how);
    }
  };
  for (const bool causal : {true, false}) {
    const auto mean = [&](T o) { CHECK_THAT(o, WithinRoundings<T>(0.5, roundings(L))); };
    check(std::sqrt(most) / 2, T(0.5), mean, causal);
    check(
        T(0), infinity, [](T o) { CHECK(o == 0); }, causal);
  }
}

TEMPLATE_TEST_CASE("C58: lengths, features and values of any size, in linear attention", "", float, double) {
  using Op = linear_attention<TestType>;
  OGIVE_SEED(seed, 58);
  const std::vector<way> ways{
      {way::kind::chunked, 1}, {way::kind::chunked, 3}, {way::kind::chunked, 16}, {way::kind::chunked, 64},
      {way::kind::recurrent},  {way::kind::step},       {way::kind::forward},     {way::kind::forward, 0, form::left}};
  testing::rng random(seed);
  const auto check = [&](index_t L, index_t D, index_t V, index_t H) {
    testing::memory room;
    const Op op{.q = testing::draw_uniform<TestType>(random, room, shape<4>{1, L, H, D}),
                .k = testing::draw_uniform<TestType>(random, room, shape<4>{1, L, H, D}),
                .v = testing::draw_uniform<TestType>(random, room, shape<4>{1, L, H, V}),
                .normalise = false};
    const testing::definition<Op> expected(op, {});
    for (const way& how : ways) {
      const std::string gap = expected.excess(testing::run<TestType>(how, op, {}), 1);
      if (!gap.empty()) FAIL(how << ", L " << L << ", D " << D << ", V " << V << ", H " << H << ": " << gap);
    }
  };
  for (const index_t D : {1, 2, 3, 5, 16, 17, 100}) {
    for (const index_t V : {1, 3, 5, 8, 12}) {
      for (const index_t H : {1, 3}) {
        for (const index_t L : {1, 2, 3, 5, 7}) check(L, D, V, H);
      }
    }
  }
  for (const index_t L : {31, 33, 63, 64, 65, 100, 130}) {
    check(L, 17, 5, 3);
    check(L, 100, 12, 1);
    check(L, 3, 1, 3);
  }
}

TEST_CASE("a sum over no features, or no keys, is 0") {
  for (const bool normalise : {true, false}) {
    const tensor<float, 4> q({2, 5, 2, 0}), v({2, 5, 2, 3}, 1.0F);
    tensor<float, 4> o({2, 5, 2, 3});
    const auto check = [&](const auto& op, form how) {
      INFO("normalise " << normalise << ", form " << static_cast<int>(how));
      std::fill(o.flat().begin(), o.flat().end(), 7.0F);
      forward(op, {}, o, {.form = how});
      for (const float x : o.flat()) CHECK(x == 0);
    };
    const linear_attention<float> op{.q = q, .k = q, .v = v, .normalise = normalise};
    for (const form how : {form::automatic, form::recurrent, form::chunked, form::left}) check(op, how);
    const tensor<float, 4> with({2, 5, 2, 4}, 1.0F), none({2, 0, 2, 4}), nothing({2, 0, 2, 3});
    const noncausal_linear_attention<float> all{.q = q, .k = q, .v = v, .normalise = normalise};
    const noncausal_linear_attention<float> empty{.q = with, .k = none, .v = nothing, .normalise = normalise};
    for (const form how : {form::automatic, form::right, form::left}) {
      check(all, how);
      check(empty, how);
    }
  }
}

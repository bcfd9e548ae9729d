// Cases that users of operators with a matrix state have met: known numbers, in every form.
#include <ogive/testing/samplers/delta_rules.hpp>
#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/samplers/rwkv4.hpp>
#include <ogive/testing/trials.hpp>

#include "tests/layers/gradients.hpp"
#include "tests/within.hpp"

using namespace ogive;
using namespace ogive::testing;
using tests::WithinAbs;
using tests::WithinDecimals;
using tests::WithinRel;
using tests::WithinRoundings;

namespace {

/// One sequence, one head, β for every token.
template <class T, class Op = delta_rule<T>>
struct one_head {
  std::vector<T> q, k, v, g, beta;
  std::vector<T> S0;
  index_t K, V;

  index_t length() const { return static_cast<index_t>(beta.size()); }
  Op op() const {
    const index_t L = length();
    Op x;
    x.q = view<const T, 4>(q, {1, L, 1, K});
    x.k = view<const T, 4>(k, {1, L, 1, K});
    x.v = view<const T, 4>(v, {1, L, 1, V});
    x.beta = view<const T, 3>(beta, {1, L, 1});
    if constexpr (std::is_same_v<Op, gated_delta_rule<T>>) x.g = view<const T, 3>(g, {1, L, 1});
    if constexpr (std::is_same_v<Op, kda<T>>) x.g = view<const T, 4>(g.data(), {1, L, 1, K}, {0, 1, 0, 0});
    x.scale = T(1);
    return x;
  }
  state<T> st() const {
    if (S0.empty()) return {};
    return {.initial = view<const T, 4>(S0, {1, 1, K, V})};
  }
  /// f(o, S) for every form.
  template <class F>
  void in_every_form(const F& f) const {
    for (const way& how : ways<Op>()) {
      const auto got = run<T>(how, op(), st());
      INFO(Op::name << " " << how);
      f(flatten(got.o), flatten(got.st.final));
    }
  }
};

}  // namespace

TEST_CASE("a memory adds, or replaces what a key held") {
  const one_head<double> pairs{.q = {1, 0, 1, 0, 1, 0, 1, 0},
                               .k = {1, 0, 0.6, 0.8, 1, 0, 0, 1},
                               .v = {1, 0, 0, 1, 2, 0, 3, 1},
                               .g = {},
                               .beta = {1, 1, 1, 1},
                               .S0 = {},
                               .K = 2,
                               .V = 2};
  const std::vector<std::vector<double>> replaced{
      {1, 0, 0, 0}, {0.64, 0.6, -0.48, 0.8}, {2, 0, -0.48, 0.8}, {2, 0, 3, 1}};
  const std::vector<std::vector<double>> added{{1, 0, 0, 0}, {1, 0.6, 0, 0.8}, {3, 0.6, 0, 0.8}, {3, 0.6, 3, 1.8}};
  const auto walk = [&](const auto& op, const auto& states) {
    using Op = std::remove_cvref_t<decltype(op)>;
    for (const way& how : ways<Op>()) {
      for (index_t n = 1; n <= 4; ++n) {
        INFO(Op::name << " " << how << ", " << n << " pairs");
        const auto got = run<double>(how, tokens_of(op, 0, n), state<double>{});
        const auto S = flatten(got.st.final), read = flatten(got.o.slice(1, n - 1, 1));
        const auto& right = states[static_cast<std::size_t>(n - 1)];
        // A pair: what its key holds (a sum of two), the error, its products with β and the key, the sum; no value
        // exceeds 3.
        const double bound = tolerance<double>(6 * n, 3);
        for (std::size_t i = 0; i < 4; ++i) CHECK_THAT(S[i], WithinAbs(right[i], bound));
        for (std::size_t i = 0; i < 2; ++i) CHECK_THAT(read[i], WithinAbs(right[i], bound));  // the query is (1, 0)
      }
    }
  };
  walk(pairs.op(), replaced);
  const double no_decay = 0;
  walk(retention<double>{.q = pairs.op().q,
                         .k = pairs.op().k,
                         .v = pairs.op().v,
                         .log_gamma = view<const double, 1>(&no_decay, {1}),
                         .scale = 1.0},
       added);
}

TEST_CASE("C15: the delta rule with one key again and again") {
  one_head<float> x{.q = {}, .k = {}, .v = {}, .g = {}, .beta = {}, .S0 = {}, .K = 2, .V = 1};
  for (int t = 0; t < 8; ++t) {
    x.k.insert(x.k.end(), {1, 0});
    x.v.push_back(static_cast<float>(t + 1));
  }
  x.q = x.k;
  const auto gives = [&](float beta, const std::vector<double>& right) {
    x.beta.assign(8, beta);
    x.in_every_form([&](const auto& o, const auto&) { CHECK(o == right); });
  };
  gives(0.5F, {0.5, 1.25, 2.125, 3.0625, 4.03125, 5.015625, 6.0078125, 7.00390625});
  gives(1, {1, 2, 3, 4, 5, 6, 7, 8});
  x.S0 = {1, -2};
  gives(0, {1, 1, 1, 1, 1, 1, 1, 1});
  x.in_every_form([](const auto&, const auto& S) { CHECK(S == std::vector<double>{1, -2}); });
}

TEST_CASE("C15: the gated delta rule under strong gates is its definition") {
  OGIVE_SEED(seed, 171);
  rng random(seed);
  constexpr std::size_t L = 64;
  one_head<float, gated_delta_rule<float>> x{.q = std::vector<float>(4 * L),
                                             .k = std::vector<float>(4 * L),
                                             .v = std::vector<float>(3 * L),
                                             .g = std::vector<float>(L, -15.0F),
                                             .beta = std::vector<float>(L),
                                             .S0 = {},
                                             .K = 4,
                                             .V = 3};
  for (auto* field : {&x.q, &x.k, &x.v}) {
    for (float& number : *field) number = static_cast<float>(random.uniform(-1, 1));
  }
  for (float& number : x.beta) number = static_cast<float>(random.unit());
  for (std::size_t t = 0; t < L; ++t) {
    const double length = norm(view<const float, 1>(x.k.data() + 4 * t, {4}));
    for (std::size_t i = 0; i < 4; ++i) x.k[4 * t + i] /= static_cast<float>(length);
  }
  const definition<gated_delta_rule<float>> right(x.op(), {});
  for (const way& how : ways<gated_delta_rule<float>>()) {
    INFO(how);
    CHECK(right.excess(run<float>(how, x.op(), state<float>{}), 1) == "");
  }
}

TEMPLATE_TEST_CASE("C04: decays between tokens are formed where one follows the other, and so are their slopes", "",
                   float, double) {
  using T = TestType;
  constexpr index_t L = 64;
  constexpr double stated = std::is_same_v<T, double> ? 1e-10 : 2e-5;  // of 1 + |o|: printed digits, or the case's own
  std::vector<T> gates(2);
  tensor<T, 4> q({1, L, 1, 2}), v({1, L, 1, 1}, T(1)), o({1, L, 1, 1}), ones({1, L, 1, 1}, T(1)), g({1, L, 1, 2});
  tensor<T, 3> beta({1, L, 1}, T(0.5));
  for (index_t t = 0; t < L; ++t) q(0, t, 0, 0) = T(0.6), q(0, t, 0, 1) = T(0.8);
  tensor<T, 4> k = q;
  const kda<T> op{.q = q, .k = k, .v = v, .g = g, .beta = beta, .scale = T(1)};
  const auto gives = [&](T first, T second, std::initializer_list<std::pair<index_t, double>> right,
                         std::initializer_list<double> last) {
    for (index_t t = 0; t < L; ++t) g(0, t, 0, 0) = first, g(0, t, 0, 1) = second;
    const auto near = [&](double is, double expected) {
      CHECK_THAT(is, WithinAbs(expected, stated * (1 + std::fabs(expected))));
    };
    for (const way& how : ways<kda<T>>()) {
      INFO(how);
      const auto got = run<T>(how, op, state<T>{});
      for (const auto& [t, value] : right) near(static_cast<double>(got.o(0, t, 0, 0)), value);
      const auto S = flatten(got.st.final);
      for (std::size_t i = 0; i < last.size(); ++i) near(S[i], last.begin()[i]);
    }
    tensor<T, 4> d_q(q.extents()), d_k(k.extents()), d_v(v.extents()), d_g(g.extents());
    tensor<T, 3> d_beta(beta.extents());
    backward(op, {}, ones.all(), {},
             {.q = d_q.all(), .k = d_k.all(), .v = d_v.all(), .g = d_g.all(), .beta = d_beta.all()}, {.chunk = L});
    const auto slopes = [&](const char* field, const auto& x, const auto& d_x) {
      for (const double slope : flatten(d_x)) CHECK(std::isfinite(slope));
      if constexpr (std::is_same_v<T, double>) {
        tests::check_gradient(field, x, d_x, [&] {
          recurrent(op, {}, o.all());
          return tests::loss().add(o.all(), ones.all());
        });
      }
    };
    slopes("q", q.all(), d_q.all());
    slopes("k", k.all(), d_k.all());
    slopes("v", v.all(), d_v.all());
    slopes("g", g.all(), d_g.all());
    slopes("beta", beta.all(), d_beta.all());
  };
  gives(T(-5), T(-0.01), {{0, 0.5}, {1, 0.6590143886}, {2, 0.7652791108}, {63, 0.9847753547}},
        {0.0091967544, 1.2240716276});
  gives(T(-5), T(-5), {{1, 0.5016844867}, {63, 0.5016901809}}, {});
  gives(T(-12), T(-0.01), {{63, 0.9847747892}}, {});
}

TEST_CASE("C20: retention and GLA with a decay next to one over 100,000 tokens") {
  // Relative errors, stated by C20.
  constexpr double chunked_float = 2e-5, retention_float = 5e-4, gla_float = 1e-3, double_state = 1e-6,
                   all_double = 1e-11;
  constexpr index_t L = 131072;
  constexpr double expected = 8191.99907901;
  const auto last = [&]<template <class> class Op, class T, class S>(S, const way& how) {
    const T one(1), g = static_cast<T>(std::log1p(-0x1p-13));
    const view<const T, 4> all(&one, {1, L, 1, 1}, {0, 0, 0, 0});
    Op<T> op{.q = all, .k = all, .v = all};
    if constexpr (requires { op.log_gamma; }) {
      op.log_gamma = view<const T, 1>(&g, {1});
    } else {
      op.g = view<const T, 4>(&g, {1, L, 1, 1}, {0, 0, 0, 0});
    }
    tensor<T, 4> o({1, L, 1, 1});
    tensor<S, 4> S_last({1, 1, 1, 1});
    context serial;
    testing::call(how, op, state<S>{.final = S_last}, o.all(), serial);
    return static_cast<double>(S_last(0, 0, 0, 0));
  };
  const auto both = [&]<template <class> class Op>(double stepwise) {
    const way chunks{way::kind::chunked, 64}, steps{way::kind::recurrent};
    CHECK_THAT((last.template operator()<Op, float>(1.0F, chunks)), WithinRel(expected, chunked_float));
    CHECK_THAT((last.template operator()<Op, float>(1.0F, steps)), WithinRel(expected, stepwise));
    CHECK_THAT((last.template operator()<Op, float>(1.0, chunks)), WithinRel(expected, double_state));
    CHECK_THAT((last.template operator()<Op, float>(1.0, steps)), WithinRel(expected, double_state));
    CHECK_THAT((last.template operator()<Op, double>(1.0, chunks)), WithinRel(expected, all_double));
    CHECK_THAT((last.template operator()<Op, double>(1.0, steps)), WithinRel(expected, all_double));
  };
  both.template operator()<retention>(retention_float);
  both.template operator()<gla>(gla_float);
}

TEST_CASE("β = 2 and one key for a thousand tokens: nothing grows, nothing is NaN") {
  constexpr std::size_t L = 1000;
  const one_head<float> x{.q = std::vector<float>(L, 1),
                          .k = std::vector<float>(L, 1),
                          .v = std::vector<float>(L, 1),
                          .g = {},
                          .beta = std::vector<float>(L, 2),
                          .S0 = {},
                          .K = 1,
                          .V = 1};
  x.in_every_form([](const auto& o, const auto&) {
    for (std::size_t t = 0; t < L; ++t) CHECK(o[t] == (t % 2 == 0 ? 2 : 0));  // S ← 2 − S
  });
}

TEMPLATE_TEST_CASE("C24: decay, error, write, read, in this order", "", gated_delta_rule<double>, kda<double>) {
  const double half = std::log(0.5);
  const auto gives = [&](double S0, double beta, double v, double right) {
    const one_head<double, TestType> x{
        .q = {1}, .k = {1}, .v = {v}, .g = {half}, .beta = {beta}, .S0 = {S0}, .K = 1, .V = 1};
    // The decay (two) and its product, the error, β times it, the sum.
    const double bound = tolerance<double>(6, S0 + beta * (S0 + v));
    x.in_every_form([&](const auto& o, const auto&) { CHECK_THAT(o[0], WithinAbs(right, bound)); });
  };
  gives(1, 1, 0, 0);
  gives(1, 0.5, 1, 0.75);
  gives(1, 0, 7, 0.5);
  gives(0, 1, 3, 3);
}

TEST_CASE("C18: zero rows under the l2 norm are zero, and leave the rest alone") {
  OGIVE_SEED(seed, 170);
  rng random(seed);
  one_head<float, gated_delta_rule<float>> x{.q = std::vector<float>(20),
                                             .k = std::vector<float>(20),
                                             .v = std::vector<float>(15),
                                             .g = std::vector<float>(5, -0.1F),
                                             .beta = std::vector<float>(5, 0.5F),
                                             .S0 = {},
                                             .K = 4,
                                             .V = 3};
  for (auto* field : {&x.q, &x.k, &x.v}) {
    for (float& number : *field) number = static_cast<float>(random.uniform(-1, 1));
  }
  for (std::size_t i = 8; i < 12; ++i) x.q[i] = x.k[i] = 0;
  auto op = x.op();
  op.qk_l2norm = 1e-6F;
  const definition<gated_delta_rule<float>> right(op, {});
  for (const way& how : ways<gated_delta_rule<float>>()) {
    const auto got = run<float>(how, op, state<float>{});
    INFO(how);
    CHECK(right.excess(got, 1) == "");
    for (index_t c = 0; c < 3; ++c) CHECK(got.o(0, 2, 0, c) == 0);
  }
}

TEST_CASE("C18: zero rows under the l2 norm have gradients") {
  OGIVE_SEED(seed, 172);
  rng random(seed);
  const shape<4> keys{1, 5, 1, 4}, values{1, 5, 1, 3};
  tensor<double, 4> q(keys), k(keys), v(values), o(values), d_o(values), d_q(keys), d_k(keys), d_v(values);
  for (auto* x : {&q, &k, &v, &d_o}) fill_normal(random, x->all());
  for (index_t i = 0; i < 4; ++i) q(0, 2, 0, i) = k(0, 2, 0, i) = 0;
  tensor<double, 3> g({1, 5, 1}, -0.1), beta({1, 5, 1}, 0.5);
  const gated_delta_rule<double> op{.q = q, .k = k, .v = v, .g = g, .beta = beta, .scale = 1.0, .qk_l2norm = 1e-6};
  for (const index_t chunk : {1, 4, 64}) {
    backward(op, {}, d_o.all(), {}, {.q = d_q.all(), .k = d_k.all(), .v = d_v.all()}, {.chunk = chunk});
    for (const auto* d : {&d_q, &d_k, &d_v}) {
      for (const double slope : d->flat()) CHECK(std::isfinite(slope));
    }
    for (const index_t t : {1, 3}) {
      for (const auto& [x, d_x] : {std::pair(&q, &d_q), std::pair(&k, &d_k)}) {
        tests::check_gradient("row", x->all().slice(1, t, 1), d_x->all().slice(1, t, 1), [&] {
          recurrent(op, {}, o.all());
          return tests::loss().add(o.all(), d_o.all());
        });
      }
    }
  }
  // One token that reads what stands in a state: d_q = S d_o / √ε where q is 0, and nothing is in the way of k.
  tensor<double, 4> S({1, 1, 4, 3}, 1.0), d_one({1, 1, 1, 4});
  gated_delta_rule<double> one = op;
  one.q = op.q.slice(1, 2, 1), one.k = op.k.slice(1, 2, 1), one.v = op.v.slice(1, 2, 1);
  one.g = op.g.slice(1, 2, 1), one.beta = op.beta.slice(1, 2, 1);
  const state<double> given{.initial = S};
  tensor<double, 4> pushed({1, 1, 1, 3}, 1.0);
  backward(one, given, pushed.all(), {}, {.q = d_one.all()});
  for (const double slope : d_one.flat()) CHECK_THAT(slope, WithinRoundings<double>(3000 * std::exp(-0.1), 16));
}

TEST_CASE("C13: RWKV-4 averages whatever the keys' size") {
  // Numerator and denominator: an exponential (two), a product and a sum for each of three tokens; the quotient.
  constexpr index_t roundings = 2 * 3 * 4 + 1;
  const double w = -1, u = 0;
  const std::vector<double> v{1, 2, 3};
  const auto average = [&](const std::vector<double>& k, const way& how) {
    const rwkv4<double> op{.k = view<const double, 3>(k, {1, 3, 1}),
                           .v = view<const double, 3>(v, {1, 3, 1}),
                           .w = view<const double, 1>(&w, {1}),
                           .u = view<const double, 1>(&u, {1})};
    const rwkv4_state<double> st;
    for (index_t cut = 0; cut <= 3; ++cut) {
      const auto head = run<double>(how, tokens_of(op, 0, cut), st);
      const auto tail = run<double>(how, tokens_of(op, cut, 3 - cut), rwkv4_state<double>{.initial = head.st.final});
      auto o = flatten(head.o);
      for (const double x : flatten(tail.o)) o.push_back(x);
      INFO(how << ", cut at " << cut);
      CHECK_THAT(o[0], WithinRoundings<double>(1, roundings));
      if (k[1] < k[0]) {
        CHECK_THAT(o[1], WithinDecimals(1.2689414214, 10));
        CHECK_THAT(o[2], WithinDecimals(2.6804790632, 10));
      } else {
        CHECK_THAT(o[1], WithinDecimals(1.7310585786, 10));
        CHECK_THAT(o[2], WithinRoundings<double>(2, roundings));
      }
    }
    // What a cotangent gives to values are the weights of an average, and shifting all keys moves none.
    tensor<double, 3> d_o({1, 3, 1}, 1.0), d_k(d_o), d_v(d_o);
    tensor<double, 1> d_w({1}), d_u({1});
    backward(op, {}, d_o.all(), {}, {.k = d_k, .v = d_v, .w = d_w, .u = d_u});
    CHECK((std::isfinite(d_w(0)) && std::isfinite(d_u(0))));
    CHECK_THAT(d_v(0, 0, 0) + d_v(0, 1, 0) + d_v(0, 2, 0), WithinRoundings<double>(3, 3 * roundings));
    CHECK_THAT(d_k(0, 0, 0) + d_k(0, 1, 0) + d_k(0, 2, 0), WithinAbs(0, tolerance<double>(3 * roundings, 6)));
    for (const double slope : d_k.flat()) CHECK(std::isfinite(slope));
  };
  for (const way& how : {way{way::kind::recurrent}, way{way::kind::forward}, way{way::kind::step}}) {
    average({100, 101, 99}, how);
    average({800, 801, 799}, how);
    average({-800, -801, -799}, how);
  }
}

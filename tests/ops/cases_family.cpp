// Cases that users of operators with a matrix state have met: known numbers, in every form.
#include <ogive/testing/samplers/delta_rules.hpp>
#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/samplers/rwkv4.hpp>
#include <ogive/testing/trials.hpp>

#include "tests/within.hpp"

using namespace ogive;
using namespace ogive::testing;
using tests::WithinAbs;
using tests::WithinDecimals;
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

TEST_CASE("the delta rule with one key again and again") {
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

TEMPLATE_TEST_CASE("decay, error, write, read, in this order", "", gated_delta_rule<double>, kda<double>) {
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

TEST_CASE("zero rows under the l2 norm are zero, and leave the rest alone") {
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

TEST_CASE("RWKV-4 averages whatever the keys' size") {
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
      if (k[1] < 0) {
        CHECK((o[1] >= 1 && o[1] <= 2 && o[2] >= 1 && o[2] <= 3));
      } else {
        CHECK_THAT(o[1], WithinDecimals(1.7310585786, 10));
        CHECK_THAT(o[2], WithinRoundings<double>(2, roundings));
      }
    }
  };
  for (const way& how : {way{way::kind::recurrent}, way{way::kind::forward}, way{way::kind::step}}) {
    average({100, 101, 99}, how);
    average({800, 801, 799}, how);
    average({-800, -801, -799}, how);
  }
}

// Time-invariant systems: values that users missed elsewhere.
#include <ogive/core/tensor.hpp>
#include <ogive/ops/causal_convolution.hpp>
#include <ogive/ops/s4.hpp>
#include <ogive/ops/s4d.hpp>
#include <ogive/ops/s5.hpp>
#include <ogive/testing/compare.hpp>

#include <limits>
#include <numbers>
#include <vector>

#include "tests/within.hpp"

using namespace ogive;
using tests::WithinDecimals;
using number = std::complex<double>;

namespace {

constexpr double zoh[] = {0.1919289066, 0.1647731619, -0.0674617204, 0.2951959202};
constexpr double bilinear[] = {0.1906446467, 0.1642734249, 0.1248949387, 0.0774247263};

/// All at once, and token by token.
template <class Op>
void check_outputs(Op op, const double* expected) {
  constexpr index_t L = 4;
  const view<const double, 3> u = op.u;
  tensor<double, 3> y({1, L, 1});
  const auto check = [&] {
    for (index_t t = 0; t < L; ++t) {
      CHECK_THAT(y(0, t, 0), WithinDecimals(expected[t], 10));
      y(0, t, 0) = 0;
    }
  };
  recurrent(op, {}, y);
  check();
  forward(op, {}, y);
  check();
  if constexpr (requires { convolution(op, {}, y); }) {
    convolution(op, {}, y);
    check();
  }
  constexpr std::size_t rank = decltype(typename Op::default_state().final)::rank;
  shape<rank> one{};
  one.fill(1);
  tensor<number, rank> h(one);
  for (index_t t = 0; t < L; ++t) {
    op.u = u.slice(1, t, 1);
    step(op, h.all(), y.all().slice(1, t, 1));
  }
  check();
}

}  // namespace

TEST_CASE("C33: a pair counts twice in S5 and in S4, with a term of low rank that is nothing too") {
  const double dt = 0.1, x[] = {1, 0, -1, 2}, unit[] = {1, 0, 0, 0};
  const number one = 1, nothing = 0;
  for (const double sign : {1.0, -1.0}) {
    const number A(-0.5, sign * std::numbers::pi);
    double K[4];
    s5<double> shared{.A = {&A, {1}}, .B = {&one, {1, 1}}, .C = {&one, {1, 1}}, .dt = {&dt, {1}}};
    shared.u = {x, {1, 4, 1}};
    check_outputs(shared, zoh);
    shared.u = {unit, {1, 4, 1}};
    shared.rule = discretisation::bilinear;
    check_outputs(shared, bilinear);
    kernel(shared, view<double, 3>(K, {1, 1, 4}));
    for (int l = 0; l < 4; ++l) CHECK_THAT(K[l], WithinDecimals(bilinear[l], 10));
    for (const index_t R : {0, 1}) {
      s4<double> coupled{.Lambda = {&A, {1, 1}},
                         .P = {&nothing, {1, R, 1}},
                         .B = {&one, {1, 1}},
                         .C = {&one, {1, 1}},
                         .dt = {&dt, {1}}};
      coupled.u = {unit, {1, 4, 1}};
      check_outputs(coupled, bilinear);
      kernel(coupled, view<double, 2>(K, {1, 4}));
      for (int l = 0; l < 4; ++l) CHECK_THAT(K[l], WithinDecimals(bilinear[l], 10));
    }
  }
}

TEST_CASE("C20: a mode that hardly fades, over 131072 tokens") {
  constexpr index_t L = 131072;
  const float decay = 1 - 0x1p-13F, one = 1;  // a memory of 2¹³ tokens
  constexpr double sum = 8191.99907901;
  const tensor<float, 3> u({1, L, 1}, 1.0F);
  tensor<float, 3> y({1, L, 1});
  s4d<float, float> op{.u = u, .A = {&decay, {1, 1}}, .B = {&one, {1, 1}}, .C = {&one, {1, 1}}};
  op.rule = discretisation::none;
  recurrent(op, {}, y);
  CHECK_THAT(y(0, L - 1, 0), tests::WithinRoundings<float>(sum, 1 << 13));
  convolution(op, {}, y);
  // ‖K‖ ‖u‖ over a block, some roundings for each level of its transforms.
  CHECK_THAT(y(0, L - 1, 0), tests::WithinAbs(sum, testing::tolerance<float>(64, std::sqrt(0x1p12 * 0x1p18))));
}

TEST_CASE("C48: a history is read before it is overwritten, and filled before it is read") {
  constexpr float K[] = {1000, 100, 10, 1}, past[] = {7, 8, 9}, input[] = {1, 2, 3, 4, 5};
  constexpr float expected[] = {1987, 1 * 8 + 10 * 9 + 100 * 1 + 1000 * 2, 9 + 10 * 1 + 100 * 2 + 1000 * 3,
                                1 + 10 * 2 + 100 * 3 + 1000 * 4, 2 + 10 * 3 + 100 * 4 + 1000 * 5};
  const double most = testing::tolerance<float>(64, 1006, 16);  // of ‖K‖ ‖u‖, by transforms
  for (const index_t D : {1, 3, 8, 17}) {
    for (const index_t L : {1, 2, 3, 5}) {
      tensor<float, 3> u({1, L, D}), y({1, L, D}), before({1, D, 3}), after({1, D, 3});
      for (index_t d = 0; d < D; ++d) {
        for (index_t i = 0; i < 3; ++i) before(0, d, i) = past[i];
        for (index_t t = 0; t < L; ++t) u(0, t, d) = input[t];
      }
      const causal_convolution<float> op{.u = u, .kernel = {K, {D, 4}, {0, 1}}};
      const auto runs = [&](const auto& verb) {
        for (const bool in_place : {false, true}) {
          tensor<float, 3> state = before;
          for (float& x : after.flat()) x = std::numeric_limits<float>::quiet_NaN();
          history_state<float> st{.initial = state, .final = after};
          if (in_place) st.final = state;
          verb(st);
          for (index_t d = 0; d < D; ++d) {
            for (index_t t = 0; t < L; ++t) CHECK_THAT(y(0, t, d), tests::WithinAbs(expected[t], most));
            for (index_t i = 0; i < 3; ++i) {
              CHECK(st.final(0, d, i) == (i + L < 3 ? past[i + L] : input[i + L - 3]));
              if (!in_place) CHECK(state(0, d, i) == past[i]);
            }
          }
        }
      };
      runs([&](const history_state<float>& st) { step(op, st, y); });
      runs([&](const history_state<float>& st) { recurrent(op, st, y); });
      runs([&](const history_state<float>& st) { convolution(op, st, y); });
      CHECK_THROWS_AS(step(op, {}, u), shape_error);  // y over u
    }
  }
}

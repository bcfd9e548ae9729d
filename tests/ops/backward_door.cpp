// What backward refuses, before anything is written.
#include <ogive/ops/delta_rule.hpp>
#include <ogive/ops/gla.hpp>
#include <ogive/ops/linear_attention.hpp>
#include <ogive/ops/retention.hpp>
#include <ogive/ops/rwkv6.hpp>
#include <ogive/testing/samplers.hpp>

#include <algorithm>

#include "tests/catch.hpp"

using namespace ogive;

namespace {

constexpr index_t B = 2, L = 5, H = 2, K = 3, V = 4;

/// GLA with everything that backward takes, and gradients full of sevens.
struct call {
  tensor<double, 4> q{{B, L, H, K}, 0.5}, k{{B, L, H, K}, 0.25}, v{{B, L, H, V}, 1.0}, g{{B, L, H, K}, -0.1};
  tensor<double, 4> d_o{{B, L, H, V}, 1.0}, d_q{{B, L, H, K}, 7.0}, d_k{{B, L, H, K}, 7.0}, d_v{{B, L, H, V}, 7.0},
      d_g{{B, L, H, K}, 7.0};
  tensor<double, 4> initial{{B, H, K, V}, 0.5}, d_final{{B, H, K, V}, 1.0}, d_initial{{B, H, K, V}, 7.0};
  gla<double> op{.q = q, .k = k, .v = v, .g = g};
  state<double> st{.initial = initial};
  view<const double, 4> o = d_o;
  state_gradient<double> d_st{.final = d_final, .initial = d_initial};
  gradient<gla<double>> d{.q = d_q, .k = d_k, .v = d_v, .g = d_g};

  bool untouched() {
    return std::ranges::all_of(std::vector<tensor<double, 4>*>{&d_q, &d_k, &d_v, &d_g, &d_initial}, [](auto* one) {
      return std::ranges::all_of(one->flat(), [](double x) { return x == 7; });
    });
  }
  /// Refused by name, and nothing is written.
  void refused(const char* words, const options& how = {}) {
    INFO(words);
    const status asked = check_backward(op, st, o, d_st, d, how);
    CHECK(!asked);
    CHECK(std::string(asked.text()).find("gla") != std::string::npos);
    INFO(asked.text());
    CHECK(std::string(asked.text()).find(words) != std::string::npos);
    CHECK_THROWS_AS(backward(op, st, o, d_st, d, how), std::invalid_argument);
    CHECK(untouched());
  }
};

}  // namespace

TEST_CASE("backward takes what fits, and its twin after the check never throws") {
  call x;
  REQUIRE(check_backward(x.op, x.st, x.o, x.d_st, x.d));
  static_assert(noexcept(backward(prechecked, x.op, x.st, x.o, x.d_st, x.d)));
  backward(x.op, x.st, x.o, x.d_st, x.d);
  CHECK(!x.untouched());
}

TEST_CASE("backward refuses what does not fit") {
  call x;
  tensor<double, 4> narrow({B, L, H, K - 1}, 7.0);
  SECTION("extents of a gradient") {
    x.d.g = narrow;
    x.refused("d.g");
  }
  SECTION("extents of the cotangent") {
    x.o = x.o.slice(1, 0, L - 1);
    x.refused("d_o");
  }
  SECTION("extents of the state's cotangent") {
    x.d_st.final = x.d_st.final.slice(0, 0, 1);
    x.refused("d_st.final");
  }
  SECTION("extents of the state's gradient") {
    x.d_st.initial = x.d_st.initial.slice(2, 0, K - 1);
    x.refused("d_st.initial");
  }
  SECTION("a gradient of stride 0") {
    x.d.k = view<double, 4>(x.d_k.data(), {B, L, H, K}, {0, 0, 0, 1});
    x.refused("d.k");
  }
  SECTION("a gradient in the memory of an argument") {
    x.d.q = x.q;
    x.refused("d.q");
  }
  SECTION("a gradient in the memory of the cotangent") {
    x.d.v = x.d_o;
    x.refused("d.v");
  }
  SECTION("two gradients in one memory") {
    x.d.k = x.d_q;
    x.refused("d.q");
  }
  SECTION("the gradient of the state in its cotangent") {
    x.d_st.initial = x.d_final;
    x.refused("d_st.initial");
  }
  SECTION("a form that there is not") { x.refused("form", {.form = form::recurrent}); }
  SECTION("a chunk below 0") { x.refused("chunk", {.chunk = -1}); }
  SECTION("arguments that do not fit each other") {
    x.op.g = narrow;
    x.refused("g");
  }
  SECTION("too little scratch") {
    std::vector<std::byte> little(64);
    context ctx{std::span<std::byte>(little)};
    CHECK_THROWS_AS(backward(x.op, x.st, x.o, x.d_st, x.d, {}, ctx), std::invalid_argument);
    CHECK(x.untouched());
  }
}

TEST_CASE("the gradient of a parameter that all tokens share is as large as the parameter") {
  call x;
  tensor<double, 1> log_gamma({H}, -0.1), d_log_gamma({H}, 7.0), wrong({H + 1}, 7.0);
  const retention<double> op{.q = x.q, .k = x.k, .v = x.v, .log_gamma = log_gamma};
  CHECK(check_backward(op, {}, x.d_o, {}, {.log_gamma = d_log_gamma}));
  const status asked = check_backward(op, {}, x.d_o, {}, {.log_gamma = wrong});
  CHECK(std::string(asked.text()).find("d.log_gamma") != std::string::npos);
  const status shared = check_backward(op, {}, x.d_o, {}, {.log_gamma = view<double, 1>(wrong.data(), {H}, {0})});
  CHECK(std::string(shared.text()).find("d.log_gamma") != std::string::npos);
}

TEST_CASE("the normaliser's cotangent comes with that of the state") {
  call x;
  tensor<double, 3> z({B, H, K}, 1.0), d_z({B, H, K}, 7.0);
  const linear_attention<double> op{.q = x.q, .k = x.k, .v = x.v};
  const linear_attention_state<double> st{.initial = x.initial, .z_initial = z};
  CHECK(check_backward(op, st, x.d_o, linear_attention_state_gradient<double>{.initial = x.d_initial, .z_initial = d_z},
                       {.q = x.d_q}));
  const status asked =
      check_backward(op, st, x.d_o, linear_attention_state_gradient<double>{.z_initial = d_z}, {.q = x.d_q});
  CHECK(std::string(asked.text()).find("d_st.z_initial") != std::string::npos);
}

TEST_CASE("no tokens: the cotangent of the state passes through") {
  call x;
  const auto none = [](const auto& y) { return y.slice(1, 0, 0); };
  const gla<double> op{.q = none(x.op.q), .k = none(x.op.k), .v = none(x.op.v), .g = none(x.op.g)};
  backward(op, x.st, none(x.o), x.d_st, {});
  CHECK(std::ranges::equal(x.d_initial.flat(), x.d_final.flat()));
  backward(op, x.st, none(x.o), state_gradient<double>{.initial = x.d_initial}, {});
  CHECK(std::ranges::all_of(x.d_initial.flat(), [](double number) { return number == 0; }));
}

TEST_CASE("a gradient of a field that is absent is refused") {
  call x;
  tensor<double, 3> beta({B, L, H}, 0.5), d_beta({B, L, H}, 7.0);
  tensor<double, 4> per_value({B, L, H, V}, 0.5), d_per_value({B, L, H, V}, 7.0);
  delta_rule<double> op{.q = x.q, .k = x.k, .v = x.v, .beta = beta};
  gradient<delta_rule<double>> d{.beta = d_beta};
  CHECK(check_backward(op, {}, x.d_o, {}, d));
  d.beta_per_value = d_per_value;
  CHECK(std::string(check_backward(op, {}, x.d_o, {}, d).text()).find("d.beta_per_value") != std::string::npos);
  op.beta = {};
  op.beta_per_value = per_value;
  CHECK(std::string(check_backward(op, {}, x.d_o, {}, d).text()).find("d.beta is") != std::string::npos);
  d.beta = {};
  CHECK(check_backward(op, {}, x.d_o, {}, d));

  tensor<double, 2> d_u({H, K}, 7.0);
  const rwkv6<double> no_bonus{.r = x.q, .k = x.k, .v = x.v, .w = x.g};
  const status asked = check_backward(no_bonus, {}, x.d_o, {}, {.u = d_u});
  CHECK(std::string(asked.text()) == "rwkv6: d.u is asked for, but its field is absent");
}

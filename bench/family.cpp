// The gated, the delta and the low-rank operators. Per token and head 4·K·V flops, 6·K·V where a key is corrected
// before it is written, 8·K·V where a removal is formed beside the write; decays are not counted.
#include <ogive/ops/gated_delta_rule.hpp>
#include <ogive/ops/gated_rfa.hpp>
#include <ogive/ops/gla.hpp>
#include <ogive/ops/kda.hpp>
#include <ogive/ops/rwkv6.hpp>
#include <ogive/ops/rwkv7.hpp>
#include <ogive/ops/simple_gla.hpp>
#include <ogive/testing/rng.hpp>

#include <bench/matrix_engine.hpp>
#include <list>

namespace {

using namespace ogive;
using namespace ogive::bench;
using ogive::bench::verb;

/// Every tensor that one of them takes.
class family_problem {
 public:
  explicit family_problem(const extents& n)
      : q_({1, n.length, n.heads, n.key_dim}),
        k_(q_),
        kk_(q_),
        a_(q_),
        g_(q_),
        v_({1, n.length, n.heads, n.value_dim}),
        o_(v_),
        head_g_({1, n.length, n.heads}),
        beta_(head_g_),
        u_({n.heads, n.key_dim}) {
    testing::rng random(1);
    for (auto* tokens : {&q_, &k_, &v_}) testing::fill_normal(random, tokens->all());
    const double unit = 1 / std::sqrt(static_cast<double>(n.key_dim));
    testing::fill_uniform(random, kk_.all(), -unit, unit);
    testing::fill_uniform(random, a_.all(), 0, 1);
    testing::fill_uniform(random, g_.all(), -0.6, -0.001);
    testing::fill_uniform(random, head_g_.all(), -0.6, -0.001);
    testing::fill_uniform(random, beta_.all(), 0, 1);
    testing::fill_uniform(random, u_.all(), -1, 1);
  }
  view<float, 4> out() { return o_; }
  view<const float, 4> cotangents() const { return v_; }

 protected:
  /// Room for the gradients of a field.
  template <std::size_t Rank>
  view<float, Rank> like(const tensor<float, Rank>& x) {
    if constexpr (Rank == 4) {
      return gradients_.emplace_back(x.extents());
    } else {
      return head_gradients_.emplace_back(x.extents());
    }
  }

  tensor<float, 4> q_, k_, kk_, a_, g_, v_, o_;
  tensor<float, 3> head_g_, beta_;
  tensor<float, 2> u_;

 private:
  std::list<tensor<float, 4>> gradients_;
  std::list<tensor<float, 3>> head_gradients_;
};

struct simple_gla_problem : family_problem {
  using family_problem::family_problem;
  simple_gla<float> op() const { return {.q = q_, .k = k_, .v = v_, .g = head_g_}; }
  gradient<simple_gla<float>> gradients() { return {like(q_), like(k_), like(v_), like(head_g_)}; }
};
struct gated_rfa_problem : family_problem {
  using family_problem::family_problem;
  gated_rfa<float, maps::elu1> op() const { return {.q = q_, .k = k_, .v = v_, .g = head_g_}; }
  gradient<gated_rfa<float, maps::elu1>> gradients() { return {like(q_), like(k_), like(v_), like(head_g_)}; }
};
struct gla_problem : family_problem {
  using family_problem::family_problem;
  gla<float> op() const { return {.q = q_, .k = k_, .v = v_, .g = g_}; }
  gradient<gla<float>> gradients() { return {like(q_), like(k_), like(v_), like(g_)}; }
};
struct rwkv6_problem : family_problem {
  using family_problem::family_problem;
  rwkv6<float> op() const { return {.r = q_, .k = k_, .v = v_, .w = g_, .u = u_}; }
  gradient<rwkv6<float>> gradients() { return {like(q_), like(k_), like(v_), like(g_), {}}; }
};
struct rwkv7_problem : family_problem {
  using family_problem::family_problem;
  rwkv7<float> op() const { return {.r = q_, .w = g_, .k = k_, .v = v_, .kk = kk_, .a = a_}; }
  gradient<rwkv7<float>> gradients() { return {like(q_), like(g_), like(k_), like(v_), like(kk_), like(a_)}; }
};
struct gated_delta_rule_problem : family_problem {
  using family_problem::family_problem;
  gated_delta_rule<float> op() const {
    return {.q = q_, .k = k_, .v = v_, .g = head_g_, .beta = beta_, .qk_l2norm = 1e-6F};
  }
  gradient<gated_delta_rule<float>> gradients() { return {like(q_), like(k_), like(v_), like(head_g_), like(beta_)}; }
};
struct kda_problem : family_problem {
  using family_problem::family_problem;
  kda<float> op() const { return {.q = q_, .k = k_, .v = v_, .g = g_, .beta = beta_, .qk_l2norm = 1e-6F}; }
  gradient<kda<float>> gradients() { return {like(q_), like(k_), like(v_), like(g_), like(beta_)}; }
};

template <class Problem>
void add(const std::string& name, extents n) {
  const std::string shape = name + "/f32/H" + std::to_string(n.heads) + "_K" + std::to_string(n.key_dim);
  add_sequence<Problem>(shape, n, "recurrent", verb::recurrent);
  add_sequence<Problem>(shape, n, "chunked", verb::chunked);
  add_sequence<Problem>(shape, n, "forward", verb::forward);
  add_sequence<Problem>(shape, n, "forward", verb::forward, 2);
  add_backward<Problem>(shape, n);
  n.length = 1;
  add_steps<Problem>(shape, n);
}

const bool registered = [] {
  add<simple_gla_problem>("simple_gla", {32, 64, 64, 2048, 2});
  add<gated_rfa_problem>("gated_rfa", {32, 64, 64, 2048, 2});
  add<gla_problem>("gla", {32, 64, 64, 2048, 2});
  add<rwkv6_problem>("rwkv6", {32, 64, 64, 2048, 2});
  add<rwkv7_problem>("rwkv7", {32, 64, 64, 2048, 4});
  add<gated_delta_rule_problem>("gated_delta_rule", {16, 128, 128, 2048, 3});
  add<kda_problem>("kda", {16, 128, 128, 2048, 3});
  return true;
}();

}  // namespace

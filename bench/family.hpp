// What the benchmarks of the family share: the tensors of every operator, and what is measured of each.
#pragma once

#include <ogive/testing/rng.hpp>

#include <bench/matrix_engine.hpp>
#include <list>

namespace ogive::bench {

/// Every tensor that one of them takes, and room for gradients.
class family_problem {
 public:
  explicit family_problem(const extents& n)
      : q_({1, n.length, n.heads, n.key_dim}),
        k_(q_),
        a_(q_),
        b_(q_),
        rate_(q_),
        g_(q_),
        v_({1, n.length, n.heads, n.value_dim}),
        o_(v_),
        head_g_({1, n.length, n.heads}),
        beta_(head_g_),
        u_({n.heads, n.key_dim}),
        w_(u_),
        log_gamma_({n.heads}) {
    testing::rng random(1);
    for (auto* tokens : {&q_, &k_, &v_}) testing::fill_normal(random, tokens->all());
    const double unit = 1 / std::sqrt(static_cast<double>(n.key_dim));
    for (auto* keys : {&a_, &b_}) testing::fill_uniform(random, keys->all(), -unit, unit);
    testing::fill_uniform(random, rate_.all(), 0, 1);
    testing::fill_uniform(random, beta_.all(), 0, 1);
    testing::fill_uniform(random, u_.all(), -1, 1);
    const auto decays = [&](const auto& g) { testing::fill_uniform(random, g, -0.6, -0.001); };
    decays(g_.all()), decays(head_g_.all()), decays(w_.all()), decays(log_gamma_.all());
  }
  view<float, 4> out() { return o_; }
  view<const float, 4> cotangents() const { return v_; }

 protected:
  /// Room for the gradient of a field.
  template <std::size_t Rank>
  view<float, Rank> like(const tensor<float, Rank>& x) {
    return {gradients_.emplace_back(shape<1>{x.size()}).data(), x.extents()};
  }

  tensor<float, 4> q_, k_, a_, b_, rate_, g_, v_, o_;
  tensor<float, 3> head_g_, beta_;
  tensor<float, 2> u_, w_;
  tensor<float, 1> log_gamma_;

 private:
  std::list<tensor<float, 1>> gradients_;
};

/// Every form of an operator.
template <class Problem>
void add_operator(const std::string& name, extents n) {
  const std::string shape = name + "/f32/H" + std::to_string(n.heads) + "_K" + std::to_string(n.key_dim);
  add_sequence<Problem>(shape, n, "recurrent", verb::recurrent);
  add_sequence<Problem>(shape, n, "chunked", verb::chunked);
  add_sequence<Problem>(shape, n, "forward", verb::forward);
  add_sequence<Problem>(shape, n, "forward", verb::forward, 2);
  add_backward<Problem>(shape, n);
  n.length = 1;
  add_steps<Problem>(shape, n);
}

}  // namespace ogive::bench

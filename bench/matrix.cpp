// SSD and causal linear attention, that of Based and ReBased included. 4·K·V flops per token and head, K the number of
// features; what makes features, and the normaliser, are not counted.
#include <ogive/maps/elementwise.hpp>
#include <ogive/ops/linear_attention.hpp>
#include <ogive/ops/ssd.hpp>
#include <ogive/testing/rng.hpp>

#include <bench/matrix_engine.hpp>

namespace {

using namespace ogive;
using namespace ogive::bench;
using ogive::bench::verb;

/// SSD with one group of B and C, as Mamba-2 has it.
template <class T>
class ssd_problem {
 public:
  explicit ssd_problem(const extents& n)
      : x_({1, n.length, n.heads, n.value_dim}),
        y_({1, n.length, n.heads, n.value_dim}),
        dt_({1, n.length, n.heads}),
        A_({n.heads}),
        B_({1, n.length, 1, n.key_dim}),
        C_({1, n.length, 1, n.key_dim}) {
    testing::rng random(1);
    for (auto* tokens : {&x_, &B_, &C_}) testing::fill_normal(random, tokens->all());
    testing::fill_uniform(random, dt_.all(), 0.001, 0.1);
    testing::fill_uniform(random, A_.all(), -16, -1);
  }
  ssd<T> op() const { return {.x = x_, .dt = dt_, .A = A_, .B = B_, .C = C_}; }
  view<T, 4> out() { return y_; }
  view<const T, 4> cotangents() const { return x_; }
  gradient<ssd<T>> gradients() {
    d_x_ = x_, d_B_ = B_, d_C_ = C_, d_dt_ = dt_, d_A_ = A_;
    return {.x = d_x_, .dt = d_dt_, .A = d_A_, .B = d_B_, .C = d_C_};
  }

 private:
  tensor<T, 4> x_, y_, d_x_{};
  tensor<float, 3> dt_, d_dt_{};
  tensor<float, 1> A_, d_A_{};
  tensor<T, 4> B_, C_, d_B_{}, d_C_{};
};

/// Normalised linear attention, its rows as wide as the map needs for K features.
template <class T, class Map = maps::elu1>
class linear_attention_problem {
 public:
  using op_type = linear_attention<T, Map>;
  explicit linear_attention_problem(const extents& n)
      : q_({1, n.length, n.heads, width(n.key_dim)}), k_(q_), v_({1, n.length, n.heads, n.value_dim}), o_(v_) {
    testing::rng random(1);
    for (auto* tokens : {&q_, &k_, &v_}) testing::fill_normal(random, tokens->all());
  }
  op_type op() const { return {.q = q_, .k = k_, .v = v_}; }
  view<T, 4> out() { return o_; }
  view<const T, 4> cotangents() const { return v_; }
  gradient<op_type> gradients() {
    d_q_ = q_, d_k_ = k_, d_v_ = v_;
    return {.q = d_q_, .k = d_k_, .v = d_v_};
  }

 private:
  static index_t width(index_t K) {
    index_t d = 1;
    while (features(Map{}, d) < K) ++d;
    return d;
  }

  tensor<T, 4> q_, k_, v_, o_, d_q_{}, d_k_{}, d_v_{};
};

/// Row maps of 16 numbers, as models have them, to K features.
template <class Map>
void add_polynomial(const std::string& name, index_t K) {
  using problem = linear_attention_problem<float, Map>;
  const extents whole{.heads = 16, .key_dim = K, .value_dim = 64, .length = 2048};
  const std::string shape = name + "/f32/H16_K" + std::to_string(K) + "_V64";
  add_sequence<problem>(shape, whole, "chunked", verb::chunked);
  add_sequence<problem>(shape, whole, "recurrent", verb::recurrent);
  add_sequence<problem>(shape, whole, "forward", verb::forward);
  add_backward<problem>(shape, whole);
  add_steps<problem>(shape, {16, K, 64, 1});
}

const bool registered = [] {
  const extents mamba2{.heads = 24, .key_dim = 128, .value_dim = 64, .length = 2048};
  const std::string mamba2_name = "H24_P64_N128";
  add_sequence<ssd_problem<float>>("ssd/f32/" + mamba2_name, mamba2, "chunked", verb::chunked);
  add_sequence<ssd_problem<float>>("ssd/f32/" + mamba2_name, mamba2, "recurrent", verb::recurrent);
  add_sequence<ssd_problem<float>>("ssd/f32/" + mamba2_name, mamba2, "chunked", verb::chunked, 2);
  add_sequence<ssd_problem<bfloat16>>("ssd/bf16/" + mamba2_name, mamba2, "chunked", verb::chunked);
  for (const index_t length : {4, 16, 64, 256, 2048}) {
    extents n = mamba2;
    n.length = length;
    add_sequence<ssd_problem<float>>("ssd/f32/" + mamba2_name, n, "forward", verb::forward);
  }
  add_sequence<ssd_problem<float>>("ssd/f32/" + mamba2_name, mamba2, "forward", verb::forward, 2);
  add_backward<ssd_problem<float>>("ssd/f32/" + mamba2_name, mamba2);
  add_steps<ssd_problem<float>>("ssd/f32/" + mamba2_name, {24, 128, 64, 1});

  add_scan<ssd_problem<float>>("ssd/f32/H1_P64_N128", {1, 128, 64, 65536});
  add_scan<linear_attention_problem<float>>("linear_attention/f32/H1_d64", {1, 64, 64, 65536});

  for (const index_t d : {64, 128}) {
    using problem = linear_attention_problem<float>;
    const std::string shape = "linear_attention/f32/H16_d" + std::to_string(d);
    const extents whole{.heads = 16, .key_dim = d, .value_dim = d, .length = 2048};
    add_sequence<problem>(shape, whole, "chunked", verb::chunked);
    add_sequence<problem>(shape, whole, "recurrent", verb::recurrent);
    add_sequence<problem>(shape, whole, "left", verb::left);
    add_sequence<problem>(shape, whole, "chunked", verb::chunked, 2);
    for (const index_t length : {4, 16, 64, 256, 2048}) {
      extents n = whole;
      n.length = length;
      add_sequence<problem>(shape, n, "forward", verb::forward);
    }
    add_sequence<problem>(shape, whole, "forward", verb::forward, 2);
    add_backward<problem>(shape, whole);
    add_steps<problem>(shape, {16, d, d, 1});
  }
  add_polynomial<maps::taylor>("based", 153);
  add_polynomial<maps::rebased<>>("rebased", 136);
  return true;
}();

}  // namespace

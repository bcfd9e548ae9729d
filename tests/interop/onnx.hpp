// Tensors for nodes: of ones where values do not matter, and different ones.
#pragma once

#include <ogive/interop/onnx/linear_attention.hpp>
#include <ogive/testing/rng.hpp>

#include <vector>

namespace ogive::tests {

struct dense {
  std::vector<std::int64_t> dims;
  std::vector<float> numbers;

  explicit dense(std::vector<std::int64_t> of) : dims(std::move(of)) {
    std::int64_t size = 1;
    for (const std::int64_t dim : dims) size *= dim;
    numbers.assign(static_cast<std::size_t>(size), 1.0F);
  }
  operator onnx::tensor_view<float>() { return {numbers.data(), dims}; }
  operator onnx::tensor_view<const float>() const { return {numbers.data(), dims}; }
};

/// A LinearAttention node and its tensors, all numbers different; gated_delta with a decay and a β per head.
struct numbers_of_node {
  dense query, key, value, decay, beta, past;
  dense output, present;
  std::int64_t q_heads, heads;

  numbers_of_node(std::int64_t Hq, std::int64_t H, std::int64_t K, std::int64_t V, std::int64_t L = 3)
      : query({2, L, Hq * K}),
        key({2, L, H * K}),
        value({2, L, H * V}),
        decay({2, L, H}),
        beta({2, L, H}),
        past({2, H, K, V}),
        output({2, L, Hq * V}),
        present({2, H, K, V}),
        q_heads(Hq),
        heads(H) {
    testing::rng random(3);
    for (dense* x : {&query, &key, &value, &past}) fill(random, *x, -1, 1);
    fill(random, decay, -1, 0);
    fill(random, beta, 0, 1);
  }
  static void fill(testing::rng& random, dense& x, float low, float high) {
    for (float& number : x.numbers) number = low + (high - low) * static_cast<float>(random.uniform());
  }
  onnx::linear_attention<float> node() const {
    return {.query = query,
            .key = key,
            .value = value,
            .past_state = past,
            .decay = decay,
            .beta = beta,
            .q_num_heads = q_heads,
            .kv_num_heads = heads};
  }
  std::vector<float> run_of(const onnx::linear_attention<float>& n) {
    run(n, output, present);
    return output.numbers;
  }
};

}  // namespace ogive::tests

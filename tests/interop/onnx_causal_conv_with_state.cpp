// What the standard does not allow in a CausalConvWithState node.
#include <ogive/interop/onnx/causal_conv_with_state.hpp>

#include <cstring>

#include "tests/catch.hpp"
#include "tests/interop/onnx.hpp"

using namespace ogive;

using ogive::tests::dense;

TEST_CASE("nodes that the standard rejects are rejected, before anything is written") {
  const dense input({2, 4, 5}), weight({4, 1, 3}), bias({4}), past({2, 4, 2});
  dense output({2, 4, 5}), present({2, 4, 2});
  using node = onnx::causal_conv_with_state<float>;
  const node good{.input = input, .weight = weight, .bias = bias, .past_state = past};
  CHECK(check(good, output, present));
  run(good, output, present);
  CHECK(output.numbers[0] == 4);

  const dense written = output;
  const auto rejected = [&](const node& bad, const char* input_name, const dense& out, const dense& state) {
    dense to = out, left = state;
    const status asked = check(bad, to, left);
    CAPTURE(input_name, asked.text());
    CHECK_FALSE(asked);
    CHECK(std::strstr(asked.text(), input_name) != nullptr);
    const bool attribute = std::strcmp(input_name, "activation") == 0;
    CHECK(asked.code() == (attribute ? status_code::value : status_code::shape));
    if (attribute) CHECK_THROWS_AS(run(bad, to, left), std::invalid_argument);
    if (!attribute) CHECK_THROWS_AS(run(bad, to, left), shape_error);
    CHECK(to.numbers == out.numbers);
    CHECK(left.numbers == state.numbers);
  };
  const dense rank_2({2, 4}), not_depthwise({4, 2, 3}), no_taps({4, 1, 0}), wide_bias({5}), channels({2, 3, 2});
  const dense columns({2, 4, 3}), rank_4({2, 4, 2, 1}), long_filter({4, 1, 9});
  const dense three({3, 1, 3}), rank_2_weight({4, 3}), rank_2_bias({4, 1}), fewer({1, 4, 2});
  const auto change = [&](const auto& how) {
    node bad = good;
    how(bad);
    return bad;
  };
  rejected(change([&](node& n) { n.input = rank_2; }), "input", written, present);
  rejected(change([&](node& n) { n.input = {}; }), "input", written, present);
  rejected(change([&](node& n) { n.weight = not_depthwise; }), "weight", written, present);
  rejected(change([&](node& n) { n.weight = no_taps; }), "weight", written, present);
  rejected(change([&](node& n) { n.weight = three; }), "weight", written, present);
  rejected(change([&](node& n) { n.weight = rank_2_weight; }), "weight", written, present);
  rejected(change([&](node& n) { n.weight = {}; }), "weight", written, present);
  rejected(change([&](node& n) { n.bias = rank_2_bias; }), "bias", written, present);
  rejected(change([&](node& n) { n.bias = wide_bias; }), "bias", written, present);
  rejected(change([&](node& n) { n.past_state = channels; }), "past_state", written, present);
  rejected(change([&](node& n) { n.past_state = columns; }), "past_state", written, present);
  rejected(change([&](node& n) { n.past_state = rank_4; }), "past_state", written, present);
  rejected(change([&](node& n) { n.past_state = fewer; }), "past_state", written, present);
  rejected(change([&](node& n) { n.activation = "relu"; }), "activation", written, present);
  rejected(change([&](node& n) { n.activation = "SiLU"; }), "activation", written, present);
  rejected(good, "output", rank_2, present);
  rejected(good, "present_state", written, columns);
  CHECK(std::strstr(
            check(good, onnx::tensor_view<float>(const_cast<float*>(input.numbers.data()), input.dims), present).text(),
            "output of dims [2, 4, 5] is written and overlaps input of dims [2, 4, 5]") != nullptr);
  CHECK(std::strstr(check(good, output, onnx::tensor_view<float>(output.numbers.data(), present.dims)).text(),
                    "output of dims [2, 4, 5] is written and overlaps present_state of dims [2, 4, 2]") != nullptr);
  // Allowed by the standard, more than is built here.
  rejected(change([&](node& n) {
             n.weight = long_filter;
             n.past_state = {};
           }),
           "weight", written, dense({2, 4, 8}));
}

TEST_CASE("no tokens, and a filter without a state") {
  const dense input({2, 4, 0}), weight({4, 1, 3}), past({2, 4, 2});
  dense output({2, 4, 0}), present({2, 4, 2});
  for (float& number : present.numbers) number = 7;
  run(onnx::causal_conv_with_state<float>{.input = input, .weight = weight, .past_state = past}, output, present);
  CHECK(present.numbers == past.numbers);
  run(onnx::causal_conv_with_state<float>{.input = input, .weight = weight}, output, present);
  CHECK(present.numbers == std::vector<float>(16, 0.0F));

  const dense one({1, 1, 2}), tap({1, 1, 1});
  dense scaled({1, 1, 2}), nothing({1, 1, 0});
  run(onnx::causal_conv_with_state<float>{.input = one, .weight = tap, .activation = "swish"}, scaled, nothing);
  CHECK(scaled.numbers[1] == simd::silu(1.0F));
  run(onnx::causal_conv_with_state<float>{.input = one, .weight = tap}, scaled, {});  // nobody asks for the state
  CHECK(scaled.numbers[1] == 1);
}

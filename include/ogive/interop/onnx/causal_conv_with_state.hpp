// The operator CausalConvWithState of ONNX (domain ai.onnx, opset 27): a short causal convolution over channels-first
// tensors.
//
//   z = concat(past_state, input) along time      past_state: zeros where it is left out
//   output[b,c,t] = σ(bias[c] + Σ_j weight[c,0,j] z[b,c,t+j]),   present_state = the last k − 1 columns of z
//
// Sums are in float (double for double), and rounded once, after σ; the standard's own evaluation rounds to the
// tensors' type before it, too. double is more than the standard has, a k above 8 less.
#pragma once

#include <ogive/interop/onnx/tensor.hpp>
#include <ogive/layers/short_convolution.hpp>

#include <string_view>

namespace ogive {
inline namespace OGIVE_ABI {
namespace onnx {

/// input (B, C, L), weight (C, 1, k) with 1 ≤ k ≤ 8, bias (C), past_state (B, C, k−1); activation "none", "silu" or
/// "swish". output (B, C, L), present_state (B, C, k−1), which may be the same memory as past_state, or left out.
template <storage T>
struct causal_conv_with_state {
  tensor_view<const T> input{}, weight{}, bias{}, past_state{};
  std::string_view activation = "none";

  static constexpr const char* name = "CausalConvWithState";

  bool silu() const noexcept { return activation == "silu" || activation == "swish"; }
  /// The layer that computes it.
  short_convolution<T> layer() const noexcept {
    short_convolution<T> conv;
    conv.x = from_bdl(input.template as<3>());
    const auto taps = weight.template as<3>();
    conv.weight = view<const T, 2>(taps.data(), {taps.extent(0), taps.extent(2)}, {taps.stride(0), taps.stride(2)});
    conv.bias = bias.template as<1>();
    conv.activation = silu() ? ogive::activation::silu : ogive::activation::none;
    return conv;
  }
  window_state<T> state(const tensor_view<T>& present_state) const noexcept {
    return {.initial = past_state.template as<3>(), .final = present_state.template as<3>()};
  }
};

/// Whether the standard allows the node: ranks, dims, activation; and whether what is written lies apart.
template <storage T>
status check(const causal_conv_with_state<T>& node, const std::type_identity_t<tensor_view<T>>& output,
             const std::type_identity_t<tensor_view<T>>& present_state) noexcept {
  node_checker ask(causal_conv_with_state<T>::name);
  ask.dims("input", node.input, {-1, -1, -1}, "(B, C, L)");
  if (!ask) return ask.result();
  const index_t B = node.input.dim(0), C = node.input.dim(1), L = node.input.dim(2);
  ask.dims("weight", node.weight, {C, 1, -1}, "(C, 1, k), C as input");
  if (!ask) return ask.result();
  const index_t k = node.weight.dim(2);
  if (k < 1) ask.refuse("weight") << "has no taps: k must be at least 1";
  ask.dims("bias", node.bias, {C}, "(C), C as input", true);
  ask.dims("past_state", node.past_state, {B, C, k - 1}, "(B, C, k-1), B and C as input", true);
  ask.dims("output", output, {B, C, L}, "(B, C, L) as input");
  ask.dims("present_state", present_state, {B, C, k - 1}, "(B, C, k-1), B and C as input", true);
  const auto apart = [&](const char* field, const auto& x) noexcept {
    ask.apart(field, x, "input", node.input).apart(field, x, "weight", node.weight).apart(field, x, "bias", node.bias);
  };
  apart("output", output);
  apart("present_state", present_state);
  ask.apart("output", output, "present_state", present_state).apart("output", output, "past_state", node.past_state);
  if (present_state.data() != node.past_state.data()) {
    ask.apart("present_state", present_state, "past_state", node.past_state);
  }
  if (ask && !node.silu() && node.activation != "none") {
    ask.refuse("activation", status_code::value) << "must be none, silu or swish";
  }
  if (!ask) return ask.result();
  return ogive::check(node.layer(), node.state(present_state), from_bdl(output.template as<3>()));
}

/// Runs the node. Unless `prechecked`, \throws shape_error, or std::invalid_argument for an attribute, before anything
/// is written.
template <storage T>
void run(prechecked_t, const causal_conv_with_state<T>& node, const std::type_identity_t<tensor_view<T>>& output,
         const std::type_identity_t<tensor_view<T>>& present_state, context& ctx = default_context()) noexcept {
  forward(prechecked, node.layer(), node.state(present_state), from_bdl(output.template as<3>()), {}, ctx);
}
template <storage T>
void run(const causal_conv_with_state<T>& node, const std::type_identity_t<tensor_view<T>>& output,
         const std::type_identity_t<tensor_view<T>>& present_state, context& ctx = default_context()) {
  require(check(node, output, present_state));
  run(prechecked, node, output, present_state, ctx);
}

/// Scratch, in bytes, that `run` needs for `workers` threads.
template <storage T>
std::size_t scratch_bytes(const causal_conv_with_state<T>& node, int workers = 1) noexcept {
  return ogive::scratch_bytes(node.layer(), options{}, workers);
}

}  // namespace onnx
}  // namespace OGIVE_ABI
}  // namespace ogive

// The operators of ONNX (domain ai.onnx, opset 27) over packed tensors: LinearAttention, CausalConvWithState.
#pragma once

#include <ogive/interop/onnx/causal_conv_with_state.hpp>
#include <ogive/interop/onnx/linear_attention.hpp>

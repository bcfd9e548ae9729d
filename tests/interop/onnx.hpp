// Tensors of ones, for nodes whose values do not matter.
#pragma once

#include <ogive/interop/onnx/tensor.hpp>

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

}  // namespace ogive::tests

// What the nodes of ONNX share: tensors of the file with their dims, one type a file, and the standard's own rule.
#pragma once

#include <ogive/interop/onnx/tensor.hpp>

#include "tests/golden/tool/trial.hpp"

namespace ogive::golden {

/// A tensor of the file with its dims.
template <class T>
struct stored {
  std::vector<T> numbers{};
  std::vector<std::int64_t> dims{};
  bool present = false;

  stored() = default;
  stored(const testing::safetensors& file, const std::string& name) : present(file.has(name)) {
    if (!present) return;
    numbers = file.values<T>(name);
    dims.assign(file.shape(name).begin(), file.shape(name).end());
  }
  onnx::tensor_view<const T> view_of() const {
    return present ? onnx::tensor_view<const T>(numbers.data(), dims) : onnx::tensor_view<const T>();
  }
  onnx::tensor_view<T> room() { return {numbers.data(), dims}; }
  std::vector<double> as_double() const { return {numbers.begin(), numbers.end()}; }
};

/// A number that the metadata keeps as text.
inline double number_of(const testing::safetensors& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) throw std::runtime_error("has no " + key);
  return std::stod(found->second);
}

/// |got − wanted| ≤ atol + rtol |wanted|, the standard's rule: the largest quotient of both sides, against 1.
inline testing::comparison by_the_standard(const std::vector<double>& got, const std::vector<double>& wanted, double rtol,
                                    double atol) {
  testing::comparison worst{.bound = 1};
  worst.ok = got.size() == wanted.size();
  for (std::size_t i = 0; worst.ok && i < got.size(); ++i) {
    const double error = std::fabs(got[i] - wanted[i]) / (atol + rtol * std::fabs(wanted[i]));
    if (error <= worst.error) continue;
    worst.error = error;
    worst.position = static_cast<index_t>(i);
    worst.got = got[i];
    worst.expected = wanted[i];
  }
  worst.ok = worst.ok && worst.error <= 1;
  return worst;
}

/// f(T()) for the type that the metadata names under `key`.
template <class F>
void with_type(const testing::safetensors& file, const std::string& key, const F& f) {
  const auto type = file.metadata().find(key);
  if (type == file.metadata().end()) throw std::runtime_error("does not say its type " + key);
  if (type->second == "F64") return f(double());
  if (type->second == "F32") return f(float());
  if (type->second == "F16") return f(float16());
  if (type->second == "BF16") return f(bfloat16());
  throw std::runtime_error("is of the unknown type " + type->second);
}

}  // namespace ogive::golden

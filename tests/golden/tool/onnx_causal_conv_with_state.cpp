// The ONNX operator CausalConvWithState on the standard's own vectors: other metadata than the rest, one type a file.
#include <ogive/interop/onnx/causal_conv_with_state.hpp>

#include "tests/golden/tool/trial.hpp"

namespace ogive::golden {

namespace {

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
double number_of(const testing::safetensors& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) throw std::runtime_error("has no " + key);
  return std::stod(found->second);
}

/// |got − wanted| ≤ atol + rtol |wanted|, the standard's rule: the largest quotient of both sides, against 1.
testing::comparison by_the_standard(const std::vector<double>& got, const std::vector<double>& wanted, double rtol,
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

template <class T>
void run_in(trial& t, const testing::safetensors& file) {
  const stored<T> input(file, "input"), weight(file, "weight"), bias(file, "bias"), past(file, "past_state");
  stored<T> output(file, "output"), present(file, "present_state");
  const std::vector<double> wanted = output.as_double(), wanted_state = present.as_double();
  const std::vector<double> exact = file.has("output_f64") ? file.values<double>("output_f64") : wanted;
  const auto attributes = nlohmann::json::parse(file.metadata().at("attributes"));
  onnx::causal_conv_with_state<T> node{
      .input = input.view_of(), .weight = weight.view_of(), .bias = bias.view_of(), .past_state = past.view_of()};
  const std::string activation = attributes.value("activation", "none");
  node.activation = activation;

  const auto hold = [&](const char* form) {
    const auto got = output.as_double();
    // Sums of a few terms, then the rounding to T: of numbers that are at most as large as the largest of them.
    const double rounded = std::is_same_v<T, accum_t<T>> ? 0 : testing::unit_roundoff<T>();
    t.add(form, type_name<T>(), "", "output",
          testing::compare(got, exact, golden_case::float_bound(0) * (std::is_same_v<T, double> ? 1e-5 : 1) + rounded));
    // The standard's absolute tolerance is meant for its own order of sums.
    t.add(form, type_name<T>(), "the standard's tolerance", "output",
          by_the_standard(got, wanted, number_of(file, "rtol"), std::max(number_of(file, "atol"), 1e-6)));
    t.add("state", type_name<T>(), form, "present_state", testing::compare(present.as_double(), wanted_state, 0));
  };
  run(node, output.room(), present.room());
  hold("run");
  if (past.present) {  // in place
    present.numbers = past.numbers;
    node.past_state = present.view_of();
    run(node, output.room(), present.room());
    hold("in place");
  }
}

void run_node(trial& t) {
  const testing::safetensors file(t.file.path());
  const auto type = file.metadata().find("T");
  if (type == file.metadata().end()) throw std::runtime_error("does not say its type T");
  if (type->second == "F64") return run_in<double>(t, file);
  if (type->second == "F32") return run_in<float>(t, file);
  if (type->second == "F16") return run_in<float16>(t, file);
  if (type->second == "BF16") return run_in<bfloat16>(t, file);
  throw std::runtime_error("is of the unknown type " + type->second);
}

const registration here("CausalConvWithState", run_node);

}  // namespace

}  // namespace ogive::golden

// The ONNX operator CausalConvWithState on the standard's own vectors: other metadata than the rest, one type a file.
#include <ogive/interop/onnx/causal_conv_with_state.hpp>

#include "tests/golden/tool/onnx.hpp"

namespace ogive::golden {

namespace {

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
  with_type(file, "T", [&]<class T>(T) { run_in<T>(t, file); });
}

const registration here("CausalConvWithState", run_node);

}  // namespace

}  // namespace ogive::golden

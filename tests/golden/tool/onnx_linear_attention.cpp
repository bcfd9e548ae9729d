// The ONNX operator LinearAttention on the standard's own vectors.
#include <ogive/interop/onnx/linear_attention.hpp>

#include "tests/golden/tool/onnx.hpp"

namespace ogive::golden {

namespace {

template <class T, class S>
void run_in(trial& t, const testing::safetensors& file) {
  const stored<T> query(file, "query"), key(file, "key"), value(file, "value"), decay(file, "decay"), beta(file, "beta");
  const stored<S> past(file, "past_state");
  stored<T> output(file, "output");
  stored<S> present(file, "present_state");
  const std::vector<double> wanted = output.as_double(), wanted_state = present.as_double();
  const auto exact_of = [&](const char* name, const std::vector<double>& otherwise) {
    return file.has(name) ? file.values<double>(name) : otherwise;
  };
  const std::vector<double> exact = exact_of("output_f64", wanted), exact_state = exact_of("present_state_f64", wanted_state);
  const auto attributes = nlohmann::json::parse(file.metadata().at("attributes"));
  const std::string rule = attributes.value("update_rule", "gated_delta");
  onnx::linear_attention<T, S> node{.query = query.view_of(),
                                    .key = key.view_of(),
                                    .value = value.view_of(),
                                    .past_state = past.view_of(),
                                    .decay = decay.view_of(),
                                    .beta = beta.view_of(),
                                    .q_num_heads = attributes.value("q_num_heads", std::int64_t{0}),
                                    .kv_num_heads = attributes.value("kv_num_heads", std::int64_t{0}),
                                    .update_rule = rule,
                                    .scale = attributes.value("scale", 0.0F),
                                    .chunk_size = attributes.value("chunk_size", std::int64_t{64})};

  const auto bound = [&](auto stored_as) {
    using X = decltype(stored_as);
    const double sums = golden_case::float_bound(0) * (std::is_same_v<T, double> ? 1e-5 : 1);
    return sums + (std::is_same_v<X, accum_t<X>> ? 0 : testing::unit_roundoff<X>());
  };
  const double rtol = number_of(file, "rtol"), atol = std::max(number_of(file, "atol"), 1e-6);
  const auto hold = [&](const char* form) {
    t.add(form, type_name<T>(), "", "output", testing::compare(output.as_double(), exact, bound(T())));
    t.add(form, type_name<T>(), "", "present_state", testing::compare(present.as_double(), exact_state, bound(S())));
    t.add(form, type_name<T>(), "the standard's tolerance", "output",
          by_the_standard(output.as_double(), wanted, rtol, atol));
    t.add(form, type_name<T>(), "the standard's tolerance", "present_state",
          by_the_standard(present.as_double(), wanted_state, rtol, atol));
  };
  run(node, output.room(), present.room());
  hold("run");
  for (const form how : {form::recurrent, form::chunked}) {
    node.visit([&](const auto& op) {
      forward(op, node.states(present.room()), node.unpack(output.room(), node.q_num_heads), {.form = how});
    });
    hold(how == form::chunked ? "chunked" : "recurrent");
  }
  if (past.present) {
    present.numbers = past.numbers;
    node.past_state = present.view_of();
    run(node, output.room(), present.room());
    hold("in place");
  }
}

void run_node(trial& t) {
  const testing::safetensors file(t.file.path());
  with_type(file, "T", [&]<class T>(T) {
    with_type(file, "S", [&]<class S>(S) {
      if constexpr (std::is_same_v<T, double> == std::is_same_v<S, double>) return run_in<T, S>(t, file);
      throw std::runtime_error("mixes double with narrower types");
    });
  });
}

const registration here("LinearAttention", run_node);

}  // namespace

}  // namespace ogive::golden

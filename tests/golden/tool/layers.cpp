// Layers: the short convolution, norms and gates, and their gradients.
#include <ogive/layers/gates.hpp>
#include <ogive/layers/norm.hpp>
#include <ogive/reference/gates.hpp>
#include <ogive/reference/norm.hpp>
#include <ogive/testing/samplers/short_convolution.hpp>

#include "tests/golden/tool/gradients.hpp"
#include "tests/golden/tool/sequence_forms.hpp"

namespace ogive::golden {

namespace {

activation activation_of(const golden_case& file, activation otherwise) {
  const std::string word = file.text("activation", "");
  if (word.empty()) return otherwise;
  if (word == "none") return activation::none;
  if (word == "silu") return activation::silu;
  if (word == "sigmoid") return activation::sigmoid;
  throw std::runtime_error("unknown activation '" + word + "'");
}

/// causal_conv1d: x, out B,D,L; weight D,W; bias D; states B,D,W−1.
template <class T>
struct convolution {
  tensor<T, 3> x, initial;
  tensor<T, 2> weight;
  tensor<T, 1> bias;
  short_convolution<T> op{};
  window_state<T> st{};
  index_t chunk = 0;

  explicit convolution(const golden_case& file)
      : x(file.get<T, 3>("x")),
        initial(file.get_if<T, 3>("initial_state")),
        weight(file.get<T, 2>("weight")),
        bias(file.get_if<T, 1>("bias")) {
    op.x = from_bdl(std::as_const(x).all());
    op.weight = weight;
    op.bias = bias;
    op.activation = activation_of(file, activation::none);
    st.initial = std::as_const(initial).all();
  }

  template <class O, class State>
  named_views outputs(const view<O, 3>& y, const State& left) const {
    named_views all;
    add_output(all, "out", from_bdl(y));
    add_state(all, "final_state", left.final);
    return all;
  }
  template <class Acc, class Out, class State>
  void define(const short_convolution<T>& given, const State& state, const view<Out, 3>& y) const {
    reference::evaluate<Acc>(given, state, y);
  }
};

void run_convolution(trial& t) {
  run_all(t, [&]<class T>(T) { return convolution<T>(t.file); });
  in_both(t, []<class T>(trial& on, T) {
    const convolution<T> args(on.file);
    const auto d_out = on.file.get_if<T, 3>("grad_out");
    const auto d_final = on.file.get_if<T, 3>("grad_final_state");
    tensor<T, 3> d_x = like(args.op.x), d_initial = like(args.st.initial);
    tensor<T, 2> d_weight = like(args.op.weight);
    tensor<T, 1> d_bias = like(args.op.bias);
    backward(args.op, args.st, from_bdl(d_out.all()), window_gradient<T>{.final = d_final, .initial = d_initial},
             {.x = d_x, .weight = d_weight, .bias = d_bias});
    hold<T>(on, "backward", "d_x", from_bdl(d_x.all()));
    hold<T>(on, "backward", "d_weight", d_weight.all());
    hold<T>(on, "backward", "d_bias", d_bias.all());
    hold<T>(on, "backward", "d_initial_state", d_initial.all());
  });
}

/// causal_conv1d_update: x, out B,D,S or B,D; conv_state B,D,K, a ring where the file has cache_seqlens.
void run_convolution_steps(trial& t) {
  in_both(t, []<class T>(trial& on, T) {
    const golden_case& file = on.file;
    std::vector<index_t> axes = file.shape("x");
    const bool flat = axes.size() == 2;
    if (flat) axes.push_back(1);
    const auto x = file.shaped<T, 3>("x", axes);
    const auto weight = file.get<T, 2>("weight");
    const auto bias = file.get_if<T, 1>("bias");
    const std::vector<std::int64_t> seen = file.integers("cache_seqlens");
    short_convolution<T> op;
    op.x = from_bdl(x.all());
    op.weight = weight;
    op.bias = bias;
    op.activation = activation_of(file, activation::none);
    if (!seen.empty()) op.ring = seen;
    for (const bool one_by_one : {false, true}) {
      auto state = file.get<T, 3>("conv_state");
      tensor<T, 3> y(x.extents());
      const auto out = from_bdl(y.all());
      if (!one_by_one) {
        step(op, state, out);
      } else {
        for (index_t i = 0; i < op.x.extent(1); ++i) {
          auto token = op;
          std::vector<std::int64_t> now = seen;
          for (std::int64_t& tokens : now) tokens += i;
          if (!seen.empty()) token.ring = now;
          token.x = op.x.slice(1, i, 1);
          step(token, state, out.slice(1, i, 1));
        }
      }
      const char* form = one_by_one ? "step by step" : "step";
      hold<T>(on, form, "out", y.all());
      hold<T>(on, form, "new_conv_state", state.all());
    }
  });
}

/// A tensor …,D of the file with its first axes as tokens, and its last in groups.
template <class T>
class grouped_tensor {
 public:
  grouped_tensor(const golden_case& file, const std::string& name, index_t groups) : groups_(groups) {
    if (!file.has(name)) return;
    std::vector<index_t> axes = file.shape(name);
    if (axes.empty()) throw std::runtime_error(name + " must have a last axis");
    index_t tokens = 1;
    for (std::size_t i = 0; i + 1 < axes.size(); ++i) tokens *= axes[i];
    all_ = file.shaped<T, 3>(name, {1, tokens, axes.back()});
  }
  /// Room for what is like this.
  grouped_tensor room() const { return {groups_, like(all_.all())}; }
  view<T, 4> all() { return grouped(all_.all(), groups_); }
  view<const T, 4> all() const { return grouped(all_.all(), groups_); }

 private:
  grouped_tensor(index_t groups, tensor<T, 3>&& all) : groups_(groups), all_(std::move(all)) {}

  index_t groups_;
  tensor<T, 3> all_;
};

/// Rows [1, D] of parameters, or [G, D/G].
template <class T>
view<T, 2> in_groups(tensor<T, 1>& x, index_t groups) {
  return grouped(x.all(), groups);
}
template <class T>
view<const T, 2> in_groups(const tensor<T, 1>& x, index_t groups) {
  return grouped(x.all(), groups);
}

index_t groups_of(const golden_case& file) {
  const index_t D = file.shape("x").empty() ? 1 : file.shape("x").back();
  const index_t size = file.integer("group_size").value_or(D);
  if (size < 1 || D % size != 0) throw std::runtime_error("group_size must divide the last axis");
  return D / size;
}

/// Forward, its definition, and gradients of a norm. `gate` is what the file calls the gate.
template <class T, class Op, class Define>
void run_norm(trial& t, Op op, const std::string& gate, const Define& define) {
  const golden_case& file = t.file;
  const index_t G = groups_of(file);
  const grouped_tensor<T> x(file, "x", G), residual(file, "residual", G), z(file, gate, G), d_out(file, "grad_out", G);
  const auto weight = file.get_if<T, 1>("weight");
  const auto bias = file.get_if<T, 1>("bias");
  grouped_tensor<T> y = x.room(), sum = x.room();
  op.x = x.all();
  op.eps = static_cast<T>(file.number("eps").value_or(1e-6));
  if constexpr (requires { op.weight; }) {
    op.residual = residual.all();
    op.weight = in_groups(weight, G);
    op.bias = in_groups(bias, G);
    if (file.has("residual_out")) op.sum = sum.all();
  }
  if constexpr (requires { op.z; }) op.z = z.all();
  forward(op, y.all());
  hold<T>(t, "forward", "out", y.all());
  if constexpr (requires { op.sum; }) hold<T>(t, "forward", "residual_out", op.sum);
  if constexpr (std::is_same_v<T, double>) {
    define(op, y.all());
    hold<T>(t, "definition", "out", y.all());
  }

  grouped_tensor<T> d_x = x.room(), d_residual = residual.room(), d_z = z.room();
  tensor<T, 1> d_weight = like(weight.all()), d_bias = like(bias.all());
  backward(op, d_out.all(),
           {.x = d_x.all(),
            .residual = d_residual.all(),
            .z = d_z.all(),
            .weight = in_groups(d_weight, G),
            .bias = in_groups(d_bias, G)});
  hold<T>(t, "backward", "d_x", d_x.all());
  hold<T>(t, "backward", "d_residual", d_residual.all());
  hold<T>(t, "backward", "d_" + gate, d_z.all());
  hold<T>(t, "backward", "d_weight", d_weight.all());
  hold<T>(t, "backward", "d_bias", d_bias.all());
}

void run_rms(trial& t) {
  const std::string gate = t.file.has("g") ? "g" : "z";
  in_both(t, [&]<class T>(trial& on, T) {
    rms_norm<T> op;
    op.gate = activation_of(on.file, activation::silu);
    op.norm_before_gate = on.file.flag("norm_before_gate", true);
    run_norm<T>(on, op, gate, [](const auto& given, const auto& y) { reference::rms_norm<double>(given, y); });
  });
}

void run_layer_norm(trial& t) {
  in_both(t, []<class T>(trial& on, T) {
    run_norm<T>(on, layer_norm<T>(), "z",
                [](const auto& given, const auto& y) { reference::layer_norm<double>(given, y); });
  });
}

/// `normalize_form` is another rule, x / max(‖x‖, …), and not ours.
void run_l2_norm(trial& t) {
  t.pass_over("normalize_form");
  in_both(t, []<class T>(trial& on, T) {
    run_norm<T>(on, l2_norm<T>(), "z", [](const auto& given, const auto& y) { reference::l2_norm<double>(given, y); });
  });
}

/// Gates: a, out B,T,H or B,T,H,K; A_log H; dt_bias H·K.
template <class T, class Op, class Define>
void run_gate(trial& t, Op op, const Define& define) {
  const golden_case& file = t.file;
  std::vector<index_t> axes = file.shape("a");
  if (axes.size() == 3) axes.push_back(1);
  const auto a = file.shaped<T, 4>("a", axes);
  const index_t H = a.extent(2);
  const auto A_log = file.get_if<T, 1>("A_log");
  const auto dt_bias = file.get_if<T, 1>("dt_bias");
  tensor<T, 4> g(a.extents()), d_a(a.extents());
  op.a = a;
  op.A_log = A_log;
  op.dt_bias = in_groups(dt_bias, H);
  forward(op, g);
  hold<T>(t, "forward", "out", g.all());
  if constexpr (std::is_same_v<T, double>) {
    reference::gate<double>(op, g.all(), define);
    hold<T>(t, "definition", "out", g.all());
  }
  const auto d_g = file.shaped<T, 4>("grad_out", axes);
  tensor<T, 1> d_A = like(A_log.all()), d_bias = like(dt_bias.all());
  backward(op, d_g, {.a = d_a, .A_log = d_A, .dt_bias = in_groups(d_bias, H)});
  hold<T>(t, "backward", "d_a", d_a.all());
  hold<T>(t, "backward", "d_A_log", d_A.all());
  hold<T>(t, "backward", "d_dt_bias", d_bias.all());
}

void run_softplus_gate(trial& t) {
  in_both(
      t, []<class T>(trial& on, T) { run_gate<T>(on, gates::softplus_decay<T>(), reference::softplus_decay<double>); });
}

void run_bounded_gate(trial& t) {
  const double lowest = t.file.number("lower_bound").value_or(-5);
  in_both(t, [&]<class T>(trial& on, T) {
    run_gate<T>(on, gates::bounded_decay<T>{.form = {.lowest = lowest}},
                [&](double u, double s) { return reference::bounded_decay(u, s, lowest); });
  });
}

const registration whole("causal_conv1d", run_convolution);
const registration stepped("causal_conv1d_update", run_convolution_steps);
const registration gated_rms("gated_rmsnorm", run_rms);
const registration plain_rms("rmsnorm", run_rms);
const registration activated_rms("rmsnorm_gated_act", run_rms);
const registration layer("layernorm", run_layer_norm);
const registration l2("l2norm", run_l2_norm);
const registration gdn("gdn_gate", run_softplus_gate);
const registration kda("kda_gate", run_softplus_gate);
const registration kda_bounded("kda_gate_lowerbound", run_bounded_gate);

}  // namespace

}  // namespace ogive::golden

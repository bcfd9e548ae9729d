// SSD (Mamba-2): whole sequences, packed ones, and the minimal form that is given log decays.
#include <ogive/ops/simple_gla.hpp>
#include <ogive/testing/samplers/ssd.hpp>

#include "tests/golden/tool/gradients.hpp"
#include "tests/golden/tool/sequence_forms.hpp"
#include "tests/golden/tool/state_space.hpp"

namespace ogive::golden {

namespace {

/// ssd, ssd_varlen: d = clamp(softplus?(dt + dt_bias)); x, z, out b,l,h,p; dt b,l,h; B, C b,l,g,n; D h or h,p; states
/// b,h,p,n, or one for each packed sequence.
template <class T>
struct ssd_arguments {
  using accum = accum_t<T>;
  tensor<T, 4> x, B, C, z;
  tensor<accum, 3> dt;
  tensor<accum, 1> A, dt_bias;
  tensor<accum, 2> D;
  tensor<accum, 4> S;
  tensor<T, 4> d_out;
  tensor<accum, 4> d_S;
  std::vector<std::int64_t> offsets;
  std::vector<std::int32_t> slots;
  ssd<T> op;
  state<accum> st;
  testing::cotangents_of<ssd<T>> cotangents;
  index_t chunk;

  explicit ssd_arguments(const golden_case& file)
      : x(file.get<T, 4>("x")),
        B(file.get<T, 4>("B")),
        C(file.get<T, 4>("C")),
        z(file.get_if<T, 4>("z")),
        dt(file.get<accum, 3>("dt")),
        A(file.get<accum, 1>("A")),
        dt_bias(file.get_if<accum, 1>("dt_bias")),
        D(skips<accum>(file)),
        S(file.has("initial_states") ? file.without_axis<accum, 4>("initial_states", 1) : tensor<accum, 4>()),
        d_out(file.get_if<T, 4>("grad_out")),
        d_S(file.get_if<accum, 4>(file.has("grad_final_states") ? "grad_final_states" : "grad_varlen_states")),
        offsets(offsets_of(file, x.extent(0), x.extent(1))),
        chunk(file.integer("chunk_size").value_or(0)) {
    op = {.x = x, .dt = dt, .A = A, .B = B, .C = C, .D = D, .z = z, .dt_bias = dt_bias};
    op.dt_softplus = file.flag("dt_softplus", false);
    const auto [low, high] = file.interval("dt_limit", {0, std::numeric_limits<double>::infinity()});
    op.dt_min = static_cast<accum>(low);
    op.dt_max = static_cast<accum>(high);
    st.initial = from_v_first(std::as_const(S).all());
    cotangents.o = std::as_const(d_out).all();
    cotangents.st.final = from_v_first(std::as_const(d_S).all());
    if (!offsets.empty()) pack();
  }

  template <class O>
  named_views outputs(const view<O, 4>& o, const state<accum>& left) const {
    named_views all;
    add_output(all, "out", o);
    add_state(all, offsets.empty() ? "final_states" : "varlen_states", from_v_first(left.final));
    return all;
  }
  named_views gradients(const testing::gradients_found<ssd<T>>& found) const {
    named_views all;
    add_output(all, "d_x", found.d.x);
    add_output(all, "d_dt", found.d.dt);
    add_output(all, "d_A", found.d.A);
    add_output(all, "d_B", found.d.B);
    add_output(all, "d_C", found.d.C);
    add_output(all, "d_D", found.d.D);
    add_output(all, "d_z", found.d.z);
    add_output(all, "d_dt_bias", found.d.dt_bias);
    const auto& initial = found.st.initial;
    if (initial.present()) add_state(all, "d_initial_states", from_v_first(initial.slice(0, 0, S.extent(0))));
    return all;
  }
  template <class Acc, class State>
  void define(const ssd<T>& o, const State& from, const view<Acc, 4>& y) const {
    reference::evaluate<Acc>(o, from, y);
  }
  template <class Acc, class State>
  void define_masked(const ssd<T>& o, const State& from, const view<Acc, 4>& y) const {
    reference::evaluate_masked<Acc>(o, from, y);
  }

 private:
  /// All sequences in one row, a state each. A single initial state belongs to the first sequence.
  void pack() {
    op.x = one_row(op.x);
    op.dt = one_row(op.dt);
    op.B = one_row(op.B);
    op.C = one_row(op.C);
    op.z = one_row(op.z);
    cotangents.o = one_row(cotangents.o);
    op.offsets = offsets;
    const std::size_t sequences = offsets.size() - 1;
    if (S.size() > 0 && S.extent(0) == 1 && sequences > 1) {
      slots.assign(sequences, -1);
      slots[0] = 0;
      st.initial_slots = slots;
    }
  }
};

void run_ssd(trial& t) {
  run_all(t, [&]<class T>(T) { return ssd_arguments<T>(t.file); });
}

/// ssd_minimal: S_t = exp(A_t) S_{t-1} + X_t B_tᵀ, Y_t = S_t C_t. The log decay A_t is given, and X is dt·x already.
template <class T>
struct minimal_arguments {
  log_decays<T> steps;
  tensor<T, 4> X, B, C, S;
  ssd<T> op;
  state<T> st;
  index_t chunk;

  explicit minimal_arguments(const golden_case& file)
      : steps(file.get<double, 3>("A").all()),
        X(file.get<T, 4>("X")),
        B(steps.weighted(file.get<double, 4>("B").all())),
        C(steps.repeated(file.get<double, 4>("C").all())),
        S(file.has("initial_states") ? file.without_axis<T, 4>("initial_states", 1) : tensor<T, 4>()),
        chunk(file.integer("block_len").value_or(0)) {
    op = steps.on({.x = X, .B = B, .C = C});
    st.initial = from_v_first(std::as_const(S).all());
  }

  template <class O>
  named_views outputs(const view<O, 4>& o, const state<T>& left) const {
    named_views all;
    add_output(all, "Y", o);
    add_state(all, "final_state", from_v_first(left.final));
    return all;
  }
  template <class Acc, class State>
  void define(const ssd<T>& o, const State& from, const view<Acc, 4>& y) const {
    reference::evaluate<Acc>(o, from, y);
  }
  template <class Acc, class State>
  void define_masked(const ssd<T>& o, const State& from, const view<Acc, 4>& y) const {
    reference::evaluate_masked<Acc>(o, from, y);
  }
};

/// The gradients of ssd_minimal, whose log decays are those of simple GLA: there A has a gradient of its own.
template <class T>
void run_minimal_backward(trial& t) {
  const golden_case& file = t.file;
  const auto X = file.get<T, 4>("X"), B = file.get<T, 4>("B"), C = file.get<T, 4>("C"), d_Y = file.get<T, 4>("grad_Y");
  const auto A = file.get<T, 3>("A");
  const auto states = [&](const char* name) {
    return file.has(name) ? file.without_axis<T, 4>(name, 1) : tensor<T, 4>();
  };
  const tensor<T, 4> S = states("initial_states"), d_S = states("grad_final_state");
  auto d_X = like(X.all()), d_B = like(B.all()), d_C = like(C.all()), d_initial = like(S.all());
  auto d_A = like(A.all());
  backward(simple_gla<T>{.q = C, .k = B, .v = X, .g = A, .scale = T(1)}, state<T>{.initial = from_v_first(S.all())},
           d_Y, state_gradient<T>{.final = from_v_first(d_S.all()), .initial = from_v_first(d_initial.all())},
           {.q = d_C, .k = d_B, .v = d_X, .g = d_A});
  const char* form = "backward";
  hold<T>(t, form, "d_X", d_X.all());
  hold<T>(t, form, "d_A", d_A.all());
  hold<T>(t, form, "d_B", d_B.all());
  hold<T>(t, form, "d_C", d_C.all());
  hold<T>(t, form, "d_initial_states", d_initial.all());
}

void run_minimal(trial& t) {
  run_wide(t, [&]<class T>(T) { return minimal_arguments<T>(t.file); });
  if (!t.file.gradients().empty()) in_both(t, []<class T>(trial& on, T) { run_minimal_backward<T>(on); });
}

const registration whole("ssd", run_ssd);
const registration packed("ssd_varlen", run_ssd);
const registration minimal("ssd_minimal", run_minimal);

}  // namespace

}  // namespace ogive::golden

// SSD (Mamba-2): whole sequences, packed ones, and the minimal form that is given log decays.
#include <ogive/testing/samplers/ssd.hpp>

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
  std::vector<std::int64_t> offsets;
  std::vector<std::int32_t> slots;
  ssd<T> op;
  state<accum> st;
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
        offsets(offsets_of(file, x.extent(0), x.extent(1))),
        chunk(file.integer("chunk_size").value_or(0)) {
    op = {.x = x, .dt = dt, .A = A, .B = B, .C = C, .D = D, .z = z, .dt_bias = dt_bias};
    op.dt_softplus = file.flag("dt_softplus", false);
    const auto [low, high] = file.interval("dt_limit", {0, std::numeric_limits<double>::infinity()});
    op.dt_min = static_cast<accum>(low);
    op.dt_max = static_cast<accum>(high);
    st.initial = from_v_first(std::as_const(S).all());
    if (!offsets.empty()) pack();
  }

  template <class O>
  named_views outputs(const view<O, 4>& o, const state<accum>& left) const {
    named_views all;
    add_output(all, "out", o);
    add_state(all, offsets.empty() ? "final_states" : "varlen_states", from_v_first(left.final));
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

void run_minimal(trial& t) {
  run_wide(t, [&]<class T>(T) { return minimal_arguments<T>(t.file); });
}

const registration whole("ssd", run_ssd);
const registration packed("ssd_varlen", run_ssd);
const registration minimal("ssd_minimal", run_minimal);

}  // namespace

}  // namespace ogive::golden

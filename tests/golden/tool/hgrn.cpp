// HGRN: a gated recurrence whose state is its output.
#include <ogive/testing/samplers/hgrn.hpp>

#include "tests/golden/tool/sequence_forms.hpp"

namespace ogive::golden {

namespace {

/// x, g, out B,T,D; initial_state, final_state B,D.
template <class T>
struct hgrn_arguments {
  using accum = accum_t<T>;
  tensor<T, 3> x;
  tensor<accum, 3> g;
  tensor<accum, 3> begin;
  tensor<T, 3> d_out;
  tensor<accum, 3> d_final;
  hgrn<T> op;
  diagonal_state<accum> st;
  testing::cotangents_of<hgrn<T>> cotangents;
  index_t chunk = 0;

  explicit hgrn_arguments(const golden_case& file)
      : x(file.get<T, 3>("x")),
        g(file.get<accum, 3>("g")),
        begin(channels(file, "initial_state")),
        d_out(file.get_if<T, 3>("grad_out")),
        d_final(channels(file, "grad_final_state")) {
    op = {.x = x, .g = g};
    st.initial = std::as_const(begin).all();
    cotangents.o = std::as_const(d_out).all();
    cotangents.st.final = std::as_const(d_final).all();
  }

  template <class O>
  named_views outputs(const view<O, 3>& o, const diagonal_state<accum>& left) const {
    named_views all;
    add_output(all, "out", o);
    add_state(all, "final_state", left.final);
    return all;
  }
  template <class Found>
  named_views gradients(const Found& found) const {
    named_views all;
    add_output(all, "d_x", found.d.x);
    add_output(all, "d_g", found.d.g);
    add_state(all, "d_initial_state", found.st.initial);
    return all;
  }
  template <class Acc, class State>
  void define(const hgrn<T>& o, const State& from, const view<Acc, 3>& y) const {
    reference::evaluate<Acc>(o, from, y);
  }

 private:
  /// [B, D] as [B, D, 1].
  static tensor<accum, 3> channels(const golden_case& file, const std::string& name) {
    if (!file.has(name)) return {};
    std::vector<index_t> axes = file.shape(name);
    axes.push_back(1);
    return file.shaped<accum, 3>(name, axes);
  }
};

void run_hgrn(trial& t) {
  run_all(t, [&]<class T>(T) { return hgrn_arguments<T>(t.file); });
}

const registration here("hgrn", run_hgrn);

}  // namespace

}  // namespace ogive::golden

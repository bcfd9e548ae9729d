// Dense time-invariant systems, one input and one output.
#include <ogive/testing/samplers/shared_state.hpp>

#include "tests/golden/tool/gradients.hpp"
#include "tests/golden/tool/sequence_forms.hpp"

namespace ogive::golden {

namespace {

/// Abar N,N; Bbar, C: N; D: 1; u, y: B,L; x0, x_final: B,N; K: L.
template <class T>
struct lti_arguments {
  using accum = accum_t<T>;
  tensor<T, 3> u;
  tensor<accum, 2> A_bar, B_bar, C, D, begin;
  lti<T> op;
  vector_state<accum> st;
  index_t chunk = 0;

  explicit lti_arguments(const golden_case& file)
      : u(with_last_axis<T, 3>(file, "u")),
        A_bar(file.get<accum, 2>("Abar")),
        B_bar(with_last_axis<accum, 2>(file, "Bbar")),
        C(file.get<accum, 2>("C")),
        D(file.get<accum, 2>("D")),
        begin(file.get_if<accum, 2>("x0")) {
    op = {.u = u, .A_bar = A_bar, .B_bar = B_bar, .C = C, .D = D};
    st.initial = std::as_const(begin).all();
  }

  template <class O>
  named_views outputs(const view<O, 3>& o, const vector_state<accum>& left) const {
    named_views all;
    add_output(all, "y", o);
    add_state(all, "x_final", left.final);
    return all;
  }
  template <class Acc, class State>
  void define(const lti<T>& o, const State& from, const view<Acc, 3>& y) const {
    reference::evaluate<Acc>(o, from, y);
  }

 private:
  template <class X, std::size_t Rank>
  static tensor<X, Rank> with_last_axis(const golden_case& file, const std::string& name) {
    std::vector<index_t> axes = file.shape(name);
    axes.push_back(1);
    return file.shaped<X, Rank>(name, axes);
  }
};

void run_lti(trial& t) {
  run_all(t, [&]<class T>(T) { return lti_arguments<T>(t.file); });
  in_both(t, []<class T>(trial& on, T) {
    const lti_arguments<T> args(on.file);
    tensor<T, 3> K({1, 1, args.u.extent(1)});
    kernel(args.op, K);
    hold<T>(on, "kernel", "K", K.all());
    reference::kernel<T>(args.op, K.all());
    hold<T>(on, "kernel, definition", "K", K.all());
  });
}

const registration here("lti_dense", run_lti);

}  // namespace

}  // namespace ogive::golden

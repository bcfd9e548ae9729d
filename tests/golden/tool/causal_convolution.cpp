// Causal convolutions with long kernels.
#include <ogive/testing/samplers/causal_convolution.hpp>

#include "tests/golden/tool/gradients.hpp"
#include "tests/golden/tool/sequence_forms.hpp"

namespace ogive::golden {

namespace {

/// u, y B,D,L; K D,Lk; D D.
template <class T>
struct convolution_arguments {
  using accum = accum_t<T>;
  tensor<T, 3> u;
  tensor<accum, 2> K;
  tensor<accum, 1> D;
  causal_convolution<T> op{};
  history_state<T> st{};
  index_t chunk = 0;

  explicit convolution_arguments(const golden_case& file)
      : u(file.get<T, 3>("u")), K(file.get<accum, 2>("K")), D(file.get_if<accum, 1>("D")) {
    op = {.u = from_bdl(std::as_const(u).all()), .kernel = K, .D = D};
  }

  template <class O, class State>
  named_views outputs(const view<O, 3>& y, const State&) const {
    named_views all;
    add_output(all, "y", from_bdl(y));
    return all;
  }
  template <class Acc, class Out, class State>
  void define(const causal_convolution<T>& given, const State& from, const view<Out, 3>& y) const {
    reference::evaluate<Acc>(given, from, y);
  }
};

void run_convolution(trial& t) {
  run_all(t, [&]<class T>(T) { return convolution_arguments<T>(t.file); });
  in_both(t, []<class T>(trial& on, T) {
    const convolution_arguments<T> args(on.file);
    const auto d_y = on.file.get<T, 3>("grad_y");
    for (const form way : {form::recurrent, form::convolution}) {
      auto d_u = like(args.op.u);
      auto d_K = like(args.op.kernel);
      auto d_D = like(args.op.D);
      backward(args.op, args.st, from_bdl(d_y.all()), history_state_gradient<accum_t<T>>{},
               {.u = d_u, .kernel = d_K, .D = d_D}, {.form = way});
      const char* name = way == form::recurrent ? "backward" : "backward, convolution";
      hold<T>(on, name, "d_u", from_bdl(d_u.all()));
      hold<T>(on, name, "d_K", d_K.all());
      hold<T>(on, name, "d_D", d_D.all());
    }
  });
}

const registration here("fft_conv", run_convolution);

}  // namespace

}  // namespace ogive::golden

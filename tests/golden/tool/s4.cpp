// S4: kernels and outputs of diagonal plus low-rank systems.
#include <ogive/testing/samplers/s4.hpp>

#include "tests/golden/tool/gradients.hpp"
#include "tests/golden/tool/sequence_forms.hpp"

namespace ogive::golden {

namespace {

/// u, y B,H,L; W, B, C H,N; P R,H,N; dt H; K H,L.
template <class T>
struct s4_arguments {
  using accum = accum_t<T>;
  using number = std::complex<accum>;

  tensor<T, 3> u;
  tensor<number, 2> W, B, C;
  tensor<number, 3> P;
  tensor<accum, 1> dt;
  s4<T> op;
  diagonal_state<number> st;
  index_t chunk = 0;

  explicit s4_arguments(const golden_case& file)
      : u(file.get<T, 3>("u")),
        W(file.get<number, 2>("W")),
        B(file.get<number, 2>("B")),
        C(file.get<number, 2>("C")),
        P(file.get<number, 3>("P")),
        dt(file.get<accum, 1>("dt")) {
    op = {.u = from_bdl(std::as_const(u).all()),
          .Lambda = W,
          .P = std::as_const(P).all().permute({1, 0, 2}),
          .B = B,
          .C = C,
          .dt = dt};
  }

  template <class O>
  named_views outputs(const view<O, 3>& o, const diagonal_state<number>&) const {
    named_views all;
    add_output(all, "y", from_bdl(o));
    return all;
  }
  template <class Acc, class State>
  void define(const s4<T>& o, const State& from, const view<Acc, 3>& y) const {
    reference::evaluate<Acc>(o, from, y);
  }
};

template <class T>
void run_kernel(trial& t) {
  const s4_arguments<T> args(t.file);
  tensor<T, 2> K({args.op.channels(), args.op.u.extent(1)});
  kernel(args.op, K.all());
  hold<T>(t, "kernel", "K", K.all());
  tensor<T, 3> y(args.u.extents());
  convolution(args.op, {}, from_bdl(y.all()));
  hold<T>(t, "convolution", "y", y.all());
}

void run_s4(trial& t) {
  run_all(t, [&]<class T>(T) { return s4_arguments<T>(t.file); });
  in_both(t, []<class T>(trial& on, T) { run_kernel<T>(on); });
}

const registration layer("s4_dplr_kernel", run_s4);

}  // namespace

}  // namespace ogive::golden

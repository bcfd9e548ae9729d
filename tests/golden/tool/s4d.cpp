// S4D: kernels, outputs and states.
#include <ogive/testing/samplers/s4d.hpp>

#include "tests/golden/tool/gradients.hpp"
#include "tests/golden/tool/sequence_forms.hpp"

namespace ogive::golden {

namespace {

/// u, y B,H,L; D H; state, final_state B,H,N; K H,L. What A, B, C and dt are read from is the families' own.
template <class T>
struct s4d_arguments {
  using accum = accum_t<T>;
  using number = std::complex<accum>;

  tensor<T, 3> u;
  tensor<number, 2> A, B, C;
  tensor<accum, 1> dt, D;
  tensor<number, 3> h;
  s4d<T> op;
  diagonal_state<number> st;
  index_t chunk = 0;

  explicit s4d_arguments(const golden_case& file)
      : u(file.get<T, 3>("u")),
        C(file.get<number, 2>("C")),
        D(file.get_if<accum, 1>("D")),
        h(file.get_if<number, 3>("state")) {
    if (file.has("A")) {
      A = file.get<number, 2>("A");
      B = file.get<number, 2>("B");
      dt = file.get<accum, 1>("dt");
    } else {  // A = −exp(log_A_real) + i A_imag, dt = exp(log_dt), and C has taken B in
      const auto re = file.get<double, 2>("log_A_real"), im = file.get<double, 2>("A_imag");
      const auto log_dt = file.get<double, 1>("log_dt");
      A = tensor<number, 2>(re.extents());
      B = tensor<number, 2>(re.extents(), number(1));
      dt = tensor<accum, 1>(log_dt.extents());
      testing::for_each(A.all(), [&](number& a, index_t i) {
        a = number(static_cast<accum>(-std::exp(re.data()[i])), static_cast<accum>(im.data()[i]));
      });
      for (index_t d = 0; d < dt.size(); ++d) dt(d) = static_cast<accum>(std::exp(log_dt(d)));
    }
    op = {.u = from_bdl(std::as_const(u).all()), .A = A, .B = B, .C = C, .dt = dt, .D = D};
    if (file.text("disc", "zoh") == "bilinear") op.rule = discretisation::bilinear;
    st.initial = std::as_const(h).all();
  }

  template <class O>
  named_views outputs(const view<O, 3>& o, const diagonal_state<number>& left) const {
    named_views all;
    add_output(all, "y", from_bdl(o));
    add_state(all, "final_state", left.final);
    return all;
  }
  template <class Acc, class State>
  void define(const s4d<T>& o, const State& from, const view<Acc, 3>& y) const {
    reference::evaluate<Acc>(o, from, y);
  }
};

template <class T>
void run_kernel(trial& t) {
  const s4d_arguments<T> args(t.file);
  tensor<T, 2> K({args.op.A.extent(0), args.op.u.extent(1)});
  kernel(args.op, K.all());
  hold<T>(t, "kernel", "K", K.all());
}

/// Both losses of the file: of y, and of K, which is what a unit impulse gives.
template <class T>
void run_backward(trial& t) {
  const golden_case& file = t.file;
  if (!file.has("grad_y")) return;
  using number = std::complex<T>;
  const s4d_arguments<T> args(file);
  const auto d_y = file.get<T, 3>("grad_y");
  const auto d_K = file.get<T, 2>("grad_K");
  auto d_u = like(args.u.all());
  auto d_A = like(args.A.all()), d_C = like(args.C.all());
  auto d_dt = like(args.dt.all()), d_D = like(args.D.all());
  backward(args.op, {}, from_bdl(d_y.all()), diagonal_state_gradient<number>{},
           {.u = from_bdl(d_u.all()), .A = d_A, .C = d_C, .dt = d_dt, .D = d_D});
  const index_t H = d_K.extent(0), L = d_K.extent(1);
  tensor<T, 3> impulse({1, L, H});
  for (index_t h = 0; h < H && L > 0; ++h) impulse(0, 0, h) = T(1);
  auto of_kernel = args.op;
  of_kernel.u = impulse;
  of_kernel.D = {};
  backward(of_kernel, {}, view<const T, 3>(d_K.data(), {1, L, H}, {0, 1, L}), diagonal_state_gradient<number>{},
           {.A = d_A, .C = d_C, .dt = d_dt}, {.accumulate = true});

  tensor<T, 2> d_log_re(d_A.extents()), d_im(d_A.extents());
  testing::for_each(d_A.all(), [&](const number& d, index_t i) {
    d_log_re.data()[i] = d.real() * args.A.data()[i].real();  // A = −exp(log_A_real) + …
    d_im.data()[i] = d.imag();
  });
  for (index_t h = 0; h < H; ++h) d_dt(h) *= args.dt(h);
  hold<T>(t, "backward", "d_u", d_u.all());
  hold<T>(t, "backward", "d_C", d_C.all());
  hold<T>(t, "backward", "d_D", d_D.all());
  hold<T>(t, "backward", "d_log_A_real", d_log_re.all());
  hold<T>(t, "backward", "d_A_imag", d_im.all());
  hold<T>(t, "backward", "d_log_dt", d_dt.all());
}

void run_s4d(trial& t) {
  run_all(t, [&]<class T>(T) { return s4d_arguments<T>(t.file); });
  in_both(t, []<class T>(trial& on, T) {
    run_kernel<T>(on);
    run_backward<T>(on);
  });
}

const registration layer("s4d_kernel", run_s4d);
const registration with_state("s4d_kernel_v4", run_s4d);

}  // namespace

}  // namespace ogive::golden

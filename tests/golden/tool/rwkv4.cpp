// RWKV-4: averages weighted by exponentials, channel by channel.
#include <ogive/testing/samplers/rwkv4.hpp>

#include "tests/golden/tool/gradients.hpp"
#include "tests/golden/tool/sequence_forms.hpp"

namespace ogive::golden {

namespace {

/// w = −exp(w_raw), u C; k, v, out B,T,C; state, final_state B,3,C: α, β, ε.
template <class T>
struct rwkv4_arguments {
  using accum = accum_t<T>;
  tensor<T, 3> k, v;
  tensor<accum, 1> w, u;
  tensor<accum, 3> begin;
  rwkv4<T> op;
  rwkv4_state<accum> st;
  index_t chunk = 0;

  explicit rwkv4_arguments(const golden_case& file)
      : k(file.get<T, 3>("k")),
        v(file.get<T, 3>("v")),
        w(file.get<accum, 1>("w_raw")),
        u(file.get<accum, 1>("u")),
        begin(file.get_if<accum, 3>("state")) {
    for (accum& rate : w.flat()) rate = -std::exp(rate);
    op = {.k = k, .v = v, .w = w, .u = u};
    st.initial = std::as_const(begin).all();
  }

  template <class O>
  named_views outputs(const view<O, 3>& o, const rwkv4_state<accum>& left) const {
    named_views all;
    add_output(all, "out", o);
    add_state(all, "final_state", left.final);
    return all;
  }
  template <class Acc, class State>
  void define(const rwkv4<T>& o, const State& from, const view<Acc, 3>& y) const {
    reference::evaluate<Acc>(o, from, y);
  }
};

void run_rwkv4(trial& t) {
  run_wide(t, [&]<class T>(T) { return rwkv4_arguments<T>(t.file); });
  in_both(t, []<class T>(trial& on, T) {
    const rwkv4_arguments<T> args(on.file);
    const auto d_out = on.file.get<T, 3>("grad_out");
    auto d_k = like(args.k.all()), d_v = like(args.v.all());
    auto d_w = like(args.w.all()), d_u = like(args.u.all());
    backward(args.op, args.st, d_out, rwkv4_state_gradient<T>{}, {.k = d_k, .v = d_v, .w = d_w, .u = d_u});
    for (index_t c = 0; c < d_w.size(); ++c) d_w(c) *= args.w(c);  // ∂w/∂w_raw = w
    hold<T>(on, "backward", "d_k", d_k.all());
    hold<T>(on, "backward", "d_v", d_v.all());
    hold<T>(on, "backward", "d_w_raw", d_w.all());
    hold<T>(on, "backward", "d_u", d_u.all());
  });
}

const registration here("rwkv4", run_rwkv4);

}  // namespace

}  // namespace ogive::golden

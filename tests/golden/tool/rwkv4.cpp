// RWKV-4: averages weighted by exponentials, channel by channel.
#include <ogive/testing/samplers/rwkv4.hpp>

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
}

const registration here("rwkv4", run_rwkv4);

}  // namespace

}  // namespace ogive::golden

// L1*: causal convolution by its definition, for any scalar.
//
//   y_t = Σ_{l < Lk} K_l u_{t−l} + D u_t
//
// per channel, inputs before the first token in the state, which keeps the last Lk − 1.
#pragma once

#include <ogive/reference/layout.hpp>

namespace ogive::reference {

template <class Op>
concept convolution_fields = requires(const Op& op) {
  op.u, op.kernel, op.D;
};

/// u, y [B,L,D], kernel [D,Lk], D [D]; state [slots,D,Lk−1]. D and y may be absent; rows of padding are 0.
template <class Acc, convolution_fields Op, class State, class Out>
void evaluate(const Op& op, const State& st, const view<Out, 3>& y) {
  const index_t taps = op.kernel.extent(1), H = std::max<index_t>(taps - 1, 0);
  index_t n = 0;
  for (const sequence& at : sequences(op, op.u.extent(0), op.u.extent(1))) {
    for (index_t c = 0; c < op.u.extent(2); ++c) {
      const auto before = load<Acc>(st.initial, st.initial_slots, n, c, shape<1>{H});
      const auto input = [&](index_t t) {
        return t < 0 ? (t < -H ? Acc(0) : before(H + t)) : lift<Acc>(op.u(at.batch, at.begin + t, c));
      };
      const index_t live = at.live - at.begin;
      for (index_t t = 0; y.present() && t < at.end - at.begin; ++t) {
        Acc sum(0);
        if (t < live) {
          if (op.D.present()) sum = lift<Acc>(op.D(c)) * input(t);
          for (index_t l = 0; l < taps; ++l) sum = sum + lift<Acc>(op.kernel(c, l)) * input(t - l);
        }
        y(at.batch, at.begin + t, c) = lower<Out>(sum);
      }
      tensor<Acc, 1> last(shape<1>{H}, Acc(0));
      for (index_t i = 0; i < H; ++i) last(i) = input(live - H + i);
      store(st.final, st.final_slots, n, c, last);
    }
    ++n;
  }
}

}  // namespace ogive::reference

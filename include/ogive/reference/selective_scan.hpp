// L1*: the selective scan (Mamba-1) by its definition.
//
//   d_t = softplus?(dt_t + dt_bias)
//   h_t = exp(d_t A) h_{t-1} + B̄_t u_t,   B̄_t = d_t B_t (Mamba's rule) or (exp(d_t A) − 1)/A · B_t (exact)
//   y_t = (C_t · h_t + D u_t) silu(z_t)
//
// per channel. A d_t of 0 keeps the state, whatever A is. Complex A: half of each conjugate pair is kept and C·h counts
// as 2 Re(C·h).
// Gu and Dao 2023, arXiv:2312.00752.
#pragma once

#include <ogive/reference/activations.hpp>
#include <ogive/reference/discretisation.hpp>
#include <ogive/reference/layout.hpp>

namespace ogive::reference {

template <class Op>
concept selective_scan_fields = requires(const Op& op) {
  op.u, op.dt, op.A, op.B, op.C, op.D, op.z, op.dt_bias, op.dt_softplus, op.rule, op.lengths;
};

/// Token by token. u, dt, z, y [B,L,D], A [D,N], B, C [B,L,G,N] (channel c reads group c div (D/G), each with its own
/// G), D, dt_bias [D]; state [slots,D,N]. y may be absent.
template <class Acc, selective_scan_fields Op,
          class State = diagonal_state<decltype(lift<double>(std::declval<Op>().A(0, 0)))>, class Out>
void evaluate(const Op& op, const State& given, const view<Out, 3>& y) {
  using Rule = std::remove_cvref_t<decltype(op.rule)>;
  using Number = decltype(lift<Acc>(op.A(0, 0)));
  const auto st = state_of(given);
  const index_t channels = op.u.extent(2);
  const index_t N = op.A.extent(1);
  index_t n = 0;
  for (const auto& [b, begin, end, live] : sequences(op, op.u.extent(0), op.u.extent(1))) {
    for (index_t c = 0; c < channels; ++c) {
      const index_t of_B = c / (channels / op.B.extent(2));
      const index_t of_C = c / (channels / op.C.extent(2));
      auto h = load<Acc, Number>(st.initial, st.initial_slots, n, c, {N});
      for (index_t t = begin; t < end; ++t) {
        const Acc u = lift<Acc>(op.u(b, t, c));
        if (t < live) {
          Acc d = lift<Acc>(op.dt(b, t, c));
          if (op.dt_bias.present()) d = d + lift<Acc>(op.dt_bias(c));
          if (op.dt_softplus) d = softplus(d);
          for (index_t r = 0; r < N; ++r) {
            Number A = lift<Acc>(op.A(c, r));
            if (d == Acc(0) && !(d * A == Number(0))) A = Number(0);  // 0 · ∞
            const Number B(lift<Acc>(op.B(b, t, of_B, r)));
            const auto [A_bar, B_bar] = op.rule == Rule::zoh ? zoh(A, B, d) : mamba(A, B, d);
            h(r) = A_bar * h(r) + B_bar * u;
          }
        }
        if (!y.present()) continue;
        Number sum(Acc(0));
        for (index_t r = 0; r < N; ++r) sum = sum + lift<Acc>(op.C(b, t, of_C, r)) * h(r);
        Acc out(0);
        if constexpr (requires { sum.real(); }) {
          out = Acc(2) * sum.real();
        } else {
          out = sum;
        }
        if (op.D.present()) out = out + lift<Acc>(op.D(c)) * u;
        if (op.z.present()) out = out * silu(lift<Acc>(op.z(b, t, c)));
        y(b, t, c) = lower<Out>(out);
      }
      store(st.final, st.final_slots, n, c, h);
    }
    ++n;
  }
}

}  // namespace ogive::reference

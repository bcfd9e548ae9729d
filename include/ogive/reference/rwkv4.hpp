// L1*: RWKV-4 by its definition.
//
//   wkv_t = (A_{t-1} + e^{u + k_t} v_t) / (B_{t-1} + e^{u + k_t}),   A_t = e^w A_{t-1} + e^{k_t} v_t,   B_t likewise
//
// with A = α e^ε, B = β e^ε, ε_t = max(w + ε_{t-1}, k_t, −1e38): a k of −∞ has no weight, and wkv is 0 where nothing
// has any. Peng et al. 2023, arXiv:2305.13048.
#pragma once

#include <ogive/reference/layout.hpp>

#include <cmath>

namespace ogive::reference {

template <class Op>
concept rwkv4_fields = requires(const Op& op) {
  op.k, op.v, op.w, op.u, op.lengths, op.offsets;
}
&&(std::remove_cvref_t<decltype(std::declval<Op>().k)>::rank == 3);

/// Token by token. k, v, o [B,L,C], w, u [C]; o may be absent; state [slots,3,C], the rows α, β, ε. A row of padding
/// reads α/β, 0 where nothing was seen.
template <class Acc, rwkv4_fields Op, class State, class Out>
void evaluate(const Op& op, const State& st, const view<Out, 3>& o) {
  using std::exp;
  const index_t C = op.k.extent(2);
  index_t n = 0;
  for (const auto& [b, begin, end, live] : sequences(op, op.k.extent(0), op.k.extent(1))) {
    const index_t from = slot_of(st.initial_slots, n), to = slot_of(st.final_slots, n);
    const bool given = st.initial.present() && from >= 0;
    for (index_t c = 0; c < C; ++c) {
      Acc alpha = given ? lift<Acc>(st.initial(from, 0, c)) : Acc(0);
      Acc beta = given ? lift<Acc>(st.initial(from, 1, c)) : Acc(0);
      Acc eps = given ? lift<Acc>(st.initial(from, 2, c)) : Acc(-1e38);
      const auto join = [&](const Acc& past, const Acc& now, const Acc& v) {
        const Acc larger = past < now ? now : past, top = larger < Acc(-1e38) ? Acc(-1e38) : larger;
        return std::array<Acc, 3>{exp(past - top) * alpha + exp(now - top) * v, exp(past - top) * beta + exp(now - top),
                                  top};
      };
      for (index_t t = begin; t < end; ++t) {
        if (t >= live) {
          if (o.present()) o(b, t, c) = lower<Out>(beta == Acc(0) ? Acc(0) : alpha / beta);
          continue;
        }
        const Acc k = lift<Acc>(op.k(b, t, c)), v = lift<Acc>(op.v(b, t, c));
        const auto seen = join(eps, lift<Acc>(op.u(c)) + k, v);
        if (o.present()) o(b, t, c) = lower<Out>(seen[1] == Acc(0) ? Acc(0) : seen[0] / seen[1]);
        const auto next = join(lift<Acc>(op.w(c)) + eps, k, v);
        alpha = next[0];
        beta = next[1];
        eps = next[2];
      }
      if (!st.final.present() || to < 0) continue;
      using S = typename std::remove_cvref_t<decltype(st.final)>::value_type;
      st.final(to, 0, c) = lower<S>(alpha);
      st.final(to, 1, c) = lower<S>(beta);
      st.final(to, 2, c) = lower<S>(eps);
    }
    ++n;
  }
}

}  // namespace ogive::reference

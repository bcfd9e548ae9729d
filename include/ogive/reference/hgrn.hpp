// L1*: HGRN by its definition, h_t = exp(g_t) ⊙ h_{t-1} + x_t, o_t = h_t. Qin, Yang & Zhong 2023, arXiv:2311.04823.
#pragma once

#include <ogive/reference/layout.hpp>

#include <cmath>

namespace ogive::reference {

template <class Op>
concept hgrn_fields = requires(const Op& op) {
  op.x, op.g, op.lengths, op.offsets;
};

/// Token by token. x, g, o [B,L,D]; state [slots,D,1]. o may be absent.
template <class Acc, hgrn_fields Op, class State = diagonal_state<double>, class Out>
void evaluate(const Op& op, const State& given, const view<Out, 3>& o) {
  using std::exp;
  const auto st = state_of(given);
  index_t n = 0;
  for (const auto& [b, begin, end, live] : sequences(op, op.x.extent(0), op.x.extent(1))) {
    for (index_t c = 0; c < op.x.extent(2); ++c) {
      auto h = load<Acc>(st.initial, st.initial_slots, n, c, {1});
      for (index_t t = begin; t < end; ++t) {
        if (t < live) h(0) = exp(lift<Acc>(op.g(b, t, c))) * h(0) + lift<Acc>(op.x(b, t, c));
        if (o.present()) o(b, t, c) = lower<Out>(h(0));
      }
      store(st.final, st.final_slots, n, c, h);
    }
    ++n;
  }
}

}  // namespace ogive::reference

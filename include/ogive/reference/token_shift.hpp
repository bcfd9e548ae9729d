// L1*: token shift by its definition, for any scalar.
#pragma once

#include <ogive/reference/short_convolution.hpp>

namespace ogive::reference {

template <class Op>
concept token_shift_fields = requires(const Op& op) {
  op.x, op.mu, op.mix, op.lengths;
};

/// y_{t,m} = (1 − s) x_t + s x_{t−1}, s = mu_m + mix_{t,m}: x [B,L,D], mu [M,D], mix, y [B,L,M,D]; the state keeps the
/// last K inputs. Rows of padding are 0.
template <class Acc, token_shift_fields Op, class State, class Out>
void evaluate(const Op& op, const State& st, const view<Out, 4>& y) {
  const index_t K = st.final.present() ? st.final.extent(2) : st.initial.present() ? st.initial.extent(2) : 1;
  index_t n = 0;
  for (const sequence& at : sequences(op, op.x.extent(0), op.x.extent(1))) {
    for (index_t c = 0; c < op.x.extent(2); ++c) {
      const std::vector<Acc> z = inputs_of<Acc>(op, st, at, n, c, K);
      for (index_t t = at.begin; y.present() && t < at.end; ++t) {
        for (index_t m = 0; m < y.extent(2); ++m) {
          Acc out(0);
          if (t < at.live) {
            const auto now = static_cast<std::size_t>(K + t - at.begin);
            Acc s(0);
            if (op.mu.present()) s = lift<Acc>(op.mu(m, c));
            if (op.mix.present()) s = s + lift<Acc>(op.mix(at.batch, t, m, c));
            out = (Acc(1) - s) * z[now] + s * z[now - 1];
          }
          y(at.batch, t, m, c) = lower<Out>(out);
        }
      }
      keep_inputs(st, z, n, c, K);
    }
    ++n;
  }
}

}  // namespace ogive::reference

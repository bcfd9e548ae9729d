// L1*: the gates by their definition, for any scalar.
#pragma once

#include <ogive/reference/activations.hpp>
#include <ogive/reference/layout.hpp>

namespace ogive::reference {

/// g = f(a + dt_bias, exp(A_log)) for every element: a, g [B,L,H,K], A_log [H] (or 1), dt_bias [H,K] (or 0).
template <class Acc, class Op, class Out, class F>
void gate(const Op& op, const view<Out, 4>& g, const F& f) {
  using std::exp;
  for (index_t b = 0; b < op.a.extent(0); ++b) {
    for (index_t t = 0; t < op.a.extent(1); ++t) {
      for (index_t h = 0; h < op.a.extent(2); ++h) {
        for (index_t k = 0; k < op.a.extent(3); ++k) {
          Acc u = lift<Acc>(op.a(b, t, h, k));
          if (op.dt_bias.present()) u = u + lift<Acc>(op.dt_bias(h, k));
          const Acc s = op.A_log.present() ? exp(lift<Acc>(op.A_log(h))) : Acc(1);
          g(b, t, h, k) = lower<Out>(f(u, s));
        }
      }
    }
  }
}

/// −exp(A_log) softplus(u)
template <class Acc>
Acc softplus_decay(const Acc& u, const Acc& s) {
  return -(s * softplus(u));
}
/// lowest · sigmoid(exp(A_log) u)
template <class Acc>
Acc bounded_decay(const Acc& u, const Acc& s, double lowest) {
  return Acc(lowest) * sigmoid(Acc(s * u));
}

}  // namespace ogive::reference

// L1*: the linear layer by its definition, for any scalar.
#pragma once

#include <ogive/reference/layout.hpp>

namespace ogive::reference {

/// y = x Wᵀ + b: x [B,L,I], weight [O,I], bias [O], y [B,L,O].
template <class Acc, class Op, class Out>
void linear(const Op& op, const view<Out, 3>& y) {
  for (index_t b = 0; b < op.x.extent(0); ++b) {
    for (index_t t = 0; t < op.x.extent(1); ++t) {
      for (index_t o = 0; o < op.weight.extent(0); ++o) {
        Acc sum(0);
        for (index_t i = 0; i < op.x.extent(2); ++i) sum = sum + lift<Acc>(op.weight(o, i)) * lift<Acc>(op.x(b, t, i));
        if (op.bias.present()) sum = sum + lift<Acc>(op.bias(o));
        y(b, t, o) = lower<Out>(sum);
      }
    }
  }
}

}  // namespace ogive::reference

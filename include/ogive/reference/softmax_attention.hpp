// L1*: softmax attention by its definition.
//
//   o_i = Σ_j p_ij v_j / Σ_j p_ij,   p_ij = exp(s q_i·k_j − m_i),   m_i = max_j s q_i·k_j
//
// over the keys that row i sees. Vaswani et al. 2017, arXiv:1706.03762.
#pragma once

#include <ogive/reference/layout.hpp>

#include <cmath>
#include <limits>

namespace ogive::reference {

template <class Op>
concept softmax_attention_fields = requires(const Op& op) {
  op.q, op.k, op.v, op.causal, op.position, op.window, op.scale, op.lengths, op.max_logits;
};

/// Key j is seen by row i if j ≤ i + position (causal), j > i + position − window (where there is one) and j is real.
/// q [B,L,Hq,D], k [B,S,H,D], v [B,S,H,V], o [B,L,Hq,V]; query head h reads head h div (Hq/H). A row that sees no key
/// is 0, its logit −∞.
template <class Acc, softmax_attention_fields Op, class Out>
void evaluate(const Op& op, const view<Out, 4>& o) {
  using std::exp;
  using std::sqrt;
  const index_t Hq = op.q.extent(2);
  const index_t d = op.q.extent(3);
  const Acc scale = op.scale ? static_cast<Acc>(*op.scale) : Acc(1) / sqrt(static_cast<Acc>(d));
  for (const auto& [b, begin, end, live] : sequences(op, op.k.extent(0), op.k.extent(1))) {
    for (index_t head = 0; head < Hq; ++head) {
      const index_t h = read_by(head, Hq, op.k.extent(2), heads::consecutive);
      for (index_t i = 0; i < op.q.extent(1); ++i) {
        const index_t at = i + op.position;
        const index_t first = op.window > 0 ? std::max<index_t>(0, at - op.window + 1) : 0;
        const index_t last = std::min(live, op.causal ? at + 1 : end);
        std::vector<Acc> p;
        for (index_t j = first; j < last; ++j) {
          Acc score(0);
          for (index_t r = 0; r < d; ++r) score = score + lift<Acc>(op.q(b, i, head, r)) * lift<Acc>(op.k(b, j, h, r));
          p.push_back(scale * score);
        }
        const Acc nothing(-std::numeric_limits<double>::infinity());
        Acc highest = nothing;
        for (const Acc& logit : p) highest = highest < logit ? logit : highest;
        Acc total(0);
        for (Acc& logit : p) {
          logit = highest == nothing ? Acc(0) : exp(logit - highest);
          total = total + logit;
        }
        for (index_t c = 0; c < op.v.extent(3); ++c) {
          Acc sum(0);
          for (index_t j = first; j < last; ++j) {
            sum = sum + p[static_cast<std::size_t>(j - first)] * lift<Acc>(op.v(b, j, h, c));
          }
          o(b, i, head, c) = lower<Out>(total == Acc(0) ? Acc(0) : sum / total);
        }
        using Logit = typename decltype(op.max_logits)::value_type;
        if (op.max_logits.present()) op.max_logits(b, i, head) = lower<Logit>(highest);
      }
    }
  }
}

}  // namespace ogive::reference

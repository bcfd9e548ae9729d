// L1*: the short causal convolution by its definition, for any scalar.
//
//   y_t = σ(b + Σ_{w<W} weight_w x_{t−(W−1)+w})
//
// per channel, inputs before the first in the state, which keeps the last K.
#pragma once

#include <ogive/reference/activations.hpp>
#include <ogive/reference/layout.hpp>

namespace ogive::reference {

/// What a window keeps of a channel: its K inputs before the sequence, and those of the sequence that are not padding.
template <class Acc, class Op, class State>
std::vector<Acc> inputs_of(const Op& op, const State& st, const sequence& at, index_t number, index_t channel,
                           index_t K) {
  std::vector<Acc> all;
  if (K > 0) {
    const auto before = load<Acc>(st.initial, st.initial_slots, number, channel, shape<1>{K});
    for (index_t j = 0; j < K; ++j) all.push_back(before(j));
  }
  for (index_t t = at.begin; t < at.live; ++t) all.push_back(lift<Acc>(op.x(at.batch, t, channel)));
  return all;
}

/// Leaves the last K of them in the final state.
template <class Acc, class State>
void keep_inputs(const State& st, const std::vector<Acc>& all, index_t number, index_t channel, index_t K) {
  tensor<Acc, 1> kept(shape<1>{K}, Acc(0));
  for (index_t j = 0; j < K; ++j) kept(j) = all[all.size() - static_cast<std::size_t>(K - j)];
  store(st.final, st.final_slots, number, channel, kept);
}

template <class Op>
concept short_convolution_fields = requires(const Op& op) {
  op.x, op.weight, op.bias, op.activation, op.lengths;
};

/// x, y [B,L,D], weight [D,W], bias [D]; state [slots,D,K]. y may be absent; rows of padding are 0.
template <class Acc, short_convolution_fields Op, class State, class Out>
void evaluate(const Op& op, const State& st, const view<Out, 3>& y) {
  using Activation = std::remove_cvref_t<decltype(op.activation)>;
  const index_t W = op.weight.extent(1);
  const index_t K = st.final.present() ? st.final.extent(2) : st.initial.present() ? st.initial.extent(2) : W - 1;
  index_t n = 0;
  for (const sequence& at : sequences(op, op.x.extent(0), op.x.extent(1))) {
    for (index_t c = 0; c < op.x.extent(2); ++c) {
      const std::vector<Acc> z = inputs_of<Acc>(op, st, at, n, c, K);
      for (index_t t = at.begin; y.present() && t < at.end; ++t) {
        Acc sum(0);
        if (t < at.live) {
          if (op.bias.present()) sum = lift<Acc>(op.bias(c));
          for (index_t w = 0; w < W; ++w) {
            sum = sum + lift<Acc>(op.weight(c, w)) * z[static_cast<std::size_t>(K + t - at.begin - (W - 1) + w)];
          }
          if (op.activation == Activation::silu) sum = silu(sum);
        }
        y(at.batch, t, c) = lower<Out>(sum);
      }
      keep_inputs(st, z, n, c, K);
    }
    ++n;
  }
}

}  // namespace ogive::reference

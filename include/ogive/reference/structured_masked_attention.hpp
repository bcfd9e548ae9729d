// L1*: structured masked attention, O = (L ∘ Q Kᵀ) V, for any mask L: the dual of every linear state space model.
// Dao and Gu 2024, arXiv:2405.21060, section 4.
#pragma once

#include <ogive/reference/layout.hpp>

namespace ogive::reference {

/// L_ij = [j ≤ i]: causal linear attention.
struct causal_mask {
  double operator()(index_t i, index_t j) const { return j <= i ? 1 : 0; }
};

/// L_ij = γ^(i−j) for j ≤ i: retention.
template <class Acc>
struct decay_mask {
  Acc gamma;
  Acc operator()(index_t i, index_t j) const {
    Acc power(j <= i ? 1 : 0);
    for (index_t m = j; m < i; ++m) power = power * gamma;
    return power;
  }
};

/// L_ij = c_(i−j) for j ≤ i: a convolution over the scores. c [n]
template <class Acc>
struct toeplitz_mask {
  view<const Acc, 1> c;
  Acc operator()(index_t i, index_t j) const { return j <= i ? c(i - j) : Acc(0); }
};

/// L_ij = a_(j+1) ⋯ a_i for j ≤ i: the 1-semiseparable mask of SSD. a [n]; a_0 is not read.
template <class Acc>
struct semiseparable_mask {
  view<const Acc, 1> a;
  Acc operator()(index_t i, index_t j) const {
    Acc product(j <= i ? 1 : 0);
    for (index_t m = j + 1; m <= i; ++m) product = product * a(m);
    return product;
  }
};

/// O = (L ∘ Q Kᵀ) V for one head. q [n, d], k [m, d], v [m, v], o [n, v]. `mask(i, j)` gives L_ij: one of the above,
/// any callable, or a view [n, m]. Where L_ij is 0 the pair is not looked at.
template <class Acc, class Q, class K, class V, class O, class Mask>
void structured_masked_attention(const view<Q, 2>& q, const view<K, 2>& k, const view<V, 2>& v, const Mask& mask,
                                 const view<O, 2>& o) {
  for (index_t i = 0; i < q.extent(0); ++i) {
    tensor<Acc, 1> row({v.extent(1)}, Acc(0));
    for (index_t j = 0; j < k.extent(0); ++j) {
      const Acc weight = static_cast<Acc>(mask(i, j));
      if (weight == Acc(0)) continue;
      Acc score(0);
      for (index_t r = 0; r < q.extent(1); ++r) score = score + lift<Acc>(q(i, r)) * lift<Acc>(k(j, r));
      for (index_t c = 0; c < v.extent(1); ++c) row(c) = row(c) + weight * score * lift<Acc>(v(j, c));
    }
    for (index_t c = 0; c < v.extent(1); ++c) o(i, c) = lower<O>(row(c));
  }
}

}  // namespace ogive::reference

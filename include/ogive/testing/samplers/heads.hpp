// What operators of q and k share: counts of heads that fit together, and the norm of rows.
#pragma once

#include <ogive/testing/samplers.hpp>

namespace ogive::testing {

/// Hq, Hk, H.
struct head_counts {
  index_t queries, keys, values;
};
inline head_counts draw_heads(rng& random) {
  constexpr index_t counts[] = {1, 2, 3, 4, 6, 9};
  const index_t H = counts[random.integer(0, 5)];
  const index_t Hk = divisor_of(random, H);
  switch (random.integer(0, 3)) {
    case 0:
      return {H * random.integer(2, 3), Hk, H};
    case 1:
      return {divisor_of(random, Hk), Hk, H};
    case 2:
      return {H, Hk, H};
    default:
      return {Hk, Hk, H};
  }
}

/// Asks for rows of q and k of length one, or not, with an ε so large that its place is seen.
template <class Op>
void draw_l2norm(rng& random, Op& x) {
  if (coin(random)) x.qk_l2norm = static_cast<typename Op::accum>(random.uniform(0.5, 1));
}
/// Relative rounding of such rows, one of q and one of k: half of that of their squares, and a few.
template <class Op>
index_t l2norm_roundings(const Op& x, index_t K) {
  return x.qk_l2norm ? K + 8 : 0;
}

}  // namespace ogive::testing

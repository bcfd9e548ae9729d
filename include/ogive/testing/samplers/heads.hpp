// Counts of heads that fit together.
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

}  // namespace ogive::testing

// Samples of linear attention without time.
#pragma once

#include <ogive/ops/noncausal_linear_attention.hpp>
#include <ogive/testing/samplers/linear_attention.hpp>

namespace ogive::testing {

template <storage T, feature_map Map>
struct sampler<noncausal_linear_attention<T, Map>> : linear_attention_sampler<noncausal_linear_attention, T, Map> {
  using op = noncausal_linear_attention<T, Map>;
  static constexpr std::tuple tokens{&op::q};
  static constexpr std::tuple keys{&op::k, &op::v, &op::key_mask};
  static constexpr std::tuple gradients{&gradient<op>::q, &gradient<op>::k, &gradient<op>::v};

  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    return linear_attention_sampler<noncausal_linear_attention, T, Map>::draw(random, room, batch, length,
                                                                              odd_extent(random, 100));
  }
};

}  // namespace ogive::testing

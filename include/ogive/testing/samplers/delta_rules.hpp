// Samples of the delta rules: plain, gated per head (GDN), gated per key channel (KDA).
#pragma once

#include <ogive/ops/delta_rule.hpp>
#include <ogive/ops/gated_delta_rule.hpp>
#include <ogive/ops/kda.hpp>
#include <ogive/testing/samplers/matrix_state.hpp>

namespace ogive::testing {

template <class Op>
struct delta_sampler : correcting_sampler<Op> {
  using accum = accum_t<typename Op::scalar>;

  /// β as it comes from here and from there, exact keys that come again and again, and keys of nothing.
  static void harden(rng& random, Op& x) {
    const auto pick = [&](const accum& beta, index_t) {
      const_cast<accum&>(beta) = static_cast<accum>(random.integer(0, 2));
    };
    for_each(x.beta, pick);
    if constexpr (requires { x.beta_per_value; }) for_each(x.beta_per_value, pick);
    using T = typename Op::scalar;
    for (index_t t = 1; t < x.k.extent(1); ++t) {
      const auto key = x.k.slice(1, t, 1), before = x.k.slice(1, t - 1, 1);
      const view<T, 4> changed(const_cast<T*>(key.data()), key.extents(), key.strides());
      if (coin(random)) {
        memory::assign(changed, before);
      } else if (random.integer(0, 9) == 0) {
        for_each(changed, [](T& element, index_t) { element = T(0.0F); });
      }
    }
    if constexpr (requires { x.g; }) harden_gates(random, x.g, 2);
  }

 protected:
  /// Keys of a length of at most one, normalised or drawn that way.
  static Op drawn(rng& random, memory& room, const matrix_sizes& n) {
    const bool normal = coin(random);
    Op x = correcting_sampler<Op>::drawn(random, room, n, normal ? 1 : 1 / std::sqrt(static_cast<double>(n.K)));
    x.qk_l2norm = normal ? std::optional(accum(1e-6)) : std::nullopt;
    return x;
  }
};

template <storage T>
struct sampler<delta_rule<T>> : delta_sampler<delta_rule<T>> {
  using op = delta_rule<T>;
  static constexpr std::tuple tokens{&op::q, &op::k, &op::v, &op::beta, &op::beta_per_value};
  static constexpr std::tuple gradients{&gradient<op>::q, &gradient<op>::k, &gradient<op>::v, &gradient<op>::beta,
                                        &gradient<op>::beta_per_value};

  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    const matrix_sizes n(random, batch, length);
    op x = sampler::drawn(random, room, n);
    if (coin(random)) {
      x.beta = draw_uniform<accum_t<T>>(random, room, n.per_head(), 0, 1);
    } else {
      x.beta_per_value = draw_uniform<accum_t<T>>(random, room, n.values(), 0, 1);
    }
    return x;
  }
};

/// The gated delta rule and KDA: they differ in the rank of g.
template <class Op>
struct gated_delta_sampler : delta_sampler<Op> {
  static constexpr std::tuple tokens{&Op::q, &Op::k, &Op::v, &Op::g, &Op::beta};
  static constexpr std::tuple gradients{&gradient<Op>::q, &gradient<Op>::k, &gradient<Op>::v, &gradient<Op>::g,
                                        &gradient<Op>::beta};

  static Op draw(rng& random, memory& room, index_t batch, index_t length) {
    const matrix_sizes n(random, batch, length);
    Op x = gated_delta_sampler::drawn(random, room, n);
    draw_gates(random, room, n, x.g);
    x.beta = draw_uniform<typename Op::accum>(random, room, n.per_head(), 0, 1);
    return x;
  }
};

template <storage T>
struct sampler<gated_delta_rule<T>> : gated_delta_sampler<gated_delta_rule<T>> {};

template <storage T>
struct sampler<kda<T>> : gated_delta_sampler<kda<T>> {};

}  // namespace ogive::testing

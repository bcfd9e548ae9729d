// Samples of the operators that decay and add: retention, simple GLA, GLA, HGRN2, RWKV-5 and RWKV-6.
#pragma once

#include <ogive/ops/gla.hpp>
#include <ogive/ops/hgrn2.hpp>
#include <ogive/ops/retention.hpp>
#include <ogive/ops/rwkv5.hpp>
#include <ogive/ops/rwkv6.hpp>
#include <ogive/ops/simple_gla.hpp>
#include <ogive/testing/samplers/matrix_state.hpp>

namespace ogive::testing {

template <storage T>
struct sampler<retention<T>> : additive_sampler<retention<T>> {
  using op = retention<T>;
  static constexpr std::tuple tokens{&op::q, &op::k, &op::v};
  static constexpr std::tuple parameters{&op::log_gamma};
  static constexpr std::tuple gradients{&gradient<op>::q, &gradient<op>::k, &gradient<op>::v, &gradient<op>::log_gamma};

  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    const matrix_sizes n(random, batch, length);
    op x = sampler::drawn(random, room, n);
    x.log_gamma = draw_uniform<accum_t<T>>(random, room, shape<1>{n.n.values}, -1, 0);
    return x;
  }
  static void harden(rng& random, op& x) { harden_gates(random, x.log_gamma, 0); }
};

/// Simple GLA and GLA: they differ in the rank of g.
template <class Op>
struct gla_sampler : additive_sampler<Op> {
  static constexpr std::tuple tokens{&Op::q, &Op::k, &Op::v, &Op::g};
  static constexpr std::tuple gradients{&gradient<Op>::q, &gradient<Op>::k, &gradient<Op>::v, &gradient<Op>::g};

  static Op draw(rng& random, memory& room, index_t batch, index_t length) {
    const matrix_sizes n(random, batch, length);
    Op x = gla_sampler::drawn(random, room, n);
    draw_gates(random, room, n, x.g);
    return x;
  }
  static void harden(rng& random, Op& x) { harden_gates(random, x.g, 2); }
};

template <storage T>
struct sampler<simple_gla<T>> : gla_sampler<simple_gla<T>> {};

template <storage T>
struct sampler<gla<T>> : gla_sampler<gla<T>> {};

template <storage T>
struct sampler<hgrn2<T>> : additive_sampler<hgrn2<T>> {
  using op = hgrn2<T>;
  static constexpr std::tuple tokens{&op::q, &op::v, &op::g};
  static constexpr std::tuple gradients{&gradient<op>::q, &gradient<op>::v, &gradient<op>::g};

  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    const matrix_sizes n(random, batch, length);
    op x = sampler::drawn(random, room, n);
    x.g = draw_uniform<accum_t<T>>(random, room, n.per_key(), -1, 0);
    return x;
  }
  /// None that grows: it would be a negative key.
  static void harden(rng& random, op& x) { harden_gates(random, x.g); }
};

template <storage T>
struct sampler<rwkv5<T>> : additive_sampler<rwkv5<T>> {
  using op = rwkv5<T>;
  static constexpr std::tuple tokens{&op::r, &op::k, &op::v};
  static constexpr std::tuple parameters{&op::w, &op::u};
  static constexpr std::tuple gradients{&gradient<op>::r, &gradient<op>::k, &gradient<op>::v, &gradient<op>::w,
                                        &gradient<op>::u};

  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    const matrix_sizes n(random, batch, length);
    op x = sampler::drawn(random, room, n);
    x.w = draw_uniform<accum_t<T>>(random, room, shape<2>{n.n.values, n.K}, -1, 0);
    if (coin(random)) x.u = draw_uniform<accum_t<T>>(random, room, shape<2>{n.n.values, n.K});
    return x;
  }
  static void harden(rng& random, op& x) { harden_gates(random, x.w, 0); }
};

template <storage T>
struct sampler<rwkv6<T>> : additive_sampler<rwkv6<T>> {
  using op = rwkv6<T>;
  static constexpr std::tuple tokens{&op::r, &op::k, &op::v, &op::w};
  static constexpr std::tuple parameters{&op::u};
  static constexpr std::tuple gradients{&gradient<op>::r, &gradient<op>::k, &gradient<op>::v, &gradient<op>::w,
                                        &gradient<op>::u};

  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    const matrix_sizes n(random, batch, length);
    op x = sampler::drawn(random, room, n);
    x.w = draw_uniform<accum_t<T>>(random, room, n.per_key(), -1, 0);
    if (coin(random)) x.u = draw_uniform<accum_t<T>>(random, room, shape<2>{n.n.values, n.K});
    return x;
  }
  static void harden(rng& random, op& x) { harden_gates(random, x.w, 2); }
};

}  // namespace ogive::testing

// Samples of the operators with a low-rank removal: RWKV-7, DPLR, IPLR.
#pragma once

#include <ogive/ops/dplr.hpp>
#include <ogive/ops/iplr.hpp>
#include <ogive/ops/rwkv7.hpp>
#include <ogive/testing/samplers/matrix_state.hpp>

namespace ogive::testing {

/// Removals short enough that a hundred of them in a row do not explode: ‖a‖‖b‖ is 0.03 on average.
inline double removal_size(const matrix_sizes& n) { return 0.3 / std::sqrt(static_cast<double>(n.K)); }

template <storage T>
struct sampler<rwkv7<T>> : correcting_sampler<rwkv7<T>> {
  using op = rwkv7<T>;
  static constexpr std::tuple tokens{&op::r, &op::w, &op::k, &op::v, &op::kk, &op::a};
  static constexpr std::tuple gradients{&gradient<op>::r, &gradient<op>::w,  &gradient<op>::k,
                                        &gradient<op>::v, &gradient<op>::kk, &gradient<op>::a};

  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    const matrix_sizes n(random, batch, length);
    op x = sampler::drawn(random, room, n);
    x.w = draw_uniform<accum_t<T>>(random, room, n.per_key(), -1, 0);
    x.kk = draw_uniform<T>(random, room, n.keys(), -removal_size(n), removal_size(n));
    x.a = draw_uniform<T>(random, room, n.keys(), 0, 1);
    return x;
  }
  static void harden(rng& random, op& x) { harden_gates(random, x.w, 2); }
};

template <storage T>
struct sampler<dplr<T>> : correcting_sampler<dplr<T>> {
  using op = dplr<T>;
  static constexpr std::tuple tokens{&op::q, &op::k, &op::v, &op::a, &op::b, &op::g};
  static constexpr std::tuple gradients{&gradient<op>::q, &gradient<op>::k, &gradient<op>::v,
                                        &gradient<op>::a, &gradient<op>::b, &gradient<op>::g};

  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    const matrix_sizes n(random, batch, length);
    op x = sampler::drawn(random, room, n);
    x.g = draw_uniform<accum_t<T>>(random, room, n.per_key(), -1, 0);
    x.a = draw_uniform<T>(random, room, n.keys(), -removal_size(n), removal_size(n));
    x.b = draw_uniform<T>(random, room, n.keys(), -removal_size(n), removal_size(n));
    return x;
  }
  static void harden(rng& random, op& x) { harden_gates(random, x.g, 2); }
};

template <storage T>
struct sampler<iplr<T>> : correcting_sampler<iplr<T>> {
  using op = iplr<T>;
  static constexpr std::tuple tokens{&op::q, &op::k, &op::v, &op::a, &op::b};
  static constexpr std::tuple gradients{&gradient<op>::q, &gradient<op>::k, &gradient<op>::v, &gradient<op>::a,
                                        &gradient<op>::b};

  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    const matrix_sizes n(random, batch, length);
    op x = sampler::drawn(random, room, n);
    x.a = draw_uniform<T>(random, room, n.keys(), -removal_size(n), removal_size(n));
    x.b = draw_uniform<T>(random, room, n.keys(), -removal_size(n), removal_size(n));
    return x;
  }
};

}  // namespace ogive::testing

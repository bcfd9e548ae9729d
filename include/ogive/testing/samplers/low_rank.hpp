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
  /// a = −β b for directions b that come again and again, β of 0, 1 or 2: nothing is removed, all, or twice that much.
  static void harden(rng& random, op& x) {
    const auto row = [](const view<const T, 4>& of, index_t b, index_t t, index_t h) {
      const auto one = of[b][t][h];
      return view<T, 1>(const_cast<T*>(one.data()), one.extents(), one.strides());
    };
    for (index_t b = 0; b < x.b.extent(0); ++b) {
      for (index_t t = 0; t < x.b.extent(1); ++t) {
        for (index_t h = 0; h < x.b.extent(2); ++h) {
          const auto along = row(x.b, b, t, h), against = row(x.a, b, t, h);
          if (t > 0 && coin(random)) memory::assign(along, view<const T, 1>(row(x.b, b, t - 1, h)));
          const double length = norm(view<const T, 1>(along)), beta = static_cast<double>(random.integer(0, 2));
          for (index_t i = 0; i < along.extent(0); ++i) {
            if (length > 0) along(i) = T(static_cast<accum_t<T>>(static_cast<double>(along(i)) / length));
            against(i) = T(static_cast<accum_t<T>>(-beta * static_cast<double>(along(i))));
          }
        }
      }
    }
  }
};

}  // namespace ogive::testing

// Samples of the operators with a low-rank removal: RWKV-7, DPLR, IPLR.
#pragma once

#include <ogive/ops/dplr.hpp>
#include <ogive/ops/iplr.hpp>
#include <ogive/ops/rwkv7.hpp>
#include <ogive/testing/samplers/matrix_state.hpp>

namespace ogive::testing {

/// Removals short enough that a hundred of them in a row do not explode: ‖a‖‖b‖ is 0.03 on average.
inline double removal_size(const matrix_sizes& n) { return 0.3 / std::sqrt(static_cast<double>(n.K)); }

/// Rows x [B, L, Hk, K] become directions of length one, of which every other token has that of the token before it.
/// f(b, t, h, row, β) for each, with a β of 0, 1 or 2: nothing along it is to be removed, all, or twice that much.
template <storage T, class F>
void repeat_directions(rng& random, const view<const T, 4>& x, const F& f) {
  const auto row = [&](index_t b, index_t t, index_t h) {
    const auto one = x[b][t][h];
    return view<T, 1>(const_cast<T*>(one.data()), one.extents(), one.strides());
  };
  for (index_t b = 0; b < x.extent(0); ++b) {
    for (index_t t = 0; t < x.extent(1); ++t) {
      for (index_t h = 0; h < x.extent(2); ++h) {
        const auto along = row(b, t, h);
        if (t > 0 && coin(random)) memory::assign(along, view<const T, 1>(row(b, t - 1, h)));
        const double length = norm(view<const T, 1>(along));
        for (index_t i = 0; length > 0 && i < along.extent(0); ++i) {
          along(i) = T(static_cast<accum_t<T>>(static_cast<double>(along(i)) / length));
        }
        f(b, t, h, along, static_cast<double>(random.integer(0, 2)));
      }
    }
  }
}

/// Strong gates, the same ones in all heads: these share what is removed.
template <class G>
void harden_gates_alike(rng& random, const view<const G, 4>& g) {
  harden_gates(random, g);
  for (index_t h = 1; h < g.extent(2); ++h) {
    const view<G, 4> own(const_cast<G*>(g.pointer(0, 0, h, 0)), g.slice(2, h, 1).extents(), g.strides());
    memory::assign(own, g.slice(2, 0, 1));
  }
}

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
  /// Removals short beside gates of every kind; or κ of length one and a = β exp(w), so that D − κ (κ ⊙ a)ᵀ, turned, is
  /// D (I − β κ κᵀ): nothing along κ is left, all of it, or its reflection.
  static void harden(rng& random, op& x) {
    if (coin(random)) return harden_gates(random, x.w, 2);
    harden_gates_alike(random, x.w);
    repeat_directions(random, x.kk, [&](index_t b, index_t t, index_t h, const auto& along, double beta) {
      for (index_t i = 0; i < along.extent(0); ++i) {
        const_cast<T&>(x.a(b, t, h, i)) = T(accum_t<T>(beta) * std::exp(x.w(b, t, 0, i)));
      }
    });
  }
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
  /// Removals short beside gates of every kind; or D (I − β b bᵀ) for directions b, their decay taken into b.
  static void harden(rng& random, op& x) {
    if (coin(random)) return harden_gates(random, x.g, 2);
    harden_gates_alike(random, x.g);
    repeat_directions(random, x.a, [&](index_t b, index_t t, index_t h, const auto& along, double beta) {
      for (index_t i = 0; i < along.extent(0); ++i) {
        const_cast<T&>(x.b(b, t, h, i)) =
            T(accum_t<T>(-beta) * std::exp(x.g(b, t, 0, i)) * static_cast<accum_t<T>>(along(i)));
      }
    });
  }
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
    repeat_directions(random, x.b, [&](index_t b, index_t t, index_t h, const auto& along, double beta) {
      for (index_t i = 0; i < along.extent(0); ++i) {
        const_cast<T&>(x.a(b, t, h, i)) = T(static_cast<accum_t<T>>(-beta * static_cast<double>(along(i))));
      }
    });
  }
};

}  // namespace ogive::testing

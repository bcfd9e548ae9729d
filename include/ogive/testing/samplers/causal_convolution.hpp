// Samples of the causal convolution.
#pragma once

#include <ogive/ops/causal_convolution.hpp>
#include <ogive/reference/convolution.hpp>
#include <ogive/testing/samplers.hpp>

namespace ogive::testing {

/// Stands for the magnitudes of a convolution: ‖K‖ ‖u‖ + |D| max |u| of a channel of a sequence, its history in u,
/// since by transforms every term of it may leave its rounding in every output.
template <class T>
struct convolution_norms {
  causal_convolution<T> op;
};
template <class T>
struct sampler<convolution_norms<T>> {
  template <class Acc, class State>
  static void define(const convolution_norms<T>& x, const State& st, const view<double, 3>& y) {
    const auto& [u, kernel, D, lengths, offsets] = x.op;
    reference::evaluate<Acc>(x.op, st, view<double, 3>());
    index_t n = 0;
    for (const reference::sequence& at : reference::sequences(x.op, u.extent(0), u.extent(1))) {
      for (index_t c = 0; c < u.extent(2); ++c) {
        double inputs = 0, most = 0, taps = 0;
        const auto add = [&](double value) {
          inputs += value * value;
          most = std::fmax(most, std::fabs(value));
        };
        for (index_t t = at.begin; t < at.live; ++t) add(static_cast<double>(u(at.batch, t, c)));
        const index_t slot = reference::slot_of(st.initial_slots, n);
        if (st.initial.present() && slot >= 0)
          for_each(st.initial[slot][c], [&](double value, index_t) { add(value); });
        for_each(kernel[c], [&](double tap, index_t) { taps += tap * tap; });
        const double skip = D.present() ? std::fabs(static_cast<double>(D(c))) : 0;
        for (index_t t = at.begin; t < at.end; ++t) y(at.batch, t, c) = std::sqrt(inputs * taps) + skip * most;
      }
      ++n;
    }
  }
};

template <storage T>
struct sampler<causal_convolution<T>> {
  using op = causal_convolution<T>;
  using accum = accum_t<T>;
  static constexpr std::tuple tokens{&op::u};
  static constexpr std::tuple parameters{&op::kernel, &op::D};
  static constexpr std::tuple gradients{&op::gradient::u, &op::gradient::kernel, &op::gradient::D};

  /// Kernels of at least two taps, so that there is a state; also longer ones than the sequence.
  static op draw(rng& random, memory& room, index_t batch, index_t length) {
    const index_t channels = coin(random) ? random.integer(1, 40) : random.integer(1, 4);
    const index_t taps = coin(random) ? random.integer(2, 8) : random.integer(2, 60);
    op x;
    x.u = draw_uniform<T>(random, room, shape<3>{batch, length, channels});
    x.kernel = draw_uniform<accum>(random, room, shape<2>{channels, taps});
    if (coin(random)) x.D = draw_uniform<accum>(random, room, shape<1>{channels});
    return x;
  }

  static shape<3> output(const op& x) { return x.u.extents(); }
  static shape<2> slot(const op& x) { return {x.u.extent(2), x.kernel.extent(1) - 1}; }

  template <class Acc, class State>
  static void define(const op& x, const State& st, const view<double, 3>& y) {
    reference::evaluate<Acc>(x, st, y);
  }
  static convolution_norms<T> absolute(const op& x, memory&) { return {x}; }
  /// Lk products and sums; or some for each level of a transform, of at most 2¹⁰ numbers here, there and back.
  static index_t roundings(const op& x) { return x.kernel.extent(1) + 64; }
};

}  // namespace ogive::testing

// L5: causal convolutions a few tokens at a time, with vectors over channels: the history is read once, and written
// once for all of them. Nothing is turned around in memory where neighbouring channels are neighbours: kernels [Lk, D]
// and histories [slots, Lk − 1, D], permuted. Sums have an order that Lk alone decides: any pieces give the same bits.
//
//   ctx.reserve(ctx.workers() · convolution_step_bytes<Acc>(p));
//   convolve_step<Acc>(p, K, ctx);                            K [D, Lk], otherwise as convolve
#pragma once

#include <ogive/engine/convolution.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// Rows of one vector of channels: the taps, the inputs from the history on, the outputs.
template <class Acc>
struct convolution_step_panels {
  static constexpr index_t W = simd::width<Acc>;
  static constexpr index_t tile = 16;  // tokens
  Acc *taps, *inputs, *outputs;
  convolution_step_panels(index_t Lk, arena& memory) noexcept
      : taps(memory.take<Acc>(std::max<index_t>(Lk, 1) * W)),
        inputs(memory.take<Acc>((Lk + tile) * W)),
        outputs(memory.take<Acc>(tile * W)) {}
};

template <class Acc, class T, class S>
std::size_t convolution_step_bytes(const convolution_problem<T, S>& p) noexcept {
  arena counted;
  convolution_step_panels<Acc>(p.taps, counted);
  return counted.used();
}

/// y_t = Σ_l k_l x_{t−l} for G tokens; rows are a vector each.
template <int G, class Acc>
OGIVE_INLINE void convolve_rows_of_channels(const Acc* x, const Acc* k, index_t taps, Acc* y) noexcept {
  using vector = simd::batch<Acc>;
  constexpr index_t W = simd::width<Acc>;
  constexpr int chains = 4;
  vector sum[chains * G];
  unroll<chains * G>([&](auto i) __attribute__((always_inline)) { sum[i] = vector(Acc(0)); });
  const auto add = [&](index_t l, auto chain) __attribute__((always_inline)) {
    const vector tap = simd::load(k + l * W);
    unroll<G>([&](auto g) __attribute__((always_inline)) {
      sum[chain * G + g] = simd::fma(tap, simd::load(x + (g - l) * W), sum[chain * G + g]);
    });
  };
  index_t l = 0;
  for (; l + chains <= taps; l += chains) {
    unroll<chains>([&](auto chain) __attribute__((always_inline)) { add(l + chain, chain); });
  }
  for (; l < taps; ++l) add(l, std::integral_constant<int, 0>());
  unroll<G>([&](auto g) __attribute__((always_inline)) {
    simd::store(y + g * W, (sum[g] + sum[G + g]) + (sum[2 * G + g] + sum[3 * G + g]));
  });
}

template <class Acc, class T, class S, class P>
OGIVE_NOINLINE void convolve_step_group(const convolution_problem<T, S>& p, const view<const P, 2>& K, index_t channel,
                                        index_t first, index_t last, arena memory) noexcept {
  using panels = convolution_step_panels<Acc>;
  constexpr index_t W = panels::W, tile = panels::tile;
  const index_t across = std::min(W, p.channels() - channel), H = p.reach(), taps = std::max<index_t>(p.taps, 1);
  const panels m(p.taps, memory);
  zero_tile(m.taps, W, 0, 1, W);
  load_tile(view<const P, 2>(K.pointer(channel, 0), {p.taps, across}, {K.stride(1), K.stride(0)}), m.taps, W);
  for (index_t c = 0; c < across && p.skip.present(); ++c) m.taps[c] += static_cast<Acc>(p.skip(channel + c));

  const auto columns = [&](const auto& pool, index_t slot) noexcept {
    using X = typename std::remove_cvref_t<decltype(pool)>::element_type;
    return view<X, 2>(pool.pointer(slot, channel, 0), {H, across}, {pool.stride(2), pool.stride(1)});
  };
  const auto tokens = [&](const auto& x, const convolution_sequence& at, index_t t, index_t count) noexcept {
    using X = typename std::remove_cvref_t<decltype(x)>::element_type;
    return view<X, 2>(x.pointer(at.batch, at.begin + t, channel), {count, across}, {x.stride(1), x.stride(2)});
  };
  for (index_t n = first; n < last; ++n) {
    const convolution_sequence at = p.sequence(n);
    const index_t from = p.st.initial.present() ? core::checker::slot_of(p.st.initial_slots, n) : -1;
    const index_t to = p.st.final.present() ? core::checker::slot_of(p.st.final_slots, n) : -1;
    if (from >= 0) {
      load_tile(columns(p.st.initial, from), m.inputs, W);
    } else {
      zero_tile(m.inputs, W, 0, H, W);
    }
    index_t seen = 0;  // inputs beyond the H that come first
    for (index_t t = 0; t < at.live; t += seen) {
      for (index_t i = 0; i < H && seen > 0; ++i) simd::store(m.inputs + i * W, simd::load(m.inputs + (seen + i) * W));
      seen = std::min(tile, at.live - t);
      load_tile(tokens(p.u, at, t, seen), m.inputs + H * W, W);
      if (!p.y.present()) continue;
      index_t i = 0;
      for (; i + 2 <= seen; i += 2) {
        convolve_rows_of_channels<2>(m.inputs + (H + i) * W, m.taps, taps, m.outputs + i * W);
      }
      if (i < seen) convolve_rows_of_channels<1>(m.inputs + (H + i) * W, m.taps, taps, m.outputs + i * W);
      store_tile(static_cast<const Acc*>(m.outputs), W, tokens(p.y, at, t, seen));
    }
    if (p.y.present()) {
      zero_tile(m.outputs, W, 0, 1, W);
      const view<T, 2> padding = tokens(p.y, at, at.live, at.length - at.live);
      for (index_t t = 0; t < padding.extent(0); ++t) {
        store_tile(static_cast<const Acc*>(m.outputs), W, padding.slice(0, t, 1));
      }
    }
    if (to >= 0) store_tile(static_cast<const Acc*>(m.inputs + seen * W), W, columns(p.st.final, to));
  }
}

template <class Acc, class T, class S, class P>
void convolve_step(const convolution_problem<T, S>& p, const view<const P, 2>& K, context& ctx) noexcept {
  constexpr index_t W = simd::width<Acc>;
  const index_t groups = (p.channels() + W - 1) / W, n = p.sequences();
  const index_t share = convolution_share(n, groups), shares = (n + share - 1) / share;
  run_tasks(ctx, groups * shares, convolution_step_bytes<Acc>(p), [&](index_t task, arena memory) noexcept {
    const index_t first = task % shares * share;
    convolve_step_group<Acc>(p, K, task / shares * W, first, std::min(first + share, n), memory);
  });
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

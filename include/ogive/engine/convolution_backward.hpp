// L5: gradients of causal convolutions. With v_t the cotangent of y_t, 0 after the last token,
//
//   du_t = Σ_l K_l v_{t+l} + D v_t,   dK_l = Σ_t v_t u_{t−l},   dD = Σ_t v_t u_t
//
// where t runs over the history too. A task owns channels and takes them through all sequences, each from its last
// block to the first, so that sums over tokens have one order. What a block says of the inputs before it is carried
// there.
//
//   const convolution_cut cut = convolution_backward_cut_of<Acc>(p, form);
//   make_convolution_tables<Acc>(cut, ctx);
//   ctx.reserve(ctx.workers() · convolution_backward_bytes<Acc>(p, cut, kernel));
//   convolve_backward<Acc>(p, cut, kernel, d, sink, ctx);
//
// `sink(channel, d_taps)`, noexcept, is called once for each channel if d.taps says that it is wanted: dK_l at
// d_taps[l], and dD is dK_0.
#pragma once

#include <ogive/engine/convolution.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// What is known of the outputs, and where gradients go; absent ones are not wanted.
template <class T, class G>
struct convolution_gradients {
  view<const T, 3> y{};            ///< cotangent of y
  history_state_gradient<G> st{};  ///< [sequences, D, Lk − 1]
  view<T, 3> u{};
  bool taps = false;  ///< whether the sink is called
  bool accumulate = false;
  bool inputs() const noexcept { return u.present() || st.initial.present(); }
};

template <class Acc, class T, class S>
convolution_cut convolution_backward_cut_of(const convolution_problem<T, S>& p, form way) noexcept {
  convolution_cut cut = convolution_cut_of<Acc>(p, way, 0, {.each = 3, .once = 2, .direct = 3.4});
  constexpr index_t most = 1 << 19;  // numbers in a panel
  cut.group = std::clamp<index_t>(most / cut.row(), 1, cut.group);
  cut.share = std::max<index_t>(p.sequences(), 1);
  cut.keeps = true;
  return cut;
}

/// Rows of a group of channels, one after the other. Cotangents have room for the zeros after them.
template <class Acc>
struct convolution_backward_panels {
  static constexpr index_t W = simd::width<Acc>;
  index_t of_inputs, of_cotangents, of_taps, of_carry;
  Acc *inputs, *cotangents, *taps, *d_taps, *carry;

  convolution_backward_panels(const convolution_cut& cut, index_t Lk, arena& memory) noexcept
      : of_inputs(cut.row() + W),
        of_cotangents(of_inputs + (cut.direct ? cut.past : 0)),
        of_taps(cut.direct ? std::max<index_t>(Lk, 1) + W : cut.size),
        of_carry(cut.past + W),
        inputs(memory.take<Acc>(cut.group * of_inputs)),
        cotangents(memory.take<Acc>(cut.group * of_cotangents)),
        taps(memory.take<Acc>(cut.group * of_taps)),
        d_taps(memory.take<Acc>(cut.group * of_taps)),
        carry(memory.take<Acc>(cut.group * of_carry)) {}
};

template <class Acc, class T, class S, class Kernel>
std::size_t convolution_backward_bytes(const convolution_problem<T, S>& p, const convolution_cut& cut,
                                       const Kernel& kernel) noexcept {
  arena counted;
  convolution_backward_panels<Acc>(cut, p.taps, counted);
  return counted.used() + kernel_bytes(kernel);
}

/// x_t ← Σ_j k_j x_{t+j} for t < count, in place: from the first t to the last.
template <class Acc>
OGIVE_NOINLINE void correlate_direct(Acc* x, index_t count, const Acc* k, index_t taps) noexcept {
  constexpr index_t W = simd::width<Acc>;
  constexpr int G = 8;
  Acc* const end = x + (count + W - 1) / W * W;
  for (; end - x >= G * W; x += G * W) slide<G>(x, k, taps, x);
  for (; x < end; x += W) slide<1>(x, k, taps, x);
}

/// d_l += Σ_t v_t u_{t−l}, t < count rounded up to vectors, for `G` taps from l on.
template <int G, class Acc>
OGIVE_INLINE void add_lags(const Acc* v, const Acc* u, index_t count, Acc* d) noexcept {
  using vector = simd::batch<Acc>;
  constexpr index_t W = simd::width<Acc>;
  vector sum[G];
  unroll<G>([&](auto g) __attribute__((always_inline)) { sum[g] = vector(Acc(0)); });
  for (index_t t = 0; t < count; t += W) {
    const vector here = simd::load(v + t);
    unroll<G>([&](auto g) __attribute__((always_inline)) { sum[g] = simd::fma(here, simd::load(u + t - g), sum[g]); });
  }
  unroll<G>([&](auto g) __attribute__((always_inline)) { d[g] += simd::reduce_add(sum[g]); });
}
template <class Acc>
OGIVE_NOINLINE void add_lags(const Acc* v, const Acc* u, index_t count, Acc* d, index_t taps) noexcept {
  constexpr int G = 8;
  index_t l = 0;
  for (; l + G <= taps; l += G) add_lags<G>(v, u - l, count, d + l);
  for (; l < taps; ++l) add_lags<1>(v, u - l, count, d + l);
}

template <class Acc, class T, class S, class G, class Kernel, class Sink>
OGIVE_NOINLINE void convolve_group_backward(const convolution_problem<T, S>& p, const convolution_cut& cut,
                                            const Kernel& kernel, const convolution_gradients<T, G>& d,
                                            const Sink& sink, const polynomial_transform<Acc>* transform,
                                            index_t channel, arena memory) noexcept {
  constexpr index_t W = simd::width<Acc>;
  using vector = simd::batch<Acc>;
  const index_t across = std::min(cut.group, p.channels() - channel), taps = std::max<index_t>(p.taps, 1);
  const index_t H = p.reach(), past = cut.past;
  const convolution_backward_panels<Acc> m(cut, p.taps, memory);
  const convolution_rows<Acc, T, S> inputs{p, channel, across, m.inputs, m.of_inputs};
  const convolution_rows<Acc, T, S> cotangents{p, channel, across, m.cotangents, m.of_cotangents};
  const convolution_rows<Acc, T, S> sums{p, channel, across, m.d_taps, m.of_taps};
  sums.zero(0, m.of_taps);
  for (index_t c = 0; c < across && d.inputs(); ++c) {
    if (cut.direct) {
      load_taps(p, kernel, channel + c, m.taps + c * m.of_taps, memory);
    } else {
      transform_taps(p, kernel, channel + c, *transform, m.taps + c * m.of_taps, memory);
    }
  }

  for (index_t n = 0; n < p.sequences(); ++n) {
    const convolution_sequence at = p.sequence(n);
    const index_t last = std::max<index_t>(at.live - 1, 0) / cut.block * cut.block;
    for (index_t t = last; t >= 0; t -= cut.block) {
      const index_t count = std::min(cut.block, at.live - t);
      if (d.taps) {
        inputs.load(at, t - past, past + count);
        inputs.zero(past + count, cut.direct ? W : cut.size - past - count);
      }
      cotangents.zero(0, past);
      if (d.y.present() && count > 0) {
        load_tile(cotangents.tokens(d.y, at, t, count), m.cotangents + past, m.of_cotangents);
        cotangents.zero(past + count, m.of_cotangents - past - count);
      } else {
        cotangents.zero(past, m.of_cotangents - past);
      }
      for (index_t c = 0; c < across; ++c) {
        Acc *u = m.inputs + c * m.of_inputs, *v = m.cotangents + c * m.of_cotangents;
        const Acc* k = m.taps + c * m.of_taps;
        Acc* d_taps = m.d_taps + c * m.of_taps;
        if (cut.direct) {
          if (d.taps) add_lags(v + past, u + past, count, d_taps, taps);
          if (d.inputs()) correlate_direct(v, past + count, k, taps);
        } else {
          transform->forward(v);
          if (d.taps) {
            transform->forward(u);
            transform->add_correlation(v, u, d_taps);
          }
          if (d.inputs()) {
            transform->correlate(v, k);
            transform->inverse(v);
          }
        }
        if (!d.inputs()) continue;
        Acc* carry = m.carry + c * m.of_carry;
        if (t < last) {
          for (index_t i = 0; i < past; i += W) {
            simd::store(v + cut.block + i, simd::load(v + cut.block + i) + simd::load(carry + i));
          }
        } else if (d.st.final.present()) {
          Acc* kept = v + past + (at.live - t) - H;
          for (index_t i = 0; i < H; ++i) kept[i] += static_cast<Acc>(d.st.final(n, channel + c, i));
        }
        for (index_t i = 0; i < past; i += W) simd::store(carry + i, simd::load(v + i));
      }
      if (d.u.present() && d.accumulate) {
        drain_tile(m.cotangents + past, m.of_cotangents, cotangents.tokens(d.u, at, t, count), true);
      } else if (d.u.present()) {
        cotangents.store(at, t, count, past, d.u);
      }
    }
    if (d.u.present() && !d.accumulate) cotangents.clear_padding(at, d.u);
    if (d.st.initial.present()) {
      drain_tile(m.carry + past - H, m.of_carry, inputs.columns(d.st.initial, n, 0, H), d.accumulate);
    }
  }

  for (index_t c = 0; c < across && d.taps; ++c) {
    Acc* d_taps = m.d_taps + c * m.of_taps;
    if (!cut.direct) {
      transform->inverse(d_taps);
      const vector scale(Acc(2) / static_cast<Acc>(transform->size()));
      for (index_t l = 0; l < taps; l += W) simd::store(d_taps + l, simd::load(d_taps + l) * scale);
    }
    sink(channel + c, static_cast<const Acc*>(d_taps));
  }
}

/// All of it. Room and tables are there.
template <class Acc, class T, class S, class G, class Kernel, class Sink>
void convolve_backward(const convolution_problem<T, S>& p, const convolution_cut& cut, const Kernel& kernel,
                       const convolution_gradients<T, G>& d, const Sink& sink, context& ctx) noexcept {
  const polynomial_transform<Acc>* transform =
      cut.direct ? nullptr : &ctx.cache<polynomial_transforms<Acc>>().at(cut.size);
  run_tasks(ctx, (p.channels() + cut.group - 1) / cut.group, convolution_backward_bytes<Acc>(p, cut, kernel),
            [&](index_t task, arena memory) noexcept {
              convolve_group_backward<Acc>(p, cut, kernel, d, sink, transform, task * cut.group, memory);
            });
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

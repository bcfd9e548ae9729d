// L5: gradients of fixed modes.
//
//   g_t = c̄ ȳ_t + ā g_{t+1},   a' = Σ_t g_t h̄_{t-1},   b' = Σ_t g_t u_t,   c' = Σ_t h̄_t ȳ_t,   u'_t = Re Σ_n b̄_n
//   g_{t,n}
//
// with ȳ the cotangent of y, g that of the state, from the last token to the first, bars on a, b, c, h conjugates, and
// a prime for the derivative of a real number: of complex z by its two parts, ∂/∂Re z + i ∂/∂Im z. A task owns a block
// of channels and walks through all sequences, so that sums have one order. It keeps the state before every tile of
// tokens and goes through the tiles from the last to the first, their states computed again. What a, b and c were
// discretised from is a chain rule in double at the end.
#pragma once

#include <ogive/engine/modes_task.hpp>
#include <ogive/engine/tasks.hpp>
#include <ogive/engine/verbs.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// How a tile of one channel is gone through backwards. Rows of modes are panels [units, unit].
template <class Acc>
struct modes_adjoint {
  index_t tokens;
  index_t width;
  const Acc* u;
  const Acc* d_y;
  const Acc* h;  // before the tile, numbers as a state has them
  Acc* g;        // after it, then before it, likewise
  Acc* sums;     // of u', [tokens] vectors
  Acc* d_modes;  // [units, 3, unit], added to: of a, of b, and Σ h ȳ
  Acc* kept;     // room: [tokens, block, unit]
};

template <bool Complex, class Acc, class Arch = simd::default_arch>
inline constexpr int modes_adjoint_block = sizeof(simd::batch<Acc, Arch>) == 64 ? (Complex ? 2 : 4) : (Complex ? 1 : 2);

template <bool Complex, int Units, class Arch, class Acc, class Modes>
OGIVE_INLINE void adjoint_modes_block(const modes_adjoint<Acc>& w, const Modes& modes, index_t v) noexcept {
  using vector = simd::batch<Acc, Arch>;
  using modes_type = mode_vector<Complex, Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>, step = unit<Complex, Acc, Arch>;
  const auto each = [](const auto& f) __attribute__((always_inline)) { unroll<Units>(f); };
  modes_type h[Units], g[Units], d_a[Units], d_b[Units], d_c[Units];
  Acc* const d_modes = w.d_modes + 3 * v * step;
  Acc* const kept = w.kept;
  each([&](auto i) __attribute__((always_inline)) {
    const index_t n = (v + i) * step;
    h[i] = load_interleaved<Complex, Arch>(w.h + n, w.width - n);
    g[i] = load_interleaved<Complex, Arch>(w.g + n, w.width - n);
    d_a[i] = load_mode<Complex, Arch>(d_modes + 3 * i * step);
    d_b[i] = load_mode<Complex, Arch>(d_modes + (3 * i + 1) * step);
    d_c[i] = load_mode<Complex, Arch>(d_modes + (3 * i + 2) * step);
  });
  const index_t tokens = w.tokens;
  const Acc *const u = w.u, *const d_y = w.d_y;
  for (index_t t = 0; t < tokens; ++t) {
    const vector input(u[t]);
    each([&](auto i) __attribute__((always_inline)) {
      store_mode(kept + (t * Units + i) * step, h[i]);
      h[i] = modes.template get<Arch>(v + i).next(h[i], input);
    });
  }
  for (index_t t = tokens; t-- > 0;) {
    const vector input(u[t]), d_out(d_y[t]);
    vector sum = v == 0 ? vector(Acc(0)) : simd::load<Arch>(w.sums + t * W);
    each([&](auto i) __attribute__((always_inline)) {
      const auto mode = modes.template get<Arch>(v + i);
      d_c[i] = mode_sum(d_c[i], scaled(h[i], d_out));
      g[i] = mode_sum(g[i], scaled(mode.c, d_out));
      d_b[i] = mode_sum(d_b[i], scaled(g[i], input));
      sum = inner(mode.b, g[i], sum);
      h[i] = load_mode<Complex, Arch>(kept + (t * Units + i) * step);
      d_a[i] = mode_fma(g[i], conjugate(h[i]), d_a[i]);
      g[i] = times(g[i], conjugate(mode.a));
    });
    simd::store(w.sums + t * W, sum);
  }
  each([&](auto i) __attribute__((always_inline)) {
    const index_t n = (v + i) * step;
    store_interleaved(w.g + n, g[i], w.width - n);
    store_mode(d_modes + 3 * i * step, d_a[i]);
    store_mode(d_modes + (3 * i + 1) * step, d_b[i]);
    store_mode(d_modes + (3 * i + 2) * step, d_c[i]);
  });
}

template <bool Complex, class Arch, class Acc, class Modes>
OGIVE_NOINLINE void adjoint_modes(const modes_adjoint<Acc>& w, const Modes& modes) noexcept {
  constexpr int block = modes_adjoint_block<Complex, Acc, Arch>;
  const index_t units = units_of<Complex, Acc, Arch>(w.width);
  index_t v = 0;
  for (; v + block <= units; v += block) adjoint_modes_block<Complex, block, Arch>(w, modes, v);
  for (; v < units; ++v) adjoint_modes_block<Complex, 1, Arch>(w, modes, v);
}

/// What rows of padding ask of the state that they read, `d_out` being the sum of their cotangents.
template <bool Complex, class Arch, class Acc, class Modes>
OGIVE_NOINLINE void adjoint_read(const modes_adjoint<Acc>& w, const Modes& modes, Acc d_out) noexcept {
  constexpr index_t step = unit<Complex, Acc, Arch>;
  const simd::batch<Acc, Arch> d(d_out);
  for (index_t v = 0; v * step < w.width; ++v) {
    const index_t n = v * step, count = w.width - n;
    const auto h = load_interleaved<Complex, Arch>(w.h + n, count);
    const auto g = load_interleaved<Complex, Arch>(w.g + n, count);
    Acc* d_c = w.d_modes + (3 * v + 2) * step;
    store_mode(d_c, mode_sum(load_mode<Complex, Arch>(d_c), scaled(h, d)));
    store_interleaved(w.g + n, mode_sum(g, scaled(modes.template get<Arch>(v).c, d)), count);
  }
}

/// Derivatives of a real number by A, B and dt from those by a and b.
template <class Wide>
struct mode_slopes {
  Wide A, B;
  double dt;
};

/// φ′(z) for φ(z) = (eᶻ − 1)/z: Σ zᵏ/(k! (k + 2)) where |z| ≤ 1, else (eᶻ − φ(z))/z.
template <class Wide>
Wide slope_of_hold(const Wide& z, const Wide& exponential, const Wide& phi) noexcept {
  if (std::abs(z) > 1) return (exponential - phi) / z;
  Wide sum(0), power(1);
  double factorial = 1;
  for (int k = 0; k < 20; ++k) {
    sum += power / (factorial * (k + 2));
    power *= z;
    factorial *= k + 1;
  }
  return sum;
}

template <class Wide>
mode_slopes<Wide> slopes_of_mode(discretisation rule, double alpha, double dt, const Wide& A, const Wide& B,
                                 const Wide& d_a, const Wide& d_b) noexcept {
  const auto conj = [](const Wide& x) noexcept {
    if constexpr (is_complex<Wide>) {
      return std::conj(x);
    } else {
      return x;
    }
  };
  const auto chain = [&](const Wide& a_by_A, const Wide& a_by_dt, const Wide& b_by_A, const Wide& b_by_B,
                         const Wide& b_by_dt) noexcept {
    return mode_slopes<Wide>{d_a * conj(a_by_A) + d_b * conj(b_by_A), d_b * conj(b_by_B),
                             std::real(d_a * conj(a_by_dt) + d_b * conj(b_by_dt))};
  };
  if (rule == discretisation::none) return {d_a, d_b, 0};
  const auto [a, of_one] = discretise<Wide>(rule, dt, A, Wide(1), alpha);
  if (rule == discretisation::mamba) return chain(dt * a, A * a, Wide(0), Wide(dt), B);
  if (rule == discretisation::zoh) {
    const Wide slope = slope_of_hold<Wide>(dt * A, a, of_one / dt);
    return chain(dt * a, A * a, dt * dt * slope * B, of_one, B * a);
  }
  const double weight = maps::detail::weight_of(rule, alpha);
  const Wide denominator = 1.0 - weight * dt * A, square = denominator * denominator;
  return chain(dt / square, A / square, weight * dt * dt * B / square, of_one, B / square);
}

/// The plan of a backward pass: shorter tiles, a task through all sequences.
template <class Acc, bool Complex>
modes_plan modes_backward_plan(const diagonal_extents& n, index_t sequences) noexcept {
  modes_plan p = modes_plan::of<Acc, Complex>(n, sequences);
  p.brief = false;
  p.groups = 1;
  p.sequences = sequences;
  p.tokens = std::clamp<index_t>(n.length, 1, 32);
  p.row = units_of<false, Acc>(p.tokens) * simd::width<Acc>;
  return p;
}

template <class Acc>
struct modes_backward_scratch {
  Acc* numbers;      // [3, units, unit]
  Acc* modes;        // [channels, units, 3, unit]
  Acc* d_modes;      // likewise
  Acc* h;            // [channels, width]
  Acc* g;            // likewise
  Acc* checkpoints;  // [tiles, channels, width]
  Acc* u;            // [channels, row]
  Acc* d_y;          // likewise
  Acc* d_u;          // likewise
  Acc* sums;         // [at_once, row, W]
  Acc* kept;
  double* d_D;  // [channels]

  static modes_backward_scratch carve(const modes_plan& p, index_t length, arena& memory) noexcept {
    constexpr index_t W = simd::width<Acc>;
    const index_t most = p.units * unit<true, Acc>, tiles = (length + p.tokens - 1) / p.tokens;
    modes_backward_scratch s{};
    s.numbers = memory.take<Acc>(3 * most);
    s.modes = memory.take<Acc>(p.channels * 3 * most);
    s.d_modes = memory.take<Acc>(p.channels * 3 * most);
    s.h = memory.take<Acc>(p.channels * p.width);
    s.g = memory.take<Acc>(p.channels * p.width);
    s.checkpoints = memory.take<Acc>(tiles * p.channels * p.width);
    s.u = memory.take<Acc>(p.channels * p.row);
    s.d_y = memory.take<Acc>(p.channels * p.row);
    s.d_u = memory.take<Acc>(p.channels * p.row);
    s.sums = memory.take<Acc>(modes_plan::at_once * p.row * W);
    s.kept = memory.take<Acc>(p.tokens * 4 * unit<true, Acc>);
    s.d_D = memory.take<double>(p.channels);
    return s;
  }
};

template <class Acc, class Op, class State, class StateGradient>
class modes_backward_task {
  using number = typename Op::number;
  using accum = typename Op::accum;
  using wide = wide_of<number>;
  using output = view<typename Op::scalar, 3>;
  using arch = simd::default_arch;
  using vector = simd::batch<Acc, arch>;
  static constexpr bool complex = is_complex<number>;
  static constexpr index_t W = simd::width<Acc, arch>;

 public:
  struct arguments {
    const Op& op;
    const State& st;
    const cotangent<output>& d_y;
    const StateGradient& d_st;
    const gradient<Op>& d;
    bool accumulate;
  };

  OGIVE_NOINLINE static void run(const arguments& of, const modes_plan& plan, index_t block, arena memory) noexcept {
    modes_backward_task task(of, plan, block, modes_backward_scratch<Acc>::carve(plan, of.op.u.extent(1), memory));
    task.begin();
    for (index_t s = 0; s < plan.sequences; ++s) task.sequence(s);
    task.finish();
  }

 private:
  modes_backward_task(const arguments& of, const modes_plan& plan, index_t block,
                      const modes_backward_scratch<Acc>& s) noexcept
      : my_(of),
        plan_(plan),
        s_(s),
        channel_(block * plan.channels),
        channels_(std::min(plan.channels, of.op.u.extent(2) - channel_)),
        mode_row_(3 * plan.units * unit<complex, Acc>),
        modes_{s.modes, mode_row_} {}

  void begin() noexcept {
    for (index_t d = 0; d < channels_; ++d) {
      pack_modes(my_.op, channel_ + d, plan_, s_.numbers, s_.modes + d * mode_row_);
      s_.d_D[d] = 0;
    }
    for (index_t i = 0; i < channels_ * mode_row_; ++i) s_.d_modes[i] = Acc(0);
  }

  void sequence(index_t s) noexcept {
    const modes_sequence at = modes_sequence::of(my_.op, s);
    const index_t from = my_.st.initial.present() ? core::checker::slot_of(my_.st.initial_slots, s) : -1;
    const index_t width = plan_.width, size = channels_ * width, T = plan_.tokens;
    for (index_t i = 0; i < size; ++i) s_.h[i] = s_.g[i] = Acc(0);
    for (index_t d = 0; d < channels_; ++d) {
      if (from >= 0) load_state(my_.st.initial, from, channel_ + d, s_.h + d * width);
      if (my_.d_st.final.present()) {
        load_state(view<const typename StateGradient::storage_type, 3>(my_.d_st.final), s, channel_ + d,
                   s_.g + d * width);
      }
    }
    const index_t tiles = (at.length + T - 1) / T;
    for (index_t i = 0; i < tiles; ++i) {
      for (index_t j = 0; j < size; ++j) s_.checkpoints[i * size + j] = s_.h[j];
      if (i + 1 < tiles) advance(at, i * T, std::clamp<index_t>(at.live - i * T, 0, T));
    }
    for (index_t i = tiles; i-- > 0;) tile(at, i * T, std::min(T, at.length - i * T), s_.checkpoints + i * size);
    for (index_t d = 0; my_.d_st.initial.present() && d < channels_; ++d) {
      add_to(my_.d_st.initial[s][channel_ + d], s_.g + d * width);
    }
  }

  /// The part of a tensor [B, L, D] that a tile covers, time along the rows.
  template <class X>
  view<X, 2> block(const view<X, 3>& x, const modes_sequence& at, index_t first, index_t count) const noexcept {
    return {x.pointer(at.batch, at.begin + first, channel_), {channels_, count}, {x.stride(2), x.stride(1)}};
  }

  void advance(const modes_sequence& at, index_t first, index_t live) noexcept {
    if (live <= 0) return;
    load_tile(block(my_.op.u, at, first, live), s_.u, plan_.row);
    for (index_t d = 0; d < channels_; d += modes_plan::at_once) {
      Acc* h = s_.h + d * plan_.width;
      sweep_modes<complex, arch>(modes_sweep<Acc>{.tokens = live,
                                                  .channels = std::min(modes_plan::at_once, channels_ - d),
                                                  .width = plan_.width,
                                                  .u = s_.u + d * plan_.row,
                                                  .u_row = plan_.row,
                                                  .u_step = 1,
                                                  .from = h,
                                                  .from_row = plan_.width,
                                                  .to = h,
                                                  .to_row = plan_.width,
                                                  .sums = s_.sums,
                                                  .sums_row = plan_.row,
                                                  .sums_step = 1},
                                 modes_.from(d));
    }
  }

  void tile(const modes_sequence& at, index_t first, index_t count, const Acc* h) noexcept {
    const index_t live = std::clamp<index_t>(at.live - first, 0, count), row = plan_.row;
    load_tile(block(my_.op.u, at, first, count), s_.u, row);
    if (my_.d_y.present()) {
      load_tile(block(my_.d_y, at, first, count), s_.d_y, row);
    } else {
      zero_tile(s_.d_y, row, 0, channels_, count);
    }
    for (index_t d = 0; d < channels_; ++d) channel(d, live, count, h + d * plan_.width);
    if (my_.d.u.present()) drain_tile(s_.d_u, row, block(my_.d.u, at, first, count), my_.accumulate);
  }

  void channel(index_t d, index_t live, index_t count, const Acc* h) noexcept {
    const index_t row = plan_.row;
    const Acc *u = s_.u + d * row, *d_y = s_.d_y + d * row;
    const auto modes = modes_.from(d);
    modes_adjoint<Acc> w{.tokens = live,
                         .width = plan_.width,
                         .u = u,
                         .d_y = d_y,
                         .h = h,
                         .g = s_.g + d * plan_.width,
                         .sums = s_.sums,
                         .d_modes = s_.d_modes + d * mode_row_,
                         .kept = s_.kept};
    if (live < count) {  // h after the last real token; forward of a tile is cheap beside its adjoint
      Acc* after = s_.h + d * plan_.width;
      for (index_t i = 0; i < plan_.width; ++i) after[i] = h[i];
      sweep_modes<complex, arch>(modes_sweep<Acc>{.tokens = live,
                                                  .channels = 1,
                                                  .width = plan_.width,
                                                  .u = u,
                                                  .u_row = row,
                                                  .u_step = 1,
                                                  .from = after,
                                                  .from_row = plan_.width,
                                                  .to = after,
                                                  .to_row = plan_.width,
                                                  .sums = s_.sums,
                                                  .sums_row = row,
                                                  .sums_step = 1},
                                 modes);
      Acc d_out(0);
      for (index_t t = live; t < count; ++t) d_out += d_y[t];
      w.h = after;
      adjoint_read<complex, arch>(w, modes, d_out);
      w.h = h;
    }
    for (index_t i = 0; plan_.width == 0 && i < live * W; ++i) s_.sums[i] = Acc(0);
    adjoint_modes<complex, arch>(w, modes);
    const bool skips = my_.op.D.present();
    const Acc skip = skips ? static_cast<Acc>(my_.op.D(channel_ + d)) : Acc(0);
    for (index_t t = 0; t < count; t += W) {
      vector lanes[vector::size];
      for (index_t i = 0; i < W; ++i)
        lanes[i] = t + i < live ? simd::load<arch>(s_.sums + (t + i) * W) : vector(Acc(0));
      simd::store(s_.d_u + d * row + t,
                  simd::fma(vector(skip), simd::load<arch>(d_y + t), simd::reduce_add_all(lanes)));
    }
    double d_D = 0;
    for (index_t t = 0; t < count; ++t) {
      if (d_y[t] != Acc(0)) d_D += static_cast<double>(d_y[t]) * static_cast<double>(u[t]);
    }
    s_.d_D[d] += d_D;
  }

  /// Numbers of a channel into a row of gradients, or added to them.
  template <class X>
  void add_to(const view<X, 1>& to, const Acc* numbers) const noexcept {
    for (index_t n = 0; n < to.extent(0); ++n) {
      if constexpr (is_complex<X>) {
        put(to(n), std::complex<double>(static_cast<double>(numbers[2 * n]), static_cast<double>(numbers[2 * n + 1])));
      } else {
        put(to(n), static_cast<double>(numbers[n]));
      }
    }
  }
  template <class X, class Wide>
  void put(X& to, const Wide& x) const noexcept {
    if constexpr (is_complex<X>) {
      using Real = typename X::value_type;
      const X rounded(static_cast<Real>(x.real()), static_cast<Real>(x.imag()));
      to = my_.accumulate ? to + rounded : rounded;
    } else {
      const auto rounded = static_cast<accum_t<X>>(x);
      to = static_cast<X>(my_.accumulate ? static_cast<accum_t<X>>(to) + rounded : rounded);
    }
  }

  /// The chain rule, and what was summed over all tokens, to where it belongs.
  void finish() noexcept {
    const gradient<Op>& d = my_.d;
    const Op& op = my_.op;
    const index_t row = plan_.units * unit<complex, Acc>;
    for (index_t c = 0; c < channels_; ++c) {
      for (index_t i = 0; i < 3 * plan_.units; ++i) {
        const Acc* panel = s_.d_modes + c * mode_row_ + i * unit<complex, Acc>;
        store_interleaved(s_.numbers + i % 3 * row + i / 3 * unit<complex, Acc>, load_mode<complex, arch>(panel),
                          unit<complex, Acc>);
      }
      const auto sum = [&](index_t which, index_t n) noexcept {
        const Acc* at = s_.numbers + which * row;
        if constexpr (complex) {
          return wide(static_cast<double>(at[2 * n]), static_cast<double>(at[2 * n + 1]));
        } else {
          return static_cast<double>(at[n]);
        }
      };
      const index_t channel = channel_ + c;
      const double dt = op.rule == discretisation::none ? 0 : static_cast<double>(op.dt(channel));
      double d_dt = 0;
      for (index_t n = 0; n < op.A.extent(1); ++n) {
        const auto slopes = slopes_of_mode<wide>(op.rule, op.alpha, dt, wide(op.A(channel, n)), wide(op.B(channel, n)),
                                                 sum(0, n), sum(1, n));
        d_dt += slopes.dt;
        if (d.A.present()) put(d.A(channel, n), slopes.A);
        if (d.B.present()) put(d.B(channel, n), slopes.B);
        if (!d.C.present()) continue;
        if constexpr (complex) {
          put(d.C(channel, n), 2.0 * std::conj(sum(2, n)));
        } else {
          put(d.C(channel, n), sum(2, n));
        }
      }
      if (d.dt.present()) put(d.dt(channel), d_dt);
      if (d.D.present()) put(d.D(channel), s_.d_D[c]);
    }
  }

  const arguments& my_;
  const modes_plan& plan_;
  modes_backward_scratch<Acc> s_;
  index_t channel_, channels_;
  index_t mode_row_;
  packed_modes<complex, Acc> modes_;
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

// Selective scan, the operator of Mamba-1: a diagonal state-space model whose step, input and output depend on the
// token.
//
//   d_t = softplus(dt_t + dt_bias)                              softplus and bias where asked for
//   h_t = exp(d_t A) ⊙ h_{t-1} + d_t B_t u_t                    h ∈ R^{D×N}, one row per channel
//   y_t = (C_t · h_t + D u_t) silu(z_t)                         D and z where given
//
// B is discretised by the Euler term d B, as the code of Mamba does on purpose; its paper writes zero-order hold, which
// is `rule = discretisation::zoh`: h_t = exp(d_t A) h_{t-1} + (exp(d_t A) − 1)/A B_t u_t. Complex A, B and C stand for
// conjugate pairs of which one is kept: y = 2 Re(C_t · h_t) + …. A d_t of 0 keeps the state, whatever A is: −∞ too.
// Gu & Dao, Mamba, arXiv:2312.00752.
#pragma once

#include <ogive/engine/diagonal.hpp>
#include <ogive/maps/discretisation.hpp>

#include <array>
#include <limits>
#include <numeric>

namespace ogive {
inline namespace OGIVE_ABI {

/// B or C [D, N] that is the same for every token, as the fields of selective_scan take it: one group per channel and
/// no step from token to token.
template <class X>
constexpr view<X, 4> constant_over_time(const view<X, 2>& x, index_t batch, index_t length) noexcept {
  return {x.data(), {batch, length, x.extent(0), x.extent(1)}, {0, 0, x.stride(0), x.stride(1)}};
}

/// u [B, L, D], dt [B, L, D], A [D, N] (negative real parts), B and C [B, L, G, N], each with a G of its own that
/// divides D: channel d reads group d div (D/G). y [B, L, D]; state [slots, D, N], complex where A is.
template <storage T, class AType = accum_t<T>>
struct selective_scan {
  using scalar = T;
  using number = AType;
  using accum = accum_t<T>;
  static constexpr bool complex = !std::is_same_v<AType, accum>;
  static_assert(!complex || std::is_same_v<AType, std::complex<accum>>,
                "A of a selective_scan<T> is accum_t<T> or std::complex<accum_t<T>>");
  using operand = std::conditional_t<complex, AType, T>;  ///< of B and C

  view<const T, 3> u{};
  view<const accum, 3> dt{};
  view<const AType, 2> A{};
  view<const operand, 4> B{}, C{};
  view<const accum, 1> D{};        ///< [D]
  view<const T, 3> z{};            ///< [B, L, D]: the output is multiplied by silu(z)
  view<const accum, 1> dt_bias{};  ///< [D], added before softplus
  bool dt_softplus = false;
  discretisation rule = discretisation::mamba;
  integers lengths{};  ///< per sequence; tokens from there on neither decay nor write
  integers offsets{};  ///< packed sequences, a state each

  /// Complex ones are ∂/∂Re + i ∂/∂Im. Those of B and C have no step along an axis, batch or time, over which they are
  /// to be summed; the field must then have none there either. An absent D or dt_bias is one of zeros.
  struct gradient {
    view<T, 3> u{};
    view<accum, 3> dt{};
    view<AType, 2> A{};
    view<operand, 4> B{}, C{};
    view<accum, 1> D{};
    view<T, 3> z{};
    view<accum, 1> dt_bias{};
  };

  static constexpr const char* name = "selective_scan";
  template <class S>
  using state_of = diagonal_state<S>;
  using default_state = diagonal_state<AType>;
  using default_state_gradient = diagonal_state_gradient<AType>;

  diagonal_extents extents() const noexcept {
    return {.batch = u.extent(0), .length = u.extent(1), .channels = u.extent(2), .states = A.extent(1)};
  }
  view<const AType, 3> rates() const noexcept {
    return {A.data(), {1, A.extent(0), A.extent(1)}, {0, A.stride(0), A.stride(1)}};
  }
  /// Neighbouring channels that read one group of B or C.
  index_t group_size(const view<const operand, 4>& x) const noexcept {
    return x.extent(2) > 0 ? u.extent(2) / x.extent(2) : 0;
  }
  index_t shared_run() const noexcept {
    return complex || rule == discretisation::zoh ? 0 : std::gcd(group_size(B), group_size(C));
  }

  void check_fields(core::checker& ask) const noexcept {
    const index_t b = u.extent(0), l = u.extent(1), d = u.extent(2), n = A.extent(1);
    ask.given("u", u).given("dt", dt).given("A", A).given("B", B).given("C", C);
    ask.extents("u", u, {-1, -1, -1}, "[B, L, D]");
    ask.extents("dt", dt, {b, l, d}, "[B, L, D] as u").extents("A", A, {d, -1}, "[D, N], D as u");
    ask.extents("B", B, {b, l, -1, n}, "[B, L, G, N], B and L as u, N as A");
    ask.extents("C", C, {b, l, -1, n}, "[B, L, G, N], B and L as u, N as A");
    ask.divides("G (groups of B)", B.extent(2), "D (channels of u)", d);
    ask.divides("G (groups of C)", C.extent(2), "D (channels of u)", d);
    ask.extents("D", D, {d}, "[D] as u").extents("z", z, {b, l, d}, "[B, L, D] as u");
    ask.extents("dt_bias", dt_bias, {d}, "[D] as u");
    if (ask && rule != discretisation::mamba && rule != discretisation::zoh) {
      ask.refuse("rule", status_code::value) << "must be mamba or zoh; discretise with another one by "
                                                "ogive::discretise and scan the result";
    }
  }
  template <class X, std::size_t Rank>
  void check_written(core::checker& ask, const char* field, const view<X, Rank>& x) const noexcept {
    ask.apart(field, x, "u", u).apart(field, x, "dt", dt).apart(field, x, "A", A).apart(field, x, "B", B);
    ask.apart(field, x, "C", C).apart(field, x, "D", D).apart(field, x, "z", z).apart(field, x, "dt_bias", dt_bias);
  }

  void check_gradients(core::checker& ask, const gradient& d) const noexcept {
    ask.extents("d.u", d.u, u.extents(), "[B, L, D] as u").extents("d.dt", d.dt, u.extents(), "[B, L, D] as u");
    ask.extents("d.A", d.A, A.extents(), "[D, N] as A");
    ask.extents("d.B", d.B, B.extents(), "[B, L, G, N] as B").extents("d.C", d.C, C.extents(), "[B, L, G, N] as C");
    ask.extents("d.D", d.D, {u.extent(2)}, "[D] as u").extents("d.z", d.z, u.extents(), "[B, L, D] as u");
    ask.extents("d.dt_bias", d.dt_bias, {u.extent(2)}, "[D] as u");
    if (ask && d.z.present() && !z.present()) ask.refuse("d.z") << "is asked for, but z is absent";
    ask.output("d.u", d.u).output("d.dt", d.dt).output("d.A", d.A).output("d.B", summed(d.B, B));
    ask.output("d.C", summed(d.C, C)).output("d.D", d.D).output("d.z", d.z).output("d.dt_bias", d.dt_bias);
  }
  /// Calls f(name, gradient) for all of them.
  template <class F>
  static void for_gradients(const gradient& d, const F& f) noexcept {
    f("d.u", d.u), f("d.dt", d.dt), f("d.A", d.A), f("d.B", d.B), f("d.C", d.C), f("d.D", d.D), f("d.z", d.z);
    f("d.dt_bias", d.dt_bias);
  }
  bool gradient_reads_output(const gradient& d) const noexcept { return d.z.present(); }

  /// δ = d and x = d u; B and C where their groups are shared.
  template <class Acc>
  void load(const diagonal_tile& at, const diagonal_panels<Acc>& to) const noexcept {
    using vector = simd::batch<Acc>;
    detail::load_tile(detail::tile_of(dt, at, at.live), to.delta, to.row, [&](index_t i) noexcept {
      const vector bias = channel_numbers<Acc>(dt_bias, at, i);
      return [this, bias](const vector& step, index_t) noexcept {
        return dt_softplus ? simd::softplus(step + bias) : step + bias;
      };
    });
    detail::load_tile(detail::tile_of(u, at, at.live), to.x, to.row, [&](index_t i) noexcept {
      return [d = to.delta + i, &to](const vector& v, index_t t) noexcept { return v * simd::load(d + t * to.row); };
    });
    detail::zero_tile(to.x, to.row, at.live, at.count, at.channels);
    detail::zero_tile(to.delta, to.row, at.live, at.count, at.channels);
    if constexpr (!complex) {
      if (!to.factored) return;
      detail::load_tile(group(B, at, at.live), to.B, to.shared_row);
      detail::zero_tile(to.B, to.shared_row, at.live, at.count, to.states);
      detail::load_tile(group(C, at, at.count), to.C, to.shared_row);
    }
  }

  diagonal_ahead ahead(const diagonal_tile& at, const view<T, 3>& y) const noexcept {
    diagonal_ahead next;
    next.follow(0, u, at);
    next.follow(1, dt, at);
    next.follow(2, y, at);
    next.follow(3, z, at);
    return next;
  }

  /// a = exp(d A); b = x B, or φ(d A) x B with φ(z) = (eᶻ − 1)/z for zero-order hold; c = C.
  template <class Acc>
  void expand(const diagonal_tile& at, const diagonal_panels<Acc>& to) const noexcept {
    constexpr index_t W = simd::width<Acc>;
    using vector = simd::batch<Acc>;
    const bool fixed = B.stride(1) == 0, hold = rule == discretisation::zoh;
    if (!fixed) spread(B, at, at.live, to, to.b);
    if (fixed && at.first) spread(B, at, 1, to, to.own);
    if (C.stride(1) != 0 || at.first) spread(C, at, at.count, to, to.c);
    const index_t step = to.planes * W;
    for (index_t t = 0; t < at.live; ++t) {
      const vector d = simd::load(to.delta + t * to.row);
      const vector x = simd::load(to.x + t * to.row);
      for (index_t n = 0; n < to.states; ++n) {
        const index_t place = (t * to.states + n) * step;
        const auto exponent = detail::scaled(detail::load_mode<complex>(to.A + n * step), d);
        auto input = detail::scaled(detail::load_mode<complex>(fixed ? to.own + n * step : to.b + place), x);
        const auto [a, phi] = exponential(exponent, hold);
        if (hold) input = detail::times(phi, input);
        detail::store_mode(to.a + place, a);
        detail::store_mode(to.b + place, input);
      }
    }
    for (index_t t = at.live; t < at.count; ++t) {
      for (index_t n = 0; n < to.states; ++n) {
        for (index_t part = 0; part < to.planes; ++part) {
          const index_t place = (t * to.states + n) * step + part * W;
          simd::store(to.a + place, vector(part == 0 ? Acc(1) : Acc(0)));
          simd::store(to.b + place, vector(Acc(0)));
        }
      }
    }
  }

  template <class Acc>
  void store(const diagonal_tile& at, const diagonal_panels<Acc>& from, const view<T, 3>& y) const noexcept {
    using vector = simd::batch<Acc>;
    if (D.present() || complex) {
      detail::load_tile(detail::tile_of(u, at, at.count), from.y, from.row, [&](index_t i) noexcept {
        const vector skip = channel_numbers<Acc>(D, at, i);
        return [skip, read = from.y + i, &from](const vector& v, index_t t) noexcept {
          const vector sum = simd::load(read + t * from.row);
          return simd::fma(skip, v, complex ? sum + sum : sum);
        };
      });
    }
    if (z.present()) {
      detail::load_tile(detail::tile_of(z, at, at.count), from.y, from.row, [&](index_t i) noexcept {
        return [read = from.y + i, &from](const vector& v, index_t t) noexcept {
          return simd::load(read + t * from.row) * simd::silu(v);
        };
      });
    }
    detail::store_tile(from.y, from.row, detail::tile_of(y, at, at.count));
  }

  /// The cotangent of C_t · h_t.
  template <class Acc>
  void cotangent(const diagonal_tile& at, const diagonal_panels<Acc>& from, const diagonal_adjoints<Acc>& to,
                 const view<const T, 3>& d_y) const noexcept {
    using vector = simd::batch<Acc>;
    if (!d_y.present()) return detail::zero_tile(to.d_y, from.row, 0, at.count, at.channels);
    const vector weight(complex ? Acc(2) : Acc(1));
    detail::load_tile(detail::tile_of(d_y, at, at.count), to.d_y, from.row, [&](index_t) noexcept {
      return [weight](const vector& v, index_t) noexcept { return v * weight; };
    });
    if (!z.present()) return;
    detail::load_tile(detail::tile_of(z, at, at.count), to.d_y, from.row, [&](index_t i) noexcept {
      return [d = to.d_y + i, &from](const vector& v, index_t t) noexcept {
        const vector out = simd::load(d + t * from.row);
        return simd::select(out == vector(Acc(0)), out, out * simd::silu(v));
      };
    });
  }

  /// From the cotangents of a, b and c to those of d (by way of a), x, A, B and C. Of zero-order hold, ∂(d φ(d A))/∂d =
  /// a goes to `own`, without the difference that the product rule would be.
  template <class Acc>
  void contract(const diagonal_tile& at, const diagonal_panels<Acc>& from,
                const diagonal_adjoints<Acc>& to) const noexcept {
    constexpr index_t W = simd::width<Acc>;
    using vector = simd::batch<Acc>;
    const bool fixed = B.stride(1) == 0, hold = rule == discretisation::zoh;
    if (!fixed) spread(B, at, at.live, from, to.again);
    const index_t step = from.planes * W;
    const auto load = [](const Acc* p) noexcept { return detail::load_mode<complex>(p); };
    for (const int i : {0, 1}) {
      if (to.shared[i].wanted) detail::zero_numbers(to.d_shared[i], at.count * row_of<Acc>(from, to, i));
    }
    for (index_t t = 0; t < at.live; ++t) {
      const vector d = simd::load(from.delta + t * from.row), x = simd::load(from.x + t * from.row);
      vector d_delta(Acc(0)), d_x(Acc(0)), own(Acc(0));
      for (index_t n = 0; n < from.states; ++n) {
        const index_t place = (t * from.states + n) * step;
        const auto rate = load(from.A + n * step), a = load(from.a + place), g = load(to.d_b + place);
        const auto input = load(fixed ? from.own + n * step : to.again + place);
        const auto q = detail::times(load(to.d_a + place), detail::conjugate(a));
        d_delta = detail::inner(q, detail::slope_of_step(rate), d_delta);
        auto d_rate = q, d_input = detail::scaled(g, x);
        auto weighted = input;
        if (hold) {
          const auto exponent = detail::scaled(rate, d);
          const auto phi = exponential(exponent, true).phi;
          weighted = detail::times(phi, input);
          own = detail::inner(g, detail::times(a, input), own);
          d_rate =
              detail::mode_fma(d_input, detail::conjugate(detail::times(slope_of_phi(exponent, a, phi), input)), q);
          d_input = detail::times(d_input, detail::conjugate(phi));
        }
        d_x = detail::inner(g, weighted, d_x);
        detail::store_mode(to.d_A + n * step, detail::mode_fma(d_rate, real_mode(d), load(to.d_A + n * step)));
        add_to_group(at, from, to, 0, t, n, d_input);
      }
      simd::store(to.d_delta + t * from.row, d_delta);
      simd::store(to.d_x + t * from.row, d_x);
      simd::store(to.own + t * from.row, own);
    }
    for (index_t t = 0; t < at.count; ++t) {
      for (index_t n = 0; n < from.states; ++n) {
        add_to_group(at, from, to, 1, t, n, load(to.d_c + (t * from.states + n) * step));
      }
    }
  }

  /// What belongs to single tokens, and the sums for D and dt_bias.
  template <class Acc>
  void store_gradients(const diagonal_tile& at, const diagonal_panels<Acc>& from, const diagonal_adjoints<Acc>& to,
                       const view<const T, 3>& d_y, const gradient& d, bool accumulate) const noexcept {
    using vector = simd::batch<Acc>;
    const index_t row = from.row;
    const Acc* by_step = rule == discretisation::zoh ? to.own : to.d_x;
    detail::load_tile(detail::tile_of(u, at, at.count), to.spare, row);
    for (index_t i = 0; i < at.channels; i += simd::width<Acc>) {
      const vector skip = channel_numbers<Acc>(D, at, i), half(complex ? Acc(0.5) : Acc(1));
      vector d_skip(Acc(0)), d_bias(Acc(0));
      for (index_t t = 0; t < at.count; ++t) {
        const index_t place = t * row + i;
        const vector in = simd::load(to.spare + place), out = simd::load(to.d_y + place) * half;
        d_skip = simd::select(out == vector(Acc(0)), d_skip, simd::fma(out, in, d_skip));
        vector d_in = skip * out, d_step(Acc(0));
        if (t < at.live) {
          const vector step = simd::load(from.delta + place);
          d_in = simd::fma(simd::load(to.d_x + place), step, d_in);
          d_step = simd::fma(simd::load(by_step + place), in, simd::load(to.d_delta + place));
          if (dt_softplus) d_step = -simd::expm1(-step) * d_step;  // its slope is 1 − exp(−softplus)
          d_bias = d_bias + d_step;
        }
        const vector sum = simd::load(from.y + place);
        simd::store(from.y + place, simd::fma(skip, in, complex ? sum + sum : sum));
        simd::store(to.d_x + place, d_in);
        simd::store(to.d_delta + place, d_step);
      }
      simd::store(to.sums + i, simd::load(to.sums + i) + d_skip);
      simd::store(to.sums + row + i, simd::load(to.sums + row + i) + d_bias);
    }
    if (d.u.present()) detail::drain_tile(to.d_x, row, detail::tile_of(d.u, at, at.count), accumulate);
    if (d.dt.present()) detail::drain_tile(to.d_delta, row, detail::tile_of(d.dt, at, at.count), accumulate);
    if (!d.z.present()) return;
    if (!d_y.present()) detail::zero_tile(from.y, row, 0, at.count, at.channels);
    const auto times = [&](const view<const T, 3>& x, const auto& f) noexcept {
      detail::load_tile(detail::tile_of(x, at, at.count), from.y, row, [&](index_t i) noexcept {
        return
            [&f, y = from.y + i, row](const vector& v, index_t t) noexcept { return simd::load(y + t * row) * f(v); };
      });
    };
    if (d_y.present()) times(d_y, [](const vector& v) noexcept { return v; });
    times(z, [](const vector& v) noexcept {
      const vector s = simd::sigmoid(v);
      return simd::fma(detail::bounded(v) * s, vector(Acc(1)) - s, s);
    });
    detail::drain_tile(from.y, row, detail::tile_of(d.z, at, at.count), accumulate);
  }

  template <class Acc>
  void finish_gradients(const diagonal_tile& at, const diagonal_panels<Acc>& from, const diagonal_adjoints<Acc>& to,
                        const gradient& d, bool accumulate) const noexcept {
    const auto drain = [&](Acc* sums, const view<accum, 1>& x) noexcept {
      if (!x.present()) return;
      detail::drain_tile(sums, from.row, view<accum, 2>(x.pointer(at.channel), {1, at.channels}, {0, x.stride(0)}),
                         accumulate);
    };
    drain(to.sums, d.D);
    drain(to.sums + from.row, d.dt_bias);
  }

 private:
  /// B or C of the group that the tile's channels share.
  view<const operand, 2> group(const view<const operand, 4>& x, const diagonal_tile& at, index_t count) const noexcept {
    return {
        x.pointer(at.batch, at.token, at.channel / group_size(x), 0), {count, x.extent(3)}, {x.stride(1), x.stride(3)}};
  }
  template <class Acc>
  static simd::batch<Acc> channel_numbers(const view<const accum, 1>& x, const diagonal_tile& at, index_t i) noexcept {
    if (!x.present()) return simd::batch<Acc>(Acc(0));
    return simd::load_strided<Acc, simd::default_arch>(x.pointer(at.channel + i), x.stride(0), at.channels - i);
  }

  template <class Acc>
  static Acc part_of(const operand& x, index_t part) noexcept {
    if constexpr (complex) {
      return static_cast<Acc>(part == 0 ? x.real() : x.imag());
    } else {
      return static_cast<Acc>(x);
    }
  }

  /// panel [tokens, states, planes, W]: what every channel of the tile reads of B or C.
  template <class Acc>
  void spread(const view<const operand, 4>& x, const diagonal_tile& at, index_t tokens, const diagonal_panels<Acc>& to,
              Acc* panel) const noexcept {
    constexpr index_t W = simd::width<Acc>;
    const index_t first = at.channel / group_size(x);
    const bool shared = first == (at.channel + at.channels - 1) / group_size(x);
    for (index_t t = 0; t < tokens; ++t) {
      const operand* from = x.pointer(at.batch, at.token + t, 0, 0);
      for (index_t n = 0; n < to.states; ++n, from += x.stride(3)) {
        for (index_t part = 0; part < to.planes; ++part, panel += W) {
          if (shared) {
            simd::store(panel, simd::batch<Acc>(part_of<Acc>(from[first * x.stride(2)], part)));
            continue;
          }
          for (index_t i = 0; i < W; ++i) {
            const index_t group = (at.channel + std::min(i, at.channels - 1)) / group_size(x);
            panel[i] = part_of<Acc>(from[group * x.stride(2)], part);
          }
        }
      }
    }
  }

  /// One row of B's or C's gradients in a tile.
  template <class Acc>
  static index_t row_of(const diagonal_panels<Acc>& from, const diagonal_adjoints<Acc>& to, int which) noexcept {
    return to.shared[which].groups * from.planes * from.shared_row;
  }

  /// The lanes of a mode's cotangent, added to the groups that its channels read.
  template <class Acc, class Mode>
  static void add_to_group(const diagonal_tile& at, const diagonal_panels<Acc>& from, const diagonal_adjoints<Acc>& to,
                           int which, index_t t, index_t n, const Mode& x) noexcept {
    constexpr index_t W = simd::width<Acc>;
    const detail::diagonal_shared_sum& sum = to.shared[which];
    if (!sum.wanted) return;
    alignas(64) Acc lanes[2 * W];
    detail::store_mode(lanes, x);
    for (index_t part = 0; part < from.planes; ++part) {
      Acc* row = to.d_shared[which] + t * row_of<Acc>(from, to, which) + part * from.shared_row + n;
      if (sum.groups == 1) {
        *row = simd::reduce_add(
            simd::select(simd::first_n<Acc>(at.channels), simd::load(lanes + part * W), simd::batch<Acc>(Acc(0))));
        continue;
      }
      for (index_t i = 0; i < at.channels; ++i) {
        row[i / sum.run * from.planes * from.shared_row] += lanes[part * W + i];
      }
    }
  }

  template <class Acc>
  static auto real_mode(const simd::batch<Acc>& x) noexcept {
    if constexpr (complex) {
      return detail::complex_vector<Acc>{x, simd::batch<Acc>(Acc(0))};
    } else {
      return x;
    }
  }

  /// eᶻ, and φ(z) = (eᶻ − 1)/z if it is held.
  template <class Mode>
  struct exponential_pair {
    Mode value, phi;
  };
  template <class Acc>
  static exponential_pair<simd::batch<Acc>> exponential(const simd::batch<Acc>& e, bool hold) noexcept {
    using vector = simd::batch<Acc>;
    const vector one(Acc(1)), value = simd::exp(e);
    if (!hold) return {value, one};
    return {value, simd::select(e == vector(Acc(0)), one, simd::expm1(e) / e)};
  }
  /// eᶻ − 1 = expm1(x) cos y − 2 sin²(y/2) + i eˣ sin y for z = x + iy.
  template <class Acc>
  static exponential_pair<detail::complex_vector<Acc>> exponential(const detail::complex_vector<Acc>& e,
                                                                   bool hold) noexcept {
    using vector = simd::batch<Acc>;
    const vector zero(Acc(0)), one(Acc(1));
    vector s, c;
    simd::sincos(e.im * vector(Acc(0.5)), s, c);
    const vector radius = simd::exp(e.re);
    const vector away = (s + s) * s;  // 1 − cos y
    const detail::complex_vector<Acc> value{radius * (one - away), radius * ((s + s) * c)};
    if (!hold) return {value, {one, zero}};
    const vector less_one = simd::fnma(away, one, simd::expm1(e.re) * (one - away));
    const vector re = detail::bounded(e.re), square = simd::fma(re, re, e.im * e.im);
    const auto apart = square > vector(std::numeric_limits<Acc>::min() / std::numeric_limits<Acc>::epsilon());
    return {value,
            {simd::select(apart, simd::fma(less_one, re, value.im * e.im) / square, one),
             simd::select(apart, simd::fnma(less_one, e.im, value.im * re) / square, zero)}};
  }

  /// φ′(z) = (eᶻ − φ(z))/z = Σ zᵏ / (k! (k + 2)), the sum where |z| ≤ 1.
  template <class Acc>
  static constexpr auto slope_series() noexcept {
    std::array<Acc, sizeof(Acc) == 4 ? 12 : 20> terms{};
    double factorial = 1;
    for (std::size_t k = 0; k < terms.size(); ++k) {
      terms[k] = static_cast<Acc>(1 / (factorial * static_cast<double>(k + 2)));
      factorial *= static_cast<double>(k + 1);
    }
    return terms;
  }
  template <class Acc>
  static simd::batch<Acc> slope_of_phi(const simd::batch<Acc>& e, const simd::batch<Acc>& value,
                                       const simd::batch<Acc>& phi) noexcept {
    using vector = simd::batch<Acc>;
    constexpr auto terms = slope_series<Acc>();
    vector near(terms.back());
    for (std::size_t k = terms.size() - 1; k-- > 0;) near = simd::fma(near, e, vector(terms[k]));
    return simd::select(simd::abs(e) <= vector(Acc(1)), near, (value - phi) / e);
  }
  template <class Acc>
  static detail::complex_vector<Acc> slope_of_phi(const detail::complex_vector<Acc>& e,
                                                  const detail::complex_vector<Acc>& value,
                                                  const detail::complex_vector<Acc>& phi) noexcept {
    using vector = simd::batch<Acc>;
    using mode = detail::complex_vector<Acc>;
    constexpr auto terms = slope_series<Acc>();
    mode near = real_mode(vector(terms.back()));
    for (std::size_t k = terms.size() - 1; k-- > 0;) near = detail::mode_fma(near, e, real_mode(vector(terms[k])));
    const vector re = detail::bounded(e.re), square = simd::fma(re, re, e.im * e.im);
    const mode far = detail::times(mode{value.re - phi.re, value.im - phi.im}, mode{re, -e.im});
    const auto small = square <= vector(Acc(1));
    return {simd::select(small, near.re, far.re / square), simd::select(small, near.im, far.im / square)};
  }

  /// The gradient of an operand as the elements that are written: one along an axis that is summed over.
  static view<operand, 4> summed(view<operand, 4> d, const view<const operand, 4>& x) noexcept {
    for (const std::size_t axis : {std::size_t{0}, std::size_t{1}}) {
      if (d.present() && d.stride(axis) == 0 && x.stride(axis) == 0 && x.extent(axis) > 1) d = d.slice(axis, 0, 1);
    }
    return d;
  }
};

}  // namespace OGIVE_ABI
}  // namespace ogive

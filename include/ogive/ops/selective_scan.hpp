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

  static constexpr const char* name = "selective_scan";
  template <class S>
  using state_of = diagonal_state<S>;
  using default_state = diagonal_state<AType>;

  diagonal_extents extents() const noexcept {
    return {.batch = u.extent(0), .length = u.extent(1), .channels = u.extent(2), .states = A.extent(1)};
  }
  view<const AType, 3> rates() const noexcept {
    return {A.data(), {1, A.extent(0), A.extent(1)}, {0, A.stride(0), A.stride(1)}};
  }
  index_t shared_run() const noexcept { return complex || rule == discretisation::zoh ? 0 : std::gcd(run(B), run(C)); }

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
  template <class X>
  void check_written(core::checker& ask, const char* field, const view<X, 3>& x) const noexcept {
    ask.apart(field, x, "u", u).apart(field, x, "dt", dt).apart(field, x, "A", A).apart(field, x, "B", B);
    ask.apart(field, x, "C", C).apart(field, x, "D", D).apart(field, x, "z", z).apart(field, x, "dt_bias", dt_bias);
  }

  /// δ = d and x = d u; B and C where their groups are shared.
  template <class Acc>
  void load(const diagonal_tile& at, const diagonal_panels<Acc>& to) const noexcept {
    using vector = simd::batch<Acc>;
    detail::load_tile(block(dt, at, at.live), to.delta, to.row, [&](index_t i) noexcept {
      const vector bias = channel_numbers<Acc>(dt_bias, at, i);
      return [this, bias](const vector& step, index_t) noexcept {
        return dt_softplus ? simd::softplus(step + bias) : step + bias;
      };
    });
    detail::load_tile(block(u, at, at.live), to.x, to.row, [&](index_t i) noexcept {
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
    const bool fixed = B.stride(1) == 0;
    if (!fixed) spread(B, at, at.live, to, to.b);
    if (fixed && at.position == 0) spread(B, at, 1, to, to.own);
    if (C.stride(1) != 0 || at.position == 0) spread(C, at, at.count, to, to.c);
    const index_t step = to.planes * W;
    for (index_t t = 0; t < at.live; ++t) {
      const vector d = simd::load(to.delta + t * to.row);
      const vector x = simd::load(to.x + t * to.row);
      for (index_t n = 0; n < to.states; ++n) {
        const Acc* rate = to.A + n * step;
        Acc* a = to.a + (t * to.states + n) * step;
        Acc* b = to.b + (t * to.states + n) * step;
        const Acc* input = fixed ? to.own + n * step : b;
        if constexpr (complex) {
          expand_pair(d, x, rate, input, a, b);
        } else {
          const vector exponent = d * simd::load(rate);
          vector weight = x;
          if (rule == discretisation::zoh) {
            const vector phi = simd::expm1(exponent) / exponent;
            weight = x * simd::select(exponent == vector(Acc(0)), vector(Acc(1)), phi);
          }
          simd::store(a, simd::exp(exponent));
          simd::store(b, weight * simd::load(input));
        }
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
      detail::load_tile(block(u, at, at.count), from.y, from.row, [&](index_t i) noexcept {
        const vector skip = channel_numbers<Acc>(D, at, i);
        return [skip, read = from.y + i, &from](const vector& v, index_t t) noexcept {
          const vector sum = simd::load(read + t * from.row);
          return simd::fma(skip, v, complex ? sum + sum : sum);
        };
      });
    }
    if (z.present()) {
      detail::load_tile(block(z, at, at.count), from.y, from.row, [&](index_t i) noexcept {
        return [read = from.y + i, &from](const vector& v, index_t t) noexcept {
          return simd::load(read + t * from.row) * simd::silu(v);
        };
      });
    }
    detail::store_tile(from.y, from.row, block(y, at, at.count));
  }

 private:
  /// Neighbouring channels that read one group.
  index_t run(const view<const operand, 4>& x) const noexcept {
    return x.extent(2) > 0 ? u.extent(2) / x.extent(2) : 0;
  }

  /// The part of a tensor [B, L, D] that a tile covers.
  template <class X>
  static view<X, 2> block(const view<X, 3>& x, const diagonal_tile& at, index_t count) noexcept {
    return {x.pointer(at.batch, at.token, at.channel), {count, at.channels}, {x.stride(1), x.stride(2)}};
  }
  /// B or C of the group that the tile's channels share.
  view<const operand, 2> group(const view<const operand, 4>& x, const diagonal_tile& at, index_t count) const noexcept {
    return {x.pointer(at.batch, at.token, at.channel / run(x), 0), {count, x.extent(3)}, {x.stride(1), x.stride(3)}};
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
    const index_t first = at.channel / run(x);
    const bool shared = first == (at.channel + at.channels - 1) / run(x);
    for (index_t t = 0; t < tokens; ++t) {
      for (index_t n = 0; n < to.states; ++n) {
        const operand* from = x.pointer(at.batch, at.token + t, 0, n);
        for (index_t part = 0; part < to.planes; ++part, panel += W) {
          if (shared) {
            simd::store(panel, simd::batch<Acc>(part_of<Acc>(from[first * x.stride(2)], part)));
            continue;
          }
          for (index_t i = 0; i < W; ++i) {
            const index_t group = (at.channel + std::min(i, at.channels - 1)) / run(x);
            panel[i] = part_of<Acc>(from[group * x.stride(2)], part);
          }
        }
      }
    }
  }

  /// One complex mode of W channels. eᶻ − 1 = expm1(x) cos y − 2 sin²(y/2) + i eˣ sin y for z = x + iy.
  template <class Acc>
  void expand_pair(const simd::batch<Acc>& d, const simd::batch<Acc>& x, const Acc* rate, const Acc* input, Acc* a,
                   Acc* b) const noexcept {
    constexpr index_t W = simd::width<Acc>;
    using vector = simd::batch<Acc>;
    const vector one(Acc(1));
    const vector z_re = d * simd::load(rate);
    const vector z_im = d * simd::load(rate + W);
    const vector in_re = x * simd::load(input);
    const vector in_im = x * simd::load(input + W);
    vector s, c;
    simd::sincos(z_im * vector(Acc(0.5)), s, c);
    const vector radius = simd::exp(z_re);
    const vector sine = (s + s) * c;
    const vector away = (s + s) * s;  // 1 − cos y
    const vector a_im = radius * sine;
    simd::store(a, radius * (one - away));
    simd::store(a + W, a_im);
    if (rule != discretisation::zoh) {
      simd::store(b, in_re);
      simd::store(b + W, in_im);
      return;
    }
    const vector w_re = simd::fnma(away, one, simd::expm1(z_re) * (one - away));
    const vector re = detail::bounded(z_re);
    const vector square = simd::fma(re, re, z_im * z_im);
    const auto apart = square > vector(std::numeric_limits<Acc>::min() / std::numeric_limits<Acc>::epsilon());
    const vector phi_re = simd::select(apart, simd::fma(w_re, re, a_im * z_im) / square, one);
    const vector phi_im = simd::select(apart, simd::fnma(w_re, z_im, a_im * re) / square, vector(Acc(0)));
    simd::store(b, simd::fnma(phi_im, in_im, phi_re * in_re));
    simd::store(b + W, simd::fma(phi_im, in_re, phi_re * in_im));
  }
};

}  // namespace OGIVE_ABI
}  // namespace ogive

// State-space duality (SSD), the operator of Mamba-2: a scalar decay per head and token.
//
//   d_t = clamp(softplus(dt_t + dt_bias), dt_min, dt_max)        softplus and bias where asked for
//   S_t = exp(d_t A) S_{t-1} + B_t (d_t x_t)ᵀ                    S ∈ R^{N×P}
//   y_t = (S_tᵀ C_t + D ⊙ x_t) ⊙ silu(z_t)                       D and z where given
//
// In the letters of attention: q = C, k = B, v = d x, log decay g = d A; as one matrix, y = ((C Bᵀ) ∘ L) (d x) with
// L_ij = Π_{j<m≤i} exp(d_m A). B is discretised as d B (the Euler term), as Mamba does on purpose; exp is exact for A.
// Dao & Gu, Transformers are SSMs, arXiv:2405.21060.
#pragma once

#include <ogive/engine/matrix_backward.hpp>
#include <ogive/engine/unit_rows.hpp>

#include <limits>

namespace ogive {
inline namespace OGIVE_ABI {

/// x [B, L, H, P], dt [B, L, H], A [H] (negative), B and C [B, L, G, N] with G dividing H; y [B, L, H, P].
/// State [slots, H, N, P]; a pool kept as Mamba keeps it, [slots, H, P, N], is `from_v_first(pool)`.
template <storage T>
struct ssd {
  using scalar = T;
  using accum = accum_t<T>;

  view<const T, 4> x{};
  view<const accum, 3> dt{};
  view<const accum, 1> A{};
  view<const T, 4> B{}, C{};
  view<const accum, 2> D{};        ///< [H, P], or [H, 1] for one skip per head
  view<const T, 4> z{};            ///< [B, L, H, P]: the output is multiplied by silu(z)
  view<const accum, 1> dt_bias{};  ///< [H], added before softplus
  bool dt_softplus = false;
  accum dt_min = 0;  ///< the limits apply last
  accum dt_max = std::numeric_limits<accum>::infinity();
  std::optional<accum> qk_l2norm{};  ///< ε: C and B, its q and k, are first divided by √(Σx² + ε)
  integers lengths{};                ///< per sequence; tokens from there on neither decay nor write
  integers offsets{};                ///< packed sequences, a state each
  heads head_map = heads::consecutive;

  struct gradient {
    view<T, 4> x{};
    view<accum, 3> dt{};
    view<accum, 1> A{};
    view<T, 4> B{}, C{};
    view<accum, 2> D{};
    view<T, 4> z{};
    view<accum, 1> dt_bias{};
  };

  static constexpr const char* name = "ssd";
  static constexpr detail::axis_letters letters{"[B, L, H, P]", "[slots, H, N, P]"};
  static constexpr decay decays = decay::scalar;
  static constexpr write writes = write::additive;
  static constexpr read reads = read::after;
  template <storage S>
  using state_of = state<S>;
  using default_state = state<accum>;
  using default_state_gradient = state_gradient<accum>;

  matrix_extents extents() const noexcept {
    return {.batch = x.extent(0),
            .length = x.extent(1),
            .query_heads = C.extent(2),
            .key_heads = B.extent(2),
            .heads = x.extent(2),
            .key_dim = B.extent(3),
            .value_dim = x.extent(3)};
  }

  void check_fields(core::checker& ask) const noexcept {
    const index_t b = x.extent(0), l = x.extent(1), h = x.extent(2), p = x.extent(3);
    ask.given("x", x).given("dt", dt).given("A", A).given("B", B).given("C", C);
    ask.extents("dt", dt, {b, l, h}, "[B, L, H] as x").extents("A", A, {h}, "[H] as x");
    ask.extents("B", B, {b, l, -1, -1}, "[B, L, G, N], B and L as x");
    ask.extents("C", C, B.extents(), "[B, L, G, N] as B");
    ask.divides("G (heads of B and C)", B.extent(2), "H (heads of x)", h);
    ask.extents("D", D, {h, D.extent(1) == 1 ? 1 : p}, "[H, P] or [H, 1]");
    ask.extents("z", z, x.extents(), "[B, L, H, P] as x").extents("dt_bias", dt_bias, {h}, "[H] as x");
    if (qk_l2norm) ask.not_negative("qk_l2norm", *qk_l2norm);
    if (ask && !(dt_min <= dt_max)) ask.refuse("dt_min", status_code::value) << "must not be above dt_max";
  }
  template <class X, std::size_t Rank>
  void check_written(core::checker& ask, const char* field, const view<X, Rank>& w) const noexcept {
    ask.apart(field, w, "x", x).apart(field, w, "B", B).apart(field, w, "C", C).apart(field, w, "z", z);
    ask.apart(field, w, "dt", dt).apart(field, w, "A", A).apart(field, w, "D", D).apart(field, w, "dt_bias", dt_bias);
  }

  /// Rows to ask for early.
  void ahead(operand which, const tokens& at, detail::lines_ahead& lines) const noexcept {
    lines.add(detail::ahead_of(which == operand::query ? C : which == operand::key ? B : x, at));
  }

  /// The operator on `count` columns of P.
  ssd columns(index_t first, index_t count) const noexcept {
    ssd part = *this;
    part.x = x.slice(3, first, count);
    if (z.present()) part.z = z.slice(3, first, count);
    if (D.present() && D.extent(1) > 1) part.D = D.slice(1, first, count);
    return part;
  }
  /// The gradients that belong to them, of those that `adjoint_store` writes.
  static gradient columns(gradient d, index_t first, index_t count) noexcept {
    if (d.z.present()) d.z = d.z.slice(3, first, count);
    return d;
  }

  template <class Acc>
  void load_q(const tokens& at, Acc* q, index_t stride, Acc*) const noexcept {
    detail::load_rows(detail::rows_of(C, at, at.count), q, stride);
    detail::unit_rows(qk_l2norm, Acc(1), at.count, C.extent(3), q, stride);
  }
  template <class Acc>
  void load_k(const tokens& at, Acc* k, index_t stride, Acc*) const noexcept {
    detail::load_tokens(B, at, k, stride);
    detail::unit_rows(qk_l2norm, Acc(1), at.live, B.extent(3), k, stride);
  }
  /// v = d x and g = d A, where a step of 0 decays nothing, whatever A is.
  template <class Acc>
  void load_v(const tokens& at, Acc* v, index_t stride, Acc* g, Acc* room) const noexcept {
    detail::load_tokens(x, at, v, stride);
    load_steps(at, room, static_cast<Acc*>(nullptr));
    const Acc a = rate<Acc>(at.head);
    for (index_t i = 0; i < at.live; ++i) g[i] = room[i] * a;
    detail::change_rows(v, stride, at.live, x.extent(3),
                        [&](index_t i, index_t, auto value) noexcept { return decltype(value)(room[i]) * value; });
    for (index_t i = at.live; i < at.count; ++i) g[i] = Acc(0);
  }
  template <class Acc>
  void store(const tokens& at, Acc* o, index_t stride, const Acc*, Acc* room, const view<T, 4>& y) const noexcept {
    const index_t p = x.extent(3), room_stride = detail::padded<Acc>(p);
    if (D.present()) {
      detail::load_rows(detail::rows_of(x, at, at.count), room, room_stride);
      detail::change_rows(o, stride, at.count, p, [&](index_t i, index_t j, auto out) noexcept {
        return simd::fma(skip<Acc>(at.head, j), simd::load(room + i * room_stride + j), out);
      });
    }
    if (z.present()) {
      detail::load_rows(detail::rows_of(z, at, at.count), room, room_stride);
      detail::change_rows(o, stride, at.count, p, [&](index_t i, index_t j, auto out) noexcept {
        return out * simd::silu(simd::load(room + i * room_stride + j));
      });
    }
    detail::store_tokens(o, stride, y, at);
  }

  /// Calls f(name, field, its gradient) for all of them.
  template <class F>
  void for_gradients(const gradient& d, const F& f) const noexcept {
    f("x", x, d.x), f("dt", dt, d.dt), f("A", A, d.A), f("B", B, d.B), f("C", C, d.C), f("D", D, d.D), f("z", z, d.z);
    f("dt_bias", dt_bias, d.dt_bias);
  }
  /// Calls f(gradient, field, its axis of heads) for all gradients that are sums over tokens.
  template <class F>
  static void for_sums(const gradient&, const F& f) noexcept {
    f(&gradient::A, &ssd::A, 0), f(&gradient::D, &ssd::D, 0), f(&gradient::dt_bias, &ssd::dt_bias, 0);
  }
  bool wants_outputs(const gradient& d) const noexcept { return d.z.present(); }
  bool wants_decays(const gradient& d) const noexcept { return d.A.present() || d.dt.present() || d.dt_bias.present(); }
  static wanted_rows wants_rows(const gradient& d) noexcept {
    return {d.C.present(), d.B.present(), d.x.present() || d.dt.present() || d.dt_bias.present()};
  }

  template <class Acc>
  void adjoint_q(const tokens& at, Acc* panel, index_t stride, Acc* room, const gradient& d,
                 bool accumulate) const noexcept {
    if (!d.C.present()) return;
    detail::pull_unit_rows(qk_l2norm, Acc(1), C, at, panel, stride, room);
    detail::store_gradient(panel, stride, d.C, at, accumulate, room);
  }
  template <class Acc>
  void adjoint_k(const tokens& at, Acc* panel, index_t stride, Acc* room, const gradient& d,
                 bool accumulate) const noexcept {
    if (!d.B.present()) return;
    detail::pull_unit_rows(qk_l2norm, Acc(1), B, at, panel, stride, room);
    detail::store_gradient(panel, stride, d.B, at, accumulate, room);
  }
  /// y = (o + D x) silu(z).
  template <class Acc>
  void adjoint_store(tokens at, const view<const T, 4>& d_y, const Acc* o, const Acc*, Acc* d_o, index_t stride, Acc*,
                     Acc* room, const gradient& d, bool accumulate) const noexcept {
    at.live = at.count;
    detail::load_rows(detail::rows_of(d_y, at, at.count), d_o, stride);
    if (!z.present()) return;
    Acc* gate = room;
    Acc* skipped = room + at.count * stride;
    detail::load_rows(detail::rows_of(z, at, at.count), gate, stride);
    if (D.present()) detail::load_rows(detail::rows_of(x, at, at.count), skipped, stride);
    detail::change_rows(d_o, stride, at.count, x.extent(3), [&](index_t i, index_t j, auto dy) noexcept {
      using vector = decltype(dy);
      const index_t to = i * stride + j;
      const vector z_row = simd::load(gate + to), open = simd::sigmoid(z_row);
      const auto unasked = dy == vector(Acc(0));  // of padding, which may hold anything
      if (d.z.present()) {
        vector plain = simd::load(o + to);
        if (D.present()) plain = simd::fma(skip<Acc>(at.head, j), simd::load(skipped + to), plain);
        const vector slope = plain * open * simd::fma(z_row, vector(Acc(1)) - open, vector(Acc(1)));
        simd::store(gate + to, simd::select(unasked, dy, dy * slope));
      }
      return simd::select(unasked, dy, dy * z_row * open);
    });
    detail::store_gradient(gate, stride, d.z, at, accumulate, skipped);
  }
  /// v = d x and g = d A, and what D x puts into the outputs.
  template <class Acc>
  void adjoint_v(const tokens& at, Acc* d_v, const Acc* d_o, index_t stride, const Acc* d_g, Acc* room,
                 const gradient& d, bool accumulate) const noexcept {
    using vector = simd::batch<Acc>;
    constexpr index_t W = simd::width<Acc>;
    const index_t P = x.extent(3);
    Acc* rows = room;
    Acc* step = room + at.count * stride;
    Acc* slope = step + detail::padded<Acc>(at.count);
    tokens all = at;
    all.live = at.count;
    detail::load_rows(detail::rows_of(x, at, at.count), rows, stride);
    detail::change_rows(rows + at.live * stride, stride, at.count - at.live, P,
                        [&](index_t i, index_t j, auto padding) {
                          const vector asked = simd::load(d_o + (at.live + i) * stride + j), none(Acc(0));
                          return simd::select(asked == none, none, padding);
                        });
    load_steps(at, step, slope);
    if (d.D.present() && D.extent(1) > 1) {
      for (index_t j = 0; j < P; j += W) {
        vector sum(Acc(0));
        for (index_t i = 0; i < at.count; ++i) {
          sum = simd::fma(simd::load(d_o + i * stride + j), simd::load(rows + i * stride + j), sum);
        }
        const index_t count = std::min(W, P - j);
        accum* to = d.D.pointer(at.head, j);
        const vector before =
            simd::load_strided<Acc, simd::default_arch>(static_cast<const accum*>(to), d.D.stride(1), count);
        simd::store_strided(to, d.D.stride(1), before + sum, count);
      }
    } else if (d.D.present()) {
      Acc sum = static_cast<Acc>(d.D(at.head, 0));
      for (index_t i = 0; i < at.count; ++i) sum += dot(d_o + i * stride, rows + i * stride, stride);
      d.D(at.head, 0) = static_cast<accum>(sum);
    }
    const Acc a = rate<Acc>(at.head);
    Acc d_a(0), d_bias(0);
    for (index_t i = 0; i < at.count; ++i) {
      Acc raw(0);
      if (i < at.live) {
        raw = slope[i] * (dot(d_v + i * stride, rows + i * stride, stride) + d_g[i] * a);
        d_a += d_g[i] * step[i];
        d_bias += raw;
      }
      if (d.dt.present() && (i < at.live || !accumulate)) {
        accum& to = d.dt(at.batch, at.token + i, at.head);
        to = static_cast<accum>(accumulate ? static_cast<Acc>(to) + raw : raw);
      }
    }
    if (d.A.present()) d.A[at.head] += static_cast<accum>(d_a);
    if (d.dt_bias.present()) d.dt_bias[at.head] += static_cast<accum>(d_bias);
    if (!d.x.present()) return;
    detail::change_rows(d_v, stride, at.count, P, [&](index_t i, index_t j, auto dv) noexcept {
      using row = decltype(dv);
      const row written = i < at.live ? row(step[i]) * dv : row(Acc(0));
      return D.present() ? simd::fma(skip<Acc>(at.head, j), simd::load(d_o + i * stride + j), written) : written;
    });
    detail::store_gradient(d_v, stride, d.x, all, accumulate, room);
  }

 private:
  /// A, bounded, so that a step of 0 decays nothing.
  template <class Acc>
  Acc rate(index_t head) const noexcept {
    constexpr Acc largest = std::numeric_limits<Acc>::max();
    const Acc a = static_cast<Acc>(A[head]);
    return a > largest ? largest : a < -largest ? -largest : a;
  }
  /// Columns of D from j on.
  template <class Acc>
  simd::batch<Acc> skip(index_t head, index_t j) const noexcept {
    const index_t step = D.extent(1) == 1 ? 0 : D.stride(1);
    return simd::load_strided<Acc, simd::default_arch>(D.pointer(head, 0) + j * step, step, x.extent(3) - j);
  }
  template <class Acc>
  static Acc dot(const Acc* a, const Acc* b, index_t count) noexcept {
    simd::batch<Acc> sum(Acc(0));
    for (index_t j = 0; j < count; j += simd::width<Acc>) sum = simd::fma(simd::load(a + j), simd::load(b + j), sum);
    return simd::reduce_add(sum);
  }
  /// d of the live tokens, 0 for padding, and its derivative by dt where there is room for it.
  template <class Acc>
  void load_steps(const tokens& at, Acc* step, Acc* slope) const noexcept {
    constexpr index_t W = simd::width<Acc>;
    using vector = simd::batch<Acc>;
    const vector bias(dt_bias.present() ? static_cast<Acc>(dt_bias[at.head]) : Acc(0));
    const vector low(static_cast<Acc>(dt_min)), high(static_cast<Acc>(dt_max)), zero(Acc(0));
    const accum* raw = dt.pointer(at.batch, at.token, at.head);
    for (index_t i = 0; i < at.live; i += W) {
      const vector given =
          simd::load_strided<Acc, simd::default_arch>(raw + i * dt.stride(1), dt.stride(1), at.live - i) + bias;
      const vector d = dt_softplus ? simd::softplus(given) : given;
      simd::store(step + i, simd::min(high, simd::max(low, d)));  // in this order NaN stays NaN
      if (slope == nullptr) continue;
      const vector free = dt_softplus ? simd::sigmoid(given) : vector(Acc(1));
      simd::store(slope + i, simd::select(d < low, zero, simd::select(high < d, zero, free)));
    }
  }
};

}  // namespace OGIVE_ABI
}  // namespace ogive

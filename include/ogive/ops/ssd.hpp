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

#include <ogive/engine/matrix.hpp>

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
  integers lengths{};  ///< per sequence; tokens from there on neither decay nor write
  integers offsets{};  ///< packed sequences, a state each
  heads head_map = heads::consecutive;

  static constexpr const char* name = "ssd";
  static constexpr detail::axis_letters letters{"[B, L, H, P]", "[slots, H, N, P]"};
  static constexpr decay decays = decay::scalar;
  static constexpr write writes = write::additive;
  static constexpr read reads = read::after;
  template <storage S>
  using state_of = state<S>;
  using default_state = state<accum>;

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

  template <class Acc>
  void load_q(const tokens& at, Acc* q, index_t stride, Acc*) const noexcept {
    detail::load_rows(detail::rows_of(C, at, at.count), q, stride);
  }
  template <class Acc>
  void load_k(const tokens& at, Acc* k, index_t stride, Acc*) const noexcept {
    detail::load_tokens(B, at, k, stride);
  }
  /// v = d x and g = d A, where a step of 0 decays nothing, whatever A is.
  template <class Acc>
  void load_v(const tokens& at, Acc* v, index_t stride, Acc* g, Acc* room) const noexcept {
    constexpr index_t W = simd::width<Acc>;
    using vector = simd::batch<Acc>;
    detail::load_tokens(x, at, v, stride);
    constexpr Acc largest = std::numeric_limits<Acc>::max();
    const vector a = simd::min(vector(largest), simd::max(vector(-largest), vector(static_cast<Acc>(A[at.head]))));
    const vector bias(dt_bias.present() ? static_cast<Acc>(dt_bias[at.head]) : Acc(0));
    const vector low(static_cast<Acc>(dt_min)), high(static_cast<Acc>(dt_max));
    const accum* raw = dt.pointer(at.batch, at.token, at.head);
    for (index_t i = 0; i < at.live; i += W) {
      vector d = simd::load_strided<Acc, simd::default_arch>(raw + i * dt.stride(1), dt.stride(1), at.live - i) + bias;
      if (dt_softplus) d = simd::softplus(d);
      d = simd::min(high, simd::max(low, d));  // in this order NaN stays NaN
      simd::store(room + i, d);
      simd::store(g + i, d * a);
    }
    detail::change_rows(v, stride, at.live, x.extent(3),
                        [&](index_t i, index_t, auto value) noexcept { return decltype(value)(room[i]) * value; });
    for (index_t i = at.live; i < at.count; ++i) g[i] = Acc(0);
  }
  template <class Acc>
  void store(const tokens& at, Acc* o, index_t stride, const Acc*, Acc* room, const view<T, 4>& y) const noexcept {
    const index_t p = x.extent(3), room_stride = detail::padded<Acc>(p);
    if (D.present()) {
      detail::load_rows(detail::rows_of(x, at, at.count), room, room_stride);
      const index_t step = D.extent(1) == 1 ? 0 : D.stride(1);
      detail::change_rows(o, stride, at.count, p, [&](index_t i, index_t j, auto out) noexcept {
        const auto skip = simd::load_strided<Acc, simd::default_arch>(D.pointer(at.head, 0) + j * step, step, p - j);
        return simd::fma(skip, simd::load(room + i * room_stride + j), out);
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
};

}  // namespace OGIVE_ABI
}  // namespace ogive

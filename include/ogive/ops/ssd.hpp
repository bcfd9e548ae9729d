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
  void check_outputs(core::checker& ask, const view<T, 4>& y) const noexcept {
    ask.apart("y", y, "x", x).apart("y", y, "B", B).apart("y", y, "C", C).apart("y", y, "z", z).apart("y", y, "dt", dt);
  }

  template <class Acc>
  void load_q(const tokens& at, Acc* q, index_t stride, Acc*) const noexcept {
    detail::load_rows(detail::rows_of(C, at, at.count), q, stride);
  }
  template <class Acc>
  void load_k(const tokens& at, Acc* k, index_t stride, Acc*) const noexcept {
    detail::load_tokens(B, at, k, stride);
  }
  /// v = d x and g = d A.
  template <class Acc>
  void load_v(const tokens& at, Acc* v, index_t stride, Acc* g) const noexcept {
    constexpr index_t W = simd::width<Acc>;
    using vector = simd::batch<Acc>;
    detail::load_tokens(x, at, v, stride);
    const vector a(static_cast<Acc>(A[at.head]));
    const vector bias(dt_bias.present() ? static_cast<Acc>(dt_bias[at.head]) : Acc(0));
    const accum* row = dt.pointer(at.batch, at.token, at.head);
    for (index_t i = 0; i < at.count; i += W) {
      const index_t live = std::clamp<index_t>(at.live - i, 0, W);
      vector d = simd::load_strided<Acc, simd::default_arch>(row + i * dt.stride(1), dt.stride(1), live) + bias;
      if (dt_softplus) d = simd::softplus(d);
      d = simd::min(vector(static_cast<Acc>(dt_max)), simd::max(vector(static_cast<Acc>(dt_min)), d));  // NaN stays
      d = simd::select(simd::first_n<Acc, simd::default_arch>(live), d, vector(Acc(0)));
      alignas(64) Acc step[W];
      simd::store(step, d);
      simd::store(g + i, d * a);
      for (index_t j = 0; j < std::min(W, at.live - i); ++j) {
        Acc* value = v + (i + j) * stride;
        for (index_t p = 0; p < detail::padded<Acc>(x.extent(3)); p += W) {
          simd::store(value + p, vector(step[j]) * simd::load(value + p));
        }
      }
    }
    for (index_t i = at.live; i < at.count; ++i) g[i] = Acc(0);
  }
  template <class Acc>
  void store(const tokens& at, const Acc* o, index_t stride, const Acc*, const view<T, 4>& y) const noexcept {
    constexpr index_t W = simd::width<Acc>;
    using vector = simd::batch<Acc>;
    const index_t p = x.extent(3);
    if (!D.present() && !z.present()) return detail::store_rows(o, stride, detail::rows_of(y, at, at.count));
    const auto skip = [&](index_t j, index_t n) noexcept {
      if (!D.present()) return vector(Acc(0));
      return simd::load_strided<Acc, simd::default_arch>(D.pointer(at.head, D.extent(1) == 1 ? 0 : j),
                                                         D.extent(1) == 1 ? 0 : D.stride(1), n);
    };
    for (index_t i = 0; i < at.count; ++i) {
      const auto element = [&](const auto& of, index_t j) noexcept {
        return of.pointer(at.batch, at.token + i, at.head, j);
      };
      for (index_t j = 0; j < p; j += W) {
        const index_t n = std::min(W, p - j);
        vector out = simd::load(o + i * stride + j);
        if (D.present()) {
          const vector in = simd::load_strided<Acc, simd::default_arch>(element(x, j), x.stride(3), n);
          out = simd::fma(skip(j, n), in, out);
        }
        if (z.present()) {
          out = out * simd::silu(simd::load_strided<Acc, simd::default_arch>(element(z, j), z.stride(3), n));
        }
        simd::store_strided(element(y, j), y.stride(3), out, n);
      }
    }
  }
};

}  // namespace OGIVE_ABI
}  // namespace ogive

// L5: the operands that most operators of the matrix engine are made of. A thin operator names its own letters and says
// here what they are; loading, checking and draining are written once.
#pragma once

#include <ogive/core/check.hpp>
#include <ogive/engine/matrix_policy.hpp>
#include <ogive/simd/math.hpp>

#include <optional>

namespace ogive {
inline namespace OGIVE_ABI {

/// What an operator calls its operands, for messages.
struct operand_names {
  const char* q = "q";
  const char* k = "k";
  const char* v = "v";
  const char* g = "g";
  const char* a = "a";
  const char* b = "b";
  const char* beta = "beta";
  const char* u = "u";
};

/// q [B, L, Hq, K], k [B, L, Hk, K], v [B, L, H, V]; o [B, L, max(H, Hq), V]. Hk divides H, and Hq divides H or H divides
/// Hq. Absent views are not part of the operator, but for k, which is then 1 − exp(g). Gates and β are of type G.
template <storage T, decay Decay, write Write = write::additive, read Read = read::after, storage G = accum_t<T>>
struct matrix_operands {
  using scalar = T;
  using accum = accum_t<T>;
  template <storage S>
  using state_of = state<S>;
  using default_state = state<accum>;

  static constexpr decay decays = Decay;
  static constexpr write writes = Write;
  static constexpr read reads = Read;

  const char* name;
  view<const T, 4> q{}, k{}, v{};
  accum scale = 1;                ///< of q
  std::optional<accum> l2norm{};  ///< ε: q and k become x / √(Σx² + ε)
  view<const G, 3> g{};       ///< [B, L, H] log decay
  view<const G, 4> gates{};   ///< [B, L, H, K] log decay per key channel
  view<const G, 4> beta{};    ///< [B, L, H, 1] or [B, L, H, V]
  view<const T, 4> a{};           ///< [B, L, Hk, K]
  accum a_factor = 1;
  view<const T, 4> b{};        ///< [B, L, Hk, K]
  view<const T, 4> b_times{};  ///< [B, L, Hk, K], a second factor of b
  view<const accum, 2> u{};    ///< [H, K]
  integers lengths{}, offsets{};
  heads head_map = heads::consecutive;
  operand_names names{};

  matrix_extents extents() const noexcept {
    return {.batch = q.extent(0),
            .length = q.extent(1),
            .query_heads = q.extent(2),
            .key_heads = k.present() ? k.extent(2) : v.extent(2),
            .heads = v.extent(2),
            .key_dim = q.extent(3),
            .value_dim = v.extent(3)};
  }

  void check_fields(core::checker& ask) const noexcept {
    const index_t B = q.extent(0), L = q.extent(1), H = v.extent(2), K = q.extent(3), V = v.extent(3);
    const index_t Hk = extents().key_heads;
    ask.given(names.q, q).given(names.v, v);
    if constexpr (Decay == decay::per_key) {
      ask.given(names.g, gates);
    } else {
      ask.given(names.k, k);
    }
    if constexpr (Decay == decay::scalar) ask.given(names.g, g);
    if constexpr (Write == write::delta) ask.given(names.beta, beta);
    if constexpr (Write == write::low_rank) ask.given(names.a, a).given(names.b, b);
    ask.extents(names.k, k, {B, L, -1, K}, "[B, L, Hk, K], B, L and K as q");
    ask.extents(names.v, v, {B, L, -1, -1}, "[B, L, H, V], B and L as q");
    detail::check_heads(ask, q.extent(2), Hk, H);
    ask.extents(names.g, g, {B, L, H}, "[B, L, H], B and L as q, H as v");
    ask.extents(names.g, gates, {B, L, H, K}, "[B, L, H, K], B, L and K as q, H as v");
    ask.extents(names.beta, beta, {B, L, H, beta.extent(3) == 1 ? 1 : V}, "[B, L, H], or [B, L, H, V] as v");
    ask.extents(names.a, a, {B, L, Hk, K}, "[B, L, Hk, K] as k");
    ask.extents(names.b, b, {B, L, Hk, K}, "[B, L, Hk, K] as k");
    ask.extents(names.a, b_times, {B, L, Hk, K}, "[B, L, Hk, K] as k");
    ask.extents(names.u, u, {H, K}, "[H, K], H as v, K as q");
  }
  void check_outputs(core::checker& ask, const view<T, 4>& o) const noexcept {
    ask.apart("o", o, names.q, q).apart("o", o, names.k, k).apart("o", o, names.v, v).apart("o", o, names.g, g);
    ask.apart("o", o, names.g, gates).apart("o", o, names.beta, beta).apart("o", o, names.a, a);
    ask.apart("o", o, names.b, b).apart("o", o, names.a, b_times);
  }

  /// Rows to ask for early.
  void ahead(operand which, const tokens& at, detail::lines_ahead& lines) const noexcept {
    const auto add = [&](const auto& x) noexcept {
      if (x.present()) lines.add(detail::ahead_of(x, at));
    };
    if (which == operand::query) add(q);
    if (which == operand::value) add(v), add(gates);
    if (which == operand::key) add(k), add(a), add(b), add(b_times);
  }
  bool beta_per_value() const noexcept { return beta.extent(3) > 1; }

  /// The operator on `count` columns of V.
  matrix_operands columns(index_t first, index_t count) const noexcept {
    matrix_operands part = *this;
    part.v = v.slice(3, first, count);
    if (beta_per_value()) part.beta = beta.slice(3, first, count);
    return part;
  }

  template <class Acc>
  void load_q(const tokens& at, Acc* panel, index_t stride, Acc*) const noexcept {
    detail::load_rows(detail::rows_of(q, at, at.count), panel, stride);
    finish_key(at.count, static_cast<Acc>(scale), panel, stride);
  }
  template <class Acc>
  void load_k(const tokens& at, Acc* panel, index_t stride, Acc*) const noexcept {
    if (k.present()) {
      detail::load_tokens(k, at, panel, stride);
    } else {
      detail::load_tokens(gates, at, panel, stride);
      detail::change_rows(panel, stride, at.live, q.extent(3),
                          [](index_t, index_t, auto x) noexcept { return -simd::expm1(x); });
    }
    finish_key(at.live, Acc(1), panel, stride);
  }
  template <class Acc>
  void load_v(const tokens& at, Acc* panel, index_t stride, Acc* log_decay, Acc*) const noexcept {
    detail::load_tokens(v, at, panel, stride);
    if constexpr (Decay == decay::scalar) {
      const G* from = g.pointer(at.batch, at.token, at.head);
      for (index_t i = 0; i < at.count; ++i) log_decay[i] = i < at.live ? static_cast<Acc>(from[i * g.stride(1)]) : Acc(0);
    }
  }
  template <class Acc>
  void store(const tokens& at, Acc* panel, index_t stride, const Acc*, Acc*, const view<T, 4>& o) const noexcept {
    detail::store_tokens(panel, stride, o, at);
  }
  template <class Acc>
  void load_gates(const tokens& at, Acc* panel, index_t stride) const noexcept {
    detail::load_tokens(gates, at, panel, stride);
  }
  template <class Acc>
  void load_beta(const tokens& at, Acc* panel, index_t stride) const noexcept {
    if (beta_per_value()) {
      detail::load_tokens(beta, at, panel, stride);
    } else {
      const G* from = beta.pointer(at.batch, at.token, at.head, 0);
      for (index_t i = 0; i < at.count; ++i) {
        panel[i * stride] = i < at.live ? static_cast<Acc>(from[i * beta.stride(1)]) : Acc(0);
      }
    }
  }
  template <class Acc>
  void load_removal(const tokens& at, Acc* a_panel, Acc* b_panel, index_t stride) const noexcept {
    detail::load_tokens(a, at, a_panel, stride);
    detail::load_tokens(b, at, b_panel, stride);
    const index_t K = q.extent(3);
    for (index_t i = 0; i < at.live; ++i) {
      if (b_times.present()) {
        const T* factor = b_times.pointer(at.batch, at.token + i, at.head, 0);
        for (index_t j = 0; j < K; j += simd::width<Acc>) {
          Acc* to = b_panel + i * stride + j;
          simd::store(to, simd::load(to) * simd::load_strided<Acc, simd::default_arch>(
                                               factor + j * b_times.stride(3), b_times.stride(3), K - j));
        }
      }
    }
    if (a_factor != accum(1)) {
      detail::change_rows(a_panel, stride, at.live, K, [&](index_t, index_t, auto x) noexcept {
        return decltype(x)(static_cast<Acc>(a_factor)) * x;
      });
    }
  }
  template <class Acc>
  void load_bonus(index_t head, Acc* row) const noexcept {
    if (u.present()) {
      detail::load_rows(view<const accum, 2>(u.pointer(head, 0), {1, u.extent(1)}, {0, u.stride(1)}), row, 0);
    } else {
      detail::zero_rows(row, 0, 1, detail::padded<Acc>(q.extent(3)));
    }
  }

 private:
  /// Rows of q or k: x / √(Σx² + ε) where asked for, times `factor`.
  template <class Acc>
  void finish_key(index_t rows, Acc factor, Acc* panel, index_t stride) const noexcept {
    using vector = simd::batch<Acc>;
    constexpr index_t W = simd::width<Acc>;
    if (!l2norm && factor == Acc(1)) return;
    const index_t columns = detail::padded<Acc>(q.extent(3));
    for (index_t i = 0; i < rows; ++i) {
      Acc* row = panel + i * stride;
      vector by(factor);
      if (l2norm) {
        vector squares(Acc(0));
        for (index_t j = 0; j < columns; j += W) squares = simd::fma(simd::load(row + j), simd::load(row + j), squares);
        by = by / simd::sqrt(vector(simd::reduce_add(squares) + static_cast<Acc>(*l2norm)));
      }
      for (index_t j = 0; j < columns; j += W) simd::store(row + j, by * simd::load(row + j));
    }
  }
};

/// An operator that is a choice of operands: an aggregate of views with its letters, `scalar`, `state_of`,
/// `default_state`, `name`, and `operands()`.
template <class Op>
concept operator_of_operands = requires(const Op& op) {
  typename Op::scalar;
  op.operands().extents();
};

}  // namespace OGIVE_ABI
}  // namespace ogive

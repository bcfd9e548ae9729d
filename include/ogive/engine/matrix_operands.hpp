// L5: the operands that most operators of the matrix engine are made of. A thin operator names its own letters and says
// here what they are; loading, checking and draining are written once.
#pragma once

#include <ogive/core/check.hpp>
#include <ogive/engine/matrix_policy.hpp>
#include <ogive/engine/unit_rows.hpp>
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
  const char* b_times = "b_times";
  const char* u = "u";
};

/// Where the gradients of operands go; absent ones are not wanted.
template <storage T, storage G = accum_t<T>>
struct operand_gradients {
  view<T, 4> q{}, k{}, v{};
  view<G, 3> g{};
  view<G, 4> gates{};
  view<G, 3> beta{};
  view<G, 4> beta_per_value{};
  view<T, 4> a{}, b{}, b_times{};
  view<accum_t<T>, 2> u{};
  bool one_a_and_b = false;  ///< a and b are one tensor, whose gradient goes to `a`
  bool over_time = false;    ///< g or gates are the same for all tokens and sequences: views of stride 0, sums
};

/// q [B, L, Hq, K], k [B, L, Hk, K], v [B, L, H, V]; o [B, L, max(H, Hq), V]. Hk divides H, and Hq divides H or H
/// divides Hq. Absent views are not part of the operator. Gates and β are of type G.
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
  accum scale = 1;                    ///< of q
  std::optional<accum> l2norm{};      ///< ε: q and k become x / √(Σx² + ε)
  view<const G, 3> g{};               ///< [B, L, H] log decay
  view<const G, 4> gates{};           ///< [B, L, H, K] log decay per key channel
  bool free_keys = false;             ///< k is what gates leave free, 1 − exp(g), and no view
  bool over_time = false;             ///< g or gates are the same for all tokens and sequences: views of stride 0
  view<const G, 3> beta{};            ///< [B, L, H], or
  view<const G, 4> beta_per_value{};  ///< [B, L, H, V]
  view<const T, 4> a{};               ///< [B, L, Hk, K]
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
    if (!free_keys) ask.given(names.k, k);
    if constexpr (Decay == decay::per_key) ask.given(names.g, gates);
    if constexpr (Decay == decay::scalar) ask.given(names.g, g);
    if (Write == write::delta && !per_value()) ask.given("beta", beta);
    if constexpr (Write == write::low_rank) ask.given(names.a, a).given(names.b, b);
    ask.extents(names.k, k, {B, L, -1, K}, "[B, L, Hk, K], B, L and K as ", names.q);
    ask.extents(names.v, v, {B, L, -1, -1}, "[B, L, H, V], B and L as ", names.q);
    detail::check_heads(ask, q.extent(2), Hk, H);
    ask.extents(names.g, g, {B, L, H}, "[B, L, H], H as v, B and L as ", names.q);
    ask.extents(names.g, gates, {B, L, H, K}, "[B, L, H, K], H as v, B, L and K as ", names.q);
    ask.extents("beta", beta, {B, L, H}, "[B, L, H], H as v, B and L as ", names.q);
    ask.extents("beta_per_value", beta_per_value, {B, L, H, V}, "[B, L, H, V] as v");
    ask.extents(names.a, a, {B, L, Hk, K}, "[B, L, Hk, K] as k")
        .extents(names.b, b, {B, L, Hk, K}, "[B, L, Hk, K] as k");
    ask.extents(names.b_times, b_times, {B, L, Hk, K}, "[B, L, Hk, K] as k");
    ask.extents(names.u, u, {H, K}, "[H, K], H as v, K as ", names.q);
    if (l2norm) ask.not_negative("qk_l2norm", *l2norm);
  }
  template <class X, std::size_t Rank>
  void check_written(core::checker& ask, const char* field, const view<X, Rank>& x) const noexcept {
    ask.apart(field, x, names.q, q).apart(field, x, names.k, k).apart(field, x, names.v, v);
    if (over_time) {
      ask.apart(field, x, names.g, g[0][0]).apart(field, x, names.g, gates[0][0]);
    } else {
      ask.apart(field, x, names.g, g).apart(field, x, names.g, gates);
    }
    ask.apart(field, x, "beta", beta).apart(field, x, "beta_per_value", beta_per_value).apart(field, x, names.a, a);
    ask.apart(field, x, names.b, b).apart(field, x, names.b_times, b_times).apart(field, x, names.u, u);
  }

  /// Rows to ask for early.
  void ahead(operand which, const tokens& at, detail::lines_ahead& lines) const noexcept {
    const auto add = [&](const auto& x) noexcept {
      if (x.present()) lines.add(detail::ahead_of(x, at));
    };
    if (which == operand::query) add(q);
    if (which == operand::value) add(v), add(gates);
    if (which == operand::key) add(k), add(a), add(b_times);
    if (which == operand::key && b.data() != a.data()) add(b);
  }
  bool per_value() const noexcept { return beta_per_value.present(); }

  /// The operator on `count` columns of V.
  matrix_operands columns(index_t first, index_t count) const noexcept {
    matrix_operands part = *this;
    part.v = v.slice(3, first, count);
    if (per_value()) part.beta_per_value = beta_per_value.slice(3, first, count);
    return part;
  }

  /// The operator with its axes of tokens and heads exchanged, as hooks see them.
  std::optional<matrix_operands> turned() const noexcept {
    matrix_operands all = *this;
    for (view<const T, 4>* x : {&all.q, &all.k, &all.v, &all.a, &all.b, &all.b_times}) *x = from_bhld(*x);
    for (view<const G, 4>* x : {&all.gates, &all.beta_per_value}) *x = from_bhld(*x);
    for (view<const G, 3>* x : {&all.g, &all.beta}) *x = from_bdl(*x);
    return all;
  }

  template <class Acc>
  lying_rows<const Acc> lying(operand which, const tokens& at) const noexcept {
    if (at.live < at.count || (l2norm && which != operand::value)) return {};
    if (which == operand::query) return scale == accum(1) ? detail::rows_if_lying<Acc>(q, at) : lying_rows<const Acc>{};
    return detail::rows_if_lying<Acc>(which == operand::key ? k : v, at);
  }

  template <class Acc>
  void load_q(const tokens& at, Acc* panel, index_t stride, Acc*) const noexcept {
    const Acc by = static_cast<Acc>(scale);
    tokens all = at;
    all.live = at.count;
    if (l2norm || by == Acc(1)) {
      detail::load_tokens(q, all, panel, stride);
      detail::unit_rows(l2norm, by, at.count, q.extent(3), panel, stride);
    } else {
      detail::load_tokens(q, all, panel, stride,
                          [&](index_t, index_t, auto x) noexcept { return decltype(x)(by) * x; });
    }
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
    detail::unit_rows(l2norm, Acc(1), at.live, q.extent(3), panel, stride);
  }
  template <class Acc>
  void load_v(const tokens& at, Acc* panel, index_t stride, Acc* log_decay, Acc*) const noexcept {
    if (panel != nullptr) detail::load_tokens(v, at, panel, stride);
    if constexpr (Decay == decay::scalar) {
      const G* from = g.pointer(at.batch, at.token, at.head);
      for (index_t i = 0; i < at.count; ++i)
        log_decay[i] = i < at.live ? static_cast<Acc>(from[i * g.stride(1)]) : Acc(0);
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
    if (per_value()) {
      detail::load_tokens(beta_per_value, at, panel, stride);
    } else {
      const G* from = beta.pointer(at.batch, at.token, at.head);
      for (index_t i = 0; i < at.count; ++i) {
        panel[i * stride] = i < at.live ? static_cast<Acc>(from[i * beta.stride(1)]) : Acc(0);
      }
    }
  }
  template <class Acc>
  void load_removal(const tokens& at, Acc* a_panel, Acc* b_panel, index_t stride) const noexcept {
    if (a_factor == accum(1)) {
      detail::load_tokens(a, at, a_panel, stride);
    } else {
      const Acc by = static_cast<Acc>(a_factor);
      detail::load_tokens(a, at, a_panel, stride,
                          [&](index_t, index_t, auto x) noexcept { return decltype(x)(by) * x; });
    }
    if (!b_times.present()) {
      detail::load_tokens(b, at, b_panel, stride);
    } else {
      constexpr index_t W = simd::width<Acc>;
      const view<const T, 2> times = detail::rows_of(b_times, at, at.live);
      const index_t K = times.extent(1), row = times.stride(0), step = times.stride(1);
      detail::load_tokens(b, at, b_panel, stride, [&](index_t i, index_t j, auto x) noexcept {
        const T* factor = times.data() + i * row + j * step;
        if (step == 1 && j + W <= K) return x * simd::load_as<Acc, simd::default_arch>(factor);
        return x * simd::load_strided<Acc, simd::default_arch>(factor, step, std::min(W, K - j));
      });
    }
  }
  template <class Acc>
  bool load_bonus(index_t head, Acc* row) const noexcept {
    if (u.present()) {
      detail::load_rows(view<const accum, 2>(u.pointer(head, 0), {1, u.extent(1)}, {0, u.stride(1)}), row, 0);
    } else {
      detail::zero_rows(row, 0, 1, detail::padded<Acc>(q.extent(3)));
    }
    return u.present();
  }

  using gradient = operand_gradients<T, G>;
  using default_state_gradient = state_gradient<accum>;

  /// Calls f(name, field, its gradient, how it is written) for all of them.
  template <class F>
  void for_gradients(const gradient& d, const F& f) const noexcept {
    f(names.q, q, d.q), f(names.k, k, d.k), f(names.v, v, d.v), f(names.g, g, d.g), f(names.g, gates, d.gates);
    f("beta", beta, d.beta), f("beta_per_value", beta_per_value, d.beta_per_value), f(names.a, a, d.a);
    f(names.b, b, d.b), f(names.b_times, b_times, d.b_times), f(names.u, u, d.u);
  }
  /// Calls f(gradient, field, its axis of heads) for all gradients that are sums over tokens.
  template <class F>
  static void for_sums(const gradient& d, const F& f) noexcept {
    f(&gradient::u, &matrix_operands::u, 0);
    if (d.over_time) f(&gradient::g, &matrix_operands::g, 2), f(&gradient::gates, &matrix_operands::gates, 2);
  }
  static constexpr bool wants_outputs(const gradient&) noexcept { return false; }
  static bool wants_decays(const gradient& d) noexcept { return d.g.present() || d.gates.present(); }
  static wanted_rows wants_rows(const gradient& d) noexcept {
    const bool u = d.u.present();
    return {d.q.present() || u, d.k.present() || d.a.present() || d.b.present() || d.b_times.present() || u,
            d.v.present()};
  }

  template <class Acc>
  void adjoint_store(const tokens& at, const view<const T, 4>& d_o, const Acc*, const Acc*, Acc* panel, index_t stride,
                     Acc*, Acc*, const gradient&, bool) const noexcept {
    detail::load_rows(detail::rows_of(d_o, at, at.count), panel, stride);
  }
  template <class Acc>
  void adjoint_q(const tokens& at, Acc* panel, index_t stride, Acc* room, const gradient& d,
                 bool accumulate) const noexcept {
    if (!d.q.present()) return;
    detail::pull_unit_rows(l2norm, static_cast<Acc>(scale), q, at, panel, stride, room);
    detail::store_gradient(panel, stride, d.q, at, accumulate, room);
  }
  template <class Acc>
  void adjoint_k(const tokens& at, Acc* panel, index_t stride, Acc* room, const gradient& d,
                 bool accumulate) const noexcept {
    if (!d.k.present()) return;
    detail::pull_unit_rows(l2norm, Acc(1), k, at, panel, stride, room);
    detail::store_gradient(panel, stride, d.k, at, accumulate, room);
  }
  template <class Acc>
  void adjoint_v(const tokens& at, Acc* panel, const Acc*, index_t stride, const Acc* d_log_decay, Acc* room,
                 const gradient& d, bool accumulate) const noexcept {
    if (d.g.present() && d.over_time) {
      Acc sum = static_cast<Acc>(d.g(0, 0, at.head));
      for (index_t i = 0; i < at.live; ++i) sum += d_log_decay[i];
      d.g(0, 0, at.head) = static_cast<G>(sum);
    } else if (d.g.present()) {
      for (index_t i = 0; i < at.count; ++i) {
        G& to = d.g(at.batch, at.token + i, at.head);
        const Acc own = i < at.live ? d_log_decay[i] : Acc(0);
        to = static_cast<G>(accumulate ? static_cast<Acc>(to) + own : own);
      }
    }
    detail::store_gradient(panel, stride, d.v, at, accumulate, room);
  }
  /// Where k is −expm1(g), its gradient goes on to g.
  template <class Acc>
  void adjoint_gates(const tokens& at, Acc* panel, const Acc* d_k, index_t stride, Acc* room, const gradient& d,
                     bool accumulate) const noexcept {
    if (!d.gates.present()) return;
    if (!k.present()) {
      const index_t K = q.extent(3);
      Acc* d_row = room + detail::padded<Acc>(K);
      for (index_t i = 0; i < at.live; ++i) {
        const Acc* own = d_k + i * stride;
        const auto load = [&] { detail::load_rows(view<const G, 2>(row_of(gates, at, i)), room, 0); };
        if (l2norm) {
          load();
          detail::change_rows(room, 0, 1, K, [](index_t, index_t, auto x) noexcept { return -simd::expm1(x); });
          std::copy_n(own, detail::padded<Acc>(K), d_row);
          detail::pull_unit_row(l2norm, Acc(1), room, d_row, K);
          own = d_row;
        }
        load();
        detail::change_rows(panel + i * stride, stride, 1, K, [&](index_t, index_t j, auto sum) noexcept {
          return simd::fnma(simd::exp(simd::load(room + j)), simd::load(own + j), sum);
        });
      }
    }
    if (d.over_time) {
      detail::add_sum_of_rows(panel, stride, at.live, d.gates[0][0][at.head]);
    } else {
      detail::store_gradient(panel, stride, d.gates, at, accumulate, room);
    }
  }
  template <class Acc>
  void adjoint_beta(const tokens& at, Acc* panel, index_t stride, Acc* room, const gradient& d,
                    bool accumulate) const noexcept {
    if (per_value()) {
      detail::store_gradient(panel, stride, d.beta_per_value, at, accumulate, room);
      return;
    }
    if (!d.beta.present()) return;
    for (index_t i = 0; i < at.count; ++i) {
      G& to = d.beta(at.batch, at.token + i, at.head);
      const Acc own = i < at.live ? panel[i * stride] : Acc(0);
      to = static_cast<G>(accumulate ? static_cast<Acc>(to) + own : own);
    }
  }
  /// a = f α and b = β ⊙ τ, for the fields α, β and τ.
  template <class Acc>
  void adjoint_removal(const tokens& at, Acc* d_a, Acc* d_b, index_t stride, Acc* room, const gradient& d,
                       bool accumulate) const noexcept {
    const index_t K = q.extent(3), columns = detail::padded<Acc>(K);
    Acc* factor = room;
    Acc* d_factor = room + columns;
    for (index_t i = 0; i < at.live; ++i) {
      Acc* da = d_a + i * stride;
      Acc* db = d_b + i * stride;
      detail::change_rows(da, stride, 1, K, [&](index_t, index_t, auto x) noexcept {
        return decltype(x)(static_cast<Acc>(a_factor)) * x;
      });
      if (b_times.present()) {
        if (d.b_times.present()) {
          detail::load_rows(view<const T, 2>(row_of(b, at, i)), factor, 0);
          detail::change_rows(factor, 0, 1, K,
                              [&](index_t, index_t j, auto x) noexcept { return x * simd::load(db + j); });
          tokens one{at.batch, at.token + i, 1, 1, 0, at.head};
          detail::store_gradient(factor, index_t(0), d.b_times, one, accumulate, d_factor);
        }
        detail::load_rows(view<const T, 2>(row_of(b_times, at, i)), factor, 0);
        detail::change_rows(db, stride, 1, K,
                            [&](index_t, index_t j, auto x) noexcept { return x * simd::load(factor + j); });
      }
      if (d.one_a_and_b) {
        detail::change_rows(da, stride, 1, K,
                            [&](index_t, index_t j, auto x) noexcept { return x + simd::load(db + j); });
      }
    }
    detail::store_gradient(d_a, stride, d.a, at, accumulate, room);
    detail::store_gradient(d_b, stride, d.b, at, accumulate, room);
    tokens padding = at;
    padding.token += at.live;
    padding.count -= at.live;
    padding.live = 0;
    detail::store_gradient(d_b, stride, d.b_times, padding, accumulate, room);
  }
  template <class Acc>
  void adjoint_bonus(index_t head, const Acc* d_u, const gradient& d) const noexcept {
    if (d.u.present()) detail::add_sum_of_rows(d_u, index_t(0), 1, d.u[head]);
  }

 private:
  template <class X>
  static view<const X, 2> row_of(const view<const X, 4>& x, tokens at, index_t i) noexcept {
    at.token += i;
    return detail::rows_of(x, at, 1);
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

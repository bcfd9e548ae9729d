// Softmax attention: what linear attention is measured against.
//
//   o_i = Σ_j p_ij v_j / Σ_j p_ij,   p_ij = exp(s q_i·k_j − max_j s q_i·k_j)
//
// over the keys that row i sees. Vaswani et al., Attention is all you need, arXiv:1706.03762.
#pragma once

#include <ogive/core/check.hpp>
#include <ogive/engine/softmax.hpp>

#include <cmath>
#include <optional>

namespace ogive {
inline namespace OGIVE_ABI {

/// q [B, L, Hq, D], k [B, S, H, D], v [B, S, H, V]; o [B, L, Hq, V]. H divides Hq: query head h reads key head
/// h div (Hq / H). A row that sees no key is 0. Decoding with a cache of keys and values: L new queries, `causal`, and
/// `position` = how many tokens came before them; keys past the last query are never read.
template <storage T>
struct softmax_attention {
  using scalar = T;
  using accum = accum_t<T>;

  view<const T, 4> q{}, k{}, v{};
  bool causal = false;           ///< row i sees keys j ≤ i + position
  index_t position = 0;          ///< of the first query among the keys
  index_t window = 0;            ///< if not 0, row i sees no key before i + position − window + 1
  std::optional<accum> scale{};  ///< s, 1/√D by default
  integers lengths{};            ///< [B]; keys from there on are not seen
  view<accum, 3> max_logits{};   ///< [B, L, Hq], written if present: max_j s q_i·k_j, −∞ where no key is seen

  static constexpr const char* name = "softmax_attention";
};

namespace detail {

template <class T>
struct softmax_binding {
  using Acc = accum_t<T>;

  const softmax_attention<T>& op;
  const view<T, 4>& o;
  Acc scale = op.scale ? *op.scale : Acc(1) / std::sqrt(static_cast<Acc>(op.q.extent(3)));

  softmax_problem<Acc> problem() const noexcept {
    softmax_problem<Acc> p{};
    p.batch = op.q.extent(0);
    p.queries = op.q.extent(1);
    p.keys = op.k.extent(1);
    p.query_heads = op.q.extent(2);
    p.key_heads = op.k.extent(2);
    p.heads = op.v.extent(2);
    p.key_dim = op.k.extent(3);
    p.value_dim = op.v.extent(3);
    p.hooks = {this, load_q, load_k, load_v, store, nullptr, nullptr, q_rows, k_rows, v_rows, o_rows};
    p.keys_in_place = keys_in_place;
    p.values_in_place = values_in_place;
    if (op.max_logits.present()) p.store_maxima = store_maxima;
    p.lengths = op.lengths;
    p.causal = op.causal;
    p.position = op.position;
    p.window = op.window;
    return p;
  }

 private:
  static const softmax_binding& self(const void* bound) noexcept { return *static_cast<const softmax_binding*>(bound); }
  static void load_q(const void* bound, const tokens& at, Acc* q, index_t stride, Acc*) noexcept {
    const simd::batch<Acc> scale(self(bound).scale);
    load_tokens(self(bound).op.q, at, q, stride);
    for (index_t r = 0; r < at.count; ++r) {
      for (index_t c = 0; c < self(bound).op.q.extent(3); c += simd::width<Acc>) {
        simd::store(q + r * stride + c, scale * simd::load(q + r * stride + c));
      }
    }
  }
  static void load_k(const void* bound, const tokens& at, Acc* k, index_t stride, Acc*) noexcept {
    load_tokens(self(bound).op.k, at, k, stride);
  }
  static void load_v(const void* bound, const tokens& at, index_t, index_t, Acc* v, index_t stride) noexcept {
    load_tokens(self(bound).op.v, at, v, stride);
  }
  static rows_ahead q_rows(const void* bound, const tokens& at) noexcept {
    return rows_of(self(bound).op.q, at, at.count);
  }
  static rows_ahead k_rows(const void* bound, const tokens& at) noexcept {
    return rows_of(self(bound).op.k, at, at.live);
  }
  static rows_ahead v_rows(const void* bound, const tokens& at, index_t, index_t) noexcept {
    return rows_of(self(bound).op.v, at, at.live);
  }
  static rows_ahead o_rows(const void* bound, const tokens& at, index_t, index_t) noexcept {
    return rows_of(self(bound).o, at, at.count);
  }
  static rows_in_place<Acc> keys_in_place(const void* bound, const tokens& at) noexcept {
    return in_place(self(bound).op.k, at);
  }
  static rows_in_place<Acc> values_in_place(const void* bound, const tokens& at) noexcept {
    return in_place(self(bound).op.v, at);
  }
  static rows_in_place<Acc> in_place(const view<const T, 4>& x, const tokens& at) noexcept {
    if constexpr (std::is_same_v<T, Acc>) {
      if (x.stride(3) == 1) return {x.pointer(at.batch, at.token, at.head, 0), x.stride(1)};
    }
    return {nullptr, 0};
  }
  /// A row with a sum of 0 has seen no key.
  static void store(const void* bound, const tokens& at, index_t, index_t, const Acc* rows, index_t stride,
                    const Acc* sum) noexcept {
    using vector = simd::batch<Acc>;
    constexpr index_t W = simd::width<Acc>;
    const view<T, 2> o = rows_of(self(bound).o, at, at.count);
    for (index_t r = 0; r < at.count; ++r) {
      const vector factor(sum[r] == Acc(0) ? Acc(0) : Acc(1) / sum[r]);
      for (index_t j = 0; j < o.extent(1); j += W) {
        simd::store_strided(o.pointer(r, j), o.stride(1), factor * simd::load(rows + r * stride + j),
                            std::min(W, o.extent(1) - j));
      }
    }
  }
  static void store_maxima(const void* bound, const tokens& at, const Acc* maxima) noexcept {
    for (index_t r = 0; r < at.count; ++r) {
      self(bound).op.max_logits(at.batch, at.token + r, at.head) = maxima[r];
    }
  }
};

template <class T>
status check_softmax(const softmax_attention<T>& op, const view<T, 4>& o, const options& how) noexcept {
  core::checker ask(softmax_attention<T>::name);
  ask.chunk(how);
  if (ask && how.form != form::automatic && how.form != form::left) {
    ask.refuse("form", status_code::value) << "must be automatic or left: softmax has no other";
  }
  ask.given("q", op.q).given("k", op.k).given("v", op.v).given("o", o);
  if (!ask) return ask.result();
  const index_t B = op.q.extent(0), L = op.q.extent(1), Hq = op.q.extent(2), D = op.q.extent(3);
  const index_t S = op.k.extent(1), H = op.k.extent(2), V = op.v.extent(3);
  ask.extents("q", op.q, {-1, -1, -1, -1}, "[B, L, Hq, D]");
  ask.extents("k", op.k, {B, -1, -1, D}, "[B, S, H, D], B and D as q");
  ask.extents("v", op.v, {B, S, H, -1}, "[B, S, H, V], B as q, S and H as k");
  ask.divides("H (heads of k)", H, "Hq (heads of q)", Hq);
  ask.lengths(op.lengths, B);
  if (ask && op.window < 0) {
    ask.refuse("window", status_code::value) << "= " << op.window << " must be 0 (none) or a number of keys";
  }
  if (ask && op.position < 0) {
    ask.refuse("position", status_code::value) << "= " << op.position << " must not be negative";
  }
  ask.extents("o", o, {B, L, Hq, V}, "[B, L, Hq, V]").output("o", o);
  ask.extents("max_logits", op.max_logits, {B, L, Hq}, "[B, L, Hq]").output("max_logits", op.max_logits);
  ask.apart("o", o, "q", op.q).apart("o", o, "k", op.k).apart("o", o, "v", op.v);
  ask.apart("o", o, "max_logits", op.max_logits);
  ask.apart("max_logits", op.max_logits, "q", op.q).apart("max_logits", op.max_logits, "k", op.k);
  ask.apart("max_logits", op.max_logits, "v", op.v);
  return ask.result();
}

template <class T>
void run_softmax(const softmax_attention<T>& op, const view<T, 4>& o, context& ctx) {
  const softmax_binding<T> bound{op, o};
  const auto p = bound.problem();
  ctx.reserve(static_cast<std::size_t>(ctx.workers()) * softmax_bytes(p));
  softmax(p, ctx);
}

}  // namespace detail

/// Whether the arguments fit together: nothing is read from the tensors or written.
template <storage T>
status check(const softmax_attention<T>& op, const std::type_identity_t<view<T, 4>>& o,
             const options& how = {}) noexcept {
  return detail::check_softmax(op, o, how);
}

/// Scratch, in bytes, that `forward` needs for `workers` threads, for as many queries or fewer.
template <storage T>
std::size_t scratch_bytes(const softmax_attention<T>& op, const options& = {}, int workers = 1) noexcept {
  const view<T, 4> o;
  return detail::softmax_bytes(detail::softmax_binding<T>{op, o}.problem()) *
         static_cast<std::size_t>(std::max(workers, 1));
}

/// Blocks of queries against tiles of keys, or, for a few rows, keys and values streamed from memory.
template <storage T>
void forward(prechecked_t, const softmax_attention<T>& op, const std::type_identity_t<view<T, 4>>& o,
             const options& = {}, context& ctx = default_context()) noexcept {
  detail::run_softmax(op, o, ctx);
}
template <storage T>
void forward(const softmax_attention<T>& op, const std::type_identity_t<view<T, 4>>& o, const options& how = {},
             context& ctx = default_context()) {
  require(detail::check_softmax(op, o, how));
  detail::run_softmax(op, o, ctx);
}

}  // namespace OGIVE_ABI
}  // namespace ogive

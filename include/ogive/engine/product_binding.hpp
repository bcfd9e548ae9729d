// L5: linear attention as the product engine sees it, causal or not: one set of hooks for every operator with the
// fields q, k, v, map, normalise, scale, qk_l2norm, eps, eps_at, key_mask, lengths, head_map, position (and, where it
// is causal, offsets).
#pragma once

#include <ogive/core/state.hpp>
#include <ogive/engine/feature_rows.hpp>
#include <ogive/engine/product.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// An operator, its state and where its outputs go: what the hooks of the product engine see.
template <class Op, class State, class Acc>
struct product_binding {
  using T = typename Op::scalar;

  const Op& op;
  const State& state;
  const view<T, 4>& o;

  index_t key_dim() const noexcept { return features(op.map, op.k.extent(3)); }
  quotient<Acc> divide() const noexcept { return quotient<Acc>::of(op, key_dim()); }

  product_problem<Acc> problem() const noexcept {
    product_problem<Acc> p{};
    p.batch = op.q.extent(0);
    p.queries = op.q.extent(1);
    p.keys = op.k.extent(1);
    p.query_heads = op.q.extent(2);
    p.key_heads = op.k.extent(2);
    p.heads = op.v.extent(2);
    p.key_dim = key_dim();
    p.value_dim = op.v.extent(3);
    p.input_dim = room_dim(op.map, op.k.extent(3));
    p.hooks = {this, load_q, load_k, load_v, store, q_as_is, o_as_is, q_rows, k_rows, v_rows, o_rows};
    p.states.state = this;
    if (state.initial.present()) p.states.load = load_state;
    if (state.final.present()) p.states.save = save_state;
    if constexpr (requires { op.offsets; }) {
      p.causal = true;
      p.offsets = op.offsets;
    }
    p.lengths = op.lengths;
    p.head_map = op.head_map;
    p.normalise = op.normalise;
    p.bias = divide().bias();
    p.outputs = o.present();
    p.split = elementwise_map<decltype(op.map)> && !state.final.present();
    return p;
  }

 private:
  static const product_binding& self(const void* bound) noexcept { return *static_cast<const product_binding*>(bound); }
  static void load_q(const void* bound, const tokens& at, Acc* q, index_t stride, Acc* room) noexcept {
    const Op& mine = self(bound).op;
    load_features(mine.map, mine.q, at, {.position = mine.position, .which = side::query}, mine.qk_l2norm, q, stride,
                  room);
  }
  static void load_k(const void* bound, const tokens& at, Acc* k, index_t stride, Acc* room) noexcept {
    const Op& mine = self(bound).op;
    load_features(mine.map, mine.k, at, {.position = mine.position, .which = side::key}, mine.qk_l2norm, k, stride,
                  room);
    clear_masked(mine.key_mask, at, k, stride, padded<Acc>(self(bound).key_dim()));
  }
  static void load_v(const void* bound, const tokens& at, index_t column, index_t columns, Acc* v,
                     index_t stride) noexcept {
    const Op& mine = self(bound).op;
    load_tokens(mine.v.slice(3, column, columns), at, v, stride);
    clear_masked(mine.key_mask, at, v, stride, padded<Acc>(columns));
  }
  static void store(const void* bound, const tokens& at, index_t column, index_t columns, const Acc* rows,
                    index_t stride, const Acc* denominator) noexcept {
    self(bound).divide().store(self(bound).o.slice(3, column, columns), at, rows, stride, denominator);
  }
  static linalg::panel<const Acc> q_as_is(const void* bound, const tokens& at) noexcept {
    const view<const T, 4>& q = self(bound).op.q;
    if constexpr (std::is_same_v<T, Acc> && std::is_same_v<decltype(op.map), maps::identity>) {
      if (!self(bound).op.qk_l2norm && q.stride(3) == 1 && q.extent(3) % simd::width<Acc> == 0)
        return {rows_of(q, at, 0).data(), q.stride(1)};
    }
    return {};
  }
  static rows_written<Acc> o_as_is(const void* bound, const tokens& at, index_t column, index_t columns,
                                   Acc* denominator) noexcept {
    if constexpr (std::is_same_v<T, Acc>) {
      const view<T, 4> o = self(bound).o.slice(3, column, columns);
      if (o.stride(3) == 1 && self(bound).divide().factors(at.count, denominator)) {
        return {{rows_of(o, at, 0).data(), o.stride(1)}, past_caches<Acc>(o)};
      }
    }
    return {};
  }
  static rows_ahead q_rows(const void* bound, const tokens& at) noexcept {
    return rows_of(self(bound).op.q, at, at.count);
  }
  static rows_ahead k_rows(const void* bound, const tokens& at) noexcept {
    return rows_of(self(bound).op.k, at, at.live);
  }
  static rows_ahead v_rows(const void* bound, const tokens& at, index_t column, index_t columns) noexcept {
    return rows_of(self(bound).op.v.slice(3, column, columns), at, at.live);
  }
  static rows_ahead o_rows(const void* bound, const tokens& at, index_t column, index_t columns) noexcept {
    if (past_caches<Acc>(self(bound).o)) return {};
    return rows_of(self(bound).o.slice(3, column, columns), at, at.count);
  }
  static index_t slot(const view<const std::int32_t, 1>& slots, index_t sequence) noexcept {
    return slots.present() ? static_cast<index_t>(slots[sequence]) : sequence;
  }
  /// A slot and head of z [slots, H, K] as a matrix of one row.
  template <class Element>
  static view<Element, 2> z_row(const view<Element, 3>& z, index_t at, index_t head) noexcept {
    return {z.pointer(at, head, 0), {1, z.extent(2)}, {0, z.stride(2)}};
  }
  static bool load_state(const void* bound, index_t sequence, index_t head, index_t column, index_t columns, Acc* S,
                         index_t stride, Acc* z) noexcept {
    const State& st = self(bound).state;
    const index_t from = slot(st.initial_slots, sequence);
    if (from < 0) return false;
    load_rows(st.initial[from][head].slice(1, column, columns), S, stride);
    zero_rows(z, 0, 1, padded<Acc>(st.initial.extent(2)));
    if constexpr (requires { st.z_initial; }) {
      if (st.z_initial.present()) load_rows(z_row(st.z_initial, from, head), z, 0);
    }
    return true;
  }
  static void save_state(const void* bound, index_t sequence, index_t head, index_t column, index_t columns,
                         const Acc* S, index_t stride, const Acc* z) noexcept {
    const State& st = self(bound).state;
    const index_t to = slot(st.final_slots, sequence);
    if (to < 0) return;
    store_rows(S, stride, st.final[to][head].slice(1, column, columns));
    if constexpr (requires { st.z_final; }) {
      if (st.z_final.present() && column == 0) store_rows(z, 0, z_row(st.z_final, to, head));
    }
  }
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

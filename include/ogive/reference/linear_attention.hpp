// L1*: linear attention by its definitions.
//
//   S_t = S_{t-1} + φ(k_t) v_tᵀ,   z_t = z_{t-1} + φ(k_t),   o_t = φ(q_t)ᵀ S_t / φ(q_t)ᵀ z_t
//       = Σ_{j≤t} (φ(q_t)·φ(k_j)) v_j / Σ_{j≤t} φ(q_t)·φ(k_j)
//
// and without the mask j ≤ t when it is not causal. Katharopoulos et al. 2020, arXiv:2006.16236. q and k are features
// here: `feature_maps.hpp` makes them.
//
// Under gates g [B,L,Hk] a token keeps f_t = exp(g_t) of S and of z, and 1 − f_t weighs what it writes: gated RFA,
// Peng et al. 2021, arXiv:2103.02143.
#pragma once

#include <ogive/reference/layout.hpp>

#include <cmath>

namespace ogive::reference {

/// O = (Q Kᵀ) V for one head, scores first: q, k [n, d], v, o [n, v]. Causal: row i touches j ≤ i only.
/// Multiply-adds: n²(d + v); causal n(n + 1)(d + v)/2.
template <class Acc, class Q, class K, class V, class O>
void left_product(const view<Q, 2>& q, const view<K, 2>& k, const view<V, 2>& v, const view<O, 2>& o,
                  bool causal = false) {
  for (index_t i = 0; i < q.extent(0); ++i) {
    tensor<Acc, 1> row({v.extent(1)}, Acc(0));
    for (index_t j = 0; j < (causal ? i + 1 : k.extent(0)); ++j) {
      Acc score(0);
      for (index_t r = 0; r < q.extent(1); ++r) score = score + lift<Acc>(q(i, r)) * lift<Acc>(k(j, r));
      for (index_t c = 0; c < v.extent(1); ++c) row(c) = row(c) + score * lift<Acc>(v(j, c));
    }
    for (index_t c = 0; c < v.extent(1); ++c) o(i, c) = lower<O>(row(c));
  }
}

/// O = Q (Kᵀ V) for one head, state first. Causal: the state holds the keys up to its row. Multiply-adds: 2ndv either
/// way, so for v = d the two products cost the same at n = d, causal at n = 2d − 1.
template <class Acc, class Q, class K, class V, class O>
void right_product(const view<Q, 2>& q, const view<K, 2>& k, const view<V, 2>& v, const view<O, 2>& o,
                   bool causal = false) {
  tensor<Acc, 2> S({q.extent(1), v.extent(1)}, Acc(0));
  const auto write = [&](index_t j) {
    for (index_t r = 0; r < S.extent(0); ++r) {
      for (index_t c = 0; c < S.extent(1); ++c) S(r, c) = S(r, c) + lift<Acc>(k(j, r)) * lift<Acc>(v(j, c));
    }
  };
  for (index_t j = 0; !causal && j < k.extent(0); ++j) write(j);
  for (index_t i = 0; i < q.extent(0); ++i) {
    if (causal) write(i);
    for (index_t c = 0; c < S.extent(1); ++c) {
      Acc sum(0);
      for (index_t r = 0; r < S.extent(0); ++r) sum = sum + S(r, c) * lift<Acc>(q(i, r));
      o(i, c) = lower<O>(sum);
    }
  }
}

/// The fields of linear attention, causal or not.
template <class Op>
concept linear_attention_fields = requires(const Op& op) {
  op.q, op.k, op.v, op.normalise, op.scale, op.eps, op.eps_at, op.key_mask, op.lengths, op.head_map;
};
/// Only the causal ones can be packed, or have gates.
template <class Op>
concept causal_linear_attention_fields = linear_attention_fields<Op> && requires(const Op& op) {
  op.offsets;
};

template <class Op>
concept gated_linear_attention_fields = causal_linear_attention_fields<Op> && requires(const Op& op) {
  op.g;
};

namespace detail {

template <class Op>
bool visible(const Op& op, const sequence& s, index_t token) {
  return token < s.live && (!op.key_mask.present() || op.key_mask(s.batch, token));
}

/// What a token keeps of the state, and the weight of what it writes: f and 1 − f under a gate, else 1 and 1.
template <class Acc>
struct kept_and_written {
  Acc keep, write;
};
template <class Acc, class Op>
kept_and_written<Acc> gate_of(const Op& op, index_t b, index_t t, index_t key_head) {
  using std::exp;
  using std::expm1;
  if constexpr (gated_linear_attention_fields<Op>) {
    const Acc g = lift<Acc>(op.g(b, t, key_head));
    return {exp(g), -expm1(g)};
  } else {
    return {Acc(1), Acc(1)};
  }
}

/// Calls `row(output head, query head)` for every output head that reads state head h.
template <class Op, class Row>
void for_readers(const Op& op, index_t h, const Row& row) {
  const index_t H = op.v.extent(2);
  const index_t Hq = op.q.extent(2);
  for (index_t out = 0; out < std::max(H, Hq); ++out) {
    if (read_by(out, Hq, H, op.head_map) == h) row(out, read_by(out, H, Hq, op.head_map));
  }
}

/// What a row of the output is made of: Σ w v, Σ w, and Σ φ(q) for an ε that is added to each key.
template <class Acc>
struct sums {
  tensor<Acc, 1> wv;
  Acc w;
  Acc q;
};

/// φ(q)ᵀ S, φ(q)·z, Σ φ(q)
template <class Acc>
sums<Acc> read(const tensor<Acc, 1>& q, const tensor<Acc, 2>& S, const tensor<Acc, 1>& z) {
  sums<Acc> row{tensor<Acc, 1>({S.extent(1)}, Acc(0)), Acc(0), Acc(0)};
  for (index_t r = 0; r < S.extent(0); ++r) {
    for (index_t c = 0; c < S.extent(1); ++c) row.wv(c) = row.wv(c) + q(r) * S(r, c);
    row.w = row.w + q(r) * z(r);
    row.q = row.q + q(r);
  }
  return row;
}

/// The quotient, by the rule of the operator. A denominator of 0 gives 0.
template <class Acc, class Op, class Out>
void write_row(const Op& op, const sums<Acc>& row, const view<Out, 1>& o) {
  using std::sqrt;
  const Acc K = static_cast<Acc>(std::max<index_t>(op.k.extent(3), 1));
  const Acc scale = op.scale ? static_cast<Acc>(*op.scale) : Acc(1) / sqrt(K);
  const Acc eps = static_cast<Acc>(op.eps);
  Acc factor = scale;
  Acc denominator(1);
  if (op.normalise) {
    const bool scaled = op.eps_at == eps_placement::scaled_sum;
    factor = scaled ? scale : Acc(1);
    denominator = factor * row.w;
    if (scaled || op.eps_at == eps_placement::sum) denominator = denominator + eps;
    if (op.eps_at == eps_placement::each_key) denominator = denominator + eps * row.q;
  }
  for (index_t c = 0; c < row.wv.extent(0); ++c) {
    o(c) = lower<Out>(denominator == Acc(0) ? Acc(0) : factor * row.wv(c) / denominator);
  }
}

/// z of a state that has one, else zeros.
template <class Acc, class State>
tensor<Acc, 1> load_z(const State& st, index_t s, index_t h, index_t K) {
  if constexpr (requires { st.z_initial; }) {
    return load<Acc>(st.z_initial, st.initial_slots, s, h, {K});
  } else {
    return tensor<Acc, 1>({K}, Acc(0));
  }
}

}  // namespace detail

/// Through the state, token by token (not causal: all keys first). q [B,L,Hq,K], k [B,L,Hk,K], v [B,L,H,V];
/// o [B,L,max(H,Hq),V] or absent; state S [slots,H,K,V], z [slots,H,K]. Not causal: k and v may have another length.
template <class Acc, linear_attention_fields Op, class State = linear_attention_state<double>, class Out>
void evaluate(const Op& op, const State& given, const view<Out, 4>& o) {
  constexpr bool causal = causal_linear_attention_fields<Op>;
  const auto st = state_of(given);
  const index_t H = op.v.extent(2);
  const index_t K = op.k.extent(3);
  const index_t V = op.v.extent(3);
  index_t n = 0;
  for (const sequence& s : sequences(op, op.k.extent(0), op.k.extent(1))) {
    for (index_t h = 0; h < H; ++h) {
      auto S = load<Acc>(st.initial, st.initial_slots, n, h, {K, V});
      auto z = detail::load_z<Acc>(st, n, h, K);
      const index_t key = read_by(h, H, op.k.extent(2), op.head_map);
      const auto read = [&](index_t i) {
        detail::for_readers(op, h, [&](index_t out, index_t query) {
          detail::write_row(op, detail::read(key_row<Acc>(op, op.q, s.batch, i, query), S, z), o[s.batch][i][out]);
        });
      };
      for (index_t t = s.begin; t < s.end; ++t) {
        const auto row = key_row<Acc>(op, op.k, s.batch, t, key);
        for (index_t r = 0; detail::visible(op, s, t) && r < K; ++r) {
          const auto [keep, write] = detail::gate_of<Acc>(op, s.batch, t, key);
          const Acc k = write * row(r);
          for (index_t c = 0; c < V; ++c) S(r, c) = keep * S(r, c) + k * lift<Acc>(op.v(s.batch, t, h, c));
          z(r) = keep * z(r) + k;
        }
        if (causal && o.present()) read(t);
      }
      for (index_t i = 0; !causal && i < o.extent(1); ++i) read(i);
      store(st.final, st.final_slots, n, h, S);
      if constexpr (requires { st.z_final; }) store(st.z_final, st.final_slots, n, h, z);
    }
    ++n;
  }
}

/// Through the scores, O(n²): o_i = Σ_j m_ij (φ(q_i)·φ(k_j)) v_j / Σ_j m_ij φ(q_i)·φ(k_j) with m_ij = [j ≤ i] or 1, or
/// [j ≤ i] (1 − f_j) f_{j+1} … f_i under gates, the initial state standing for the keys before. Writes no state.
template <class Acc, linear_attention_fields Op, class State = linear_attention_state<double>, class Out>
void evaluate_masked(const Op& op, const State& given, const view<Out, 4>& o) {
  constexpr bool causal = causal_linear_attention_fields<Op>;
  const auto st = state_of(given);
  const index_t H = op.v.extent(2);
  const index_t K = op.k.extent(3);
  const index_t V = op.v.extent(3);
  index_t n = 0;
  for (const sequence& s : sequences(op, op.k.extent(0), op.k.extent(1))) {
    for (index_t h = 0; h < H; ++h) {
      const auto S = load<Acc>(st.initial, st.initial_slots, n, h, {K, V});
      const auto z = detail::load_z<Acc>(st, n, h, K);
      const index_t key = read_by(h, H, op.k.extent(2), op.head_map);
      detail::for_readers(op, h, [&](index_t out, index_t query) {
        for (index_t i = causal ? s.begin : 0; i < (causal ? s.end : o.extent(1)); ++i) {
          detail::sums<Acc> row{tensor<Acc, 1>({V}, Acc(0)), Acc(0), Acc(0)};
          const auto q = key_row<Acc>(op, op.q, s.batch, i, query);
          Acc left(1);  // of what was there before token j
          for (index_t j = (causal ? i + 1 : s.end) - 1; j >= s.begin; --j) {
            if (!detail::visible(op, s, j)) continue;
            const auto k = key_row<Acc>(op, op.k, s.batch, j, key);
            Acc score(0);
            for (index_t r = 0; r < K; ++r) score = score + q(r) * k(r);
            const auto [keep, write] = detail::gate_of<Acc>(op, s.batch, j, key);
            score = left * write * score;
            for (index_t c = 0; c < V; ++c) row.wv(c) = row.wv(c) + score * lift<Acc>(op.v(s.batch, j, h, c));
            row.w = row.w + score;
            left = left * keep;
          }
          const auto before = detail::read(q, S, z);
          for (index_t c = 0; c < V; ++c) row.wv(c) = row.wv(c) + left * before.wv(c);
          row.w = row.w + left * before.w;
          row.q = before.q;
          detail::write_row(op, row, o[s.batch][i][out]);
        }
      });
    }
    ++n;
  }
}

}  // namespace ogive::reference

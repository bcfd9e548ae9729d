// L1*: the family with a matrix state S ∈ R^{K×V}, by its recurrences.
//
//   S'  = Diag(d_t) S_{t-1}
//   S_t = S' + k_t v_tᵀ                                              retention, (simple) GLA, HGRN2, RWKV-5 and -6
//   S_t = S' + k_t u_tᵀ,   u_t = β_t ⊙ (v_t − S'ᵀ k_t)               the delta rule, gated or not, KDA
//   S_t = S' + k_t v_tᵀ + b_t (S_{t-1}ᵀ a_t)ᵀ                        RWKV-7, DPLR, IPLR
//   o_t = s S_tᵀ q_t,   or   s (S_{t-1} + (u ⊙ k_t) v_tᵀ)ᵀ q_t       the latter for RWKV-5 and -6
//
// An operator is known by its letters:
//   q, or r                                 queries
//   k; where there is none, 1 − d           keys
//   log_gamma [H], g [B,L,H], g [B,L,H,K], w [H,K], w [B,L,H,K]; where there is none, d = 1      log d
//   beta [B,L,H], beta_per_value [B,L,H,V]  β; where there is none, v is added as it is
//   a and b; kk and a                       removal; from kk and a by a ← −kk, b ← kk ⊙ a
//   u [H,K], or k, v and w without kk       the bonus; these read before they write
// The papers stand with the operators.
#pragma once

#include <ogive/reference/layout.hpp>

#include <cmath>

namespace ogive::reference {

template <class Op>
concept decay_fields = requires(const Op& op) {
  op.log_gamma;
}
|| requires(const Op& op) { op.g; }
|| requires(const Op& op) { op.w; };
template <class Op>
concept correction_fields = requires(const Op& op) {
  op.beta;
}
|| requires(const Op& op) { op.a, op.b; };
/// What is divided by a normaliser is defined in `linear_attention.hpp`.
template <class Op>
concept normaliser_fields = requires(const Op& op) {
  op.normalise;
};
template <class Op>
concept matrix_state_fields = (decay_fields<Op> || correction_fields<Op>)&&!normaliser_fields<Op> &&
                              requires(const Op& op) {
  op.v, op.scale, op.lengths, op.offsets, op.head_map;
};

namespace detail {

template <class Op>
concept receptance_fields = requires(const Op& op) {
  op.r;
};
template <class Op>
concept delta_fields = requires(const Op& op) {
  op.beta;
};
template <class Op>
concept removal_fields = requires(const Op& op) {
  op.a;
};
template <class Op>
concept bonus_fields = requires(const Op& op) {
  op.u;
};

template <class Op>
auto queries_of(const Op& op) {
  if constexpr (receptance_fields<Op>) {
    return op.r;
  } else {
    return op.q;
  }
}

/// log d of one key channel.
template <class Acc, class Op>
Acc log_decay(const Op& op, index_t b, index_t t, index_t h, index_t r) {
  const auto from = [&](const auto& gate) {
    using Gate = std::remove_cvref_t<decltype(gate)>;
    if constexpr (Gate::rank == 1) return lift<Acc>(gate(h));
    if constexpr (Gate::rank == 2) return lift<Acc>(gate(h, r));
    if constexpr (Gate::rank == 3) return lift<Acc>(gate(b, t, h));
    if constexpr (Gate::rank == 4) return lift<Acc>(gate(b, t, h, r));
  };
  if constexpr (requires { op.log_gamma; }) {
    return from(op.log_gamma);
  } else if constexpr (requires { op.g; }) {
    return from(op.g);
  } else if constexpr (requires { op.w; }) {
    return from(op.w);
  } else {
    return Acc(0);
  }
}

/// s q of one query head.
template <class Acc, class Op>
tensor<Acc, 1> query_row(const Op& op, index_t b, index_t t, index_t h) {
  using std::sqrt;
  auto q = key_row<Acc>(op, queries_of(op), b, t, h);
  for (index_t r = 0; r < q.extent(0); ++r) {
    if constexpr (requires { *op.scale; }) {
      q(r) = q(r) * (op.scale ? static_cast<Acc>(*op.scale) : Acc(1) / sqrt(static_cast<Acc>(q.extent(0))));
    } else {
      q(r) = q(r) * static_cast<Acc>(op.scale);
    }
  }
  return q;
}

/// What one token of one state head does.
template <class Acc>
struct matrix_token {
  tensor<Acc, 1> d, k, v, a, b, beta;
};

template <class Acc, class Op>
matrix_token<Acc> token_of(const Op& op, index_t b, index_t t, index_t h) {
  using std::exp;
  using std::expm1;
  const index_t H = op.v.extent(2), K = queries_of(op).extent(3), V = op.v.extent(3);
  const auto zeros = [](index_t n) { return tensor<Acc, 1>({n}, Acc(0)); };
  matrix_token<Acc> x{zeros(K), zeros(K), zeros(V), zeros(K), zeros(K), zeros(V)};
  for (index_t r = 0; r < K; ++r) x.d(r) = exp(log_decay<Acc>(op, b, t, h, r));
  for (index_t c = 0; c < V; ++c) x.v(c) = lift<Acc>(op.v(b, t, h, c));
  if constexpr (requires { op.k; }) {
    const index_t key = read_by(h, H, op.k.extent(2), op.head_map);
    x.k = key_row<Acc>(op, op.k, b, t, key);
    for (index_t r = 0; removal_fields<Op> && r < K; ++r) {
      if constexpr (requires { op.kk; }) {
        x.a(r) = -lift<Acc>(op.kk(b, t, key, r));
        x.b(r) = lift<Acc>(op.kk(b, t, key, r)) * lift<Acc>(op.a(b, t, key, r));
      } else if constexpr (removal_fields<Op>) {
        x.a(r) = lift<Acc>(op.a(b, t, key, r));
        x.b(r) = lift<Acc>(op.b(b, t, key, r));
      }
    }
  } else {
    for (index_t r = 0; r < K; ++r) x.k(r) = -expm1(log_decay<Acc>(op, b, t, h, r));
    x.k = unit_row(op, std::move(x.k));
  }
  if constexpr (delta_fields<Op>) {
    for (index_t c = 0; c < V; ++c) {
      if (op.beta.present()) x.beta(c) = lift<Acc>(op.beta(b, t, h));
      if constexpr (requires { op.beta_per_value; }) {
        if (op.beta_per_value.present()) x.beta(c) = lift<Acc>(op.beta_per_value(b, t, h, c));
      }
    }
  }
  return x;
}

/// Σ_r S_rc x_r
template <class Acc>
Acc column_sum(const tensor<Acc, 2>& S, const tensor<Acc, 1>& x, index_t c) {
  Acc sum(0);
  for (index_t r = 0; r < S.extent(0); ++r) sum = sum + S(r, c) * x(r);
  return sum;
}

/// S ← S_t, column by column.
template <class Op, class Acc>
void advance(const matrix_token<Acc>& x, tensor<Acc, 2>& S) {
  for (index_t c = 0; c < S.extent(1); ++c) {
    const Acc removed = column_sum(S, x.a, c);
    for (index_t r = 0; r < S.extent(0); ++r) S(r, c) = x.d(r) * S(r, c);
    Acc u = x.v(c);
    if constexpr (delta_fields<Op>) u = x.beta(c) * (u - column_sum(S, x.k, c));
    for (index_t r = 0; r < S.extent(0); ++r) {
      S(r, c) = S(r, c) + x.k(r) * u;
      if constexpr (removal_fields<Op>) S(r, c) = S(r, c) + x.b(r) * removed;
    }
  }
}

/// What a token sees of its own value where it reads before it writes: q·(u ⊙ k).
template <class Acc, class Op>
Acc own_weight(const Op& op, const tensor<Acc, 1>& q, const tensor<Acc, 1>& k, index_t h) {
  Acc sum(0);
  if constexpr (bonus_fields<Op>) {
    for (index_t r = 0; op.u.present() && r < q.extent(0); ++r) sum = sum + q(r) * lift<Acc>(op.u(h, r)) * k(r);
  }
  return sum;
}

/// Calls `row(output head, query head)` for every output head that reads state head h.
template <class Op, class Row>
void for_outputs(const Op& op, index_t h, const Row& row) {
  const index_t H = op.v.extent(2), Hq = queries_of(op).extent(2);
  for (index_t out = 0; out < std::max(H, Hq); ++out) {
    if (read_by(out, Hq, H, op.head_map) == h) row(out, read_by(out, H, Hq, op.head_map));
  }
}

}  // namespace detail

/// Token by token. q [B,L,Hq,K], k, a, b [B,L,Hk,K], v [B,L,H,V]; o [B,L,max(H,Hq),V] or absent; state [slots,H,K,V].
template <class Acc, matrix_state_fields Op, class State = state<double>, class Out>
void evaluate(const Op& op, const State& given, const view<Out, 4>& o) {
  const auto st = state_of(given);
  const index_t H = op.v.extent(2), K = detail::queries_of(op).extent(3), V = op.v.extent(3);
  index_t n = 0;
  for (const sequence& s : sequences(op, op.v.extent(0), op.v.extent(1))) {
    for (index_t h = 0; h < H; ++h) {
      auto S = load<Acc>(st.initial, st.initial_slots, n, h, {K, V});
      for (index_t t = s.begin; t < s.end; ++t) {
        const bool live = t < s.live;
        const auto x = live ? detail::token_of<Acc>(op, s.batch, t, h) : detail::matrix_token<Acc>();
        if (live && !detail::bonus_fields<Op>) detail::advance<Op>(x, S);
        detail::for_outputs(op, h, [&](index_t out, index_t query) {
          if (!o.present()) return;
          const auto q = detail::query_row<Acc>(op, s.batch, t, query);
          const Acc own = live ? detail::own_weight(op, q, x.k, h) : Acc(0);
          for (index_t c = 0; c < V; ++c) {
            const Acc sum = detail::column_sum(S, q, c);
            o(s.batch, t, out, c) = lower<Out>(live ? sum + own * x.v(c) : sum);
          }
        });
        if (live && detail::bonus_fields<Op>) detail::advance<Op>(x, S);
      }
      store(st.final, st.final_slots, n, h, S);
    }
    ++n;
  }
}

/// Where writes only add: through the scores, O(n²), o_i = s Σ_j (Σ_r q_ir k_jr Π_{j<m≤i} d_mr) v_j with j ≤ i, the
/// initial state S₀ adding s (Π_{m≤i} d_m ⊙ q_i)ᵀ S₀. A token that reads before it writes sees j < i, decays before its
/// own, and itself through the bonus. Writes no state.
template <class Acc, matrix_state_fields Op, class State = state<double>, class Out>
requires(!detail::delta_fields<Op> &&
         !detail::removal_fields<Op>) void evaluate_masked(const Op& op, const State& given, const view<Out, 4>& o) {
  const auto st = state_of(given);
  const index_t H = op.v.extent(2), K = detail::queries_of(op).extent(3), V = op.v.extent(3);
  index_t n = 0;
  for (const sequence& s : sequences(op, op.v.extent(0), op.v.extent(1))) {
    for (index_t h = 0; h < H; ++h) {
      const auto S = load<Acc>(st.initial, st.initial_slots, n, h, {K, V});
      std::vector<detail::matrix_token<Acc>> all;
      for (index_t t = s.begin; t < s.live; ++t) all.push_back(detail::token_of<Acc>(op, s.batch, t, h));
      detail::for_outputs(op, h, [&](index_t out, index_t query) {
        for (index_t i = s.begin; i < s.end; ++i) {
          auto q = detail::query_row<Acc>(op, s.batch, i, query);  // decayed further with every token it looks back
          tensor<Acc, 1> row({V}, Acc(0));
          const auto add = [&](const Acc& weight, index_t j) {
            for (index_t c = 0; c < V; ++c) row(c) = row(c) + weight * all[static_cast<std::size_t>(j - s.begin)].v(c);
          };
          for (index_t j = std::min(i, s.live - 1); j >= s.begin; --j) {
            const auto& x = all[static_cast<std::size_t>(j - s.begin)];
            if (detail::bonus_fields<Op> && j == i) {
              add(detail::own_weight(op, q, x.k, h), j);
              continue;
            }
            Acc score(0);
            for (index_t r = 0; r < K; ++r) score = score + q(r) * x.k(r);
            add(score, j);
            for (index_t r = 0; r < K; ++r) q(r) = q(r) * x.d(r);
          }
          for (index_t c = 0; c < V; ++c) o(s.batch, i, out, c) = lower<Out>(row(c) + detail::column_sum(S, q, c));
        }
      });
    }
    ++n;
  }
}

}  // namespace ogive::reference

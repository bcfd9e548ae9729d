// L1*: S4 by its definition: the full system of conjugate pairs as a dense matrix, the bilinear rule by elimination.
//
//   A = diag(Λ) − Σ_r P_r P_rᴴ of [x, x̄],   (I − Δ/2 A) [A̅, B̅] = [I + Δ/2 A, Δ B],   h_t = A̅ h_{t-1} + B̅ u_t,   y = C h
//   + D u
//
// Gu, Goel & Ré, arXiv:2111.00396.
#pragma once

#include <ogive/reference/layout.hpp>

namespace ogive::reference {

template <class Op>
concept s4_fields = requires(const Op& op) {
  op.u(0, 0, 0), op.Lambda(0, 0), op.P(0, 0, 0), op.B(0, 0), op.C(0, 0), op.dt(0), op.D(0), op.Q(0, 0, 0);
};

/// A̅ [2N, 2N] and, as the last column, B̅ of channel c.
template <class Acc, s4_fields Op>
auto bilinear_system(const Op& op, index_t c) {
  using Number = decltype(lift<Acc>(op.Lambda(0, 0)));
  using std::abs;
  using std::conj;
  const index_t N = op.Lambda.extent(1), F = 2 * N;
  const auto full = [&](const auto& x, index_t i) { return i < N ? lift<Acc>(x(i)) : conj(lift<Acc>(x(i - N))); };
  tensor<Number, 2> left({F, F}), right({F, F + 1});
  for (index_t i = 0; op.Q.present() && i < F; ++i) {  // a step as it is
    for (index_t j = 0; j < F; ++j) {
      right(i, j) = i == j ? full(op.Lambda[c], i) : Number(Acc(0));
      for (index_t r = 0; r < op.P.extent(1); ++r) {
        right(i, j) = right(i, j) - full(op.P[c][r], i) * full(op.Q[c][r], j);
      }
    }
    right(i, F) = full(op.B[c], i);
  }
  if (op.Q.present()) return right;
  const Acc dt = lift<Acc>(op.dt(c)), half = dt / Acc(2);
  for (index_t i = 0; i < F; ++i) {
    for (index_t j = 0; j < F; ++j) {
      Number A = i == j ? full(op.Lambda[c], i) : Number(Acc(0));
      for (index_t r = 0; r < op.P.extent(1); ++r) A = A - full(op.P[c][r], i) * conj(full(op.P[c][r], j));
      left(i, j) = Number(Acc(i == j ? 1 : 0)) - half * A;
      right(i, j) = Number(Acc(i == j ? 1 : 0)) + half * A;
    }
    right(i, F) = dt * full(op.B[c], i);
  }
  for (index_t k = 0; k < F; ++k) {
    index_t pivot = k;
    for (index_t i = k + 1; i < F; ++i) {
      if (abs(left(i, k)) > abs(left(pivot, k))) pivot = i;
    }
    for (index_t j = 0; j < F; ++j) std::swap(left(k, j), left(pivot, j));
    for (index_t j = 0; j <= F; ++j) std::swap(right(k, j), right(pivot, j));
    for (index_t i = 0; i < F; ++i) {
      const Number factor = i == k ? Number(Acc(0)) : left(i, k) / left(k, k);
      for (index_t j = 0; i != k && j < F; ++j) left(i, j) = left(i, j) - factor * left(k, j);
      for (index_t j = 0; i != k && j <= F; ++j) right(i, j) = right(i, j) - factor * right(k, j);
    }
  }
  for (index_t i = 0; i < F; ++i)
    for (index_t j = 0; j <= F; ++j) right(i, j) = right(i, j) / left(i, i);
  return right;
}

/// One step of the full state, and 2 Re Σ_n C_n h_n.
template <class Acc, class Number>
void advance(const tensor<Number, 2>& system, tensor<Number, 1>& h, const Acc& u) {
  const tensor<Number, 1> before = h;
  const index_t F = h.extent(0);
  for (index_t i = 0; i < F; ++i) {
    h(i) = system(i, F) * u;
    for (index_t j = 0; j < F; ++j) h(i) = h(i) + system(i, j) * before(j);
  }
}
template <class Acc, class Op, class Number>
Acc read_pairs(const Op& op, index_t c, const tensor<Number, 1>& h) {
  Acc sum(0);
  for (index_t n = 0; n < op.C.extent(1); ++n) sum = sum + Acc(2) * (lift<Acc>(op.C(c, n)) * h(n)).real();
  return sum;
}

/// u [B, L, D], Lambda, B and C [D, N], P [D, R, N], dt [D], D [D] and Q [D, R, N] or absent; y [B, L, D] or absent;
/// state [slots, D, N].
template <class Acc, s4_fields Op, class State, class Out>
void evaluate(const Op& op, const State& given, const view<Out, 3>& y) {
  using Number = decltype(lift<Acc>(op.Lambda(0, 0)));
  using std::conj;
  const auto st = state_of(given);
  const index_t N = op.Lambda.extent(1);
  for (index_t c = 0; c < op.u.extent(2); ++c) {
    const auto system = bilinear_system<Acc>(op, c);
    index_t s = 0;
    for (const auto& [b, begin, end, live] : sequences(op, op.u.extent(0), op.u.extent(1))) {
      auto half = load<Acc, Number>(st.initial, st.initial_slots, s, c, {N});
      tensor<Number, 1> h({2 * N});
      for (index_t n = 0; n < N; ++n) h(N + n) = conj(h(n) = half(n));
      for (index_t t = begin; t < end; ++t) {
        const Acc u = lift<Acc>(op.u(b, t, c));
        if (t < live) advance(system, h, u);
        Acc out = read_pairs<Acc>(op, c, h);
        if (op.D.present()) out = out + lift<Acc>(op.D(c)) * u;
        if (y.present()) y(b, t, c) = lower<Out>(out);
      }
      for (index_t n = 0; n < N; ++n) half(n) = h(n);
      store(st.final, st.final_slots, s, c, half);
      ++s;
    }
  }
}

/// K [D, L], without D.
template <class Acc, s4_fields Op, class Out>
void kernel(const Op& op, const view<Out, 2>& K) {
  using Number = decltype(lift<Acc>(op.Lambda(0, 0)));
  for (index_t c = 0; c < K.extent(0); ++c) {
    const auto system = bilinear_system<Acc>(op, c);
    tensor<Number, 1> h({2 * op.Lambda.extent(1)});
    for (index_t l = 0; l < K.extent(1); ++l) {
      advance(system, h, Acc(l == 0 ? 1 : 0));
      K(c, l) = lower<Out>(read_pairs<Acc>(op, c, h));
    }
  }
}

}  // namespace ogive::reference

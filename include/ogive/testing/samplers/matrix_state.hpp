// What samples of the operators with a matrix state have in common: sizes, gates, and how far rounding may carry.
#pragma once

#include <ogive/reference/matrix_state.hpp>
#include <ogive/testing/samplers/heads.hpp>

#include <cmath>

namespace ogive::testing {

/// Drawn sizes: head counts, K and V.
struct matrix_sizes {
  index_t batch, length;
  head_counts n;
  index_t K, V;

  matrix_sizes(rng& random, index_t sequences, index_t tokens)
      : batch(sequences), length(tokens), n(draw_heads(random)), K(odd_extent(random, 65)), V(odd_extent(random, 65)) {}

  shape<4> queries() const { return {batch, length, n.queries, K}; }
  shape<4> keys() const { return {batch, length, n.keys, K}; }
  shape<4> values() const { return {batch, length, n.values, V}; }
  shape<3> per_head() const { return {batch, length, n.values}; }
  shape<4> per_key() const { return {batch, length, n.values, K}; }
};

/// Log decays g, one for each head (rank 3) or for each of its key channels (rank 4).
template <class T, std::size_t Rank>
void draw_gates(rng& random, memory& room, const matrix_sizes& n, view<const T, Rank>& g) {
  if constexpr (Rank == 3) {
    g = draw_uniform<T>(random, room, n.per_head(), -1, 0);
  } else {
    g = draw_uniform<T>(random, room, n.per_key(), -1, 0);
  }
}

/// Log decays that forget nothing, next to nothing, much, and everything, side by side.
template <class T, std::size_t Rank>
void harden_gates(rng& random, const view<const T, Rank>& g) {
  constexpr T gates[] = {T(0), T(-1e-6), T(-0.1), T(-1), T(-50), T(-1e4), -std::numeric_limits<T>::infinity()};
  for_each(g, [&](const T& gate, index_t) { const_cast<T&>(gate) = gates[random.integer(0, 6)]; });
}
/// The same where a head of its own grows, if there is more than one; `axis` is that of the heads.
template <class T, std::size_t Rank>
void harden_gates(rng& random, const view<const T, Rank>& g, std::size_t axis) {
  harden_gates(random, g);
  if (g.extent(axis) < 2) return;
  for_each(g.slice(axis, 1, 1), [](const T& gate, index_t) { const_cast<T&>(gate) = T(0.05); });
}

/// Rounding of decays: an exponent loses |g| units of its last place, up to where the exponential is 0.
template <class Acc>
index_t decay_roundings() {
  return static_cast<index_t>(-std::log(static_cast<double>(std::numeric_limits<Acc>::min())));
}

template <class Op>
struct matrix_state_sampler {
  static constexpr std::tuple<> parameters{};

  static shape<4> output(const Op& x) {
    const auto q = reference::detail::queries_of(x);
    return {q.extent(0), q.extent(1), std::max(q.extent(2), x.v.extent(2)), x.v.extent(3)};
  }
  static shape<3> slot(const Op& x) {
    return {x.v.extent(2), reference::detail::queries_of(x).extent(3), x.v.extent(3)};
  }
  template <class Acc, class State>
  static void define(const Op& x, const State& st, const view<double, 4>& o) {
    reference::evaluate<Acc>(x, st, o);
  }

 protected:
  /// What every operator has: queries, keys (up to `key` in magnitude) and values, both head maps, its own scale or
  /// another, rows as they are or normalised.
  static Op drawn(rng& random, memory& room, const matrix_sizes& n, double key = 1) {
    using T = typename Op::scalar;
    Op x;
    const auto queries = draw_uniform<T>(random, room, n.queries());
    if constexpr (requires { x.r; }) {
      x.r = queries;
    } else {
      x.q = queries;
    }
    if constexpr (requires { x.k; }) x.k = draw_uniform<T>(random, room, n.keys(), -key, key);
    x.v = draw_uniform<T>(random, room, n.values());
    x.head_map = coin(random) ? heads::tiled : heads::consecutive;
    if (coin(random)) x.scale = static_cast<accum_t<T>>(random.uniform(0.1, 2));
    draw_l2norm(random, x);
    return x;
  }
};

/// Operators whose writes only add: the definition has a second form, and magnitudes are those of the same operator on
/// absolute values.
template <class Op>
struct additive_sampler : matrix_state_sampler<Op> {
  static constexpr bool splits_time = true;

  template <class Acc, class State>
  static void define_masked(const Op& x, const State& st, const view<double, 4>& o) {
    reference::evaluate_masked<Acc>(x, st, o);
  }
  static Op absolute(Op x, memory& room) {
    const auto make = [&](auto& field) { field = testing::absolute(room, field); };
    if constexpr (requires { x.r; }) {
      make(x.r);
    } else {
      make(x.q);
    }
    if constexpr (requires { x.k; }) make(x.k);
    make(x.v);
    if constexpr (requires { x.u; }) make(x.u);
    return x;
  }
  /// Sums over the tokens and the state; a few per token for its decay.
  static index_t roundings(const Op& x) {
    const shape<4> o = matrix_state_sampler<Op>::output(x);
    const index_t K = matrix_state_sampler<Op>::slot(x)[1];
    return 6 * o[1] + 2 * K + l2norm_roundings(x, K) + 32 + 6 * decay_roundings<accum_t<typename Op::scalar>>();
  }
};

/// Stands for an operator whose writes depend on its state: what it "computes" is how far the roundings of the operator
/// may carry, in units of the roundings of one token.
///
/// With u_t written along k_t (the delta rule), or w_t = Sᵀ a_t along b_t, an error in a column of S goes through
/// T = (I − β k kᵀ) D, or D + b aᵀ, from token to token: by at most ρ = max(1, |1 − β‖k‖²|)·max d in the Euclidean
/// norm, or max d + ‖a‖‖b‖, or, with T = D (I − γ a aᵀ) + r aᵀ, max(1, |1 − γ‖a‖²|)·max d + ‖a‖‖r‖ for whatever γ. New
/// ones come from what a token adds up: S' = D S, kᵀ S', the write. In chunks a state is kept as S₀ and all writes
/// since, so its terms may exceed its norm: their sum is P ≤ max d · P + ‖k‖|u|. Then
///
///   E_t = ρ E_{t-1} + (1 + |β|‖k‖²) max(d + |g| d) P_{t-1} + ‖k‖(|β v| + |u|)
///
/// bounds a column's error by E times the roundings of a token, in every form: the unit triangular solve in a chunk is
/// this recurrence, so an error of row i there reaches later rows as it would from token to token; T = (I + A)⁻¹ itself
/// has no other entries than products of these ρ. The writes u are those of zero initial states, exact, plus what the
/// initial ones can be at most, h = ρ h.
template <class Op>
struct carried_errors {
  Op op;
};

template <class Op>
struct sampler<carried_errors<Op>> {
  template <class Acc, class State>
  static void define(const carried_errors<Op>& x, const State& st, const view<double, 4>& o) {
    const Op& op = x.op;
    const index_t H = op.v.extent(2), K = reference::detail::queries_of(op).extent(3), V = op.v.extent(3);
    index_t n = 0;
    for (const reference::sequence& s : reference::sequences(op, op.v.extent(0), op.v.extent(1))) {
      for (index_t h = 0; h < H; ++h) {
        const auto S0 = reference::load<double>(st.initial, st.initial_slots, n, h, {K, V});
        tensor<double, 2> S({K, V}, 0.0);
        std::vector<column> columns;
        for (index_t c = 0; c < V; ++c) columns.emplace_back(norm(S0.all().slice(1, c, 1)));
        for (index_t t = s.begin; t < s.end; ++t) {
          if (t < s.live) advance(op, s.batch, t, h, S, columns);
          reference::detail::for_outputs(op, h, [&](index_t out, index_t query) {
            const double q = norm(reference::detail::query_row<double>(op, s.batch, t, query).all());
            for (index_t c = 0; c < V; ++c) o(s.batch, t, out, c) = q * columns[static_cast<std::size_t>(c)].size();
          });
        }
        for (index_t c = 0; c < V; ++c) {
          for (index_t r = 0; r < K; ++r) S(r, c) = columns[static_cast<std::size_t>(c)].size();
        }
        reference::store(st.final, st.final_slots, n, h, S);
      }
      ++n;
    }
  }

 private:
  struct column {
    double h, P, E = 0;
    explicit column(double initial) : h(initial), P(initial) {}
    double size() const { return E + P; }
  };

  static void advance(const Op& op, index_t b, index_t t, index_t head, tensor<double, 2>& S,
                      std::vector<column>& columns) {
    const auto x = reference::detail::token_of<double>(op, b, t, head);
    double d = 0, rounded = 0;  // max d and max d + |g| d
    for (index_t r = 0; r < x.d.extent(0); ++r) {
      const double loss = x.d(r) > 0 ? -std::log(x.d(r)) : 0;
      d = std::fmax(d, x.d(r));
      rounded = std::fmax(rounded, x.d(r) * (1 + std::fabs(loss)));
    }
    const double k = norm(x.k.all()), a = norm(x.a.all()), removal = a * norm(x.b.all());
    double along = 0, square = 0, rest = 0;
    for (index_t r = 0; r < x.d.extent(0); ++r) {
      const double decayed = x.d(r) * x.a(r);
      along -= x.b(r) * decayed, square += decayed * decayed;
    }
    const double gamma = square > 0 ? along / square : 0;
    for (index_t r = 0; r < x.d.extent(0); ++r) rest += std::pow(x.b(r) + gamma * x.d(r) * x.a(r), 2);
    const double reflected = d * std::fmax(1, std::fabs(1 - gamma * a * a)) + a * std::sqrt(rest);
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const auto c = static_cast<index_t>(i);
      column& one = columns[i];
      const double beta = std::fabs(x.beta(c)), v = std::fabs(x.v(c));
      double rho = std::fmin(d + removal, reflected);
      double write = k * v;
      double terms = (rounded + removal) * one.P + write;
      if constexpr (reference::detail::delta_fields<Op>) {
        double read = 0;
        for (index_t r = 0; r < S.extent(0); ++r) read += x.k(r) * x.d(r) * S(r, c);
        rho = d * std::fmax(1, std::fabs(1 - x.beta(c) * k * k));
        write = k * beta * (std::fabs(x.v(c) - read) + k * d * one.h);
        terms = (1 + beta * k * k) * rounded * one.P + k * beta * v + write;
      } else {
        double read = 0;
        for (index_t r = 0; r < S.extent(0); ++r) read += x.a(r) * S(r, c);
        write += norm(x.b.all()) * (std::fabs(read) + norm(x.a.all()) * one.h);
        terms += write;
      }
      one.E = rho * one.E + terms;
      one.P = d * one.P + write;
      one.h = rho * one.h;
    }
    reference::detail::advance<Op>(x, S);
  }
};

/// Operators whose writes depend on their state.
template <class Op>
struct correcting_sampler : matrix_state_sampler<Op> {
  static constexpr bool corrects = true;  // a write depends on what was read

  static carried_errors<Op> absolute(const Op& x, memory&) { return {x}; }
  /// Of one token: a dot product over the state for q, k and their norms, the tokens of a chunk, a few for its decay.
  static index_t roundings(const Op& x) {
    return 3 * matrix_state_sampler<Op>::slot(x)[1] + matrix_state_sampler<Op>::output(x)[1] + 32;
  }
};

}  // namespace ogive::testing

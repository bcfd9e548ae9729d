// L1*: linear time-invariant systems by their definitions: dense, of modes per channel, of modes that all channels
// share.
//
//   dense      h_t = A̅ h_{t-1} + B̅ u_t                    y_t = C h_t + D u_t                 K_l = C A̅ˡ B̅
//   S4D        h_t = a ⊙ h_{t-1} + b u_t per channel       y_t = 2 Re(c·h_t) + D u_t           K_l = 2 Re Σ_n c_n a_nˡ
//   b_n S5         h_t = a ⊙ h_{t-1} + w ⊙ B u_t               y_t = 2 Re(C h_t) + D ⊙ u_t         K_l = 2 Re(C Diag(aˡ
//   w) B) LRU        the same                                    y_t = Re(C h_t) + D ⊙ u_t           K_l = Re(C Diag(aˡ
//   w) B)
//
// For S4D and S5 a, b = w B is the pole A held over Δ by the operator's rule; half of each conjugate pair is kept, and
// a real A counts once. For the LRU a = exp(−exp ν + i exp θ) and w = √(1 − |a|²), or exp of what is given for it. D
// alone, Σ_l K_l u_{t−l} and what A̅ᵗ leaves of the initial state make y: the convolution. Gu et al., arXiv:2206.11893
// (S4D); Smith, Warrington and Linderman, arXiv:2208.04933 (S5); Orvieto et al., arXiv:2303.06349 (LRU).
#pragma once

#include <ogive/reference/discretisation.hpp>
#include <ogive/reference/layout.hpp>

namespace ogive::reference {

template <class Op>
concept lti_fields = requires(const Op& op) {
  op.u, op.A_bar, op.B_bar, op.C, op.D;
};
/// S4D: A, B and C [D, N], dt [D].
template <class Op>
concept channel_modes_fields = requires(const Op& op) {
  op.u(0, 0, 0), op.A(0, 0), op.B(0, 0), op.C(0, 0), op.dt(0), op.D(0), op.rule;
};
/// S5: A and dt [N], B [N, M], C [P, N].
template <class Op>
concept s5_fields = requires(const Op& op) {
  op.u(0, 0, 0), op.A(0), op.B(0, 0), op.C(0, 0), op.dt(0), op.D(0), op.rule;
};
/// LRU: ν, θ and γ [N], all of them logarithms; B [N, M], C [P, N].
template <class Op>
concept lru_fields = requires(const Op& op) {
  op.u(0, 0, 0), op.nu_log(0), op.theta_log(0), op.gamma_log, op.B(0, 0), op.C(0, 0), op.D(0);
};
template <class Op>
concept shared_modes_fields = s5_fields<Op> || lru_fields<Op>;

/// What a sum over modes is as an output: the sum itself where they are real, else `factor` times its real part.
template <class Acc, class Number>
Acc real_output(const Number& sum, const Acc& factor) {
  if constexpr (requires { sum.real(); }) {
    return factor * sum.real();
  } else {
    return sum;
  }
}

/// α of generalised_bilinear, where the operator has one.
template <class Acc, class Op>
Acc alpha_of(const Op& op) {
  if constexpr (requires { op.alpha; }) {
    return Acc(op.alpha);
  } else {
    return Acc(1) / Acc(2);
  }
}

/// Δ, which a rule that does not look at it may leave out.
template <class Acc, class Op>
Acc step_of(const Op& op, index_t i) {
  return op.dt.present() ? lift<Acc>(op.dt(i)) : Acc(0);
}

/// a and w of shared modes, and what the real part of C h is multiplied by.
template <class Acc, class Number>
struct shared_modes {
  std::vector<Number> a{}, w{};
  Acc factor{};
};

template <class Acc, s5_fields Op>
auto modes_of(const Op& op) {
  using Number = decltype(lift<Acc>(op.A(0)));
  shared_modes<Acc, Number> modes{.factor = Acc(2)};
  for (index_t n = 0; n < op.A.extent(0); ++n) {
    const auto [a, w] = reference::discretise(op.rule, Number(lift<Acc>(op.A(n))), Number(Acc(1)), step_of<Acc>(op, n),
                                              alpha_of<Acc>(op));
    modes.a.push_back(a);
    modes.w.push_back(w);
  }
  return modes;
}

template <class Acc, lru_fields Op>
auto modes_of(const Op& op) {
  using std::exp;
  using std::expm1;
  using std::sqrt;
  using Number = std::complex<Acc>;
  shared_modes<Acc, Number> modes{.factor = Acc(1)};
  for (index_t n = 0; n < op.nu_log.extent(0); ++n) {
    const Acc rate = exp(lift<Acc>(op.nu_log(n)));
    modes.a.push_back(exp(Number(-rate, exp(lift<Acc>(op.theta_log(n))))));
    const Acc w = op.gamma_log.present() ? exp(lift<Acc>(op.gamma_log(n))) : sqrt(-expm1(Acc(-2) * rate));
    modes.w.push_back(Number(w));
  }
  return modes;
}

/// token(h, b, t, live) for all tokens of all sequences, h [N] being the state of each.
template <class Acc, class Number, class Op, class State, class Token>
void over_tokens(const Op& op, const State& given, index_t N, const Token& token) {
  const auto st = state_of(given);
  index_t s = 0;
  for (const auto& [b, begin, end, live] : sequences(op, op.u.extent(0), op.u.extent(1))) {
    auto h = load<Acc, Number>(one_channel(st.initial), st.initial_slots, s, 0, shape<1>{N});
    for (index_t t = begin; t < end; ++t) token(h, b, t, t < live);
    store(one_channel(st.final), st.final_slots, s, 0, h);
    ++s;
  }
}

/// u [B, L, M], A̅ [N, N], B̅ [N, M], C [P, N], D [P, M] or absent; y [B, L, P] or absent; state [slots, N].
template <class Acc, lti_fields Op, class State, class Out>
void evaluate(const Op& op, const State& st, const view<Out, 3>& y) {
  const index_t N = op.A_bar.extent(0), M = op.B_bar.extent(1);
  over_tokens<Acc, Acc>(op, st, N, [&](tensor<Acc, 1>& h, index_t b, index_t t, bool live) {
    if (live) {
      const tensor<Acc, 1> before = h;
      for (index_t i = 0; i < N; ++i) {
        Acc sum(0);
        for (index_t j = 0; j < N; ++j) sum = sum + lift<Acc>(op.A_bar(i, j)) * before(j);
        for (index_t m = 0; m < M; ++m) sum = sum + lift<Acc>(op.B_bar(i, m)) * lift<Acc>(op.u(b, t, m));
        h(i) = sum;
      }
    }
    for (index_t p = 0; y.present() && p < y.extent(2); ++p) {
      Acc sum(0);
      for (index_t i = 0; i < N; ++i) sum = sum + lift<Acc>(op.C(p, i)) * h(i);
      for (index_t m = 0; op.D.present() && m < M; ++m) sum = sum + lift<Acc>(op.D(p, m)) * lift<Acc>(op.u(b, t, m));
      y(b, t, p) = lower<Out>(sum);
    }
  });
}

/// u [B, L, M], B [N, M], C [P, N], D [M] or absent; y [B, L, P] or absent; state [slots, N].
template <class Acc, shared_modes_fields Op, class State, class Out>
void evaluate(const Op& op, const State& st, const view<Out, 3>& y) {
  const auto modes = modes_of<Acc>(op);
  using Number = typename decltype(modes.a)::value_type;
  const auto N = static_cast<index_t>(modes.a.size());
  over_tokens<Acc, Number>(op, st, N, [&](tensor<Number, 1>& h, index_t b, index_t t, bool live) {
    for (index_t n = 0; live && n < N; ++n) {
      Number input(Acc(0));
      for (index_t m = 0; m < op.B.extent(1); ++m) input = input + lift<Acc>(op.B(n, m)) * lift<Acc>(op.u(b, t, m));
      const auto at = static_cast<std::size_t>(n);
      h(n) = modes.a[at] * h(n) + modes.w[at] * input;
    }
    for (index_t p = 0; y.present() && p < y.extent(2); ++p) {
      Number sum(Acc(0));
      for (index_t n = 0; n < N; ++n) sum = sum + lift<Acc>(op.C(p, n)) * h(n);
      Acc out = real_output(sum, modes.factor);
      if (op.D.present()) out = out + lift<Acc>(op.D(p)) * lift<Acc>(op.u(b, t, p));
      y(b, t, p) = lower<Out>(out);
    }
  });
}

/// u [B, L, D], A, B and C [D, N], dt [D], D [D] or absent; y [B, L, D] or absent; state [slots, D, N].
template <class Acc, channel_modes_fields Op, class State, class Out>
void evaluate(const Op& op, const State& given, const view<Out, 3>& y) {
  using Number = decltype(lift<Acc>(op.A(0, 0)));
  const auto st = state_of(given);
  const index_t N = op.A.extent(1);
  index_t s = 0;
  for (const auto& [b, begin, end, live] : sequences(op, op.u.extent(0), op.u.extent(1))) {
    for (index_t c = 0; c < op.u.extent(2); ++c) {
      auto h = load<Acc, Number>(st.initial, st.initial_slots, s, c, {N});
      for (index_t t = begin; t < end; ++t) {
        const Acc u = lift<Acc>(op.u(b, t, c));
        Number sum(Acc(0));
        for (index_t n = 0; n < N; ++n) {
          const auto [A_bar, B_bar] =
              reference::discretise(op.rule, Number(lift<Acc>(op.A(c, n))), Number(lift<Acc>(op.B(c, n))),
                                    step_of<Acc>(op, c), alpha_of<Acc>(op));
          if (t < live) h(n) = A_bar * h(n) + B_bar * u;
          sum = sum + lift<Acc>(op.C(c, n)) * h(n);
        }
        Acc out = real_output(sum, Acc(2));
        if (op.D.present()) out = out + lift<Acc>(op.D(c)) * u;
        if (y.present()) y(b, t, c) = lower<Out>(out);
      }
      store(st.final, st.final_slots, s, c, h);
    }
    ++s;
  }
}

/// K [P, M, L] of a dense system, without D.
template <class Acc, lti_fields Op, class Out>
void kernel(const Op& op, const view<Out, 3>& K) {
  const index_t N = op.A_bar.extent(0);
  for (index_t m = 0; m < K.extent(1); ++m) {
    tensor<Acc, 1> x(shape<1>{N}, Acc(0));
    for (index_t i = 0; i < N; ++i) x(i) = lift<Acc>(op.B_bar(i, m));
    for (index_t l = 0; l < K.extent(2); ++l) {
      for (index_t p = 0; p < K.extent(0); ++p) {
        Acc sum(0);
        for (index_t i = 0; i < N; ++i) sum = sum + lift<Acc>(op.C(p, i)) * x(i);
        K(p, m, l) = lower<Out>(sum);
      }
      const tensor<Acc, 1> before = x;
      for (index_t i = 0; i < N; ++i) {
        x(i) = Acc(0);
        for (index_t j = 0; j < N; ++j) x(i) = x(i) + lift<Acc>(op.A_bar(i, j)) * before(j);
      }
    }
  }
}

/// K [P, M, L] of modes that all channels share, without D.
template <class Acc, shared_modes_fields Op, class Out>
void kernel(const Op& op, const view<Out, 3>& K) {
  auto modes = modes_of<Acc>(op);
  using Number = typename decltype(modes.a)::value_type;
  for (index_t l = 0; l < K.extent(2); ++l) {
    for (index_t p = 0; p < K.extent(0); ++p) {
      for (index_t m = 0; m < K.extent(1); ++m) {
        Number sum(Acc(0));
        for (std::size_t n = 0; n < modes.a.size(); ++n) {
          const auto at = static_cast<index_t>(n);
          sum = sum + lift<Acc>(op.C(p, at)) * modes.w[n] * lift<Acc>(op.B(at, m));
        }
        K(p, m, l) = lower<Out>(real_output(sum, modes.factor));
      }
    }
    for (std::size_t n = 0; n < modes.a.size(); ++n) modes.w[n] = modes.w[n] * modes.a[n];
  }
}

/// K [D, L] of modes per channel, without D.
template <class Acc, channel_modes_fields Op, class Out>
void kernel(const Op& op, const view<Out, 2>& K) {
  using Number = decltype(lift<Acc>(op.A(0, 0)));
  for (index_t c = 0; c < K.extent(0); ++c) {
    std::vector<Number> a, x;
    for (index_t n = 0; n < op.A.extent(1); ++n) {
      const auto [A_bar, B_bar] =
          reference::discretise(op.rule, Number(lift<Acc>(op.A(c, n))), Number(lift<Acc>(op.B(c, n))),
                                step_of<Acc>(op, c), alpha_of<Acc>(op));
      a.push_back(A_bar);
      x.push_back(lift<Acc>(op.C(c, n)) * B_bar);
    }
    for (index_t l = 0; l < K.extent(1); ++l) {
      Number sum(Acc(0));
      for (std::size_t n = 0; n < x.size(); ++n) {
        sum = sum + x[n];
        x[n] = x[n] * a[n];
      }
      K(c, l) = lower<Out>(real_output(sum, Acc(2)));
    }
  }
}

}  // namespace ogive::reference

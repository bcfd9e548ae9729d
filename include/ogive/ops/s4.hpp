// S4, the structured state space model: one system per channel, diagonal plus low-rank, the same for every token.
//
//   h'(t) = A h(t) + B u(t),   y(t) = C h(t) + D u(t),   A = diag(Λ) − Σ_r P_r P_rᴴ          h of 2N numbers per
//   channel
//
// held by the bilinear rule over steps of length Δ:
//
//   h_t = A̅ h_{t-1} + B̅ u_t,   y_t = C h_t + D u_t,   K_l = C A̅ˡ B̅,   y = K ∗ u + D u
//
// N modes stand for 2N, one of each conjugate pair: Λ, P_r, B, C and h are [x, x̄] in full, and C h = 2 Re Σ_n C_n h_n.
// A̅ and B̅ come by the Woodbury identity (ogive/maps/dplr.hpp), in double; C is the true one, whatever the length. Where
// a HiPPO system starts is `nplr`. Gu, Goel & Ré 2022, arXiv:2111.00396.
#pragma once

#include <ogive/core/tensor.hpp>
#include <ogive/engine/coupled_modes.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

/// u [B, L, D], Lambda, B and C [D, N], P [D, R, N], dt [D]; y [B, L, D]; state [slots, D, N], complex. Refused are
/// dt ≤ 0 and steps of which A̅ does not exist.
template <storage T>
struct s4 {
  using scalar = T;
  using accum = accum_t<T>;
  using number = std::complex<accum>;

  view<const T, 3> u{};
  view<const number, 2> Lambda{};
  view<const number, 3> P{};
  view<const number, 2> B{}, C{};
  view<const accum, 1> dt{};  ///< [D], unused where Q is given
  view<const accum, 1> D{};   ///< [D]: the skip
  view<const number, 3> Q{};  ///< [D, R, N]: where it is given, Lambda, P and B are a, U and B̅ of a step
  integers lengths{};         ///< per sequence; tokens from there on neither decay nor write, and read the state
  integers offsets{};         ///< packed sequences, a state each

  /// Complex ones are ∂/∂Re + i ∂/∂Im. An absent D is one of zeros.
  struct gradient {
    view<T, 3> u{};
    view<number, 2> Lambda{};
    view<number, 3> P{};
    view<number, 2> B{}, C{};
    view<accum, 1> dt{}, D{};
    view<number, 3> Q{};
  };

  static constexpr const char* name = "s4";
  template <class S>
  using state_of = diagonal_state<S>;
  using default_state = diagonal_state<number>;
  using default_state_gradient = diagonal_state_gradient<number>;

  index_t channels() const noexcept { return Lambda.extent(0); }
  index_t states() const noexcept { return Lambda.extent(1); }
  index_t rank() const noexcept { return P.extent(1); }

  void coefficients(index_t d, const dplr_step<std::complex<double>>& to) const noexcept {
    if (!Q.present()) {
      maps::detail::bilinear_dplr(static_cast<double>(dt[d]), Lambda[d], P[d], B[d], to);
      return;
    }
    for (index_t n = 0; n < states(); ++n) {
      to.A[n] = std::complex<double>(Lambda(d, n));
      to.B[n] = std::complex<double>(B(d, n));
      for (index_t r = 0; r < rank(); ++r) {
        to.U(r, n) = std::complex<double>(P(d, r, n));
        to.Q(r, n) = std::complex<double>(Q(d, r, n));
      }
    }
  }

  template <class F>
  void for_gradients(const gradient& d, const F& f) const noexcept {
    f("d.u", d.u, u);
    f("d.Lambda", d.Lambda, Lambda);
    f("d.P", d.P, P);
    f("d.B", d.B, B);
    f("d.C", d.C, C);
    f("d.dt", d.dt, dt);
    f("d.D", d.D, view<const accum, 1>(nullptr, {channels()}));
    f("d.Q", d.Q, Q);
  }

  template <class Put>
  void adjoint_coefficients(index_t c, const dplr_step<std::complex<double>>& step,
                            const dplr_step<std::complex<double>>& of, const dplr_step<std::complex<double>>& room,
                            const gradient& d, const Put& put) const noexcept {
    const auto store = [&](const dplr_step<std::complex<double>>& from) noexcept {
      for (index_t n = 0; n < states(); ++n) {
        if (d.Lambda.present()) put(d.Lambda(c, n), from.A[n]);
        if (d.B.present()) put(d.B(c, n), from.B[n]);
        for (index_t r = 0; r < rank(); ++r) {
          if (d.P.present()) put(d.P(c, r, n), from.U(r, n));
          if (d.Q.present()) put(d.Q(c, r, n), from.Q(r, n));
        }
      }
    };
    if (Q.present()) {
      store(of);
      if (d.dt.present()) put(d.dt[c], 0.0);
      return;
    }
    coefficients(c, step);
    const double d_dt =
        maps::detail::bilinear_dplr_adjoint(static_cast<double>(dt[c]), Lambda[c], P[c], B[c], step, of, room);
    store(room);
    if (d.dt.present()) put(d.dt[c], d_dt);
  }

  void check_system(core::checker& ask) const noexcept {
    const index_t d = channels(), n = states();
    ask.given("Lambda", Lambda).given("P", P).given("B", B).given("C", C);
    if (!Q.present()) ask.given("dt", dt);
    ask.extents("Lambda", Lambda, {-1, -1}, "[D, N]").extents("P", P, {d, -1, n}, "[D, R, N], D and N as Lambda");
    ask.extents("B", B, {d, n}, "[D, N] as Lambda").extents("C", C, {d, n}, "[D, N] as Lambda");
    ask.extents("dt", dt, {d}, "[D], D as Lambda").extents("D", D, {d}, "[D], D as Lambda");
    ask.extents("Q", Q, P.extents(), "[D, R, N] as P");
    maps::detail::check_rank(ask, rank());
    for (index_t i = 0; ask && !Q.present() && i < d; ++i) {
      maps::detail::check_dplr(ask, static_cast<double>(dt[i]), Lambda[i], P[i], i);
    }
  }
  template <class F>
  void fields(const F& f) const noexcept {
    f("u", u);
    f("Lambda", Lambda);
    f("P", P);
    f("B", B);
    f("C", C);
    f("dt", dt);
    f("D", D);
    f("Q", Q);
  }
};

/// a, B̅ [D, N], U and Q [D, R, N] of an operator, rounded once from double: what it takes as Lambda, B, P and Q.
/// \throws shape_error, std::invalid_argument as the operator's own verbs.
template <storage T>
void discretise(const s4<T>& op, const view<typename s4<T>::number, 2>& a, const view<typename s4<T>::number, 2>& B_bar,
                const view<typename s4<T>::number, 3>& U, const view<typename s4<T>::number, 3>& Q) {
  using number = typename s4<T>::number;
  core::checker ask("s4: discretise");
  op.check_system(ask);
  ask.given("a", a).given("B_bar", B_bar).given("U", U).given("Q", Q);
  if (ask) {
    ask.extents("a", a, op.Lambda.extents(), "[D, N] as Lambda").extents("B_bar", B_bar, op.B.extents(), "[D, N] as B");
    ask.extents("U", U, op.P.extents(), "[D, R, N] as P").extents("Q", Q, op.P.extents(), "[D, R, N] as P");
    ask.output("a", a).output("B_bar", B_bar).output("U", U).output("Q", Q);
    ask.apart("a", a, "B_bar", B_bar).apart("a", a, "U", U).apart("a", a, "Q", Q);
    ask.apart("B_bar", B_bar, "U", U).apart("B_bar", B_bar, "Q", Q).apart("U", U, "Q", Q);
    op.fields([&](const char* field, const auto& x) noexcept {
      ask.apart("a", a, field, x).apart("B_bar", B_bar, field, x).apart("U", U, field, x).apart("Q", Q, field, x);
    });
  }
  require(ask.result());
  const index_t N = op.states(), R = op.rank();
  using complex = std::complex<double>;
  tensor<complex, 1> one({N}), in({N});
  tensor<complex, 2> left({R, N}), right({R, N});
  for (index_t d = 0; d < op.channels(); ++d) {
    op.coefficients(d, {one, left, right, in});
    for (index_t n = 0; n < N; ++n) {
      a(d, n) = number(one(n));
      B_bar(d, n) = number(in(n));
      for (index_t r = 0; r < R; ++r) {
        U(d, r, n) = number(left(r, n));
        Q(d, r, n) = number(right(r, n));
      }
    }
  }
}

}  // namespace OGIVE_ABI
}  // namespace ogive

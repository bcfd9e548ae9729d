// S5: complex modes that all channels share, driven by all inputs and read by all outputs.
//
//   h_t = a ⊙ h_{t-1} + w ⊙ B u_t,   y_t = 2 Re(C h_t) + D ⊙ u_t,   h ∈ C^N
//
// with a and w from h' = A h by the rule: zero-order hold has a = exp(Δ A), w = (exp(Δ A) − 1)/A, and bilinear
// a = (1 + ΔA/2)/(1 − ΔA/2), w = Δ/(1 − ΔA/2). One mode of each conjugate pair is kept. As a convolution
// y = K ∗ u + D ⊙ u and what the initial state leaves, K_l = 2 Re(C Diag(aˡ w) B): `step` and `recurrent` go token by
// token, `convolution` by transforms, and `forward` takes what is cheaper for the shape. A bidirectional layer is two
// calls, one on views that run backwards. Smith, Warrington & Linderman, Simplified State Space Layers for Sequence
// Modeling, arXiv:2208.04933, whose Λ, B̃ and C̃ are A, B and C.
#pragma once

#include <ogive/engine/shared_state.hpp>
#include <ogive/maps/discretisation.hpp>

#include <cmath>

namespace ogive {
inline namespace OGIVE_ABI {

/// u [B, L, M], A [N], B [N, M], C [P, N], dt [N] (one for all is a view of stride 0), D [M], for which P = M;
/// y [B, L, P]. State [slots, N], complex. Refused are Re A > 0 and a dt that is not positive and finite, but with
/// `rule = none`, which takes A for a and 1 for w.
template <storage T>
struct s5 {
  using scalar = T;
  using accum = accum_t<T>;
  using number = std::complex<accum>;

  view<const T, 3> u{};
  view<const number, 1> A{};
  view<const number, 2> B{}, C{};
  view<const accum, 1> dt{};
  view<const accum, 1> D{};
  discretisation rule = discretisation::zoh;
  double alpha = 0.5;  ///< of generalised_bilinear
  integers lengths{};  ///< per sequence; tokens from there on neither decay nor write
  integers offsets{};  ///< packed sequences, a state each

  /// Complex ones are ∂/∂Re + i ∂/∂Im; that of dt has an element for each mode, also where dt is one number for all.
  struct gradient {
    view<T, 3> u{};
    view<number, 1> A{};
    view<number, 2> B{}, C{};
    view<accum, 1> dt{}, D{};
  };

  static constexpr const char* name = "s5";
  static constexpr int parts = 2;
  template <class S>
  using state_of = vector_state<S>;
  using default_state = vector_state<number>;
  using default_state_gradient = vector_state_gradient<number>;

  shared_state_extents extents() const noexcept {
    return {u.extent(0), u.extent(1), u.extent(2), A.extent(0), C.extent(0)};
  }
  view<const number, 2> input() const noexcept { return B; }
  view<const number, 2> output() const noexcept { return C; }
  template <class Acc>
  shared_mode<Acc> mode(index_t n) const noexcept {
    const auto pair = discretise(rule, step_of(n), std::complex<Acc>(A[n]), std::complex<Acc>(1), alpha);
    return {pair.A, pair.B};
  }

  double step_of(index_t n) const noexcept { return dt.present() ? static_cast<double>(dt[n]) : 0; }

  template <class F>
  void fields(const F& f) const noexcept {
    f("u", u);
    f("A", A);
    f("B", B);
    f("C", C);
    f("dt", dt);
    f("D", D);
  }
  template <class F>
  void for_gradients(const gradient& d, const F& f) const noexcept {
    f("d.u", d.u, u);
    f("d.A", d.A, A);
    f("d.B", d.B, B);
    f("d.C", d.C, C);
    f("d.dt", d.dt, dt);
    f("d.D", d.D, D);
  }
  static detail::shared_state_wishes wishes(const gradient& d) noexcept {
    const bool mode = d.A.present() || d.dt.present();
    return {mode, mode || d.B.present(), d.C.present(), d.D.present()};
  }
  static view<number, 2> d_input(const gradient& d) noexcept { return d.B; }
  static view<number, 2> d_output(const gradient& d) noexcept { return d.C; }
  template <class Acc>
  void mode_gradient(index_t n, const std::complex<Acc>& d_a, const std::complex<Acc>& d_w, const gradient& d,
                     bool accumulate) const noexcept {
    const auto by = discretise_slopes(rule, step_of(n), std::complex<double>(A[n]), alpha);
    const std::complex<double> a(d_a), w(d_w);
    const auto along = [&](const auto& a_slope, const auto& w_slope) noexcept {
      return a * std::conj(a_slope) + w * std::conj(w_slope);
    };
    detail::put_gradient(d.A, n, along(by.A_by_A, by.w_by_A), accumulate);
    detail::put_gradient(d.dt, n, along(by.A_by_dt, by.w_by_dt).real(), accumulate);
  }

  void check_fields(core::checker& ask) const noexcept {
    const index_t N = A.extent(0);
    ask.given("A", A).extents("A", A, {-1}, "[N]");
    if (rule != discretisation::none) ask.given("dt", dt);
    ask.extents("dt", dt, {N}, "[N] as A");
    check_shared_modes(ask, *this, N);
    if (ask && rule == discretisation::generalised_bilinear && !(alpha >= 0 && alpha <= 1)) {
      ask.refuse("alpha", status_code::value) << "must be in [0, 1]";
    }
    for (index_t n = 0; ask && rule != discretisation::none && n < N; ++n) {
      if (A[n].real() > 0) {
        ask.refuse("A", status_code::value) << "has a positive real part in mode " << n
                                            << ", which grows without end; negate it, or discretise it and say rule = "
                                               "none";
      }
      if (ask && !(dt[n] > 0 && std::isfinite(dt[n]))) {
        ask.refuse("dt", status_code::value) << "must be positive and finite, and is not in mode " << n;
      }
    }
  }
};

}  // namespace OGIVE_ABI
}  // namespace ogive

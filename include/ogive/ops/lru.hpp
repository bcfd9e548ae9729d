// LRU, the linear recurrent unit: complex modes in polar form that all channels share.
//
//   h_t = λ ⊙ h_{t-1} + γ ⊙ B u_t,   y_t = Re(C h_t) + D ⊙ u_t,   h ∈ C^N
//   λ = exp(−exp ν + i exp θ),   γ = √(1 − |λ|²), or its own exponential where it is learned
//
// The real part counts once: modes are no conjugate pairs here. |λ| < 1 for any ν, and γ keeps its digits where |λ| is
// next to 1: 1 − |λ|² = −expm1(−2 exp ν). Forms as of s5 (ogive/ops/s5.hpp), with K_l = Re(C Diag(λˡ γ) B). Orvieto et
// al., Resurrecting Recurrent Neural Networks for Long Sequences, arXiv:2303.06349.
#pragma once

#include <ogive/engine/shared_state.hpp>

#include <cmath>

namespace ogive {
inline namespace OGIVE_ABI {

/// u [B, L, M], nu_log and theta_log (ν and θ) [N], gamma_log [N] or absent, B [N, M], C [P, N], D [M], for which P =
/// M; y [B, L, P]. State [slots, N], complex.
template <storage T>
struct lru {
  using scalar = T;
  using accum = accum_t<T>;
  using number = std::complex<accum>;

  view<const T, 3> u{};
  view<const accum, 1> nu_log{}, theta_log{};
  view<const accum, 1> gamma_log{};  ///< log γ, as models learn it; absent: √(1 − |λ|²)
  view<const number, 2> B{}, C{};
  view<const accum, 1> D{};
  integers lengths{};  ///< per sequence; tokens from there on neither decay nor write
  integers offsets{};  ///< packed sequences, a state each

  /// Complex ones are ∂/∂Re + i ∂/∂Im.
  struct gradient {
    view<T, 3> u{};
    view<accum, 1> nu_log{}, theta_log{}, gamma_log{};
    view<number, 2> B{}, C{};
    view<accum, 1> D{};
  };

  static constexpr const char* name = "lru";
  static constexpr int parts = 1;
  template <class S>
  using state_of = vector_state<S>;
  using default_state = vector_state<number>;
  using default_state_gradient = vector_state_gradient<number>;

  shared_state_extents extents() const noexcept {
    return {u.extent(0), u.extent(1), u.extent(2), nu_log.extent(0), C.extent(0)};
  }
  view<const number, 2> input() const noexcept { return B; }
  view<const number, 2> output() const noexcept { return C; }
  template <class Acc>
  shared_mode<Acc> mode(index_t n) const noexcept {
    const double rate = std::exp(static_cast<double>(nu_log[n])), angle = std::exp(static_cast<double>(theta_log[n]));
    const double size = std::exp(-rate);
    const double gamma =
        gamma_log.present() ? std::exp(static_cast<double>(gamma_log[n])) : std::sqrt(-std::expm1(-2 * rate));
    return {{static_cast<Acc>(size * std::cos(angle)), static_cast<Acc>(size * std::sin(angle))},
            {static_cast<Acc>(gamma), Acc(0)}};
  }

  template <class F>
  void fields(const F& f) const noexcept {
    f("u", u);
    f("nu_log", nu_log);
    f("theta_log", theta_log);
    f("gamma_log", gamma_log);
    f("B", B);
    f("C", C);
    f("D", D);
  }
  template <class F>
  void for_gradients(const gradient& d, const F& f) const noexcept {
    f("d.u", d.u, u);
    f("d.nu_log", d.nu_log, nu_log);
    f("d.theta_log", d.theta_log, theta_log);
    f("d.gamma_log", d.gamma_log, gamma_log);
    f("d.B", d.B, B);
    f("d.C", d.C, C);
    f("d.D", d.D, D);
  }
  static detail::shared_state_wishes wishes(const gradient& d) noexcept {
    const bool mode = d.nu_log.present() || d.theta_log.present() || d.gamma_log.present();
    return {mode, mode || d.B.present(), d.C.present(), d.D.present()};
  }
  static view<number, 2> d_input(const gradient& d) noexcept { return d.B; }
  static view<number, 2> d_output(const gradient& d) noexcept { return d.C; }
  /// ∂λ/∂ν = −e^ν λ, ∂λ/∂θ = i e^θ λ, and ∂γ/∂ν = e^ν |λ|²/γ where γ follows from ν, which goes to √(e^ν/2) as modes
  /// cease to forget.
  template <class Acc>
  void mode_gradient(index_t n, const std::complex<Acc>& d_a, const std::complex<Acc>& d_w, const gradient& d,
                     bool accumulate) const noexcept {
    const double rate = std::exp(static_cast<double>(nu_log[n])), angle = std::exp(static_cast<double>(theta_log[n]));
    const std::complex<double> lambda(mode<double>(n).a), along = std::complex<double>(d_a) * std::conj(lambda);
    const double gamma = mode<double>(n).w.real(), d_gamma = static_cast<double>(d_w.real());
    const double by_nu = gamma_log.present() || gamma == 0 ? 0 : rate * std::norm(lambda) / gamma;
    detail::put_gradient(d.nu_log, n, -rate * along.real() + by_nu * d_gamma, accumulate);
    detail::put_gradient(d.theta_log, n, angle * along.imag(), accumulate);
    detail::put_gradient(d.gamma_log, n, gamma * d_gamma, accumulate);
  }

  void check_fields(core::checker& ask) const noexcept {
    const index_t N = nu_log.extent(0);
    ask.given("nu_log", nu_log).given("theta_log", theta_log).extents("nu_log", nu_log, {-1}, "[N]");
    ask.extents("theta_log", theta_log, {N}, "[N] as nu_log").extents("gamma_log", gamma_log, {N}, "[N] as nu_log");
    check_shared_modes(ask, *this, N);
  }
};

}  // namespace OGIVE_ABI
}  // namespace ogive

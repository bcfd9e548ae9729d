// S5: complex modes that all channels share, driven by all inputs and read by all outputs.
//
//   h_t = a ⊙ h_{t-1} + w ⊙ B u_t,   y_t = 2 Re(C h_t) + D ⊙ u_t,   h ∈ C^N
//
// with a and w from h' = A h by the rule: zero-order hold has a = exp(Δ A), w = (exp(Δ A) − 1)/A, and bilinear
// a = (1 + ΔA/2)/(1 − ΔA/2), w = Δ/(1 − ΔA/2). One mode of each conjugate pair is kept. A bidirectional layer is two
// calls, one on views that run backwards. Smith, Warrington & Linderman, Simplified State Space Layers for Sequence
// Modeling, arXiv:2208.04933, whose Λ, B̃ and C̃ are A, B and C.
#pragma once

#include <ogive/engine/shared_state.hpp>
#include <ogive/maps/discretisation.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

/// u [B, L, M], A [N] (negative real parts, or 0), B [N, M], C [P, N], dt [N] (positive; one for all is a view of
/// stride 0), D [M], for which P = M; y [B, L, P]. State [slots, N], complex.
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
  accum alpha = accum(0.5);  ///< of generalised_bilinear
  integers lengths{};        ///< per sequence; tokens from there on neither decay nor write
  integers offsets{};        ///< packed sequences, a state each

  static constexpr const char* name = "s5";
  static constexpr int parts = 2;
  template <class S>
  using state_of = vector_state<S>;
  using default_state = vector_state<number>;

  shared_state_extents extents() const noexcept {
    return {u.extent(0), u.extent(1), u.extent(2), A.extent(0), C.extent(0)};
  }
  view<const number, 2> input() const noexcept { return B; }
  view<const number, 2> output() const noexcept { return C; }
  template <class Acc>
  shared_mode<Acc> mode(index_t n) const noexcept {
    const auto pair = discretise(rule, static_cast<double>(dt[n]), std::complex<Acc>(A[n]), std::complex<Acc>(1),
                                 static_cast<double>(alpha));
    return {pair.A, pair.B};
  }

  template <class F>
  void fields(const F& f) const noexcept {
    f("u", u);
    f("A", A);
    f("B", B);
    f("C", C);
    f("dt", dt);
    f("D", D);
  }
  void check_fields(core::checker& ask) const noexcept {
    const index_t M = u.extent(2), N = A.extent(0);
    ask.given("u", u).given("A", A).given("B", B).given("C", C).given("dt", dt);
    ask.extents("u", u, {-1, -1, -1}, "[B, L, M]").extents("A", A, {-1}, "[N]");
    ask.extents("B", B, {N, M}, "[N, M], N as A, M as u").extents("C", C, {D.present() ? M : -1, N}, "[P, N], N as A");
    ask.extents("dt", dt, {N}, "[N] as A").extents("D", D, {M}, "[M] as u");
    if (ask && rule == discretisation::generalised_bilinear && !(alpha >= 0 && alpha <= 1)) {
      ask.refuse("alpha", status_code::value) << "must be in [0, 1]";
    }
    for (index_t n = 0; ask && n < N; ++n) {
      if (A[n].real() > 0) ask.refuse("A", status_code::value) << "has a positive real part in mode " << n;
      if (ask && dt[n] <= 0) ask.refuse("dt", status_code::value) << "must be positive, and is not in mode " << n;
    }
  }
};

}  // namespace OGIVE_ABI
}  // namespace ogive

// S4D, the diagonal state space model: one system per channel, the same for every token.
//
//   h'(t) = A ⊙ h(t) + B u(t),   y(t) = C · h(t) + D u(t)                   h ∈ C^{D×N}, one row per channel
//
// held over steps of length Δ:
//
//   h_t = Ā ⊙ h_{t-1} + B̄ u_t,   y_t = 2 Re(C · h_t) + D u_t,   K_l = 2 Re Σ_n C_n Ā_nˡ B̄_n,   y = K ∗ u + D u
//
// N modes stand for 2N, one of each conjugate pair; real ones (S4D-Real) count once. Ā and B̄ by any rule of
// ogive/maps/discretisation.hpp, in double; `rule = discretisation::none` takes A and B for Ā and B̄, as a loop does
// that discretises once and steps often. Gu, Gupta, Goel & Ré 2022, arXiv:2206.11893.
#pragma once

#include <ogive/engine/modes.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

/// u [B, L, D], A, B and C [D, N], dt [D]; y [B, L, D]; state [slots, D, N], complex where A is. Refused are Re A > 0
/// and a dt that is not positive and finite, but with `rule = none`, which looks at neither.
template <storage T, class AType = std::complex<accum_t<T>>>
struct s4d {
  using scalar = T;
  using accum = accum_t<T>;
  using number = AType;
  static constexpr bool complex = !std::is_same_v<AType, accum>;
  static_assert(!complex || std::is_same_v<AType, std::complex<accum>>,
                "A of an s4d<T> is accum_t<T> or std::complex<accum_t<T>>");

  view<const T, 3> u{};
  view<const AType, 2> A{}, B{}, C{};
  view<const accum, 1> dt{};  ///< [D], unused where rule is none
  view<const accum, 1> D{};   ///< [D]: the skip
  discretisation rule = discretisation::zoh;
  double alpha = 0.5;  ///< of generalised_bilinear
  integers lengths{};  ///< per sequence; tokens from there on neither decay nor write, and read the state
  integers offsets{};  ///< packed sequences, a state each

  /// Complex ones are ∂/∂Re + i ∂/∂Im; all but u are summed over tokens and sequences.
  struct gradient {
    view<T, 3> u{};
    view<AType, 2> A{}, B{}, C{};
    view<accum, 1> dt{}, D{};
  };

  static constexpr const char* name = "s4d";
  template <class S>
  using state_of = diagonal_state<S>;
  using default_state = diagonal_state<AType>;
  using default_state_gradient = diagonal_state_gradient<AType>;

  template <class F>
  void fields(const F& f) const noexcept {
    f("u", u);
    f("A", A);
    f("B", B);
    f("C", C);
    f("dt", dt);
    f("D", D);
  }
};

/// Ā and B̄ [D, N] of an operator, rounded once from double: what `rule = none` then takes.
/// \throws shape_error, std::invalid_argument as the operator's own verbs.
template <storage T, class AType>
void discretise(const s4d<T, AType>& op, const view<AType, 2>& A_bar, const view<AType, 2>& B_bar) {
  core::checker ask("s4d: discretise");
  detail::check_system(ask, op);
  ask.given("A_bar", A_bar).given("B_bar", B_bar);
  ask.extents("A_bar", A_bar, op.A.extents(), "[D, N] as A").extents("B_bar", B_bar, op.A.extents(), "[D, N] as A");
  ask.output("A_bar", A_bar).output("B_bar", B_bar).apart("A_bar", A_bar, "B_bar", B_bar);
  detail::apart_from_fields(ask, op)("A_bar", A_bar);
  detail::apart_from_fields(ask, op)("B_bar", B_bar);
  require(ask.result());
  for (index_t d = 0; d < op.A.extent(0); ++d) {
    for (index_t n = 0; n < op.A.extent(1); ++n) {
      const auto [a, b] = detail::mode_of(op, d, n);
      A_bar(d, n) = AType(a);
      B_bar(d, n) = AType(b);
    }
  }
}

}  // namespace OGIVE_ABI
}  // namespace ogive

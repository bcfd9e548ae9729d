// S4, the structured state space model: one system per channel, diagonal plus low-rank, the same for every token.
//
//   h'(t) = A h(t) + B u(t),   y(t) = C h(t) + D u(t),   A = diag(Λ) − Σ_r P_r P_rᴴ          h of 2N numbers per channel
//
// held by the bilinear rule over steps of length Δ:
//
//   h_t = A̅ h_{t-1} + B̅ u_t,   y_t = C h_t + D u_t,   K_l = C A̅ˡ B̅,   y = K ∗ u + D u
//
// N modes stand for 2N, one of each conjugate pair: Λ, P_r, B, C and h are [x, x̄] in full, and C h = 2 Re Σ_n C_n h_n. A̅
// and B̅ come by the Woodbury identity (ogive/maps/dplr.hpp), in double; C is the true one, whatever the length. Where a
// HiPPO system starts is `nplr`. Gu, Goel & Ré 2022, arXiv:2111.00396.
#pragma once

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
  view<const accum, 1> dt{};  ///< [D]
  view<const accum, 1> D{};   ///< [D]: the skip
  integers lengths{};         ///< per sequence; tokens from there on neither decay nor write, and read the state
  integers offsets{};         ///< packed sequences, a state each

  static constexpr const char* name = "s4";
  template <class S>
  using state_of = diagonal_state<S>;
  using default_state = diagonal_state<number>;

  index_t channels() const noexcept { return Lambda.extent(0); }
  index_t states() const noexcept { return Lambda.extent(1); }
  index_t rank() const noexcept { return P.extent(1); }

  void coefficients(index_t d, const dplr_step<std::complex<double>>& to) const noexcept {
    maps::detail::bilinear_dplr(static_cast<double>(dt[d]), Lambda[d], P[d], B[d], to);
  }

  void check_system(core::checker& ask) const noexcept {
    const index_t d = channels(), n = states();
    ask.given("Lambda", Lambda).given("P", P).given("B", B).given("C", C).given("dt", dt);
    ask.extents("Lambda", Lambda, {-1, -1}, "[D, N]").extents("P", P, {d, -1, n}, "[D, R, N], D and N as Lambda");
    ask.extents("B", B, {d, n}, "[D, N] as Lambda").extents("C", C, {d, n}, "[D, N] as Lambda");
    ask.extents("dt", dt, {d}, "[D], D as Lambda").extents("D", D, {d}, "[D], D as Lambda");
    maps::detail::check_rank(ask, rank());
    for (index_t i = 0; ask && i < d; ++i) {
      maps::detail::check_dplr(ask, static_cast<double>(dt[i]), Lambda[i], P[i], B[i], i);
    }
  }
  template <class X, std::size_t Rank>
  void check_written(core::checker& ask, const char* field, const view<X, Rank>& x) const noexcept {
    ask.apart(field, x, "Lambda", Lambda).apart(field, x, "P", P).apart(field, x, "B", B).apart(field, x, "C", C);
    ask.apart(field, x, "dt", dt).apart(field, x, "D", D);
  }
};

}  // namespace OGIVE_ABI
}  // namespace ogive

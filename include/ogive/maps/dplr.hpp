// L4: the bilinear rule for a diagonal plus low-rank A = diag(Λ) − Σ_r P_r P_rᴴ of conjugate pairs, without an inverse
// of A: through the Woodbury identity it is diagonal plus low-rank again, and one step costs O(N R).
//
//   h_t = A̅ h_{t-1} + B̅ u_t,   A̅ = (I − Δ/2 A)⁻¹ (I + Δ/2 A) = 2 (I − Δ/2 A)⁻¹ − I,   B̅ = (I − Δ/2 A)⁻¹ Δ B
//
//   d_n = 1/(1 − Δ/2 Λ_n),   G_rs = δ_rs + Δ/2 ⟨P_r, d P_s⟩                 a real R × R matrix
//   (I − Δ/2 A)⁻¹ = diag(d) − Δ/2 Σ_rs d P_r (G⁻¹)_rs (d̄ P_s)ᴴ            Woodbury
//   A̅ = diag(a) − Σ_r U_r Q_rᵀ,   a_n = (1 + Δ/2 Λ_n) d_n,   U_r = Δ d Σ_s P_s (G⁻¹)_sr,   Q_r = d P̄_r
//   B̅ = Δ d B − Δ/2 Σ_r U_r ⟨Q̄_r, B⟩
//
// One of each pair is kept, so ⟨x, y⟩ = 2 Re Σ_n x̄_n y_n is the product of the full vectors [x, x̄] and [y, ȳ], and
// h ↦ a ⊙ h − Σ_r U_r ⟨Q̄_r, h⟩ is A̅. Gu, Goel, Ré, arXiv:2111.00396, appendix C.
#pragma once

#include <ogive/maps/discretisation.hpp>

#include <array>

namespace ogive {

/// A̅ = diag(A) − Σ_r U_r Q_rᵀ and B̅ of one channel, in the letters above.
template <class C>
struct dplr_step {
  view<C, 1> A{};       ///< [N], a
  view<C, 2> U{}, Q{};  ///< [R, N]
  view<C, 1> B{};       ///< [N], B̅
};

/// The largest R: G and its inverse live on the stack.
inline constexpr index_t dplr_most_rank = 16;

inline namespace OGIVE_ABI {

namespace maps::detail {

enum class dplr_fault { none, pole, singular };

/// ⟨x̄, y⟩ of full vectors.
template <class X, class Y>
double pair_product(const view<X, 1>& x, const view<Y, 1>& y) noexcept {
  double sum = 0;
  for (index_t n = 0; n < x.extent(0); ++n) {
    sum += static_cast<double>(x[n].real()) * static_cast<double>(y[n].real()) -
           static_cast<double>(x[n].imag()) * static_cast<double>(y[n].imag());
  }
  return 2 * sum;
}

using small_matrix = std::array<std::array<double, dplr_most_rank>, dplr_most_rank>;

/// G ← G⁻¹, by Gauss and Jordan's elimination with row pivots. `terms` bounds what each element was summed from; a
/// pivot that is nothing but their rounding error, `roundings` of them, makes it singular.
inline bool invert(small_matrix& G, small_matrix& terms, index_t R, double roundings) noexcept {
  const auto size = static_cast<std::size_t>(R);
  std::array<std::size_t, dplr_most_rank> from{};
  for (std::size_t k = 0; k < size; ++k) {
    std::size_t pivot = k;
    for (std::size_t i = k + 1; i < size; ++i) {
      if (std::abs(G[i][k]) > std::abs(G[pivot][k])) pivot = i;
    }
    from[k] = pivot;
    std::swap(G[k], G[pivot]);
    std::swap(terms[k], terms[pivot]);
    const double rounding = roundings * std::numeric_limits<double>::epsilon() * terms[k][k];
    if (!(std::abs(G[k][k]) > rounding)) return false;
    const double inverse = 1 / G[k][k];
    G[k][k] = 1;
    for (std::size_t j = 0; j < size; ++j) {
      G[k][j] *= inverse;
      terms[k][j] *= std::abs(inverse);
    }
    for (std::size_t i = 0; i < size; ++i) {
      if (i == k) continue;
      const double factor = std::exchange(G[i][k], 0);
      for (std::size_t j = 0; j < size; ++j) {
        G[i][j] -= factor * G[k][j];
        terms[i][j] += std::abs(factor) * terms[k][j];
      }
    }
  }
  for (std::size_t k = size; k-- > 0;) {
    for (std::size_t i = 0; i < size; ++i) std::swap(G[i][k], G[i][from[k]]);
  }
  return true;
}

inline double& element(small_matrix& m, index_t r, index_t s) noexcept {
  return m[static_cast<std::size_t>(r)][static_cast<std::size_t>(s)];
}

/// 1 − Δ/2 λ.
template <class X>
std::complex<double> below(double dt, const std::complex<X>& mode) noexcept {
  return one_plus(product(-dt / 2, 1), std::complex<double>(mode));
}

/// G⁻¹, R ≤ dplr_most_rank, if it exists.
template <class X>
dplr_fault invert_low_rank(double dt, const view<const std::complex<X>, 1>& Lambda,
                           const view<const std::complex<X>, 2>& P, small_matrix& G) noexcept {
  using complex = std::complex<double>;
  const index_t N = Lambda.extent(0), R = P.extent(0);
  small_matrix terms{};
  G = {};
  for (index_t r = 0; r < R; ++r) element(G, r, r) = element(terms, r, r) = 1;
  for (index_t n = 0; n < N; ++n) {
    const complex e = below(dt, Lambda[n]), half = dt / 2 * complex(Lambda[n]);
    if (!(std::abs(e) > 2 * std::numeric_limits<double>::epsilon() * (1 + std::abs(half)))) return dplr_fault::pole;
    const complex d = 1.0 / e;
    for (index_t r = 0; r < R; ++r) {
      const complex left = std::conj(complex(P(r, n))) * d;
      for (index_t s = 0; s < R; ++s) {
        const complex right = dt * complex(P(s, n));
        element(G, r, s) += left.real() * right.real() - left.imag() * right.imag();
        element(terms, r, s) += std::abs(left) * std::abs(right);
      }
    }
  }
  return invert(G, terms, R, static_cast<double>(N + R)) ? dplr_fault::none : dplr_fault::singular;
}

/// The coefficients of one channel; of one that has a fault, none.
template <class X>
dplr_fault bilinear_dplr(double dt, const view<const std::complex<X>, 1>& Lambda,
                         const view<const std::complex<X>, 2>& P, const view<const std::complex<X>, 1>& B,
                         const dplr_step<std::complex<double>>& to) noexcept {
  using complex = std::complex<double>;
  const index_t N = Lambda.extent(0), R = P.extent(0);
  small_matrix inverse;
  const dplr_fault fault = invert_low_rank(dt, Lambda, P, inverse);
  if (fault != dplr_fault::none) return fault;
  for (index_t n = 0; n < N; ++n) {
    const complex d = 1.0 / below(dt, Lambda[n]);
    to.A[n] = one_plus(product(dt / 2, 1), complex(Lambda[n])) * d;
    to.B[n] = dt * d * complex(B[n]);
    for (index_t r = 0; r < R; ++r) {
      complex sum = 0;
      for (index_t s = 0; s < R; ++s) sum += complex(P(s, n)) * element(inverse, s, r);
      to.U(r, n) = dt * d * sum;
      to.Q(r, n) = std::conj(complex(P(r, n))) * d;
    }
  }
  for (index_t r = 0; r < R; ++r) {
    const double read = pair_product(to.Q[r], B) * dt / 2;
    for (index_t n = 0; n < N; ++n) to.B[n] -= read * to.U(r, n);
  }
  return fault;
}

/// Re Σ x̄_n y_n
template <class X, class Y>
double inner(const view<X, 1>& x, const view<Y, 1>& y) noexcept {
  double sum = 0;
  for (index_t n = 0; n < x.extent(0); ++n) sum += (std::conj(x[n]) * y[n]).real();
  return sum;
}

/// From the gradients of a, U, Q and B̅, ∂/∂Re + i ∂/∂Im each, to those of Λ, P and B in d.A, d.U and d.B; gives that of
/// Δ. `step` is what bilinear_dplr made; `of` is changed.
template <class X>
double bilinear_dplr_adjoint(double dt, const view<const std::complex<X>, 1>& Lambda,
                             const view<const std::complex<X>, 2>& P, const view<const std::complex<X>, 1>& B,
                             const dplr_step<std::complex<double>>& step, const dplr_step<std::complex<double>>& of,
                             const dplr_step<std::complex<double>>& d) noexcept {
  using complex = std::complex<double>;
  const index_t N = Lambda.extent(0), R = P.extent(0);
  small_matrix inverse, d_inverse{}, half_way{}, d_G{};
  if (invert_low_rank(dt, Lambda, P, inverse) != dplr_fault::none) return 0;
  double d_dt = 0;
  // B̅ = Δ d B − Δ/2 Σ_r U_r t_r, t_r = ⟨Q̄_r, B⟩
  for (index_t n = 0; n < N; ++n) d.B[n] = 0;
  for (index_t r = 0; r < R; ++r) {
    const double t = pair_product(step.Q[r], B), along = inner(step.U[r], of.B), d_t = -dt / 2 * along;
    d_dt -= t * along / 2;
    for (index_t n = 0; n < N; ++n) {
      of.U(r, n) -= dt / 2 * t * of.B[n];
      of.Q(r, n) += 2 * d_t * std::conj(complex(B[n]));
      d.B[n] += 2 * d_t * std::conj(step.Q(r, n));
    }
  }
  // U_r = Δ d V_r, V_r = Σ_s P_s (G⁻¹)_sr
  for (index_t n = 0; n < N; ++n) {
    const complex slope = dt * std::conj(1.0 / below(dt, Lambda[n]));
    for (index_t r = 0; r < R; ++r)
      for (index_t s = 0; s < R; ++s)
        element(d_inverse, s, r) += (std::conj(complex(P(s, n))) * slope * of.U(r, n)).real();
  }
  // The gradient of G is −G⁻ᵀ ∂(G⁻¹) G⁻ᵀ.
  for (index_t r = 0; r < R; ++r)
    for (index_t s = 0; s < R; ++s)
      for (index_t k = 0; k < R; ++k) element(half_way, r, s) -= element(inverse, k, r) * element(d_inverse, k, s);
  for (index_t r = 0; r < R; ++r)
    for (index_t s = 0; s < R; ++s)
      for (index_t k = 0; k < R; ++k) element(d_G, r, s) += element(half_way, r, k) * element(inverse, s, k);

  for (index_t n = 0; n < N; ++n) {
    const complex one = 1.0 / below(dt, Lambda[n]), b(B[n]), d_b = of.B[n];  // d of the formula
    complex d_one = dt * std::conj(b) * d_b + 2.0 * of.A[n];
    d_dt += (std::conj(d_b) * one * b).real();
    d.B[n] += dt * std::conj(one) * d_b;
    for (index_t r = 0; r < R; ++r) {
      const complex p(P(r, n)), d_u = of.U(r, n), d_q = of.Q(r, n);
      complex v = 0, d_p = one * std::conj(d_q);  // Q_r = d P̄_r
      d_one += p * d_q;
      for (index_t s = 0; s < R; ++s) {
        const complex other(P(s, n));
        v += other * element(inverse, s, r);
        d_p += dt * std::conj(one) * of.U(s, n) * element(inverse, r, s);
        // G_rs = δ_rs + Δ Re Σ P̄_r d P_s, by both of its factors
        d_p += dt * (element(d_G, r, s) * one + element(d_G, s, r) * std::conj(one)) * other;
        d_one += dt * element(d_G, r, s) * p * std::conj(other);
        d_dt += element(d_G, r, s) * (std::conj(p) * one * other).real();
      }
      d_one += dt * std::conj(v) * d_u;
      d_dt += (std::conj(d_u) * one * v).real();
      d.U(r, n) = d_p;
    }
    // d = 1/(1 − Δ/2 Λ)
    const complex square = one * one;
    d.A[n] = dt / 2 * std::conj(square) * d_one;
    d_dt += (std::conj(d_one) * complex(Lambda[n]) * square).real() / 2;
  }
  return d_dt;
}

/// Says what is wrong with the coefficients of a channel, if anything.
template <class X>
void check_dplr(core::checker& ask, double dt, const view<const std::complex<X>, 1>& Lambda,
                const view<const std::complex<X>, 2>& P, index_t channel) noexcept {
  if (!ask) return;
  if (!(dt > 0 && std::isfinite(dt))) {
    ask.refuse("dt", status_code::value) << "of channel " << channel << " must be positive and finite";
    return;
  }
  small_matrix inverse;
  const dplr_fault fault = invert_low_rank(dt, Lambda, P, inverse);
  if (fault == dplr_fault::pole) {
    ask.refuse("Lambda", status_code::value)
        << "of channel " << channel
        << ": dt/2 Lambda has a mode at 1, so that I - dt/2 diag(Lambda) is singular; "
           "choose another dt";
  } else if (fault == dplr_fault::singular) {
    ask.refuse("P", status_code::value) << "of channel " << channel
                                        << ": I - dt/2 A is singular, dt/2 A has the eigenvalue 1; choose another dt";
  }
}

inline void check_rank(core::checker& ask, index_t R) noexcept {
  if (ask && R > dplr_most_rank) {
    ask.refuse("P") << "has R = " << R << " rows; the low-rank term has at most " << dplr_most_rank;
  }
}

}  // namespace maps::detail

/// Λ [N], P [R, N], B [N] and Δ of one channel to A̅ = diag(A) − Σ_r U_r Q_rᵀ and B̅.
/// \throws shape_error for extents that do not fit or R > dplr_most_rank; std::invalid_argument unless Δ is positive
/// and finite, and where I − Δ/2 A or its diagonal part is singular.
template <std::floating_point X>
void discretise_dplr(double dt, const view<const std::complex<X>, 1>& Lambda, const view<const std::complex<X>, 2>& P,
                     const view<const std::complex<X>, 1>& B, const dplr_step<std::complex<double>>& to) {
  const index_t N = Lambda.extent(0), R = P.extent(0);
  core::checker ask("ogive::discretise_dplr");
  ask.given("Lambda", Lambda).given("P", P).given("B", B);
  ask.given("to.A", to.A).given("to.U", to.U).given("to.Q", to.Q).given("to.B", to.B);
  ask.extents("P", P, {-1, N}, "[R, N], N as Lambda").extents("B", B, {N}, "[N] as Lambda");
  maps::detail::check_rank(ask, R);
  ask.extents("to.A", to.A, {N}, "[N]").extents("to.U", to.U, {R, N}, "[R, N]");
  ask.extents("to.Q", to.Q, {R, N}, "[R, N]").extents("to.B", to.B, {N}, "[N]");
  const auto each = [&](const auto& visit) {
    visit("to.A", to.A);
    visit("to.U", to.U);
    visit("to.Q", to.Q);
    visit("to.B", to.B);
  };
  each([&](const char* field, const auto& x) {
    ask.output(field, x).apart(field, x, "Lambda", Lambda).apart(field, x, "P", P).apart(field, x, "B", B);
    each([&](const char* other, const auto& y) {
      if (field != other) ask.apart(field, x, other, y);
    });
  });
  maps::detail::check_dplr(ask, dt, Lambda, P, 0);
  require(ask.result());
  maps::detail::bilinear_dplr(dt, Lambda, P, B, to);
}

}  // namespace OGIVE_ABI
}  // namespace ogive

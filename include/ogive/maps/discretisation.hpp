// L4: from the continuous system h'(t) = A h(t) + B x(t) to the steps h_t = Ā h_{t-1} + B̄ x_t of length Δ, for
// diagonal A. x is constant over a step under zero-order hold.
//
//   zoh                   Ā = exp(ΔA)                       B̄ = (exp(ΔA) − 1) / A · B      (A = 0: Δ B)
//   mamba                 Ā = exp(ΔA)                       B̄ = Δ B
//   generalised_bilinear  Ā = (1 + (1 − α) ΔA) / (1 − α ΔA)  B̄ = Δ B / (1 − α ΔA)
//   euler, bilinear, backward_euler: the same with α = 0, 1/2, 1
//   none                  Ā = A                             B̄ = B                         (steps already, Δ unused)
//
// Gu, Goel, Ré, arXiv:2111.00396; Gu, Gupta, Goel, Ré, arXiv:2206.11893; Gu, Dao, arXiv:2312.00752 (who write ZOH and
// compute the mamba rule). Every result is good to a few units in the last place, relative to itself (a complex one to
// its modulus), whatever the size of ΔA: nothing is subtracted that is nearly equal, and the rounding error of ΔA,
// which exp would magnify by |ΔA|, is carried along. Only where exp(ΔA) − 1 is less than that rounding error, next to a
// multiple of 2πi, are there fewer digits. float is computed in double and rounded once.
#pragma once

#include <ogive/core/accum.hpp>
#include <ogive/core/check.hpp>

#include <cmath>
#include <limits>
#include <string>

namespace ogive {

enum class discretisation { zoh, mamba, euler, bilinear, backward_euler, generalised_bilinear, none };

inline namespace OGIVE_ABI {

/// Ā and B̄ of one step.
template <class X>
struct step_pair {
  X A, B;
};

namespace maps::detail {

/// a b = value + rest, where `rest` is what rounding took.
struct product {
  double value, rest;
  product(double a, double b) noexcept : value(a * b), rest(std::isfinite(value) ? std::fma(a, b, -value) : 0.0) {}
};

/// 1 + p A for real p: exact but for one rounding of each part.
inline double one_plus(const product& p, double A) noexcept { return std::fma(p.rest, A, std::fma(p.value, A, 1.0)); }
inline std::complex<double> one_plus(const product& p, std::complex<double> A) noexcept {
  return {one_plus(p, A.real()), p.value * A.imag()};
}

/// f (1 + rest) for f = exp(x) or what behaves like it, without the ∞ · 0 of a plain correction.
inline double corrected(double f, double rest) noexcept { return std::isfinite(f) ? std::fma(f, rest, f) : f; }

/// exp(z) and exp(z) − 1, z = Δ A.
template <class X>
struct exponential {
  X value, minus_one;
};

inline exponential<double> exp_and_minus_one(double dt, double A) noexcept {
  const product x(dt, A);
  const double e = corrected(std::exp(x.value), x.rest);
  const double m = std::expm1(x.value);
  return {e, std::isfinite(m) ? std::fma(e, x.rest, m) : m};
}

/// z = x + iy. exp(z) − 1 = expm1(x) cos y − 2 sin²(y/2) + i eˣ sin y keeps its digits near z = 2πik, where exp(z) is
/// nearly one.
inline exponential<std::complex<double>> exp_and_minus_one(double dt, std::complex<double> A) noexcept {
  const exponential<double> real = exp_and_minus_one(dt, A.real());
  const product y(dt, A.imag());
  const double sine = std::fma(std::cos(y.value), y.rest, std::sin(y.value));
  const double cosine = std::fma(-std::sin(y.value), y.rest, std::cos(y.value));
  const double half = std::fma(std::cos(y.value / 2), y.rest / 2, std::sin(y.value / 2));
  return {{real.value * cosine, real.value * sine},
          {std::fma(real.minus_one, cosine, -2 * half * half), real.value * sine}};
}

template <class X>
step_pair<X> exact(discretisation rule, double dt, X A, X B) noexcept {
  const auto e = exp_and_minus_one(dt, A);
  const X z = dt * A;
  if (rule == discretisation::mamba || z == X(0)) return {e.value, dt * B};
  return {e.value, dt * B * (e.minus_one / z)};
}

template <class X>
step_pair<X> rational(double alpha, double dt, X A, X B) noexcept {
  const X denominator = one_plus(product(-alpha, dt), A);
  return {one_plus(product(1 - alpha, dt), A) / denominator, dt * B / denominator};
}

inline double weight_of(discretisation rule, double alpha) noexcept {
  switch (rule) {
    case discretisation::euler:
      return 0;
    case discretisation::bilinear:
      return 0.5;
    case discretisation::backward_euler:
      return 1;
    default:
      return alpha;
  }
}

/// The real type under X, and X with doubles in it.
template <class X>
struct parts {
  using real = X;
  using wide = double;
};
template <class X>
struct parts<std::complex<X>> {
  using real = X;
  using wide = std::complex<double>;
};

/// What is written has memory of its own.
template <class Step, class In, class InB, class Out, class OutB>
void check_written_steps(core::checker& is, const Step& dt, const In& A, const InB& B, const Out& A_bar, const OutB& B_bar) {
  is.output("A_bar", A_bar).output("B_bar", B_bar).apart("A_bar", A_bar, "B_bar", B_bar);
  is.apart("A_bar", A_bar, "dt", dt).apart("A_bar", A_bar, "A", A).apart("A_bar", A_bar, "B", B);
  is.apart("B_bar", B_bar, "dt", dt).apart("B_bar", B_bar, "A", A).apart("B_bar", B_bar, "B", B);
}

inline void check_weight(discretisation rule, double alpha) {
  if (rule == discretisation::generalised_bilinear && !(alpha >= 0 && alpha <= 1)) {
    raise(status(status_code::value) << "ogive::discretise: alpha = " << std::to_string(alpha) << " is not in [0, 1]");
  }
}

}  // namespace maps::detail

/// Ā and B̄ of one mode; X is float, double or a complex of them. `alpha` belongs to generalised_bilinear.
template <class X>
step_pair<X> discretise(discretisation rule, double dt, X A, X B, double alpha = 0.5) noexcept {
  using W = typename maps::detail::parts<X>::wide;
  if (rule == discretisation::none) return {A, B};
  const auto wide = rule == discretisation::zoh || rule == discretisation::mamba
                        ? maps::detail::exact<W>(rule, dt, W(A), W(B))
                        : maps::detail::rational<W>(maps::detail::weight_of(rule, alpha), dt, W(A), W(B));
  return {X(wide.A), X(wide.B)};
}

/// What Ā and w, of B̄ = w B, change by with A and with Δ: ∂Ā/∂A, ∂Ā/∂Δ, ∂w/∂A, ∂w/∂Δ, of complex A in the sense of
/// functions of a complex number.
template <class X>
struct step_slopes {
  X A_by_A, A_by_dt, w_by_A, w_by_dt;
};

namespace maps::detail {

/// φ′(z) of φ(z) = (eᶻ − 1)/z: (eᶻ − φ)/z, and where that is a difference of neighbours Σ zᵏ / (k! (k + 2)).
template <class X>
X slope_of_phi(X z, X exp_z, X phi) noexcept {
  if (std::abs(z) > 1) return (exp_z - phi) / z;
  X sum(0);
  double factorial = 6402373705728000.0;  // 18!
  for (int k = 18; k >= 0; --k) {
    sum = sum * z + 1 / (factorial * (k + 2));
    if (k > 0) factorial /= k;
  }
  return sum;
}

}  // namespace maps::detail

template <class X>
step_slopes<X> discretise_slopes(discretisation rule, double dt, X A, double alpha = 0.5) noexcept {
  using W = typename maps::detail::parts<X>::wide;
  const W a(A), z = dt * a;
  if (rule == discretisation::none) return {X(1), X(0), X(0), X(0)};
  if (rule == discretisation::zoh || rule == discretisation::mamba) {
    const auto e = maps::detail::exp_and_minus_one(dt, a);
    const step_slopes<X> both{X(dt * e.value), X(a * e.value), X(0), X(1)};
    if (rule == discretisation::mamba) return both;
    const W phi = z == W(0) ? W(1) : e.minus_one / z;
    return {both.A_by_A, both.A_by_dt, X(dt * dt * maps::detail::slope_of_phi(z, e.value, phi)), X(e.value)};
  }
  const double weight = maps::detail::weight_of(rule, alpha);
  const W q = 1.0 / maps::detail::one_plus(maps::detail::product(-weight, dt), a), square = q * q;
  return {X(dt * square), X(a * square), X(weight * dt * dt * square), X(square)};
}

/// A, B [N] and dt [L], one per step (or one in all, L = 1), to Ā, B̄ [L, N].
/// \throws shape_error for extents that do not fit, std::invalid_argument for alpha outside [0, 1].
template <class X>
void discretise(discretisation rule, const view<const typename maps::detail::parts<X>::real, 1>& dt,
                const std::type_identity_t<view<const X, 1>>& A, const std::type_identity_t<view<const X, 1>>& B,
                const view<X, 2>& A_bar, const view<X, 2>& B_bar, double alpha = 0.5) {
  const index_t L = dt.extent(0);
  const index_t N = A.extent(0);
  core::checker is("ogive::discretise");
  is.given("dt", dt).given("A", A).given("B", B).given("A_bar", A_bar).given("B_bar", B_bar);
  is.extents("B", B, {N}, "[N]");
  is.extents("A_bar", A_bar, {L, N}, "[L, N]").extents("B_bar", B_bar, {L, N}, "[L, N]");
  maps::detail::check_written_steps(is, dt, A, B, A_bar, B_bar);
  require(is.result());
  maps::detail::check_weight(rule, alpha);
  for (index_t l = 0; l < L; ++l) {
    for (index_t n = 0; n < N; ++n) {
      const step_pair<X> pair = discretise(rule, static_cast<double>(dt[l]), A[n], B[n], alpha);
      A_bar(l, n) = pair.A;
      B_bar(l, n) = pair.B;
    }
  }
}

}  // namespace OGIVE_ABI
}  // namespace ogive

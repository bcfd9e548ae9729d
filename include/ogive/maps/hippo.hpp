// L4: continuous systems h'(t) = A h(t) + B u(t) whose state remembers the past of u as coefficients of orthogonal
// functions, one set per measure; and their normal plus low-rank form. Needs Eigen, which it includes. n, k < N.
//
//   legs           A_nk = −√(2n+1) √(2k+1) for n > k, −(n+1) for n = k, else 0           B_n = √(2n+1)
//   legt           A_nk = −½ √(2n+1) √(2k+1) · (1 for n ≥ k, else (−1)^(n−k))            B_n = ½ √(2n+1)
//   lmu            A_nk = −(2n+1) · ((−1)^(n−k) for n ≥ k, else 1)                       B_n = (−1)^n (2n+1)
//   lagt           A_nk = −1 for n > k, −½ for n = k, else 0                             B_n = 1
//   glagt          A_nk = −ℓ_k/ℓ_n for n > k, −(1+β)/2 for n = k, else 0                 B_n = ℓ_n β^((1−α)/2) /
//   Γ(1+α)√Γ(1−α)
//                  with ℓ_n² = Γ(n+α+1) / Γ(n+1)
//   fourier        A = πF − b bᵀ                                                         B = b
//   fourier_decay  A = πF − ½ b bᵀ                                                       B = ½ b
//                  with b = (1, 0, √2, 0, √2, 0, …) and F_{2m+1,2m} = −F_{2m,2m+1} = m
//
// legs is the uniform measure on all the past (Legendre polynomials; scaled by 1/t it is exact, as it stands it weighs
// the past exponentially); legt, in the coordinates of its own polynomials lmu, and fourier are the uniform measure on
// a window of length 2; lagt and glagt (Laguerre polynomials) and fourier_decay are exponential. Gu, Dao, Ermon, Rudra,
// Ré, HiPPO, arXiv:2008.07669; Gu, Johnson, Timalsina, Rudra, Ré, arXiv:2206.12037.
//
// All but lmu, and glagt with α ≠ 0, are normal but for a term of low rank, A = V diag(W) Vᴴ − Σ_r p_r p_rᵀ with
// orthonormal V: Gu, Goel, Ré, arXiv:2111.00396. The skew part of A is the normal part's, so that a real Schur
// decomposition of it gives pairs of eigenvectors that are conjugate and orthogonal by construction, those of the
// eigenvalue 0 too.
#pragma once

#include <ogive/core/check.hpp>
#include <ogive/maps/initialisation.hpp>

#include <Eigen/Eigenvalues>

#include <cmath>
#include <complex>
#include <numbers>
#include <string>
#include <vector>

namespace ogive {

enum class measure { legs, legt, lmu, lagt, glagt, fourier, fourier_decay };

/// α and β of glagt.
struct hippo_parameters {
  double alpha = 0;    ///< in (−1, 1)
  double beta = 0.01;  ///< > 0
};

inline namespace OGIVE_ABI {

namespace maps::detail {

inline constexpr const char* measure_names[] = {"legs", "legt", "lmu", "lagt", "glagt", "fourier", "fourier_decay"};
inline const char* name_of(measure of) noexcept { return measure_names[static_cast<int>(of)]; }

inline bool is_fourier(measure of) noexcept { return of == measure::fourier || of == measure::fourier_decay; }

inline void check_parameters(core::checker& ask, measure of, const hippo_parameters& with) {
  if (!ask || of != measure::glagt) return;
  if (!(with.alpha > -1 && with.alpha < 1)) {
    ask.refuse("alpha", status_code::value) << "= " << std::to_string(with.alpha) << " is not in (-1, 1)";
  } else if (!(with.beta > 0 && std::isfinite(with.beta))) {
    ask.refuse("beta", status_code::value) << "= " << std::to_string(with.beta) << " is not positive and finite";
  }
}

inline void check_order(core::checker& ask, const char* field, index_t N, bool pairs, const char* why) {
  if (!ask) return;
  if (N < 1) ask.refuse(field) << "has N = " << N << " rows; there must be at least one";
  if (ask && pairs && N % 2 != 0) ask.refuse(field) << "has N = " << N << " rows; " << why;
}

/// √(2n + 1), the norm of Legendre polynomials.
inline double legendre(index_t n) noexcept { return std::sqrt(2.0 * static_cast<double>(n) + 1); }
inline double alternating(index_t n) noexcept { return n % 2 == 0 ? 1 : -1; }
/// b of the Fourier measures.
inline double cosine(index_t n) noexcept { return n == 0 ? 1 : n % 2 == 0 ? std::numbers::sqrt2 : 0; }

inline double laguerre(index_t n, double alpha) noexcept {
  const double x = static_cast<double>(n) + 1;
  return std::exp((std::lgamma(x + alpha) - std::lgamma(x)) / 2);
}

inline double hippo_A(measure of, index_t n, index_t k, const hippo_parameters& with) noexcept {
  const auto order = static_cast<double>(n);
  switch (of) {
    case measure::legs:
      return n > k ? -legendre(n) * legendre(k) : n == k ? -(order + 1) : 0;
    case measure::legt:
      return -legendre(n) * legendre(k) / 2 * (n >= k ? 1 : alternating(n - k));
    case measure::lmu:
      return -(2 * order + 1) * (n >= k ? alternating(n - k) : 1);
    case measure::lagt:
      return n > k ? -1 : n == k ? -0.5 : 0;
    case measure::glagt:
      return n > k ? -laguerre(k, with.alpha) / laguerre(n, with.alpha) : n == k ? -(1 + with.beta) / 2 : 0;
    default: {
      const double low_rank = cosine(n) * cosine(k) * (of == measure::fourier ? 1 : 0.5);
      const bool partners = n / 2 == k / 2 && n != k;
      const double turn = partners ? std::numbers::pi * static_cast<double>(n / 2) : 0;
      return (n > k ? turn : -turn) - low_rank;
    }
  }
}

inline double hippo_B(measure of, index_t n, const hippo_parameters& with) noexcept {
  switch (of) {
    case measure::legs:
      return legendre(n);
    case measure::legt:
      return legendre(n) / 2;
    case measure::lmu:
      return alternating(n) * (2 * static_cast<double>(n) + 1);
    case measure::lagt:
      return 1;
    case measure::glagt:
      return laguerre(n, with.alpha) * std::pow(with.beta, (1 - with.alpha) / 2) /
             (std::tgamma(1 + with.alpha) * std::sqrt(std::tgamma(1 - with.alpha)));
    default:
      return cosine(n) * (of == measure::fourier ? 1 : 0.5);
  }
}

/// p_r of the low-rank term; legt has two, for odd and for even n.
inline double hippo_p(measure of, index_t r, index_t n) noexcept {
  if (r >= (of == measure::legt ? 2 : 1)) return 0;
  switch (of) {
    case measure::legs:
      return legendre(n) / std::numbers::sqrt2;
    case measure::legt:
      return n % 2 != r ? legendre(n) / std::numbers::sqrt2 : 0;
    case measure::fourier:
      return cosine(n);
    case measure::fourier_decay:
      return cosine(n) / std::numbers::sqrt2;
    default:
      return std::numbers::sqrt2 / 2;
  }
}

/// The real part that all of W has.
inline double hippo_decay(measure of, const hippo_parameters& with) noexcept {
  return of == measure::legs ? -0.5 : of == measure::glagt ? -with.beta / 2 : 0;
}

/// Im W ≤ 0, from the most negative one on, and their eigenvectors.
struct normal_part {
  Eigen::VectorXd frequency;  // [N/2]
  Eigen::MatrixXcd V;         // [N, N/2]
};

/// Of the skew K = (A − Aᵀ)/2, N even: orthonormal q₁, q₂ with K q₁ = −b q₂ and K q₂ = b q₁ are K v = ib v for
/// v = (q₁ + i q₂)/√2.
inline normal_part decompose(measure of, index_t N, const hippo_parameters& with) {
  Eigen::MatrixXd skew(N, N);
  for (index_t n = 0; n < N; ++n)
    for (index_t k = 0; k < N; ++k) skew(n, k) = (hippo_A(of, n, k, with) - hippo_A(of, k, n, with)) / 2;
  const Eigen::RealSchur<Eigen::MatrixXd> schur(skew);
  if (schur.info() != Eigen::Success) {
    raise(status(status_code::value) << "ogive::nplr: the eigenvalues of " << name_of(of) << " with N = " << N
                                     << " did not converge");
  }
  const Eigen::MatrixXd &Q = schur.matrixU(), &T = schur.matrixT();

  struct pair {
    double b;
    index_t first, second;
  };
  std::vector<pair> pairs;
  index_t alone = -1;  // a vector of the kernel without a partner yet
  for (index_t n = 0; n < N; ++n) {
    if (n + 1 < N && T(n + 1, n) != 0) {
      pairs.push_back({(T(n, n + 1) - T(n + 1, n)) / 2, n, n + 1});
      ++n;
    } else if (alone < 0) {
      alone = n;
    } else {
      pairs.push_back({0, alone, n});
      alone = -1;
    }
  }
  std::ranges::stable_sort(pairs, {}, [](const pair& one) { return -std::abs(one.b); });

  normal_part found{Eigen::VectorXd(N / 2), Eigen::MatrixXcd(N, N / 2)};
  for (index_t m = 0; m < N / 2; ++m) {
    const auto& [b, first, second] = pairs[static_cast<std::size_t>(m)];
    found.frequency(m) = -std::abs(b);
    for (index_t n = 0; n < N; ++n) {
      found.V(n, m) = std::complex<double>(Q(n, first), b > 0 ? -Q(n, second) : Q(n, second)) / std::numbers::sqrt2;
    }
  }
  return found;
}

}  // namespace maps::detail

/// A [N, N], row n belongs to h_n, and B [N] of the continuous system; the minus sign is A's.
/// \throws shape_error for extents that do not fit, N < 1, and odd N of the Fourier measures; std::invalid_argument for
/// α or β of glagt out of range.
inline void hippo(measure of, const view<double, 2>& A, const view<double, 1>& B, const hippo_parameters& with = {}) {
  const index_t N = A.extent(0);
  core::checker ask("ogive::hippo");
  ask.given("A", A).given("B", B).extents("A", A, {N, N}, "[N, N]").extents("B", B, {N}, "[N]");
  maps::detail::check_order(ask, "A", N, maps::detail::is_fourier(of),
                            "Fourier measures have a cosine and a sine each");
  maps::detail::check_parameters(ask, of, with);
  ask.output("A", A).output("B", B).apart("A", A, "B", B);
  require(ask.result());
  for (index_t n = 0; n < N; ++n) {
    for (index_t k = 0; k < N; ++k) A(n, k) = maps::detail::hippo_A(of, n, k, with);
    B[n] = maps::detail::hippo_B(of, n, with);
  }
}

/// The normal plus low-rank form, one of each conjugate pair: W [N/2] with Im W ≤ 0, ascending, P [R, N/2], B [N/2],
/// V [N, N/2], N even:
///
///     A = 2 Re(V diag(W) Vᴴ) − Σ_r p_r p_rᵀ,   P_r = Vᴴ p_r,   B = Vᴴ B of hippo,   V and conj(V) orthonormal
///
/// In the coordinates h = 2 Re(V x) the system is x' = (diag(W) − P Pᴴ) x + B u with the conjugate halves implied. Each
/// eigenvector has an arbitrary phase. R is at least 2 for legt and 1 for the others; rows beyond that are 0.
/// \throws shape_error for extents that do not fit, odd N and too small an R; std::invalid_argument for lmu and for
/// glagt with α ≠ 0, which have no such form.
inline void nplr(measure of, const view<std::complex<double>, 1>& W, const view<std::complex<double>, 2>& P,
                 const view<std::complex<double>, 1>& B, const view<std::complex<double>, 2>& V,
                 const hippo_parameters& with = {}) {
  const index_t N = V.extent(0), R = P.extent(0);
  core::checker ask("ogive::nplr");
  ask.given("W", W).given("P", P).given("B", B).given("V", V);
  maps::detail::check_order(ask, "V", N, true, "conjugate pairs need an even N");
  ask.extents("V", V, {N, N / 2}, "[N, N/2]").extents("W", W, {N / 2}, "[N/2]").extents("B", B, {N / 2}, "[N/2]");
  ask.extents("P", P, {-1, N / 2}, "[R, N/2]");
  if (const index_t least = of == measure::legt ? 2 : 1; ask && R < least) {
    ask.refuse("P") << "has R = " << R << " rows; " << maps::detail::name_of(of) << " needs at least " << least;
  }
  maps::detail::check_parameters(ask, of, with);
  if (ask && (of == measure::lmu || (of == measure::glagt && with.alpha != 0))) {
    ask.refuse("measure", status_code::value)
        << maps::detail::name_of(of) << (of == measure::lmu ? "" : " with alpha other than 0")
        << " is not normal but for a term of low rank in these coordinates; use "
        << (of == measure::lmu ? "legt, the same window" : "lagt, or alpha = 0");
  }
  ask.output("W", W).output("P", P).output("B", B).output("V", V);
  ask.apart("W", W, "P", P).apart("W", W, "B", B).apart("W", W, "V", V);
  ask.apart("P", P, "B", B).apart("P", P, "V", V).apart("B", B, "V", V);
  require(ask.result());

  const maps::detail::normal_part found = maps::detail::decompose(of, N, with);
  const auto onto = [&](index_t m, const auto& real) {
    std::complex<double> sum = 0;
    for (index_t n = 0; n < N; ++n) sum += std::conj(found.V(n, m)) * real(n);
    return sum;
  };
  for (index_t m = 0; m < N / 2; ++m) {
    W[m] = {maps::detail::hippo_decay(of, with), found.frequency(m)};
    B[m] = onto(m, [&](index_t n) { return maps::detail::hippo_B(of, n, with); });
    for (index_t r = 0; r < R; ++r) P(r, m) = onto(m, [&](index_t n) { return maps::detail::hippo_p(of, r, n); });
    for (index_t n = 0; n < N; ++n) V(n, m) = found.V(n, m);
  }
}

/// S4D-LegS: A [D, N/2], every channel the W of legs, Re and Im scaled. Gu, Gupta, Goel, Ré, arXiv:2206.11893.
/// \throws shape_error for an A that is absent or overlaps itself.
template <std::floating_point X>
void s4d_legs(const view<std::complex<X>, 2>& A, const s4d_scales& scales = {}) {
  maps::detail::check_written("ogive::s4d_legs", "A", A);
  const index_t N = 2 * A.extent(1);
  if (N == 0) return;
  const maps::detail::normal_part found = maps::detail::decompose(measure::legs, N, {});
  maps::detail::fill_modes(
      A, [&](index_t n) { return std::complex<double>(-scales.real / 2, scales.imag * found.frequency(n)); });
}

}  // namespace OGIVE_ABI
}  // namespace ogive

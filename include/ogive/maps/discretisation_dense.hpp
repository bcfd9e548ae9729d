// L4: the rules of discretisation.hpp for a dense A. Needs Eigen, which it includes.
//
//   zoh                   [[Ā, B̄], [0, I]] = exp(Δ [[A, B], [0, 0]]), which needs no inverse of A
//   mamba                 Ā = exp(ΔA)                             B̄ = Δ B
//   generalised_bilinear  Ā = (I − α ΔA)⁻¹ (I + (1 − α) ΔA)       B̄ = (I − α ΔA)⁻¹ Δ B
//
// Van Loan, Computing integrals involving the matrix exponential, IEEE Trans. Automat. Control 23 (1978).
#pragma once

#include <ogive/maps/discretisation.hpp>

#include <Eigen/LU>
#include <unsupported/Eigen/MatrixFunctions>

namespace ogive {
inline namespace OGIVE_ABI {

namespace maps::detail {

using matrix = Eigen::MatrixXd;

inline matrix to_matrix(const view<const double, 2>& x) {
  matrix m(x.extent(0), x.extent(1));
  for (index_t i = 0; i < m.rows(); ++i)
    for (index_t j = 0; j < m.cols(); ++j) m(i, j) = x(i, j);
  return m;
}

inline void copy_to(const Eigen::Ref<const matrix>& m, const view<double, 2>& x) {
  for (index_t i = 0; i < m.rows(); ++i)
    for (index_t j = 0; j < m.cols(); ++j) x(i, j) = m(i, j);
}

/// Whether a pivot u_kk is nothing but the rounding error of the terms l_kj u_jk it was summed from.
inline bool is_singular(const Eigen::PartialPivLU<matrix>& lu) {
  const matrix& LU = lu.matrixLU();
  const double rounding = static_cast<double>(LU.rows()) * std::numeric_limits<double>::epsilon();
  for (index_t k = 0; k < LU.rows(); ++k) {
    const double terms = LU.row(k).head(k).cwiseAbs().dot(LU.col(k).head(k).cwiseAbs()) + std::abs(LU(k, k));
    if (!(std::abs(LU(k, k)) > rounding * terms)) return true;
  }
  return false;
}

}  // namespace maps::detail

/// A [N, N], B [N, M], dt [L] to Ā [L, N, N], B̄ [L, N, M].
/// \throws shape_error for extents that do not fit; std::invalid_argument for alpha outside [0, 1] and where
/// I − α ΔA is singular.
inline void discretise_dense(discretisation rule, const view<const double, 1>& dt, const view<const double, 2>& A,
                             const view<const double, 2>& B, const view<double, 3>& A_bar, const view<double, 3>& B_bar,
                             double alpha = 0.5) {
  using maps::detail::matrix;
  const index_t L = dt.extent(0);
  const index_t N = A.extent(0);
  const index_t M = B.extent(1);
  core::checker is("ogive::discretise_dense");
  is.given("dt", dt).given("A", A).given("B", B).given("A_bar", A_bar).given("B_bar", B_bar);
  is.extents("A", A, {N, N}, "[N, N]").extents("B", B, {N, M}, "[N, M]");
  is.extents("A_bar", A_bar, {L, N, N}, "[L, N, N]").extents("B_bar", B_bar, {L, N, M}, "[L, N, M]");
  maps::detail::check_written_steps(is, dt, A, B, A_bar, B_bar);
  require(is.result());
  maps::detail::check_weight(rule, alpha);
  if (N == 0) return;

  const matrix a = maps::detail::to_matrix(A);
  const matrix b = maps::detail::to_matrix(B);
  const matrix I = matrix::Identity(N, N);
  for (index_t l = 0; l < L; ++l) {
    const double step = dt[l];
    if (rule == discretisation::none) {
      maps::detail::copy_to(a, A_bar[l]);
      maps::detail::copy_to(b, B_bar[l]);
    } else if (rule == discretisation::zoh) {
      matrix block = matrix::Zero(N + M, N + M);
      block.topLeftCorner(N, N) = step * a;
      block.topRightCorner(N, M) = step * b;
      const matrix e = block.exp();
      maps::detail::copy_to(e.topLeftCorner(N, N), A_bar[l]);
      maps::detail::copy_to(e.topRightCorner(N, M), B_bar[l]);
    } else if (rule == discretisation::mamba) {
      maps::detail::copy_to((step * a).exp(), A_bar[l]);
      maps::detail::copy_to(step * b, B_bar[l]);
    } else {
      const double weight = maps::detail::weight_of(rule, alpha);
      const Eigen::PartialPivLU<matrix> left(I - weight * step * a);
      if (maps::detail::is_singular(left)) {
        raise(status(status_code::value) << "ogive::discretise_dense: I - alpha dt A is singular for alpha = "
                                         << std::to_string(weight) << " and dt[" << l << "] = " << std::to_string(step)
                                         << ": alpha dt A has the eigenvalue 1; choose another dt or rule");
      }
      maps::detail::copy_to(left.solve(I + (1 - weight) * step * a), A_bar[l]);
      maps::detail::copy_to(left.solve(step * b), B_bar[l]);
    }
  }
}

}  // namespace OGIVE_ABI
}  // namespace ogive

// L4: where training starts: A of diagonal systems and the step Δ.
//
//   S4D-Lin    A_n = −½ − iπn                               one of each conjugate pair, n < N/2
//   S4D-Inv    A_n = −½ − i (N/π) (N/(2n+1) − 1)            the asymptotics of LegS
//   S4D-Real   A_n = −(n+1)
//   Mamba      A_log_n = log(n+1), A = −exp(A_log)          Mamba-2: A_log = log a, a uniform in [low, high]
//   Δ          max(exp(log Δ_min + u (log Δ_max − log Δ_min)), floor), u uniform in [0, 1)
//   dt_bias    softplus⁻¹(Δ) = Δ + log(1 − exp(−Δ)), so that softplus(dt_bias) = Δ
//
// Gu, Gupta, Goel, Ré, arXiv:2206.11893 (S4D; S4D-LegS is in hippo.hpp); Gu, Dao, arXiv:2312.00752; Dao, Gu,
// arXiv:2405.21060. Im A ≤ 0 as in nplr; the conjugate with a conjugate C is the same system. Draws u are the caller's.
// Everything is computed in double and rounded once.
#pragma once

#include <ogive/core/check.hpp>

#include <cmath>
#include <complex>
#include <concepts>
#include <numbers>
#include <string>

namespace ogive {

/// Factors of the real and of the imaginary part of A.
struct s4d_scales {
  double real = 1, imag = 1;
};

/// What Δ is drawn from.
struct step_range {
  double min = 1e-3, max = 1e-1;
  double floor = 0;  ///< no Δ is smaller; Mamba has 1e-4
};

inline namespace OGIVE_ABI {

namespace maps::detail {

template <class T, std::size_t Rank>
void check_written(const char* name, const char* field, const view<T, Rank>& x) {
  core::checker ask(name);
  require(ask.given(field, x).output(field, x).result());
}

/// y_i from x_i: in place, or in memory of its own.
template <class T, class U>
void check_elementwise(core::checker& ask, const char* written, const view<T, 1>& y, const char* read,
                       const view<const U, 1>& x) {
  const bool in_place = static_cast<const void*>(y.data()) == static_cast<const void*>(x.data()) &&
                        sizeof(T) == sizeof(U) && y.strides() == x.strides();
  ask.output(written, y);
  if (!in_place) ask.apart(written, y, read, x);
}

/// A [D, N/2]: the same modes f(n) for every channel.
template <std::floating_point X, class F>
void fill_modes(const view<std::complex<X>, 2>& A, const F& f) {
  for (index_t n = 0; n < A.extent(1); ++n) {
    const std::complex<double> mode = f(n);
    for (index_t d = 0; d < A.extent(0); ++d) A(d, n) = {static_cast<X>(mode.real()), static_cast<X>(mode.imag())};
  }
}

}  // namespace maps::detail

/// S4D-Lin, A [D, N/2]. \throws shape_error for an A that is absent or overlaps itself, as all functions here.
template <std::floating_point X>
void s4d_lin(const view<std::complex<X>, 2>& A, const s4d_scales& scales = {}) {
  maps::detail::check_written("ogive::s4d_lin", "A", A);
  maps::detail::fill_modes(A, [&](index_t n) {
    return std::complex<double>(-scales.real / 2, -scales.imag * std::numbers::pi * static_cast<double>(n));
  });
}

/// S4D-Inv, A [D, N/2].
template <std::floating_point X>
void s4d_inv(const view<std::complex<X>, 2>& A, const s4d_scales& scales = {}) {
  maps::detail::check_written("ogive::s4d_inv", "A", A);
  const auto N = static_cast<double>(2 * A.extent(1));
  maps::detail::fill_modes(A, [&](index_t n) {
    const double odd = 2 * static_cast<double>(n) + 1;
    return std::complex<double>(-scales.real / 2, -scales.imag * N / std::numbers::pi * ((N - odd) / odd));
  });
}

/// S4D-Real as complex modes, A [D, N/2].
template <std::floating_point X>
void s4d_real(const view<std::complex<X>, 2>& A) {
  maps::detail::check_written("ogive::s4d_real", "A", A);
  maps::detail::fill_modes(A, [](index_t n) { return std::complex<double>(-static_cast<double>(n + 1), 0); });
}

/// Mamba's A_log [D, N].
template <std::floating_point X>
void mamba_A_log(const view<X, 2>& A_log) {
  maps::detail::check_written("ogive::mamba_A_log", "A_log", A_log);
  for (index_t n = 0; n < A_log.extent(1); ++n)
    for (index_t d = 0; d < A_log.extent(0); ++d) A_log(d, n) = static_cast<X>(std::log(static_cast<double>(n + 1)));
}

/// Mamba-2's A_log [H] from draws u [H] in [0, 1). \throws also std::invalid_argument unless 0 < low ≤ high.
template <std::floating_point X>
void mamba2_A_log(const view<const double, 1>& u, const view<X, 1>& A_log, double low = 1, double high = 16) {
  core::checker ask("ogive::mamba2_A_log");
  ask.given("u", u).given("A_log", A_log).extents("A_log", A_log, u.extents(), "[H] as u");
  maps::detail::check_elementwise(ask, "A_log", A_log, "u", u);
  if (ask && !(low > 0 && low <= high)) {
    ask.refuse("low", status_code::value)
        << "= " << std::to_string(low) << " must be positive and at most high = " << std::to_string(high);
  }
  require(ask.result());
  for (index_t h = 0; h < u.extent(0); ++h) A_log[h] = static_cast<X>(std::log(low + u[h] * (high - low)));
}

/// x with softplus(x) = y, for y > 0.
inline double inverse_softplus(double y) noexcept { return y + std::log(-std::expm1(-y)); }

/// Δ [D], log-uniform, from draws u [D] in [0, 1). \throws also std::invalid_argument unless 0 < min ≤ max.
template <std::floating_point X>
void log_uniform_steps(const view<const double, 1>& u, const view<X, 1>& dt, const step_range& range = {}) {
  core::checker ask("ogive::log_uniform_steps");
  ask.given("u", u).given("dt", dt).extents("dt", dt, u.extents(), "[D] as u");
  maps::detail::check_elementwise(ask, "dt", dt, "u", u);
  if (ask && !(range.min > 0)) {
    ask.refuse("range.min", status_code::value) << "= " << std::to_string(range.min) << " must be positive";
  }
  if (ask && !(range.min <= range.max)) {
    ask.refuse("range.min", status_code::value)
        << "= " << std::to_string(range.min) << " is larger than range.max = " << std::to_string(range.max);
  }
  require(ask.result());
  const double low = std::log(range.min), high = std::log(range.max);
  for (index_t d = 0; d < u.extent(0); ++d) {
    dt[d] = static_cast<X>(std::fmax(std::exp(u[d] * (high - low) + low), range.floor));
  }
}

/// dt_bias [D] whose softplus is dt [D]. \throws also std::invalid_argument where a dt is not positive.
template <std::floating_point X>
void softplus_bias(const view<const X, 1>& dt, const view<X, 1>& dt_bias) {
  core::checker ask("ogive::softplus_bias");
  ask.given("dt", dt).given("dt_bias", dt_bias);
  ask.extents("dt_bias", dt_bias, dt.extents(), "[D] as dt");
  maps::detail::check_elementwise(ask, "dt_bias", dt_bias, "dt", dt);
  for (index_t d = 0; ask && d < dt.extent(0); ++d) {
    if (!(dt[d] > 0)) {
      ask.refuse("dt", status_code::value) << "entry " << d << " is " << std::to_string(dt[d]) << ", must be positive";
    }
  }
  require(ask.result());
  for (index_t d = 0; d < dt.extent(0); ++d) {
    dt_bias[d] = static_cast<X>(inverse_softplus(static_cast<double>(dt[d])));
  }
}

}  // namespace OGIVE_ABI
}  // namespace ogive

// L5: the kernel of modes that a term of low rank couples, K_l = ⟨C̄, A̅ˡ B̅⟩, from the values of its generating function.
//
//   K̂(z) = Σ_{l<n} K_l zˡ = C̃ (I − z A̅)⁻¹ B̅,   C̃ = C (I − zⁿ A̅ⁿ) = C (I + A̅ⁿ)   at the n/2 pairs of roots of zⁿ = −1
//
//   A̅ = diag(a) − Σ_r U_r Q_rᵀ:   (I − z A̅)⁻¹ = E − z E U (I_R + z Qᵀ E U)⁻¹ Qᵀ E,   E = diag(1/(1 − z a))
//
// so that K̂(z) comes from (R + 1)² Cauchy sums Σ_n x_n y_n / (1 − z a_n) over the modes and their conjugates; then the
// coefficients from the values, by the transform that convolutions use. The truncation, C A̅ⁿ, is a sweep of the
// transposed system: the caller holds the true C. Everything in double, lanes are channels.
// Gu, Goel, Ré, arXiv:2111.00396, section 3.2, with zⁿ = 1.
#pragma once

#include <ogive/engine/coupled_modes_sweep.hpp>
#include <ogive/engine/polynomial_transform.hpp>

#include <numbers>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// W channels' kernels of at most n taps, in a worker's memory.
class coupled_kernel {
  using vector = simd::batch<double>;
  using complex = std::complex<double>;
  static constexpr index_t W = simd::width<double>;

 public:
  using transform = polynomial_transform<double>;
  static constexpr index_t channels = W;

  static std::size_t bytes(index_t states, index_t rank, index_t n) noexcept {
    arena counted;
    coupled_kernel(states, rank, n, counted);
    return counted.used();
  }

  coupled_kernel(index_t states, index_t rank, index_t n, arena& memory) noexcept
      : panel_(coupled_panel<double>::carve(states, rank, memory)),
        coefficients_(coupled_coefficients::carve(states, rank, memory)),
        m_(n / 2),
        cauchy_(memory.take<double>(states * cauchy_planes() * W)),
        sums_(memory.take<double>(2 * pairs() * W)),
        roots_(memory.take<complex>(m_)),
        values_(memory.take<double>(W * n)) {}

  /// The kernels of `count` channels from `channel` on.
  template <class Op>
  void run(const Op& op, index_t channel, index_t count, const transform& by) noexcept {
    find_roots(by);
    panel_.pack(op, channel, count, coefficients_);
    pack_cauchy();
    truncate(op, channel, count);
    for (index_t k = 0; k < m_; ++k) evaluate(k, count);
    for (index_t lane = 0; lane < count; ++lane) by.inverse(values_ + lane * 2 * m_);
  }

  /// K_l of the lane-th channel.
  double tap(index_t lane, index_t l) const noexcept { return values_[lane * 2 * m_ + l] / static_cast<double>(m_); }

 private:
  index_t rank() const noexcept { return panel_.rank; }
  index_t side() const noexcept { return rank() + 1; }
  index_t pairs() const noexcept { return side() * side(); }
  /// a, and x_i y_j for x = C̃, Q_1, … and y = B̅, U_1, …
  index_t cauchy_planes() const noexcept { return 2 + 2 * pairs(); }
  double* plane(index_t n, index_t i) const noexcept { return cauchy_ + (n * cauchy_planes() + i) * W; }
  vector coefficient(index_t n, index_t i) const noexcept {
    return simd::load(panel_.modes + (n * panel_.planes() + i) * W);
  }

  /// z_k, in the order of the transform's values: those of the polynomial x, rounded to the nearest root of z^m = i.
  void find_roots(const transform& by) noexcept {
    for (index_t j = 0; j < 2 * m_; ++j) values_[j] = j == 1 ? 1 : 0;
    by.forward(values_);
    const double turn = 2 * std::numbers::pi, m = static_cast<double>(m_);
    for (index_t k = 0; k < m_; ++k) {
      const double angle = std::atan2(values_[m_ + k], values_[k]);
      const double nearest = std::round(angle / turn * m - 0.25) + 0.25;
      roots_[k] = std::polar(1.0, turn * (nearest / m));
    }
  }

  struct pair {
    vector re, im;
  };
  /// x_i (i = 0: C̃ later) of mode n, and y_j.
  pair left(index_t n, index_t i) const noexcept {
    const vector half(0.5);  // the panel has 2 q̄
    return {half * coefficient(n, 2 + 4 * i), vector(-0.5) * coefficient(n, 3 + 4 * i)};
  }
  pair right(index_t n, index_t j) const noexcept {
    if (j == 0) return {coefficient(n, 2), coefficient(n, 3)};
    return {vector(-1.0) * coefficient(n, 4 + 4 * j), vector(-1.0) * coefficient(n, 5 + 4 * j)};
  }
  void put_products(index_t n, index_t i, const pair& x) noexcept {
    for (index_t j = 0; j < side(); ++j) {
      const pair y = right(n, j);
      double* at = plane(n, 2 + 2 * (i * side() + j));
      simd::store(at, simd::fnma(x.im, y.im, x.re * y.re));
      simd::store(at + W, simd::fma(x.im, y.re, x.re * y.im));
    }
  }
  void pack_cauchy() noexcept {
    for (index_t n = 0; n < panel_.states; ++n) {
      simd::store(plane(n, 0), coefficient(n, 0));
      simd::store(plane(n, 1), coefficient(n, 1));
      for (index_t i = 1; i < side(); ++i) put_products(n, i, left(n, i));
    }
  }

  /// C̃ = C + C A̅ⁿ: the system with U and Q exchanged, n steps on from C.
  template <class Op>
  void truncate(const Op& op, index_t channel, index_t count) noexcept {
    zero_tile(panel_.h, W, 0, 2 * panel_.states, W);
    for (index_t n = 0; n < panel_.states; ++n) {
      for (index_t lane = 0; lane < count; ++lane) {
        const complex c(op.C(channel + lane, n));
        panel_.h[2 * n * W + lane] = c.real();
        panel_.h[(2 * n + 1) * W + lane] = c.imag();
      }
    }
    keep_state();
    transpose();
    start_coupled(panel_);
    sweep_coupled<false, double>(panel_, 2 * m_, nullptr, nullptr);
    transpose();
    for (index_t n = 0; n < panel_.states; ++n) {
      const pair c{simd::load(plane(n, 2)) + simd::load(panel_.h + 2 * n * W),
                   simd::load(plane(n, 3)) + simd::load(panel_.h + (2 * n + 1) * W)};
      put_products(n, 0, c);
    }
  }
  void keep_state() noexcept {
    for (index_t n = 0; n < panel_.states; ++n) {
      simd::store(plane(n, 2), simd::load(panel_.h + 2 * n * W));
      simd::store(plane(n, 3), simd::load(panel_.h + (2 * n + 1) * W));
    }
  }
  /// U ↔ Q in the panel, which has 2 Q̄ and −U.
  void transpose() noexcept {
    const vector two(-2.0), half(-0.5);
    for (index_t n = 0; n < panel_.states; ++n) {
      for (index_t r = 0; r < rank(); ++r) {
        double* q = panel_.modes + (n * panel_.planes() + 6 + 4 * r) * W;
        double* u = q + 2 * W;
        const vector q_re = simd::load(q), q_im = simd::load(q + W), u_re = simd::load(u), u_im = simd::load(u + W);
        simd::store(q, two * u_re);
        simd::store(q + W, vector(2.0) * u_im);
        simd::store(u, half * q_re);
        simd::store(u + W, vector(0.5) * q_im);
      }
    }
  }

  /// K̂(z_k) of all lanes.
  void evaluate(index_t k, index_t count) noexcept {
    switch (rank()) {
      case 0:
        add_cauchy<0>(roots_[k]);
        break;
      case 1:
        add_cauchy<1>(roots_[k]);
        break;
      case 2:
        add_cauchy<2>(roots_[k]);
        break;
      default:
        add_cauchy<-1>(roots_[k]);
    }
    for (index_t lane = 0; lane < count; ++lane) {
      const complex value = solve(lane, roots_[k]);
      values_[lane * 2 * m_ + k] = value.real();
      values_[lane * 2 * m_ + m_ + k] = value.imag();
    }
  }

  /// sums_ij = Σ_n v_n / (1 − z a_n) + v̄_n / (1 − z ā_n), v = x_i y_j.
  template <int Rank>
  OGIVE_NOINLINE void add_cauchy(const complex& z) noexcept {
    constexpr int most = Rank < 0 ? 1 : (Rank + 1) * (Rank + 1);
    const vector z_re(z.real()), z_im(z.imag()), one(1.0), zero(0.0);
    vector re[most], im[most];
    unroll<most>([&](auto i) __attribute__((always_inline)) { re[i] = im[i] = zero; });
    if constexpr (Rank < 0) {
      for (index_t i = 0; i < 2 * pairs(); ++i) simd::store(sums_ + i * W, zero);
    }
    const double* at = cauchy_;
    for (index_t n = 0; n < panel_.states; ++n, at += cauchy_planes() * W) {
      const vector a_re = simd::load(at), a_im = simd::load(at + W);
      const vector rr = a_re * z_re, ii = a_im * z_im, ri = a_re * z_im, ir = a_im * z_re;
      // 1 − z a and 1 − z ā; their reciprocals by one division.
      const vector d_re = one - (rr - ii), d_im = ri + ir, e_re = one - (rr + ii), e_im = ri - ir;
      const vector d = simd::fma(d_re, d_re, d_im * d_im), e = simd::fma(e_re, e_re, e_im * e_im);
      const vector both = one / (d * e), d_inverse = both * e, e_inverse = both * d;
      const vector f_re = d_re * d_inverse, f_im = d_im * d_inverse, g_re = e_re * e_inverse, g_im = e_im * e_inverse;
      const vector sum_re = f_re + g_re, sum_im = f_im + g_im, less_re = f_re - g_re, less_im = f_im - g_im;
      const auto add = [&](index_t i, vector & to_re, vector & to_im) __attribute__((always_inline)) {
        const vector v_re = simd::load(at + (2 + 2 * i) * W), v_im = simd::load(at + (3 + 2 * i) * W);
        to_re = simd::fma(v_re, sum_re, simd::fnma(v_im, less_im, to_re));
        to_im = simd::fma(v_re, sum_im, simd::fma(v_im, less_re, to_im));
      };
      if constexpr (Rank < 0) {
        for (index_t i = 0; i < pairs(); ++i) {
          vector to_re = simd::load(sums_ + 2 * i * W), to_im = simd::load(sums_ + (2 * i + 1) * W);
          add(i, to_re, to_im);
          simd::store(sums_ + 2 * i * W, to_re);
          simd::store(sums_ + (2 * i + 1) * W, to_im);
        }
      } else {
        unroll<most>([&](auto i) __attribute__((always_inline)) { add(i, re[i], im[i]); });
      }
    }
    if constexpr (Rank >= 0) {
      unroll<most>([&](auto i) __attribute__((always_inline)) {
        simd::store(sums_ + 2 * i * W, re[i]);
        simd::store(sums_ + (2 * i + 1) * W, im[i]);
      });
    }
  }

  complex sum(index_t lane, index_t i, index_t j) const noexcept {
    const double* at = sums_ + 2 * (i * side() + j) * W + lane;
    return {at[0], at[W]};
  }

  /// k_00 − z Σ_r k_0r x_r with (I + z k) x = k_·0, by elimination with row pivots.
  complex solve(index_t lane, const complex& z) const noexcept {
    complex value = sum(lane, 0, 0);
    const index_t R = rank();
    if (R == 1) return value - z * sum(lane, 0, 1) * sum(lane, 1, 0) / (1.0 + z * sum(lane, 1, 1));
    complex rows[dplr_most_rank][dplr_most_rank + 1];
    for (index_t r = 0; r < R; ++r) {
      for (index_t s = 0; s < R; ++s) rows[r][s] = z * sum(lane, r + 1, s + 1) + (r == s ? 1.0 : 0.0);
      rows[r][R] = sum(lane, r + 1, 0);
    }
    for (index_t k = 0; k < R; ++k) {
      index_t pivot = k;
      for (index_t r = k + 1; r < R; ++r) {
        if (std::abs(rows[r][k]) > std::abs(rows[pivot][k])) pivot = r;
      }
      for (index_t s = k; s <= R; ++s) std::swap(rows[k][s], rows[pivot][s]);
      for (index_t r = k + 1; r < R; ++r) {
        const complex factor = rows[r][k] / rows[k][k];
        for (index_t s = k + 1; s <= R; ++s) rows[r][s] -= factor * rows[k][s];
      }
    }
    for (index_t k = R; k-- > 0;) {
      for (index_t s = k + 1; s < R; ++s) rows[k][R] -= rows[k][s] * rows[s][R];
      rows[k][R] /= rows[k][k];
      value -= z * sum(lane, 0, k + 1) * rows[k][R];
    }
    return value;
  }

  coupled_panel<double> panel_;
  coupled_coefficients coefficients_;
  index_t m_;
  double* cauchy_;  // [states, cauchy_planes, W]
  double* sums_;    // [R + 1, R + 1, 2, W]
  complex* roots_;  // [m]
  double* values_;  // [W, n]
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

// L5: the kernel of fixed modes, a product with a Vandermonde matrix that is never there.
//
//   K_l = Re Σ_n c_n a_nˡ                                               l = (g R + r) S + j,   r < R,   j < S
//       = Σ_n Re X_rn Re P_nj − Im X_rn Im P_nj,   P_nj = a_nʲ,   X_rn = c_n a_n^{gRS} a_n^{rS}
//
// for each g a product of two small panels: two multiply-adds per mode and element of K (one where modes are real),
// and O(N (R + S)) powers. Powers are chains of products in double, rounded once, and at most two of them are
// multiplied in the accumulation type, so that an element is off by at most (2N + 16) u + 4 l 2⁻⁵³ of Σ_n |c_n a_nˡ|, u
// the unit roundoff of that type: the second part is what a_n itself, known to a rounding, leaves open.
#pragma once

#include <ogive/core/scratch.hpp>
#include <ogive/engine/tiles.hpp>
#include <ogive/linalg/gemm.hpp>
#include <ogive/simd/batch.hpp>

#include <algorithm>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// The sizes of the tables, a function of the length.
struct kernel_plan {
  static constexpr index_t R = 16, chain = 16;  // rows of a product; powers that follow from each other in P
  index_t length;
  index_t states;
  index_t parts;
  index_t S;  // columns of a product

  static kernel_plan of(index_t length, index_t states, index_t parts) noexcept {
    return {length, states, parts, chain * std::clamp<index_t>(length / (R * chain), 1, 4)};
  }
  index_t rows() const noexcept { return parts * states; }
};

/// The memory of one channel's kernel. Complex numbers are planes: real parts, then imaginary ones.
template <class Acc>
struct kernel_scratch {
  double *a, *c;           // [parts, N], and what the caller fills in
  double *step, *power;    // [parts, N]
  Acc* powers;             // [chain, parts N]
  Acc *near, *far, *rows;  // [parts N, chain]: a^j, a^{16 j}, a^{S r}
  Acc* P;                  // [parts N, S]
  Acc* X;                  // [parts N, R]
  Acc* out;                // [R, S]

  static kernel_scratch carve(const kernel_plan& p, arena& memory) noexcept {
    const index_t n = p.rows(), table = n * kernel_plan::chain;
    kernel_scratch s{};
    for (double** x : {&s.a, &s.c, &s.step, &s.power}) *x = memory.take<double>(n);
    for (Acc** x : {&s.powers, &s.near, &s.far, &s.rows, &s.X}) *x = memory.take<Acc>(table);
    s.P = memory.take<Acc>(n * p.S);
    s.out = memory.take<Acc>(kernel_plan::R * p.S);
    return s;
  }
};

/// K [L] of modes a and c that stand in the scratch. Instantiated per (accumulator, instruction set, real or complex).
template <bool Complex, class Acc, class Arch = simd::default_arch>
class modes_kernel {
  using wide = simd::batch<double, Arch>;
  using vector = simd::batch<Acc, Arch>;
  static constexpr index_t W = simd::width<Acc, Arch>, wide_W = simd::width<double, Arch>;
  static constexpr index_t R = kernel_plan::R, chain = kernel_plan::chain;

 public:
  OGIVE_NOINLINE static void run(const kernel_plan& p, const kernel_scratch<Acc>& s, const view<Acc, 1>& K) noexcept {
    modes_kernel(p, s).write(K);
  }

 private:
  modes_kernel(const kernel_plan& p, const kernel_scratch<Acc>& s) noexcept : p_(p), s_(s) {}

  void write(const view<Acc, 1>& K) noexcept {
    const index_t N = p_.states;
    for (index_t i = 0; i < p_.rows(); ++i) s_.step[i] = s_.a[i];
    table(chain, s_.near);
    table(p_.S / chain, s_.far);
    for (index_t n = 0; n < N; ++n) products(n);
    table(R, s_.rows);
    for (index_t i = 0; i < p_.rows(); ++i) s_.power[i] = s_.c[i];
    const index_t block = R * p_.S;
    for (index_t l = 0; l < p_.length; l += block) {
      if (l > 0) advance();
      left_factors();
      const index_t count = std::min(block, p_.length - l), rows = (count + p_.S - 1) / p_.S;
      const bool straight = K.stride(0) == 1 && count == block;
      Acc* out = straight ? K.pointer(l) : s_.out;
      linalg::gemm_atb<Arch>(rows, p_.S, p_.rows(), {s_.X, R}, {s_.P, p_.S}, linalg::panel<Acc>{out, p_.S});
      if (!straight) store_tile(s_.out, count, view<Acc, 2>(K.pointer(l), {1, count}, {0, K.stride(0)}));
    }
  }

  /// power ← power step, for all modes.
  void advance() noexcept { multiply(s_.power, s_.step); }

  OGIVE_INLINE void multiply(double* x, const double* y) noexcept {
    const index_t N = p_.states;
    for (index_t n = 0; n < N; n += wide_W) {
      const simd::lanes<double, Arch> some(N - n);
      const wide re = simd::load(x + n, some), y_re = simd::load(y + n, some);
      if constexpr (Complex) {
        const wide im = simd::load(x + N + n, some), y_im = simd::load(y + N + n, some);
        simd::store(x + n, simd::fnma(im, y_im, re * y_re), some);
        simd::store(x + N + n, simd::fma(re, y_im, im * y_re), some);
      } else {
        simd::store(x + n, re * y_re, some);
      }
    }
  }

  /// to[:, j] = stepʲ for j < count; step becomes step^count.
  void table(index_t count, Acc* to) noexcept {
    const index_t N = p_.states, n_rows = p_.rows();
    for (index_t n = 0; n < N; ++n) {
      s_.power[n] = 1;
      if constexpr (Complex) s_.power[N + n] = 0;
    }
    for (index_t j = 0; j < count; ++j) {
      for (index_t i = 0; i < n_rows; i += wide_W) {
        const index_t some = std::min(wide_W, n_rows - i);
        simd::store_as(s_.powers + j * n_rows + i, simd::load<Arch>(s_.power + i, some), some);
      }
      advance();
    }
    linalg::transpose<Arch>(count, n_rows, {s_.powers, n_rows}, linalg::panel<Acc>{to, chain});
    for (index_t i = 0; i < n_rows; ++i) s_.step[i] = s_.power[i];
  }

  /// P_nj = near_n(j mod 16) far_n(j div 16).
  void products(index_t n) noexcept {
    for (index_t m = 0; m < p_.S / chain; ++m)
      scaled(n, s_.near, s_.far[n * chain + m], imaginary(s_.far, n, m), s_.P + m * chain, p_.S, vector(Acc(1)));
  }
  Acc imaginary(const Acc* table, index_t n, index_t m) const noexcept {
    return Complex ? table[(p_.states + n) * chain + m] : Acc(0);
  }

  /// X_n = (c a^{gRS})_n rows_n, imaginary parts negated.
  void left_factors() noexcept {
    for (index_t n = 0; n < p_.states; ++n) {
      scaled(n, s_.rows, static_cast<Acc>(s_.power[n]), Complex ? static_cast<Acc>(s_.power[p_.states + n]) : Acc(0),
             s_.X, R, vector(Acc(-1)));
    }
  }

  /// Row n of `table`, 16 numbers, times re + i im into row n of `to`; imaginary parts times `sign`.
  OGIVE_INLINE void scaled(index_t n, const Acc* table, Acc re, Acc im, Acc* to, index_t stride,
                           const vector& sign) noexcept {
    static_assert(R == chain && R % W == 0);
    for (index_t j = 0; j < chain; j += W) {
      const vector x = simd::load<Arch>(table + n * chain + j), a(re);
      if constexpr (Complex) {
        const vector y = simd::load<Arch>(table + (p_.states + n) * chain + j), b(im);
        simd::store(to + n * stride + j, simd::fnma(y, b, x * a));
        simd::store(to + (p_.states + n) * stride + j, simd::fma(x, b, y * a) * sign);
      } else {
        simd::store(to + n * stride + j, x * a);
      }
    }
  }

  const kernel_plan& p_;
  const kernel_scratch<Acc>& s_;
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

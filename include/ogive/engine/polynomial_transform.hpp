// L5: products of real polynomials modulo x^n + 1, which is what a convolution by transforms needs.
//
// With i = x^{n/2} a real polynomial of degree below n is a complex one of degree below m = n/2 modulo x^m − i: its
// first half the real parts, its second half the imaginary ones. Its values at the m roots of x^m = i multiply number
// by number; nothing has to be taken apart as in transforms of real numbers at the roots of one. A product of degree
// below n is the product itself; above, it wraps with its sign changed.
//
// The values come by division, four ways at a time: f mod (x^{4q} − c⁴) gives f mod (x^q − c), (x^q + c), (x^q − ic),
// (x^q + ic), one constant for each block. The deepest W² coefficients are a square of W vectors; it is divided as
// rows, turned, and divided as columns, so that every operation is on whole vectors. Values stay where this leaves
// them. Bernstein, Multidigit multiplication for mathematicians (2001), has the way from polynomial rings to these
// transforms.
#pragma once

#include <ogive/simd/batch.hpp>

#include <cmath>
#include <memory>
#include <new>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// Tables for one n, a power of two of at least `least`. Kernels only read them.
template <class Acc>
class polynomial_transform {
  using vector = simd::batch<Acc>;
  static constexpr index_t W = simd::width<Acc>;
  static constexpr index_t square = W * W;

 public:
  static constexpr index_t least = 2 * square;

  /// The smallest n for polynomials of degree below `count`.
  static constexpr index_t size_for(index_t count) noexcept {
    index_t n = least;
    while (n < count) n *= 2;
    return n;
  }

  explicit polynomial_transform(index_t n) : m_(n / 2), table_(new Acc[static_cast<std::size_t>(table_size(m_))]) {
    fill(m_, 0.25, table_.get());
  }

  index_t size() const noexcept { return 2 * m_; }

  /// Coefficients x [n] to values, in place.
  OGIVE_NOINLINE void forward(Acc* x) const noexcept { divide(x, x + m_, m_, table_.get()); }

  /// Values to n/2 times the coefficients, in place.
  OGIVE_NOINLINE void inverse(Acc* x) const noexcept { join(x, x + m_, m_, table_.get()); }

  /// x ← x · k, values of both.
  OGIVE_NOINLINE void multiply(Acc* x, const Acc* k) const noexcept {
    for (index_t j = 0; j < m_; j += W) {
      const number a = load(x, x + m_, j), b = load(k, k + m_, j);
      store(x, x + m_, j, times(a, b));
    }
  }

  /// sum ← sum + x · k
  OGIVE_NOINLINE void add_product(const Acc* x, const Acc* k, Acc* sum) const noexcept {
    for (index_t j = 0; j < m_; j += W) {
      const number a = load(x, x + m_, j), b = load(k, k + m_, j), s = load(sum, sum + m_, j);
      store(sum, sum + m_, j,
            {simd::fnma(a.im, b.im, simd::fma(a.re, b.re, s.re)), simd::fma(a.im, b.re, simd::fma(a.re, b.im, s.im))});
    }
  }

  /// x ← x · k(1/x): the correlation Σ_l x_{j+l} k_l.
  OGIVE_NOINLINE void correlate(Acc* x, const Acc* k) const noexcept {
    for (index_t j = 0; j < m_; j += W) {
      const number a = load(x, x + m_, j), b = load(k, k + m_, j);
      store(x, x + m_, j, over(a, b));
    }
  }

  /// sum ← sum + x · k(1/x)
  OGIVE_NOINLINE void add_correlation(const Acc* x, const Acc* k, Acc* sum) const noexcept {
    for (index_t j = 0; j < m_; j += W) {
      const number a = load(x, x + m_, j), b = load(k, k + m_, j), s = load(sum, sum + m_, j);
      store(sum, sum + m_, j, s + over(a, b));
    }
  }

 private:
  struct number {
    vector re, im;
    friend OGIVE_INLINE number operator+(const number& a, const number& b) noexcept {
      return {a.re + b.re, a.im + b.im};
    }
    friend OGIVE_INLINE number operator-(const number& a, const number& b) noexcept {
      return {a.re - b.re, a.im - b.im};
    }
  };
  static OGIVE_INLINE number load(const Acc* re, const Acc* im, index_t j) noexcept {
    return {simd::load(re + j), simd::load(im + j)};
  }
  static OGIVE_INLINE void store(Acc* re, Acc* im, index_t j, const number& x) noexcept {
    simd::store(re + j, x.re);
    simd::store(im + j, x.im);
  }
  static OGIVE_INLINE number times(const number& a, const number& c) noexcept {
    return {simd::fnma(a.im, c.im, a.re * c.re), simd::fma(a.im, c.re, a.re * c.im)};
  }
  /// a · c̄, which is a/c for |c| = 1
  static OGIVE_INLINE number over(const number& a, const number& c) noexcept {
    return {simd::fma(a.im, c.im, a.re * c.re), simd::fnma(a.re, c.im, a.im * c.re)};
  }

  /// Constant number `which` of a block: one for all lanes, or one for each.
  template <bool Lanes>
  static OGIVE_INLINE number constant(const Acc* w, index_t which) noexcept {
    if constexpr (Lanes) {
      return {simd::load(w + 2 * which * W), simd::load(w + (2 * which + 1) * W)};
    } else {
      return {vector(w[2 * which]), vector(w[2 * which + 1])};
    }
  }

  /// One block of Radix·q coefficients; its constants are c, c², c³, or c.
  template <index_t Radix, bool Lanes>
  static OGIVE_INLINE void divide_block(Acc* re, Acc* im, index_t q, const Acc* w) noexcept {
    const number c = constant<Lanes>(w, 0);
    if constexpr (Radix == 4) {
      const number c2 = constant<Lanes>(w, 1), c3 = constant<Lanes>(w, 2);
      for (index_t j = 0; j < q; j += W) {
        const number a = load(re, im, j), b1 = times(load(re, im, j + q), c), b2 = times(load(re, im, j + 2 * q), c2),
                     b3 = times(load(re, im, j + 3 * q), c3);
        const number even = a + b2, odd = b1 + b3, less = a - b2, rest = b1 - b3;
        store(re, im, j, even + odd);
        store(re, im, j + q, even - odd);
        store(re, im, j + 2 * q, {less.re - rest.im, less.im + rest.re});
        store(re, im, j + 3 * q, {less.re + rest.im, less.im - rest.re});
      }
    } else {
      for (index_t j = 0; j < q; j += W) {
        const number a = load(re, im, j), b = times(load(re, im, j + q), c);
        store(re, im, j, a + b);
        store(re, im, j + q, a - b);
      }
    }
  }

  /// Its inverse, times Radix.
  template <index_t Radix, bool Lanes>
  static OGIVE_INLINE void join_block(Acc* re, Acc* im, index_t q, const Acc* w) noexcept {
    const number c = constant<Lanes>(w, 0);
    if constexpr (Radix == 4) {
      const number c2 = constant<Lanes>(w, 1), c3 = constant<Lanes>(w, 2);
      for (index_t j = 0; j < q; j += W) {
        const number v0 = load(re, im, j), v1 = load(re, im, j + q), v2 = load(re, im, j + 2 * q),
                     v3 = load(re, im, j + 3 * q);
        const number sum = v0 + v1, less = v0 - v1, other = v2 + v3, rest = v2 - v3;
        store(re, im, j, sum + other);
        store(re, im, j + q, over({less.re + rest.im, less.im - rest.re}, c));
        store(re, im, j + 2 * q, over(sum - other, c2));
        store(re, im, j + 3 * q, over({less.re - rest.im, less.im + rest.re}, c3));
      }
    } else {
      for (index_t j = 0; j < q; j += W) {
        const number v0 = load(re, im, j), v1 = load(re, im, j + q);
        store(re, im, j, v0 + v1);
        store(re, im, j + q, over(v0 - v1, c));
      }
    }
  }

  // The square of W vectors, in blocks of Rows of them.

  static constexpr index_t radix_of(index_t rows) noexcept { return rows >= 4 ? 4 : 2; }
  static constexpr index_t constants_of(index_t radix) noexcept { return 2 * (radix - 1); }
  template <index_t Rows, bool Lanes>
  static constexpr index_t level_size = constants_of(radix_of(Rows)) * (W / Rows) * (Lanes ? W : 1);
  template <index_t Rows>
  static constexpr index_t levels_size(bool lanes) noexcept {
    if constexpr (Rows == 1) {
      return 0;
    } else {
      return (lanes ? level_size<Rows, true> : level_size<Rows, false>)+levels_size<Rows / radix_of(Rows)>(lanes);
    }
  }

  template <index_t Rows, bool Lanes, class F>
  static OGIVE_INLINE void blocks(Acc* re, Acc* im, const Acc* w, const F& f) noexcept {
    for (index_t b = 0; b < W / Rows; ++b) {
      f(re + b * Rows * W, im + b * Rows * W, w + b * (level_size<Rows, Lanes> / (W / Rows)));
    }
  }
  template <index_t Rows, bool Lanes>
  static OGIVE_INLINE void divide_square(Acc* re, Acc* im, const Acc* w) noexcept {
    if constexpr (Rows > 1) {
      constexpr index_t radix = radix_of(Rows);
      blocks<Rows, Lanes>(
          re, im, w, [](Acc * r, Acc * i, const Acc* c) __attribute__((always_inline)) {
            divide_block<radix, Lanes>(r, i, Rows / radix * W, c);
          });
      divide_square<Rows / radix, Lanes>(re, im, w + level_size<Rows, Lanes>);
    }
  }
  template <index_t Rows, bool Lanes>
  static OGIVE_INLINE void join_square(Acc* re, Acc* im, const Acc* w) noexcept {
    if constexpr (Rows > 1) {
      constexpr index_t radix = radix_of(Rows);
      join_square<Rows / radix, Lanes>(re, im, w + level_size<Rows, Lanes>);
      blocks<Rows, Lanes>(
          re, im, w, [](Acc * r, Acc * i, const Acc* c) __attribute__((always_inline)) {
            join_block<radix, Lanes>(r, i, Rows / radix * W, c);
          });
    }
  }
  static OGIVE_INLINE void turn(Acc* x) noexcept {
    vector rows[vector::size];
    for (index_t i = 0; i < W; ++i) rows[i] = simd::load(x + i * W);
    simd::transpose(rows);
    for (index_t i = 0; i < W; ++i) simd::store(x + i * W, rows[i]);
  }

  // The whole, depth first, so that what fits a cache is finished in it.

  static constexpr index_t radix_of_block(index_t length) noexcept {
    index_t odd = 0;
    for (index_t n = length; n > square; n /= 2) odd ^= 1;
    return odd != 0 ? 2 : 4;
  }
  static index_t table_size(index_t length) noexcept {
    if (length == square) return levels_size<W>(false) + levels_size<W>(true);
    const index_t radix = radix_of_block(length);
    return constants_of(radix) + radix * table_size(length / radix);
  }

  static void divide(Acc* re, Acc* im, index_t length, const Acc* w) noexcept {
    if (length == square) {
      divide_square<W, false>(re, im, w);
      turn(re);
      turn(im);
      return divide_square<W, true>(re, im, w + levels_size<W>(false));
    }
    const index_t radix = radix_of_block(length), q = length / radix, size = table_size(q);
    if (radix == 4) {
      divide_block<4, false>(re, im, q, w);
    } else {
      divide_block<2, false>(re, im, q, w);
    }
    w += constants_of(radix);
    for (index_t b = 0; b < radix; ++b) divide(re + b * q, im + b * q, q, w + b * size);
  }

  static void join(Acc* re, Acc* im, index_t length, const Acc* w) noexcept {
    if (length == square) {
      join_square<W, true>(re, im, w + levels_size<W>(false));
      turn(re);
      turn(im);
      return join_square<W, false>(re, im, w);
    }
    const index_t radix = radix_of_block(length), q = length / radix, size = table_size(q);
    const Acc* below = w + constants_of(radix);
    for (index_t b = 0; b < radix; ++b) join(re + b * q, im + b * q, q, below + b * size);
    if (radix == 4) {
      join_block<4, false>(re, im, q, w);
    } else {
      join_block<2, false>(re, im, q, w);
    }
  }

  // Tables. Angles are fractions of a turn, exact in binary.

  /// e^{2πi turns}, from an angle of at most an eighth.
  static void unit(double turns, Acc* re, Acc* im) noexcept {
    constexpr double tau = 6.283185307179586476925286766559;
    const double quarter = std::floor(4 * turns + 0.5), rest = turns - quarter / 4;
    const double c = std::cos(tau * rest), s = std::sin(tau * rest);
    const int turned = static_cast<int>(quarter) & 3;
    *re = static_cast<Acc>(turned == 0 ? c : turned == 1 ? -s : turned == 2 ? -c : s);
    *im = static_cast<Acc>(turned == 0 ? s : turned == 1 ? c : turned == 2 ? -s : -c);
  }
  /// The angle of part `part` of a block whose own is `turns`.
  static double part_of(double turns, index_t radix, index_t part) noexcept {
    constexpr double four[] = {0, 0.5, 0.25, 0.75}, two[] = {0, 0.5};
    const double angle = turns / static_cast<double>(radix) + (radix == 4 ? four[part] : two[part]);
    return angle - std::floor(angle);
  }
  /// The constants of a block: powers of e^{2πi turns/radix}, `step` apart.
  static void put(double turns, index_t radix, Acc* w, index_t step) noexcept {
    for (index_t power = 1; power < radix; ++power) {
      const double angle = turns / static_cast<double>(radix) * static_cast<double>(power);
      unit(angle, w + 2 * (power - 1) * step, w + (2 * power - 1) * step);
    }
  }
  static void fill(index_t length, double turns, Acc* w) noexcept {
    if (length > square) {
      const index_t radix = radix_of_block(length), q = length / radix, size = table_size(q);
      put(turns, radix, w, 1);
      for (index_t b = 0; b < radix; ++b) fill(q, part_of(turns, radix, b), w + constants_of(radix) + b * size);
      return;
    }
    double of_rows[W] = {turns};
    w = fill_levels(1, of_rows, w);
    double of_lanes[W * W] = {};
    for (index_t lane = 0; lane < W; ++lane) of_lanes[lane] = of_rows[lane];
    fill_levels(W, of_lanes, w);
  }
  /// `lanes` angles for each block: those of the parts follow from them, level by level.
  static Acc* fill_levels(index_t lanes, double* turns, Acc* w) noexcept {
    for (index_t rows = W; rows > 1;) {
      const index_t radix = radix_of(rows), number_of_blocks = W / rows;
      double parts[W * W];
      for (index_t b = 0; b < number_of_blocks; ++b) {
        for (index_t lane = 0; lane < lanes; ++lane) {
          const double angle = turns[b * lanes + lane];
          put(angle, radix, w + lane, lanes);
          for (index_t part = 0; part < radix; ++part) {
            parts[(b * radix + part) * lanes + lane] = part_of(angle, radix, part);
          }
        }
        w += constants_of(radix) * lanes;
      }
      rows /= radix;
      for (index_t i = 0; i < W / rows * lanes; ++i) turns[i] = parts[i];
    }
    return w;
  }

  index_t m_;
  std::unique_ptr<Acc[]> table_;
};

/// The transforms of a context, by size: made at the door, then read by all workers.
template <class Acc>
class polynomial_transforms {
 public:
  void make(index_t n) {
    auto& one = by_size_[place(n)];
    if (one == nullptr) one = std::make_unique<polynomial_transform<Acc>>(n);
  }
  const polynomial_transform<Acc>& at(index_t n) const noexcept { return *by_size_[place(n)]; }

 private:
  static std::size_t place(index_t n) noexcept {
    std::size_t log = 0;
    while ((index_t{1} << log) < n) ++log;
    return log;
  }
  std::unique_ptr<polynomial_transform<Acc>> by_size_[sizeof(index_t) * 8];
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

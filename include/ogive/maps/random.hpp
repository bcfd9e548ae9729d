// L4: random projections for feature maps, the same to the bit on every platform.
//
// Everything is IEEE double arithmetic in a fixed order: +, −, ·, /, sqrt and fma are rounded the same everywhere, and
// no product here feeds a sum except through std::fma, so it does not matter whether a compiler fuses by itself. The
// logarithm is our own, since libraries differ in the last bit.
#pragma once

#include <ogive/core/tensor.hpp>

#include <cmath>

namespace ogive {
inline namespace OGIVE_ABI {
namespace maps {

namespace detail {

/// ln x for normal x > 0, within 2 ulp: x = 2^e m, m in [√½, √2), ln m = 2 artanh f with f = (m − 1)/(m + 1).
inline double fixed_log(double x) noexcept {
  constexpr double ln2_high = 0x1.62e42fefa38p-1;  // few enough bits that e · ln2_high is exact
  constexpr double ln2_low = 0x1.ef35793c7673p-45;
  constexpr std::uint64_t sqrt_half = 0x3fe6a09e667f3bcd;
  const std::uint64_t above = std::bit_cast<std::uint64_t>(x) - sqrt_half;
  const double e = static_cast<double>(static_cast<std::int64_t>(above) >> 52);
  const double m = std::bit_cast<double>((above & 0x000fffffffffffff) + sqrt_half);
  const double f = (m - 1) / (m + 1);
  const double f2 = f * f;
  double series = 0;  // Σ_{n ≥ 0} f^2n / (2n + 3), with f² < 0.0295
  for (int n = 10; n >= 0; --n) series = std::fma(series, f2, 1.0 / (2 * n + 3));
  return std::fma(e, ln2_high, std::fma(e, ln2_low, std::fma(2 * f, f2 * series, 2 * f)));
}

inline double dot(const double* x, const double* y, index_t n) noexcept {
  double sum = 0;
  for (index_t i = 0; i < n; ++i) sum = std::fma(x[i], y[i], sum);
  return sum;
}

/// One more row of an orthonormal set: x − Σ_j ⟨x, q_j⟩ q_j over the rows of Q, normalised. Gram and Schmidt, twice.
inline void orthonormalise(double* x, const double* Q, index_t rows, index_t n) noexcept {
  for (int pass = 0; pass < 2; ++pass) {
    for (index_t j = 0; j < rows; ++j) {
      const double* q = Q + j * n;
      const double along = dot(x, q, n);
      for (index_t i = 0; i < n; ++i) x[i] = std::fma(-along, q[i], x[i]);
    }
  }
  const double norm = std::sqrt(dot(x, x, n));
  for (index_t i = 0; i < n; ++i) x[i] /= norm;
}

}  // namespace detail

/// splitmix64 (Steele, Lea, Flood, 2014) and, for normal numbers, Marsaglia's polar method.
class generator {
 public:
  explicit constexpr generator(std::uint64_t seed) noexcept : state_(seed) {}

  constexpr std::uint64_t bits() noexcept {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  /// In [−1, 1), a multiple of 2^−52.
  constexpr double uniform() noexcept { return static_cast<double>(bits() >> 11) * 0x1p-52 - 1; }

  /// Mean 0, variance 1. Draws come in pairs; the second waits for the next call.
  double normal() noexcept {
    if (waiting_) {
      waiting_ = false;
      return second_;
    }
    double u = 0;
    double v = 0;
    double s = 0;
    do {
      u = uniform();
      v = uniform();
      s = std::fma(u, u, v * v);
    } while (s >= 1 || s == 0);
    const double radius = std::sqrt(-2 * detail::fixed_log(s) / s);
    second_ = v * radius;
    waiting_ = true;
    return u * radius;
  }

 private:
  std::uint64_t state_;
  double second_ = 0;
  bool waiting_ = false;
};

/// How long the rows of an orthogonal projection are.
enum class row_norm {
  chi,     ///< as rows of independent normal numbers are: the estimator stays unbiased
  sqrt_d,  ///< √d each
};

namespace detail {

/// A projection [features, d] kept feature by feature side by side, the order that products like.
template <class P>
tensor<P, 2> projection_like(const char* name, index_t features, index_t d) {
  for (const auto& [field, value] : {std::pair{"features", features}, std::pair{"d", d}}) {
    if (value < 1) {
      raise(status(status_code::value) << "ogive::maps::" << name << ": " << field << " = " << value
                                       << " must be at least 1");
    }
  }
  return tensor<P, 2>({features, d}, {1, features}, P{});
}

}  // namespace detail

/// Rows w_j ~ N(0, I_d), independent: [features, d]. \throws std::invalid_argument when features or d is below 1.
template <class P>
tensor<P, 2> gaussian_projection(index_t features, index_t d, std::uint64_t seed) {
  tensor<P, 2> W = detail::projection_like<P>("gaussian_projection", features, d);
  generator random(seed);
  for (index_t j = 0; j < features; ++j)
    for (index_t i = 0; i < d; ++i) W(j, i) = static_cast<P>(random.normal());
  return W;
}

/// Rows orthogonal to each other within each block of d, blocks independent: [features, d]. The directions of a block
/// are the rows of a random orthogonal matrix (Haar: the triangular factor of Gram and Schmidt has a positive
/// diagonal). Choromanski et al., Rethinking Attention with Performers, arXiv:2009.14794, section 2.4.
/// \throws std::invalid_argument when features or d is below 1.
template <class P>
tensor<P, 2> orthogonal_projection(index_t features, index_t d, std::uint64_t seed, row_norm length = row_norm::chi) {
  tensor<P, 2> W = detail::projection_like<P>("orthogonal_projection", features, d);
  tensor<double, 2> Q({d, d});
  generator random(seed);
  for (index_t block = 0; block < features; block += d) {
    const index_t rows = std::min(d, features - block);
    for (index_t j = 0; j < rows; ++j) {
      double* x = &Q(j, 0);
      for (index_t i = 0; i < d; ++i) x[i] = random.normal();
      detail::orthonormalise(x, Q.data(), j, d);
    }
    for (index_t j = 0; j < rows; ++j) {
      double squares = static_cast<double>(d);
      if (length == row_norm::chi) {
        squares = 0;
        for (index_t i = 0; i < d; ++i) {
          const double g = random.normal();
          squares = std::fma(g, g, squares);
        }
      }
      const double norm = std::sqrt(squares);
      for (index_t i = 0; i < d; ++i) W(block + j, i) = static_cast<P>(norm * Q(j, i));
    }
  }
  return W;
}

}  // namespace maps
}  // namespace OGIVE_ABI
}  // namespace ogive

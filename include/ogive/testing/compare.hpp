// When two arrays count as equal: the largest error in the units of a rule against a bound that follows from the type,
// the number of dependent operations and the size of the terms.
#pragma once

#include <ogive/core/accum.hpp>
#include <ogive/testing/rng.hpp>

#include <algorithm>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace ogive::testing {

enum class rule {
  max_norm,           ///< max |got − expected| ≤ bound · scale, scale = max |expected| unless given
  elementwise_rel,    ///< |got − expected| ≤ bound · |expected| for each element; complex numbers by modulus
  per_leading_index,  ///< max_norm for each index of the first axis on its own
};

/// The answer of `compare`: the largest error, and where. `position` counts numbers in row-major order; a complex
/// element is two numbers.
struct comparison {
  double error = 0;  ///< relative, in the units of the rule; infinite where only one side is finite
  double bound = 0;
  bool ok = true;
  index_t position = -1;
  double got = 0;
  double expected = 0;

  explicit operator bool() const noexcept { return ok; }
};

inline std::ostream& operator<<(std::ostream& out, const comparison& c) {
  out << "error " << c.error << (c.ok ? " within " : " exceeds ") << c.bound;
  if (c.position >= 0) out << " at position " << c.position << ": got " << c.got << ", expected " << c.expected;
  return out;
}

/// Unit roundoff: the largest relative error of rounding to T.
template <class T>
constexpr double unit_roundoff() noexcept {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return 0x1p-8;
  } else if constexpr (std::is_same_v<T, float16>) {
    return 0x1p-11;
  } else {
    return static_cast<double>(std::numeric_limits<T>::epsilon()) / 2;
  }
}

/// Bound on the rounding error of a result stored as T and accumulated in accum_t<T>. `length` is the number of
/// dependent roundings in it (a dot product of n has n; an exponential good to one ulp counts two). The product of
/// `norms` bounds the sum of the magnitudes of its terms, as ‖q‖·‖k‖ does for a score.
///
/// Standard theory: γ_n = n·u / (1 − n·u) times that sum. Twice n·u covers the denominator, and the reference's own
/// rounding where it is computed in the same precision.
template <class T, class... Norms>
constexpr double tolerance(index_t length, Norms... norms) noexcept {
  const double accumulated = 2 * static_cast<double>(length) * unit_roundoff<accum_t<T>>();
  const double stored = std::is_same_v<T, accum_t<T>> ? 0 : unit_roundoff<T>();
  return (accumulated + stored) * (static_cast<double>(norms) * ... * 1.0);
}

/// The numbers of x in row-major order, as double; a complex element gives its real, then its imaginary part.
template <class T, std::size_t Rank>
std::vector<double> flatten(const view<T, Rank>& x) {
  std::vector<double> numbers;
  numbers.reserve(static_cast<std::size_t>(x.size()));
  for_each(x, [&](const T& element, index_t) {
    if constexpr (requires { element.imag(); }) {
      numbers.push_back(static_cast<double>(element.real()));
      numbers.push_back(static_cast<double>(element.imag()));
    } else {
      numbers.push_back(static_cast<double>(element));
    }
  });
  return numbers;
}

/// Largest magnitude, and Euclidean norm, of all numbers of x; NaN if one of them is.
inline double max_abs(std::span<const double> x) noexcept {
  double largest = 0;
  for (const double number : x) {
    if (std::isnan(number)) return number;
    largest = std::fmax(largest, std::fabs(number));
  }
  return largest;
}
template <class T, std::size_t Rank>
double max_abs(const view<T, Rank>& x) {
  return max_abs(flatten(x));
}
template <class T, std::size_t Rank>
double norm(const view<T, Rank>& x) {
  double sum = 0;
  for (const double number : flatten(x)) sum += number * number;
  return std::sqrt(sum);
}

/// How `compare` measures. `block` is how many numbers share a scale under per_leading_index.
struct measure {
  testing::rule rule = testing::rule::max_norm;
  double scale = -1;     ///< for max_norm; negative: the largest |expected|
  index_t block = 0;     ///< for per_leading_index
  bool complex = false;  ///< for elementwise_rel: the numbers are pairs (re, im)
};

/// Holds `got` against `expected`. Where `expected` is not finite, `got` must be the same infinity, or a NaN too.
inline comparison compare(std::span<const double> got, std::span<const double> expected, double bound,
                          const measure& how = {}) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  comparison worst{.bound = bound};
  if (got.size() != expected.size()) {
    worst.error = infinity;
    worst.ok = false;
    return worst;
  }

  const bool by_modulus = how.rule == rule::elementwise_rel;
  const auto joined = [&](double size, double x) {
    return by_modulus ? std::hypot(size, x) : std::fmax(size, std::fabs(x));
  };
  std::size_t block = expected.size();
  if (by_modulus) block = how.complex ? 2 : 1;
  if (how.rule == rule::per_leading_index && how.block > 0) block = static_cast<std::size_t>(how.block);

  for (std::size_t begin = 0; begin < expected.size(); begin += block) {
    double difference = 0;
    double scale = 0;
    double farthest = -1;
    std::size_t at = begin;
    for (std::size_t i = begin; i < std::min(begin + block, expected.size()); ++i) {
      const bool same = got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]));
      const double apart = same ? 0 : std::fabs(got[i] - expected[i]);
      const double distance = std::isnan(apart) ? infinity : apart;
      difference = joined(difference, distance);
      scale = joined(scale, std::isfinite(expected[i]) ? expected[i] : 0);
      if (distance > farthest) {
        farthest = distance;
        at = i;
      }
    }
    if (how.rule == rule::max_norm && how.scale >= 0) scale = how.scale;
    const double error = difference == 0 ? 0 : difference / scale;
    if (error > worst.error || worst.position < 0) {
      worst.error = error;
      worst.position = static_cast<index_t>(at);
      worst.got = got[at];
      worst.expected = expected[at];
    }
  }
  worst.ok = worst.error <= bound;
  return worst;
}

/// The same for views of one shape, whatever their strides and types.
template <class T, class E, std::size_t Rank>
comparison compare(const view<T, Rank>& got, const view<E, Rank>& expected, double bound, measure how = {}) {
  if (got.extents() != expected.extents()) {
    raise(status(status_code::shape) << "ogive::testing::compare: got " << std::span<const index_t>(got.extents())
                                     << ", expected " << std::span<const index_t>(expected.extents()));
  }
  constexpr bool complex = requires(E element) { element.imag(); };
  how.complex = how.complex || complex;
  if (how.block == 0 && expected.extent(0) > 0) how.block = expected.size() / expected.extent(0) * (complex ? 2 : 1);
  return compare(flatten(got), flatten(expected), bound, how);
}

}  // namespace ogive::testing

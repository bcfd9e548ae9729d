// Matchers for single numbers whose margin is derived: from the roundings of a result, or from the digits to which the
// expected number was printed.
#pragma once

#include <ogive/testing/compare.hpp>

#include <cmath>

#include "tests/catch.hpp"

namespace ogive::tests {

/// x, by up to n dependent roundings in T: relative, `testing::tolerance<T>(n)`.
template <class T>
auto WithinRoundings(double x, index_t n) {
  return WithinRel(x, testing::tolerance<T>(n));
}

/// x, printed with so many digits after the point: half a unit of the last, and the rounding of x itself.
inline auto WithinDecimals(double x, int decimals) {
  return WithinAbs(x, std::pow(10.0, -decimals) / 2 + testing::tolerance<double>(1, std::fabs(x)));
}

/// x other than 0, printed with so many significant digits.
inline auto WithinDigits(double x, int digits) {
  return WithinDecimals(x, digits - 1 - static_cast<int>(std::floor(std::log10(std::fabs(x)))));
}

}  // namespace ogive::tests

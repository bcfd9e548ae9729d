// Gradients by differences: what a backward pass is held against.
#pragma once

#include <ogive/core/tensor.hpp>
#include <ogive/testing/rng.hpp>

#include <cmath>
#include <limits>

namespace ogive::testing {

/// The step of `finite_differences` relative to max(1, |x|): eps^(1/5) balances its truncation, O(h⁴), against
/// rounding, O(eps / h). What remains is about eps^(4/5), some 3e-13, of the function's size.
inline double difference_step() noexcept { return std::pow(std::numeric_limits<double>::epsilon(), 0.2); }

/// ∂f/∂x for every element of x, by the central formula of fourth order
/// (8 (f(x + h) − f(x − h)) − (f(x + 2h) − f(x − 2h))) / 12h.
/// `f()` reads x through the same memory; x is changed between its calls and comes back to the bit.
template <std::size_t Rank, class F>
tensor<double, Rank> finite_differences(const view<double, Rank>& x, F&& f) {
  tensor<double, Rank> gradient(x.extents());
  double* slope = gradient.data();
  for_each(x, [&](double& element, index_t position) {
    const double at = element;
    const double h = difference_step() * std::fmax(1, std::fabs(at));
    const auto shifted = [&](double steps) {
      element = at + steps * h;
      return static_cast<double>(f());
    };
    const double near = shifted(1) - shifted(-1);
    const double far = shifted(2) - shifted(-2);
    slope[position] = (8 * near - far) / (12 * h);
    element = at;
  });
  return gradient;
}

}  // namespace ogive::testing

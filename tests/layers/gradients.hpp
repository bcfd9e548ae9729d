// Gradients of layers against differences of a loss, in double.
#pragma once

#include <ogive/testing/compare.hpp>
#include <ogive/testing/finite_differences.hpp>

#include "tests/catch.hpp"

namespace ogive::tests {

/// Σ x ⊙ d, and Σ |x ⊙ d|: a loss whose derivative by x is d, and its size.
struct loss {
  double value = 0, size = 0;

  template <class X, class D, std::size_t Rank>
  loss& add(const view<X, Rank>& x, const view<D, Rank>& d) {
    if (!x.present() || !d.present()) return *this;
    const auto a = testing::flatten(x);
    const auto b = testing::flatten(d);
    for (std::size_t i = 0; i < a.size(); ++i) {
      value += a[i] * b[i];
      size += std::fabs(a[i] * b[i]);
    }
    return *this;
  }
};

/// Holds a gradient against the differences of f, which gives a loss and reads x through the same memory. Differences
/// are good to eps^(4/5) of the loss's terms, up to the fifth derivatives that they cut off: some tens of times that.
template <class X, class D, std::size_t Rank, class F>
void check_gradient(const char* field, const view<X, Rank>& x, const view<D, Rank>& gradient, const F& f) {
  if (!x.present()) return;
  using T = std::remove_const_t<X>;
  const view<T, Rank> variable(const_cast<T*>(x.data()), x.extents(), x.strides());
  const double size = 1 + f().size;
  const auto slope = testing::finite_differences(variable, [&] { return f().value; });
  const double bound = 64 * std::pow(std::numeric_limits<double>::epsilon(), 0.8) * size;
  INFO(field);
  const auto found = testing::compare(gradient, std::as_const(slope).all(), bound, {.scale = 1});
  INFO(found);
  CHECK(found.ok);
}

}  // namespace ogive::tests

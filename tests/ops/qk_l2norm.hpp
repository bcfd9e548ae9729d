// q and k over their length: as if their rows had been divided before, in all that an operator does with them, and with
// the gradient through that; rows of zeros included.
#pragma once

#include <ogive/testing/gradient_laws.hpp>

#include "tests/catch.hpp"

namespace ogive::tests {

using namespace ogive::testing;

constexpr double l2norm_eps = 1e-6;

/// The q and k of an operator or of its gradients, by its letters.
template <class X>
auto keys_of(X& x) {
  if constexpr (requires { x.C; }) {
    return std::array{&x.C, &x.B};
  } else if constexpr (requires { x.r; }) {
    return std::array{&x.r, &x.k};
  } else {
    return std::array{&x.q, &x.k};
  }
}

/// f(b, t, h) for every row of x.
template <class T, class F>
void for_rows(const view<T, 4>& x, const F& f) {
  for (index_t b = 0; b < x.extent(0); ++b) {
    for (index_t t = 0; t < x.extent(1); ++t) {
      for (index_t h = 0; h < x.extent(2); ++h) f(b, t, h);
    }
  }
}

/// √(Σx² + ε)
inline double length_of_row(const view<const double, 1>& x) {
  double square = l2norm_eps;
  for (const double number : flatten(x)) square += number * number;
  return std::sqrt(square);
}

inline view<const double, 4> normalised(memory& room, const view<const double, 4>& x) {
  const auto y = room.copy(x);
  for_rows(x, [&](index_t b, index_t t, index_t h) {
    const double n = length_of_row(x[b][t][h]);
    for_each(y[b][t][h], [&](double& number, index_t) { number /= n; });
  });
  return y;
}

/// n times the gradient of a row x from that of the row x/n: d − (x/n) ((x/n)·d).
inline void pull(const view<const double, 1>& unit, const view<double, 1>& d) {
  double along = 0;
  for (index_t j = 0; j < d.extent(0); ++j) along += unit[j] * d[j];
  for (index_t j = 0; j < d.extent(0); ++j) d[j] -= unit[j] * along;
}

/// An operator that normalises its rows is the operator on normalised rows, rows of zeros staying zeros; and so are its
/// gradients, those of rows being pulled back. Keys of a removal (κ of RWKV-7, a and b) stay what they are.
template <class Op>
void check_l2norm(std::uint64_t seed) {
  for_seeds(seed, 3, [](std::uint64_t s) {
    testing::detail::gradient_trial<Op> x(s, 33);
    x.op.qk_l2norm = l2norm_eps;
    for (const auto* field : keys_of(x.op)) {
      for_rows(*field, [&](index_t b, index_t t, index_t h) {
        if (x.random.integer(0, 2) > 0) return;
        for_each((*field)[b][t][h], [](const double& number, index_t) { const_cast<double&>(number) = 0; });
      });
    }
    Op plain = x.op;
    plain.qk_l2norm = {};
    for (auto* field : keys_of(plain)) *field = normalised(x.room, *field);
    INFO(x);

    const auto o = x.room.template take<double>(sampler<Op>::output(plain)), right = x.room.copy(o);
    forward(x.op, x.given, o);
    forward(plain, x.given, right);
    double size = 1;
    for (const double number : flatten(right)) size = std::fmax(size, std::fabs(number));
    const index_t roundings = sampler<Op>::roundings(x.op) * std::max<index_t>(1, length_of(plain));
    const auto gap = compare(o, view<const double, 4>(right), tolerance<double>(roundings), {.scale = size});
    INFO(gap);
    CHECK(gap.ok);

    const auto found = testing::detail::run_backward(x.op, x.given, x.c, {});
    const auto expected = testing::detail::run_backward(plain, x.given, x.c, {});
    const double bound = testing::detail::gradient_bound(x.op, testing::detail::largest_gradient(plain, expected));
    for (std::size_t i = 0; i < 2; ++i) {
      const view<const double, 4> field = *keys_of(x.op)[i], unit = *keys_of(plain)[i];
      for_rows(field, [&](index_t b, index_t t, index_t h) {
        const double n = length_of_row(field[b][t][h]);
        for_each((*keys_of(found.d)[i])[b][t][h], [&](double& d, index_t) { d *= n; });
        pull(unit[b][t][h], (*keys_of(expected.d)[i])[b][t][h]);
      });
    }
    CHECK(testing::detail::gradient_gap(plain, found, expected, bound) == "");
  });
}

}  // namespace ogive::tests

// Random numbers for tests: the generator of the random features, so the same to the bit on every platform.
#pragma once

#include <ogive/core/view.hpp>
#include <ogive/maps/random.hpp>

#include <complex>

namespace ogive::testing {

/// A generator with a seed of its own; two generators never influence each other. Print the seed when a test fails.
class rng {
 public:
  explicit constexpr rng(std::uint64_t seed) noexcept : source_(seed) {}

  constexpr std::uint64_t bits() noexcept { return source_.bits(); }
  /// r in [0, 1), a multiple of 2^-53.
  constexpr double unit() noexcept { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  /// 2r − 1 in [−1, 1).
  constexpr double uniform() noexcept { return source_.uniform(); }
  constexpr double uniform(double low, double high) noexcept { return low + (high - low) * unit(); }
  /// An integer in [low, high], both included.
  constexpr index_t integer(index_t low, index_t high) noexcept {
    return low + static_cast<index_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
  }
  /// Mean 0, variance 1.
  double normal() noexcept { return source_.normal(); }

 private:
  maps::generator source_;
};

/// Calls `visit(element, position)` for every element in row-major order of the extents, whatever the strides are.
template <class T, std::size_t Rank, class Visit>
constexpr void for_each(const view<T, Rank>& x, Visit&& visit) {
  index_t position = 0;
  const auto walk = [&](const auto& self, const auto& part) -> void {
    for (index_t i = 0; i < part.extent(0); ++i) {
      if constexpr (std::remove_cvref_t<decltype(part)>::rank == 1) {
        visit(part[i], position++);
      } else {
        self(self, part[i]);
      }
    }
  };
  walk(walk, x);
}

/// Fills x in row-major order with draws `draw()`, rounded to T; complex elements take two, real part first.
template <class T, std::size_t Rank, class Draw>
void fill(const view<T, Rank>& x, Draw&& draw) {
  for_each(x, [&](T& element, index_t) {
    if constexpr (requires { typename T::value_type; }) {
      const auto re = static_cast<typename T::value_type>(draw());
      element = T(re, static_cast<typename T::value_type>(draw()));
    } else {
      element = static_cast<T>(draw());
    }
  });
}

/// Uniform in [low, high).
template <class T, std::size_t Rank>
void fill_uniform(rng& random, const view<T, Rank>& x, double low = -1, double high = 1) {
  fill(x, [&] { return random.uniform(low, high); });
}

/// Normal with mean 0.
template <class T, std::size_t Rank>
void fill_normal(rng& random, const view<T, Rank>& x, double deviation = 1) {
  fill(x, [&] { return deviation * random.normal(); });
}

}  // namespace ogive::testing

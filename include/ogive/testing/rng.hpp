// Random numbers for tests: splitmix64 (Steele, Lea, Flood, 2014), the same sequence on every platform.
#pragma once

#include <ogive/core/view.hpp>

#include <cmath>
#include <complex>
#include <numbers>

namespace ogive::testing {

/// A generator with a seed of its own; two generators never influence each other. Print the seed when a test fails.
class rng {
 public:
  explicit constexpr rng(std::uint64_t seed) noexcept : state_(seed) {}

  constexpr std::uint64_t bits() noexcept {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  /// r in [0, 1), a multiple of 2^-53.
  constexpr double unit() noexcept { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  /// 2r − 1 in [−1, 1).
  constexpr double uniform() noexcept { return 2 * unit() - 1; }
  constexpr double uniform(double low, double high) noexcept { return low + (high - low) * unit(); }
  /// An integer in [low, high], both included.
  constexpr index_t integer(index_t low, index_t high) noexcept {
    return low + static_cast<index_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
  }
  /// One of two draws of Box and Muller; the other is not kept, so that a draw depends on its place alone.
  double normal() noexcept {
    const double radius = std::sqrt(-2 * std::log1p(-unit()));
    return radius * std::cos(2 * std::numbers::pi * unit());
  }

 private:
  std::uint64_t state_;
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
  fill(x, [&] { return low + (high - low) * random.unit(); });
}

/// Normal with mean 0.
template <class T, std::size_t Rank>
void fill_normal(rng& random, const view<T, Rank>& x, double deviation = 1) {
  fill(x, [&] { return deviation * random.normal(); });
}

}  // namespace ogive::testing

// The slopes of the rules of discretisation against differences of their definitions in long double.
#include <ogive/maps/discretisation.hpp>
#include <ogive/reference/discretisation.hpp>
#include <ogive/testing/compare.hpp>

#include "tests/catch.hpp"

using namespace ogive;

namespace {

using wide = std::complex<long double>;

/// (f(x + h) − f(x − h))/2h, good to h²|f‴|/6 and ε|f|/h.
template <class F>
std::complex<double> difference(const F& f, long double h) {
  return std::complex<double>((f(h) - f(-h)) / (2 * h));
}

}  // namespace

TEST_CASE("slopes of discretisation are those of its rules, near 0 and far from it") {
  const auto rule =
      GENERATE(discretisation::zoh, discretisation::mamba, discretisation::euler, discretisation::bilinear,
               discretisation::backward_euler, discretisation::generalised_bilinear, discretisation::none);
  const double dt = GENERATE(0.01, 0.4, 3.0), alpha = 0.7;
  const std::complex<double> A =
      GENERATE(as<std::complex<double>>(), 0, 1e-9, -0.3, -2.49, -2.51, -20, std::complex<double>(-0.5, 3),
               std::complex<double>(0, 2.4), std::complex<double>(-1e-4, -2.6));
  const auto of = [&](wide a, long double step) {
    return reference::discretise(rule, a, wide(1), step, static_cast<long double>(alpha));
  };
  const wide a(A);
  const long double h = 1e-5L;
  const auto by_A = [&](auto part) { return difference([&](long double s) { return part(of(a + s, dt)); }, h); };
  const auto by_dt = [&](auto part) { return difference([&](long double s) { return part(of(a, dt + s)); }, h * dt); };
  const auto first = [](const auto& pair) { return pair.first; };
  const auto second = [](const auto& pair) { return pair.second; };
  const step_slopes<std::complex<double>> slopes = discretise_slopes(rule, dt, A, alpha);
  // Derivatives of third order are of size (1 + |A|)³ (1 + Δ)⁴ at most; h²/6 of that, and the roundings of long double.
  const double size = std::pow(1 + std::abs(A), 3) * std::pow(1 + dt, 4);
  const double bound = static_cast<double>(h * h) * size + testing::tolerance<double>(64, size);
  INFO("rule " << static_cast<int>(rule) << ", dt " << dt << ", A " << A);
  CHECK(std::abs(slopes.A_by_A - by_A(first)) <= bound);
  CHECK(std::abs(slopes.w_by_A - by_A(second)) <= bound);
  CHECK(std::abs(slopes.A_by_dt - by_dt(first)) <= bound);
  CHECK(std::abs(slopes.w_by_dt - by_dt(second)) <= bound);
}

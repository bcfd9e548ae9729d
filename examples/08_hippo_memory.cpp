// HiPPO: a state of N numbers that remembers a whole signal. A signal goes by sample by sample; at its end the state
// alone gives it back, and is held against the best that polynomials of degree below N can do. Draws both, as text and
// as SVG.
//
// The measure is LegS, uniform on all the past: c'(t) = (A c(t) + B f(t)) / t. In s = log t it is time-invariant,
// dc/ds = A c + B f, so that zero-order hold from t_k = k to t_{k+1} is exact for samples that stay until the next one,
// with the step Δ = log((k+1)/k). c(t) are the coefficients of f on [0, t] in Legendre polynomials:
//
//   f(x) ≈ Σ_n c_n √(2n+1) P_n(2x/t − 1)
//
// usage: example_08_hippo_memory [picture.svg]                                    Gu et al. 2020, arXiv:2008.07669
#include <ogive/core/tensor.hpp>
#include <ogive/maps/discretisation_dense.hpp>
#include <ogive/maps/hippo.hpp>

#include <cmath>
#include <cstdio>
#include <numbers>
#include <string>
#include <vector>

#include "chart.hpp"

namespace {

using namespace ogive;
using numbers = std::vector<double>;

constexpr index_t L = 400;

double signal(index_t k) {
  const double x = (static_cast<double>(k) + 0.5) / static_cast<double>(L);
  const double bump = (x - 0.72) / 0.045;
  return 0.6 * std::sin(2 * std::numbers::pi * 1.3 * x) + 0.35 * std::sin(2 * std::numbers::pi * 4 * x + 0.8) +
         0.7 * std::exp(-bump * bump);
}

/// P_0(y) … P_N(y).
numbers legendre(index_t N, double y) {
  numbers P{1, y};
  for (index_t n = 1; n < N; ++n) {
    const auto order = static_cast<double>(n);
    const std::size_t i = P.size();
    P.push_back(((2 * order + 1) * y * P[i - 1] - order * P[i - 2]) / (order + 1));
  }
  return P;
}

/// The state after all samples: at t = 1 it is one constant, from there on a step of log((k+1)/k) each.
tensor<double, 1> remember(index_t N) {
  tensor<double, 2> A({N, N}), B({N, 1});
  hippo(measure::legs, A, view<double, 1>(B.data(), {N}));
  tensor<double, 3> A_bar({1, N, N}), B_bar({1, N, 1});
  tensor<double, 1> dt({1}), c({N});
  c(0) = signal(0);
  for (index_t k = 1; k < L; ++k) {
    dt(0) = std::log1p(1 / static_cast<double>(k));
    discretise_dense(discretisation::zoh, dt, A, B, A_bar, B_bar);
    const tensor<double, 1> before = c;
    for (index_t n = 0; n < N; ++n) {
      c(n) = B_bar(0, n, 0) * signal(k);
      for (index_t m = 0; m <= n; ++m) c(n) += A_bar(0, n, m) * before(m);
    }
  }
  return c;
}

/// The same coefficients from the signal itself, ∫ P_n = (P_{n+1} − P_{n−1}) / (2n + 1) over every sample.
tensor<double, 1> project(index_t N) {
  tensor<double, 1> c({N});
  numbers below = legendre(N, -1);
  for (index_t k = 0; k < L; ++k) {
    const numbers above = legendre(N, 2 * static_cast<double>(k + 1) / static_cast<double>(L) - 1);
    for (std::size_t n = 0; n < static_cast<std::size_t>(N); ++n) {
      const double odd = 2 * static_cast<double>(n) + 1;
      const auto rise = [&](std::size_t i) { return above[i] - below[i]; };
      const double integral = n == 0 ? rise(1) : (rise(n + 1) - rise(n - 1)) / odd;
      c(static_cast<index_t>(n)) += signal(k) * std::sqrt(odd) * integral / 2;
    }
    below = above;
  }
  return c;
}

numbers recall(const tensor<double, 1>& c) {
  numbers f;
  for (index_t k = 0; k < L; ++k) {
    const numbers P = legendre(c.extent(0), (2 * static_cast<double>(k) + 1) / static_cast<double>(L) - 1);
    double sum = 0;
    for (index_t n = 0; n < c.extent(0); ++n) {
      sum += c(n) * std::sqrt(2 * static_cast<double>(n) + 1) * P[static_cast<std::size_t>(n)];
    }
    f.push_back(sum);
  }
  return f;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string path = count > 1 ? arguments[1] : "hippo_memory.svg";
  numbers original;
  double power = 0;
  for (index_t k = 0; k < L; ++k) {
    original.push_back(signal(k));
    power += signal(k) * signal(k);
  }

  std::printf("%td samples remembered by N numbers: LegS, zero-order hold in log t\n\n", L);
  std::printf("   N   state against projection   signal against memory, relative rms\n");
  std::vector<chart::curve> curves{{"the signal", "#aaaaaa", original, 'o', "5"}};
  double worst = 0, last = 1;
  bool better = true;
  for (const index_t N : {8, 16, 32, 64}) {
    const tensor<double, 1> c = remember(N), best = project(N);
    double apart = 0, lost = 0;
    for (index_t n = 0; n < N; ++n) apart = std::fmax(apart, std::fabs(c(n) - best(n)));
    const numbers f = recall(c);
    for (std::size_t k = 0; k < f.size(); ++k) lost += (f[k] - original[k]) * (f[k] - original[k]);
    worst = std::fmax(worst, apart);
    better = better && std::sqrt(lost / power) < last;
    last = std::sqrt(lost / power);
    std::printf("%4td   %24.1e   %35.4f\n", N, apart, last);
    if (N == 8) curves.push_back({"N = 8", "#56b4e9", f});
    if (N == 16) curves.push_back({"N = 16", "#0072b2", f});
    if (N == 64) curves.push_back({"N = 64", "#d55e00", f});
  }
  std::printf("\n");
  const chart::frame frame{"A signal of " + std::to_string(L) + " samples, and what a HiPPO-LegS state remembers of it",
                           -0.9, 0.9};
  draw_text(frame, {curves[0], curves[2]});
  if (!draw_svg(path, frame, curves)) {
    std::fprintf(stderr, "cannot write %s\n", path.c_str());
    return 1;
  }
  std::printf("\n%s: the same as a picture\n", path.c_str());
  return worst < 1e-12 && better && last < 0.01 ? 0 : 1;
}

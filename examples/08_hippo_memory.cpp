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

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <numbers>
#include <string>
#include <vector>

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

constexpr double lowest = -0.9, highest = 0.9;

void draw_text(const numbers& f) {
  constexpr std::size_t rows = 17, columns = 80;
  std::vector<std::string> canvas(rows, std::string(columns, ' '));
  const auto put = [&](std::size_t column, double value, char mark) {
    const double share = std::clamp((value - lowest) / (highest - lowest), 0.0, 1.0);
    char& at = canvas[rows - 1 - static_cast<std::size_t>(std::lround(share * static_cast<double>(rows - 1)))][column];
    at = at == ' ' || at == mark ? mark : '#';
  };
  for (std::size_t column = 0; column < columns; ++column) {
    const std::size_t k = column * f.size() / columns;
    put(column, signal(static_cast<index_t>(k)), 'o');
    put(column, f[k], '+');
  }
  for (const std::string& row : canvas) std::printf("  |%s\n", row.c_str());
  std::printf("  +%s\n   o the signal, + the memory with N = 16, # both\n", std::string(columns, '-').c_str());
}

struct curve {
  std::string name, colour, width;
  numbers values;
};

bool draw_svg(const std::string& path, const std::vector<curve>& curves) {
  constexpr double left = 20, top = 50, width = 760, height = 260;
  std::ofstream out(path);
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 340\" font-family=\"DejaVu "
         "Sans,Verdana,sans-serif\">\n"
      << "<rect width=\"800\" height=\"340\" fill=\"#ffffff\"/>\n"
      << "<text x=\"20\" y=\"24\" font-size=\"15\" fill=\"#333333\">A signal of " << L
      << " samples, and what a HiPPO-LegS state remembers of it</text>\n";
  double label = left;
  for (const curve& one : curves) {
    out << "<text x=\"" << label << "\" y=\"42\" font-size=\"12\" fill=\"" << one.colour << "\">" << one.name
        << "</text>\n<path fill=\"none\" stroke=\"" << one.colour << "\" stroke-width=\"" << one.width << "\" d=\"";
    for (std::size_t k = 0; k < one.values.size(); ++k) {
      const double x = left + width * (static_cast<double>(k) + 0.5) / static_cast<double>(one.values.size());
      const double y = top + height * (highest - one.values[k]) / (highest - lowest);
      out << (k == 0 ? "M" : " L") << std::round(10 * x) / 10 << "," << std::round(10 * y) / 10;
    }
    out << "\"/>\n";
    label += 110;
  }
  out << "</svg>\n";
  return static_cast<bool>(out);
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
  std::vector<curve> curves{{"the signal", "#aaaaaa", "5", original}};
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
    if (N == 8) curves.push_back({"N = 8", "#56b4e9", "1.5", f});
    if (N == 16) curves.push_back({"N = 16", "#0072b2", "1.5", f});
    if (N == 64) curves.push_back({"N = 64", "#d55e00", "1.5", f});
  }
  std::printf("\n");
  draw_text(curves[2].values);
  if (!draw_svg(path, curves)) {
    std::fprintf(stderr, "cannot write %s\n", path.c_str());
    return 1;
  }
  std::printf("\n%s: the same as a picture\n", path.c_str());
  return worst < 1e-12 && better && last < 0.01 ? 0 : 1;
}

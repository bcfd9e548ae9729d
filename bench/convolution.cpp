// Long causal convolutions: direct, by transforms over all of a sequence or blocks of it, and what everybody writes
// first: for each channel two transforms of the padded input and kernel, a product, a transform back, with Eigen's FFT.
// That one is kissfft unless the program is compiled with EIGEN_FFTW_DEFAULT and linked to FFTW.
//
// AVX-512, one thread, B = 1, Lk = L = 16384: `over_eigen` is 8 to 13 in float and 7 to 9 in double with kissfft, 5 to
// 8 and 4 with FFTW; the more channels, the more, since the plain loop walks through memory with a step. Of the time of
// a channel three transforms of 2¹⁵ numbers are half. Direct sums reach 0.6 of the peak of multiply-adds from some
// hundred taps on. `direct_over_transforms` crosses 1 at some 60 taps in float and 90 in double, whatever the length,
// and `forward` changes over there; for gradients at some 25.
#include <ogive/ops/causal_convolution.hpp>
#include <ogive/testing/rng.hpp>

#include <unsupported/Eigen/FFT>

#include <bench/clock.hpp>
#include <bench/limits.hpp>
#include <vector>

namespace {

using namespace ogive;
using namespace ogive::bench;

template <class T>
tensor<T, 3> drawn(const shape<3>& extents, std::uint64_t seed) {
  tensor<T, 3> x(extents);
  testing::rng random(seed);
  testing::fill_normal(random, x.all());
  return x;
}

template <class T>
struct problem {
  tensor<T, 3> u, y, d_y, d_u, kernels, d_kernels;
  context ctx;

  problem(index_t length, index_t channels, index_t taps)
      : u(drawn<T>({1, length, channels}, 1)),
        y(u),
        d_y(u),
        d_u(u),
        kernels(drawn<T>({1, channels, taps}, 2)),
        d_kernels(kernels) {
    reserve(op(), {}, ctx);
  }
  causal_convolution<T> op() const { return {.u = u, .kernel = kernels.all()[0]}; }
  void run(form way) { forward(op(), {}, y, {.form = way}, ctx); }
  void back(form way) { backward(op(), {}, d_y, {}, {.u = d_u, .kernel = d_kernels.all()[0]}, {.form = way}, ctx); }
};

/// The plain loop, for the first `channels`.
template <class T>
void plain_loop(const problem<T>& p, index_t channels, tensor<T, 3>& y) {
  Eigen::FFT<T> fft;
  fft.SetFlag(fft.HalfSpectrum);
  const index_t L = p.u.extent(1), taps = p.kernels.extent(2);
  index_t n = 1;
  while (n < L + taps - 1) n *= 2;
  std::vector<T> u(static_cast<std::size_t>(n)), k(u), sum(u);
  std::vector<std::complex<T>> U(static_cast<std::size_t>(n / 2 + 1)), K(U);
  for (index_t c = 0; c < channels; ++c) {
    std::size_t i = 0;
    for (index_t t = 0; t < L; ++t) u[i++] = p.u(0, t, c);
    i = 0;
    for (index_t l = 0; l < taps; ++l) k[i++] = p.kernels(0, c, l);
    fft.fwd(U, u);
    fft.fwd(K, k);
    for (i = 0; i < U.size(); ++i) U[i] *= K[i];
    fft.inv(sum, U);
    i = 0;
    for (index_t t = 0; t < L; ++t) y(0, t, c) = sum[i++];
  }
}

/// `over_eigen`: how many times faster than the plain loop.
template <class T>
void against_eigen(benchmark::State& state) {
  const index_t length = state.range(0), channels = state.range(1), few = std::min<index_t>(channels, 16);
  problem<T> p(length, channels, length);
  tensor<T, 3> y(p.y);
  iterate(state, 1, [&] { p.run(form::convolution); });
  const auto [ours, plain] = stopwatch(1).least(
      0.5, [&] { p.run(form::convolution); }, [&] { plain_loop(p, few, y); });
  state.counters["us_per_channel"] = 1e6 * ours / static_cast<double>(channels);
  state.counters["over_eigen"] = plain / ours * static_cast<double>(channels) / static_cast<double>(few);
}

/// `fraction`: of the rate of multiply-adds, in direct sums. `forward_over_best` is 1 where the choice is right.
template <class T>
void crossing(benchmark::State& state) {
  const index_t length = state.range(0), taps = state.range(1), channels = 16;
  problem<T> p(length, channels, taps);
  iterate(state, 1, [&] { p.run(form::automatic); });
  const auto [direct, fast, chosen] = stopwatch(1).least(
      0.05, [&] { p.run(form::recurrent); }, [&] { p.run(form::convolution); }, [&] { p.run(form::automatic); });
  const double flops = 2 * static_cast<double>(length * taps * channels);
  state.counters["direct_fraction"] = flops / direct / fma_peak<T>();
  state.counters["direct_over_transforms"] = direct / fast;
  state.counters["forward_over_best"] = chosen / std::min(direct, fast);
}

/// `to_forward`: how much longer the gradients take.
template <class T>
void gradients(benchmark::State& state) {
  problem<T> p(state.range(0), 16, state.range(1));
  iterate(state, 1, [&] { p.back(form::automatic); });
  const auto [one, other, direct, fast] = stopwatch(1).least(
      0.05, [&] { p.run(form::automatic); }, [&] { p.back(form::automatic); }, [&] { p.back(form::recurrent); },
      [&] { p.back(form::convolution); });
  state.counters["to_forward"] = other / one;
  state.counters["direct_over_transforms"] = direct / fast;
  state.counters["backward_over_best"] = other / std::min(direct, fast);
}

/// One sample at a time through the history: `us_per_sample` for all channels.
template <class T>
void steps(benchmark::State& state) {
  const index_t channels = state.range(0), taps = state.range(1);
  problem<T> p(1, channels, taps);
  tensor<T, 3> history({1, channels, taps - 1});
  const double seconds = iterate(state, 1, [&] { step(prechecked, p.op(), history, p.y, {}, p.ctx); });
  state.counters["us_per_sample"] = 1e6 * seconds;
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"L", "Lk"});
  for (const index_t taps : {4, 16, 32, 64, 128, 256, 1024}) bench->Args({4096, taps});
  for (const index_t taps : {64, 1024}) bench->Args({65536, taps});
}

BENCHMARK_TEMPLATE(against_eigen, float)->ArgNames({"L", "D"})->Args({16384, 512})->Args({16384, 16})->Args({1024, 64});
BENCHMARK_TEMPLATE(against_eigen, double)->ArgNames({"L", "D"})->Args({16384, 64});
BENCHMARK_TEMPLATE(crossing, float)->Apply(shapes);
BENCHMARK_TEMPLATE(crossing, double)->Apply(shapes);
BENCHMARK_TEMPLATE(gradients, float)->Apply(shapes);
BENCHMARK_TEMPLATE(steps, float)->ArgNames({"D", "Lk"})->Args({512, 64})->Args({512, 1024});

}  // namespace

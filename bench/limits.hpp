// What this machine can do at most, measured in the run that reports a fraction of it: fused multiply-adds,
// exponentials with multiply-adds beside them, and reading memory of a given size. One thread.
#pragma once

#include <ogive/core/tensor.hpp>
#include <ogive/simd/batch.hpp>
#include <ogive/simd/math.hpp>

#include <benchmark/benchmark.h>

#include <bench/clock.hpp>
#include <chrono>
#include <utility>

namespace ogive::bench {

/// Seconds of one call of `work`: the least of many, since whatever disturbs a measurement makes it longer.
template <class Work>
double least_seconds(const Work& work, double budget = 0.05) {
  using clock = std::chrono::steady_clock;
  const auto since = [](clock::time_point start) {
    return std::chrono::duration<double>(clock::now() - start).count();
  };
  const auto begin = clock::now();
  double least = 1e30;
  for (int calls = 0; calls < (only_once() ? 1 : 3) || (since(begin) < budget && !only_once()); ++calls) {
    const auto start = clock::now();
    work();
    least = std::min(least, since(start));
  }
  return least;
}

namespace detail {

template <class T, std::size_t... Chain>
OGIVE_NOINLINE void multiply_add(index_t rounds, std::index_sequence<Chain...>) {
  using batch = simd::batch<T>;
  batch x[sizeof...(Chain)] = {batch(static_cast<T>(Chain))...};
  batch a(T(0.5)), b(T(1));
  benchmark::DoNotOptimize(a);
  benchmark::DoNotOptimize(b);
  for (index_t round = 0; round < rounds; ++round) ((x[Chain] = simd::fma(x[Chain], a, b)), ...);
  batch total = x[0];
  ((total = total + x[Chain]), ...);
  benchmark::DoNotOptimize(total);
}

/// y_i = exp(x_i), then `Fmas` multiply-adds on it, four vectors at a time.
template <class T, int Fmas, std::size_t... Lane>
OGIVE_NOINLINE void exponential(const T* x, T* y, index_t n, std::index_sequence<Lane...>) {
  using batch = simd::batch<T>;
  constexpr index_t width = simd::width<T>;
  const batch a(T(0.5)), b(T(1));
  for (index_t i = 0; i + static_cast<index_t>(sizeof...(Lane)) * width <= n; i += sizeof...(Lane) * width) {
    batch e[sizeof...(Lane)] = {simd::exp(simd::load(x + i + static_cast<index_t>(Lane) * width))...};
    for (int k = 0; k < Fmas; ++k) ((e[Lane] = simd::fma(e[Lane], a, b)), ...);
    (simd::store(y + i + static_cast<index_t>(Lane) * width, e[Lane]), ...);
  }
}

template <std::size_t... Lane>
OGIVE_NOINLINE void read(const float* x, index_t n, std::index_sequence<Lane...>) {
  using batch = simd::batch<float>;
  constexpr index_t width = simd::width<float>;
  batch sum[sizeof...(Lane)] = {};
  for (index_t i = 0; i + static_cast<index_t>(sizeof...(Lane)) * width <= n; i += sizeof...(Lane) * width) {
    ((sum[Lane] = sum[Lane] + simd::load(x + i + static_cast<index_t>(Lane) * width)), ...);
  }
  (benchmark::DoNotOptimize(sum[Lane]), ...);
}

}  // namespace detail

/// Flops per second of fused multiply-adds (two flops each) from registers.
template <class T>
double fma_peak() {
  static const double peak = [] {
    constexpr index_t rounds = 20000;
    constexpr index_t chains = 12;
    const double seconds = least_seconds([&] { detail::multiply_add<T>(rounds, std::make_index_sequence<chains>()); });
    return 2.0 * static_cast<double>(simd::width<T> * chains * rounds) / seconds;
  }();
  return peak;
}

/// Elements per second of "exp, then `Fmas` multiply-adds" on arrays in the first-level cache.
template <class T, int Fmas>
double exp_rate() {
  static const double rate = [] {
    constexpr index_t n = 16384 / static_cast<index_t>(2 * sizeof(T));
    tensor<T, 1> x({n}, T(-0.25)), y({n});
    constexpr int repeats = 50;
    const double seconds = least_seconds([&] {
      for (int r = 0; r < repeats; ++r) {
        detail::exponential<T, Fmas>(x.data(), y.data(), n, std::make_index_sequence<4>());
        benchmark::DoNotOptimize(y.data());
      }
    });
    return static_cast<double>(n * repeats) / seconds;
  }();
  return rate;
}

/// Bytes per second when the same `bytes` are read again and again: 16 KiB for the first-level cache, 512 KiB for the
/// second, 64 MiB for what lies behind.
inline double read_bandwidth(index_t bytes) {
  const index_t n = bytes / static_cast<index_t>(sizeof(float));
  const tensor<float, 1> x({n}, 1.0F);
  const index_t repeats = std::max<index_t>(1, (index_t{1} << 20) / bytes);
  const double seconds = least_seconds([&] {
    for (index_t r = 0; r < repeats; ++r) detail::read(x.data(), n, std::make_index_sequence<8>());
  });
  return static_cast<double>(bytes * repeats) / seconds;
}

/// The loop of a benchmark that works with `threads` threads: seconds of one iteration.
template <class Work>
double iterate(benchmark::State& state, int threads, const Work& work) {
  const auto now = threads == 1 ? thread_seconds : wall_seconds;
  const double begin = now();
  for (auto _ : state) {
    work();
    benchmark::ClobberMemory();
  }
  return std::max(now() - begin, 1e-9) / static_cast<double>(state.iterations());
}

/// The counter every benchmark carries: the fraction reached of the limit that binds it. Both are the time of one
/// iteration; what is a pure number must not be a rate of Google Benchmark's, which it prints per second.
inline void report_limit(benchmark::State& state, double seconds, double limit_seconds) {
  state.counters["limit_fraction"] = limit_seconds / seconds;
}

}  // namespace ogive::bench

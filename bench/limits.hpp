// What this machine can do at most, measured in the run that reports a fraction of it: fused multiply-adds,
// exponentials with multiply-adds beside them, reading memory of a given size, and reading two streams to write one.
// One thread.
#pragma once

#include <ogive/core/tensor.hpp>
#include <ogive/simd/batch.hpp>
#include <ogive/simd/math.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <bench/clock.hpp>
#include <utility>

namespace ogive::bench {

/// Seconds of one call of `work`, of this thread: the least of many, since whatever disturbs a measurement makes it
/// longer.
template <class Work>
double least_seconds(const Work& work, double budget = 0.05) {
  const double begin = wall_seconds();
  double least = 1e30;
  const double patience = only_once() ? 0 : budget;
  const int enough = only_once() ? 1 : 3;
  for (int calls = 0; calls < enough || wall_seconds() - begin < patience; ++calls) {
    const double start = thread_seconds();
    work();
    least = std::min(least, thread_seconds() - start);
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

template <std::size_t... Lane>
OGIVE_NOINLINE void add(const float* x, const float* y, float* z, index_t n, std::index_sequence<Lane...>) {
  constexpr index_t width = simd::width<float>;
  for (index_t i = 0; i + static_cast<index_t>(sizeof...(Lane)) * width <= n; i += sizeof...(Lane) * width) {
    const auto one = [&](index_t at) __attribute__((always_inline)) {
      simd::store(z + at, simd::load(x + at) + simd::load(y + at));
    };
    (one(i + static_cast<index_t>(Lane) * width), ...);
  }
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

/// Seconds of z = x + y on three arrays of `bytes` each, again and again: they stay in the cache that holds them.
inline double seconds_of_sum(index_t bytes) {
  const index_t n = bytes / static_cast<index_t>(sizeof(float));
  const tensor<float, 1> x({n}, 1.0F), y({n}, 2.0F);
  tensor<float, 1> z({n});
  const index_t repeats = std::max<index_t>(1, (index_t{1} << 18) / bytes);
  const double seconds = least_seconds(
      [&] {
        for (index_t r = 0; r < repeats; ++r) {
          detail::add(x.data(), y.data(), z.data(), n, std::make_index_sequence<4>());
          benchmark::DoNotOptimize(z.data());
        }
      },
      0.2);
  return seconds / static_cast<double>(repeats);
}

/// Seconds of one iteration, and the share of the peak of multiply-adds that the machine gave meanwhile.
struct iteration {
  double seconds;
  double share = 1;
  operator double() const noexcept { return seconds; }
};

/// The loop of a benchmark that works with `threads` threads. The core may be lent to others at the same time, which a
/// peak taken at its best moment does not know: so one thread stops every now and then, unmeasured, to multiply and add
/// from registers for a sixteenth of the time that it has worked.
template <class Work>
iteration iterate(benchmark::State& state, int threads, const Work& work) {
  const auto now = threads == 1 ? thread_seconds : wall_seconds;
  constexpr index_t rounds = 2000, chains = 12;
  const double peak = fma_peak<float>();
  const index_t every = std::max<index_t>(1, static_cast<index_t>(state.max_iterations) / 32);
  double worked = 0, multiplied = 0, flops = 0;
  index_t done = 0;
  double begin = now();
  for (auto _ : state) {
    work();
    benchmark::ClobberMemory();
    if (++done % every != 0 || threads > 1) continue;
    worked += now() - begin;
    state.PauseTiming();
    do {
      const double start = now();
      detail::multiply_add<float>(rounds, std::make_index_sequence<chains>());
      multiplied += now() - start;
      flops += 2.0 * static_cast<double>(simd::width<float> * chains * rounds);
    } while (multiplied < worked / 16);
    state.ResumeTiming();
    begin = now();
  }
  worked += now() - begin;
  const double seconds = std::max(worked, 1e-9) / static_cast<double>(state.iterations());
  return {seconds, flops > 0 ? std::min(1.0, flops / multiplied / peak) : 1.0};
}

/// The counter every benchmark carries: the fraction reached of the limit that binds it. Both are the time of one
/// iteration; what is a pure number must not be a rate of Google Benchmark's, which it prints per second.
inline void report_limit(benchmark::State& state, double seconds, double limit_seconds) {
  state.counters["limit_fraction"] = limit_seconds / seconds;
}

/// The same where the peak of multiply-adds is the limit, of which the machine gave a share, the counter `machine`.
inline void report_limit(benchmark::State& state, const iteration& one, double limit_seconds) {
  state.counters["limit_fraction"] = limit_seconds / one.share / one.seconds;
  state.counters["machine"] = one.share;
}

}  // namespace ogive::bench

// Diagonal time-invariant systems: the kernel of S4D against the multiply-adds it needs, two per pair of modes and
// element; the sweep against eight per pair and token; a step against reading what it reads once; and where the
// convolution overtakes the sweep. S4 against its multiply-adds. HGRN against memory and its exponentials. One thread.
//
// AVX-512: kernels of 16384 elements reach 0.52 to 0.65 of the peak of multiply-adds, in float and double, with their
// discretisation; of 1024 elements that and the tables are most of the work (0.15 to 0.25). A sweep reaches 0.4 to
// 0.58. A step of 512 channels takes 7.6 µs with 32 pairs (2.7 times 48 kHz) and 13 µs with 64 (1.6 times). Sweep and
// convolution cross at some 50 pairs from 1000 tokens on, and `forward` is within some per cent of the better one. S4
// with 32 modes reaches 0.4, its sweep and its kernel. HGRN reaches 0.85 to 0.95 of the rate at which memory adds two
// tensors into a third, 0.55 of its exponentials in cache; its gradients, which read x and g twice, 0.55 of memory.
#include <ogive/ops/hgrn.hpp>
#include <ogive/ops/s4.hpp>
#include <ogive/ops/s4d.hpp>
#include <ogive/testing/rng.hpp>

#include <bench/clock.hpp>
#include <bench/limits.hpp>

namespace {

using namespace ogive;
using namespace ogive::bench;

/// S4D-Lin with `pairs` of modes per channel.
template <class T>
struct problem {
  using number = std::complex<T>;
  tensor<T, 3> u, y;
  tensor<number, 2> A, B, C, A_bar, B_bar;
  tensor<T, 1> dt, D;
  tensor<T, 2> K;
  tensor<number, 3> h;
  context ctx;

  problem(index_t batch, index_t length, index_t channels, index_t pairs)
      : u({batch, length, channels}),
        y(u),
        A({channels, pairs}),
        B({channels, pairs}, number(1)),
        C(A),
        A_bar(A),
        B_bar(A),
        dt({channels}),
        D({channels}, T(1)),
        K({channels, length}),
        h({batch, channels, pairs}) {
    testing::rng random(1);
    testing::fill_normal(random, u.all());
    testing::fill_uniform(random, dt.all(), 1e-3, 1e-1);
    for (index_t d = 0; d < channels; ++d) {
      for (index_t n = 0; n < pairs; ++n) {
        A(d, n) = number(T(-0.5), T(3.14159265) * static_cast<T>(n));
        C(d, n) = number(static_cast<T>(random.uniform(-1, 1)), static_cast<T>(random.uniform(-1, 1)));
      }
    }
    discretise(op(), A_bar.all(), B_bar.all());
    reserve(op(), {}, ctx);
  }
  s4d<T> op() const { return {.u = u, .A = A, .B = B, .C = C, .dt = dt, .D = D}; }
  /// With coefficients that are ready.
  s4d<T> prepared() const { return {.u = u, .A = A_bar, .B = B_bar, .C = C, .D = D, .rule = discretisation::none}; }
  void run(form way) { forward(op(), {}, y, {.form = way}, ctx); }
  /// Pairs times tokens times channels.
  double work() const { return static_cast<double>(A.size() * u.extent(0) * u.extent(1)); }
};

template <class T>
void kernels(benchmark::State& state) {
  problem<T> p(1, state.range(0), 16, state.range(1));
  const auto seconds = iterate(state, 1, [&] { kernel(p.op(), p.K.all(), p.ctx); });
  report_limit(state, seconds, 4 * p.work() / fma_peak<T>());
}

/// `of_kernel`: the same where A and B are discretised already.
template <class T>
void kernels_prepared(benchmark::State& state) {
  problem<T> p(1, state.range(0), 16, state.range(1));
  const auto seconds = iterate(state, 1, [&] { kernel(p.prepared(), p.K.all(), p.ctx); });
  report_limit(state, seconds, 4 * p.work() / fma_peak<T>());
}

template <class T>
void sweeps(benchmark::State& state) {
  problem<T> p(1, state.range(0), 64, state.range(1));
  const auto seconds = iterate(state, 1, [&] { recurrent(p.op(), {}, p.y, {}, p.ctx); });
  report_limit(state, seconds, 16 * p.work() / fma_peak<T>());
}

/// A sample of every channel through states in place; `times_48kHz` is how many times as fast as the sound of one.
template <class T>
void steps(benchmark::State& state) {
  problem<T> p(1, 1, state.range(0), state.range(1));
  const auto op = p.prepared();
  require(check(op, p.h.all(), p.y));
  const double seconds = iterate(state, 1, [&] { step(prechecked, op, p.h.all(), p.y, {}, p.ctx); });
  const index_t bytes = p.A.size() * 4 * static_cast<index_t>(sizeof(std::complex<T>));
  report_limit(state, seconds, static_cast<double>(bytes) / read_bandwidth(bytes));
  state.counters["us_per_sample"] = 1e6 * seconds;
  state.counters["times_48kHz"] = 1 / (48000 * seconds);
}

/// `sweep_over_convolution` is above 1 where the convolution is faster; `forward_over_best` is 1 where the choice is
/// right.
template <class T>
void crossing(benchmark::State& state) {
  problem<T> p(state.range(2), state.range(0), 16, state.range(1));
  iterate(state, 1, [&] { p.run(form::automatic); });
  const auto [sweep, fast, chosen] = stopwatch(1).least(
      0.05, [&] { p.run(form::recurrent); }, [&] { p.run(form::convolution); }, [&] { p.run(form::automatic); });
  state.counters["sweep_over_convolution"] = sweep / fast;
  state.counters["forward_over_best"] = chosen / std::min(sweep, fast);
}

/// `to_sweep`: how much longer the gradients take than the sweep.
template <class T>
void gradients(benchmark::State& state) {
  problem<T> p(1, state.range(0), 16, state.range(1));
  tensor<T, 3> d_u(p.u);
  auto d_A = p.A, d_B = p.A, d_C = p.A;
  auto d_dt = p.dt, d_D = p.D;
  const auto back = [&] {
    backward(p.op(), {}, p.u.all(), diagonal_state_gradient<std::complex<T>>{},
             {.u = d_u, .A = d_A, .B = d_B, .C = d_C, .dt = d_dt, .D = d_D}, {}, p.ctx);
  };
  iterate(state, 1, back);
  const auto [sweep, all] = stopwatch(1).least(
      0.05, [&] { p.run(form::recurrent); }, back);
  state.counters["to_sweep"] = all / sweep;
}

/// S4 with `modes` of a channel, one of each pair, and one term of low rank. A sweep has 8 + 4 R multiply-adds per mode
/// and token. A kernel, in double, has for a tap 4 + 4 R of the truncation and, at half a root, (R + 1)² Cauchy sums of
/// 4 and two reciprocals of 26 operations, each counted as one multiply-add.
struct s4_problem {
  static constexpr index_t channels = 64, rank = 1;
  using number = std::complex<float>;
  index_t modes;
  tensor<float, 3> u, y;
  tensor<number, 2> Lambda, B, C;
  tensor<number, 3> P;
  tensor<float, 1> dt;
  tensor<float, 2> K;
  context ctx;

  s4_problem(index_t length, index_t modes_of_channel)
      : modes(modes_of_channel),
        u({1, length, channels}),
        y(u),
        Lambda({channels, modes}),
        B({channels, modes}, number(1)),
        C(B),
        P({channels, rank, modes}),
        dt({channels}),
        K({channels, length}) {
    testing::rng random(1);
    testing::fill_normal(random, u.all());
    testing::fill_uniform(random, dt.all(), 1e-3, 1e-1);
    for (index_t d = 0; d < channels; ++d) {
      for (index_t n = 0; n < modes; ++n) {
        Lambda(d, n) = number(-0.5F, 3.14159265F * static_cast<float>(n));
        P(d, 0, n) = number(std::sqrt(static_cast<float>(n) + 0.5F) / static_cast<float>(modes));
      }
    }
    reserve(op(), {}, ctx);
  }
  s4<float> op() const { return {.u = u, .Lambda = Lambda, .P = P, .B = B, .C = C, .dt = dt}; }
  void run(form way) { forward(op(), {}, y, {.form = way}, ctx); }
  double work() const { return static_cast<double>(modes * channels * u.extent(1)); }
  double sweep_limit() const { return 2 * (8 + 4 * rank) * work() / fma_peak<float>(); }
  double kernel_limit() const {
    constexpr index_t at_a_root = 26 + 4 * (rank + 1) * (rank + 1);
    return 2 * (4 + 4 * rank + at_a_root / 2) * work() / fma_peak<double>();
  }
};

void s4_sweeps(benchmark::State& state) {
  s4_problem p(state.range(0), state.range(1));
  report_limit(state, iterate(state, 1, [&] { p.run(form::recurrent); }), p.sweep_limit());
}
void s4_kernels(benchmark::State& state) {
  s4_problem p(state.range(0), state.range(1));
  report_limit(state, iterate(state, 1, [&] { kernel(p.op(), p.K.all(), p.ctx); }), p.kernel_limit());
}
/// The limit is the lower one: a convolution has at least its kernel.
void s4_forward(benchmark::State& state) {
  s4_problem p(state.range(0), state.range(1));
  const auto seconds = iterate(state, 1, [&] { p.run(form::automatic); });
  report_limit(state, seconds, std::min(p.sweep_limit(), p.kernel_limit()));
  const auto [sweep, fast, chosen] = stopwatch(1).least(
      0.05, [&] { p.run(form::recurrent); }, [&] { p.run(form::convolution); }, [&] { p.run(form::automatic); });
  state.counters["sweep_over_convolution"] = sweep / fast;
  state.counters["forward_over_best"] = chosen / std::min(sweep, fast);
}

/// x, g and o of HGRN, and their gradients. It reads two streams and writes one, backwards three and two, and has an
/// exponential and a multiply-add per token and channel: whichever takes longer is the limit.
struct gated_problem {
  tensor<float, 3> x, g, o, d_x{}, d_g{};
  context ctx;

  gated_problem(index_t length, index_t channels)
      : x({1, length, channels}, 1), g({1, length, channels}, -0.5F), o(x) {}
  hgrn<float> op() const { return {.x = x, .g = g}; }
  double limit(double sums) const {
    const index_t bytes = x.size() * static_cast<index_t>(sizeof(float));
    return std::max(static_cast<double>(x.size()) / exp_rate<float, 1>(), sums * seconds_of_sum(bytes));
  }
};

void gated(benchmark::State& state) {
  gated_problem p(state.range(0), state.range(1));
  const double seconds = iterate(state, 1, [&] { forward(p.op(), {}, p.o, {}, p.ctx); });
  report_limit(state, seconds, p.limit(1));
}
void gated_gradients(benchmark::State& state) {
  gated_problem p(state.range(0), state.range(1));
  p.d_x = p.d_g = p.x;
  const auto back = [&] { backward(p.op(), {}, p.o, {}, {.x = p.d_x, .g = p.d_g}, {}, p.ctx); };
  const double seconds = iterate(state, 1, back);
  report_limit(state, seconds, p.limit(5.0 / 3));
}

constexpr index_t long_sequence = 16384;

BENCHMARK(kernels<float>)
    ->Name("s4d/kernel/f32")
    ->ArgNames({"L", "pairs"})
    ->Args({long_sequence, 32})
    ->Args({long_sequence, 64})
    ->Args({1024, 32});
BENCHMARK(kernels<double>)->Name("s4d/kernel/f64")->ArgNames({"L", "pairs"})->Args({long_sequence, 32});
BENCHMARK(kernels_prepared<float>)
    ->Name("s4d/kernel_prepared/f32")
    ->ArgNames({"L", "pairs"})
    ->Args({long_sequence, 32})
    ->Args({1024, 32});
BENCHMARK(sweeps<float>)
    ->Name("s4d/recurrent/f32")
    ->ArgNames({"L", "pairs"})
    ->Args({4096, 32})
    ->Args({4096, 64})
    ->Args({4096, 8});
BENCHMARK(sweeps<double>)->Name("s4d/recurrent/f64")->ArgNames({"L", "pairs"})->Args({4096, 32});
BENCHMARK(steps<float>)
    ->Name("s4d/step/f32")
    ->ArgNames({"D", "pairs"})
    ->Args({512, 32})
    ->Args({512, 64})
    ->Args({1, 32});
BENCHMARK(crossing<float>)
    ->Name("s4d/crossing/f32")
    ->ArgNames({"L", "pairs", "B"})
    ->ArgsProduct({{64, 256, 512, 1024, 4096, long_sequence}, {4, 32}, {1, 8}});
BENCHMARK(gradients<float>)->Name("s4d/backward/f32")->ArgNames({"L", "pairs"})->Args({4096, 32});
BENCHMARK(s4_sweeps)->Name("s4/recurrent/f32")->ArgNames({"L", "modes"})->Args({4096, 32});
BENCHMARK(s4_kernels)->Name("s4/kernel/f32")->ArgNames({"L", "modes"})->Args({4096, 32})->Args({long_sequence, 32});
BENCHMARK(s4_forward)->Name("s4/forward/f32")->ArgNames({"L", "modes"})->Args({256, 32})->Args({4096, 32});
BENCHMARK(gated)
    ->Name("hgrn/forward/f32")
    ->ArgNames({"L", "D"})
    ->Args({512, 1024})
    ->Args({4096, 2048})
    ->Args({16, 256})
    ->Args({1, 1024});
BENCHMARK(gated_gradients)->Name("hgrn/backward/f32")->ArgNames({"L", "D"})->Args({512, 1024})->Args({4096, 2048});

}  // namespace

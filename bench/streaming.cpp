// Sound through S4D, a sample at a time: 512 channels with N modes each on one core. A sample at 48 kHz is 20.8 µs;
// `margin` is how often the median step fits there. Of a million steps, each timed alone (fewer in a quick look),
// p99.99 and the longest are given, on the wall, where what else the machine does is in them, and in processor time,
// with two looks at its clock. `silent` is a step whose state has decayed to nothing against one of a state in motion,
// `unflushed` the same where subnormal numbers are not flushed.
#include <ogive/ops/prepared.hpp>
#include <ogive/ops/s4d.hpp>
#include <ogive/testing/rng.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <bench/clock.hpp>
#include <complex>
#include <vector>

namespace {

using namespace ogive;
using number = std::complex<float>;

constexpr index_t channels = 512;
constexpr double rate = 48000;

class stream {
 public:
  stream(index_t modes, bool flush) : filter_(prepare(system(modes), {}, with(flush))) {
    testing::rng random(1);
    testing::fill_uniform(random, sound_.all());
  }

  /// One sample of noise; or of nothing.
  void step() {
    at_ = (at_ + 1) % sound_.extent(1);
    filter_.step(prechecked, sound_.all().slice(1, at_, 1), y_);
  }
  void silent_step() { filter_.step(prechecked, silence_, y_); }

  /// All that a long silence leaves.
  void fade() {
    auto h = filter_.state();
    for (index_t d = 0; d < h.extent(1); ++d)
      for (index_t n = 0; n < h.extent(2); ++n) h(0, d, n) = number(1e-40F, -1e-40F);
    for (int t = 0; t < 100; ++t) silent_step();
  }

 private:
  static s4d<float> system(index_t modes) {
    static tensor<number, 2> A, B, C;
    static tensor<float, 1> dt, D;
    A = B = C = tensor<number, 2>({channels, modes});
    dt = tensor<float, 1>({channels}, static_cast<float>(1 / rate));
    D = tensor<float, 1>({channels}, 1);
    testing::rng random(2);
    for (number& x : A.flat()) x = number(-3, static_cast<float>(random.uniform(100, 50000)));
    testing::fill_normal(random, B.all());
    testing::fill_normal(random, C.all());
    return {.A = A, .B = B, .C = C, .dt = dt, .D = D};
  }
  static context with(bool flush) {
    context ctx;
    ctx.flush(flush);
    return ctx;
  }

  prepared<s4d<float>> filter_;
  tensor<float, 3> sound_{{1, 480, channels}}, silence_{{1, 1, channels}}, y_{{1, 1, channels}};
  index_t at_ = 0;
};

void step(benchmark::State& state) {
  stream moving(state.range(0), true), unflushed(state.range(0), false);
  constexpr std::size_t most = 1000000;
  std::vector<double> wall, own;
  wall.reserve(most);
  own.reserve(most);
  const auto timed = [&] {
    const double own_begin = bench::thread_seconds(), begin = bench::wall_seconds();
    moving.step();
    const double end = bench::wall_seconds(), own_end = bench::thread_seconds();
    if (wall.size() == most) return;
    wall.push_back(end - begin);
    own.push_back(own_end - own_begin);
  };
  const double begin = bench::wall_seconds();
  for (auto _ : state) timed();
  const bool looks_closely = bench::wall_seconds() - begin > 0.1;
  while (looks_closely && wall.size() < most) timed();

  // One after the other: two systems together do not fit in the second-level cache.
  const bench::stopwatch watch(1);
  const double loud = watch.least(0.2, [&] { moving.step(); })[0];
  moving.fade();
  const double silent = watch.least(0.2, [&] { moving.silent_step(); })[0];
  unflushed.fade();
  const double slow = watch.least(0.2, [&] { unflushed.silent_step(); })[0];

  const auto part = [](std::vector<double>& seconds, double x) {
    const auto at = static_cast<std::ptrdiff_t>(x * static_cast<double>(seconds.size() - 1));
    std::nth_element(seconds.begin(), seconds.begin() + at, seconds.end());
    return 1e6 * seconds[static_cast<std::size_t>(at)];
  };
  state.counters["steps"] = static_cast<double>(wall.size());
  state.counters["margin"] = 1e6 / (rate * part(wall, 0.5));
  state.counters["median_us"] = part(wall, 0.5);
  state.counters["p99.99_us"] = part(wall, 0.9999);
  state.counters["longest_us"] = part(wall, 1);
  state.counters["own_p99.99_us"] = part(own, 0.9999);
  state.counters["own_longest_us"] = part(own, 1);
  state.counters["silent"] = silent / loud;
  state.counters["unflushed"] = slow / loud;
}
BENCHMARK(step)->ArgName("N")->Arg(32)->Arg(64)->Unit(benchmark::kMicrosecond);

}  // namespace

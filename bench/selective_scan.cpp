// The selective scan against what binds it: as many exponentials and multiply-adds as it needs, in the first-level
// cache, in the same run. One exponential of a product, one multiplication and two multiply-adds per token, channel and
// state; softplus and silu count where they are asked for.
#include <ogive/core/openmp.hpp>
#include <ogive/ops/selective_scan.hpp>
#include <ogive/testing/rng.hpp>

#include <bench/limits.hpp>

namespace {

using namespace ogive;

constexpr index_t room = 4096;  // bytes of each array of a limit

/// s ← s + (2^(x y) h + x y) y: the work of one state, on numbers that do not wait for each other.
template <class T, std::size_t... Lane>
OGIVE_NOINLINE void scan_work(const T* x, const T* y, const T* h, index_t n, std::index_sequence<Lane...>) {
  using batch = simd::batch<T>;
  constexpr index_t width = simd::width<T>;
  batch sum[] = {(static_cast<void>(Lane), batch(T(0)))...};
  for (index_t i = 0; i < n; i += static_cast<index_t>(sizeof...(Lane)) * width) {
    const auto one = [&](index_t at, batch & s) __attribute__((always_inline)) {
      const batch x_i = simd::load(x + at), y_i = simd::load(y + at);
      s = simd::fma(simd::fma(simd::exp2_product(x_i, y_i), simd::load(h + at), x_i * y_i), y_i, s);
    };
    (one(i + static_cast<index_t>(Lane) * width, sum[Lane]), ...);
  }
  batch total(T(0));
  ((total = total + sum[Lane]), ...);
  benchmark::DoNotOptimize(total);
}

template <class T, class Map>
OGIVE_NOINLINE void map_work(const T* x, T* y, index_t n, const Map& map) {
  constexpr index_t width = simd::width<T>;
  for (index_t i = 0; i < n; i += width) simd::store(y + i, map(simd::load(x + i)));
}

/// Seconds per element of `work(x, y, z, n)` on arrays in the first-level cache.
template <class T, class Work>
double seconds_each(const Work& work) {
  constexpr index_t n = room / static_cast<index_t>(sizeof(T));
  tensor<T, 1> x({n}, T(0.1)), y({n}, T(-1)), z({n}, T(1));
  constexpr int repeats = 50;
  const double seconds = bench::least_seconds([&] {
    for (int r = 0; r < repeats; ++r) {
      work(x.data(), y.data(), z.data(), n);
      benchmark::DoNotOptimize(z.data());
    }
  });
  return seconds / static_cast<double>(n * repeats);
}

/// Seconds of one scan at the limit, one thread.
template <class T>
double limit_seconds(index_t tokens, index_t channels, index_t states, bool softplus, bool silu) {
  static const double each_state = seconds_each<T>(
      [](const T* x, const T* y, const T* h, index_t n) { scan_work(x, y, h, n, std::make_index_sequence<4>()); });
  static const double each_softplus = seconds_each<T>([](const T* x, const T*, T* y, index_t n) {
    map_work(x, y, n, [](const auto& v) { return simd::softplus(v); });
  });
  static const double each_silu = seconds_each<T>(
      [](const T* x, const T*, T* y, index_t n) { map_work(x, y, n, [](const auto& v) { return simd::silu(v); }); });
  const double tokens_channels = static_cast<double>(tokens * channels);
  return tokens_channels *
         (static_cast<double>(states) * each_state + (softplus ? each_softplus : 0) + (silu ? each_silu : 0));
}

enum class memory_order { tokens_first, channels_first };

/// Arguments of one call, drawn once.
template <class T, class AType = accum_t<T>>
struct problem {
  using op_type = selective_scan<T, AType>;
  using accum = accum_t<T>;
  using operand = typename op_type::operand;

  problem(index_t length, index_t channels, index_t states, bool everything, memory_order order)
      : u(extents(length, channels, order)),
        z(extents(length, channels, order)),
        y(extents(length, channels, order)),
        dt(extents(length, channels, order)),
        A({channels, states}),
        B({1, length, 1, states}),
        C({1, length, 1, states}),
        D({channels}),
        bias({channels}),
        state({1, channels, states}) {
    testing::rng random(1);
    testing::fill_normal(random, u.all());
    testing::fill_normal(random, z.all());
    testing::fill_uniform(random, dt.all(), everything ? -5 : 0.001, everything ? -2 : 0.1);
    testing::fill_uniform(random, A.all(), -static_cast<double>(states), -0.5);
    testing::fill_normal(random, B.all());
    testing::fill_normal(random, C.all());
    testing::fill_normal(random, D.all());
    testing::fill_uniform(random, bias.all(), -1, 0);
    const auto seen = [order](const auto& x) {
      const auto all = x.all();
      return order == memory_order::tokens_first ? all : from_bdl(all);
    };
    op.u = seen(std::as_const(u));
    op.dt = seen(std::as_const(dt));
    op.A = A;
    op.B = B;
    op.C = C;
    out = order == memory_order::tokens_first ? y.all() : from_bdl(y.all());
    if (!everything) return;
    op.D = D;
    op.z = seen(std::as_const(z));
    op.dt_bias = bias;
    op.dt_softplus = true;
  }
  static shape<3> extents(index_t length, index_t channels, memory_order order) {
    return order == memory_order::tokens_first ? shape<3>{1, length, channels} : shape<3>{1, channels, length};
  }

  tensor<T, 3> u, z, y;
  tensor<accum, 3> dt;
  tensor<AType, 2> A;
  tensor<operand, 4> B, C;
  tensor<accum, 1> D, bias;
  tensor<AType, 3> state;
  op_type op;
  view<T, 3> out;
};

constexpr index_t channels = 1536;
constexpr index_t states = 16;

template <class T, class AType = accum_t<T>>
void forward_scan(benchmark::State& run, bool everything, memory_order order, int threads) {
  const index_t length = 512;
  problem<T, AType> arguments(length, channels, states, everything, order);
  context ctx = threads == 1 ? context() : openmp_context(threads);
  const double seconds = bench::iterate(run, threads, [&] { forward(arguments.op, {}, arguments.out, {}, ctx); });
  const double limit = limit_seconds<accum_t<T>>(length, channels, states, everything, everything);
  bench::report_limit(run, seconds, limit / threads);
  run.SetItemsProcessed(run.iterations() * length);
}

template <class T>
void step_scan(benchmark::State& run, bool everything) {
  problem<T> arguments(1, channels, states, everything, memory_order::tokens_first);
  context ctx;
  const double seconds =
      bench::iterate(run, 1, [&] { step(arguments.op, arguments.state.all(), arguments.out, {}, ctx); });
  bench::report_limit(run, seconds, limit_seconds<accum_t<T>>(1, channels, states, everything, everything));
  run.SetItemsProcessed(run.iterations());
}

/// A long sequence of few channels, which `forward` splits in time: `speedup` is against one thread that does not, and
/// 1/speedup on one thread is what the split costs there.
void split_scan(benchmark::State& run, int threads) {
  problem<float> arguments(65536, 16, states, false, memory_order::tokens_first);
  context ctx = threads == 1 ? context() : openmp_context(threads), serial;
  const auto unsplit = [&] { recurrent(arguments.op, {}, arguments.out, {}, serial); };
  const auto split = [&] { forward(arguments.op, {}, arguments.out, {}, ctx); };
  for (auto _ : run) split();
  const auto seconds = bench::stopwatch(threads).least(0.3, unsplit, split);
  run.counters["speedup"] = seconds[0] / seconds[1];
  run.SetItemsProcessed(run.iterations() * arguments.out.extent(1));
}

const bool registered = [] {
  const auto add = [](const char* name, auto* function, auto... arguments) {
    benchmark::RegisterBenchmark(name, function, arguments...)->UseRealTime();
  };
  constexpr auto tokens_first = memory_order::tokens_first;
  constexpr auto channels_first = memory_order::channels_first;
  add("selective_scan/f32/D1536_N16_L512/forward", forward_scan<float>, false, tokens_first, 1);
  add("selective_scan/f32/D1536_N16_L512/forward/2_threads", forward_scan<float>, false, tokens_first, 2);
  add("selective_scan/f32/D1536_N16_L512/softplus_D_z/forward", forward_scan<float>, true, tokens_first, 1);
  add("selective_scan/f32/D1536_N16_L512/channels_first/forward", forward_scan<float>, false, channels_first, 1);
  add("selective_scan/bf16/D1536_N16_L512/forward", forward_scan<bfloat16>, false, tokens_first, 1);
  add("selective_scan/f64/D1536_N16_L512/forward", forward_scan<double>, false, tokens_first, 1);
  add("selective_scan/f32/D16_N16_L65536/forward", split_scan, 1);
  add("selective_scan/f32/D16_N16_L65536/forward/2_threads", split_scan, 2);
  add("selective_scan/f32/D1536_N16_L1/step", step_scan<float>, false);
  add("selective_scan/f32/D1536_N16_L1/softplus_D_z/step", step_scan<float>, true);
  return true;
}();

}  // namespace

// Linear attention without time, both forms, and softmax attention. Where products bind, the limit is the rate of fused
// multiply-adds measured in the same run; where a cache of keys and values is streamed, that of reading as many bytes.
#include <ogive/core/openmp.hpp>
#include <ogive/maps/elementwise.hpp>
#include <ogive/ops/noncausal_linear_attention.hpp>
#include <ogive/ops/softmax_attention.hpp>
#include <ogive/testing/rng.hpp>

#include <bench/limits.hpp>

namespace {

using namespace ogive;

template <class T>
struct operands {
  tensor<T, 4> q, k, v, o;

  operands(index_t queries, index_t keys, index_t query_heads, index_t heads, index_t d, index_t value_dim = 0)
      : q({1, queries, query_heads, d}),
        k({1, keys, heads, d}),
        v({1, keys, heads, value_dim > 0 ? value_dim : d}),
        o({1, queries, query_heads, v.extent(3)}) {
    testing::rng random(1);
    testing::fill_uniform(random, q.all(), 0.0, 1.0);
    testing::fill_uniform(random, k.all(), 0.0, 1.0);
    testing::fill_uniform(random, v.all());
  }
  template <class Map = maps::identity>
  noncausal_linear_attention<T, Map> linear() const {
    return {.q = q, .k = k, .v = v};
  }
};

/// Flops, a multiply-add being two; the state or the scores alone, no map and no normaliser.
double right_flops(index_t n, index_t heads, index_t K, index_t V) {
  return 4.0 * static_cast<double>(n * heads * K * V);
}
double right_flops(index_t n, index_t heads, index_t d) { return right_flops(n, heads, d, d); }
double left_flops(index_t n, index_t heads, index_t d) { return 4.0 * static_cast<double>(n * n * heads * d); }
double causal_flops(index_t n, index_t heads, index_t d) { return 2.0 * static_cast<double>(n * (n + 1) * heads * d); }

/// Runs `call(context)` with `workers` threads; with two it also says how much faster that is than one.
template <class T, class Call>
void run(benchmark::State& state, int workers, double flops, const Call& call) {
  context serial;
  context threads = workers > 1 ? openmp_context(workers) : context();
  call(threads);
  const auto seconds = bench::iterate(state, workers, [&] { call(threads); });
  bench::report_limit(state, seconds, flops / (bench::fma_peak<T>() * workers));
  if (workers == 1) return;
  const auto [alone, together] = bench::stopwatch(workers).least(
      0.1, [&] { call(serial); }, [&] { call(threads); });
  state.counters["speedup"] = alone / together;
}

template <class T, class Map, form Form>
void linear(benchmark::State& state, int workers) {
  const index_t H = state.range(0), n = state.range(1), d = state.range(2);
  operands<T> x(n, n, H, H, d);
  const auto op = x.template linear<Map>();
  run<accum_t<T>>(state, workers, Form == form::left ? left_flops(n, H, d) : right_flops(n, H, d),
                  [&](context& ctx) { forward(op, {}, x.o, {.form = Form}, ctx); });
}

/// The right product at the shape of Mamba-2: keys of one width, values of another.
void mamba2_shape(benchmark::State& state, int workers) {
  constexpr index_t H = 24, n = 2048, K = 128, V = 64;
  operands<float> x(n, n, H, H, K, V);
  const auto op = x.linear();
  run<float>(state, workers, right_flops(n, H, K, V),
             [&](context& ctx) { forward(op, {}, x.o, {.form = form::right}, ctx); });
}

template <class T>
void softmax(benchmark::State& state, bool causal, int workers) {
  const index_t H = state.range(0), n = state.range(1), d = state.range(2);
  operands<T> x(n, n, H, H, d);
  const softmax_attention<T> op{.q = x.q, .k = x.k, .v = x.v, .causal = causal};
  run<accum_t<T>>(state, workers, causal ? causal_flops(n, H, d) : left_flops(n, H, d),
                  [&](context& ctx) { forward(op, x.o, {}, ctx); });
}

/// One new token against a cache of n keys and values per head; `group` query heads read each of them.
template <class T>
void decode(benchmark::State& state) {
  const index_t H = state.range(0), group = state.range(1), n = state.range(2), d = state.range(3);
  operands<T> x(1, n, H * group, H, d);
  const softmax_attention<T> op{.q = x.q, .k = x.k, .v = x.v, .causal = true, .position = n - 1};
  const double seconds = bench::iterate(state, 1, [&] { forward(op, x.o); });
  const index_t bytes = 2 * n * H * d * static_cast<index_t>(sizeof(T));
  bench::report_limit(state, seconds, static_cast<double>(bytes) / bench::read_bandwidth(bytes));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * bytes);
}

/// `forward` against the better of the two forms it chooses from, all three measured in turn.
void choice(benchmark::State& state) {
  const index_t H = state.range(0), n = state.range(1), d = state.range(2);
  operands<float> x(n, n, H, H, d);
  const auto op = x.linear();
  double least[3] = {1e30, 1e30, 1e30};
  for (int turn = 0; turn < 5; ++turn) {
    for (const form how : {form::automatic, form::left, form::right}) {
      double& seconds = least[static_cast<std::size_t>(how)];
      seconds = std::min(seconds, bench::least_seconds([&] { forward(op, {}, x.o, {.form = how}); }, 0.01));
    }
  }
  const auto seconds = bench::iterate(state, 1, [&] { forward(op, {}, x.o); });
  bench::report_limit(state, seconds, std::min(left_flops(n, H, d), right_flops(n, H, d)) / bench::fma_peak<float>());
  state.counters["of_best_form"] = least[0] / std::min(least[1], least[2]);
}

void add(const char* name, void (*bench)(benchmark::State&), const std::vector<std::string>& letters,
         const std::vector<std::vector<int64_t>>& shapes, bool threads = false) {
  auto* all = benchmark::RegisterBenchmark(name, bench)->ArgNames(letters)->ArgsProduct(shapes);
  if (threads) all->UseRealTime();
}

[[maybe_unused]] const bool added = [] {
  using State = benchmark::State;
  using maps::elu1;
  using maps::identity;
  constexpr auto right = form::right, left = form::left;
  const std::vector<std::string> shape{"H", "n", "d"};
  add("right_product/f32", [](State& s) { linear<float, identity, right>(s, 1); }, shape,
      {{16}, {512, 2048}, {64, 128}});
  add("right_product/f32/elu1", [](State& s) { linear<float, elu1, right>(s, 1); }, shape, {{16}, {2048}, {64, 128}});
  add("right_product/bf16", [](State& s) { linear<bfloat16, identity, right>(s, 1); }, shape,
      {{16}, {2048}, {64, 128}});
  add("right_product/f64", [](State& s) { linear<double, identity, right>(s, 1); }, shape, {{16}, {2048}, {64}});
  add(
      "right_product/f32/threads:2", [](State& s) { linear<float, identity, right>(s, 2); }, shape,
      {{16}, {2048}, {64, 128}}, true);
  benchmark::RegisterBenchmark("right_product/f32/H:24/n:2048/K:128/V:64", [](State& s) { mamba2_shape(s, 1); });
  benchmark::RegisterBenchmark("right_product/f32/threads:2/H:24/n:2048/K:128/V:64", [](State& s) {
    mamba2_shape(s, 2);
  })->UseRealTime();
  add("left_product/f32", [](State& s) { linear<float, identity, left>(s, 1); }, shape, {{16}, {512, 2048}, {64, 128}});
  add(
      "left_product/f32/threads:2", [](State& s) { linear<float, identity, left>(s, 2); }, shape,
      {{16}, {512}, {64, 128}}, true);
  add("softmax/f32", [](State& s) { softmax<float>(s, false, 1); }, shape, {{16}, {512, 2048}, {64, 128}});
  add("softmax/f32/causal", [](State& s) { softmax<float>(s, true, 1); }, shape, {{16}, {512, 2048}, {64, 128}});
  add(
      "softmax/f32/causal/threads:2", [](State& s) { softmax<float>(s, true, 2); }, shape, {{16}, {512}, {64, 128}},
      true);
  const std::vector<std::string> cache{"H", "group", "n", "d"};
  add("softmax/f32/decode", decode<float>, cache, {{8}, {1, 4}, {256, 4096, 16384}, {128}});
  add("softmax/bf16/decode", decode<bfloat16>, cache, {{8}, {4}, {4096}, {128}});
  add("forward/f32", choice, shape, {{8}, {16, 32, 64, 128, 256}, {64}});
  add("forward/f32", choice, shape, {{8}, {32, 64, 128, 256, 512}, {128}});
  return true;
}();

}  // namespace

BENCHMARK_MAIN();

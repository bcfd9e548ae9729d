// Operators of the matrix engine against what binds them: SSD and causal linear attention, whole sequences against the
// peak of fused multiply-adds on their own flop count (4·K·V per token and head), a step against the rate at which a
// state of this size can be updated in place.
#include <ogive/core/openmp.hpp>
#include <ogive/maps/elementwise.hpp>
#include <ogive/ops/linear_attention.hpp>
#include <ogive/ops/ssd.hpp>
#include <ogive/testing/rng.hpp>

#include <bench/clock.hpp>
#include <bench/limits.hpp>
#include <string>

namespace {

using namespace ogive;

/// x ← a x + b, four vectors at a time.
OGIVE_NOINLINE void update(float* x, index_t n) {
  using batch = simd::batch<float>;
  constexpr index_t width = simd::width<float>;
  const batch a(0.5F), b(1.0F);
  for (index_t i = 0; i + 4 * width <= n; i += 4 * width) {
    for (index_t lane = 0; lane < 4; ++lane) {
      float* at = x + i + lane * width;
      simd::store(at, simd::fma(simd::load(at), a, b));
    }
  }
}

/// Seconds of updating `bytes` of memory in place, again and again: it stays in the cache that holds it.
double seconds_of_update(index_t bytes) {
  const index_t n = bytes / static_cast<index_t>(sizeof(float));
  tensor<float, 1> x({n});
  const index_t repeats = std::max<index_t>(1, (index_t{1} << 20) / bytes);
  const auto all = [&] {
    for (index_t r = 0; r < repeats; ++r) {
      update(x.data(), n);
      benchmark::DoNotOptimize(x.data());
    }
  };
  return bench::least_seconds(all) / static_cast<double>(repeats);
}

/// A shape of the matrix engine: `heads` states of key_dim × value_dim, `length` tokens.
struct extents {
  index_t heads, key_dim, value_dim, length;

  double flops() const { return 4 * static_cast<double>(key_dim * value_dim) * static_cast<double>(heads * length); }
  index_t state_bytes() const { return heads * key_dim * value_dim * static_cast<index_t>(sizeof(float)); }
};

/// SSD with one group of B and C, as Mamba-2 has it.
template <class T>
class ssd_problem {
 public:
  explicit ssd_problem(const extents& n)
      : x_({1, n.length, n.heads, n.value_dim}),
        y_({1, n.length, n.heads, n.value_dim}),
        dt_({1, n.length, n.heads}),
        A_({n.heads}),
        B_({1, n.length, 1, n.key_dim}),
        C_({1, n.length, 1, n.key_dim}) {
    testing::rng random(1);
    for (auto* tokens : {&x_, &B_, &C_}) testing::fill_normal(random, tokens->all());
    testing::fill_uniform(random, dt_.all(), 0.001, 0.1);
    testing::fill_uniform(random, A_.all(), -16, -1);
  }
  ssd<T> op() const { return {.x = x_, .dt = dt_, .A = A_, .B = B_, .C = C_}; }
  view<T, 4> out() { return y_; }

 private:
  tensor<T, 4> x_, y_;
  tensor<float, 3> dt_;
  tensor<float, 1> A_;
  tensor<T, 4> B_, C_;
};

/// Normalised linear attention through elu + 1.
template <class T>
class linear_attention_problem {
 public:
  explicit linear_attention_problem(const extents& n)
      : q_({1, n.length, n.heads, n.key_dim}), k_(q_), v_({1, n.length, n.heads, n.value_dim}), o_(v_) {
    testing::rng random(1);
    for (auto* tokens : {&q_, &k_, &v_}) testing::fill_normal(random, tokens->all());
  }
  linear_attention<T, maps::elu1> op() const { return {.q = q_, .k = k_, .v = v_}; }
  view<T, 4> out() { return o_; }

 private:
  tensor<T, 4> q_, k_, v_, o_;
};

enum class verb { recurrent, chunked, left, forward };

template <class Op, class Out>
void run(verb which, const Op& op, const Out& out, context& ctx) {
  switch (which) {
    case verb::recurrent:
      return recurrent(op, {}, out, {}, ctx);
    case verb::chunked:
      return chunked(op, {}, out, {.chunk = 32}, ctx);
    case verb::left:
      return forward(op, {}, out, {.form = form::left}, ctx);
    case verb::forward:
      return forward(op, {}, out, {}, ctx);
  }
}

/// A whole sequence. With several threads, `speedup` says how much sooner they are done than one; `forward` with one
/// thread says how much longer it takes than the best of the forms, `to_best`.
template <class Problem>
void sequence(benchmark::State& state, const extents& n, verb which, int threads) {
  Problem problem(n);
  const auto op = problem.op();
  context ctx = threads == 1 ? context() : openmp_context(threads);
  const double seconds = bench::iterate(state, threads, [&] { run(which, op, problem.out(), ctx); });
  bench::report_limit(state, seconds, n.flops() / bench::fma_peak<float>() / threads);
  state.SetItemsProcessed(state.iterations() * n.length);
  const bench::stopwatch watch(threads);
  if (threads > 1) {
    context alone;
    const auto [one, all] = watch.least(
        0.1, [&] { run(which, op, problem.out(), alone); }, [&] { run(which, op, problem.out(), ctx); });
    state.counters["speedup"] = one / all;
  }
  if (which != verb::forward || threads > 1) return;

  const auto call = [&](verb form) { return [&, form] { run(form, op, problem.out(), ctx); }; };
  const auto [chosen, stepped, in_chunks] =
      watch.least(0.1, call(verb::forward), call(verb::recurrent), call(verb::chunked));
  double best = std::min(stepped, in_chunks);
  if (check(op, {}, problem.out(), {.form = form::left})) best = std::min(best, watch.least(0.1, call(verb::left))[0]);
  state.counters["to_best"] = chosen / best;
}

enum class order { k_first, v_first };

/// One token, the state in place. V-first also says how much longer it takes than K-first, `to_k_first`.
template <class Problem>
void one_step(benchmark::State& state, const extents& n, order which) {
  Problem problem(n);
  const auto op = problem.op();
  tensor<float, 4> k_first = make_state<float>(1, n.heads, n.key_dim, n.value_dim);
  tensor<float, 4> v_first = make_state<float>(1, n.heads, n.value_dim, n.key_dim);
  tensor<float, 3> z({1, n.heads, n.key_dim});
  context ctx;
  const auto call = [&](order stored) {
    const view<float, 4> S = stored == order::k_first ? k_first.all() : from_v_first(v_first.all());
    if constexpr (requires { op.normalise; }) {
      const linear_attention_state<float> held{.initial = S, .final = S, .z_initial = z, .z_final = z};
      step(op, held, problem.out(), {}, ctx);
    } else {
      step(op, S, problem.out(), {}, ctx);
    }
  };
  const double seconds = bench::iterate(state, 1, [&] { call(which); });
  const double limit = std::max(seconds_of_update(n.state_bytes()), n.flops() / bench::fma_peak<float>());
  bench::report_limit(state, seconds, limit);
  state.SetItemsProcessed(state.iterations());
  if (which == order::k_first) return;
  const auto [rows_of_v, rows_of_k] = bench::stopwatch(1).least(
      0.1, [&] { call(order::k_first); }, [&] { call(order::v_first); });
  state.counters["to_k_first"] = rows_of_k / rows_of_v;
}

template <class Problem>
void add_sequence(const std::string& shape, const extents& n, const std::string& form, verb which, int threads = 1) {
  const std::string name = shape + "_L" + std::to_string(n.length) + '/' + form +
                           (threads == 1 ? "" : '/' + std::to_string(threads) + "_threads");
  auto* added = benchmark::RegisterBenchmark(name.c_str(), sequence<Problem>, n, which, threads);
  if (threads > 1) added->UseRealTime();
}

template <class Problem>
void add_steps(const std::string& shape, const extents& n) {
  benchmark::RegisterBenchmark((shape + "_L1/step/k_first").c_str(), one_step<Problem>, n, order::k_first);
  benchmark::RegisterBenchmark((shape + "_L1/step/v_first").c_str(), one_step<Problem>, n, order::v_first);
}

const bool registered = [] {
  const extents mamba2{.heads = 24, .key_dim = 128, .value_dim = 64, .length = 2048};
  const std::string mamba2_name = "H24_P64_N128";
  add_sequence<ssd_problem<float>>("ssd/f32/" + mamba2_name, mamba2, "chunked", verb::chunked);
  add_sequence<ssd_problem<float>>("ssd/f32/" + mamba2_name, mamba2, "recurrent", verb::recurrent);
  add_sequence<ssd_problem<float>>("ssd/f32/" + mamba2_name, mamba2, "chunked", verb::chunked, 2);
  add_sequence<ssd_problem<bfloat16>>("ssd/bf16/" + mamba2_name, mamba2, "chunked", verb::chunked);
  for (const index_t length : {4, 16, 64, 256, 2048}) {
    extents n = mamba2;
    n.length = length;
    add_sequence<ssd_problem<float>>("ssd/f32/" + mamba2_name, n, "forward", verb::forward);
  }
  add_sequence<ssd_problem<float>>("ssd/f32/" + mamba2_name, mamba2, "forward", verb::forward, 2);
  add_steps<ssd_problem<float>>("ssd/f32/" + mamba2_name, {24, 128, 64, 1});

  for (const index_t d : {64, 128}) {
    using problem = linear_attention_problem<float>;
    const std::string shape = "linear_attention/f32/H16_d" + std::to_string(d);
    const extents whole{.heads = 16, .key_dim = d, .value_dim = d, .length = 2048};
    add_sequence<problem>(shape, whole, "chunked", verb::chunked);
    add_sequence<problem>(shape, whole, "recurrent", verb::recurrent);
    add_sequence<problem>(shape, whole, "left", verb::left);
    add_sequence<problem>(shape, whole, "chunked", verb::chunked, 2);
    for (const index_t length : {4, 16, 64, 256, 2048}) {
      extents n = whole;
      n.length = length;
      add_sequence<problem>(shape, n, "forward", verb::forward);
    }
    add_sequence<problem>(shape, whole, "forward", verb::forward, 2);
    add_steps<problem>(shape, {16, d, d, 1});
  }
  return true;
}();

}  // namespace

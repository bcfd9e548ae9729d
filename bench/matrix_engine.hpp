// Operators of the matrix engine against what binds them: whole sequences against the peak of fused multiply-adds on
// their own flop count, a step against the rate at which a state of this size can be updated in place.
#pragma once

#include <ogive/core/openmp.hpp>
#include <ogive/engine/verbs.hpp>

#include <bench/clock.hpp>
#include <bench/limits.hpp>
#include <string>

namespace ogive::bench {

/// x ← a x + b, four vectors at a time.
OGIVE_NOINLINE inline void update(float* x, index_t n) {
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
inline double seconds_of_update(index_t bytes) {
  const index_t n = bytes / static_cast<index_t>(sizeof(float));
  tensor<float, 1> x({n});
  const index_t repeats = std::max<index_t>(1, (index_t{1} << 24) / bytes);  // many for one reading of a clock
  const auto all = [&] {
    for (index_t r = 0; r < repeats; ++r) {
      update(x.data(), n);
      benchmark::DoNotOptimize(x.data());
    }
  };
  return least_seconds(all) / static_cast<double>(repeats);
}

/// A shape of the matrix engine: `heads` states of key_dim × value_dim, `length` tokens, and the multiply-adds that an
/// operator needs per element of the state and token.
struct extents {
  index_t heads, key_dim, value_dim, length;
  int multiply_adds = 2;

  double flops() const {
    return 2.0 * multiply_adds * static_cast<double>(key_dim * value_dim) * static_cast<double>(heads * length);
  }
  index_t state_bytes() const { return heads * key_dim * value_dim * static_cast<index_t>(sizeof(float)); }
};

enum class verb { recurrent, chunked, left, forward };

template <class Op, class Out>
void run(verb which, const Op& op, const Out& out, context& ctx) {
  switch (which) {
    case verb::recurrent:
      return recurrent(op, {}, out, {}, ctx);
    case verb::chunked:
      return chunked(op, {}, out, {}, ctx);
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
  const iteration seconds = iterate(state, threads, [&] { run(which, op, problem.out(), ctx); });
  report_limit(state, seconds, n.flops() / fma_peak<float>() / threads);
  state.SetItemsProcessed(state.iterations() * n.length);
  const stopwatch watch(threads);
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

/// A long sequence in segments of time. `to_whole` is how much longer one thread takes than without segments, `speedup`
/// how much sooner several threads are done than one that has none.
template <class Problem>
void scan(benchmark::State& state, const extents& n, int threads) {
  Problem problem(n);
  const auto op = problem.op();
  context ctx = threads == 1 ? context() : openmp_context(threads), alone;
  const auto split = [&] { chunked(op, {}, problem.out(), {.chunk = 32, .time_split = 4096}, ctx); };
  const auto seconds = iterate(state, threads, split);
  report_limit(state, seconds, n.flops() / fma_peak<float>() / threads);
  state.SetItemsProcessed(state.iterations() * n.length);
  const auto [whole, in_segments] = stopwatch(threads).least(
      0.3, [&] { chunked(op, {}, problem.out(), {.chunk = 32}, alone); }, split);
  state.counters[threads == 1 ? "to_whole" : "speedup"] = threads == 1 ? in_segments / whole : whole / in_segments;
}

/// Gradients of everything, from cotangents of the outputs. The limit is that of the products with the state: two in
/// the first sweep and the reverse, of which an additive write has 5, a corrected one 8, a low-rank one 11;
/// `to_forward` says how much longer they take than `forward`. With checkpoints, which the forward leaves before the
/// clock runs, there is no first sweep; `to_backward` says what they leave of the time without, `kept` how much longer
/// the forward takes that leaves them.
template <class Problem>
void reverse(benchmark::State& state, const extents& n, int threads, bool from_checkpoints = false) {
  Problem problem(n);
  const auto op = problem.op();
  const auto d = problem.gradients();
  const view<const float, 4> d_o = problem.cotangents();
  context ctx = threads == 1 ? context() : openmp_context(threads);
  checkpoints kept;
  const auto back = [&](context& how) {
    if (!from_checkpoints) return backward(op, {}, d_o, {}, d, {}, how);
    backward(op, {}, d_o, {}, d, {}, how, kept);
  };
  if (from_checkpoints) forward(op, {}, problem.out(), {}, ctx, kept);
  back(ctx);  // scratch has its pages before the clock runs: hundreds of MB, which a new process gets slowly
  const iteration seconds = iterate(state, threads, [&] { back(ctx); });
  const int products = n.multiply_adds == 2 ? 5 : n.multiply_adds == 3 ? 8 : 11;
  report_limit(state, seconds, n.flops() * products / n.multiply_adds / fma_peak<float>() / threads);
  state.SetItemsProcessed(state.iterations() * n.length);
  const stopwatch watch(threads);
  if (threads > 1) {
    context alone;
    const auto [one, all] = watch.least(
        0.1, [&] { back(alone); }, [&] { back(ctx); });
    state.counters["speedup"] = one / all;
  } else {
    const auto [there, again] = watch.least(
        0.1, [&] { forward(op, {}, problem.out(), {}, ctx); }, [&] { back(ctx); });
    state.counters["to_forward"] = again / there;
    if (!from_checkpoints) return;
    const auto [keeping, without] = watch.least(
        0.1, [&] { forward(op, {}, problem.out(), {}, ctx, kept); }, [&] { backward(op, {}, d_o, {}, d, {}, ctx); });
    state.counters["kept"] = keeping / there;
    state.counters["to_backward"] = again / without;
  }
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
  iterate(state, 1, [&] { call(which); });
  const double seconds = stopwatch(1).least(0.05, [&] { call(which); })[0];  // the least, as the limit is
  const double limit = std::max(seconds_of_update(n.state_bytes()), n.flops() / fma_peak<float>());
  report_limit(state, seconds, limit);
  state.SetItemsProcessed(state.iterations());
  if (which == order::k_first) return;
  const auto [rows_of_v, rows_of_k] = stopwatch(1).least(
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
void add_scan(const std::string& shape, const extents& n) {
  const std::string name = shape + "_L" + std::to_string(n.length) + "/chunked/time_split";
  benchmark::RegisterBenchmark(name.c_str(), scan<Problem>, n, 1);
  benchmark::RegisterBenchmark((name + "/2_threads").c_str(), scan<Problem>, n, 2)->UseRealTime();
}

template <class Problem>
void add_backward(const std::string& shape, const extents& n) {
  const std::string name = shape + "_L" + std::to_string(n.length) + "/backward";
  benchmark::RegisterBenchmark(name.c_str(), reverse<Problem>, n, 1, false);
  benchmark::RegisterBenchmark((name + "_with_checkpoints").c_str(), reverse<Problem>, n, 1, true);
  benchmark::RegisterBenchmark((name + "/2_threads").c_str(), reverse<Problem>, n, 2, false)->UseRealTime();
}

template <class Problem>
void add_steps(const std::string& shape, const extents& n) {
  benchmark::RegisterBenchmark((shape + "_L1/step/k_first").c_str(), one_step<Problem>, n, order::k_first);
  benchmark::RegisterBenchmark((shape + "_L1/step/v_first").c_str(), one_step<Problem>, n, order::v_first);
}

}  // namespace ogive::bench

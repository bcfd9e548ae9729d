#include <ogive/core/openmp.hpp>
#include <ogive/maps/elementwise.hpp>
#include <ogive/ops/linear_attention.hpp>
#include <ogive/ops/softmax_attention.hpp>
#include <ogive/testing/rng.hpp>

#include <bench/clock.hpp>
#include <bench/crossover/measures.hpp>

namespace ogive::crossover {

namespace {

/// Rows [at, at + 1) of a cache take in the newest token.
void append(const view<const float, 4>& token, const view<float, 4>& cache, index_t at) {
  std::copy_n(token.data(), token.size(), cache.pointer(0, at, 0, 0));
}

}  // namespace

/// A model with a cache appends k and v of the token and attends to all n; a model with a state folds them in. Neither
/// moves what it holds from call to call, so that the newest token is written to the same row over and over.
decoding_table time_decoding(const settings& how, progress& shown) {
  decoding_table table{.heads = 4, .d = 64};
  const index_t H = table.heads, d = table.d;
  constexpr index_t first = 256, last = 65536;
  testing::rng random(how.seed);
  tensor<float, 4> q({1, 1, H, d}), k({1, 1, H, d}), v({1, 1, H, d}), o({1, 1, H, d});
  for (auto* x : {&q, &k, &v}) testing::fill_normal(random, x->all());
  tensor<float, 4> keys({1, last, H, d}), values({1, last, H, d});
  for (auto* cache : {&keys, &values}) {
    testing::fill_normal(random, cache->all().slice(1, 0, first));
    for (index_t at = first; at < last; at += first) {
      std::copy_n(cache->data(), first * H * d, cache->data() + at * H * d);
    }
  }

  tensor<float, 4> S = make_state<float>(1, H, d, d);
  tensor<float, 3> z({1, H, d});
  const linear_attention_state<float> state{.initial = S, .final = S, .z_initial = z, .z_final = z};
  const linear_attention<float, maps::elu1> linear{.q = q, .k = k, .v = v};

  context ctx = how.threads == 1 ? context() : openmp_context(how.threads);
  const bench::stopwatch watch(how.threads);
  for (index_t n = first; n <= last; n *= 2) {
    shown.step("decoding", "n = " + std::to_string(n), side_share(how.brief));
    const auto cached = [&](tensor<float, 4>& cache) { return cache.all().slice(1, 0, n); };
    const softmax_attention<float> softmax{.q = q, .k = cached(keys), .v = cached(values)};
    const auto [with_cache, with_state] = watch.least(
        side_share(how.brief),
        [&] {
          append(k, keys, n - 1);
          append(v, values, n - 1);
          forward(softmax, o.all(), {}, ctx);
        },
        [&] { step(linear, state, o.all(), {}, ctx); });
    const double row = static_cast<double>(H * (d + d)) * sizeof(float);  // k and v of a token
    const double held = static_cast<double>(H * (d * d + d)) * sizeof(float);
    table.rows.push_back({.n = n,
                          .softmax_seconds = with_cache,
                          .softmax_bytes = row * static_cast<double>(n + 1),  // all are read, one is written
                          .state_seconds = with_state,
                          .state_bytes = 2 * held});  // read and written
  }
  return table;
}

}  // namespace ogive::crossover

// What the laws do not draw: long sequences, every small size, what stands in keys that do not count, slots, and the
// cases that users of such libraries met.
#include <ogive/testing/laws.hpp>
#include <ogive/testing/samplers/noncausal_linear_attention.hpp>

#include "tests/catch.hpp"

using namespace ogive;
using namespace ogive::testing;

namespace {

constexpr form both_forms[] = {form::left, form::right};

template <class T>
struct sample {
  using op_type = noncausal_linear_attention<T>;

  rng random;
  memory room{};
  std::vector<std::int32_t> lengths{};
  op_type op{};

  sample(std::uint64_t seed, index_t B, index_t L, index_t S, index_t D, index_t V, const head_counts& heads_of)
      : random(seed) {
    op.normalise = coin(random);
    op.q = draw_uniform<T>(random, room, shape<4>{B, L, heads_of.queries, D}, op.normalise ? 0.1 : -1);
    op.k = draw_uniform<T>(random, room, shape<4>{B, S, heads_of.keys, D}, op.normalise ? 0.1 : -1);
    op.v = draw_uniform<T>(random, room, shape<4>{B, S, heads_of.values, V});
    if (coin(random)) op.scale = static_cast<accum_t<T>>(random.uniform(0.1, 2));
    op.eps_at = static_cast<eps_placement>(random.integer(0, 3));
    op.head_map = coin(random) ? heads::tiled : heads::consecutive;
  }
  static sample drawn(std::uint64_t seed) {
    rng sizes(seed);
    const index_t B = sizes.integer(1, 3), L = sizes.integer(1, 300), S = sizes.integer(1, 300);
    const index_t D = odd_extent(sizes, 33), V = odd_extent(sizes, 65);
    sample one(seed + 1, B, L, S, D, V, draw_heads(sizes));
    if (coin(sizes)) one.mask();
    if (coin(sizes)) one.shorten();
    return one;
  }

  void mask() {
    const auto keep = room.take<bool>(shape<2>{op.k.extent(0), op.k.extent(1)});
    for_each(keep, [&](bool& x, index_t) { x = random.integer(0, 3) > 0; });
    op.key_mask = keep;
  }
  void shorten() {
    for (index_t b = 0; b < op.k.extent(0); ++b) {
      lengths.push_back(static_cast<std::int32_t>(random.integer(0, op.k.extent(1))));
    }
    op.lengths = lengths;
  }
  bool counts(index_t b, index_t j) const {
    return (!op.key_mask.present() || op.key_mask(b, j)) && (!op.lengths.present() || j < op.lengths.at(b));
  }
  /// Writes x into every key and value that does not count.
  void poison(double x) {
    for (index_t b = 0; b < op.k.extent(0); ++b) {
      for (index_t j = 0; j < op.k.extent(1); ++j) {
        if (counts(b, j)) continue;
        for_each(op.k[b][j], [&](const T& at, index_t) { const_cast<T&>(at) = static_cast<T>(x); });
        for_each(op.v[b][j], [&](const T& at, index_t) { const_cast<T&>(at) = static_cast<T>(x); });
      }
    }
  }
  shape<4> output() const {
    return {op.q.extent(0), op.q.extent(1), std::max(op.q.extent(2), op.v.extent(2)), op.v.extent(3)};
  }
  view<T, 4> run(form how, context& ctx = default_context()) {
    const auto o = room.template take<T>(output());
    forward(op, {}, o, {.form = how}, ctx);
    return o;
  }
};

/// The operator in double; `magnitudes`: of the terms of its sums.
template <class T>
noncausal_linear_attention<double> wide(const noncausal_linear_attention<T>& op, memory& room, bool magnitudes) {
  noncausal_linear_attention<double> w;
  w.q = room.copy<double>(op.q);
  w.k = room.copy<double>(op.k);
  w.v = room.copy<double>(op.v);
  if (magnitudes) {
    w.q = absolute(room, w.q);
    w.k = absolute(room, w.k);
    w.v = absolute(room, w.v);
  }
  w.normalise = op.normalise;
  if (op.scale) w.scale = static_cast<double>(*op.scale);
  w.eps = static_cast<double>(op.eps);
  w.eps_at = op.eps_at;
  w.key_mask = op.key_mask;
  w.lengths = op.lengths;
  w.head_map = op.head_map;
  return w;
}

/// Twice (numerator and denominator) the sums over keys and features, and a few for the quotient.
template <class T>
double bound_of(const noncausal_linear_attention<T>& op) {
  return tolerance<accum_t<T>>(2 * (op.k.extent(1) + op.k.extent(3) + 4)) + unit_roundoff<T>();
}

template <class Sample>
std::string against_definition(Sample& one, form how) {
  memory room;
  const auto expected = room.take<double>(one.output());
  const auto size = room.take<double>(one.output());
  reference::evaluate<long double>(wide(one.op, room, false), linear_attention_state<double>{}, expected);
  reference::evaluate<double>(wide(one.op, room, true), linear_attention_state<double>{}, size);
  return testing::excess(one.run(how), expected, size, bound_of(one.op));
}

}  // namespace

TEMPLATE_TEST_CASE("sequences of several blocks", "", float, double, bfloat16, float16) {
  OGIVE_SEED(seed, 20);
  for (std::uint64_t i = 0; i < 30; ++i) {
    auto one = sample<TestType>::drawn(seed + 100 * i);
    for (const form how : both_forms) {
      INFO("draw " << i << ", form " << static_cast<int>(how));
      CHECK(against_definition(one, how) == "");
    }
  }
}

TEST_CASE("many heads, several to a task") {
  OGIVE_SEED(seed, 21);
  for (const head_counts& heads_of : {head_counts{16, 16, 16}, {32, 4, 16}, {4, 8, 64}}) {
    sample<float> one(seed, 1, 70, 130, 8, 12, heads_of);
    one.mask();
    for (const form how : both_forms) CHECK(against_definition(one, how) == "");
  }
}

TEMPLATE_TEST_CASE("a large output, which goes past the caches, has the bits of a small one", "", float, double) {
  const index_t L = 1100, V = 128;  // two rows of the batch are larger than the second-level cache, one is not
  for (const bool normalise : {false, true}) {
    sample<TestType> one(50 + normalise, 2, L, 33, 32, V, {.queries = 4, .keys = 4, .values = 4});
    one.op.normalise = normalise;
    one.op.eps_at = eps_placement::sum;
    const index_t H = std::is_same_v<TestType, double> ? 2 : 4;
    for (auto* x : {&one.op.q, &one.op.k, &one.op.v}) *x = x->slice(2, 0, H);
    tensor<TestType, 4> large({2, L, H, V}), small({1, L, H, V});
    forward(one.op, {}, large, {.form = form::right});
    for (index_t b = 0; b < 2; ++b) {
      noncausal_linear_attention<TestType> row = one.op;
      for (auto* x : {&row.q, &row.k, &row.v}) *x = x->slice(0, b, 1);
      forward(row, {}, small, {.form = form::right});
      index_t others = 0;
      for_each(small.all(), [&](TestType& x, index_t i) { others += x != large.data()[b * L * H * V + i]; });
      CHECK(others == 0);
    }
  }
}

TEST_CASE("every small size") {
  OGIVE_SEED(seed, 22);
  for (const index_t L : {1, 2, 3, 5, 7}) {
    for (const index_t S : {1, 2, 7}) {
      for (const index_t D : {1, 2, 3, 5, 16, 17, 100}) {
        for (const index_t V : {1, 3, 5, 8, 12}) {
          for (const index_t H : {1, 3}) {
            sample<float> one(seed, 1, L, S, D, V, {H, H, H});
            for (const form how : both_forms) {
              INFO("L " << L << ", S " << S << ", D " << D << ", V " << V << ", H " << H);
              CHECK(against_definition(one, how) == "");
            }
          }
        }
      }
    }
  }
}

TEMPLATE_TEST_CASE("what does not count never reaches an output", "", float, double, bfloat16) {
  OGIVE_SEED(seed, 23);
  for (std::uint64_t i = 0; i < 10; ++i) {
    auto one = sample<TestType>::drawn(seed + 100 * i);
    one.mask();
    if (!one.op.lengths.present()) one.shorten();
    for (const form how : both_forms) {
      one.poison(0);
      const auto clean = one.run(how);
      one.poison(std::numeric_limits<double>::quiet_NaN());
      CHECK(testing::difference(one.run(how), clean) == "");
      one.poison(std::numeric_limits<double>::infinity());
      CHECK(testing::difference(one.run(how), clean) == "");
    }
  }
}

TEST_CASE("one row of keys for the whole batch") {
  OGIVE_SEED(seed, 24);
  for (std::uint64_t i = 0; i < 5; ++i) {
    auto one = sample<float>::drawn(seed + 100 * i);
    one.op.k = {one.op.k.data(), one.op.k.extents(), {0, one.op.k.stride(1), one.op.k.stride(2), one.op.k.stride(3)}};
    for (const form how : both_forms) {
      const auto shared = one.run(how);
      auto copied = one;
      copied.op.k = copied.room.copy(one.op.k);
      CHECK(testing::difference(shared, copied.run(how)) == "");
    }
  }
}

TEMPLATE_TEST_CASE("states in slots, in place and V-first", "", float, double, bfloat16) {
  OGIVE_SEED(seed, 26);
  using S = TestType;
  for (std::uint64_t i = 0; i < 12; ++i) {
    auto one = sample<float>::drawn(seed + 100 * i);
    const index_t B = one.op.q.extent(0), H = one.op.v.extent(2), K = one.op.k.extent(3), V = one.op.v.extent(3);
    memory pools(i % 2 == 0 ? layout::dense : layout::turned);
    const auto pool = draw_uniform<S>(one.random, pools, shape<4>{B + 2, H, K, V});
    const auto z_pool = draw_uniform<S>(one.random, pools, shape<3>{B + 2, H, K}, 0.5, 2);
    std::vector<std::int32_t> from, to;
    for (index_t b = 0; b < B; ++b) {
      from.push_back(static_cast<std::int32_t>(b == 0 && coin(one.random) ? -1 : b + 1));
      to.push_back(static_cast<std::int32_t>(b + 1));
    }
    linear_attention_state<double> expected{.initial = pools.template copy<double>(pool),
                                            .final = pools.template copy<double>(pool),
                                            .z_initial = pools.template copy<double>(z_pool),
                                            .z_final = pools.template copy<double>(z_pool),
                                            .initial_slots = from,
                                            .final_slots = to};
    auto size = expected;
    size.initial = absolute(pools, size.initial);
    size.final = absolute(pools, view<const double, 4>(size.final));
    size.z_final = pools.copy(size.z_final);
    memory room;
    const auto o_expected = room.take<double>(one.output()), o_size = room.take<double>(one.output());
    reference::evaluate<long double>(wide(one.op, room, false), expected, o_expected);
    reference::evaluate<double>(wide(one.op, room, true), size, o_size);

    for (const form how : {form::left, form::right, form::automatic}) {
      INFO("draw " << i << ", form " << static_cast<int>(how));
      linear_attention_state<S> st{.initial = pools.copy(pool),
                                   .final = pools.copy(pool),
                                   .z_initial = pools.copy(z_pool),
                                   .z_final = pools.copy(z_pool),
                                   .initial_slots = from,
                                   .final_slots = to};
      if (i % 3 == 0) {
        st.initial = st.final;
        st.z_initial = st.z_final;
      }
      const auto o = room.take<float>(one.output());
      forward(one.op, st, o, {.form = how});
      const double bound = bound_of(one.op), stored = bound + unit_roundoff<S>();
      CHECK(testing::excess(o, o_expected, o_size, bound) == "");
      CHECK(testing::excess(st.final, expected.final, size.final, stored) == "");
      CHECK(testing::excess(st.z_final, expected.z_final, size.z_final, stored) == "");
    }
  }
}

TEST_CASE("a plain pool is a state in place") {
  const tensor<float, 4> q({1, 2, 1, 1}, 1.0F), v({1, 2, 1, 1}, 3.0F);
  tensor<float, 4> o({1, 2, 1, 1}), pool({1, 1, 1, 1}, 5.0F);
  const noncausal_linear_attention<float> op{.q = q, .k = q, .v = v, .normalise = false, .scale = 1.0F};
  forward(op, pool, o);
  CHECK(o(0, 0, 0, 0) == 11.0F);
  CHECK(pool(0, 0, 0, 0) == 11.0F);
}

TEMPLATE_TEST_CASE("the normaliser where features vanish", "", float, double) {
  using T = TestType;
  const index_t L = 4;
  tensor<T, 4> q({1, L, 1, 1}), k({1, L, 1, 1}), v({1, L, 1, 1}), o({1, L, 1, 1});
  noncausal_linear_attention<T, maps::elu1> op{.q = q, .k = k, .v = v};
  if constexpr (std::is_same_v<T, double>) {
    for (T& x : q.flat()) x = -60;
    for (T& x : k.flat()) x = -60;
    for (index_t t = 0; t < L; ++t) v(0, t, 0, 0) = static_cast<T>(t + 1);
    op.eps = 0;
    for (const form how : both_forms) {
      forward(op, {}, o, {.form = how});
      for (const T x : o.flat()) CHECK_THAT(x, tests::WithinRel(2.5, tolerance<T>(32)));
    }
  }
  for (T& x : v.flat()) x = T(7);
  const auto phi = [](double x) { return x < 0 ? std::exp(x) : x + 1; };
  for (const int q_value : {-200, -60, -1, 0, 1, 60, 200}) {
    for (const int k_value : {-200, -60, -1, 0, 1, 60, 200}) {
      for (const T eps : {T(0), T(1e-6)}) {
        for (T& x : q.flat()) x = static_cast<T>(q_value);
        for (T& x : k.flat()) x = static_cast<T>(k_value);
        op.eps = eps;
        const double least = static_cast<double>(std::numeric_limits<T>::min());
        const double sum = L * phi(q_value) * phi(k_value), under = sum + static_cast<double>(eps);
        const double expected = under < least ? 0 : 7 * sum / under;
        for (const form how : both_forms) {
          forward(op, {}, o, {.form = how});
          INFO("q " << q_value << ", k " << k_value << ", eps " << eps);
          // A numerator below the smallest normal number may count as 0.
          const double allowed = tolerance<T>(64) * expected + (eps > 0 ? 8 * least / static_cast<double>(eps) : 0);
          for (const T x : o.flat()) CHECK(std::fabs(static_cast<double>(x) - expected) <= allowed);
        }
      }
    }
  }
}

TEST_CASE("sequences without tokens") {
  const tensor<float, 4> some({2, 3, 1, 4}, 1.0F);
  const view<const float, 4> none(some.data(), {2, 0, 1, 4});
  tensor<float, 4> o({2, 3, 1, 4}, 9.0F);
  for (const form how : both_forms) {
    forward(noncausal_linear_attention<float>{.q = some, .k = none, .v = none}, {}, o, {.form = how});
    for (const float x : o.flat()) CHECK(x == 0.0F);
    forward(noncausal_linear_attention<float>{.q = none, .k = some, .v = some}, {},
            view<float, 4>(o.data(), {2, 0, 1, 4}), {.form = how});
  }
  tensor<float, 4> S({2, 1, 4, 4}, 9.0F);
  forward(noncausal_linear_attention<float>{.q = none, .k = none, .v = none, .normalise = false},
          state<float>{.final = S}, {});
  for (const float x : S.flat()) CHECK(x == 0.0F);
}

TEST_CASE("forward takes the cheaper form") {
  rng random(27);
  const auto taken = [&](index_t n, index_t d) {
    memory room;
    const shape<4> all{1, n, 1, d};
    const noncausal_linear_attention<float> op{.q = draw_uniform<float>(random, room, all),
                                               .k = draw_uniform<float>(random, room, all),
                                               .v = draw_uniform<float>(random, room, all),
                                               .normalise = false};
    const auto chosen = room.take<float>(all), left = room.take<float>(all), right = room.take<float>(all);
    forward(op, {}, chosen);
    forward(op, {}, left, {.form = form::left});
    forward(op, {}, right, {.form = form::right});
    REQUIRE(testing::difference(left, right) != "");
    return testing::difference(chosen, left) == "" ? form::left : form::right;
  };
  CHECK(taken(16, 128) == form::left);
  CHECK(taken(1000, 32) == form::right);
}

TEST_CASE("noncausal linear attention refuses what does not fit") {
  const tensor<float, 4> q({2, 5, 4, 3}), k({2, 7, 2, 3}), v({2, 7, 4, 6});
  tensor<float, 4> o({2, 5, 4, 6}, 1.0F);
  const noncausal_linear_attention<float> fits{.q = q, .k = k, .v = v};
  CHECK(check(fits, {}, o));
  const auto refused = [&](auto op, const char* words, auto st, view<float, 4> out, options how = {}) {
    const status answer = check(op, st, out, how);
    INFO(answer.text());
    CHECK_FALSE(answer);
    CHECK(std::string(answer.text()).find(words) != std::string::npos);
    CHECK(std::string(answer.text()).find("noncausal_linear_attention") != std::string::npos);
    CHECK_THROWS_AS(forward(op, st, out, how), std::invalid_argument);
  };
  const linear_attention_state<float> none;
  auto op = fits;
  op.q = {};
  refused(op, "q is absent", none, o);
  op = fits;
  op.k = tensor<float, 4>({2, 7, 2, 4});
  refused(op, "k has shape [2, 7, 2, 4]", none, o);
  op = fits;
  op.v = tensor<float, 4>({2, 6, 4, 6});
  refused(op, "v has shape [2, 6, 4, 6]", none, o);
  op.v = tensor<float, 4>({2, 7, 3, 6});
  refused(op, "Hk (heads of k)", none, o);
  op.k = tensor<float, 4>({2, 7, 3, 3});
  refused(op, "H (heads of v)", none, o);
  op = fits;
  op.key_mask = tensor<bool, 2>({2, 5});
  refused(op, "key_mask has shape [2, 5]", none, o);
  op = fits;
  const std::vector<std::int32_t> lengths{3};
  op.lengths = lengths;
  refused(op, "lengths", none, o);
  refused(fits, "o has shape", none, tensor<float, 4>({2, 5, 4, 5}));
  refused(fits, "o of shape", none, view<float, 4>(o.data(), {2, 5, 4, 6}, {0, 24, 6, 1}));
  refused(fits, "form", none, o, {.form = form::chunked});
  refused(fits, "chunk", none, o, {.chunk = -1});
  tensor<float, 4> S({2, 4, 3, 6}), wrong({2, 4, 3, 5});
  refused(fits, "z_final", state<float>{.final = S}, o);
  tensor<float, 3> z({2, 4, 3});
  op = fits;
  op.normalise = false;
  refused(op, "z_final", linear_attention_state<float>{.z_final = z}, o);
  refused(fits, "final has shape [2, 4, 3, 5]", state<float>{.final = wrong}, o);
  for (const float x : o.flat()) CHECK(x == 1.0F);
}

TEST_CASE("no state is kept on the way where there is no order") {
  tensor<float, 4> x({1, 3, 1, 2}, 1.0F), o({1, 3, 1, 2}), pool({4, 1, 2, 2});
  const noncausal_linear_attention<float> op{.q = x, .k = x, .v = x};
  const linear_attention_state<float> st{.snapshots = pool};
  const status asked = check(op, st, o);
  CHECK(!asked);
  CHECK(std::string(asked.text()).find("snapshots") != std::string::npos);
}

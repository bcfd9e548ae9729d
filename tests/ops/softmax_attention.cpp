#include <ogive/ops/softmax_attention.hpp>
#include <ogive/reference/softmax_attention.hpp>
#include <ogive/testing/laws.hpp>

#include "tests/catch.hpp"

using namespace ogive;
using namespace ogive::testing;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

template <class T>
struct sample {
  rng random;
  memory room{};
  std::vector<std::int32_t> lengths{};
  softmax_attention<T> op{};

  sample(std::uint64_t seed, const shape<4>& q, index_t S, index_t H, index_t V, double size = 1) : random(seed) {
    op.q = draw_uniform<T>(random, room, q, -size, size);
    op.k = draw_uniform<T>(random, room, shape<4>{q[0], S, H, q[3]}, -size, size);
    op.v = draw_uniform<T>(random, room, shape<4>{q[0], S, H, V});
  }
  static sample drawn(std::uint64_t seed, double size = 1) {
    rng sizes(seed);
    const index_t B = sizes.integer(1, 2), H = sizes.integer(1, 3), S = sizes.integer(1, 300);
    const index_t L = sizes.integer(0, 2) == 0 ? sizes.integer(1, 4) : sizes.integer(1, 300);
    sample one(seed + 1, {B, L, H * sizes.integer(1, 4), odd_extent(sizes, 65)}, S, H, odd_extent(sizes, 100), size);
    one.op.causal = coin(sizes);
    if (coin(sizes)) one.op.position = sizes.integer(0, S);
    if (coin(sizes)) one.op.window = sizes.integer(1, S + 3);
    if (coin(sizes)) one.op.scale = static_cast<accum_t<T>>(sizes.uniform(-1, 2));
    if (coin(sizes)) {
      for (index_t b = 0; b < B; ++b) one.lengths.push_back(static_cast<std::int32_t>(sizes.integer(0, S)));
      one.op.lengths = one.lengths;
    }
    return one;
  }

  shape<4> output() const { return {op.q.extent(0), op.q.extent(1), op.q.extent(2), op.v.extent(3)}; }
  view<T, 4> run(context& ctx = default_context()) {
    const auto o = room.template take<T>(output());
    forward(op, o, {}, ctx);
    return o;
  }
};

/// One row, element by element. Logits are wrong by their own dot product's roundings; a weight by twice as much, and
/// by a few units for its exponential; the sums over the keys add one unit per key.
template <class T>
std::string against_definition(sample<T>& one) {
  memory room;
  const auto take_logits = [&] {
    return room.take<double>(shape<3>{one.output()[0], one.output()[1], one.output()[2]});
  };
  softmax_attention<double> wide;
  wide.q = room.copy<double>(one.op.q);
  wide.k = room.copy<double>(one.op.k);
  wide.v = room.copy<double>(one.op.v);
  wide.causal = one.op.causal;
  wide.position = one.op.position;
  wide.window = one.op.window;
  if (one.op.scale) wide.scale = static_cast<double>(*one.op.scale);
  wide.lengths = one.op.lengths;
  wide.max_logits = take_logits();
  const auto expected = room.take<double>(one.output());
  reference::evaluate<long double>(wide, expected);

  auto terms = wide;
  terms.q = absolute(room, wide.q);
  terms.k = absolute(room, wide.k);
  terms.v = absolute(room, wide.v);
  if (wide.scale) terms.scale = std::fabs(*wide.scale);
  terms.max_logits = take_logits();
  reference::evaluate<double>(terms, room.take<double>(one.output()));

  const auto logits = room.template take<accum_t<T>>(wide.max_logits.extents());
  one.op.max_logits = logits;
  const auto got = one.run();
  one.op.max_logits = {};

  const index_t D = wide.q.extent(3), S = wide.k.extent(1);
  const double largest = max_abs(wide.v);
  std::ostringstream found;
  for (index_t b = 0; b < got.extent(0); ++b) {
    for (index_t i = 0; i < got.extent(1); ++i) {
      for (index_t h = 0; h < got.extent(2); ++h) {
        const index_t at = i + wide.position;
        const index_t first = wide.window > 0 ? std::max<index_t>(0, at - wide.window + 1) : 0;
        index_t last = wide.lengths.present() ? std::min(S, wide.lengths.at(b)) : S;
        if (wide.causal) last = std::min(last, at + 1);
        const double logit_error = first < last ? tolerance<accum_t<T>>(D + 2) * terms.max_logits(b, i, h) : 0;
        const double allowed =
            (2 * logit_error + tolerance<accum_t<T>>(S + 16) + unit_roundoff<T>()) * (first < last ? largest : 0);
        for (index_t c = 0; c < got.extent(3); ++c) {
          const double x = static_cast<double>(static_cast<accum_t<T>>(got(b, i, h, c)));
          if (std::fabs(x - expected(b, i, h, c)) <= allowed) continue;
          found << "o(" << b << ", " << i << ", " << h << ", " << c << ") is " << x << ", expected "
                << expected(b, i, h, c) << " within " << allowed;
          return found.str();
        }
        const double logit = static_cast<double>(logits(b, i, h));
        if (first < last ? std::fabs(logit - wide.max_logits(b, i, h)) <= logit_error : logit == -infinity) continue;
        found << "max_logits(" << b << ", " << i << ", " << h << ") is " << logit << ", expected "
              << wide.max_logits(b, i, h) << " within " << logit_error;
        return found.str();
      }
    }
  }
  return {};
}

}  // namespace

TEMPLATE_TEST_CASE("softmax attention is its definition", "", float, double, bfloat16, float16) {
  OGIVE_SEED(seed, 40);
  for (std::uint64_t i = 0; i < 60; ++i) {
    auto one = sample<TestType>::drawn(seed + 100 * i);
    INFO("draw " << i);
    CHECK(against_definition(one) == "");
  }
}

TEMPLATE_TEST_CASE("softmax attention with logits of many thousands", "", float, double) {
  OGIVE_SEED(seed, 41);
  for (std::uint64_t i = 0; i < 20; ++i) {
    auto one = sample<TestType>::drawn(seed + 100 * i, 100);
    INFO("draw " << i);
    CHECK(against_definition(one) == "");
  }
}

TEST_CASE("softmax attention of every small size") {
  OGIVE_SEED(seed, 42);
  for (const index_t L : {1, 2, 3, 5, 7}) {
    for (const index_t S : {1, 2, 7}) {
      for (const index_t D : {1, 3, 16, 17, 100}) {
        for (const index_t V : {1, 3, 5, 8, 12}) {
          for (const index_t readers : {1, 3}) {
            for (const bool causal : {false, true}) {
              sample<float> one(seed, {1, L, 2 * readers, D}, S, 2, V);
              one.op.causal = causal;
              INFO("L " << L << ", S " << S << ", D " << D << ", V " << V << ", readers " << readers);
              CHECK(against_definition(one) == "");
            }
          }
        }
      }
    }
  }
}

TEST_CASE("keys that no row sees never reach an output") {
  OGIVE_SEED(seed, 43);
  for (std::uint64_t i = 0; i < 20; ++i) {
    auto one = sample<float>::drawn(seed + 100 * i);
    const index_t B = one.op.q.extent(0), L = one.op.q.extent(1), S = one.op.k.extent(1);
    one.op.causal = true;
    one.op.window = one.random.integer(1, S + 3);
    // A row and a key it does not see: what stands there is not its business.
    const auto clean = one.run();
    for (const double poison : {not_a_number, infinity}) {
      const index_t key = one.random.integer(0, S - 1);
      auto poisoned = one;
      poisoned.op.k = poisoned.room.copy(one.op.k);
      poisoned.op.v = poisoned.room.copy(one.op.v);
      for (index_t b = 0; b < B; ++b) {
        for (const auto& x : {poisoned.op.k, poisoned.op.v}) {
          for_each(x[b][key], [&](const float& at, index_t) { const_cast<float&>(at) = static_cast<float>(poison); });
        }
      }
      const auto o = poisoned.run();
      for (index_t b = 0; b < B; ++b) {
        for (index_t t = 0; t < L; ++t) {
          const index_t at = t + one.op.position;
          const bool real = !one.op.lengths.present() || key < one.op.lengths.at(b);
          if (real && key <= at && key > at - one.op.window) continue;
          INFO("draw " << i << ", row " << t << ", key " << key);
          CHECK(testing::difference(o[b][t], clean[b][t]) == "");
        }
      }
    }
  }
}

TEMPLATE_TEST_CASE("strides change no bit of softmax attention", "", float, double, bfloat16) {
  OGIVE_SEED(seed, 44);
  for (std::uint64_t i = 0; i < 6; ++i) {
    auto one = sample<TestType>::drawn(seed + 100 * i);
    const auto dense = one.run();
    for (const layout where : all_layouts) {
      memory other(where);
      auto moved = one.op;
      moved.q = other.copy(one.op.q);
      moved.k = other.copy(one.op.k);
      moved.v = other.copy(one.op.v);
      const auto o = other.template take<TestType>(one.output());
      forward(moved, o);
      INFO("draw " << i << ", layout " << static_cast<int>(where));
      CHECK(testing::difference(o, dense) == "");
      CHECK(other.gaps_untouched());
    }
  }
}

TEST_CASE("threads change no bit of softmax attention") {
  OGIVE_SEED(seed, 45);
  for (std::uint64_t i = 0; i < 8; ++i) {
    auto one = sample<float>::drawn(seed + 100 * i);
    const auto alone = one.run();
    for (const int workers : {2, 3, 8}) {
      thread_pool pool;
      context forked = context::fork_join(pool, workers);
      CHECK(testing::difference(one.run(forked), alone) == "");
    }
  }
}

TEST_CASE("decoding with a cache is the last row of the whole") {
  OGIVE_SEED(seed, 46);
  const index_t L = 100, held = 130;
  sample<float> one(seed, {1, L, 6, 33}, L, 2, 20);
  one.op.causal = true;
  const auto whole = one.run();
  memory room;
  const auto k = room.take<float>(shape<4>{1, held, 2, 33}), v = room.take<float>(shape<4>{1, held, 2, 20});  // NaN
  for (index_t t = 0; t < L; ++t) {
    memory::assign(k.slice(1, t, 1), one.op.k.slice(1, t, 1));
    memory::assign(v.slice(1, t, 1), one.op.v.slice(1, t, 1));
    auto step = one.op;
    step.q = one.op.q.slice(1, t, 1);
    step.k = k;
    step.v = v;
    step.position = t;
    const auto o = room.take<float>(shape<4>{1, 1, 6, 20});
    forward(step, o);
    const double bound = 2 * tolerance<float>(L + 2 * 33 + 32);
    CHECK(compare(view<const float, 4>(o), view<const float, 4>(whole.slice(1, t, 1)), bound, {.scale = 1}));
  }
}

TEMPLATE_TEST_CASE("logits of minus infinity", "", float, double) {
  using T = TestType;
  for (const index_t rows : {1, 9}) {
    tensor<T, 4> q({1, rows, 1, 2}, T(1)), k({1, 3, 1, 2}, T(0)), v({1, 3, 1, 1}), o({1, rows, 1, 1});
    for (index_t j = 0; j < 3; ++j) v(0, j, 0, 0) = static_cast<T>(j + 1);
    k(0, 1, 0, 0) = static_cast<T>(-infinity);
    forward(softmax_attention<T>{.q = q, .k = k, .v = v}, o);
    for (const T x : o.flat()) CHECK(x == T(2));
    for (index_t j = 0; j < 3; ++j) k(0, j, 0, 0) = static_cast<T>(-infinity);
    forward(softmax_attention<T>{.q = q, .k = k, .v = v}, o);
    for (const T x : o.flat()) CHECK(x == T(0));
  }
}

TEST_CASE("rows that see no key are zero") {
  for (const index_t rows : {1, 9}) {
    const tensor<float, 4> q({2, rows, 2, 4}, 1.0F), k({2, 5, 1, 4}, 1.0F);
    tensor<float, 4> o({2, rows, 2, 4}, 9.0F);
    tensor<float, 3> logits({2, rows, 2});
    const std::vector<std::int64_t> lengths{0, 5};
    softmax_attention<float> op{.q = q, .k = k, .v = k, .lengths = lengths, .max_logits = logits};
    forward(op, o);
    for (index_t i = 0; i < rows; ++i) {
      CHECK(o(0, i, 1, 3) == 0.0F);
      CHECK(o(1, i, 1, 3) == 1.0F);
      CHECK(logits(0, i, 1) == -static_cast<float>(infinity));
      CHECK(logits(1, i, 1) == 2.0F);
    }
    op.k = op.v = view<const float, 4>(k.data(), {2, 0, 1, 4});
    op.lengths = {};
    forward(op, o);
    for (const float x : o.flat()) CHECK(x == 0.0F);
  }
  const tensor<float, 4> some({1, 5, 1, 4});
  const view<const float, 4> none(some.data(), {1, 0, 1, 4});
  forward(softmax_attention<float>{.q = none, .k = some, .v = some}, view<float, 4>(nullptr, {1, 0, 1, 4}));
}

TEST_CASE("softmax attention refuses what does not fit") {
  const tensor<float, 4> q({2, 5, 4, 3}), k({2, 7, 2, 3}), v({2, 7, 2, 6});
  tensor<float, 4> o({2, 5, 4, 6}, 1.0F);
  const softmax_attention<float> fits{.q = q, .k = k, .v = v};
  CHECK(check(fits, o));
  const auto refused = [&](const softmax_attention<float>& op, const char* words, view<float, 4> out,
                           const options& how = {}) {
    const status answer = check(op, out, how);
    INFO(answer.text());
    CHECK_FALSE(answer);
    CHECK(std::string(answer.text()).find(words) != std::string::npos);
    CHECK(std::string(answer.text()).find("softmax_attention") != std::string::npos);
    CHECK_THROWS_AS(forward(op, out, how), std::invalid_argument);
  };
  auto op = fits;
  op.v = {};
  refused(op, "v is absent", o);
  op = fits;
  op.k = tensor<float, 4>({2, 7, 2, 4});
  refused(op, "k has shape [2, 7, 2, 4]", o);
  op = fits;
  op.k = tensor<float, 4>({2, 7, 3, 3});
  op.v = tensor<float, 4>({2, 7, 3, 6});
  refused(op, "H (heads of k)", o);
  op = fits;
  op.window = -1;
  refused(op, "window", o);
  op = fits;
  op.position = -1;
  refused(op, "position", o);
  op = fits;
  const std::vector<std::int32_t> lengths{3, -1};
  op.lengths = lengths;
  refused(op, "lengths", o);
  op = fits;
  tensor<float, 3> logits({2, 5, 2});
  op.max_logits = logits;
  refused(op, "max_logits", o);
  refused(fits, "o has shape", tensor<float, 4>({2, 5, 4, 5}));
  refused(fits, "o of shape", view<float, 4>(o.data(), {2, 5, 4, 6}, {0, 24, 6, 1}));
  refused(fits, "form", o, {.form = form::right});
  for (const float x : o.flat()) CHECK(x == 1.0F);
}

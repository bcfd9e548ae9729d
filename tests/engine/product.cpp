#include <ogive/engine/product_binding.hpp>
#include <ogive/testing/laws.hpp>
#include <ogive/testing/samplers/linear_attention.hpp>

#include "tests/catch.hpp"

using namespace ogive;
using namespace ogive::testing;

namespace {

/// Causal linear attention as a left product.
template <class T>
struct causal_sample {
  using op_type = linear_attention<T>;

  rng random;
  memory room{};
  std::vector<std::int32_t> offsets{}, lengths{};
  op_type op;
  linear_attention_state<accum_t<T>> st{};

  explicit causal_sample(std::uint64_t seed) : random(seed) {
    const bool packed = coin(random);
    op = sampler<op_type>::draw(random, room, packed ? 1 : 2, random.integer(1, 300));
    const index_t L = op.q.extent(1);
    if (packed) {
      offsets = {0, static_cast<std::int32_t>(random.integer(0, L)), static_cast<std::int32_t>(random.integer(0, L)),
                 static_cast<std::int32_t>(L)};
      std::sort(offsets.begin(), offsets.end());
      op.offsets = offsets;
    }
    const index_t sequences = packed ? 3 : 2;
    for (index_t s = 0; s < sequences; ++s) lengths.push_back(static_cast<std::int32_t>(random.integer(0, L)));
    if (coin(random)) op.lengths = lengths;
    if (coin(random)) {
      const shape<3> slot = sampler<op_type>::slot(op);
      st.initial = draw_uniform<accum_t<T>>(random, room, shape<4>{sequences, slot[0], slot[1], slot[2]});
      st.z_initial = draw_uniform<accum_t<T>>(random, room, shape<3>{sequences, slot[0], slot[1]}, 0.5, 2);
    }
  }

  view<T, 4> run(context& ctx = default_context()) {
    const auto o = room.take<T>(sampler<op_type>::output(op));
    const ogive::detail::product_binding<op_type, decltype(st), accum_t<T>> bound{op, st, o};
    const auto p = bound.problem();
    ctx.reserve(static_cast<std::size_t>(ctx.workers()) * ogive::detail::left_product_bytes(p));
    ogive::detail::left_product(p, ctx);
    return o;
  }
  /// Writes x over every token from t on.
  void poison(index_t t, T x) {
    for (const view<const T, 4>& field : {op.q, op.k, op.v}) {
      for_each(field.slice(1, t, field.extent(1) - t), [&](const T& at, index_t) { const_cast<T&>(at) = x; });
    }
  }
  std::string against_definition() {
    const auto expected = room.take<double>(sampler<op_type>::output(op));
    const auto size = room.take<double>(sampler<op_type>::output(op));
    linear_attention_state<double> wide{.initial = room.copy<double>(st.initial),
                                        .z_initial = room.copy<double>(st.z_initial)};
    sampler<op_type>::template define<long double>(op, wide, expected);
    if (wide.initial.present()) wide.initial = absolute(room, wide.initial);
    const auto terms = sampler<op_type>::absolute(op, room);
    reference::evaluate<double>(terms, wide, size);
    return testing::excess(run(), expected, size,
                                   tolerance<accum_t<T>>(sampler<op_type>::roundings(op)) + unit_roundoff<T>());
  }
};

}  // namespace

TEMPLATE_TEST_CASE("the causal left product is causal linear attention", "", float, double, bfloat16) {
  OGIVE_SEED(seed, 30);
  for (std::uint64_t i = 0; i < 40; ++i) {
    INFO("draw " << i);
    CHECK(causal_sample<TestType>(seed + i).against_definition() == "");
  }
}

TEST_CASE("the future stays out of the causal left product, NaN and infinity included") {
  OGIVE_SEED(seed, 31);
  for (std::uint64_t i = 0; i < 20; ++i) {
    causal_sample<float> one(seed + i);
    one.op.offsets = {};
    one.op.lengths = {};
    one.st = {};
    const index_t L = one.op.q.extent(1), t = one.random.integer(0, L - 1);
    const auto clean = one.run();
    for (const double poison : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      one.poison(t, static_cast<float>(poison));
      CHECK(testing::difference(one.run().slice(1, 0, t), clean.slice(1, 0, t)) == "");
    }
  }
}

TEST_CASE("packed sequences get the bits they have alone") {
  OGIVE_SEED(seed, 32);
  for (std::uint64_t i = 0; i < 20; ++i) {
    causal_sample<float> one(seed + i);
    if (!one.op.offsets.present()) continue;
    one.op.lengths = {};
    one.st = {};
    const auto together = one.run();
    const auto packed = one.op;
    for (std::size_t s = 0; s + 1 < one.offsets.size(); ++s) {
      const index_t begin = one.offsets[s], count = one.offsets[s + 1] - begin;
      one.op = packed;
      one.op.offsets = {};
      for_fields(one.op, sampler<linear_attention<float>>::tokens, [&](auto& x) {
        if (x.present()) x = x.slice(1, begin, count);
      });
      CHECK(testing::difference(one.run(), together.slice(1, begin, count)) == "");
    }
  }
}

TEST_CASE("threads change no bit of the left product") {
  OGIVE_SEED(seed, 33);
  for (std::uint64_t i = 0; i < 10; ++i) {
    causal_sample<float> one(seed + i);
    const auto alone = one.run();
    for (const int workers : {2, 3, 8}) {
      thread_pool pool;
      context forked = context::fork_join(pool, workers);
      CHECK(testing::difference(one.run(forked), alone) == "");
    }
  }
}

TEST_CASE("scratch of the products does not grow with the sequence") {
  const auto bytes = [](index_t length) {
    ogive::detail::product_problem<float> p{};
    p.batch = p.query_heads = p.key_heads = p.heads = 1;
    p.queries = p.keys = length;
    p.key_dim = p.value_dim = 64;
    return std::pair(ogive::detail::left_product_bytes(p), ogive::detail::right_product_bytes(p));
  };
  CHECK(bytes(1000) == bytes(1000000));
}

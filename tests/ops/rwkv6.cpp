#include <ogive/testing/samplers/gated.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEST_CASE("RWKV-6 keeps the laws") {
  OGIVE_SEED(seed, 110);
  tests::check_laws<rwkv6<float>>(seed);
}

TEMPLATE_TEST_CASE("RWKV-6 in another type", "", double, bfloat16) {
  OGIVE_SEED(seed, 111);
  tests::check_law(testing::law_of_states<rwkv6<TestType>, accum_t<TestType>>(), seed);
}

TEMPLATE_TEST_CASE("RWKV-6 without a bonus: a token does not see its own key, NaN included", "", float, double) {
  OGIVE_SEED(seed, 112);
  testing::rng random(seed);
  testing::memory room;
  constexpr index_t L = 37, H = 2, K = 24, V = 19;
  const auto draw = [&](index_t columns) {
    return testing::draw_uniform<TestType>(random, room, shape<4>{1, L, H, columns});
  };
  rwkv6<TestType> op{.r = draw(K), .k = draw(K), .v = draw(V)};
  const auto w = room.copy(draw(K));
  testing::for_each(w, [](TestType& g, index_t) { g = -std::abs(g); });
  op.w = w;
  const index_t cut = random.integer(0, L - 1);
  tensor<TestType, 4> o({1, L, H, V});
  const auto seen = [&](const options& how) {
    forward(op, {}, o, how);
    return testing::flatten(view<const TestType, 4>(o).slice(1, 0, cut + 1));
  };
  for (const options how : {options{.form = form::recurrent}, options{.form = form::chunked, .chunk = 21}}) {
    const view<const TestType, 4> k = op.k;
    const auto clean = seen(how);
    const auto spoiled = room.copy(k);
    spoiled(0, cut, 0, 5) = spoiled(0, cut, 1, 0) = std::numeric_limits<TestType>::quiet_NaN();
    op.k = spoiled;
    INFO((how.form == form::chunked ? "chunked" : "recurrent") << ", token " << cut);
    CHECK(seen(how) == clean);
    op.k = k;
  }
}

#include <ogive/testing/samplers/causal_convolution.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;
using namespace ogive::testing;

TEST_CASE("Causal convolution keeps the laws") {
  OGIVE_SEED(seed, 402);
  tests::check_laws<causal_convolution<float>>(seed);
}

TEMPLATE_TEST_CASE("Causal convolution in another type", "", double, bfloat16) {
  OGIVE_SEED(seed, 403);
  tests::check_law(law_of_states<causal_convolution<TestType>, accum_t<TestType>>(), seed);
  tests::check_law(law_of_states<causal_convolution<TestType>, TestType>(), seed);
}

TEST_CASE("Causal convolution: no kernel is the skip alone, and nothing is zero") {
  OGIVE_SEED(seed, 404);
  rng random(seed);
  memory room;
  causal_convolution<float> op;
  op.u = draw_uniform<float>(random, room, shape<3>{2, 5, 3});
  op.kernel = room.take<float>(shape<2>{3, 0});
  const auto y = room.take<float>(op.u.extents());
  for (const form way : {form::recurrent, form::convolution}) {
    op.D = {};
    forward(op, {}, y, {.form = way});
    CHECK(max_abs(y) == 0);
    op.D = draw_uniform<float>(random, room, shape<1>{3});
    forward(op, {}, y, {.form = way});
    for_each(y, [&](float got, index_t i) {
      const float right = op.u(i / 15, i / 3 % 5, i % 3) * op.D(i % 3);
      CHECK(std::fabs(got - right) <= tolerance<float>(64, 2));
    });
  }
  op.u = op.u.slice(1, 0, 0);
  forward(op, {}, y.slice(1, 0, 0));
}

TEST_CASE("Causal convolution: a long signal in pieces is the whole, by transforms too") {
  OGIVE_SEED(seed, 405);
  rng random(seed);
  memory room;
  const index_t L = 5000, taps = 700, channels = 5;
  causal_convolution<float> op;
  op.u = draw_uniform<float>(random, room, shape<3>{1, L, channels});
  op.kernel = draw_uniform<float>(random, room, shape<2>{channels, taps});
  const auto whole = room.take<float>(op.u.extents()), pieces = room.take<float>(op.u.extents());
  const auto history = room.take<float>(shape<3>{1, channels, taps - 1});
  for_each(history, [](float& x, index_t) { x = 0; });
  convolution(op, {}, whole);
  for (index_t t = 0, n = 0; t < L; t += n) {
    n = std::min<index_t>(L - t, random.integer(1, 1500));
    causal_convolution<float> part = op;
    part.u = op.u.slice(1, t, n);
    if (coin(random)) {
      convolution(part, history, pieces.slice(1, t, n));
    } else {
      step(part, history, pieces.slice(1, t, n));
    }
  }
  const double bound = tolerance<float>(2 * taps, norm(op.kernel[0]) * norm(op.u.slice(2, 0, 1)));
  for_each(whole, [&](float right, index_t i) { REQUIRE(std::fabs(pieces.data()[i] - right) <= bound); });
}

TEST_CASE("Causal convolution: after reserve nothing is allocated") {
  OGIVE_SEED(seed, 406);
  rng random(seed);
  memory room;
  causal_convolution<float> op;
  op.u = draw_uniform<float>(random, room, shape<3>{1, 3000, 20});
  op.kernel = draw_uniform<float>(random, room, shape<2>{20, 900});
  const auto y = room.take<float>(op.u.extents());
  context ctx;
  reserve(op, {}, ctx);
  const std::size_t room_made = ctx.capacity();
  for (const index_t length : {3000, 2000, 500, 1}) {
    causal_convolution<float> part = op;
    part.u = op.u.slice(1, 0, length);
    convolution(part, {}, y.slice(1, 0, length), {}, ctx);
    recurrent(part, {}, y.slice(1, 0, length), {}, ctx);
  }
  CHECK(ctx.capacity() == room_made);
}

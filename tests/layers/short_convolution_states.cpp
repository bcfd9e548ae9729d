// What only the state of a short convolution promises: any width, the state after each token, rings, refusals.
#include <ogive/layers/short_convolution.hpp>
#include <ogive/reference/short_convolution.hpp>
#include <ogive/testing/trials.hpp>

#include <cstring>

#include "tests/catch.hpp"

using namespace ogive;
using testing::draw_uniform;

namespace {

struct drawn {
  testing::memory room{};
  short_convolution<float> op{};
  view<float, 3> initial{}, y{};
  index_t B, L, D, W, K;

  explicit drawn(std::uint64_t seed, index_t length, testing::layout where = testing::layout::dense)
      : room(where), B(3), L(length), D(37), W(4), K(5) {
    testing::rng random(seed);
    op.x = draw_uniform<float>(random, room, shape<3>{B, L, D});
    op.weight = draw_uniform<float>(random, room, shape<2>{D, W});
    op.activation = activation::silu;
    initial = draw_uniform<float>(random, room, shape<3>{B, D, K});
    y = room.take<float>(op.x.extents());
  }
};

}  // namespace

TEST_CASE("a state of more inputs than the filter sees gives the same outputs, and keeps them all") {
  OGIVE_SEED(seed, 60);
  for (const index_t L : {0, 1, 2, 4, 5, 9, 70}) {
    CAPTURE(L);
    const drawn x(seed, L);
    tensor<float, 3> longer({x.B, x.D, x.K}), exact({x.B, x.D, x.W - 1}), y({x.B, x.L, x.D});
    testing::memory::assign(longer.all(), x.initial);
    testing::memory::assign(exact.all(), x.initial.slice(2, x.K - (x.W - 1), x.W - 1));
    forward(x.op, longer, x.y);
    forward(x.op, exact, y);
    CHECK(testing::flatten(y.all()) == testing::flatten(x.y));
    tensor<float, 3> expected({x.B, x.D, x.K});
    reference::evaluate<float>(x.op, window_state<float>{.initial = x.initial, .final = expected}, view<float, 3>());
    CHECK(testing::flatten(longer.all()) == testing::flatten(expected.all()));
    CHECK(testing::flatten(longer.all().slice(2, x.K - (x.W - 1), x.W - 1)) == testing::flatten(exact.all()));
  }
}

TEST_CASE("the state after each token goes into its slot") {
  OGIVE_SEED(seed, 61);
  const drawn x(seed, 7);
  constexpr index_t slots = 30;
  tensor<float, 3> pool({slots, x.D, x.K}, -1.0F);
  const std::int32_t from[] = {4, 0, 9};
  for (index_t b = 0; b < x.B; ++b) testing::memory::assign(pool.all()[from[b]], x.initial[b]);
  tensor<std::int32_t, 2> slot_of({x.B, x.L}, -1);
  for (index_t b = 0; b < x.B; ++b) {
    for (index_t t = 0; t < x.L; t += 2) slot_of(b, t) = static_cast<std::int32_t>(29 - b * 4 - t / 2);
  }
  const window_state<float> st{.initial = pool, .initial_slots = from, .snapshots = pool, .snapshot_slots = slot_of};
  step(x.op, st, x.y);
  for (index_t t = 0; t < x.L; t += 2) {
    tensor<float, 3> expected({x.B, x.D, x.K});
    short_convolution<float> head = x.op;
    head.x = x.op.x.slice(1, 0, t + 1);
    reference::evaluate<float>(head, window_state<float>{.initial = x.initial, .final = expected}, view<float, 3>());
    for (index_t b = 0; b < x.B; ++b) {
      CHECK(testing::flatten(pool.all()[slot_of(b, t)]) == testing::flatten(expected.all()[b]));
      CHECK(testing::flatten(pool.all()[from[b]]) == testing::flatten(x.initial[b]));
    }
  }
  slot_of(1, 2) = 9;
  CHECK_THROWS_AS(step(x.op, st, x.y), shape_error);  // a slot that is read from
  slot_of(1, 2) = slot_of(0, 0);
  CHECK_THROWS_AS(step(x.op, st, x.y), shape_error);  // a slot written twice
}

TEST_CASE("a ring is stepped in place and keeps what it has where it lies") {
  OGIVE_SEED(seed, 62);
  for (const testing::layout where : {testing::layout::dense, testing::layout::turned}) {
    const drawn x(seed, 12, where);
    const std::int64_t seen[] = {0, 3, 1000001};
    tensor<float, 3> straight({x.B, x.D, x.K}), ring({x.B, x.D, x.K}), kept({x.B, x.D, x.K}), y({x.B, x.L, x.D});
    testing::memory::assign(straight.all(), x.initial);
    for (index_t b = 0; b < x.B; ++b) {
      for (index_t j = 0; j < x.K; ++j) {
        testing::memory::assign(ring.all().slice(0, b, 1).slice(2, (seen[b] + j) % x.K, 1),
                                straight.all().slice(0, b, 1).slice(2, j, 1));
      }
    }
    index_t t = 0;
    for (const index_t count : {1, 2, 1, 5, 3}) {
      short_convolution<float> part = x.op;
      part.x = x.op.x.slice(1, t, count);
      step(part, straight, x.y.slice(1, t, count));
      std::int64_t now[] = {seen[0] + t, seen[1] + t, seen[2] + t};
      part.ring = now;
      std::vector<std::int32_t> after(static_cast<std::size_t>(x.B * count), -1);
      for (index_t b = 0; b < x.B; ++b)
        after[static_cast<std::size_t>((b + 1) * count - 1)] = static_cast<std::int32_t>(b);
      const window_state<float> st{.initial = ring,
                                   .final = ring,
                                   .snapshots = kept,
                                   .snapshot_slots = view<const std::int32_t, 2>(after, {x.B, count})};
      step(part, st, y.all().slice(1, t, count));
      CHECK(testing::flatten(kept.all()) == testing::flatten(ring.all()));
      t += count;
      for (index_t b = 0; b < x.B; ++b) {
        for (index_t j = 0; j < x.K; ++j) {
          CHECK(testing::flatten(ring.all().slice(0, b, 1).slice(2, (seen[b] + t + j) % x.K, 1)) ==
                testing::flatten(straight.all().slice(0, b, 1).slice(2, j, 1)));
        }
      }
    }
    CHECK(testing::flatten(y.all()) == testing::flatten(x.y));
  }
}

TEST_CASE("C48: the state in place, whatever the piece; outputs over inputs are refused") {
  OGIVE_SEED(seed, 64);
  testing::rng random(seed);
  const testing::thread_pool pool;
  for (const index_t D : {1, 3, 8, 17}) {
    for (const index_t L : {1, 2, 3, 5}) {
      CAPTURE(D, L);
      tensor<float, 3> x({2, L, D}), given({2, D, 3}), y({2, L, D}), state({2, D, 3}, std::nanf("")), again({2, L, D});
      tensor<float, 2> weight({D, 4});
      for (float& one : x.flat()) one = static_cast<float>(random.uniform(-1, 1));
      for (float& one : given.flat()) one = static_cast<float>(random.uniform(-1, 1));
      for (index_t d = 0; d < D; ++d) weight(d, 0) = 1, weight(d, 1) = 10, weight(d, 2) = 100, weight(d, 3) = 1000;
      for (index_t d = 0; d < D; ++d) given(0, d, 0) = 7, given(0, d, 1) = 8, given(0, d, 2) = 9, x(0, 0, d) = 1;
      const tensor<float, 3> x_before = x, given_before = given;
      const short_convolution<float> op{.x = x, .weight = weight};
      step(op, {.initial = given, .final = state}, y.all());
      CHECK(testing::flatten(x.all()) == testing::flatten(x_before.all()));
      CHECK(testing::flatten(given.all()) == testing::flatten(given_before.all()));
      for (index_t d = 0; d < D; ++d) {
        CHECK(y(0, 0, d) == 1987);
        if (L == 1) CHECK((state(0, d, 0) == 8 && state(0, d, 1) == 9 && state(0, d, 2) == 1));
      }
      for (const int workers : {1, 8}) {
        context forked = context::fork_join(pool, workers);
        tensor<float, 3> in_place = given_before;
        step(op, in_place, again.all(), {}, forked);
        CHECK(testing::flatten(again.all()) == testing::flatten(y.all()));
        CHECK(testing::flatten(in_place.all()) == testing::flatten(state.all()));
      }
      CHECK_THROWS_AS(step(op, given, x.all()), shape_error);
      CHECK(testing::flatten(given.all()) == testing::flatten(given_before.all()));
    }
  }
}

TEST_CASE("a filter of one tap has nothing to keep") {
  OGIVE_SEED(seed, 63);
  const drawn x(seed, 9);
  short_convolution<float> op = x.op;
  op.weight = x.op.weight.slice(1, 0, 1);
  op.activation = activation::none;
  tensor<float, 3> nothing({x.B, x.D, 0});
  forward(op, nothing, x.y);
  for (index_t d = 0; d < x.D; ++d) CHECK(x.y(2, 8, d) == x.op.x(2, 8, d) * x.op.weight(d, 0));
}

TEST_CASE("a state as it came stays so to the bit, NaN included") {
  const float payload = std::bit_cast<float>(0x7fc12345U);
  tensor<float, 3> x({1, 2, 3}, payload), state({1, 3, 3}, payload), y({1, 2, 3});
  tensor<float, 2> weight({3, 4}, 1.0F);
  forward(short_convolution<float>{.x = x, .weight = weight}, state, y);
  for (const float kept : state.flat()) CHECK(std::bit_cast<std::uint32_t>(kept) == 0x7fc12345U);
}

TEST_CASE("short convolutions that do not fit are refused") {
  const drawn x(1, 4);
  const auto refused = [&](const short_convolution<float>& op, const window_state<float>& st, const char* word) {
    const status asked = check(op, st, x.y);
    CHECK_FALSE(asked);
    CHECK(std::strstr(asked.text(), word) != nullptr);
  };
  short_convolution<float> bad = x.op;
  tensor<float, 2> wide({x.D, 9});
  bad.weight = wide;
  refused(bad, {}, "1 to 8");
  bad = x.op;
  bad.bias = x.op.x[0][0].slice(0, 0, 3);
  refused(bad, {}, "bias");
  refused(x.op, {.initial = x.initial.slice(2, 0, 2)}, "at least the 3 that the layer reaches back to");
  bad = x.op;
  bad.activation = activation::sigmoid;
  refused(bad, {}, "silu");
  const std::int32_t minus[] = {0, -1, 0};
  bad = x.op;
  bad.ring = minus;
  refused(bad, {.initial = x.initial}, "ring");
  typename short_convolution<float>::gradient d;
  d.x = x.y;
  CHECK_FALSE(check_backward(x.op, {}, x.y, {}, d));  // the gradient over its cotangent
  d.x = {};
  CHECK(check_backward(x.op, {}, x.y, {}, d));
}

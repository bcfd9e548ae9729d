// Checkpoints that a forward leaves: gradients are those of a backward that makes its states again.
#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/delta_rules.hpp>
#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/samplers/gated_rfa.hpp>
#include <ogive/testing/samplers/low_rank.hpp>
#include <ogive/testing/samplers/ssd.hpp>

#include "tests/catch.hpp"

using namespace ogive;

namespace {

template <class Op>
struct checkpointed : testing::detail::gradient_trial<Op> {
  using trial = testing::detail::gradient_trial<Op>;
  using trial::c, trial::given, trial::op;
  testing::memory room{};
  checkpoints kept;
  view<float, 4> o;

  checkpointed(std::uint64_t from, index_t interval)
      : trial(from, 150), kept(interval), o(room.take<float>(testing::sampler<Op>::output(op))) {}

  testing::gradients_found<Op> backward_from(context& ctx, const options& how = {}) {
    auto found = testing::detail::run_backward(op, given, c, how);
    testing::detail::for_found(op, found, [](const auto& d) {
      testing::for_each(d, [](const auto& x, index_t) { const_cast<std::remove_cvref_t<decltype(x)>&>(x) = -7; });
    });
    backward(op, given, c.o, found.st, found.d, how, ctx, kept);
    return found;
  }
  std::string gap(const testing::gradients_found<Op>& a, const testing::gradients_found<Op>& b, double bound = 0) {
    return testing::detail::gradient_gap(op, a, b, bound);
  }
};

}  // namespace

TEMPLATE_TEST_CASE("gradients from checkpoints are those without", "", ssd<float>, gla<float>, gated_delta_rule<float>,
                   rwkv7<float>, (linear_attention<float, maps::elu1>), (gated_rfa<float, maps::elu1>)) {
  using Op = TestType;
  OGIVE_SEED(seed, 512);
  for (std::uint64_t s = seed; s < seed + 6; ++s) {
    CAPTURE(s);
    for (const index_t interval : {0, 3, 16}) {
      CAPTURE(interval);
      checkpointed<Op> x(s, interval);
      context ctx;
      forward(x.op, x.given, x.o, {}, ctx, x.kept);
      const auto plain = testing::run<float>({testing::way::kind::forward}, x.op, x.given);
      const auto without = testing::detail::run_backward(x.op, x.given, x.c, {.chunk = interval});
      const double bound = testing::detail::gradient_bound(x.op, testing::detail::largest_gradient(x.op, without));
      const auto numbers = testing::flatten(x.o), expected = testing::flatten(plain.o);
      for (std::size_t i = 0; i < numbers.size(); ++i) REQUIRE(std::fabs(numbers[i] - expected[i]) <= bound);
      const auto with = x.backward_from(ctx);
      CHECK(x.gap(with, without, bound) == "");

      // The same from a state that the forward sweeps in place, and with several workers.
      const testing::thread_pool pool;
      context forked = context::fork_join(pool, 3);
      auto in_place = x.given;
      testing::memory pools;
      testing::for_pools(in_place, [&](auto& initial, auto& final) {
        if (!initial.present()) return;
        final = pools.template copy<float>(initial);
        initial = final;
      });
      forward(x.op, in_place, x.o, {}, forked, x.kept);
      std::swap(x.given, in_place);
      CHECK(x.gap(x.backward_from(forked), with) == "");
      std::swap(x.given, in_place);

      // In the chunks of the backward a forward under one decay for all channels has the same bits.
      if constexpr (std::is_same_v<Op, ssd<float>>) {
        if (interval == 0) continue;
        forward(x.op, x.given, x.o, {.form = form::chunked, .chunk = interval}, ctx, x.kept);
        CHECK(x.gap(x.backward_from(ctx), without) == "");
      }
    }
  }
}

TEST_CASE("gradients from checkpoints that do not fit into the caches") {
  OGIVE_SEED(seed, 515);
  testing::rng random(seed);
  tensor<float, 4> q({1, 1100, 2, 64}), k(q), v(q), g(q), d_o(q), o(q);
  for (auto* x : {&q, &k, &v, &d_o}) testing::fill_normal(random, x->all());
  testing::fill_uniform(random, g.all(), -0.5, 0);
  const gla<float> op{.q = q, .k = k, .v = v, .g = g};
  context ctx;
  tensor<float, 4> own[4], from[4];
  for (auto& d : own) d = tensor<float, 4>(q.extents());
  for (auto& d : from) d = tensor<float, 4>(q.extents());
  backward(op, {}, d_o, {}, {own[0], own[1], own[2], own[3]}, {.chunk = 8}, ctx);
  checkpoints kept(8);
  forward(op, {}, o, {}, ctx, kept);
  REQUIRE(kept.capacity() > (std::size_t{4} << 20));
  backward(op, {}, d_o, {}, {from[0], from[1], from[2], from[3]}, {}, ctx, kept);
  for (int i = 0; i < 4; ++i) {
    const double bound = testing::tolerance<float>(1100, testing::max_abs(own[i].all()));
    CHECK(testing::compare(from[i].all(), own[i].all(), bound));
  }
}

TEST_CASE("sequences that end with an interval, and packed ones that share one, have checkpoints of their own") {
  OGIVE_SEED(seed, 516);
  const std::vector<std::int32_t> offsets{0, 17, 17, 32, 48, 50, 64};
  for (const bool packed : {false, true}) {
    CAPTURE(packed);
    testing::rng random(seed);
    testing::memory room;
    auto op = testing::sampler<gla<float>>::draw(random, room, packed ? 1 : 3, packed ? 64 : 32);
    if (packed) op.offsets = offsets;
    const auto given = testing::draw_state<float>(random, room, op, testing::sequence_count(op));
    const auto c = testing::detail::draw_cotangents(random, room, op);
    const auto o = room.take<float>(testing::sampler<gla<float>>::output(op));
    // The last state of a sequence is kept where the caller wants it, and nowhere else.
    const index_t rows = packed ? 1 : 3, L = packed ? 64 : 32;
    std::vector<std::int32_t> after(static_cast<std::size_t>(rows * L), -1);
    auto st = given;
    st.snapshots = room.take<float>(given.initial.extents());
    st.snapshot_slots = view<const std::int32_t, 2>(after, {rows, L});
    for (std::int32_t s = 0; s < 3; ++s) {
      const index_t end = packed ? offsets[static_cast<std::size_t>(s) + 4] : (s + 1) * L;
      after[static_cast<std::size_t>(end - 1)] = s;
    }
    checkpoints kept(16);
    context ctx;
    forward(op, st, o, {}, ctx, kept);
    const auto without = testing::detail::run_backward(op, given, c, {.chunk = 16});
    const auto with = testing::detail::run_backward(op, given, c, {.chunk = 16});
    testing::detail::for_found(op, with, [](const auto& d) {
      testing::for_each(d, [](const auto& x, index_t) { const_cast<std::remove_cvref_t<decltype(x)>&>(x) = -7; });
    });
    backward(op, given, c.o, with.st, with.d, {}, ctx, kept);
    const double bound = testing::detail::gradient_bound(op, testing::detail::largest_gradient(op, without));
    CHECK(testing::detail::gradient_gap(op, with, without, bound) == "");
  }
}

TEST_CASE("truncated backpropagation goes on from checkpoints of every piece") {
  OGIVE_SEED(seed, 513);
  checkpointed<ssd<float>> x(seed - seed % 3, 16);  // neither padded nor packed
  const index_t L = x.op.x.extent(1), cut = L / 2;
  context ctx;
  testing::memory room;
  x.given = testing::draw_state<float>(x.random, room, x.op, testing::sequence_count(x.op));
  const auto whole = testing::detail::run_backward(x.op, x.given, x.c, {});
  const double bound = testing::detail::gradient_bound(x.op, testing::detail::largest_gradient(x.op, whole));
  const view<float, 4> S = room.copy<float>(x.given.initial);
  const state<float> swept{.initial = S, .final = S};
  checkpoints early, late;
  const auto head = testing::tokens_of(x.op, 0, cut), tail = testing::tokens_of(x.op, cut, L - cut);
  forward(head, swept, x.o.slice(1, 0, cut), {}, ctx, early);
  forward(tail, swept, x.o.slice(1, cut, L - cut), {}, ctx, late);
  const view<float, 4> between = room.take<float>(S.extents()), first = room.take<float>(S.extents());
  backward(tail, swept, x.c.o.slice(1, cut, L - cut), state_gradient<float>{.final = x.c.st.final, .initial = between},
           {}, {}, ctx, late);
  backward(head, swept, x.c.o.slice(1, 0, cut), state_gradient<float>{.final = between, .initial = first}, {}, {}, ctx,
           early);
  const auto got = testing::flatten(first), right = testing::flatten(whole.st.initial);
  for (std::size_t i = 0; i < got.size(); ++i) REQUIRE(std::fabs(got[i] - right[i]) <= bound);
}

TEST_CASE("checkpoints of another call are refused") {
  OGIVE_SEED(seed, 514);
  testing::rng random(seed);
  testing::memory room;
  constexpr index_t L = 40;
  const auto op = testing::sampler<gla<float>>::draw(random, room, 2, L);
  const auto o = room.take<float>(testing::sampler<gla<float>>::output(op));
  checkpoints kept(16);
  context ctx;
  const auto back = [&](const auto& again, const options& how = {}) {
    backward(again, {}, {}, {}, {}, how, ctx, kept);
  };
  CHECK_THROWS_WITH(back(op), tests::ContainsSubstring("are empty"));
  forward(op, {}, o, {}, ctx, kept);
  CHECK_NOTHROW(back(op));
  CHECK_THROWS_WITH(back(op, {.chunk = 8}), tests::ContainsSubstring("tokens of an interval = 16, now 8"));
  const auto shorter = testing::tokens_of(op, 0, L - 1);
  CHECK_THROWS_WITH(back(shorter), tests::ContainsSubstring("L = 40, now 39"));
  CHECK_THROWS_WITH(back(testing::tokens_of(op, 0, 4)), tests::ContainsSubstring("L = 40, now 4"));  // its interval too
  auto padded = op;
  const std::vector<std::int32_t> lengths{L, L - 1};
  padded.lengths = lengths;
  CHECK_THROWS_WITH(back(padded), tests::ContainsSubstring("lengths of 0 entries, now of 2"));
  kda<float> other{.q = op.q, .k = op.k, .v = op.v, .g = op.g};
  other.beta = testing::draw_uniform<float>(random, room, shape<3>{2, L, op.v.extent(2)});
  CHECK_THROWS_AS(back(other), shape_error);
  CHECK_THROWS_WITH(back(other), tests::ContainsSubstring("of gla"));

  forward(padded, {}, o, {}, ctx, kept);
  CHECK_NOTHROW(back(padded));
  const std::vector<std::int64_t> same{L, L - 1}, more{L, L - 2};
  padded.lengths = same;
  CHECK_NOTHROW(back(padded));
  padded.lengths = more;
  CHECK_THROWS_WITH(back(padded), Catch::Matchers::EndsWith("of another call: entry 1 of lengths = 39, now 38"));
  auto packed = testing::tokens_of(op, 0, L);
  testing::for_fields(packed, testing::sampler<gla<float>>::tokens, [](auto& x) { x = x.slice(0, 0, 1); });
  std::vector<std::int32_t> offsets{0, 17, 17, L};
  packed.offsets = offsets;
  forward(packed, {}, o.slice(0, 0, 1), {}, ctx, kept);
  const checkpoints copy = kept;
  CHECK_NOTHROW(back(packed));
  offsets[2] = 20;  // the checkpoints have a list of their own
  CHECK_THROWS_WITH(back(packed), Catch::Matchers::EndsWith("of another call: entry 2 of offsets = 17, now 20"));
  offsets[2] = 17;
  CHECK_NOTHROW(backward(packed, {}, {}, {}, {}, {}, ctx, copy));
  const checkpoints moved = std::move(kept);
  CHECK_NOTHROW(backward(packed, {}, {}, {}, {}, {}, ctx, moved));
  CHECK_THROWS_WITH(back(packed), tests::ContainsSubstring("are empty"));
  checkpoints wrong(-3);
  CHECK_THROWS_WITH(forward(op, {}, o, {}, ctx, wrong),
                    Catch::Matchers::Equals("gla: checkpoints have an interval of -3, must "
                                            "be 0 (automatic) or a number of tokens"));
  CHECK(wrong.capacity() == 0);

  forward(op, {}, o, {}, ctx, kept);
  const std::size_t capacity = kept.capacity();
  forward(shorter, {}, o.slice(1, 0, L - 1), {}, ctx, kept);
  CHECK(kept.capacity() == capacity);
  CHECK_NOTHROW(back(shorter));
}

// The scan over time of the diagonal engine: segments of any length give what the definition says, and the same bits
// whoever sweeps them.
#include <ogive/testing/samplers/hgrn.hpp>
#include <ogive/testing/samplers/selective_scan.hpp>
#include <ogive/testing/trials.hpp>

#include "tests/catch.hpp"
#include "tests/engine/workers.hpp"

using namespace ogive;
using testing::way;

namespace {

/// As drawn; strong and growing; or such that a state lives for many segments.
enum class gates { usual, hard, slow };

/// Runs that are split in time, alone, in pools and in teams: bounds against the definition, else the same bits.
template <class Op>
void check_splits(std::uint64_t seed, gates nature) {
  using S = testing::storage_of<Op>;
  const testing::thread_pool pool;
  testing::for_seeds(seed, 4, [&](std::uint64_t s) {
    const auto variant = s % 3;
    testing::trial<Op> x(s, 1, variant == 2 ? 1 : 0);
    x.op = testing::sampler<Op>::draw(x.random, x.room, testing::sequence_count(x.op), x.random.integer(150, 700));
    if (variant == 1) x.shorten();
    if (variant == 2) x.pack();
    if (nature == gates::hard) testing::sampler<Op>::harden(x.random, x.op);
    if constexpr (requires { x.op.dt; }) {
      if (nature == gates::slow) {
        x.op.dt_softplus = false;
        x.op.dt_bias = {};
        x.op.dt = testing::draw_uniform<typename Op::accum>(x.random, x.room, x.op.dt.extents(), 0, 0.02);
      }
    } else if (nature == gates::slow) {
      x.op.g = testing::draw_uniform<typename Op::accum>(x.random, x.room, x.op.g.extents(), -0.02, 0);
    }
    auto given = testing::draw_state<S>(x.random, x.room, x.op, testing::sequence_count(x.op));
    if (testing::coin(x.random)) given = {};
    const testing::definition<Op> expected(x.op, given);
    for (const index_t split : {index_t{1}, index_t{32}, index_t{57}, x.random.integer(33, 250), index_t{1000}}) {
      const way how{testing::coin(x.random) ? way::kind::forward : way::kind::recurrent, 0, form::automatic, split};
      CAPTURE(x, how);
      const auto alone = testing::run<S>(how, x.op, given);
      CHECK(expected.excess(alone, nature == gates::hard ? testing::length_of(x.op) : 2) == "");
      check_workers<S>({1, 2, 3, 5, 40}, how, x, given, alone, pool);
    }
  });
}

}  // namespace

TEST_CASE("a selective scan is split in time") {
  OGIVE_SEED(seed, 300);
  for (const gates nature : {gates::usual, gates::hard, gates::slow}) check_splits<selective_scan<float>>(seed, nature);
}

TEST_CASE("a complex selective scan is split in time") {
  OGIVE_SEED(seed, 301);
  for (const gates nature : {gates::usual, gates::hard, gates::slow})
    check_splits<selective_scan<double, std::complex<double>>>(seed, nature);
}

TEST_CASE("HGRN is split in time") {
  OGIVE_SEED(seed, 302);
  for (const gates nature : {gates::usual, gates::hard, gates::slow}) check_splits<hgrn<bfloat16>>(seed, nature);
}

TEST_CASE("pools and teams split the time of a few channels as one thread does") {
  OGIVE_SEED(seed, 303);
  using Op = hgrn<float>;
  testing::rng random(seed);
  testing::memory room;
  const shape<3> all{1, 500, 2};
  const Op op{.x = testing::draw_uniform<float>(random, room, all),
              .g = testing::draw_uniform<float>(random, room, all, -0.1, 0)};
  const auto given = testing::draw_state<float>(random, room, op, 1);
  const testing::thread_pool pool;
  for (const index_t split : {34, 100, 170}) {
    const way how{way::kind::forward, 0, form::automatic, split};
    const auto alone = testing::run<float>(how, op, given);
    for (int members = 2; members <= 5; ++members) {
      context forked = context::fork_join(pool, members);
      CHECK(testing::difference(testing::run<float>(how, op, given, forked), alone) == "");
      testing::outcome<Op, float> together{testing::memory()};
      together.st = given;
      testing::give_finals(together.room, op, 1, together.st);
      together.o = together.room.take<float>(all);
      testing::run_team(pool, members, [&](context& mine) { testing::call(how, op, together.st, together.o, mine); });
      CHECK(testing::difference(together, alone) == "");
    }
  }
}

TEST_CASE("a state crosses a segment without a decay unchanged, and none that forgets") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const index_t L = 300, D = 5;
  tensor<float, 3> x({1, L, D}, 0.0F), g({1, L, D}, 0.0F), o({1, L, D}), h({1, D, 1}, 0.1F);
  for (const index_t t : {L / 2, L - 3}) g(0, t, 1) = -inf;
  const testing::thread_pool pool;
  for (const int workers : {1, 4}) {
    context ctx = context::fork_join(pool, workers);
    forward(hgrn<float>{.x = x, .g = g}, diagonal_state<float>{.initial = h}, o, {.time_split = 32}, ctx);
    for (index_t t = 0; t < L; ++t) {
      for (index_t d = 0; d < D; ++d) REQUIRE(o(0, t, d) == (d == 1 && t >= L / 2 ? 0.0F : 0.1F));
    }
  }
}

TEST_CASE("time is split where all channels are a task or two, whoever else is in the call") {
  OGIVE_SEED(seed, 304);
  const index_t usual = 2048, L = 4 * usual + 11;
  testing::rng random(seed);
  testing::memory room;
  const auto x = testing::draw_uniform<float>(random, room, shape<3>{1, L, 40});
  const auto g = testing::draw_uniform<float>(random, room, shape<3>{1, L, 40}, -0.01, 0);
  const auto scan = [&](index_t D, index_t tokens, const options& how, bool forwards, index_t shown) {
    const hgrn<float> op{.x = x.slice(1, 0, tokens).slice(2, 0, D), .g = g.slice(1, 0, tokens).slice(2, 0, D)};
    tensor<float, 3> o({1, tokens, D});
    forwards ? forward(op, {}, o, how) : recurrent(op, {}, o, how);
    return testing::flatten(o.all().slice(1, 0, shown));
  };
  const auto plain = scan(32, L, {}, false, L);
  CHECK((scan(32, L, {}, true, L) != plain));
  CHECK((scan(32, L, {}, true, L) == scan(32, L, {.time_split = usual}, true, L)));
  CHECK((scan(32, L, {}, true, L) == scan(32, L, {.time_split = usual}, false, L)));
  CHECK((scan(32, L, {.form = form::recurrent}, true, L) == plain));
  CHECK((scan(32, L, {.time_split = L}, true, L) == plain));
  CHECK((scan(40, L, {}, true, L) == scan(40, L, {}, false, L)));
  // What follows changes nothing: the first two segments are as without any.
  for (const index_t shown : {index_t{5}, 2 * usual, 2 * usual + 1, 3 * usual + 7}) {
    CHECK((scan(32, L, {}, true, shown) == scan(32, shown, {}, true, shown)));
  }
  CHECK((scan(32, L, {}, true, 2 * usual) == scan(32, L, {}, false, 2 * usual)));
}

TEST_CASE("every share of a scan has a segment") {
  for (index_t segments = 3; segments < 300; ++segments) {
    for (const index_t workers : {2, 3, 4, 5, 8, 13, 64, 1000}) {
      const auto shares = detail::time_shares::of(segments, workers);
      REQUIRE((shares.first > 0 && shares.middle > 0 && shares.last > 0));
      REQUIRE(shares.first + shares.middle + shares.last == segments);
    }
  }
}

TEST_CASE("a negative time_split is refused") {
  const tensor<float, 3> x({1, 4, 2}, 1.0F);
  tensor<float, 3> o({1, 4, 2});
  const status refused = check(hgrn<float>{.x = x, .g = x}, {}, o, {.time_split = -1});
  CHECK_FALSE(refused);
  CHECK_THAT(std::string(refused.text()), tests::ContainsSubstring("time_split"));
}

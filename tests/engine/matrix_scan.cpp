// The scan over time of the matrix engine: segments of any length give what the definition says, and the same bits
// whoever sweeps them.
#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/samplers/linear_attention.hpp>
#include <ogive/testing/trials.hpp>

#include "tests/catch.hpp"
#include "tests/engine/workers.hpp"

using namespace ogive;
using testing::way;

namespace {

/// Runs that are split in time, alone and in pools: bounds against the definition, else the same bits.
template <class Op>
void check_splits(std::uint64_t seed) {
  using S = testing::storage_of<Op>;
  const testing::thread_pool pool;
  testing::for_seeds(seed, 9, [&](std::uint64_t s) {
    const auto variant = s % 3;
    testing::trial<Op> x(s, 1, variant == 2 ? 1 : 0);
    x.op = testing::sampler<Op>::draw(x.random, x.room, testing::sequence_count(x.op), x.random.integer(200, 600));
    if (variant == 1) x.shorten();
    if (variant == 2) x.pack();
    if constexpr (requires { x.op.g; }) {
      if (testing::coin(x.random)) {  // states that live for many segments
        x.op.g = testing::draw_uniform<typename decltype(x.op.g)::value_type>(x.random, x.room, x.op.g.extents(), -0.02, 0);
      }
    }
    auto given = testing::draw_state<S>(x.random, x.room, x.op, testing::sequence_count(x.op));
    if (testing::coin(x.random)) given = {};
    const testing::definition<Op> expected(x.op, given);
    for (const index_t split : {index_t{1}, x.random.integer(33, 200), index_t{1000}}) {
      const way how{way::kind::chunked, testing::coin(x.random) ? 0 : 17, form::automatic, split};
      CAPTURE(x, how);
      const auto alone = testing::run<S>(how, x.op, given);
      CHECK(expected.excess(alone, 2) == "");
      check_workers<S>({2, 3, 5, 40}, how, x, given, alone, pool);
    }
  });
}

}  // namespace

TEST_CASE("linear recurrences with a matrix state are split in time") {
  OGIVE_SEED(seed, 310);
  check_splits<simple_gla<float>>(seed);
}

TEST_CASE("decays per key channel are split in time") {
  OGIVE_SEED(seed, 311);
  check_splits<gla<float>>(seed);
}

TEST_CASE("a normaliser is split in time with its state") {
  OGIVE_SEED(seed, 312);
  check_splits<linear_attention<float, maps::elu1>>(seed);
}

TEST_CASE("time is split where all heads are a task or two, and no state is kept on the way") {
  OGIVE_SEED(seed, 313);
  testing::rng random(seed);
  testing::memory room;
  const index_t usual = 4096, L = 3 * usual + 50, H = 3, K = 8;
  const auto x = testing::draw_uniform<float>(random, room, shape<4>{1, L, H, K});
  const auto g = testing::draw_uniform<float>(random, room, shape<3>{1, L, H}, -1e-4, 0);
  const auto gla = [&](index_t heads, index_t tokens, const options& how, index_t shown, index_t interval = 0) {
    const auto rows = x.slice(1, 0, tokens).slice(2, 0, heads);
    simple_gla<float> op{.q = rows, .k = rows, .v = rows};
    op.g = g.slice(1, 0, tokens).slice(2, 0, heads);
    tensor<float, 4> o({1, tokens, heads, K});
    forward(op, state<float>{.interval = interval}, o, how);
    return testing::flatten(o.all().slice(1, 0, shown));
  };
  const auto plain = gla(2, L, {.form = form::chunked}, L);
  const auto split = gla(2, L, {}, L);
  CHECK((split != plain));
  CHECK((split == gla(2, L, {.form = form::chunked, .time_split = usual}, L)));
  CHECK((plain == gla(2, L, {.time_split = L}, L)));
  CHECK((gla(2, L, {}, L, 64) == gla(2, L, {.form = form::chunked}, L, 64)));
  CHECK((gla(3, L, {}, L) == gla(3, L, {.form = form::recurrent}, L)));
  // What follows changes nothing.
  for (const index_t shown : {2 * usual, 2 * usual + 1, 3 * usual + 7}) {
    CHECK((gla(2, L, {}, shown) == gla(2, shown, {}, shown)));
  }
  CHECK((gla(2, L, {}, 2 * usual) == gla(2, L, {.form = form::chunked}, 2 * usual)));
}

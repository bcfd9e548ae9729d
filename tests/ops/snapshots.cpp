#include "tests/ops/snapshots.hpp"

#include <ogive/testing/samplers/delta_rules.hpp>
#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/samplers/linear_attention.hpp>
#include <ogive/testing/samplers/ssd.hpp>

using namespace ogive;

TEMPLATE_TEST_CASE("states are kept on the way", "", linear_attention<float>, ssd<float>, gla<float>,
                   gated_delta_rule<float>, rwkv6<float>) {
  OGIVE_SEED(seed, 150);
  tests::check_kept_states<TestType, bfloat16>(seed);
}

namespace {

/// Two sequences of six tokens in pools of their own.
struct small_call {
  static constexpr index_t B = 2, L = 6, H = 3, K = 5, V = 7, slots = 20;
  testing::rng random{7};
  testing::memory room;
  view<const float, 4> x = testing::draw_uniform<float>(random, room, shape<4>{B, L, H, K});
  view<const float, 4> v = testing::draw_uniform<float>(random, room, shape<4>{B, L, H, V});
  gla<float> op{.q = x, .k = x, .v = v, .g = x};
  linear_attention<float> attend{.q = x, .k = x, .v = v};
  view<float, 4> pool = room.take<float>(shape<4>{slots, H, K, V}), other = room.take<float>(shape<4>{slots, H, K, V});
  view<float, 3> z = room.take<float>(shape<3>{slots, H, K});
  view<float, 4> o = room.take<float>(shape<4>{B, L, H, V});
  std::vector<std::int32_t> after_tokens, at_boundaries{16, -1, 17, 18}, ends{14, 15};
  std::vector<std::int64_t> before{3, 0};
  state<float> st;

  small_call() {
    for (std::int32_t i = 0; i < 12; ++i) after_tokens.push_back(i);
    st.initial = other;
    st.initial_slots = ends;
    st.final = pool;
    st.final_slots = ends;
    st.snapshots = pool;
    st.snapshot_slots = view<const std::int32_t, 2>(after_tokens, {B, L});
    st.boundaries = pool;
    st.boundary_slots = view<const std::int32_t, 2>(at_boundaries, {B, 2});
    st.interval = 3;
    st.position = before;
  }

  template <class Op, class State>
  void refused(const Op& call, const State& given, const char* field, const char* words) const {
    const status asked = check(call, given, o);
    INFO(asked.text());
    CHECK_FALSE(asked);
    CHECK(std::string(asked.text()).find(std::string(Op::name) + ": " + field + " ") == 0);
    CHECK(std::string(asked.text()).find(words) != std::string::npos);
    CHECK_THROWS_AS(step(call, given, o), std::invalid_argument);
    CHECK_THROWS_AS(chunked(call, given, o), std::invalid_argument);
    CHECK(tests::untouched(pool));
    CHECK(tests::untouched(o));
  }
};

}  // namespace

TEST_CASE("states that cannot be kept are refused before anything is written") {
  small_call c;
  const std::vector<std::int32_t> none(12, -1);
  REQUIRE(check(c.op, c.st, c.o));
  const auto refused = [&](const char* field, const char* words, const auto& change) {
    state<float> st = c.st;
    change(st);
    c.refused(c.op, st, field, words);
  };
  const auto slot = [&](std::vector<std::int32_t>& list, std::size_t i, std::int32_t other, const char* field,
                        const char* words) {
    const std::int32_t own = std::exchange(list[i], other);
    c.refused(c.op, c.st, field, words);
    list[i] = own;
  };
  slot(c.after_tokens, 4, 20, "snapshot_slots", "20");
  slot(c.after_tokens, 4, -2, "snapshot_slots", "-2");
  slot(c.after_tokens, 4, 9, "snapshot_slots", "twice");
  slot(c.after_tokens, 4, 15, "snapshot_slots", "which final_slots names");
  slot(c.at_boundaries, 3, 16, "boundary_slots", "twice");
  slot(c.at_boundaries, 0, 11, "boundary_slots", "which snapshot_slots names");
  slot(c.at_boundaries, 0, 14, "boundary_slots", "which final_slots names");
  c.before[1] = -1;
  c.refused(c.op, c.st, "position", "negative");
  c.before[1] = 0;

  refused("snapshots", "[slots, H, K, V]", [&](auto& st) { st.snapshots = c.pool.slice(2, 0, 4); });
  refused("snapshots", "overlaps initial", [&](auto& st) { st.snapshots = c.other.slice(0, 1, 19); });
  refused("snapshots", "one element", [&](auto& st) {
    st.snapshots = view<float, 4>(c.pool.data(), c.pool.extents(), {0, 35, 7, 1});
  });
  refused("snapshots", "overlaps o", [&](auto& st) {
    st.snapshots = view<float, 4>(c.o.data(), {2, c.H, c.K, c.V});
    st.snapshot_slots = view<const std::int32_t, 2>(none, {c.B, c.L});
  });
  refused("snapshots", "absent", [](auto& st) { st.snapshots = {}; });
  refused("boundaries", "absent", [](auto& st) { st.boundaries = {}; });
  refused("snapshot_slots", "absent", [](auto& st) { st.snapshot_slots = {}; });
  refused("snapshot_slots", "[B, L]", [](auto& st) { st.snapshot_slots = st.snapshot_slots.slice(1, 0, 5); });
  refused("boundary_slots", "absent", [](auto& st) { st.boundary_slots = {}; });
  refused("boundary_slots", "reaches 2", [](auto& st) { st.boundary_slots = st.boundary_slots.slice(1, 0, 1); });
  refused("interval", "number of tokens", [](auto& st) { st.interval = 0; });
  refused("interval", "negative", [](auto& st) { st.interval = -3; });
  refused("position", "entries", [&](auto& st) { st.position = std::span<const std::int64_t>(c.before).first(1); });

  linear_attention_state<float> st{.snapshots = c.pool, .snapshot_slots = c.st.snapshot_slots};
  c.refused(c.attend, st, "z_snapshots", "must come with snapshots");
  st.z_snapshots = c.z.slice(0, 0, 19);
  c.refused(c.attend, st, "z_snapshots", "as many slots");
  st.z_snapshots = c.z;
  CHECK(check(c.attend, st, c.o));
}

TEST_CASE("a state that several workers share the columns of is kept whole") {
  testing::rng random(8);
  testing::memory room;
  const auto x = testing::draw_uniform<float>(random, room, shape<4>{1, 40, 1, 9});
  const auto v = testing::draw_uniform<float>(random, room, shape<4>{1, 40, 1, 130});
  const linear_attention<float> op{.q = x, .k = x, .v = v, .normalise = false};
  std::vector<std::int32_t> all(40);
  for (std::int32_t i = 0; i < 40; ++i) all[static_cast<std::size_t>(i)] = i;
  const auto kept = [&](context& ctx, form how) {
    const auto pool = room.take<float>(shape<4>{45, 1, 9, 130});
    const linear_attention_state<float> st{.snapshots = pool.slice(0, 0, 40),
                                           .snapshot_slots = view<const std::int32_t, 2>(all, {1, 40}),
                                           .boundaries = pool.slice(0, 40, 5),
                                           .boundary_slots = view<const std::int32_t, 2>(all.data(), {1, 5}),
                                           .interval = 8};
    forward(op, st, {}, {.form = how}, ctx);
    return pool;
  };
  for (const form how : {form::recurrent, form::chunked, form::automatic}) {
    testing::thread_pool pool;
    context serial, shared = context::fork_join(pool, 3);
    CHECK(testing::difference(kept(serial, how), kept(shared, how)) == "");
  }
}

TEST_CASE("boundaries are counted over whole sequences, wanted or not, and between snapshots") {
  constexpr index_t B = 2, L = 30, most = 7;
  const tensor<float, 4> ones({B, L, 1, 1}, 1.0F);
  const tensor<float, 1> gamma({1}, 0.0F);
  const std::vector<std::int64_t> before{3, 10};
  const std::vector<std::int32_t> at_boundaries{0, -1, 1, -1, -1, 2, -1, -1, 3, -1, 4, 5, -1, 6};
  std::vector<std::int32_t> after(B * L, -1);
  after[3] = 8, after[14] = 9, after[L + 2] = 10;
  const auto check = [&](const auto& op) {
    for (const tests::way& how : tests::kept_ways<std::remove_cvref_t<decltype(op)>>()) {
      for (const bool between : {false, true}) {
        INFO(op.name << " " << how << (between ? ", snapshots" : ""));
        tensor<float, 4> pool({11, 1, 1, 1}, -1.0F), o({B, L, 1, 1});
        state<float> st{.boundaries = pool, .boundary_slots = view<const std::int32_t, 2>(at_boundaries, {B, most})};
        st.interval = 5;
        st.position = before;
        if (between) st.snapshots = pool, st.snapshot_slots = view<const std::int32_t, 2>(after, {B, L});
        context serial;
        testing::call(how, op, st, o.all(), serial);
        // A state is the number of its tokens: 5, 15 and 30 after 3, and 20, 30 and 35 after 10.
        std::vector<double> right{2, 12, 27, 10, 20, 25, -1, -1, 4, 15, 3};
        if (!between) right[8] = right[9] = right[10] = -1;
        CHECK(testing::flatten(pool.all()) == right);
      }
    }
  };
  check(retention<float>{.q = ones, .k = ones, .v = ones, .log_gamma = gamma});
  // What is given without a normaliser becomes the state of an operator that may have one.
  check(linear_attention<float>{.q = ones, .k = ones, .v = ones, .normalise = false});
}

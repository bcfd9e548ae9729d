// Heads that share keys or queries, and parameters that all tokens share, have their gradients summed over several
// tasks: the bits are those of one worker, in the room that was reserved, and the sums those of every head alone.
#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/delta_rules.hpp>
#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/samplers/gated_rfa.hpp>
#include <ogive/testing/samplers/low_rank.hpp>
#include <ogive/testing/samplers/ssd.hpp>

#include "tests/catch.hpp"

using namespace ogive;

namespace {

constexpr index_t B = 2, L = 70, K = 19, V = 21;

/// The head of an operand with `held` heads that value head h of H reads.
index_t head_of(heads map, index_t h, index_t H, index_t held) {
  return map == heads::consecutive ? h / (H / held) : h % held;
}

/// f(field, its gradient, its axis of heads), for tokens and for parameters.
template <class Op, class D, class F>
void for_fields(const Op& op, D& d, const F& f) {
  constexpr int of_tokens = std::tuple_size_v<std::remove_cvref_t<decltype(testing::sampler<Op>::tokens)>>;
  int number = 0;
  testing::detail::for_gradients(op, d, [&](const auto& x, auto& d_x) {
    const std::size_t axis = number++ < of_tokens ? 2 : 0;
    if (x.present()) f(x, d_x, axis);
  });
}

/// The operator of one head.
template <class Op>
Op alone(Op op, index_t h, index_t H) {
  typename Op::gradient unused{};
  for_fields(op, unused, [&](const auto& x, auto&, std::size_t axis) {
    auto& field = const_cast<std::remove_cvref_t<decltype(x)>&>(x);
    field = x.slice(axis, head_of(op.head_map, h, H, x.extent(axis)), 1);
  });
  return op;
}

/// The bits of one worker, in the room that was reserved.
template <class Op, class State>
void check_workers(const Op& op, const State& given, const testing::cotangents_of<Op>& c, const options& how,
                   const testing::gradients_found<Op>& serial) {
  const testing::thread_pool pool;
  for (const int workers : {2, 3, 16}) {
    CAPTURE(workers);
    context forked = context::fork_join(pool, workers);
    forked.reserve(backward_scratch_bytes(op, how, workers));
    const std::size_t room = forked.capacity();
    CHECK(testing::detail::gradient_gap(op, testing::detail::run_backward(op, given, c, how, forked), serial) == "");
    CHECK(forked.capacity() == room);
  }
  constexpr int members = 3;
  const auto check_team = [&](const auto& run) {
    auto together = testing::detail::run_backward(op, given, c, how);
    testing::detail::for_found(op, together, [](const auto& d) {
      testing::for_each(d, [](const auto& x, index_t) { const_cast<std::remove_cvref_t<decltype(x)>&>(x) = -7; });
    });
    run([&](context& mine) { backward(op, given, c.o, together.st, together.d, how, mine); });
    CHECK(testing::detail::gradient_gap(op, together, serial) == "");
  };
  check_team([&](const auto& body) { testing::run_team(pool, members, body); });
  check_team([&](const auto& body) { testing::run_team_backwards(pool, members, body); });
}

/// No two members of a team add to one number: each alone, after the others, to −0, which adding 0 changes too.
template <class Op, class State>
void check_members(const Op& op, const State& given, const testing::cotangents_of<Op>& c, const options& how) {
  constexpr int members = 3;
  auto found = testing::detail::run_backward(op, given, c, how);
  testing::for_pools(found.st, [](auto& initial, auto&) { initial = {}; });
  std::vector<int> writers;
  for (int member = 0; member < members; ++member) {
    context mine = context::of({.ith = member, .nth = members});
    const auto for_numbers = [&](const auto& f) {
      std::size_t i = 0;
      for_fields(op, found.d, [&](const auto&, const auto& d, std::size_t) {
        testing::for_each(d, [&](const auto& x, index_t) { f(const_cast<std::remove_cvref_t<decltype(x)>&>(x), i++); });
      });
      return i;
    };
    writers.resize(for_numbers([](auto& x, std::size_t) { x = -0.0F; }));
    backward(op, given, c.o, found.st, found.d, {.chunk = how.chunk, .accumulate = true}, mine);
    for_numbers([&](const auto& x, std::size_t i) { writers[i] += x != 0 || !std::signbit(x); });
  }
  CHECK(std::all_of(writers.begin(), writers.end(), [](int count) { return count <= 1; }));
}

template <class Op>
void check_sums(Op op, index_t H, testing::rng& random) {
  testing::memory room;
  op.head_map = testing::coin(random) ? heads::tiled : heads::consecutive;
  const index_t sequences = B;
  const std::vector<std::int32_t> lengths{L, L - 30};
  if (testing::coin(random)) op.lengths = lengths;
  const auto given = testing::draw_state<float>(random, room, op, sequences);
  const auto c = testing::detail::draw_cotangents(random, room, op);
  const options how{};
  const auto whole = testing::detail::run_backward(op, given, c, how);
  check_workers(op, given, c, how, whole);
  check_members(op, given, c, how);
  const double bound = testing::detail::gradient_bound(op, testing::detail::largest_gradient(op, whole));

  // Every head alone, added to the head of its field.
  auto sums = testing::detail::run_backward(op, given, c, how);
  for_fields(op, sums.d, [](const auto&, auto& d, std::size_t) {
    testing::for_each(d, [](const auto& x, index_t) { const_cast<std::remove_cvref_t<decltype(x)>&>(x) = 0; });
  });
  for (index_t h = 0; h < H; ++h) {
    const Op one = alone(op, h, H);
    auto st = given;
    testing::for_pools(st, [&](auto& initial, auto&) { initial = initial.slice(1, h, 1); });
    auto part = c;
    part.o = c.o.slice(2, h, 1);
    testing::for_pools(part.st, [&](auto&, auto& final) { final = final.slice(1, h, 1); });
    typename Op::gradient d = sums.d;
    for_fields(op, d, [&](const auto& x, auto& d_x, std::size_t axis) {
      d_x = d_x.slice(axis, head_of(op.head_map, h, H, x.extent(axis)), 1);
    });
    backward(one, st, part.o, part.st, d, {.accumulate = true});
  }
  CHECK(testing::detail::gradient_gap(op, whole, sums, bound) == "");
}

}  // namespace

TEST_CASE("gradients of shared heads and of parameters are summed alike by any number of workers") {
  OGIVE_SEED(seed, 61);
  testing::rng random(seed);
  testing::memory room;
  const auto keys = [&](index_t heads) { return testing::draw_uniform<float>(random, room, shape<4>{B, L, heads, K}); };
  const auto values = [&](index_t heads) {
    return testing::draw_uniform<float>(random, room, shape<4>{B, L, heads, V});
  };
  SECTION("SSD") {
    for (const index_t G : {1, 2}) {
      const index_t H = 18 * G + G;
      ssd<float> op{.x = values(H), .B = keys(G), .C = keys(G)};
      op.dt = testing::draw_uniform<float>(random, room, shape<3>{B, L, H}, 0.01, 1);
      op.A = testing::draw_uniform<float>(random, room, shape<1>{H}, -2, -0.1);
      op.D = testing::draw_uniform<float>(random, room, shape<2>{H, V});
      op.z = values(H);
      op.dt_bias = testing::draw_uniform<float>(random, room, shape<1>{H}, 0, 0.5);
      op.dt_softplus = true;
      check_sums(op, H, random);
    }
  }
  SECTION("GDN") {
    for (const auto& [Hq, Hk] : {std::pair<index_t, index_t>{1, 1}, {1, 12}, {12, 1}, {12, 2}}) {
      CAPTURE(Hq, Hk);
      gated_delta_rule<float> op{.q = keys(Hq), .k = keys(Hk), .v = values(12)};
      op.g = testing::draw_uniform<float>(random, room, shape<3>{B, L, 12}, -1, 0);
      op.beta = testing::draw_uniform<float>(random, room, shape<3>{B, L, 12}, 0, 1);
      op.qk_l2norm = 1e-6F;
      check_sums(op, 12, random);
    }
  }
  SECTION("DPLR") {
    const auto small = [&] { return testing::draw_uniform<float>(random, room, shape<4>{B, L, 1, K}, -0.07, 0.07); };
    dplr<float> op{.q = keys(10), .k = keys(1), .v = values(10), .a = small(), .b = small()};
    op.g = testing::draw_uniform<float>(random, room, shape<4>{B, L, 10, K}, -1, 0);
    check_sums(op, 10, random);
  }
  SECTION("RWKV-6") {
    rwkv6<float> op{.r = keys(9), .k = keys(1), .v = values(9)};
    op.w = testing::draw_uniform<float>(random, room, shape<4>{B, L, 9, K}, -1, 0);
    op.u = testing::draw_uniform<float>(random, room, shape<2>{9, K});
    check_sums(op, 9, random);
  }
  SECTION("gated RFA: 1 − f weighs the keys of more heads than a task has") {
    for (const index_t Hk : {1, 2}) {
      gated_rfa<float, maps::elu1> op{.q = keys(9 * Hk), .k = keys(Hk), .v = values(9 * Hk)};
      op.g = testing::draw_uniform<float>(random, room, shape<3>{B, L, Hk}, -1, 0);
      op.eps = 1;
      check_sums(op, 9 * Hk, random);
    }
  }
}

TEST_CASE("the heads of a key, which add to the gradient of one gate, are one task") {
  testing::rng random(62);
  testing::memory room;
  gated_rfa<float, maps::elu1> op{.eps = 1};
  op.q = testing::draw_uniform<float>(random, room, shape<4>{1, L, 9, K});
  op.k = op.q.slice(2, 0, 1);
  op.v = testing::draw_uniform<float>(random, room, shape<4>{1, L, 9, V});
  op.g = testing::draw_uniform<float>(random, room, shape<3>{1, L, 1}, -1, 0);
  const auto c = testing::detail::draw_cotangents(random, room, op);
  int calls = 0;
  const auto pool = [&](int workers, const worker_body& body) {
    ++calls;
    for (int worker = 0; worker < workers; ++worker) body(worker);
  };
  context forked = context::fork_join(pool, 3);
  testing::detail::run_backward(op, testing::state_for<decltype(op), float>{}, c, {}, forked);
  CHECK(calls == 0);
}

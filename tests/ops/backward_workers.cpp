// Heads that share keys or queries, and parameters that all tokens share, have their gradients summed over several
// tasks: the bits are those of one worker, in the room that was reserved, and the sums those of every head alone.
#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/delta_rules.hpp>
#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/samplers/gated_rfa.hpp>
#include <ogive/testing/samplers/linear_attention.hpp>
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
      testing::for_each(d, [](const auto& x, index_t) {
        const_cast<std::remove_cvref_t<decltype(x)>&>(x) = std::remove_cvref_t<decltype(x)>(-7.0F);
      });
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

/// Several workers, how often they were called, and scratch that is NaN.
struct counted_workers {
  int calls = 0;
  testing::thread_pool threads{};
  void operator()(int workers, const worker_body& body) {
    ++calls;
    threads(workers, body);
  }
  template <class Op>
  context poisoned(const Op& op, const options& how, int workers) {
    context forked = context::fork_join(*this, workers);
    forked.reserve(backward_scratch_bytes(op, how, workers));
    const auto size = static_cast<index_t>(forked.capacity());
    std::fill_n(forked.scratch(0, forked.capacity()).template take<std::byte>(size), size, std::byte{0xff});
    return forked;
  }
};

/// Everything that may be asked of one state alone has the bits of one worker; several did have tasks, or did not.
template <class State = float, class Op>
void check_one_state(Op op, testing::rng& random, bool shared = true) {
  constexpr bool both = std::is_same_v<State, float>;
  testing::memory room;
  const index_t length = testing::length_of(op);
  const std::vector<std::int32_t> lengths{static_cast<std::int32_t>(length - 21)};
  if (testing::coin(random)) op.lengths = lengths;
  testing::state_for<Op, State> given;
  if (testing::coin(random)) given = testing::draw_state<State>(random, room, op, 1);
  auto c = testing::detail::draw_cotangents(random, room, op);
  if (!given.initial.present() && testing::coin(random)) c.st = {};
  if constexpr (requires { c.st.z_final; }) {
    if (shared) given.z_initial = {}, c.st.z_final = {};
  }
  const options how{.chunk = testing::coin(random) ? 0 : random.integer(5, 40)};
  CAPTURE(op.lengths.present(), given.initial.present(), c.st.final.present(), how.chunk);
  const auto zeros = [](const auto& d) {
    testing::for_each(d, [](const auto& x, index_t) { const_cast<std::remove_cvref_t<decltype(x)>&>(x) = {}; });
  };
  const auto same = [&](const auto& run, const auto& serial) {
    for (const int workers : {2, 3}) {
      CAPTURE(workers);
      counted_workers pool;
      context forked = pool.poisoned(op, how, workers);
      const std::size_t reserved = forked.capacity();
      CHECK(testing::detail::gradient_gap(op, run(forked), serial) == "");
      CHECK(forked.capacity() == reserved);
      CHECK((pool.calls > 0) == shared);
    }
  };
  const auto whole = testing::detail::run_backward(op, given, c, how);
  check_workers(op, given, c, how, whole);
  same([&](context& ctx) { return testing::detail::run_backward(op, given, c, how, ctx); }, whole);

  const auto added = [&](context& ctx) {
    auto d = testing::detail::run_backward(op, given, c, how);
    backward(op, given, c.o, d.st, d.d, {.chunk = how.chunk, .accumulate = true}, ctx);
    return d;
  };
  context serial;
  same(added, added(serial));

  for_fields(op, whole.d, [&](const auto& x, const auto& all, std::size_t) {
    using View = std::remove_cvref_t<decltype(all)>;
    for (const int workers : {1, 2}) {
      counted_workers pool;
      context forked = pool.poisoned(op, how, workers);
      testing::gradients_found<Op> alone{testing::memory()};
      View mine;
      for_fields(op, alone.d, [&](const auto& other, auto& d, std::size_t) {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(d)>, View>) {
          if (static_cast<const void*>(&other) != static_cast<const void*>(&x)) return;
          d = mine = alone.room.template take<typename View::element_type>(x.extents());
        }
      });
      alone.st.final = c.st.final;
      if constexpr (requires { c.st.z_final; }) alone.st.z_final = c.st.z_final;
      backward(op, given, c.o, alone.st, alone.d, how, forked);
      CHECK(testing::difference(mine, all) == "");
    }
  });

  if constexpr (both) {
    checkpoints kept(how.chunk), together(how.chunk);
    const auto o = room.take<typename Op::scalar>(testing::sampler<Op>::output(op));
    const auto shared_o = room.take<typename Op::scalar>(testing::sampler<Op>::output(op));
    forward(op, given, o, {}, serial, kept);
    counted_workers pool;
    context forked = context::fork_join(pool, 2);
    forward(op, given, shared_o, {}, forked, together);
    CHECK(pool.calls > 0);
    CHECK(testing::difference(shared_o, o) == "");
    const auto from = [&](const checkpoints& states) {
      return [&](context& ctx) {
        auto d = testing::detail::run_backward(op, given, c, how);
        testing::detail::for_found(op, d, zeros);
        backward(op, given, c.o, d.st, d.d, {}, ctx, states);
        return d;
      };
    };
    const auto expected = from(kept)(serial);
    same(from(kept), expected);
    same(from(together), expected);
  }
}

}  // namespace

TEST_CASE("one state is shared out by columns of V, then by chunks, and has the bits of one worker") {
  OGIVE_SEED(seed, 63);
  const index_t columns = GENERATE(64, 65, 96, 128, 256, 257);
  CAPTURE(columns);
  testing::rng random(seed + static_cast<std::uint64_t>(columns));
  testing::memory room;
  constexpr index_t N = 110;
  const shape<4> tokens{1, N, 1, K};
  const auto uniform = [&]<std::size_t Rank>(const shape<Rank>& extents, double low, double high) {
    return testing::draw_uniform<float>(random, room, extents, low, high);
  };
  const view<float, 4> q = uniform(tokens, -1, 1), k = uniform(tokens, -0.3, 0.3), gates = uniform(tokens, -1, 0);
  const view<float, 4> small = uniform(tokens, -0.07, 0.07), other = uniform(tokens, -0.07, 0.07);
  const view<float, 4> v = uniform(shape<4>{1, N, 1, columns}, -1, 1);
  const view<float, 4> per_value = uniform(shape<4>{1, N, 1, columns}, 0, 1);
  const view<float, 3> g = uniform(shape<3>{1, N, 1}, -1, 0), beta = uniform(shape<3>{1, N, 1}, 0, 1);
  SECTION("writes that add") {
    linear_attention<float, maps::elu1> features{.q = q, .k = k, .v = v};
    features.normalise = false;
    check_one_state(features, random);
    check_one_state(simple_gla<float>{.q = q, .k = k, .v = v, .g = g}, random);
    check_one_state(gla<float>{.q = q, .k = k, .v = v, .g = gates}, random);
    check_one_state(hgrn2<float>{.q = q, .v = v, .g = gates}, random);
  }
  SECTION("sums over tokens") {
    check_one_state(rwkv6<float>{.r = q, .k = k, .v = v, .w = gates, .u = uniform(shape<2>{1, K}, -1, 1)}, random);
    rwkv5<float> constant{.r = q, .k = k, .v = v};
    constant.w = uniform(shape<2>{1, K}, -1, 0), constant.u = uniform(shape<2>{1, K}, -1, 1);
    check_one_state(constant, random);
    check_one_state(retention<float>{.q = q, .k = k, .v = v, .log_gamma = uniform(shape<1>{1}, -1, 0)}, random);
    ssd<float> op{.x = v, .dt = beta, .B = k, .C = q};
    op.A = uniform(shape<1>{1}, -2, -0.1);
    op.D = uniform(shape<2>{1, columns}, -1, 1);
    op.z = uniform(v.extents(), -1, 1);
    check_one_state(op, random);
  }
  SECTION("corrections") {
    check_one_state(delta_rule<float>{.q = q, .k = k, .v = v, .beta = beta}, random);
    check_one_state(delta_rule<float>{.q = q, .k = k, .v = v, .beta_per_value = per_value}, random);
    check_one_state(gated_delta_rule<float>{.q = q, .k = k, .v = v, .g = g, .beta = beta}, random);
    check_one_state<double>(gated_delta_rule<float>{.q = q, .k = k, .v = v, .g = g, .beta = beta}, random);
    check_one_state(kda<float>{.q = q, .k = k, .v = v, .g = gates, .beta = beta}, random);
  }
  SECTION("removals of low rank") {
    check_one_state(iplr<float>{.q = q, .k = k, .v = v, .a = small, .b = other}, random);
    check_one_state(dplr<float>{.q = q, .k = k, .v = v, .a = small, .b = other, .g = gates}, random);
    check_one_state(rwkv7<float>{.r = q, .w = gates, .k = k, .v = v, .kk = small, .a = other}, random);
  }
  SECTION("a normaliser, which belongs to all columns") {
    check_one_state(linear_attention<float, maps::elu1>{.q = q, .k = k, .v = v, .eps = 1}, random, false);
  }
  SECTION("bfloat16") {
    const auto rounded = [&](const view<float, 4>& x) { return room.copy<bfloat16>(x); };
    check_one_state(gla<bfloat16>{.q = rounded(q), .k = rounded(k), .v = rounded(v), .g = gates}, random);
  }
}

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

// States that a call keeps on its way: snapshots after tokens, boundaries at multiples of an interval. What they must
// be is what shorter calls leave behind.
#pragma once

#include <ogive/testing/trials.hpp>

#include "tests/catch.hpp"

namespace ogive::tests {

using testing::way;

/// The first tokens of one sequence, alone.
template <class Op>
Op sequence_alone(const Op& op, index_t s, index_t begin, index_t count) {
  const bool packed = op.offsets.present();
  Op alone = testing::tokens_of(op, (packed ? op.offsets.at(s) : 0) + begin, count);
  alone.offsets = alone.lengths = {};
  if (!packed) {
    testing::for_fields(alone, testing::sampler<Op>::tokens, [&](auto& x) {
      if (x.present()) x = x.slice(0, s, 1);
    });
  }
  return alone;
}
template <class Op>
index_t live_tokens(const Op& op, index_t s) {
  const index_t length = op.offsets.present() ? op.offsets.at(s + 1) - op.offsets.at(s) : testing::length_of(op);
  return op.lengths.present() ? std::min(length, op.lengths.at(s)) : length;
}
/// The same with nothing kept, from one of the initial states.
template <class State>
State state_alone(State st, index_t slot) {
  st.snapshots = st.boundaries = {};
  st.snapshot_slots = st.boundary_slots = {};
  st.initial_slots = {};
  st.interval = 0;
  if constexpr (requires { st.z_snapshots; }) st.z_snapshots = st.z_boundaries = {};
  testing::for_pools(st, [&](auto& initial, auto& final) {
    if (initial.present()) initial = initial.slice(0, slot, 1);
    final = {};
  });
  return st;
}

/// f(kept, initial, final) for S, and for z where there is one.
template <class State, class F>
void for_snapshots(State& st, const F& f) {
  f(st.snapshots, st.initial, st.final);
  if constexpr (requires { st.z_snapshots; }) f(st.z_snapshots, st.z_initial, st.z_final);
}
template <class State, class F>
void for_boundaries(State& st, const F& f) {
  f(st.boundaries, st.initial, st.final);
  if constexpr (requires { st.z_boundaries; }) f(st.z_boundaries, st.z_initial, st.z_final);
}

/// Numbers 0 … count − 1 in any order, a part of them replaced by −1.
inline std::vector<std::int32_t> drawn_slots(testing::rng& random, index_t count) {
  std::vector<std::int32_t> slots(static_cast<std::size_t>(count));
  for (index_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i), other = static_cast<std::size_t>(random.integer(0, i));
    slots[at] = std::exchange(slots[other], static_cast<std::int32_t>(i));
    if (at == other) slots[at] = static_cast<std::int32_t>(i);
  }
  for (std::int32_t& slot : slots) {
    if (random.integer(0, 2) == 0) slot = -1;
  }
  return slots;
}

/// Whether every byte that was given is still 0xFF.
template <class S, std::size_t Rank>
bool untouched(const view<S, Rank>& x) {
  bool same = true;
  testing::for_each(x, [&](const S& number, index_t) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(&number);
    for (std::size_t i = 0; i < sizeof(S); ++i) same = same && bytes[i] == 0xff;
  });
  return same;
}

/// A drawn call: a batch, padded or packed, some of them from nothing.
template <class Op, class S>
struct drawn_call {
  testing::trial<Op> x;
  testing::memory room;
  testing::state_for<Op, S> given;
  index_t sequences, rows;

  drawn_call(std::uint64_t seed, index_t most, testing::layout where)
      : x(seed, most, seed % 3 == 0 ? 1 : 2), room(where) {
    if (seed % 3 == 0) x.pack();
    if (seed % 3 == 1) x.shorten();
    sequences = testing::sequence_count(x.op);
    rows = testing::sampler<Op>::output(x.op)[0];
    if (testing::coin(x.random)) {
      given = testing::draw_state<S>(x.random, room, x.op, sequences);
    } else if constexpr (requires { given.z_initial; }) {
      x.op.normalise = x.op.normalise && testing::coin(x.random);
    }
  }

  template <class Pool>
  void give(Pool& pool, index_t slots) {
    using testing::sampler;
    pool = room.template take<typename Pool::element_type>(
        testing::pool_extents<Pool::rank>(slots, sampler<Op>::slot(x.op)));
  }
};

/// Runs into fresh memory, the final state wanted or not, in scratch of NaN.
template <class S, class Op>
testing::outcome<Op, S> run_kept(const way& how, const Op& op, const testing::state_for<Op, S>& st, bool final,
                                 testing::layout where) {
  if (final) return testing::run<S>(how, op, st, where);
  return testing::run_without_final<S>(how, op, st);
}

template <class Op>
std::vector<way> kept_ways() {
  std::vector<way> all{
      {way::kind::recurrent}, {way::kind::recurrent, 3}, {way::kind::step}, {way::kind::step, 2}, {way::kind::forward}};
  if constexpr (testing::has_chunks<Op>)
    all.push_back({way::kind::chunked, 7}), all.push_back({way::kind::chunked, 16});
  if constexpr (requires { testing::sampler<Op>::left_product; }) all.push_back({way::kind::forward, 0, form::left});
  return all;
}
/// Ways that give the same bits however a sequence is split.
template <class Op>
bool by_tokens(const way& how) {
  if (!testing::has_chunks<Op>) return true;
  return how.kind == way::kind::step || (how.kind == way::kind::recurrent && !testing::folds<Op>(how));
}

/// What a call leaves behind that ends after `count` tokens of a sequence.
template <class S, class Op>
testing::outcome<Op, S> run_until(const way& how, const drawn_call<Op, S>& c, testing::state_for<Op, S> st, index_t s,
                                  index_t count, testing::layout where) {
  return testing::run<S>(how, sequence_alone(c.x.op, s, 0, count), st, where);
}

/// Holds a kept state against a call that ends there: to the bit, or against what the definition makes of `alone`.
template <class S, class Op, class ForPools>
void check_kept(testing::state_for<Op, S> st, index_t slot, const testing::outcome<Op, S>& until, const Op& alone,
                const testing::state_for<Op, S>& given, bool bits, const ForPools& for_kept) {
  testing::outcome<Op, S> got{testing::memory()};
  got.st = st;
  for_kept(got.st, [&](auto& kept, auto&, auto& final) { final = kept.present() ? kept.slice(0, slot, 1) : kept; });
  if (bits) CHECK(testing::difference_of_states(got, until) == "");
  if constexpr (testing::has_chunks<Op>) {
    if (!bits) CHECK(testing::definition<Op, S>(alone, given).excess(got, 1) == "");
  }
}

/// Queries that are one number everywhere.
template <class Op>
void ask_nothing(Op& op, const typename Op::scalar* number) {
  const auto ask = [&](auto& q) { q = std::remove_reference_t<decltype(q)>(number, q.extents(), {}); };
  if constexpr (requires { op.q; }) ask(op.q);
  if constexpr (requires { op.r; }) ask(op.r);
}

template <class Op, class S>
void check_snapshots(std::uint64_t seed, testing::layout where) {
  drawn_call<Op, S> c(seed, 17, where);
  const index_t L = testing::length_of(c.x.op), slots = c.rows * L + 1;
  INFO(c.x);
  auto list = drawn_slots(c.x.random, c.rows * L);
  auto st = c.given;
  st.snapshot_slots = view<const std::int32_t, 2>(list, {c.rows, L});
  for (const way& how : kept_ways<Op>()) {
    const bool final = testing::coin(c.x.random);
    CAPTURE(how, final);
    for_snapshots(st, [&](auto& kept, auto&, auto&) { c.give(kept, slots); });
    const auto got = run_kept<S>(how, c.x.op, st, final, where);
    const auto plain = run_kept<S>(how, c.x.op, c.given, final, where);
    // Where no state is to be left behind, a step sums up its outputs K-first.
    if (by_tokens<Op>(how) && (final || where == testing::layout::dense)) CHECK(testing::difference(got, plain) == "");
    std::vector<bool> written(static_cast<std::size_t>(slots));
    for (index_t s = 0; s < c.sequences; ++s) {
      const index_t b = c.x.op.offsets.present() ? 0 : s;
      const index_t begin = c.x.op.offsets.present() ? c.x.op.offsets.at(s) : 0, live = live_tokens(c.x.op, s);
      const auto alone = state_alone(c.given, s);
      for (index_t t = 0; t < live; ++t) {
        const index_t slot = st.snapshot_slots(b, begin + t);
        if (slot < 0) continue;
        CAPTURE(s, t, slot);
        written[static_cast<std::size_t>(slot)] = true;
        check_kept<S, Op>(st, slot, run_until<S>(how, c, alone, s, t + 1, where), sequence_alone(c.x.op, s, 0, t + 1),
                          alone, by_tokens<Op>(how), [](auto& own, const auto& f) { for_snapshots(own, f); });
        // The rest of the tokens, advanced from here without outputs.
        if (!final || !by_tokens<Op>(how) || !std::is_same_v<S, sweep_t<typename Op::scalar, S>>) continue;
        testing::outcome<Op, S> rest{testing::memory(where)};
        rest.st = alone;
        rest.st.initial = st.snapshots.slice(0, slot, 1);
        if constexpr (requires { rest.st.z_initial; }) {
          if (st.z_snapshots.present()) rest.st.z_initial = st.z_snapshots.slice(0, slot, 1);
        }
        Op later = sequence_alone(c.x.op, s, t + 1, live - t - 1);
        const typename Op::scalar no_number(std::numeric_limits<float>::quiet_NaN());
        ask_nothing(later, &no_number);
        testing::give_finals(rest.room, later, 1, rest.st);
        context serial;
        testing::call(how, later, rest.st, {}, serial);
        CHECK(testing::difference(rest.st.final, got.st.final.slice(0, s, 1)) == "");
        if constexpr (requires { rest.st.z_final; }) {
          CHECK(testing::difference(rest.st.z_final, got.st.z_final.slice(0, s, 1)) == "");
        }
      }
    }
    for (index_t slot = 0; slot < slots; ++slot) {
      if (written[static_cast<std::size_t>(slot)]) continue;
      for_snapshots(st, [&](auto& kept, auto&, auto&) { CHECK(untouched(kept[slot])); });
    }
    CHECK(c.room.gaps_untouched());
  }
}

/// Boundaries are the states of shorter calls, and a call that goes on from one has the bits of the whole one.
template <class Op, class S>
void check_boundaries(std::uint64_t seed, testing::layout where) {
  drawn_call<Op, S> c(seed, 65, where);
  testing::rng& random = c.x.random;
  INFO(c.x);
  auto st = c.given;
  st.interval = std::array<index_t, 4>{1, 5, 12, 16}[static_cast<std::size_t>(random.integer(0, 3))];
  std::vector<std::int64_t> before(static_cast<std::size_t>(c.sequences));
  for (auto& n : before) n = random.integer(0, 40);
  st.position = before;
  const index_t most = testing::length_of(c.x.op) / st.interval + 1, slots = c.sequences * most;
  auto list = drawn_slots(random, slots);
  st.boundary_slots = view<const std::int32_t, 2>(list, {c.sequences, most});
  for (const way& how : kept_ways<Op>()) {
    CAPTURE(how, st.interval);
    for_boundaries(st, [&](auto& kept, auto&, auto&) { c.give(kept, slots); });
    const auto got = testing::run<S>(how, c.x.op, st, where);
    const bool fixed = by_tokens<Op>(how) || how.kind != way::kind::forward;
    index_t written = 0;
    for (index_t s = 0; s < c.sequences; ++s) {
      const index_t live = live_tokens(c.x.op, s), begin = before[static_cast<std::size_t>(s)];
      const std::array first{begin};
      auto alone = state_alone(c.given, s);
      alone.interval = st.interval;
      alone.position = std::span<const std::int64_t>(first);
      index_t number = 0;
      for (index_t t = 1; t <= live; ++t) {
        if ((begin + t) % st.interval != 0) continue;
        const index_t slot = st.boundary_slots(s, number++);
        if (slot < 0) continue;
        CAPTURE(s, t, slot);
        ++written;
        check_kept<S, Op>(st, slot, run_until<S>(how, c, alone, s, t, where), sequence_alone(c.x.op, s, 0, t),
                          state_alone(c.given, s), fixed, [](auto& own, const auto& f) { for_boundaries(own, f); });
        if (!fixed || !std::is_same_v<S, sweep_t<typename Op::scalar, S>>) continue;
        const std::array now{begin + t};
        auto restart = alone;
        restart.position = std::span<const std::int64_t>(now);
        restart.initial = st.boundaries.slice(0, slot, 1);
        if constexpr (requires { restart.z_initial; }) {
          if (st.z_boundaries.present()) restart.z_initial = st.z_boundaries.slice(0, slot, 1);
        }
        const auto rest = testing::run<S>(how, sequence_alone(c.x.op, s, t, live - t), restart, where);
        const index_t row = c.x.op.offsets.present() ? 0 : s;
        const index_t at = (c.x.op.offsets.present() ? c.x.op.offsets.at(s) : 0) + t;
        CHECK(testing::difference(rest.o, got.o.slice(0, row, 1).slice(1, at, live - t)) == "");
        CHECK(testing::difference(rest.st.final, got.st.final.slice(0, s, 1)) == "");
      }
    }
    index_t touched = 0;
    for (index_t slot = 0; slot < slots; ++slot) touched += untouched(st.boundaries[slot]) ? 0 : 1;
    CHECK(touched == written);
    CHECK(c.room.gaps_untouched());
  }
}

/// Both, on pools K-first and V-first, and of other types.
template <class Op, class... Others>
void check_kept_states(std::uint64_t seed, int trials = 6) {
  using Acc = accum_t<typename Op::scalar>;
  testing::for_seeds(seed, trials, [](std::uint64_t s) {
    CAPTURE(s);
    for (const testing::layout where : {testing::layout::dense, testing::layout::turned}) {
      CAPTURE(static_cast<int>(where));
      check_snapshots<Op, Acc>(s, where);
      check_boundaries<Op, Acc>(s, where);
    }
    (check_snapshots<Op, Others>(s, testing::layout::dense), ...);
    (check_boundaries<Op, Others>(s, testing::layout::turned), ...);
  });
}

}  // namespace ogive::tests

// The laws that every operator keeps, stated once. An operator inherits them through its `sampler`.
//
// A law draws arguments of odd sizes from a seed, runs the operator in some of its ways, and writes what it found into
// a report. Numbers are held to bounds that follow from the type, the number of roundings and the magnitude of the
// terms of each output; everything that is promised to the bit is compared to the bit.
#pragma once

#include <ogive/testing/trials.hpp>

namespace ogive::testing {

/// What a law found. `text()` lists the first failures.
class report {
 public:
  bool ok() const noexcept { return failures_ == 0 && checks_ > 0; }
  index_t checks() const noexcept { return checks_; }
  std::string text() const {
    std::ostringstream out;
    out << failures_ << " of " << checks_ << " checks failed\n" << text_.str();
    return out.str();
  }
  template <class... Words>
  void expect(bool holds, const Words&... words) {
    ++checks_;
    if (holds || ++failures_ > 5) return;
    (text_ << ... << words) << "\n";
  }
  /// Expects that a fault, in words, is empty; `where` says what was looked at.
  template <class... Where>
  void none(const std::string& fault, const Where&... where) {
    expect(fault.empty(), where..., ": ", fault);
  }

 private:
  index_t checks_ = 0;
  index_t failures_ = 0;
  std::ostringstream text_;
};

/// A law: `check(seed, found)`.
struct law {
  const char* name;
  void (*check)(std::uint64_t seed, report& found);
};

namespace detail {

/// Every form, chunk and way to step gives what the definition says, and both definitions agree.
template <class Op, class S>
void forms_equal_the_definition(std::uint64_t seed, report& found) {
  for_seeds(seed, 9, [&](std::uint64_t s) {
    constexpr bool packs = requires { std::declval<Op>().offsets; };
    const auto variant = s % 3;
    trial<Op> x(s, 100, variant == 2 ? 1 : 0);
    if (variant == 1) x.shorten();
    if constexpr (packs) {
      if (variant == 2) x.pack();
      if (variant == 2 && coin(x.random)) x.shorten();
    }
    auto given = draw_state<S>(x.random, x.room, x.op, sequence_count(x.op));
    if (coin(x.random)) given = {};
    const definition<Op, S> expected(x.op, given);
    if (expected.o_masked.present()) {
      const std::string gap = excess(expected.o, expected.o_masked, expected.o_size, expected.relative);
      found.none(gap, x, "the two definitions");
    }
    for (const way& how : ways<Op>()) {
      if (how.kind == way::kind::steps && variant != 0) continue;
      const auto got = run<S>(how, x.op, given);
      const std::string gap =
          expected.excess(got, how.kind == way::kind::steps || how.kind == way::kind::step ? length_of(x.op) : 1);
      found.none(gap, x, how);
      found.expect(got.room.gaps_untouched() && x.room.gaps_untouched(), x, how, ": wrote beside its outputs");
      if constexpr (timeless<Op>) {
        const std::string other = expected.excess(run_without_final<S>(how, x.op, given), 1);
        found.none(other, x, how, ", final state not wanted");
      }
    }
  });
}

/// Splitting the sequence and carrying the state changes nothing: to the bit at chunk boundaries, and in sweeps
/// anywhere, or between tokens that are taken together; else rounding.
template <class Op>
void splitting_changes_nothing(std::uint64_t seed, report& found) {
  using S = storage_of<Op>;
  for_seeds(seed, 6, [&](std::uint64_t s) {
    trial<Op> x(s);
    const index_t L = length_of(x.op);
    const auto given = draw_state<S>(x.random, x.room, x.op, sequence_count(x.op));
    const definition<Op> expected(x.op, given);
    for (const way& how : ways<Op>()) {
      const index_t unit = how.chunk > 0 ? how.chunk : 64;
      const bool any_cut = how.kind == way::kind::recurrent || how.kind == way::kind::steps;
      const auto whole = run<S>(how, x.op, given);
      for (const index_t cut : {x.random.integer(0, L), L / unit * unit, std::min(L, unit)}) {
        const auto head = run<S>(how, tokens_of(x.op, 0, cut), given);
        auto carried = head.st;
        for_pools(carried, [](auto& initial, auto& final) { initial = final; });
        const auto tail = run<S>(how, tokens_of(x.op, cut, L - cut), carried);
        outcome<Op, S> joined{memory()};
        joined.st = tail.st;
        joined.o = joined.room.template take<typename Op::scalar>(whole.o.extents());
        memory::assign(joined.o.slice(1, 0, cut), head.o);
        memory::assign(joined.o.slice(1, cut, L - cut), tail.o);
        const std::string gap = expected.excess(joined, how.kind == way::kind::steps ? L : 2);
        found.none(gap, x, how, ", cut at ", cut);
        if (!any_cut && (how.kind != way::kind::chunked || cut % unit != 0)) continue;
        if (folds<Op>(how) && cut % (how.chunk > 0 ? how.chunk : 4) != 0) continue;
        const std::string bits = difference(joined, whole);
        found.none(bits, x, how, ", cut at ", cut, ", to the bit");
      }
    }
  });
}

/// Any strides, of arguments, outputs and states, give the same bits. A V-first state may be summed over in another
/// order: to read o, and to write where a write depends on what was read.
template <class Op>
void strides_change_nothing(std::uint64_t seed, report& found) {
  using S = storage_of<Op>;
  constexpr bool corrects = requires { sampler<Op>::corrects; };
  for_seeds(seed, 4, [&](std::uint64_t s) {
    trial<Op> x(s, 70);
    const auto given = draw_state<S>(x.random, x.room, x.op, sequence_count(x.op));
    const definition<Op> expected(x.op, given);
    for (const way& how : ways<Op>()) {
      const auto dense = run<S>(how, x.op, given);
      for (const layout where : all_layouts) {
        memory room(where);
        auto elsewhere = given;
        for_pools(elsewhere, [&](auto& initial, auto&) { initial = room.copy(initial); });
        const auto got = run<S>(how, copy_of(x.op, room), elsewhere, where);
        const bool stepped =
            how.kind == way::kind::step || how.kind == way::kind::steps || how.kind == way::kind::forward;
        const bool turned = stepped && where == layout::turned;
        std::string gap;
        if (!turned) gap = difference(got, dense);
        if (turned && !corrects) gap = difference_of_states(got, dense);
        if (turned && gap.empty()) gap = expected.excess(got, length_of(x.op));
        found.none(gap, x, how, ", layout ", static_cast<int>(where));
        found.expect(got.room.gaps_untouched(), x, how, ", layout ", static_cast<int>(where), ": wrote into gaps");
        const auto crossed = run<S>(how, x.op, elsewhere);
        gap = turned && corrects ? expected.excess(crossed, length_of(x.op)) : difference_of_states(crossed, dense);
        found.none(gap, x, how, ", initial state in layout ", static_cast<int>(where));
      }
    }
  });
}

/// Nothing is read that was not written: scratch full of NaN, of the size that `scratch_bytes` says, changes no bit.
template <class Op>
void scratch_is_not_read(std::uint64_t seed, report& found) {
  using S = storage_of<Op>;
  for_seeds(seed, 6, [&](std::uint64_t s) {
    trial<Op> x(s);
    auto given = draw_state<S>(x.random, x.room, x.op, sequence_count(x.op));
    if (coin(x.random)) given = {};
    for (const way& how : ways<Op>()) {
      context own;
      const std::string gap = difference(run<S>(how, x.op, given, own), run<S>(how, x.op, given));
      found.none(gap, x, how);
    }
  });
}

/// The same bits for any number of threads, forked or in a team.
template <class Op>
void threads_change_nothing(std::uint64_t seed, report& found) {
  using S = storage_of<Op>;
  for_seeds(seed, 3, [&](std::uint64_t s) {
    trial<Op> x(s);
    const auto given = draw_state<S>(x.random, x.room, x.op, sequence_count(x.op));
    thread_pool pool;
    for (const way& how : ways<Op>()) {
      if (how.kind == way::kind::steps) continue;
      const auto serial = run<S>(how, x.op, given);
      for (const int workers : {2, 3, 8}) {
        context forked = context::fork_join(pool, workers);
        const std::string gap = difference(run<S>(how, x.op, given, forked), serial);
        found.none(gap, x, how, ", ", workers, " workers");
      }
      constexpr int members = 3;
      const auto check_team = [&](const char* name, const auto& run) {
        outcome<Op, S> together{memory()};
        together.st = given;
        give_finals(together.room, x.op, sequence_count(x.op), together.st);
        together.o = together.room.template take<typename Op::scalar>(sampler<Op>::output(x.op));
        run([&](context& mine) { call(how, x.op, together.st, together.o, mine); });
        const std::string gap = difference(together, serial);
        found.none(gap, x, how, name);
      };
      check_team(", a team", [&](const auto& body) { run_team(pool, members, body); });
      check_team(", a team, last member first", [&](const auto& body) { run_team_backwards(pool, members, body); });
    }
  });
}

/// Gates that forget everything, next to nothing, or grow stay right.
template <class Op>
void strong_gates_stay_right(std::uint64_t seed, report& found) {
  using S = storage_of<Op>;
  for_seeds(seed, 8, [&](std::uint64_t s) {
    trial<Op> x(s);
    sampler<Op>::harden(x.random, x.op);
    const auto given = draw_state<S>(x.random, x.room, x.op, sequence_count(x.op));
    const definition<Op> expected(x.op, given);
    for (const way& how : ways<Op>()) {
      const std::string gap = expected.excess(run<S>(how, x.op, given), length_of(x.op));
      found.none(gap, x, how);
    }
  });
}

/// The future never changes the past, nor one sequence another, to the bit: NaN and infinity included. What is
/// padding or masked changes nothing at all. By transforms a sequence is one: there the past is not asked.
template <class Op>
void the_future_is_not_seen(std::uint64_t seed, report& found) {
  using S = storage_of<Op>;
  constexpr double poisons[] = {1e3, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()};
  for_seeds(seed, 4, [&](std::uint64_t s) {
    trial<Op> x(s, 70);
    const index_t L = length_of(x.op);
    const index_t B = sequence_count(x.op);
    const auto given = draw_state<S>(x.random, x.room, x.op, B);
    for (const way& how : ways<Op>()) {
      const auto clean = run<S>(how, x.op, given);
      for (const double poison : poisons) {
        const index_t cut = x.random.integer(0, L);
        memory room;
        const Op changed = copy_of(x.op, room);
        poison_tokens(changed, sampler<Op>::tokens, B - 1, cut, L - cut, poison);
        const auto got = run<S>(how, changed, given);
        std::string gap;
        if (how.kind != way::kind::convolution) {
          gap = difference(got.o.slice(0, B - 1, 1).slice(1, 0, cut), clean.o.slice(0, B - 1, 1).slice(1, 0, cut));
        }
        found.none(gap, x, how, ", ", poison, " from ", cut, " on");
        gap = difference(got.o.slice(0, 0, B - 1), clean.o.slice(0, 0, B - 1));
        found.none(gap, x, how, ", ", poison, " in the last sequence, others");
        gap = difference(got.st.final.slice(0, 0, B - 1), clean.st.final.slice(0, 0, B - 1));
        found.none(gap, x, how, ", ", poison, " in the last sequence, states of others");
      }
    }
    x.shorten();
    if constexpr (requires { x.op.key_mask; }) {
      for (index_t b = 0; x.op.key_mask.present() && b < B; ++b) {
        for (index_t t = 0; t < L; ++t) {
          if (x.op.key_mask(b, t)) continue;
          poison_tokens(x.op, std::tuple(&Op::k, &Op::v), b, t, 1, poisons[2]);
        }
      }
    }
    for (const way& how : ways<Op>()) {
      if (how.kind == way::kind::steps) continue;
      const auto clean = run<S>(how, x.op, given);
      memory room;
      const Op changed = copy_of(x.op, room);
      for (index_t b = 0; b < B; ++b) {
        const index_t real = x.lengths[static_cast<std::size_t>(b)];
        poison_tokens(changed, sampler<Op>::tokens, b, real, L - real, poisons[2]);
      }
      const auto got = run<S>(how, changed, given);
      std::string gap = difference_of_states(got, clean);
      found.none(gap, x, how, ", NaN in the padding");
      for (index_t b = 0; b < B; ++b) {
        const index_t real = x.lengths[static_cast<std::size_t>(b)];
        gap = difference(got.o.slice(0, b, 1).slice(1, 0, real), clean.o.slice(0, b, 1).slice(1, 0, real));
        found.none(gap, x, how, ", NaN in the padding of sequence ", b);
      }
      const auto no_nan = [](const std::vector<double>& numbers) {
        return std::none_of(numbers.begin(), numbers.end(), [](double number) { return std::isnan(number); });
      };
      found.expect(no_nan(flatten(clean.st.final)) && no_nan(flatten(clean.o)), x, how,
                   ": the NaN of a masked token was looked at");
    }
  });
}

/// Packed sequences give what each gives alone, to the bit.
template <class Op>
void packed_equals_alone(std::uint64_t seed, report& found) {
  using S = storage_of<Op>;
  for_seeds(seed, 5, [&](std::uint64_t s) {
    trial<Op> x(s, 100, 1);
    const Op row = x.op;
    x.pack();
    const index_t n = sequence_count(x.op);
    const auto given = draw_state<S>(x.random, x.room, x.op, n);
    for (const way& how : ways<Op>()) {
      // The last two may choose by the length of the row.
      if (how.kind == way::kind::steps || how.kind == way::kind::forward || how.kind == way::kind::convolution) {
        continue;
      }
      const auto packed = run<S>(how, x.op, given);
      for (index_t i = 0; i < n; ++i) {
        const index_t begin = x.op.offsets.at(i);
        const index_t count = x.op.offsets.at(i + 1) - begin;
        Op alone = tokens_of(row, begin, count);
        if constexpr (requires { alone.position; }) alone.position = row.position;
        auto own = given;
        for_pools(own, [&](auto& initial, auto&) {
          if (initial.present()) initial = initial.slice(0, i, 1);
        });
        const auto got = run<S>(how, alone, own);
        std::string gap = difference(packed.o.slice(1, begin, count), got.o);
        found.none(gap, x, how, ", sequence ", i);
        gap = difference(packed.st.final.slice(0, i, 1), got.st.final);
        found.none(gap, x, how, ", state of sequence ", i);
      }
      const index_t spoiled = x.random.integer(0, n - 1);
      memory room;
      const Op changed = copy_of(x.op, room);
      const index_t first = x.op.offsets.at(spoiled);
      poison_tokens(changed, sampler<Op>::tokens, 0, first, x.op.offsets.at(spoiled + 1) - first,
                    std::numeric_limits<double>::quiet_NaN());
      const auto got = run<S>(how, changed, given);
      for (index_t i = 0; i < n; ++i) {
        if (i == spoiled) continue;
        const index_t begin = x.op.offsets.at(i);
        const index_t count = x.op.offsets.at(i + 1) - begin;
        found.none(difference(got.o.slice(1, begin, count), packed.o.slice(1, begin, count)), x, how,
                   ", NaN in sequence ", spoiled, ", sequence ", i);
        found.none(difference(got.st.final.slice(0, i, 1), packed.st.final.slice(0, i, 1)), x, how,
                   ", NaN in sequence ", spoiled, ", state of sequence ", i);
      }
    }
  });
}

/// A state means the same wherever it lies: in place, slot to slot in any order, absent for zero, not wanted; without
/// an output it still advances. To the bit, except that an automatic choice of form or chunk may look at what is given.
template <class Op>
void states_mean_the_same_anywhere(std::uint64_t seed, report& found) {
  using S = storage_of<Op>;
  for_seeds(seed, 6, [&](std::uint64_t s) {
    trial<Op> x(s);
    const index_t B = sequence_count(x.op);
    const auto given = draw_state<S>(x.random, x.room, x.op, B);
    const index_t slots = B + 2;
    std::vector<std::int32_t> from, to;
    for (index_t b = 0; b < B; ++b) {
      from.push_back(static_cast<std::int32_t>((b + 1) % slots));
      to.push_back(static_cast<std::int32_t>(slots - 1 - b));
    }
    auto pooled = draw_state<S>(x.random, x.room, x.op, slots);
    const auto scatter = [&](auto& pool, const auto& plain) {
      const auto own = x.room.copy(pool);
      for (index_t b = 0; b < B; ++b) memory::assign(own[from[static_cast<std::size_t>(b)]], plain[b]);
      pool = own;
    };
    scatter(pooled.initial, given.initial);
    if constexpr (requires { given.z_initial; }) scatter(pooled.z_initial, given.z_initial);
    pooled.initial_slots = view<const std::int32_t, 1>(from);
    pooled.final_slots = view<const std::int32_t, 1>(to);

    for (const way& how : ways<Op>()) {
      context serial;
      const auto plain = run<S>(how, x.op, given);
      const auto slotted = run<S>(how, x.op, pooled, serial, layout::dense, slots);
      std::string gap = difference(slotted.o, plain.o);
      found.none(gap, x, how, ", slots");
      for (index_t b = 0; b < B; ++b) {
        gap = difference(slotted.st.final.slice(0, to[static_cast<std::size_t>(b)], 1), plain.st.final.slice(0, b, 1));
        found.none(gap, x, how, ", final slot of sequence ", b);
      }

      outcome<Op, S> placed{memory()};
      placed.o = placed.room.template take<typename Op::scalar>(plain.o.extents());
      placed.st = given;
      give_finals(placed.room, x.op, B, placed.st);
      begin_in_place(placed.st, B);
      call(how, x.op, placed.st, placed.o, serial);
      gap = difference(placed, plain);
      found.none(gap, x, how, ", in place");

      outcome<Op, S> silent{memory()};
      silent.st = given;
      give_finals(silent.room, x.op, B, silent.st);
      call(how, x.op, silent.st, silent.o, serial);
      gap = difference_of_states(silent, plain);
      found.none(gap, x, how, ", without o");

      auto zeros = given;
      for_pools(zeros, [&](auto& initial, auto&) {
        if (!initial.present()) return;
        const auto zero = x.room.copy(initial);
        for_each(zero, [](auto& number, index_t) { number = S(0.0F); });
        initial = zero;
      });
      const auto from_zero = run<S>(how, x.op, zeros);
      const bool fixed = how.kind != way::kind::forward && (how.kind != way::kind::chunked || how.chunk > 0);
      const auto absent = run<S>(how, x.op, state_for<Op, S>{});
      gap = fixed ? difference(absent, from_zero) : definition<Op>(x.op, {}).excess(absent, 1);
      found.none(gap, x, how, ", no initial state against zeros");
      if (how.kind == way::kind::steps) continue;  // they carry the state in the pool
      const auto unwanted = run_without_final<S>(how, x.op, given);
      gap = fixed ? difference(unwanted.o, plain.o) : definition<Op>(x.op, given).excess(unwanted, 1);
      found.none(gap, x, how, ", final state not wanted");

      const std::vector<std::int32_t> none(static_cast<std::size_t>(B), -1);
      auto discarded = pooled;
      discarded.initial_slots = discarded.final_slots = view<const std::int32_t, 1>(none);
      gap = difference(run<S>(how, x.op, discarded, serial, layout::dense, slots).o, from_zero.o);
      found.none(gap, x, how, ", slots -1 against zeros");
    }

    const Op nothing = tokens_of(x.op, 0, 0);
    for (const way& how : ways<Op>()) {
      const auto kept = run<S>(how, nothing, given);
      bool same = true;
      for_pools(kept.st, [&](const auto& initial, const auto& final) {
        same = same && (!initial.present() || flatten(initial) == flatten(final));
      });
      found.expect(same, x, how, ", no tokens: the state has changed");
    }
  });
}

/// What does not fit is refused by name, before anything is written.
template <class Op>
void misfits_are_refused(std::uint64_t seed, report& found) {
  using S = storage_of<Op>;
  using State = state_for<Op, S>;
  static_assert(noexcept(check(std::declval<const Op&>(), std::declval<const State&>(), output_view<Op>())));
  static_assert(noexcept(step(prechecked, std::declval<const Op&>(), std::declval<const State&>(), output_view<Op>())));
  for_seeds(seed, 3, [&](std::uint64_t s) {
    trial<Op> x(s, 33);
    const index_t B = sequence_count(x.op);
    const index_t L = length_of(x.op);
    outcome<Op, S> target{memory()};
    target.st = draw_state<S>(x.random, x.room, x.op, B);
    give_finals(target.room, x.op, B, target.st);
    target.o = target.room.template take<typename Op::scalar>(sampler<Op>::output(x.op));
    context serial;
    const auto refused = [&](const char* what, const Op& op, const State& st, const output_view<Op>& o,
                             options how = {}) {
      const status asked = check(op, st, o, how);
      found.expect(!asked && std::string(asked.text()).find(Op::name) != std::string::npos, x, what,
                   " passed the check, or its text does not name the operator: ", asked.text());
      const auto throws = [&](const auto& verb) {
        try {
          verb();
          found.expect(false, x, what, " was not refused");
        } catch (const std::invalid_argument& error) {
          found.expect(std::string(error.what()) == asked.text(), x, what, ": another text: ", error.what());
        }
      };
      throws([&] { forward(op, st, o, how, serial); });
      throws([&] { recurrent(op, st, o, how, serial); });
      throws([&] { step(op, st, o, how, serial); });
      if constexpr (has_chunks<Op>) throws([&] { chunked(op, st, o, how, serial); });
      if constexpr (has_convolution<Op>) throws([&] { convolution(op, st, o, how, serial); });
    };

    const Op& op = x.op;
    const State& st = target.st;
    std::apply(
        [&](const auto... member) {
          const auto cut = [&](auto field) {
            if (!(op.*field).present()) return;
            Op bad = op;
            bad.*field = (op.*field).slice(1, 0, L - 1);
            refused("a field that is one token short", bad, st, target.o);
          };
          (cut(member), ...);
        },
        sampler<Op>::tokens);
    refused("an output that is one token short", op, st, target.o.slice(1, 0, L - 1));
    refused("a chunk of -1", op, st, target.o, {.chunk = -1});
    if (L > 1) {
      shape<output_rank<Op>> strides = target.o.strides();
      strides[1] = 0;
      refused("an output of stride 0", op, st, output_view<Op>(target.o.data(), target.o.extents(), strides));
    }
    Op bad = op;
    const std::vector<std::int32_t> wrong{0, static_cast<std::int32_t>(L + 1)};
    bad.offsets = wrong;
    refused("offsets beyond the end", bad, st, target.o);
    bad = op;
    const std::vector<std::int32_t> many(static_cast<std::size_t>(B + 1), 0);
    bad.lengths = many;
    refused("one length too many", bad, st, target.o);
    const std::vector<std::int32_t> outside(static_cast<std::size_t>(B), static_cast<std::int32_t>(B));
    State off = st;
    off.final_slots = view<const std::int32_t, 1>(outside);
    refused("a slot outside the pool", op, off, target.o);
    off = st;
    constexpr std::size_t row = std::min<std::size_t>(2, decltype(st.initial)::rank - 1);
    off.initial = st.initial.slice(row, 0, st.initial.extent(row) - 1);
    refused("a state that is a row short", op, off, target.o);
    const auto untouched = [](const auto& x_view) {
      bool all = true;
      for (const double number : flatten(x_view)) all = all && std::isnan(number);
      return all;
    };
    found.expect(untouched(target.o) && untouched(target.st.final), x, "a refused call has written");
  });
}

/// Where keys have no order: what is masked, padded or beyond a row's sight changes no bit, NaN included.
template <class Op>
void unseen_keys_are_not_looked_at(std::uint64_t seed, report& found) {
  using S = storage_of<Op>;
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  for_seeds(seed, 8, [&](std::uint64_t s) {
    trial<Op> x(s);
    x.shorten();
    const index_t B = sequence_count(x.op);
    const auto given = draw_state<S>(x.random, x.room, x.op, B);
    for (const way& how : ways<Op>()) {
      const auto clean = run<S>(how, x.op, given);
      memory room;
      const Op changed = copy_of(x.op, room);
      for (index_t b = 0; b < B; ++b) {
        const index_t real = x.lengths[static_cast<std::size_t>(b)];
        poison_tokens(changed, sampler<Op>::keys, b, real, key_length(x.op) - real, nan);
        if constexpr (requires { changed.key_mask; }) {
          for (index_t j = 0; changed.key_mask.present() && j < key_length(x.op); ++j) {
            if (!changed.key_mask(b, j)) poison_tokens(changed, sampler<Op>::keys, b, j, 1, nan);
          }
        }
      }
      std::string gap = difference(run<S>(how, changed, given), clean);
      found.none(gap, x, how, ", NaN in keys that do not count");
      if constexpr (requires { changed.causal; }) {
        const index_t cut = x.random.integer(0, key_length(x.op));
        if (!changed.causal) continue;
        for (index_t b = 0; b < B; ++b) {
          poison_tokens(changed, sampler<Op>::keys, b, cut, key_length(x.op) - cut, nan);
        }
        const index_t rows = std::clamp<index_t>(cut - x.op.position, 0, length_of(x.op));
        gap = difference(run<S>(how, changed, given).o.slice(1, 0, rows), clean.o.slice(1, 0, rows));
        found.none(gap, x, how, ", NaN in keys from ", cut, " on");
      }
    }
  });
}

/// Where keys have no order: the state of some keys, given as the initial one of the others, makes all keys.
template <class Op>
void states_stand_for_keys(std::uint64_t seed, report& found) {
  using S = storage_of<Op>;
  for_seeds(seed, 6, [&](std::uint64_t s) {
    trial<Op> x(s);
    const auto given = draw_state<S>(x.random, x.room, x.op, sequence_count(x.op));
    const definition<Op> expected(x.op, given);
    const index_t cut = x.random.integer(0, key_length(x.op));
    const auto part = [&](index_t begin, index_t count) {
      Op some = x.op;
      for_fields(some, sampler<Op>::keys, [&](auto& field) {
        if (field.present()) field = field.slice(1, begin, count);
      });
      return some;
    };
    for (const way& how : ways<Op>()) {
      const auto first = run<S>(how, part(0, cut), given);
      auto carried = first.st;
      for_pools(carried, [](auto& initial, auto& final) { initial = final; });
      const std::string gap = expected.excess(run<S>(how, part(cut, key_length(x.op) - cut), carried), 2);
      found.none(gap, x, how, ", keys cut at ", cut);
    }
  });
}

/// What does not fit is refused by name, before anything is written; of operators with `forward` alone.
template <class Op>
void forward_refuses_misfits(std::uint64_t seed, report& found) {
  for_seeds(seed, 3, [&](std::uint64_t s) {
    trial<Op> x(s, 33);
    memory room;
    const auto o = room.template take<typename Op::scalar>(sampler<Op>::output(x.op));
    const auto refused = [&](const char* what, const Op& op, const output_view<Op>& out, options how = {}) {
      const auto with = [&](const auto&... st) {
        const status asked = check(op, st..., out, how);
        static_assert(noexcept(check(op, st..., out, how))&& noexcept(forward(prechecked, op, st..., out, how)));
        found.expect(!asked && std::string(asked.text()).find(Op::name) != std::string::npos, x, what,
                     " passed the check, or its text does not name the operator: ", asked.text());
        try {
          forward(op, st..., out, how);
          found.expect(false, x, what, " was not refused");
        } catch (const std::invalid_argument& error) {
          found.expect(std::string(error.what()) == asked.text(), x, what, ": another text: ", error.what());
        }
      };
      if constexpr (with_state<Op>) {
        with(state_for<Op, storage_of<Op>>{});
      } else {
        with();
      }
    };
    refused("an output that is one token short", x.op, o.slice(1, 0, length_of(x.op) - 1));
    refused("a chunk of -1", x.op, o, {.chunk = -1});
    refused("a form that there is not", x.op, o, {.form = form::chunked});
    Op bad = x.op;
    bad.v = x.op.v.slice(1, 0, key_length(x.op) - 1);
    refused("values that are fewer than keys", bad, o);
    bad = x.op;
    const std::vector<std::int32_t> many(static_cast<std::size_t>(sequence_count(x.op) + 1), 0);
    bad.lengths = many;
    refused("one length too many", bad, o);
    for (const double number : flatten(o)) found.expect(std::isnan(number), x, "a refused call has written");
  });
}

}  // namespace detail

/// The laws of an operator, for `for (const law& one : laws<Op>()) …`.
template <class Op>
std::vector<law> laws() {
  using S = storage_of<Op>;
  std::vector<law> all{{"every form equals the definition", detail::forms_equal_the_definition<Op, S>},
                       {"strides change nothing", detail::strides_change_nothing<Op>},
                       {"scratch is not read", detail::scratch_is_not_read<Op>},
                       {"threads change nothing", detail::threads_change_nothing<Op>}};
  if constexpr (timeless<Op>) {
    all.push_back({"unseen keys are not looked at", detail::unseen_keys_are_not_looked_at<Op>});
    all.push_back({"misfits are refused", detail::forward_refuses_misfits<Op>});
    if constexpr (with_state<Op>) {
      if (!sampler<Op>::positioned) all.push_back({"states stand for keys", detail::states_stand_for_keys<Op>});
    }
  } else {
    all.push_back({"splitting the sequence changes nothing", detail::splitting_changes_nothing<Op>});
    all.push_back({"the future is not seen", detail::the_future_is_not_seen<Op>});
    all.push_back({"packed equals alone", detail::packed_equals_alone<Op>});
    all.push_back({"states mean the same anywhere", detail::states_mean_the_same_anywhere<Op>});
    all.push_back({"misfits are refused", detail::misfits_are_refused<Op>});
  }
  if constexpr (requires(rng random, Op op) { sampler<Op>::harden(random, op); }) {
    all.push_back({"strong gates stay right", detail::strong_gates_stay_right<Op>});
  }
  return all;
}

/// The first law once more, with states kept in S.
template <class Op, class S>
law law_of_states() {
  return {"every form equals the definition, states of another type", detail::forms_equal_the_definition<Op, S>};
}

}  // namespace ogive::testing

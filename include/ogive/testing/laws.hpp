// The laws that every operator keeps, stated once. An operator inherits them through its `sampler`.
//
// A law draws arguments of odd sizes from a seed, runs the operator in some of its ways, and writes what it found into
// a report. Numbers are held to bounds that follow from the type, the number of roundings and the magnitude of the
// terms of each output; everything that is promised to the bit is compared to the bit.
#pragma once

#include <ogive/core/context.hpp>
#include <ogive/reference/layout.hpp>
#include <ogive/testing/samplers.hpp>

#include <barrier>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

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

/// A fork-join pool that starts a thread for every worker.
struct thread_pool {
  void operator()(int workers, const worker_body& body) const {
    std::vector<std::thread> threads;
    for (int worker = 0; worker < workers; ++worker) threads.emplace_back([&body, worker] { body(worker); });
    for (std::thread& one : threads) one.join();
  }
};

/// One way to run an operator.
struct way {
  enum class kind { recurrent, chunked, forward, step, steps };
  way::kind kind;  ///< `step` takes all tokens in one call, `steps` one by one
  index_t chunk = 0;
  ogive::form form = ogive::form::automatic;

  options how() const noexcept { return {.form = form, .chunk = chunk}; }

  friend std::ostream& operator<<(std::ostream& out, const way& w) {
    constexpr const char* kinds[] = {"recurrent", "chunked", "forward", "step", "step by step"};
    constexpr const char* forms[] = {"", ", left", ", right", ", recurrent", ", chunked"};
    out << kinds[static_cast<std::size_t>(w.kind)] << forms[static_cast<std::size_t>(w.form)];
    return w.chunk > 0 ? out << " in chunks of " << w.chunk : out;
  }
};

namespace detail {

/// Stands for the state of an operator that has none.
template <class S>
struct no_state {
  using storage_type = S;
  view<const S, 1> initial{};
  view<S, 1> final{};
};

template <class Op>
concept with_state = requires {
  typename Op::default_state;
};
/// Keys with a length of their own: no order of tokens, no verbs but forward.
template <class Op>
concept timeless = requires {
  sampler<Op>::keys;
};

template <class Op>
struct state_types {
  template <class S>
  using of = no_state<S>;
  using storage = accum_t<typename Op::scalar>;
};
template <with_state Op>
struct state_types<Op> {
  template <class S>
  using of = typename Op::template state_of<S>;
  using storage = typename Op::default_state::storage_type;
};
template <class Op>
using storage_of = typename state_types<Op>::storage;
template <class Op, class S>
using state_for = typename state_types<Op>::template of<S>;

/// double, or a complex number of doubles where S is complex.
template <class S>
using widest = decltype(reference::lift<double>(std::declval<S>()));

template <class Op>
inline constexpr std::size_t output_rank = std::tuple_size_v<decltype(sampler<Op>::output(std::declval<const Op&>()))>;
template <class Op>
using output_view = view<typename Op::scalar, output_rank<Op>>;
template <class Op>
inline constexpr bool has_chunks = requires(const Op& op, output_view<Op> o) {
  chunked(op, {}, o);
};

template <class Op>
std::vector<way> ways() {
  if constexpr (!with_state<Op>) {
    return {{way::kind::forward}};
  } else if constexpr (timeless<Op>) {
    return {{way::kind::forward, 0, form::left}, {way::kind::forward, 0, form::right}, {way::kind::forward}};
  } else {
    std::vector<way> all{
        {way::kind::recurrent}, {way::kind::recurrent, 3}, {way::kind::forward}, {way::kind::step}, {way::kind::steps}};
    if constexpr (requires { sampler<Op>::left_product; }) all.push_back({way::kind::forward, 0, form::left});
    if constexpr (has_chunks<Op>) {
      for (const index_t chunk : {0, 1, 2, 3, 7, 16, 17, 64}) all.push_back({way::kind::chunked, chunk});
    }
    return all;
  }
}

template <class State, class F>
void for_pools(State& st, const F& f) {
  f(st.initial, st.final);
  if constexpr (requires { st.z_initial; }) f(st.z_initial, st.z_final);
}

/// Whether the state has a z: only where the operator normalises.
template <class Op>
bool with_z(const Op& op) {
  if constexpr (requires { op.normalise; }) return op.normalise;
  return false;
}

/// {slots, …} with as many axes as the pool has.
template <std::size_t Rank, std::size_t Held>
shape<Rank> pool_extents(index_t slots, const shape<Held>& slot) {
  shape<Rank> extents{slots};
  std::copy_n(slot.begin(), Rank - 1, extents.begin() + 1);
  return extents;
}

/// A state that starts somewhere: S of either sign, z positive.
template <class S, class Op>
state_for<Op, S> draw_state(rng& random, memory& room, const Op& op, index_t slots) {
  state_for<Op, S> st;
  if constexpr (with_state<Op>) {
    st.initial = draw_uniform<S>(random, room, pool_extents<decltype(st.initial)::rank>(slots, sampler<Op>::slot(op)));
  }
  if constexpr (requires { st.z_initial; }) {
    if (with_z(op)) st.z_initial = draw_uniform<S>(random, room, pool_extents<3>(slots, sampler<Op>::slot(op)), 0.5, 2);
  }
  return st;
}

/// Final pools to write to, all 0xFF.
template <class Op, class State>
void give_finals(memory& room, const Op& op, index_t slots, State& st) {
  if constexpr (!with_state<Op>) return;
  const auto give = [&](auto& final) {
    using View = std::remove_cvref_t<decltype(final)>;
    if constexpr (with_state<Op>) {
      final = room.template take<typename View::element_type>(pool_extents<View::rank>(slots, sampler<Op>::slot(op)));
    }
  };
  give(st.final);
  if constexpr (requires { st.z_final; }) {
    if (with_z(op)) give(st.z_final);
  }
}

template <class Op>
index_t sequence_count(const Op& op) {
  if constexpr (requires { op.offsets; }) {
    if (op.offsets.present()) return op.offsets.size() - 1;
  }
  return sampler<Op>::output(op)[0];
}

template <class Op>
index_t length_of(const Op& op) {
  return sampler<Op>::output(op)[1];
}

/// The length of keys, which is that of the sequence unless keys have one of their own.
template <class Op>
index_t key_length(const Op& op) {
  return (op.*std::get<0>(keys_of<Op>())).extent(1);
}

/// Final pools that hold what the initial ones do, so that a state can be advanced in place.
template <class State>
void begin_in_place(State& st, index_t sequences) {
  for_pools(st, [&](auto& initial, auto& final) {
    if (!final.present()) return;
    using S = typename std::remove_cvref_t<decltype(final)>::value_type;
    for (index_t s = 0; s < sequences; ++s) {
      const index_t to = reference::slot_of(st.final_slots, s);
      const index_t from = initial.present() ? reference::slot_of(st.initial_slots, s) : -1;
      if (to < 0) continue;
      if (from < 0) {
        for_each(final[to], [](S& x, index_t) { x = S(0.0F); });
      } else {
        memory::assign(final[to], initial[from]);
      }
    }
    initial = final;
  });
  st.initial_slots = st.final_slots;
}

template <class Op, class State>
void call(const way& how, const Op& op, const State& st, const output_view<Op>& o, context& ctx) {
  if constexpr (!with_state<Op>) {
    forward(op, o, how.how(), ctx);
  } else if constexpr (timeless<Op>) {
    forward(op, st, o, how.how(), ctx);
  } else if (how.kind == way::kind::recurrent) {
    recurrent(op, st, o, how.how(), ctx);
  } else if (how.kind == way::kind::forward) {
    forward(op, st, o, how.how(), ctx);
  } else if (how.kind == way::kind::step) {
    step(op, st, o, how.how(), ctx);
  } else if (how.kind == way::kind::steps) {
    State carried = st;
    begin_in_place(carried, sequence_count(op));
    for (index_t t = 0; t < length_of(op); ++t) {
      step(tokens_of(op, t, 1), carried, o.present() ? o.slice(1, t, 1) : o, how.how(), ctx);
    }
  } else if constexpr (has_chunks<Op>) {
    chunked(op, st, o, how.how(), ctx);
  }
}

/// What a run left behind.
template <class Op, class S>
struct outcome {
  memory room;
  output_view<Op> o{};
  state_for<Op, S> st{};
};

/// Runs into fresh memory; `given` has its initial pools, and final slots where they are wanted.
template <class S, class Op>
outcome<Op, S> run(const way& how, const Op& op, const state_for<Op, S>& given, context& ctx,
                   layout where = layout::dense, index_t slots = -1) {
  outcome<Op, S> result{memory(where)};
  result.st = given;
  give_finals(result.room, op, slots < 0 ? sequence_count(op) : slots, result.st);
  result.o = result.room.template take<typename Op::scalar>(sampler<Op>::output(op));
  call(how, op, result.st, result.o, ctx);
  return result;
}
/// Scratch of the size that `scratch_bytes` says, all NaN.
struct poisoned_scratch {
  tensor<std::byte, 1> bytes;
  context ctx;

  template <class Op>
  poisoned_scratch(const Op& op, const way& how)
      : bytes({static_cast<index_t>(needed(op, how))}, std::byte{0xff}), ctx(bytes.flat()) {}

  template <class Op>
  static std::size_t needed(const Op& op, const way& how) {
    if (how.kind == way::kind::steps && length_of(op) > 0) return scratch_bytes(tokens_of(op, 0, 1), how.how());
    return scratch_bytes(op, how.how());
  }
};

template <class S, class Op>
outcome<Op, S> run(const way& how, const Op& op, const state_for<Op, S>& given, layout where = layout::dense) {
  poisoned_scratch scratch(op, how);
  return run<S>(how, op, given, scratch.ctx, where);
}

/// The same with the final state not wanted.
template <class S, class Op>
outcome<Op, S> run_without_final(const way& how, const Op& op, const state_for<Op, S>& given) {
  poisoned_scratch scratch(op, how);
  outcome<Op, S> result{memory()};
  result.st = given;
  result.o = result.room.template take<typename Op::scalar>(sampler<Op>::output(op));
  call(how, op, result.st, result.o, scratch.ctx);
  return result;
}

/// Where two views differ in a bit (NaN is NaN), in words; empty if nowhere.
template <class T, std::size_t Rank>
std::string difference(const view<T, Rank>& a, const view<T, Rank>& b) {
  if (!a.present()) return {};
  if (a.extents() != b.extents()) return "other shapes";
  std::ostringstream out;
  const auto x = flatten(a);
  const auto y = flatten(b);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool same = x[i] == y[i] ? std::signbit(x[i]) == std::signbit(y[i]) : std::isnan(x[i]) && std::isnan(y[i]);
    if (same) continue;
    out.precision(17);
    out << "element " << i << " of " << x.size() << " is " << x[i] << ", not " << y[i];
    break;
  }
  return out.str();
}
template <class Op, class S>
std::string difference_of_states(const outcome<Op, S>& a, const outcome<Op, S>& b) {
  std::string found = difference(a.st.final, b.st.final);
  if constexpr (requires { a.st.z_final; }) {
    if (found.empty()) found = difference(a.st.z_final, b.st.z_final);
  }
  return found.empty() ? found : "state: " + found;
}
template <class Op, class S>
std::string difference(const outcome<Op, S>& a, const outcome<Op, S>& b) {
  const std::string found = difference(a.o, b.o);
  return found.empty() ? difference_of_states(a, b) : "o: " + found;
}

/// |got − expected| ≤ bound · magnitude for every element, and below the smallest normal number whatever is left. In
/// words where it does not hold.
template <class T, class Wide, std::size_t Rank>
std::string excess(const view<T, Rank>& got, const view<Wide, Rank>& expected, const view<Wide, Rank>& magnitude,
                   double bound) {
  using Real = decltype(std::real(accum_t<T>()));
  double least = static_cast<double>(std::numeric_limits<Real>::min());
  if constexpr (std::is_same_v<T, float16>) least = 0x1p-24;
  const auto x = flatten(got);
  const auto y = flatten(expected);
  auto size = flatten(magnitude);
  if constexpr (!std::is_same_v<Wide, double>) {
    for (std::size_t i = 0; i + 1 < size.size(); i += 2) size[i] = size[i + 1] = std::hypot(size[i], size[i + 1]);
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double allowed = bound * std::fabs(size[i]) + 64 * least;
    if (std::fabs(x[i] - y[i]) <= allowed) continue;
    std::ostringstream out;
    out.precision(17);
    out << "element " << i << " of " << x.size() << " is " << x[i] << ", expected " << y[i] << " within " << allowed;
    return out.str();
  }
  return {};
}

/// A state that definitions read and write, in double.
template <class Wide, std::size_t Rank>
struct defined_state {
  view<const Wide, Rank> initial{};
  view<Wide, Rank> final{};
  view<const double, 3> z_initial{};
  view<double, 3> z_final{};
  view<const std::int32_t, 1> initial_slots{};
  view<const std::int32_t, 1> final_slots{};
};

/// Unit roundoff of a storage, complex or not.
template <class S>
double storage_roundoff() {
  if constexpr (requires { typename S::value_type; }) {
    return 2 * unit_roundoff<typename S::value_type>();
  } else {
    return unit_roundoff<S>();
  }
}

/// What the definition says, and the size of the terms it sums.
template <class Op, class S = storage_of<Op>>
struct definition {
  using accumulator = std::conditional_t<std::is_same_v<accum_t<typename Op::scalar>, double>, long double, double>;
  using given_state = state_for<Op, S>;
  using state = defined_state<widest<S>, decltype(given_state::initial)::rank>;

  memory room{};
  view<double, output_rank<Op>> o, o_masked{}, o_size;
  state st{}, size{};
  double relative;  ///< bound of an output before it is stored, relative to the size of its terms

  definition(const Op& op, const given_state& given)
      : o(room.take<double>(sampler<Op>::output(op))),
        o_size(room.take<double>(sampler<Op>::output(op))),
        st(widened(op, given)),
        size(st),
        relative(tolerance<accum_t<typename Op::scalar>>(sampler<Op>::roundings(op))) {
    size.initial = absolute(room, st.initial);
    give_finals(room, op, sequence_count(op), size);
    const auto positive = sampler<Op>::absolute(op, room);
    using Positive = std::remove_const_t<decltype(positive)>;
    if constexpr (with_state<Op>) {
      sampler<Op>::template define<accumulator>(op, st, o);
      sampler<Positive>::template define<double>(positive, size, o_size);
    } else {
      sampler<Op>::template define<accumulator>(op, o);
      sampler<Positive>::template define<double>(positive, o_size);
    }
    if constexpr (requires { sampler<Op>::template define_masked<accumulator>(op, st, o); }) {
      o_masked = room.take<double>(sampler<Op>::output(op));
      sampler<Op>::template define_masked<accumulator>(op, st, o_masked);
    }
  }

  /// In words, where an outcome leaves its bounds. `carried`: how often the state was rounded to its storage.
  std::string excess(const outcome<Op, S>& got, index_t carried) const {
    const double rounded = relative + static_cast<double>(carried) * storage_roundoff<S>();
    std::string found;
    const auto hold = [&](const char* what, const auto& x, const auto& expected, const auto& terms, double stored) {
      if (!found.empty() || !x.present()) return;
      const std::string words = detail::excess(x, expected, terms, rounded + stored);
      if (!words.empty()) found = what + words;
    };
    hold("o: ", got.o, o, o_size, unit_roundoff<typename Op::scalar>());
    hold("state: ", got.st.final, st.final, size.final, storage_roundoff<S>());
    if constexpr (requires { got.st.z_final; }) {
      hold("z: ", got.st.z_final, st.z_final, size.z_final, storage_roundoff<S>());
    }
    return found;
  }

 private:
  state widened(const Op& op, const given_state& given) {
    state wide{.initial = room.copy<widest<S>>(given.initial)};
    if constexpr (requires { given.z_initial; }) wide.z_initial = room.copy<double>(given.z_initial);
    if constexpr (with_state<Op>) {
      wide.initial_slots = given.initial_slots;
      wide.final_slots = given.final_slots;
    }
    give_finals(room, op, sequence_count(op), wide);
    return wide;
  }
};

/// Drawn arguments, and the seed that draws them again.
template <class Op>
struct trial {
  std::uint64_t seed;
  rng random;
  memory room{};
  std::vector<std::int32_t> offsets{}, lengths{};
  Op op{};

  trial(std::uint64_t from, index_t most, index_t batch = 0) : seed(from), random(from) {
    if (batch == 0) batch = random.integer(1, 3);
    op = sampler<Op>::draw(random, room, batch, odd_extent(random, most));
  }
  explicit trial(std::uint64_t from) : trial(from, 100) {}

  /// Some sequences shorter than their room.
  void shorten() {
    for (index_t s = 0; s < sequence_count(op); ++s) {
      lengths.push_back(static_cast<std::int32_t>(random.integer(0, key_length(op))));
    }
    op.lengths = lengths;
  }
  /// Several sequences in one row, one of them empty.
  void pack() {
    const index_t L = length_of(op);
    offsets = {0, static_cast<std::int32_t>(random.integer(0, L)), static_cast<std::int32_t>(random.integer(0, L)),
               static_cast<std::int32_t>(L)};
    std::sort(offsets.begin(), offsets.end());
    offsets.insert(offsets.begin() + 2, offsets[1]);
    op.offsets = offsets;
  }

  std::string words() const {
    std::ostringstream out;
    out << Op::name << ", seed " << seed << ", fields";
    const auto add = [&](const auto& x) {
      if (!x.present()) return;
      out << " [";
      for (std::size_t axis = 0; axis < x.extents().size(); ++axis) out << (axis > 0 ? "," : "") << x.extent(axis);
      out << "]";
    };
    for_fields(op, sampler<Op>::tokens, add);
    if constexpr (timeless<Op>) for_fields(op, sampler<Op>::keys, add);
    for_fields(op, sampler<Op>::parameters, add);
    for (const std::int32_t at : offsets) out << (at == 0 ? ", offsets " : " ") << at;
    for (const std::int32_t n : lengths) out << ", length " << n;
    out << ": ";
    return out.str();
  }
};

template <class F>
void for_seeds(std::uint64_t seed, int count, const F& f) {
  rng seeds(seed);
  for (int i = 0; i < count; ++i) f(seeds.bits());
}

// ---- the laws ------------------------------------------------------------------------------------------------------

/// 1–3: every form, chunk and way to step gives what the definition says, and both definitions agree.
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
      found.expect(gap.empty(), x.words(), "the two definitions: ", gap);
    }
    for (const way& how : ways<Op>()) {
      if (how.kind == way::kind::steps && variant != 0) continue;
      const auto got = run<S>(how, x.op, given);
      const std::string gap =
          expected.excess(got, how.kind == way::kind::steps || how.kind == way::kind::step ? length_of(x.op) : 1);
      found.expect(gap.empty(), x.words(), how, ": ", gap);
      found.expect(got.room.gaps_untouched() && x.room.gaps_untouched(), x.words(), how, ": wrote beside its outputs");
      if constexpr (timeless<Op>) {
        const std::string other = expected.excess(run_without_final<S>(how, x.op, given), 1);
        found.expect(other.empty(), x.words(), how, ", final state not wanted: ", other);
      }
    }
  });
}

/// 4: splitting the sequence and carrying the state changes nothing: to the bit at chunk boundaries, else rounding.
template <class Op>
void splitting_changes_nothing(std::uint64_t seed, report& found) {
  using S = storage_of<Op>;
  for_seeds(seed, 6, [&](std::uint64_t s) {
    trial<Op> x(s);
    const index_t L = length_of(x.op);
    const auto given = draw_state<S>(x.random, x.room, x.op, sequence_count(x.op));
    const definition<Op> expected(x.op, given);
    for (const way& how : ways<Op>()) {
      const index_t unit = how.kind == way::kind::chunked && how.chunk > 0 ? how.chunk : 64;
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
        found.expect(gap.empty(), x.words(), how, ", cut at ", cut, ": ", gap);
        if (!any_cut && (how.kind != way::kind::chunked || cut % unit != 0)) continue;
        const std::string bits = difference(joined, whole);
        found.expect(bits.empty(), x.words(), how, ", cut at ", cut, ", to the bit: ", bits);
      }
    }
  });
}

/// 6: any strides, of arguments, outputs and states, give the same bits. A V-first state may sum o in another order.
template <class Op>
void strides_change_nothing(std::uint64_t seed, report& found) {
  using S = storage_of<Op>;
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
        std::string gap = turned ? difference_of_states(got, dense) : difference(got, dense);
        if (turned && gap.empty()) gap = expected.excess(got, length_of(x.op));
        found.expect(gap.empty(), x.words(), how, ", layout ", static_cast<int>(where), ": ", gap);
        found.expect(got.room.gaps_untouched(), x.words(), how, ", layout ", static_cast<int>(where),
                     ": wrote into gaps");
        const auto crossed = run<S>(how, x.op, elsewhere);
        gap = difference_of_states(crossed, dense);
        found.expect(gap.empty(), x.words(), how, ", initial state in layout ", static_cast<int>(where), ": ", gap);
      }
    }
  });
}

/// 7: nothing is read that was not written: scratch full of NaN, of the size that `scratch_bytes` says, changes no bit.
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
      found.expect(gap.empty(), x.words(), how, ": ", gap);
    }
  });
}

/// 8: the same bits for any number of threads, forked or in a team.
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
        found.expect(gap.empty(), x.words(), how, ", ", workers, " workers: ", gap);
      }
      constexpr int members = 3;
      std::barrier<> meet(members);
      outcome<Op, S> together{memory()};
      together.st = given;
      give_finals(together.room, x.op, sequence_count(x.op), together.st);
      together.o = together.room.template take<typename Op::scalar>(sampler<Op>::output(x.op));
      pool(members, worker_body([&](int member) {
             context mine =
                 context::of({.ith = member,
                              .nth = members,
                              .barrier = [](void* user) { static_cast<std::barrier<>*>(user)->arrive_and_wait(); },
                              .user = &meet});
             call(how, x.op, together.st, together.o, mine);
           }));
      const std::string gap = difference(together, serial);
      found.expect(gap.empty(), x.words(), how, ", a team: ", gap);
    }
  });
}

/// 9: gates that forget everything, next to nothing, or grow stay right.
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
      found.expect(gap.empty(), x.words(), how, ": ", gap);
    }
  });
}

/// 11: the future never changes the past, nor one sequence another, to the bit: NaN and infinity included. What is
/// padding or masked changes nothing at all.
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
        std::string gap =
            difference(got.o.slice(0, B - 1, 1).slice(1, 0, cut), clean.o.slice(0, B - 1, 1).slice(1, 0, cut));
        found.expect(gap.empty(), x.words(), how, ", ", poison, " from ", cut, " on: ", gap);
        gap = difference(got.o.slice(0, 0, B - 1), clean.o.slice(0, 0, B - 1));
        found.expect(gap.empty(), x.words(), how, ", ", poison, " in the last sequence, others: ", gap);
        gap = difference(got.st.final.slice(0, 0, B - 1), clean.st.final.slice(0, 0, B - 1));
        found.expect(gap.empty(), x.words(), how, ", ", poison, " in the last sequence, states of others: ", gap);
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
      found.expect(gap.empty(), x.words(), how, ", NaN in the padding: ", gap);
      for (index_t b = 0; b < B; ++b) {
        const index_t real = x.lengths[static_cast<std::size_t>(b)];
        gap = difference(got.o.slice(0, b, 1).slice(1, 0, real), clean.o.slice(0, b, 1).slice(1, 0, real));
        found.expect(gap.empty(), x.words(), how, ", NaN in the padding of sequence ", b, ": ", gap);
      }
      const auto no_nan = [](const std::vector<double>& numbers) {
        return std::none_of(numbers.begin(), numbers.end(), [](double number) { return std::isnan(number); });
      };
      found.expect(no_nan(flatten(clean.st.final)) && no_nan(flatten(clean.o)), x.words(), how,
                   ": the NaN of a masked token was looked at");
    }
  });
}

/// 12: packed sequences give what each gives alone, to the bit.
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
      if (how.kind == way::kind::steps || how.kind == way::kind::forward) continue;
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
        found.expect(gap.empty(), x.words(), how, ", sequence ", i, ": ", gap);
        gap = difference(packed.st.final.slice(0, i, 1), got.st.final);
        found.expect(gap.empty(), x.words(), how, ", state of sequence ", i, ": ", gap);
      }
    }
  });
}

/// A state means the same wherever it lies: in place, slot to slot in any order, absent for zero, not wanted; without
/// an output it still advances.
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
    if constexpr (requires { given.z_initial; }) {
      if (with_z(x.op)) scatter(pooled.z_initial, given.z_initial);
    }
    pooled.initial_slots = view<const std::int32_t, 1>(from);
    pooled.final_slots = view<const std::int32_t, 1>(to);

    for (const way& how : ways<Op>()) {
      context serial;
      const auto plain = run<S>(how, x.op, given);
      const auto slotted = run<S>(how, x.op, pooled, serial, layout::dense, slots);
      std::string gap = difference(slotted.o, plain.o);
      found.expect(gap.empty(), x.words(), how, ", slots: ", gap);
      for (index_t b = 0; b < B; ++b) {
        gap = difference(slotted.st.final.slice(0, to[static_cast<std::size_t>(b)], 1), plain.st.final.slice(0, b, 1));
        found.expect(gap.empty(), x.words(), how, ", final slot of sequence ", b, ": ", gap);
      }

      outcome<Op, S> placed{memory()};
      placed.o = placed.room.template take<typename Op::scalar>(plain.o.extents());
      placed.st = given;
      give_finals(placed.room, x.op, B, placed.st);
      begin_in_place(placed.st, B);
      call(how, x.op, placed.st, placed.o, serial);
      gap = difference(placed, plain);
      found.expect(gap.empty(), x.words(), how, ", in place: ", gap);

      outcome<Op, S> silent{memory()};
      silent.st = given;
      give_finals(silent.room, x.op, B, silent.st);
      call(how, x.op, silent.st, silent.o, serial);
      gap = difference_of_states(silent, plain);
      found.expect(gap.empty(), x.words(), how, ", without o: ", gap);

      auto zeros = given;
      for_pools(zeros, [&](auto& initial, auto&) {
        if (!initial.present()) return;
        const auto zero = x.room.copy(initial);
        for_each(zero, [](auto& number, index_t) { number = S(0.0F); });
        initial = zero;
      });
      const auto from_zero = run<S>(how, x.op, zeros);
      gap = difference(run<S>(how, x.op, state_for<Op, S>{}), from_zero);
      found.expect(gap.empty(), x.words(), how, ", no initial state against zeros: ", gap);
      if (how.kind == way::kind::steps) continue;  // they carry the state in the pool
      gap = difference(run_without_final<S>(how, x.op, given).o, plain.o);
      found.expect(gap.empty(), x.words(), how, ", final state not wanted: ", gap);

      const std::vector<std::int32_t> none(static_cast<std::size_t>(B), -1);
      auto discarded = pooled;
      discarded.initial_slots = discarded.final_slots = view<const std::int32_t, 1>(none);
      gap = difference(run<S>(how, x.op, discarded, serial, layout::dense, slots).o, from_zero.o);
      found.expect(gap.empty(), x.words(), how, ", slots -1 against zeros: ", gap);
    }

    const Op nothing = tokens_of(x.op, 0, 0);
    for (const way& how : ways<Op>()) {
      const auto kept = run<S>(how, nothing, given);
      bool same = true;
      for_pools(kept.st, [&](const auto& initial, const auto& final) {
        same = same && (!initial.present() || flatten(initial) == flatten(final));
      });
      found.expect(same, x.words(), how, ", no tokens: the state has changed");
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
      found.expect(!asked && std::string(asked.text()).find(Op::name) != std::string::npos, x.words(), what,
                   " passed the check, or its text does not name the operator: ", asked.text());
      const auto throws = [&](const auto& verb) {
        try {
          verb();
          found.expect(false, x.words(), what, " was not refused");
        } catch (const std::invalid_argument& error) {
          found.expect(std::string(error.what()) == asked.text(), x.words(), what, ": another text: ", error.what());
        }
      };
      throws([&] { forward(op, st, o, how, serial); });
      throws([&] { recurrent(op, st, o, how, serial); });
      throws([&] { step(op, st, o, how, serial); });
      if constexpr (has_chunks<Op>) throws([&] { chunked(op, st, o, how, serial); });
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
    off.initial = st.initial.slice(2, 0, st.initial.extent(2) - 1);
    refused("a state that is a row short", op, off, target.o);
    const auto untouched = [](const auto& x_view) {
      bool all = true;
      for (const double number : flatten(x_view)) all = all && std::isnan(number);
      return all;
    };
    found.expect(untouched(target.o) && untouched(target.st.final), x.words(), "a refused call has written");
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
      found.expect(gap.empty(), x.words(), how, ", NaN in keys that do not count: ", gap);
      if constexpr (requires { changed.causal; }) {
        const index_t cut = x.random.integer(0, key_length(x.op));
        if (!changed.causal) continue;
        for (index_t b = 0; b < B; ++b) {
          poison_tokens(changed, sampler<Op>::keys, b, cut, key_length(x.op) - cut, nan);
        }
        const index_t rows = std::clamp<index_t>(cut - x.op.position, 0, length_of(x.op));
        gap = difference(run<S>(how, changed, given).o.slice(1, 0, rows), clean.o.slice(1, 0, rows));
        found.expect(gap.empty(), x.words(), how, ", NaN in keys from ", cut, " on: ", gap);
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
      found.expect(gap.empty(), x.words(), how, ", keys cut at ", cut, ": ", gap);
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
        found.expect(!asked && std::string(asked.text()).find(Op::name) != std::string::npos, x.words(), what,
                     " passed the check, or its text does not name the operator: ", asked.text());
        try {
          forward(op, st..., out, how);
          found.expect(false, x.words(), what, " was not refused");
        } catch (const std::invalid_argument& error) {
          found.expect(std::string(error.what()) == asked.text(), x.words(), what, ": another text: ", error.what());
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
    for (const double number : flatten(o)) found.expect(std::isnan(number), x.words(), "a refused call has written");
  });
}

}  // namespace detail

/// The laws of an operator, for `for (const law& one : laws<Op>()) …`.
template <class Op>
std::vector<law> laws() {
  using S = detail::storage_of<Op>;
  std::vector<law> all{{"every form equals the definition", detail::forms_equal_the_definition<Op, S>},
                       {"strides change nothing", detail::strides_change_nothing<Op>},
                       {"scratch is not read", detail::scratch_is_not_read<Op>},
                       {"threads change nothing", detail::threads_change_nothing<Op>}};
  if constexpr (detail::timeless<Op>) {
    all.push_back({"unseen keys are not looked at", detail::unseen_keys_are_not_looked_at<Op>});
    all.push_back({"misfits are refused", detail::forward_refuses_misfits<Op>});
    if constexpr (detail::with_state<Op>) {
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

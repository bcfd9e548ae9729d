// Runs of an operator on drawn arguments: the ways to run it, what a run leaves behind, what its definition says, and
// how far apart the two may be.
#pragma once

#include <ogive/core/context.hpp>
#include <ogive/engine/matrix_policy.hpp>
#include <ogive/reference/layout.hpp>
#include <ogive/testing/samplers.hpp>

#include <atomic>
#include <barrier>
#include <sstream>
#include <string>
#include <thread>

namespace ogive::testing {

/// A fork-join pool that starts a thread for every worker.
struct thread_pool {
  void operator()(int workers, const worker_body& body) const {
    std::vector<std::thread> threads;
    for (int worker = 0; worker < workers; ++worker) threads.emplace_back([&body, worker] { body(worker); });
    for (std::thread& one : threads) one.join();
  }
};

/// body(context) in each of so many threads of a team.
template <class Body>
void run_team(const thread_pool& pool, int members, const Body& body) {
  std::barrier<> meet(members);
  pool(members, worker_body([&](int member) {
         context mine =
             context::of({.ith = member,
                          .nth = members,
                          .barrier = [](void* user) { static_cast<std::barrier<>*>(user)->arrive_and_wait(); },
                          .user = &meet});
         body(mine);
       }));
}

/// The same one at a time and the last member first, from barrier to barrier: the order of tasks is another one than
/// that of one worker, for certain.
template <class Body>
void run_team_backwards(const thread_pool& pool, int members, const Body& body) {
  std::atomic<int> turn{0};
  struct member_turn {
    std::atomic<int>& turn;
    int own, members;
    void wait() const {
      for (int now = turn; now != own; now = turn) turn.wait(now);
    }
    void pass() {
      own += members;
      ++turn;
      turn.notify_all();
    }
  };
  pool(members, worker_body([&](int member) {
         member_turn mine{turn, members - 1 - member, members};
         context joined = context::of({.ith = member,
                                       .nth = members,
                                       .barrier =
                                           [](void* user) {
                                             auto& at = *static_cast<member_turn*>(user);
                                             at.pass();
                                             at.wait();
                                           },
                                       .user = &mine});
         mine.wait();
         body(joined);
         mine.pass();
       }));
}

/// One way to run an operator.
struct way {
  enum class kind { recurrent, chunked, forward, step, steps, convolution };
  way::kind kind;  ///< `step` takes all tokens in one call, `steps` one by one
  index_t chunk = 0;
  ogive::form form = ogive::form::automatic;
  index_t time_split = 0;

  options how() const noexcept { return {.form = form, .chunk = chunk, .time_split = time_split}; }

  friend std::ostream& operator<<(std::ostream& out, const way& w) {
    constexpr const char* kinds[] = {"recurrent", "chunked", "forward", "step", "step by step", "convolution"};
    constexpr const char* forms[] = {"", ", left", ", right", ", recurrent", ", chunked", ", convolution"};
    out << kinds[static_cast<std::size_t>(w.kind)] << forms[static_cast<std::size_t>(w.form)];
    if (w.time_split > 0) out << " in segments of " << w.time_split;
    return w.chunk > 0 ? out << " in chunks of " << w.chunk : out;
  }
};

/// Operators that carry something from token to token, or from call to call.
template <class Op>
concept with_state = requires {
  typename Op::default_state;
};
/// Keys with a length of their own: no order of tokens, no verbs but forward.
template <class Op>
concept timeless = requires {
  sampler<Op>::keys;
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

}  // namespace detail

/// What the operator keeps its state in unless told otherwise, and its state struct for a storage.
template <class Op>
using storage_of = typename detail::state_types<Op>::storage;
template <class Op, class S>
using state_for = typename detail::state_types<Op>::template of<S>;

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
inline constexpr bool has_convolution = requires(const Op& op, output_view<Op> o) {
  convolution(op, {}, o);
};

/// The ways that an operator can be run.
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
    if constexpr (requires { sampler<Op>::splits_time; }) {
      all.push_back({way::kind::forward, 0, has_chunks<Op> ? form::chunked : form::automatic, 32});
    }
    if constexpr (has_convolution<Op>) all.push_back({way::kind::convolution});
    return all;
  }
}

/// A sweep over the sequence that takes four tokens together.
template <class Op>
constexpr bool folds(const way& how) {
  if constexpr (requires(const Op& op) { op.operands(); }) {
    return folds<decltype(std::declval<const Op&>().operands())>(how);
  } else if constexpr (requires { Op::writes; }) {
    return how.kind == way::kind::recurrent && Op::writes == write::additive && Op::decays != decay::none;
  } else {
    return false;
  }
}

/// f(initial, final) for each pair of pools of a state.
template <class State, class F>
void for_pools(State& st, const F& f) {
  f(st.initial, st.final);
  if constexpr (requires { st.z_initial; }) f(st.z_initial, st.z_final);
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
    st.z_initial = draw_uniform<S>(random, room, pool_extents<3>(slots, sampler<Op>::slot(op)), 0.5, 2);
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
  if constexpr (with_state<Op>) {
    if constexpr (requires(typename Op::default_state own) { own.z_final; }) give(st.z_final);
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

/// Runs an operator one way.
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
  } else if (how.kind == way::kind::convolution) {
    if constexpr (has_convolution<Op>) convolution(op, st, o, how.how(), ctx);
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

/// |got − expected| ≤ bound · magnitude for every element, below the smallest normal number whatever is left, `times`
/// as much where that is a factor of what is larger, and infinity for what the type does not reach. In words where it
/// does not hold.
template <class T, class Wide, std::size_t Rank>
std::string excess(const view<T, Rank>& got, const view<Wide, Rank>& expected, const view<Wide, Rank>& magnitude,
                   double bound, double times = 1) {
  using Real = decltype(std::real(accum_t<T>()));
  constexpr bool half = std::is_same_v<T, float16>;
  const double least = half ? 0x1p-24 : static_cast<double>(std::numeric_limits<Real>::min());
  const double most = half ? 65504 : static_cast<double>(std::numeric_limits<Real>::max());
  const auto x = flatten(got);
  const auto y = flatten(expected);
  auto size = flatten(magnitude);
  if constexpr (!std::is_same_v<Wide, double>) {
    for (std::size_t i = 0; i + 1 < size.size(); i += 2) size[i] = size[i + 1] = std::hypot(size[i], size[i + 1]);
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double allowed = bound * std::fabs(size[i]) + 64 * times * least;
    if (std::fabs(x[i] - y[i]) <= allowed) continue;
    if (std::isinf(x[i]) && std::signbit(x[i]) == std::signbit(y[i]) && std::fabs(y[i]) + allowed > most) continue;
    std::ostringstream out;
    out.precision(17);
    out << "element " << i << " of " << x.size() << " is " << x[i] << ", expected " << y[i] << " within " << allowed;
    return out.str();
  }
  return {};
}

namespace detail {

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

}  // namespace detail

/// What the definition says, and the size of the terms it sums.
template <class Op, class S = storage_of<Op>>
struct definition {
  using accumulator = std::conditional_t<std::is_same_v<accum_t<typename Op::scalar>, double>, long double, double>;
  using given_state = state_for<Op, S>;
  using state = detail::defined_state<widest<S>, decltype(given_state::initial)::rank>;

  memory room{};
  view<double, output_rank<Op>> o, o_masked{}, o_size;
  state st{}, size{};
  double relative;     ///< bound of an output before it is stored, relative to the size of its terms
  double largest = 1;  ///< what a decay that is next to nothing may be a factor of

  definition(const Op& op, const given_state& given)
      : o(room.take<double>(sampler<Op>::output(op))),
        o_size(room.take<double>(sampler<Op>::output(op))),
        st(widened(op, given)),
        size(st),
        relative(tolerance<accum_t<typename Op::scalar>>(sampler<Op>::roundings(op))) {
    if constexpr (requires { sampler<Op>::largest_step(op); }) largest = std::max(1.0, sampler<Op>::largest_step(op));
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
    const double rounded = relative + static_cast<double>(carried) * detail::storage_roundoff<S>();
    std::string found;
    const auto hold = [&](const char* what, const auto& x, const auto& expected, const auto& terms, double stored) {
      if (!found.empty() || !x.present()) return;
      const std::string words = testing::excess(x, expected, terms, rounded + stored, largest);
      if (!words.empty()) found = what + words;
    };
    hold("o: ", got.o, o, o_size, unit_roundoff<typename Op::scalar>());
    hold("state: ", got.st.final, st.final, size.final, detail::storage_roundoff<S>());
    if constexpr (requires { got.st.z_final; }) {
      hold("z: ", got.st.z_final, st.z_final, size.z_final, detail::storage_roundoff<S>());
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

  friend std::ostream& operator<<(std::ostream& out, const trial& x) {
    out << Op::name << ", seed " << x.seed << ", fields";
    const auto add = [&](const auto& field) {
      if (!field.present()) return;
      out << " [";
      for (std::size_t axis = 0; axis < field.extents().size(); ++axis) {
        out << (axis > 0 ? "," : "") << field.extent(axis);
      }
      out << "]";
    };
    for_fields(x.op, sampler<Op>::tokens, add);
    if constexpr (timeless<Op>) for_fields(x.op, sampler<Op>::keys, add);
    for_fields(x.op, sampler<Op>::parameters, add);
    for (const std::int32_t at : x.offsets) out << (at == 0 ? ", offsets " : " ") << at;
    for (const std::int32_t n : x.lengths) out << ", length " << n;
    return out << ": ";
  }
};

/// f(seed) for `count` seeds that follow from one.
template <class F>
void for_seeds(std::uint64_t seed, int count, const F& f) {
  rng seeds(seed);
  for (int i = 0; i < count; ++i) f(seeds.bits());
}

}  // namespace ogive::testing

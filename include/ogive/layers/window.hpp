// L7: layers that see a few inputs back: the state that keeps these inputs, and how the work is cut up.
//
// Position p of a sequence holds x_p from 0 on; before it come the K inputs of the state, the newest at −1.
#pragma once

#include <ogive/engine/kept_states.hpp>
#include <ogive/engine/rows.hpp>
#include <ogive/engine/tiles.hpp>
#include <ogive/engine/unroll.hpp>
#include <ogive/layers/verbs.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

/// The last K inputs of every channel, pools [slots, D, K], the newest last. Anything from what the layer reaches back
/// to upwards will do: W − 1 for a filter of width W, or W as some models keep it. Steps are fastest where neighbouring
/// channels are neighbours in memory: [slots, K, D] memory, permuted. Snapshots and boundaries are kept as by `state`.
template <storage S>
struct window_state {
  using storage_type = S;
  view<const S, 3> initial{};
  view<S, 3> final{};
  view<const std::int32_t, 1> initial_slots{};
  view<const std::int32_t, 1> final_slots{};
  view<S, 3> snapshots{};
  view<const std::int32_t, 2> snapshot_slots{};
  view<S, 3> boundaries{};
  view<const std::int32_t, 2> boundary_slots{};
  index_t interval = 0;
  integers position{};
};

/// The cotangent of the final state and the gradient of the initial one, each [sequences, D, K]; either may be absent.
template <storage S>
struct window_gradient {
  using storage_type = S;
  view<const S, 3> final{};
  view<S, 3> initial{};
};

namespace detail {

/// A run of tokens of one sequence, and that sequence.
struct window_piece {
  index_t sequence = 0;
  index_t batch = 0;
  index_t begin = 0;  ///< of the sequence in its row
  index_t length = 0;
  index_t live = 0;   ///< tokens of the sequence that are not padding
  index_t first = 0;  ///< position of the piece
  index_t count = 0;
  bool leads = false;  ///< the piece that the state is for
};

/// `count` columns of a slot of a pool [slots, D, K], turned: one row each.
template <class X>
view<X, 2> columns_of(const view<X, 3>& pool, index_t slot, index_t column, index_t count, index_t channel,
                      index_t across) noexcept {
  return {pool.pointer(slot, channel, column), {count, across}, {pool.stride(2), pool.stride(1)}};
}

/// load_tile and store_tile for a few rows that may be neighbours in memory: there, one number after another is faster
/// than turning whole blocks around.
template <class T>
bool narrow(const view<T, 2>& x) noexcept {
  return x.stride(0) == 1 && x.extent(0) <= 8 && !std::is_same_v<std::remove_const_t<T>, float16>;
}
/// f(N) with N, at most 8, as a constant.
template <class F>
void with_constant(index_t number, const F& f) noexcept {
  unroll<8>([&](auto n) {
    if (number == n + 1) f(std::integral_constant<int, n + 1>());
  });
}
template <class Acc, class T>
void load_few(const view<const T, 2>& x, Acc* OGIVE_RESTRICT panel, index_t stride) noexcept {
  if (!narrow(x)) return load_tile(x, panel, stride);
  with_constant(x.extent(0), [&](auto rows) {
    const T* from = x.data();
    for (index_t j = 0; j < x.extent(1); ++j, from += x.stride(1)) {
      unroll<rows>([&](auto i) { panel[i * stride + j] = static_cast<Acc>(from[i]); });
    }
  });
}
template <class Acc, class T>
void store_few(const Acc* OGIVE_RESTRICT panel, index_t stride, const view<T, 2>& x) noexcept {
  if (!narrow(x)) return store_tile(panel, stride, x);
  with_constant(x.extent(0), [&](auto rows) {
    T* to = x.data();
    for (index_t j = 0; j < x.extent(1); ++j, to += x.stride(1)) {
      unroll<rows>([&](auto i) { to[i] = static_cast<T>(panel[i * stride + j]); });
    }
  });
}

/// The arguments that matter here, and the cut: pieces of `tile` tokens, blocks of `row` channels. Only the leading
/// piece of a sequence reads or writes the state, so that a state in place meets one task.
template <class T, class S>
struct window_problem {
  view<const T, 3> x{};
  window_state<S> st{};
  integers lengths{}, offsets{}, ring{};
  index_t tile = 64;
  index_t row = 0;

  index_t channels() const noexcept { return x.extent(2); }
  index_t blocks() const noexcept { return (channels() + row - 1) / row; }
  index_t sequences() const noexcept { return offsets.present() ? offsets.size() - 1 : x.extent(0); }

  window_piece whole(index_t sequence) const noexcept {
    window_piece at{.sequence = sequence, .batch = sequence, .length = x.extent(1)};
    if (offsets.present()) {
      at.batch = 0;
      at.begin = offsets.at(sequence);
      at.length = offsets.at(sequence + 1) - at.begin;
    }
    at.live = lengths.present() ? std::min(lengths.at(sequence), at.length) : at.length;
    at.count = at.length;
    at.leads = true;
    return at;
  }

  /// Piece numbers of sequence s begin at base(s); packed sequences may leave some out.
  index_t base(index_t s) const noexcept {
    return offsets.present() ? offsets.at(s) / tile + s : s * std::max<index_t>(1, (x.extent(1) + tile - 1) / tile);
  }
  index_t pieces() const noexcept { return base(sequences()); }
  window_piece piece(index_t number) const noexcept {
    index_t low = 0;
    for (index_t high = sequences(); low + 1 < high;) {
      const index_t middle = (low + high) / 2;
      (base(middle) <= number ? low : high) = middle;
    }
    window_piece at = whole(low);
    at.first = (number - base(low)) * tile;
    at.count = std::clamp<index_t>(at.length - at.first, 0, tile);
    at.leads = at.first == 0;
    return at;
  }

  /// panel[i] = the inputs at positions from + i, i < count, of channels [channel, channel + across).
  template <class Acc>
  void load(const window_piece& at, index_t from, index_t count, index_t channel, index_t across, Acc* panel,
            index_t stride) const noexcept {
    const index_t before = std::clamp<index_t>(-from, 0, count);
    if (before > 0) load_state(at, from, before, channel, across, panel, stride);
    if (before == count) return;
    load_tile(view<const T, 2>(x.pointer(at.batch, at.begin + from + before, channel), {count - before, across},
                               {x.stride(1), x.stride(2)}),
              panel + before * stride, stride);
  }

  /// The state after `seen` of the sequence's tokens, into a slot of a pool. A block of inputs is read before it is
  /// written, the oldest first: in place, what is still needed lies further on.
  template <class Acc>
  void save(const window_piece& at, index_t seen, const view<S, 3>& pool, index_t slot, index_t channel, index_t across,
            Acc* panel) const noexcept {
    if (slot < 0) return;
    const index_t K = pool.extent(2);
    const index_t start = ring.present() ? (ring.at(at.sequence) + seen) % std::max<index_t>(K, 1) : 0;
    for (index_t j = 0; j < K;) {
      const index_t column = (start + j) % K;
      const index_t count = std::min({saved, K - j, K - column});
      load(at, seen - K + j, count, channel, across, panel, row);
      store_few(panel, row, columns_of(pool, slot, column, count, channel, across));
      j += count;
    }
  }
  /// Rows of `row` numbers that `save` wants.
  static constexpr index_t saved = 8;

 private:
  /// Positions [from, from + count), all of them before the sequence.
  template <class Acc>
  void load_state(const window_piece& at, index_t from, index_t count, index_t channel, index_t across, Acc* panel,
                  index_t stride) const noexcept {
    const index_t slot = st.initial.present() ? core::checker::slot_of(st.initial_slots, at.sequence) : -1;
    if (slot < 0) return zero_tile(panel, stride, 0, count, across);
    const index_t K = st.initial.extent(2);
    const index_t start = ring.present() ? ring.at(at.sequence) % K : 0;
    for (index_t i = 0; i < count;) {
      const index_t column = (start + K + from + i) % K;
      const index_t run = std::min(count - i, K - column);
      load_few(columns_of(st.initial, slot, column, run, channel, across), panel + i * stride, stride);
      i += run;
    }
  }
};

/// The questions about sequences and states; those about fields and outputs are the layer's.
template <class T, class S>
void check_window(core::checker& ask, const window_problem<T, S>& p, index_t reach) noexcept {
  ask.offsets(p.offsets, p.x.extent(0), p.x.extent(1));
  if (!ask) return;
  const index_t n = p.sequences(), D = p.channels();
  ask.lengths(p.lengths, n);
  if (ask && p.ring.present()) {
    if (p.ring.size() != n) ask.refuse("ring") << "has " << p.ring.size() << " entries for " << n << " sequences";
    for (index_t s = 0; ask && s < n; ++s) {
      if (p.ring.at(s) < 0) ask.refuse("ring") << "entry " << s << " is " << p.ring.at(s) << ", must not be negative";
    }
  }
  const window_state<S>& st = p.st;
  index_t K = 0;
  const char* pool_of_K = nullptr;
  for_pools(st, [&](const char* name, const auto& pool, bool) noexcept {
    if (pool_of_K == nullptr && pool.present()) pool_of_K = name, K = pool.extent(2);
  });
  if (ask && pool_of_K != nullptr && K < reach) {
    ask.refuse(pool_of_K) << "keeps K = " << K << " inputs of a channel, must be at least the " << reach
                          << " that the layer reaches back to";
  }
  constexpr const char* letters = "[slots, D, K], D as x, one K for all pools";
  ask.pools("initial", st.initial, "final", st.final, st.initial_slots, st.final_slots, n, {0, D, K}, letters);
  check_kept(ask, p, st, {p.x.extent(0), p.x.extent(1)}, shape<3>{-1, D, K}, letters);
}

/// The part of layers with a window in the verbs. A layer has
///   x, lengths, offsets, ring, output, reach()
///   check_fields(ask), check_output(ask, y), check_written(ask, field, view)
///   compute(problem, piece, channel, across, y, inputs, arena)
///                          the outputs of a piece, in channels [channel, channel + across); if not null, `inputs` are
///                          the rows from `reach` before the piece on, in a panel
///   bytes(across)          scratch for that
struct window_engine {
  static constexpr bool has_steps = true;
  static constexpr bool has_chunks = false;
  template <class Op>
  using output = typename Op::output;

  template <class Op, class Given>
  static auto own(Given& given) noexcept {
    return own_state<Op, 3>(given);
  }

  /// Channels of a task: 4 KiB of a row, long enough for the memory to stream; few, for many tokens, where the
  /// neighbours in memory are tokens.
  template <class T>
  static index_t row_of(const view<const T, 3>& x) noexcept {
    return std::min<index_t>(x.stride(2) == 1 ? 1024 : 64, round_up(std::max<index_t>(x.extent(2), 1), 64));
  }

  template <class Op, class State>
  static auto problem(const Op& op, const State& st) noexcept {
    using T = typename Op::scalar;
    using S = typename State::storage_type;
    window_problem<T, S> p{.x = op.x, .st = st, .lengths = op.lengths, .offsets = op.offsets};
    if constexpr (requires { op.ring; }) p.ring = op.ring;
    p.row = row_of(op.x);
    return p;
  }

  template <class Op, class State>
  static status check(const Op& op, const State& st, const output<Op>& y, const options& how) noexcept {
    core::checker ask(Op::name);
    one_form(ask, how);
    op.check_fields(ask);
    if (!ask) return ask.result();
    check_window(ask, problem(op, st), op.reach());
    op.check_output(ask, y);
    ask.output("y", y);
    check_apart(ask, st, "y", y, [&](const char* name, const auto& x) noexcept { op.check_written(ask, name, x); });
    return ask.result();
  }

  template <class Op>
  static std::size_t bytes(const Op& op, const options&) noexcept {
    const index_t across = problem(op, typename Op::default_state{}).row;
    arena counted;
    counted.take<double>((window_problem<float, float>::saved + few) * across);
    return std::max(counted.used() + op.bytes(across), Op::rules::bytes(op));
  }

  template <verb Verb, class Op, class State>
  static void run(const Op& op, const State& st, const output<Op>& y, const options& how, context& ctx) {
    const auto p = problem(op, st);
    const std::size_t room = bytes(op, how);
    reserve_for(ctx, room);
    const index_t blocks = p.blocks();
    run_tasks(ctx, p.pieces() * blocks, room, [&](index_t task, arena memory) noexcept {
      piece<Op>(op, p, p.piece(task / blocks), task % blocks * p.row, y, memory);
    });
  }

 private:
  template <class Op, class T, class S>
  OGIVE_NOINLINE static void piece(const Op& op, const window_problem<T, S>& p, const window_piece& at, index_t channel,
                                   const output<Op>& y, arena memory) noexcept {
    using Acc = sweep_t<T, S>;
    const index_t across = std::min(p.row, p.channels() - channel);
    Acc* panel = memory.take<Acc>((p.saved + few) * p.row);
    if (at.leads && at.length <= few && !keeps(p.st) && !p.ring.present()) {
      const index_t K = p.st.final.present() ? p.st.final.extent(2) : op.reach();
      if (K <= p.saved) return few_tokens(op, p, at, channel, across, K, y, panel, memory);
    }
    if (y.present()) op.compute(p, at, channel, across, y, static_cast<const Acc*>(nullptr), memory);
    if (!at.leads) return;
    for (index_t t = 0; keeps(p.st) && t < at.live; ++t) {
      for_kept(p.st, at.sequence, at.batch, at.begin + t, t,
               [&](const auto& pool, index_t slot) noexcept { p.save(at, t + 1, pool, slot, channel, across, panel); });
    }
    if (p.st.final.present()) {
      p.save(at, at.live, p.st.final, core::checker::slot_of(p.st.final_slots, at.sequence), channel, across, panel);
    }
  }

  /// The K inputs of the state and those of a few tokens in one panel: what is read is read once.
  template <class Op, class T, class S, class Acc>
  static void few_tokens(const Op& op, const window_problem<T, S>& p, const window_piece& at, index_t channel,
                         index_t across, index_t K, const output<Op>& y, Acc* panel, arena memory) noexcept {
    p.load(at, -K, K + at.live, channel, across, panel, p.row);
    if (y.present()) {
      op.compute(p, at, channel, across, y, static_cast<const Acc*>(panel + (K - op.reach()) * p.row), memory);
    }
    const index_t slot = p.st.final.present() ? core::checker::slot_of(p.st.final_slots, at.sequence) : -1;
    if (slot >= 0) store_few(panel + at.live * p.row, p.row, columns_of(p.st.final, slot, 0, K, channel, across));
  }
  static constexpr index_t few = 16;
};

template <class Op>
concept windowed = requires {
  typename Op::windowed;
};

}  // namespace detail

template <detail::windowed Op>
struct engine_of<Op> {
  using type = detail::window_engine;
};

}  // namespace OGIVE_ABI
}  // namespace ogive

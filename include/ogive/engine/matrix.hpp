// L5: the matrix engine: every operator whose state is S ∈ R^{K×V}, in every form, behind the same verbs.
//
// A task is one sequence and a block of its heads; heads that share q and k share their scores. Tasks are cut by shape
// alone: the bits do not depend on how many threads run them. Long sequences of one or two heads are cut in time, too.
#pragma once

#include <ogive/core/context.hpp>
#include <ogive/engine/kept_states.hpp>
#include <ogive/engine/matrix_checkpoints.hpp>
#include <ogive/engine/matrix_operands.hpp>
#include <ogive/engine/matrix_task.hpp>
#include <ogive/engine/tasks.hpp>
#include <ogive/engine/verbs.hpp>

#include <algorithm>
#include <array>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// An operator and where its outputs go: what the hooks see as `op`.
template <class Op>
struct matrix_binding {
  const Op* op;
  const view<typename Op::scalar, 4>* o;

  template <class Acc>
  matrix_hooks<Acc> hooks() const noexcept {
    matrix_hooks<Acc> all{
        this,
        [](const void* self, const tokens& at, Acc* q, index_t stride, Acc* room) noexcept {
          static_cast<const matrix_binding*>(self)->op->load_q(at, q, stride, room);
        },
        [](const void* self, const tokens& at, Acc* k, index_t stride, Acc* room) noexcept {
          static_cast<const matrix_binding*>(self)->op->load_k(at, k, stride, room);
        },
        [](const void* self, const tokens& at, Acc* v, index_t stride, Acc* log_decay, Acc* room) noexcept {
          static_cast<const matrix_binding*>(self)->op->load_v(at, v, stride, log_decay, room);
        },
        [](const void* self, operand which, const tokens& at, lines_ahead& lines) noexcept {
          const auto* bound = static_cast<const matrix_binding*>(self);
          if (which == operand::output) {
            if (!past_caches<Acc>(*bound->o)) lines.add(ahead_of(*bound->o, at));
          } else {
            bound->op->ahead(which, at, lines);
          }
        },
        [](const void* self, const tokens& at, Acc* rows, index_t stride, const Acc* denominator, Acc* room) noexcept {
          const auto* bound = static_cast<const matrix_binding*>(self);
          bound->op->store(at, rows, stride, denominator, room, *bound->o);
        }};
    if constexpr (Op::decays == decay::per_key) {
      all.load_gates = [](const void* self, const tokens& at, Acc* g, index_t stride) noexcept {
        static_cast<const matrix_binding*>(self)->op->load_gates(at, g, stride);
      };
    }
    if constexpr (Op::writes == write::delta) {
      all.load_beta = [](const void* self, const tokens& at, Acc* beta, index_t stride) noexcept {
        static_cast<const matrix_binding*>(self)->op->load_beta(at, beta, stride);
      };
      all.beta_per_value = op->per_value();
    }
    if constexpr (Op::writes == write::low_rank) {
      all.load_removal = [](const void* self, const tokens& at, Acc* a, Acc* b, index_t stride) noexcept {
        static_cast<const matrix_binding*>(self)->op->load_removal(at, a, b, stride);
      };
    }
    if constexpr (requires { op->template lying<Acc>(operand::key, tokens{}); }) {
      all.lying = [](const void* self, operand which, const tokens& at) noexcept {
        return static_cast<const matrix_binding*>(self)->op->template lying<Acc>(which, at);
      };
      all.lying_output = [](const void* self, const tokens& at) noexcept {
        return rows_if_lying<Acc>(*static_cast<const matrix_binding*>(self)->o, at);
      };
    }
    if constexpr (Op::reads == read::before) {
      all.load_bonus = [](const void* self, index_t head, Acc* u) noexcept {
        return static_cast<const matrix_binding*>(self)->op->load_bonus(head, u);
      };
    }
    return all;
  }
};

/// Whether a call keeps states on the way, or is to be like one that does.
template <class State>
bool keeps_states(const State& st) noexcept {
  if constexpr (with_kept<State>) {
    return st.interval > 0 || keeps(st);
  }
  return false;
}

/// Whether a call is to be cut up like one that goes on from a state: it does, or another one may from its boundaries.
template <class State>
bool continues(const State& st) noexcept {
  if constexpr (with_kept<State>) {
    if (st.interval > 0) return true;
  }
  return st.initial.present();
}

/// Whether a call leaves a state behind, or its normaliser.
template <class State>
bool leaves_state(const State& st) noexcept {
  if constexpr (with_kept<State>) {
    if (keeps(st)) return true;
  }
  return st.final.present();
}
template <class State>
bool leaves_normaliser(const State& st) noexcept {
  if constexpr (with_normaliser<State>) {
    if constexpr (with_kept<State>) {
      if (st.z_snapshots.present() || st.z_boundaries.present()) return true;
    }
    return st.z_final.present();
  }
  return false;
}

/// A state from where it lies, in rows without gaps, K-first or V-first, into a slot.
template <class Acc, class S>
OGIVE_NOINLINE void copy_state(const state_place<const Acc>& from, const view<S, 2>& slot) noexcept {
  constexpr index_t W = simd::width<Acc>;
  const bool k_first = from.value_stride == 1;
  const view<S, 2> to = k_first ? slot : slot.permute({1, 0});
  for (index_t i = 0; i < to.extent(0); ++i) {
    const Acc* row = from.data + i * (k_first ? from.key_stride : from.value_stride);
    for (index_t j = 0; j < to.extent(1); j += W) {
      const index_t count = std::min(W, to.extent(1) - j);
      const auto x = simd::load_as<Acc, simd::default_arch>(row + j, count);
      if (to.stride(1) == 1) {
        simd::store_as(to.pointer(i, j), x, count);
      } else {
        simd::store_strided(to.pointer(i, j), to.stride(1), x, count);
      }
    }
  }
}

/// The hooks of a state struct of storage S, for a sweep in Acc.
template <class Acc, class State>
struct state_access {
  using S = typename State::storage_type;

  static index_t from_slot(const State& st, index_t sequence) noexcept {
    return st.initial.present() ? core::checker::slot_of(st.initial_slots, sequence) : -1;
  }
  static index_t to_slot(const State& st, index_t sequence) noexcept {
    return st.final.present() ? core::checker::slot_of(st.final_slots, sequence) : -1;
  }
  static bool load(const void* state, index_t sequence, index_t head, Acc* S_out, index_t stride, Acc* z) noexcept {
    const State& st = *static_cast<const State*>(state);
    const index_t slot = from_slot(st, sequence);
    if (slot < 0) return false;
    if (S_out != nullptr) load_rows(st.initial[slot][head], S_out, stride);
    if constexpr (with_normaliser<State>) {
      if (st.z_initial.present()) {
        load_rows(row(st.z_initial, slot, head), z, 0);
      } else {
        zero_rows(z, 0, 1, padded<Acc>(st.initial.extent(2)));
      }
    }
    return true;
  }
  static void save(const void* state, index_t sequence, index_t head, const Acc* S_in, index_t stride,
                   const Acc* z) noexcept {
    const State& st = *static_cast<const State*>(state);
    const index_t slot = to_slot(st, sequence);
    if (slot < 0) return;
    if (S_in != nullptr) store_rows(S_in, stride, st.final[slot][head]);
    if constexpr (with_normaliser<State>) {
      if (st.z_final.present()) store_rows(z, 0, row(st.z_final, slot, head));
    }
  }
  static bool wanted(const void* state, index_t sequence) noexcept {
    return to_slot(*static_cast<const State*>(state), sequence) >= 0;
  }
  static state_place<const Acc> from(const void* state, index_t sequence, index_t head) noexcept {
    const State& st = *static_cast<const State*>(state);
    if constexpr (std::is_same_v<S, Acc>) {
      if (const index_t slot = from_slot(st, sequence); slot >= 0) return place<const Acc>(st.initial[slot][head]);
    }
    return {};
  }
  static state_place<Acc> to(const void* state, index_t sequence, index_t head) noexcept {
    const State& st = *static_cast<const State*>(state);
    if constexpr (std::is_same_v<S, Acc>) {
      if (const index_t slot = to_slot(st, sequence); slot >= 0) return place<Acc>(st.final[slot][head]);
    }
    return {};
  }
  static state_hooks<Acc> hooks(const State& st) noexcept {
    state_hooks<Acc> all{&st, load, save, wanted, from, to};
    if constexpr (with_kept<State>) {
      if (keeps(st)) all.next = next, all.kept = kept, all.keep = keep;
    }
    return all;
  }

  static index_t next(const void* state, index_t sequence, const tokens& at) noexcept {
    const State& st = *static_cast<const State*>(state);
    index_t found = at.count + 1;
    for (index_t i = 0; st.snapshots.present() && i < std::min(at.live, found); ++i) {
      if (st.snapshot_slots(at.batch, at.token + i) >= 0) found = i + 1;
    }
    if (!st.boundaries.present()) return found;
    const index_t begin = tokens_before(st, sequence);
    index_t number = (begin + at.position) / st.interval - begin / st.interval;
    index_t i = st.interval - (begin + at.position) % st.interval;
    for (; i <= std::min(at.live, found); i += st.interval) {
      if (st.boundary_slots(sequence, number++) >= 0) found = i;
    }
    return found;
  }
  static state_place<Acc> kept(const void* state, index_t sequence, const tokens& at) noexcept {
    const State& st = *static_cast<const State*>(state);
    if constexpr (std::is_same_v<S, Acc>) {
      if (const index_t slot = snapshot_slot(st, at.batch, at.token); slot >= 0) {
        return place<Acc>(st.snapshots[slot][at.head]);
      }
      if (const index_t slot = boundary_slot(st, sequence, at.position); slot >= 0) {
        return place<Acc>(st.boundaries[slot][at.head]);
      }
    }
    return {};
  }
  static void keep(const void* state, index_t sequence, const tokens& at, const state_place<const Acc>& S_in,
                   const Acc* z) noexcept {
    const State& st = *static_cast<const State*>(state);
    const index_t snapshot = snapshot_slot(st, at.batch, at.token), boundary = boundary_slot(st, sequence, at.position);
    keep_in(st.snapshots, snapshot, at.head, S_in);
    keep_in(st.boundaries, boundary, at.head, S_in);
    if constexpr (with_normaliser<State>) {
      if (snapshot >= 0 && st.z_snapshots.present()) store_rows(z, 0, row(st.z_snapshots, snapshot, at.head));
      if (boundary >= 0 && st.z_boundaries.present()) store_rows(z, 0, row(st.z_boundaries, boundary, at.head));
    }
  }

 private:
  static void keep_in(const view<S, 4>& pool, index_t slot, index_t head, const state_place<const Acc>& S_in) noexcept {
    if (slot < 0) return;
    const view<S, 2> to = pool[slot][head];
    if (static_cast<const void*>(to.data()) != static_cast<const void*>(S_in.data)) copy_state(S_in, to);
  }
  template <class Element>
  static state_place<Element> place(const view<Element, 2>& S) noexcept {
    return {S.data(), S.stride(0), S.stride(1)};
  }
  /// z of a slot and head as a matrix of one row.
  template <class Element>
  static view<Element, 2> row(const view<Element, 3>& z, index_t slot, index_t head) noexcept {
    return {z.pointer(slot, head, 0), {1, z.extent(2)}, {0, z.stride(2)}};
  }
};

/// What a verb got as its state, as the operator's own state struct.
template <class Op, class Given>
auto as_state(Given& given) noexcept {
  const auto st = own_state<Op, 4>(given);
  using State = typename Op::template state_of<typename decltype(st)::storage_type>;
  if constexpr (std::is_same_v<const State, decltype(st)>) {
    return st;
  } else {
    State own{
        .initial = st.initial, .final = st.final, .initial_slots = st.initial_slots, .final_slots = st.final_slots};
    if constexpr (with_kept<std::remove_const_t<decltype(st)>>) {
      own.snapshots = st.snapshots;
      own.snapshot_slots = st.snapshot_slots;
      own.boundaries = st.boundaries;
      own.boundary_slots = st.boundary_slots;
      own.interval = st.interval;
      own.position = st.position;
    }
    return own;
  }
}

template <class Op>
index_t sequences_of(const Op& op) noexcept {
  return op.offsets.present() ? op.offsets.size() - 1 : op.extents().batch;
}

/// What a call may leave out when it is given no state, in multiply-adds per token: without an initial state the first
/// chunk reads none, without a final one the last chunk writes none.
inline index_t spared(const matrix_extents& n, bool initial, bool final) noexcept {
  return initial ? 0 : (final ? 1 : 2) * n.key_dim * n.value_dim;
}

/// Whether a sequence of `length` is cheaper as one triangle, length·(K + V)/2 per token, than in chunks of `chunk`,
/// which go through the state. Scores under decays per key channel and the solve of a removal cost too much for that.
inline bool one_triangle(const matrix_policies& policies, const matrix_extents& n, index_t length, index_t chunk,
                         bool initial, bool final) noexcept {
  return policies.decays != decay::per_key && policies.writes == write::additive &&
         (length - chunk) * (n.key_dim + n.value_dim) * 5 / 8 <= spared(n, initial, final);
}

/// Tokens of most chunks: their panels stay in the first-level cache beside a block of the state, and the quadratic
/// part is small (K, V of 64 to 128: 32 tokens cost up to 8 %, with a solve up to 15 % more).
inline constexpr index_t most_chunks = 16;
/// Fewer where decays per key channel bring more panels beside a state of 16 KiB, which is cheap to pass once more
/// (K = V = 64, 32 heads: 3 to 10 % less time).
inline index_t usual_chunk(const matrix_policies& policies, const matrix_extents& n) noexcept {
  const index_t state = n.key_dim * n.value_dim;
  return policies.decays == decay::per_key && state >= 48 * 48 && state <= 64 * 64 ? 12 : most_chunks;
}

/// Tokens per chunk. A short sequence without a state is one chunk.
inline index_t matrix_chunk(const matrix_policies& policies, const options& how, const matrix_extents& n, bool initial,
                            bool final) noexcept {
  constexpr index_t most = 256;
  const index_t usual = usual_chunk(policies, n);
  index_t chunk = how.chunk > 0 ? std::min(how.chunk, most) : usual;
  if (how.chunk == 0 && n.length <= most && one_triangle(policies, n, n.length, usual, initial, final)) chunk = most;
  return std::max<index_t>(1, std::min(chunk, n.length));
}

/// The longest chunk of any call that has no more tokens.
inline index_t longest_matrix_chunk(const matrix_policies& policies, const options& how, matrix_extents n) noexcept {
  index_t longest = matrix_chunk(policies, how, n, false, false);
  for (n.length = std::min<index_t>(n.length, 256); n.length > longest; --n.length) {
    longest = std::max(longest, matrix_chunk(policies, how, n, false, false));
  }
  return longest;
}

template <class Acc, class Op, class State>
matrix_problem<Acc> describe(const matrix_binding<Op>& bound, const State& st, form how, bool in_place,
                             const options& chosen) noexcept {
  const Op& op = *bound.op;
  matrix_problem<Acc> p{};
  p.n = op.extents();
  p.policies = policies_of<Op>;
  p.hooks = bound.template hooks<Acc>();
  p.states = state_access<Acc, State>::hooks(st);
  p.offsets = op.offsets;
  p.lengths = op.lengths;
  p.sequences = sequences_of(op);
  p.head_map = op.head_map;
  if constexpr (requires { op.normalise; }) {
    p.normalise = op.normalise;
    p.normalise = p.normalise || leaves_normaliser(st);  // z is kept where wanted
    p.bias = op.template quotient<Acc>().bias();
  }
  p.outputs = bound.o->present();
  p.how = how;
  p.in_place = in_place;
  if constexpr (with_kept<State>) {
    p.interval = st.interval;
    p.position = st.position;
  }
  p.plan = matrix_plan::of<Acc>(p.n, matrix_chunk(p.policies, chosen, p.n, continues(st), leaves_state(st)));
  return p;
}

/// Tokens of a segment of time, 0 for no segments: writes that only add, in chunks, no state kept on the way. Left to
/// itself, `forward` has them where all heads are a task or two. How many sequences there are, and how long they are,
/// has no say.
inline index_t segment_of(const options& how, const matrix_policies& policies, const matrix_extents& n,
                          bool forwards) noexcept {
  constexpr index_t usual = 4096, least = 32;
  if (policies.writes != write::additive) return 0;
  const bool chosen = forwards && how.form == form::automatic && how.chunk == 0 && n.heads <= 2;
  const index_t wished = how.time_split > 0 ? std::max(how.time_split, least) : chosen ? usual : 0;
  return (n.length - 1) / 2 < wished ? 0 : wished;
}

template <class Acc>
std::size_t scratch_of(const matrix_problem<Acc>& p) noexcept {
  arena counted;
  matrix_scratch<Acc>::carve(p, counted);
  matrix_carries<Acc>::carve(p, counted);
  return counted.used();
}

/// A call that is too short to pay for chunks, on a state that can be swept where it lies.
template <class State>
bool brief(index_t length, const State& st) noexcept {
  return length <= 8 && st.initial.present();
}

/// Whether an operator brings a left product, a form without a state and without decays.
template <class Op>
concept with_left_product = Op::decays == decay::none&& requires(const Op& op) {
  op.template left_bytes<double>();
};

template <class Op, class Acc>
void run_tasks_of(const matrix_problem<Acc>* problems, index_t count, context& ctx) {
  const std::size_t bytes = scratch_of(problems[0]);
  ctx.reserve(static_cast<std::size_t>(ctx.workers()) * bytes);
  const index_t tasks = problems[0].sequences * problems[0].plan.blocks * count;
  using engine = matrix_task<Acc, simd::default_arch, Op::decays, Op::writes, Op::reads>;
  run_over_time(
      ctx, tasks, bytes, [&](index_t task) noexcept { return engine::segments(problems[task % count], task / count); },
      [&](index_t task, arena memory) noexcept { engine::run(problems[task % count], task / count, memory); },
      [&](index_t task, scan_part what, const time_shares& shares, index_t i, arena memory) noexcept {
        engine::run_part(problems[task % count], task / count, what, shares, i, memory, ctx.scratch(0, bytes));
      });
}

/// Pieces of V at most.
inline constexpr int most_pieces = 8;

/// Pieces of V that tasks of their own work on: one state alone would be one task. Each piece takes the scores anew, so
/// there are no more than workers, and each has 32 columns at least: columns never meet, so the bits are those of the
/// whole in any number of pieces. None where time is cut, which workers share better (SSD, K = 128, V = 64, two
/// threads: 1.36 against 1.08). What a normaliser wants of a forward is not of V: each piece makes z anew, the first
/// one saves it.
template <class Op>
index_t value_pieces(const Op& op, index_t workers) noexcept {
  const matrix_extents n = op.extents();
  if (!std::is_trivially_copyable_v<Op> || sequences_of(op) * n.heads != 1 || n.query_heads > 1) return 1;
  return std::clamp<index_t>(n.value_dim / 32, 1, std::min<index_t>(workers, most_pieces));
}

/// What `part(i)` makes for the pieces i < most_pieces.
template <class Part>
auto all_parts(const Part& part) noexcept {
  return [&]<std::size_t... I>(std::index_sequence<I...>) noexcept {
    return std::array{part(static_cast<index_t>(I))...};
  }
  (std::make_index_sequence<most_pieces>{});
}

/// Their columns: whole vectors, so that no kernel does in two pieces what it does not do in one.
struct value_cut {
  index_t pieces, columns, width;

  template <class Acc>
  static value_cut of(index_t columns, index_t pieces) noexcept {
    const index_t width = round_up((columns + pieces - 1) / pieces, 2 * simd::width<Acc>);
    return {(columns + width - 1) / width, columns, width};
  }
  struct piece {
    index_t first, count;
  };
  piece operator[](index_t i) const noexcept {
    const index_t first = std::min(i * width, columns);
    return {first, std::min(width, columns - first)};
  }
};

/// A state struct on `count` columns of V; only that of the first ones leaves a normaliser behind.
template <class State>
State columns_of(State st, index_t first, index_t count) noexcept {
  const auto narrow = [&](auto& pool) noexcept {
    if (pool.present()) pool = pool.slice(3, first, count);
  };
  narrow(st.initial), narrow(st.final);
  if constexpr (with_kept<State>) narrow(st.snapshots), narrow(st.boundaries);
  if constexpr (with_normaliser<State>) {
    if (first > 0) {
      st.z_final = {};
      if constexpr (with_kept<State>) st.z_snapshots = st.z_boundaries = {};
    }
  }
  return st;
}
/// Whether pieces might read a normaliser where one of them saves it.
template <class State>
bool sweeps_normaliser(const State& st) noexcept {
  if constexpr (with_normaliser<State>) return st.z_initial.present() && leaves_normaliser(st);
  return false;
}

/// The tasks of a call that is cut into pieces of V.
template <class Acc, class Op, class State, class Output>
void run_pieces(index_t pieces, const Op& op, const State& st, const Output& o, form how, bool in_place, options chosen,
                index_t segment, const matrix_keeping<Acc>* keeping, context& ctx) {
  struct piece {
    Op op;
    State st;
    Output o;
    matrix_binding<Op> bound;
    matrix_keeping<Acc> keeping;
  };
  const value_cut cut = value_cut::of<Acc>(op.extents().value_dim, pieces);
  chosen.chunk = matrix_chunk(policies_of<Op>, chosen, op.extents(), continues(st), leaves_state(st));
  const auto part = [&](index_t i) noexcept -> piece {
    const auto [first, count] = cut[i];
    return {op.columns(first, count), columns_of(st, first, count), o.present() ? o.slice(3, first, count) : o, {}, {}};
  };
  auto parts = all_parts(part);
  matrix_problem<Acc> problems[most_pieces];
  for (index_t i = 0; i < cut.pieces; ++i) {
    piece& own = parts[static_cast<std::size_t>(i)];
    own.bound = {&own.op, &own.o};
    problems[i] = describe<Acc>(own.bound, own.st, how, in_place, chosen);
    problems[i].segment = segment;
    if (keeping == nullptr) continue;
    const auto [first, count] = cut[i];
    own.keeping = {keeping->to.columns(first, count), problems[i].states};
    problems[i].states = own.keeping.hooks();
    problems[i].normalise = problems[i].normalise || own.keeping.to.normalisers != nullptr;
  }
  run_tasks_of<Op>(problems, cut.pieces, ctx);
}

template <class Op, class State>
using matrix_accum = sweep_t<typename Op::scalar, typename State::storage_type>;

/// Whether a step may take the heads of a token for rows of its panels: each reads a state, neighbours in memory are
/// neighbours in order, and the operator can exchange its axes of tokens and heads.
template <class Op>
concept turns_heads = requires(const Op& op) {
  { op.turned() } -> std::same_as<std::optional<Op>>;
};
inline bool heads_in_order(const matrix_extents& n, heads map) noexcept {
  return n.heads > 1 && n.query_heads == n.key_heads && (map == heads::consecutive || n.key_heads == n.heads);
}

/// Every verb after the door.
template <verb Verb, class Op, class State>
void run_matrix(const Op& op, const State& st, const view<typename Op::scalar, 4>& o, const options& how, context& ctx,
                const matrix_keeping<matrix_accum<Op, State>>* keeping = nullptr) {
  using Acc = matrix_accum<Op, State>;
  const view<typename Op::scalar, 4> nowhere;
  matrix_binding<Op> bound{&op, &o};
  form shape_of_run = Verb == verb::chunked ? form::chunked : form::recurrent;
  bool in_place = Verb == verb::step;
  if constexpr (Verb == verb::forward) {
    const matrix_extents n = op.extents();
    const matrix_policies policies = policies_of<Op>;
    const bool choose = how.form == form::automatic;
    in_place = choose && brief(n.length, st);
    // Where writes only add, four tokens a sweep beat every chunk (K = V of 32 to 256: 2 to 20 %, with decays per key
    // channel up to 40 %), but for the triangle of a short sequence. A state or two are chunked all the same, since
    // long sequences of them are cut in time, and so are four heads or more that share q and k, whose scores chunks
    // make once (SSD: 9 % less time). A removal costs a state of more than 16 KiB, which leaves the first-level cache,
    // more sweeps than chunks.
    const bool share = Op::decays != decay::per_key && n.heads >= 4 * n.key_heads && n.key_dim * n.value_dim >= 4096;
    const bool adds = Op::writes == write::additive && n.heads > 2 && !share;
    const bool small = (Op::decays != decay::scalar || Op::writes != write::additive) &&
                       n.key_dim * n.value_dim * static_cast<index_t>(sizeof(Acc)) <= 16384;
    const bool swept = (adds || small) && how.chunk == 0 && how.time_split == 0 &&
                       (continues(st) || !one_triangle(policies, n, n.length, most_chunks, false, leaves_state(st)));
    shape_of_run = !choose ? how.form : in_place || swept || st.snapshots.present() ? form::recurrent : form::chunked;
    if constexpr (with_left_product<Op>) {
      const bool long_triangle = choose && keeping == nullptr && how.chunk == 0 && n.length > 256 && !continues(st) &&
                                 !leaves_state(st) && one_triangle(policies, n, n.length, most_chunks, false, false);
      if (how.form == form::left || long_triangle) {
        op.left(st, o, ctx);
        if (!leaves_state(st) && keeping == nullptr) return;
        bound.o = &nowhere;  // a state is still wanted: the chunks bring it
        shape_of_run = form::chunked;
      }
    }
  }
  const bool cut = shape_of_run == form::chunked && !keeps_states(st) && keeping == nullptr;
  const index_t segment = cut ? segment_of(how, policies_of<Op>, op.extents(), Verb == verb::forward) : 0;
  options chosen = how;
  if (keeping != nullptr && how.chunk == 0 && keeping->to.interval % usual_chunk(policies_of<Op>, op.extents()) != 0) {
    chosen.chunk = most_chunks;  // a state that is kept ends a chunk
  }
  if constexpr (requires { op.columns(0, 0); }) {
    const bool whole = segment > 0 || sweeps_normaliser(st);
    if (const index_t pieces = whole ? 1 : value_pieces(op, ctx.workers()); pieces > 1) {
      return run_pieces<Acc>(pieces, op, st, *bound.o, shape_of_run, in_place, chosen, segment, keeping, ctx);
    }
  }
  matrix_problem<Acc> whole = describe<Acc>(bound, st, shape_of_run, in_place, chosen);
  whole.segment = segment;
  [[maybe_unused]] std::optional<Op> turned;
  [[maybe_unused]] matrix_binding<Op> bound_turned{};
  [[maybe_unused]] view<typename Op::scalar, 4> turned_o;
  if constexpr (turns_heads<Op>) {
    if (in_place && heads_in_order(whole.n, whole.head_map)) turned = op.turned();
    if (turned) {
      if (o.present()) turned_o = from_bhld(o);
      bound_turned = {&*turned, &turned_o};
      whole.turned = &bound_turned;
      // States never meet, so that the bits are the same in one task, which goes from each to the next.
      whole.one_token = whole.n.length == 1 && !op.offsets.present();
      // (Tasks of one state have scratch for one.)
      if (whole.one_token && whole.plan.block > 1 && ctx.alone()) {
        whole.plan.blocks = 1;
        whole.plan.block = whole.n.heads;
      }
    }
  }
  if (keeping != nullptr) {
    whole.states = keeping->hooks();
    whole.normalise = keeping->to.normalisers != nullptr;
  }
  run_tasks_of<Op>(&whole, 1, ctx);
}

/// A forward that keeps what its backward wants; of a state with a normaliser also z, whoever will ask for its
/// gradient.
template <class Op, class State>
void run_keeping(const Op& op, const State& st, const view<typename Op::scalar, 4>& o, const options& how, context& ctx,
                 checkpoints& kept) {
  using Acc = matrix_accum<Op, State>;
  const matrix_binding<Op> bound{&op, &o};
  const options back = backward_options(policies_of<Op>, op.extents(), {.chunk = kept.interval()});
  auto p = describe<Acc>(bound, st, form::chunked, false, back);
  p.normalise = with_normaliser<State>;
  const index_t interval = p.plan.chunk;
  arena counted;
  matrix_checkpoints<Acc>::of(p, interval, counted);
  kept.reserve(counted.used(), p.offsets.size() + p.lengths.size());
  const std::size_t bytes = scratch_of(p);
  ctx.reserve(static_cast<std::size_t>(ctx.workers()) * bytes);
  run_tasks(ctx, 1, bytes,
            [&](index_t, arena) noexcept { kept.begin(matrix_checkpoints<Acc>::call_of(op.name, p, interval)); });
  arena memory(kept.data(), kept.capacity());
  const matrix_keeping<Acc> keeping{matrix_checkpoints<Acc>::of(p, interval, memory), p.states};
  run_tasks(ctx, p.sequences, bytes, [&](index_t s, arena mine) noexcept { keeping.begin(s, mine); });
  run_matrix<verb::forward>(op, st, o, how, ctx, &keeping);
}

/// What an operator calls the axes of its output and its state, for messages.
struct axis_letters {
  const char* output = "[B, L, max(H, Hq), V]";
  const char* state = "[slots, H, K, V]";
};
template <class Op>
inline constexpr axis_letters letters_of = [] {
  if constexpr (requires { Op::letters; }) {
    return Op::letters;
  } else {
    return axis_letters{};
  }
}();

/// The first questions of every call: its fields fit, and so do sequences and states.
template <class Op, class State>
void check_call(core::checker& ask, const Op& op, const State& st) noexcept {
  op.check_fields(ask);
  if (!ask) return;
  const matrix_extents n = op.extents();
  ask.offsets(op.offsets, n.batch, n.length);
  if (!ask) return;
  ask.lengths(op.lengths, sequences_of(op));
  check_pools(ask, op, st, sequences_of(op), shape<4>{0, n.heads, n.key_dim, n.value_dim}, letters_of<Op>.state);
}

/// The shape of o.
inline shape<4> matrix_output(const matrix_extents& n) noexcept {
  return {n.batch, n.length, std::max(n.heads, n.query_heads), n.value_dim};
}

template <class Op, class State>
status check_matrix(const Op& op, const State& st, const view<typename Op::scalar, 4>& o, const options& how) noexcept {
  core::checker ask(op.name);
  ask.chunk(how);
  const bool left = with_left_product<Op> && how.form == form::left;
  if (ask && !left && how.form != form::automatic && how.form != form::recurrent && how.form != form::chunked) {
    ask.refuse("form", status_code::value)
        << "must be automatic, recurrent" << (with_left_product<Op> ? ", left" : "") << " or chunked";
  }
  check_call(ask, op, st);
  if (!ask) return ask.result();
  ask.extents("o", o, matrix_output(op.extents()), letters_of<Op>.output).output("o", o);
  check_apart(ask, st, "o", o, [&](const char* name, const auto& x) noexcept { op.check_written(ask, name, x); });
  const matrix_extents n = op.extents();
  check_kept(ask, op, st, {n.batch, n.length}, shape<4>{-1, n.heads, n.key_dim, n.value_dim}, letters_of<Op>.state);
  return ask.result();
}

/// The matrix engine behind the verbs.
struct matrix_engine {
  static constexpr bool has_steps = true;
  static constexpr bool has_chunks = true;
  template <class Op>
  using output = view<typename Op::scalar, 4>;

  template <class Op, class Given>
  static auto own(Given& given) noexcept {
    return as_state<Op>(given);
  }
  template <class Op, class State>
  static status check(const Op& op, const State& st, const output<Op>& o, const options& how) noexcept {
    return check_matrix(op, st, o, how);
  }
  template <class Op>
  static std::size_t bytes(const Op& op, const options& how) noexcept {
    const output<Op> o;
    const matrix_binding<Op> bound{&op, &o};
    const index_t longest = longest_matrix_chunk(policies_of<Op>, how, op.extents());
    const auto most = [&]<class Acc>(Acc) noexcept {
      const typename Op::template state_of<Acc> st{};
      std::size_t all = 0;
      for (const form way : {form::recurrent, form::chunked}) {
        matrix_problem<Acc> p = describe<Acc>(bound, st, way, false, how);
        p.plan = matrix_plan::of<Acc>(p.n, longest);
        p.segment = way == form::chunked ? segment_of(how, policies_of<Op>, p.n, true) : 0;
        all = std::max(all, scratch_of(p));
      }
      if constexpr (with_left_product<Op>) all = std::max(all, op.template left_bytes<Acc>());
      return all;
    };
    return std::max(most(accum_t<typename Op::scalar>{}), most(double{}));
  }
  template <verb Verb, class Op, class State>
  static void run(const Op& op, const State& st, const output<Op>& o, const options& how, context& ctx) {
    run_matrix<Verb>(op, st, o, how, ctx);
  }
  template <class Op, class State>
  static void forward(const Op& op, const State& st, const output<Op>& o, const options& how, context& ctx,
                      checkpoints& kept) {
    run_keeping(op, st, o, how, ctx, kept);
  }
};

/// The same for an operator that is a choice of operands: they take its place, so that everything behind the door is
/// compiled once for all of them.
struct operands_engine : matrix_engine {
  template <class Op, class State>
  static status check(const Op& op, const State& st, const output<Op>& o, const options& how) noexcept {
    if constexpr (requires(core::checker & ask) { op.check_own(ask); }) {
      core::checker ask(Op::name);
      op.check_own(ask);
      if (!ask) return ask.result();
    }
    return check_matrix(op.operands(), st, o, how);
  }
  template <class Op>
  static std::size_t bytes(const Op& op, const options& how) noexcept {
    return matrix_engine::bytes(op.operands(), how);
  }
  template <verb Verb, class Op, class State>
  static void run(const Op& op, const State& st, const output<Op>& o, const options& how, context& ctx) {
    run_matrix<Verb>(op.operands(), st, o, how, ctx);
  }
  template <class Op, class State>
  static void forward(const Op& op, const State& st, const output<Op>& o, const options& how, context& ctx,
                      checkpoints& kept) {
    run_keeping(op.operands(), st, o, how, ctx, kept);
  }
};

}  // namespace detail

template <matrix_operator Op>
struct engine_of<Op> {
  using type = detail::matrix_engine;
};
template <operator_of_operands Op>
struct engine_of<Op> {
  using type = detail::operands_engine;
};

}  // namespace OGIVE_ABI
}  // namespace ogive

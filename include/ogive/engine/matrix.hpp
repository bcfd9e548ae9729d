// L5: the matrix engine: every operator whose state is S ∈ R^{K×V}, in every form, behind the same verbs.
//
// A task is one sequence and a block of its heads; heads that share q and k share their scores. Tasks are cut by shape
// alone: the bits do not depend on how many threads run them.
#pragma once

#include <ogive/core/check.hpp>
#include <ogive/core/context.hpp>
#include <ogive/engine/matrix_chunk.hpp>
#include <ogive/engine/matrix_operands.hpp>
#include <ogive/engine/tasks.hpp>
#include <ogive/engine/verbs.hpp>

#include <algorithm>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// A state matrix where it lies. No data: it starts at zero, or nobody wants it.
template <class Acc>
struct state_place {
  Acc* data = nullptr;
  index_t key_stride = 0;
  index_t value_stride = 0;
};

/// Between the pools of a state and the engine's working copies; `from` and `to` give the memory itself where a sweep
/// can run on it (same type). `load` answers whether there is an initial state; without room for S it loads z alone.
template <class Acc>
struct state_hooks {
  const void* state = nullptr;
  bool (*load)(const void* state, index_t sequence, index_t head, Acc* S, index_t stride, Acc* z) noexcept = nullptr;
  void (*save)(const void* state, index_t sequence, index_t head, const Acc* S, index_t stride,
               const Acc* z) noexcept = nullptr;
  bool (*wanted)(const void* state, index_t sequence) noexcept = nullptr;
  state_place<const Acc> (*from)(const void* state, index_t sequence, index_t head) noexcept = nullptr;
  state_place<Acc> (*to)(const void* state, index_t sequence, index_t head) noexcept = nullptr;
};

/// How a call is cut up: a function of shape and options.
struct matrix_plan {
  index_t chunk;       // tokens per chunk
  index_t queries;     // query heads that read one state
  index_t groups;      // heads of a group share q and k
  index_t members;     // heads of a group
  index_t block;       // heads of one task
  index_t blocks;      // tasks of a sequence
  index_t k_stride;    // of panels and z
  index_t v_stride;    // of panels and working states
  index_t state_rows;  // row stride of a working state

  /// Row stride of keys turned round.
  template <class Acc>
  index_t turned() const noexcept {
    return linalg::padded_stride<Acc>(chunk);
  }

  /// Heads of one token lie side by side, tokens a page apart: a task that takes several heads of a token together
  /// visits each page once for all of them (SSD, 24 heads: 18.5 ms with 4 heads a task, 14 ms with 12). More tasks give
  /// more threads work; the number is even, so that two share it.
  static constexpr index_t most_heads = 12;
  static constexpr index_t tasks_of(index_t heads) noexcept {
    if (heads < 8) return heads < 2 ? 1 : 2;
    return ((heads + most_heads - 1) / most_heads + 1) / 2 * 2;
  }

  template <class Acc>
  static matrix_plan of(const matrix_extents& n, index_t chunk) noexcept {
    matrix_plan p{};
    p.chunk = chunk;
    p.queries = std::max<index_t>(1, n.query_heads / std::max<index_t>(n.heads, 1));
    p.groups = std::max<index_t>(1, p.queries > 1 ? n.heads : std::max(std::min(n.query_heads, n.heads), n.key_heads));
    p.members = n.heads / p.groups;
    p.blocks = tasks_of(n.heads);
    p.block = (n.heads + p.blocks - 1) / p.blocks;
    p.k_stride = padded<Acc>(n.key_dim);
    p.v_stride = padded<Acc>(n.value_dim);
    p.state_rows = linalg::padded_stride<Acc>(n.value_dim);
    return p;
  }
};

/// The policies of an operator at run time, for the size of its scratch.
struct matrix_policies {
  decay decays;
  write writes;
  read reads;
};

template <class Op>
inline constexpr matrix_policies policies_of{Op::decays, Op::writes, Op::reads};

template <class Acc>
struct matrix_problem {
  matrix_extents n;
  matrix_policies policies{};
  matrix_hooks<Acc> hooks;
  state_hooks<Acc> states;
  integers offsets;
  integers lengths;
  index_t sequences = 0;
  heads head_map = heads::consecutive;
  bool normalise = false;
  Acc bias = Acc(0);
  bool outputs = true;
  form how = form::chunked;
  bool in_place = false;  // a step: sweep the caller's state where it lies
  matrix_plan plan{};
};

/// A worker's panels.
template <class Acc>
struct matrix_scratch {
  Acc* room;  // a chunk of rows for the hooks
  Acc* q;
  Acc* k;
  Acc* v;
  Acc* o;
  Acc* scores;  // q·k of every query head
  Acc* turned;  // Kᵀ, for the scores
  Acc* decayed;
  segment<Acc> decays;
  Acc* denominator;
  Acc* denominators;  // of all query heads, interleaved
  Acc* states;
  Acc* z;

  channel_decays<Acc> channels;  // per key channel
  Acc* decayed_q;
  Acc* decayed_removal;
  Acc* tile;
  Acc* removal;  // what removes: a, or the decayed k of a sweep
  Acc* b;
  Acc* turned_b;
  Acc* removal_scores;
  Acc* solved;
  Acc* a_b;
  Acc* q_b;  // of every query head
  Acc* w;
  Acc* beta;
  Acc* u;
  Acc* bonus;

  static matrix_scratch carve(const matrix_problem<Acc>& p, arena& memory) noexcept {
    const matrix_plan& plan = p.plan;
    const auto [decays, writes, reads] = p.policies;
    const bool chunked = p.how == form::chunked, per_key = decays == decay::per_key;
    const bool removes = writes != write::additive, low_rank = writes == write::low_rank;
    const index_t tokens = tile_rows<Acc>(plan.chunk);
    const index_t rows = chunked ? tokens : plan.chunk * plan.queries;  // a sweep interleaves the query heads
    const index_t score = chunked ? tokens * padded<Acc>(plan.chunk) : 0;
    const index_t keys = rows * plan.k_stride;
    const index_t turned = p.n.key_dim * plan.turned<Acc>();
    matrix_scratch s{};
    s.room = memory.take<Acc>(plan.chunk * std::max(padded<Acc>(p.n.input_dim), plan.v_stride) + simd::width<Acc>);
    s.q = memory.take<Acc>(tokens * plan.queries * plan.k_stride);
    s.k = memory.take<Acc>(keys);
    s.v = memory.take<Acc>(rows * plan.v_stride);
    s.o = memory.take<Acc>(rows * plan.v_stride);
    s.scores = memory.take<Acc>(plan.queries * score);
    s.turned = memory.take<Acc>(chunked ? turned : 0);
    s.decayed = memory.take<Acc>(score);
    s.decays.a = memory.take<Acc>(padded<Acc>(rows));
    s.decays.from_start = memory.take<Acc>(rows);
    s.decays.to_end = memory.take<Acc>(rows);
    s.denominator = memory.take<Acc>(plan.chunk);
    s.denominators = memory.take<Acc>(rows);
    s.states = memory.take<Acc>(plan.block * p.n.key_dim * plan.state_rows);
    s.z = memory.take<Acc>(plan.block * plan.k_stride);
    if (per_key) {
      s.channels.a = memory.take<Acc>(keys);
      s.channels.from_start = memory.take<Acc>(plan.k_stride);
      s.channels.whole = memory.take<Acc>(plan.k_stride);
      s.decayed_q = memory.take<Acc>(chunked ? tokens * plan.queries * plan.k_stride : 0);
      s.decayed_removal = memory.take<Acc>(chunked && removes ? keys : 0);
      s.tile = memory.take<Acc>(chunked ? (low_rank ? 2 : 1) * p.n.key_dim * simd::width<Acc> : 0);
    }
    if (removes) {
      s.removal = memory.take<Acc>(keys);
      s.removal_scores = memory.take<Acc>(score);
      s.solved = memory.take<Acc>(score);
      s.beta = memory.take<Acc>(rows * (p.hooks.beta_per_value ? plan.v_stride : 1));
    }
    if (low_rank) {
      s.b = memory.take<Acc>(keys);
      s.turned_b = memory.take<Acc>(chunked ? turned : 0);
      s.a_b = memory.take<Acc>(score);
      s.q_b = memory.take<Acc>(plan.queries * score);
      s.w = memory.take<Acc>(chunked ? rows * plan.v_stride : 0);
    }
    if (reads == read::before) {
      s.u = memory.take<Acc>(plan.k_stride);
      s.bonus = memory.take<Acc>(rows);
    }
    return s;
  }
};

/// The engine: one task, in all forms. Instantiated per (accumulator, instruction set, policies), never per operator.
template <class Acc, class Arch, decay Decay, write Write, read Read>
class matrix_task {
 public:
  OGIVE_NOINLINE static void run(const matrix_problem<Acc>& p, index_t task, arena memory) noexcept {
    matrix_task(p, matrix_scratch<Acc>::carve(p, memory), task).sequence();
  }

 private:
  matrix_task(const matrix_problem<Acc>& p, const matrix_scratch<Acc>& s, index_t task) noexcept
      : p_(p), plan_(p.plan), s_(s) {
    sequence_ = task / plan_.blocks;
    first_ = std::min(task % plan_.blocks * plan_.block, p.n.heads);
    count_ = std::min(plan_.block, p.n.heads - first_);
  }

  /// The task's heads are taken group by group: member m belongs to group(m).
  index_t group(index_t m) const noexcept { return (first_ + m) / plan_.members; }
  index_t head(index_t m) const noexcept {
    if (p_.head_map == heads::consecutive) return first_ + m;
    return (first_ + m) % plan_.members * plan_.groups + group(m);
  }
  /// The head of an operand with `held` heads that a group uses.
  index_t shared(index_t held, index_t g) const noexcept {
    return p_.head_map == heads::consecutive ? g / (plan_.groups / held) : g % held;
  }
  index_t query_head(index_t r, index_t g) const noexcept {
    if (plan_.queries == 1) return shared(p_.n.query_heads, g);
    return p_.head_map == heads::consecutive ? g * plan_.queries + r : r * p_.n.heads + g;
  }
  index_t output_head(index_t m, index_t r) const noexcept {
    return plan_.queries == 1 ? head(m) : query_head(r, group(m));
  }
  Acc* state(index_t member) const noexcept { return s_.states + member * p_.n.key_dim * plan_.state_rows; }
  Acc* z(index_t member) const noexcept { return s_.z + member * plan_.k_stride; }

  void sequence() noexcept {
    const bool packed = p_.offsets.present();
    const index_t begin = packed ? p_.offsets.at(sequence_) : 0;
    const index_t length = packed ? p_.offsets.at(sequence_ + 1) - begin : p_.n.length;
    const index_t live = p_.lengths.present() ? std::min(p_.lengths.at(sequence_), length) : length;
    const bool direct = p_.in_place && length > 0;
    if (!direct) load_states();
    for (index_t t = 0; t < length; t += plan_.chunk) {
      tokens at;
      at.batch = packed ? 0 : sequence_;
      at.token = begin + t;
      at.count = std::min(plan_.chunk, length - t);
      at.live = std::clamp<index_t>(live - t, 0, at.count);
      at.position = t;
      const bool last = t + at.count >= length;
      if (p_.how == form::chunked) {
        chunked(at, last);
      } else {
        recurrent(at, t == 0);
      }
    }
    if (!direct) save_states();
  }

  void load_states() noexcept {
    for (index_t m = 0; m < count_; ++m) {
      fresh_[m] = !p_.states.load(p_.states.state, sequence_, head(m), state(m), plan_.state_rows, z(m));
      if (!fresh_[m]) continue;
      zero_rows(z(m), 0, 1, plan_.k_stride);
      if (p_.how != form::chunked) zero_rows(state(m), plan_.state_rows, p_.n.key_dim, plan_.v_stride);
    }
  }
  void save_states() noexcept {
    if (!p_.states.wanted(p_.states.state, sequence_)) return;
    for (index_t m = 0; m < count_; ++m) {
      if (p_.how == form::chunked && fresh_[m]) zero_rows(state(m), plan_.state_rows, p_.n.key_dim, plan_.v_stride);
      p_.states.save(p_.states.state, sequence_, head(m), state(m), plan_.state_rows, z(m));
    }
  }

  index_t score_stride() const noexcept { return padded<Acc>(plan_.chunk); }
  /// Elements of the panel of one query head, and of its scores.
  index_t query_panel() const noexcept { return tile_rows<Acc>(plan_.chunk) * plan_.k_stride; }
  index_t score_panel() const noexcept { return tile_rows<Acc>(plan_.chunk) * score_stride(); }

  /// x yᵀ on and below the diagonal.
  void score(index_t count, const Acc* x, const Acc* y, Acc* to) noexcept {
    linalg::gemm_abt_lower<Arch>(count, count, p_.n.key_dim, linalg::panel<const Acc>{x, plan_.k_stride},
                                 linalg::panel<const Acc>{y, plan_.k_stride}, linalg::panel<Acc>{to, score_stride()},
                                 s_.turned);
  }

  /// What the heads of group g share: q, k, what removes, and their scores where no decay of a head enters them.
  void load_group(tokens at, index_t g) noexcept {
    constexpr bool plain = Decay != decay::per_key;
    at.head = shared(p_.n.key_heads, g);
    p_.hooks.load_k(p_.hooks.op, at, s_.k, plan_.k_stride, s_.room);
    if constexpr (Write == write::low_rank) {
      p_.hooks.load_removal(p_.hooks.op, at, s_.removal, s_.b, plan_.k_stride);
      if constexpr (plain) score(at.count, s_.removal, s_.k, s_.removal_scores);
      if constexpr (plain) score(at.count, s_.removal, s_.b, s_.a_b);
    }
    if constexpr (Write == write::delta && plain) score(at.count, s_.k, s_.k, s_.removal_scores);
    for (index_t r = 0; r < plan_.queries; ++r) {
      at.head = query_head(r, g);
      Acc* q = s_.q + r * query_panel();
      p_.hooks.load_q(p_.hooks.op, at, q, plan_.k_stride, s_.room);
      if constexpr (plain) score(at.count, q, s_.k, s_.scores + r * score_panel());
      if constexpr (plain && Write == write::low_rank) score(at.count, q, s_.b, s_.q_b + r * score_panel());
    }
  }

  /// The scores of one head under its decays per key channel.
  void score_channels(const tokens& at, lines_ahead& ahead) noexcept {
    constexpr int keys = Write == write::low_rank ? 2 : 1;
    const index_t K = p_.n.key_dim, R = plan_.queries, turned = plan_.template turned<Acc>();
    p_.hooks.load_gates(p_.hooks.op, at, s_.channels.a, plan_.k_stride);
    measure_channels<Acc, Arch>(at.count, K, plan_.k_stride, s_.channels);
    written_keys<Acc> written[keys];
    const auto turn = [&](int n, const Acc* rows, Acc* to) noexcept {
      linalg::transpose<Arch>(at.count, K, linalg::panel<const Acc>{rows, plan_.k_stride}, linalg::panel<Acc>{to, turned});
      written[n] = {to, s_.tile + n * K * simd::width<Acc, Arch>};
    };
    turn(0, s_.k, s_.turned);
    if constexpr (Write == write::low_rank) turn(1, s_.b, s_.turned_b);
    channel_scores<Acc, Arch, Write, Read, keys>(
        at.count, K, s_.channels, R,
        [&](index_t r) noexcept -> reader<Acc> {
          if (r == R) return {Write == write::delta ? s_.k : s_.removal, s_.decayed_removal};
          return {s_.q + r * query_panel(), s_.decayed_q + r * query_panel()};
        },
        written,
        [&](index_t r, int n) noexcept -> Acc* {
          if (r == R) return n == 0 ? s_.removal_scores : s_.a_b;
          return (n == 0 ? s_.scores : s_.q_b) + r * score_panel();
        },
        {plan_.k_stride, turned, score_stride()}, ahead);
    if constexpr (Read == read::before) {
      p_.hooks.load_bonus(p_.hooks.op, at.head, s_.u);
      for (index_t r = 0; r < R; ++r) {
        for (index_t i = 0; i < at.count; ++i) {
          s_.scores[r * score_panel() + i * (score_stride() + 1)] =
              bonus(s_.q + r * query_panel() + i * plan_.k_stride, s_.k + i * plan_.k_stride);
        }
      }
    }
  }

  /// q·(u ⊙ k) of one token.
  Acc bonus(const Acc* q, const Acc* k) const noexcept {
    simd::batch<Acc, Arch> sum(Acc(0));
    for (index_t at = 0; at < plan_.k_stride; at += simd::width<Acc, Arch>) {
      sum = simd::fma(simd::load<Arch>(q + at) * simd::load<Arch>(s_.u + at), simd::load<Arch>(k + at), sum);
    }
    return simd::reduce_add(sum);
  }

  /// What the next chunk will want of member m.
  lines_ahead rows_of_next(tokens at, index_t m) const noexcept {
    lines_ahead lines;
    const auto add = [&](operand which, index_t head) noexcept {
      at.head = head;
      p_.hooks.ahead(p_.hooks.op, which, at, lines);
    };
    const index_t g = group(m);
    add(operand::value, at.head);
    if (m == 0 || g != group(m - 1)) {
      add(operand::key, shared(p_.n.key_heads, g));
      for (index_t r = 0; r < plan_.queries; ++r) add(operand::query, query_head(r, g));
    }
    for (index_t r = 0; r < plan_.queries; ++r) add(operand::output, output_head(m, r));
    return lines;
  }

  void chunked(tokens at, bool last) noexcept {
    chunk<Acc> c;
    c.tokens = at.count;
    c.key_dim = p_.n.key_dim;
    c.value_dim = plan_.v_stride;
    c.k = s_.k;
    c.k_stride = plan_.k_stride;
    c.v = s_.v;
    c.o = s_.o;
    c.v_stride = plan_.v_stride;
    c.decayed = s_.decayed;
    c.score_stride = score_stride();
    c.decays = s_.decays;
    c.state_stride = plan_.state_rows;
    c.turned_k = s_.turned;
    c.turned_b = s_.turned_b;
    c.turned_stride = plan_.template turned<Acc>();
    c.whole = s_.channels.whole;
    c.removal = Decay == decay::per_key ? s_.decayed_removal : Write == write::delta ? s_.k : s_.removal;
    c.b = s_.b;
    c.removal_scores = s_.removal_scores;
    c.solved = s_.solved;
    c.a_b = s_.a_b;
    c.w = s_.w;
    c.beta = s_.beta;
    c.beta_stride = p_.hooks.beta_per_value ? plan_.v_stride : 0;
    const Acc* queries = Decay == decay::per_key ? s_.decayed_q : s_.q;
    for (index_t m = 0; m < count_; ++m) {
      if (m == 0 || group(m) != group(m - 1)) load_group(at, group(m));
      at.head = head(m);
      p_.hooks.load_v(p_.hooks.op, at, c.v, c.v_stride, c.decays.a, s_.room);
      c.ahead = rows_of_next(at, m);
      if constexpr (Decay == decay::scalar) measure_segment<Acc, Arch>(c.tokens, c.decays);
      if constexpr (Decay == decay::per_key) score_channels(at, c.ahead);
      c.state = state(m);
      c.fresh = fresh_[m];
      if constexpr (Write == write::delta) {
        p_.hooks.load_beta(p_.hooks.op, at, s_.beta, p_.hooks.beta_per_value ? plan_.v_stride : 1);
        correct_values<Acc, Arch, Decay>(c);
      }
      if constexpr (Write == write::low_rank) recall_removals<Acc, Arch>(c);
      for (index_t r = 0; r < plan_.queries && p_.outputs; ++r) {
        c.q = queries + r * query_panel();
        c.scores = s_.scores + r * score_panel();
        c.q_b = s_.q_b + (Write == write::low_rank ? r * score_panel() : 0);
        read_chunk<Acc, Arch, Decay, Write>(c);
        if constexpr (Write == write::additive) {
          if (p_.normalise) read_normaliser<Acc, Arch, Decay>(c, z(m), p_.bias, s_.denominator);
        }
        at.head = output_head(m, r);
        p_.hooks.store(p_.hooks.op, at, c.o, c.v_stride, p_.normalise ? s_.denominator : nullptr, s_.room);
      }
      if (last && !p_.states.wanted(p_.states.state, sequence_)) continue;
      if constexpr (Write == write::additive) {
        if (p_.normalise) write_normaliser<Acc, Arch, Decay>(c, z(m));
      }
      write_chunk<Acc, Arch, Decay, Write>(c);
      fresh_[m] = false;
    }
  }

  /// Several query heads per state become several reads of each token: rows t·R + r, of which one writes, the first, or
  /// the last where a token reads before it writes.
  static constexpr bool writes_last = Read == read::before;
  index_t writer() const noexcept { return writes_last ? plan_.queries - 1 : 0; }
  void interleave_keys(const tokens& at, Acc* rows, auto&& load) noexcept {
    if (plan_.queries > 1) zero_rows(rows, plan_.k_stride, at.count * plan_.queries, plan_.k_stride);
    load(rows + writer() * plan_.k_stride, plan_.queries * plan_.k_stride);
  }
  void interleave_group(tokens at, index_t g) noexcept {
    const index_t R = plan_.queries;
    at.head = shared(p_.n.key_heads, g);
    interleave_keys(at, s_.k, [&](Acc* rows, index_t stride) noexcept {
      p_.hooks.load_k(p_.hooks.op, at, rows, stride, s_.room);
    });
    if constexpr (Write == write::low_rank) {
      if (R > 1) zero_rows(s_.b, plan_.k_stride, at.count * R, plan_.k_stride);
      interleave_keys(at, s_.removal, [&](Acc* rows, index_t stride) noexcept {
        p_.hooks.load_removal(p_.hooks.op, at, rows, s_.b + writer() * plan_.k_stride, stride);
      });
    }
    for (index_t r = 0; r < R; ++r) {
      at.head = query_head(r, g);
      p_.hooks.load_q(p_.hooks.op, at, s_.q + r * plan_.k_stride, R * plan_.k_stride, s_.room);
    }
  }

  void recurrent(tokens at, bool first) noexcept {
    const index_t R = plan_.queries;
    sweep<Acc> w;
    w.tokens = at.count * R;
    w.key_dim = p_.n.key_dim;
    w.value_dim = p_.n.value_dim;
    w.q = s_.q;
    w.q_stride = plan_.k_stride;
    w.k = s_.k;
    w.k_stride = plan_.k_stride;
    w.v = s_.v;
    w.o = s_.o;
    w.v_stride = plan_.v_stride;
    w.b = s_.b;
    w.bonus = s_.bonus;
    for (index_t m = 0; m < count_; ++m) {
      if (m == 0 || group(m) != group(m - 1)) interleave_group(at, group(m));
      at.head = head(m);
      load_values(at);
      lines_ahead ahead = rows_of_next(at, m);
      w.ahead = &ahead;
      if constexpr (Decay == decay::scalar) w.decay = token_decays(at.count, R);
      if constexpr (Decay == decay::per_key) w.decay = channel_decays_of(at);
      if constexpr (Write == write::delta) prepare_delta(w, at);
      if constexpr (Write == write::low_rank) w.removal = s_.removal;
      if constexpr (Read == read::before) {
        p_.hooks.load_bonus(p_.hooks.op, at.head, s_.u);
        for (index_t i = 0; i < w.tokens; ++i) {
          s_.bonus[i] = bonus(s_.q + i * plan_.k_stride, s_.k + (i / R * R + writer()) * plan_.k_stride);
        }
      }
      if (p_.in_place) {
        step(w, m, first);
      } else {
        if (p_.normalise) sweep_normaliser<Acc, Arch>(w, z(m), p_.bias, s_.denominators);
        w.from = w.to = state(m);
        w.from_stride = w.to_stride = plan_.state_rows;
        sweep_k_first<Acc, Arch, Decay, Write, Read>(w);
      }
      for (index_t r = 0; r < R && p_.outputs; ++r) {
        at.head = output_head(m, r);
        for (index_t t = 0; t < at.count && p_.normalise; ++t) s_.denominator[t] = s_.denominators[t * R + r];
        p_.hooks.store(p_.hooks.op, at, s_.o + r * plan_.v_stride, R * plan_.v_stride,
                       p_.normalise ? s_.denominator : nullptr, s_.room);
      }
    }
  }

  /// v, and the scalar log decays. The rows that only read have no v, but where a token's bonus reads it.
  void load_values(const tokens& at) noexcept {
    const index_t R = plan_.queries;
    if (R > 1) zero_rows(s_.v, plan_.v_stride, at.count * R, plan_.v_stride);
    p_.hooks.load_v(p_.hooks.op, at, s_.v + writer() * plan_.v_stride, R * plan_.v_stride, s_.decays.a, s_.room);
    if constexpr (Read == read::before) {
      for (index_t i = 0; i < at.count * R; ++i) {
        const Acc* from = s_.v + (i / R * R + writer()) * plan_.v_stride;
        if (i % R != writer()) std::copy(from, from + plan_.v_stride, s_.v + i * plan_.v_stride);
      }
    }
  }

  /// exp(g) per row of a sweep; the further reads of a token decay nothing.
  const Acc* token_decays(index_t count, index_t R) noexcept {
    constexpr index_t W = simd::width<Acc, Arch>;
    Acc* a = s_.decays.a;
    for (index_t i = 0; i < count; i += W) simd::store(a + i, simd::exp(simd::load<Arch>(a + i)));
    if (R == 1) return a;
    for (index_t i = 0; i < count * R; ++i) s_.decays.to_end[i] = i % R == writer() ? a[i / R] : Acc(1);
    return s_.decays.to_end;
  }
  const Acc* channel_decays_of(const tokens& at) noexcept {
    Acc* a = s_.channels.a;
    interleave_keys(at, a, [&](Acc* rows, index_t stride) noexcept {
      p_.hooks.load_gates(p_.hooks.op, at, rows, stride);
    });
    change_rows(a, plan_.k_stride, at.count * plan_.queries, p_.n.key_dim,
                [](index_t, index_t, auto g) noexcept { return simd::exp(g); });
    return a;
  }

  /// β, and what a token recalls: (D_t S)ᵀ k_t = Sᵀ (D_t k_t).
  void prepare_delta(sweep<Acc>& w, const tokens& at) noexcept {
    const index_t R = plan_.queries;
    const index_t stride = p_.hooks.beta_per_value ? plan_.v_stride : 1;
    if (R > 1) zero_rows(s_.beta, stride, at.count * R, stride);
    p_.hooks.load_beta(p_.hooks.op, at, s_.beta + writer() * stride, R * stride);
    w.beta = s_.beta;
    w.beta_stride = p_.hooks.beta_per_value ? plan_.v_stride : 0;
    w.removal = s_.k;
    if constexpr (Decay == decay::none) return;
    w.removal = s_.removal;
    for (index_t i = 0; i < w.tokens; ++i) {
      for (index_t j = 0; j < plan_.k_stride; j += simd::width<Acc, Arch>) {
        const index_t to = i * plan_.k_stride + j;
        simd::batch<Acc, Arch> a;
        if constexpr (Decay == decay::per_key) {
          a = simd::load<Arch>(w.decay + to);
        } else {
          a = simd::batch<Acc, Arch>(w.decay[i]);
        }
        simd::store(s_.removal + to, a * simd::load<Arch>(s_.k + to));
      }
    }
  }

  /// The caller's own state, swept where it lies; what cannot be is worked on in scratch.
  void step(sweep<Acc>& w, index_t member, bool first) noexcept {
    const index_t h = head(member);
    const state_place<const Acc> from = p_.states.from(p_.states.state, sequence_, h);
    const state_place<Acc> to = p_.states.to(p_.states.state, sequence_, h);
    const bool k_first = to.value_stride == 1;
    const bool same_order = from.data == nullptr || (k_first ? from.value_stride == 1 : from.key_stride == 1);
    Acc* S = state(member);
    Acc* Z = z(member);
    const bool native = to.data != nullptr && (k_first || to.key_stride == 1) && same_order;
    if (p_.normalise || !native) {
      // z is one row: it goes through scratch. So does a state of another type, or of two strides.
      if (first && !p_.states.load(p_.states.state, sequence_, h, native ? nullptr : S, plan_.state_rows, Z)) {
        zero_rows(Z, 0, 1, plan_.k_stride);
        if (!native) zero_rows(S, plan_.state_rows, p_.n.key_dim, plan_.v_stride);
      }
    }
    if (p_.normalise) sweep_normaliser<Acc, Arch>(w, Z, p_.bias, s_.denominators);
    if (native) {
      w.to = to.data;
      w.to_stride = k_first ? to.key_stride : to.value_stride;
      w.from = w.to;
      w.from_stride = w.to_stride;
      if (first && from.data != nullptr) {
        w.from = from.data;
        w.from_stride = k_first ? from.key_stride : from.value_stride;
      } else if (first) {
        zero_rows(w.to, w.to_stride, k_first ? p_.n.key_dim : p_.n.value_dim, k_first ? p_.n.value_dim : p_.n.key_dim);
      }
      if (k_first) {
        sweep_k_first<Acc, Arch, Decay, Write, Read>(w);
      } else {
        sweep_v_first<Acc, Arch, Decay, Write, Read>(w);
      }
    } else {
      w.from = w.to = S;
      w.from_stride = w.to_stride = plan_.state_rows;
      sweep_k_first<Acc, Arch, Decay, Write, Read>(w);
    }
    if (p_.normalise || !native) {
      p_.states.save(p_.states.state, sequence_, h, native ? nullptr : S, plan_.state_rows, Z);
    }
  }

  const matrix_problem<Acc>& p_;
  const matrix_plan& plan_;
  matrix_scratch<Acc> s_;
  index_t sequence_ = 0;
  index_t first_ = 0;
  index_t count_ = 0;
  bool fresh_[matrix_plan::most_heads] = {};
};

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
      all.beta_per_value = op->beta_per_value();
    }
    if constexpr (Op::writes == write::low_rank) {
      all.load_removal = [](const void* self, const tokens& at, Acc* a, Acc* b, index_t stride) noexcept {
        static_cast<const matrix_binding*>(self)->op->load_removal(at, a, b, stride);
      };
    }
    if constexpr (Op::reads == read::before) {
      all.load_bonus = [](const void* self, index_t head, Acc* u) noexcept {
        static_cast<const matrix_binding*>(self)->op->load_bonus(head, u);
      };
    }
    return all;
  }
};

template <class State>
concept with_normaliser = requires(const State& st) {
  st.z_initial;
};

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
  static state_hooks<Acc> hooks(const State& st) noexcept { return {&st, load, save, wanted, from, to}; }

 private:
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
    return State{.initial = st.initial,
                 .final = st.final,
                 .initial_slots = st.initial_slots,
                 .final_slots = st.final_slots};
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

/// Tokens per chunk when the caller does not say: with 32 the panels of a chunk stay in the first-level cache beside a
/// block of the state, and the quadratic part is small (K, V of 64 to 128: 64 tokens cost 3 to 15 % more). A short
/// sequence without a state is one chunk.
inline index_t matrix_chunk(const matrix_policies& policies, const options& how, const matrix_extents& n, bool initial,
                            bool final) noexcept {
  constexpr index_t usual = 32, most = 256;
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
    if constexpr (with_normaliser<State>) p.normalise = p.normalise || st.z_final.present();  // z is kept where wanted
    p.bias = op.template quotient<Acc>().bias();
  }
  p.outputs = bound.o->present();
  p.how = how;
  p.in_place = in_place;
  p.plan = matrix_plan::of<Acc>(p.n, matrix_chunk(p.policies, chosen, p.n, st.initial.present(), st.final.present()));
  return p;
}

template <class Acc>
std::size_t scratch_of(const matrix_problem<Acc>& p) noexcept {
  arena counted;
  matrix_scratch<Acc>::carve(p, counted);
  return counted.used();
}

/// A call that is too short to pay for chunks, on a state that can be swept where it lies.
template <class State>
bool brief(index_t length, const State& st) noexcept {
  return length <= 8 && st.initial.present();
}

/// Whether an operator brings a left product, a form without a state.
template <class Op>
concept with_left_product = requires(const Op& op) {
  op.template left_bytes<double>();
};

template <class Op, class Acc>
void run_tasks_of(const matrix_problem<Acc>* problems, index_t count, context& ctx) {
  const std::size_t bytes = scratch_of(problems[0]);
  ctx.reserve(static_cast<std::size_t>(ctx.workers()) * bytes);
  const index_t tasks = problems[0].sequences * problems[0].plan.blocks * count;
  run_tasks(ctx, tasks, bytes, [&](index_t task, arena memory) noexcept {
    matrix_task<Acc, simd::default_arch, Op::decays, Op::writes, Op::reads>::run(problems[task % count], task / count,
                                                                                 memory);
  });
}

/// Pieces of V that tasks of their own work on: one state alone would be one task. Each piece takes the scores anew, so
/// there are few, and none where one worker would run them all: columns never meet, so the bits are those of the whole.
/// A normaliser belongs to all columns.
template <class Op, class State>
index_t value_pieces(const Op& op, const State& st) noexcept {
  const matrix_extents n = op.extents();
  if (!std::is_trivially_copyable_v<Op> || sequences_of(op) * n.heads != 1 || n.query_heads > 1) return 1;
  if constexpr (with_normaliser<State>) {
    if (op.normalise || st.z_final.present()) return 1;
  }
  return n.value_dim < 64 ? 1 : n.value_dim < 256 ? 2 : 4;
}

/// The tasks of a call that is cut into pieces of V.
template <class Acc, class Op, class State, class Output>
void run_pieces(index_t pieces, const Op& op, const State& st, const Output& o, form how, bool in_place,
                options chosen, context& ctx) {
  constexpr int most = 4;
  struct piece {
    Op op;
    State st;
    Output o;
    matrix_binding<Op> bound;
  };
  const index_t V = op.extents().value_dim, width = round_up((V + pieces - 1) / pieces, 2 * simd::width<Acc>);
  chosen.chunk = matrix_chunk(policies_of<Op>, chosen, op.extents(), st.initial.present(), st.final.present());
  const auto cut = [&](index_t i) noexcept {
    const index_t first = std::min(i * width, V), columns = std::min(width, V - first);
    piece part{op.columns(first, columns), st, o.present() ? o.slice(3, first, columns) : o, {}};
    if (st.initial.present()) part.st.initial = st.initial.slice(3, first, columns);
    if (st.final.present()) part.st.final = st.final.slice(3, first, columns);
    return part;
  };
  piece parts[most] = {cut(0), cut(1), cut(2), cut(3)};
  matrix_problem<Acc> problems[most];
  index_t count = 0;
  for (; count < pieces && count * width < V; ++count) {
    piece& part = parts[count];
    part.bound = {&part.op, &part.o};
    problems[count] = describe<Acc>(part.bound, part.st, how, in_place, chosen);
  }
  run_tasks_of<Op>(problems, count, ctx);
}

/// Every verb after the door.
template <verb Verb, class Op, class State>
void run_matrix(const Op& op, const State& st, const view<typename Op::scalar, 4>& o, const options& how,
                context& ctx) {
  using Acc = sweep_t<typename Op::scalar, typename State::storage_type>;
  const view<typename Op::scalar, 4> nowhere;
  matrix_binding<Op> bound{&op, &o};
  form shape_of_run = Verb == verb::chunked ? form::chunked : form::recurrent;
  bool in_place = Verb == verb::step;
  if constexpr (Verb == verb::forward) {
    const matrix_extents n = op.extents();
    const matrix_policies policies = policies_of<Op>;
    const bool choose = how.form == form::automatic;
    in_place = choose && brief(n.length, st);
    // A state of 16 KiB stays in the first-level cache under two to four multiply-adds per element and token, which no
    // chunk improves on but where a scalar decay is all there is (K = V = 64: linear attention, GLA and delta rules 1.05
    // to 1.2 times as fast, RWKV-7 1.5); the triangle of a short sequence does.
    const bool small = (Op::decays != decay::scalar || Op::writes != write::additive) &&
                       n.key_dim * n.value_dim * static_cast<index_t>(sizeof(Acc)) <= 16384 && how.chunk == 0 &&
                       (st.initial.present() || !one_triangle(policies, n, n.length, 32, false, st.final.present()));
    shape_of_run = !choose ? how.form : in_place || small ? form::recurrent : form::chunked;
    if constexpr (with_left_product<Op>) {
      const bool long_triangle = choose && how.chunk == 0 && n.length > 256 && !st.initial.present() &&
                                 !st.final.present() && one_triangle(policies, n, n.length, 32, false, false);
      if (how.form == form::left || long_triangle) {
        op.left(st, o, ctx);
        if (!st.final.present()) return;
        bound.o = &nowhere;  // a state is still wanted: the chunks bring it
        shape_of_run = form::chunked;
      }
    }
  }
  if constexpr (requires { op.columns(0, 0); }) {
    if (const index_t pieces = ctx.workers() > 1 ? value_pieces(op, st) : 1; pieces > 1) {
      return run_pieces<Acc>(pieces, op, st, *bound.o, shape_of_run, in_place, how, ctx);
    }
  }
  const matrix_problem<Acc> whole = describe<Acc>(bound, st, shape_of_run, in_place, how);
  run_tasks_of<Op>(&whole, 1, ctx);
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

template <class Op, class State>
status check_matrix(const Op& op, const State& st, const view<typename Op::scalar, 4>& o, const options& how) noexcept {
  core::checker ask(op.name);
  ask.chunk(how);
  const bool left = with_left_product<Op> && how.form == form::left;
  if (ask && !left && how.form != form::automatic && how.form != form::recurrent && how.form != form::chunked) {
    ask.refuse("form", status_code::value)
        << "must be automatic, recurrent" << (with_left_product<Op> ? ", left" : "") << " or chunked";
  }
  op.check_fields(ask);
  if (!ask) return ask.result();
  const matrix_extents n = op.extents();
  ask.offsets(op.offsets, n.batch, n.length);
  if (!ask) return ask.result();
  const index_t sequences = sequences_of(op);
  ask.lengths(op.lengths, sequences);
  ask.extents("o", o, {n.batch, n.length, std::max(n.heads, n.query_heads), n.value_dim}, letters_of<Op>.output);
  ask.output("o", o);
  op.check_outputs(ask, o);
  ask.pools("initial", st.initial, "final", st.final, st.initial_slots, st.final_slots, sequences,
            {0, n.heads, n.key_dim, n.value_dim}, letters_of<Op>.state);
  ask.apart("final", st.final, "o", o);
  ask.apart("o", o, "initial", st.initial);
  if constexpr (with_normaliser<State>) {
    ask.pools("z_initial", st.z_initial, "z_final", st.z_final, st.initial_slots, st.final_slots, sequences,
              {0, n.heads, n.key_dim}, "[slots, H, K]");
    if (ask && (op.normalise || st.z_initial.present()) && st.initial.present() != st.z_initial.present()) {
      ask.refuse("z_initial") << "must come with initial: the normaliser is part of the state";
    }
    if (ask && (op.normalise || st.z_final.present()) && st.final.present() != st.z_final.present()) {
      ask.refuse("z_final") << "must come with final: the normaliser is part of the state";
    }
  }
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
};

/// The same for an operator that is a choice of operands: they take its place, so that everything behind the door is
/// compiled once for all of them.
struct operands_engine : matrix_engine {
  template <class Op, class State>
  static status check(const Op& op, const State& st, const output<Op>& o, const options& how) noexcept {
    if constexpr (requires(core::checker& ask) { op.check_own(ask); }) {
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

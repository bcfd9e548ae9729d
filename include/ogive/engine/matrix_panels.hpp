// L5: one chunk of a task in panels, as every form that works on chunks loads it: q, k and what removes of a group of
// heads, then the values, decays and scores of one head.
#pragma once

#include <ogive/core/context.hpp>
#include <ogive/engine/matrix_chunk.hpp>

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

  operator state_place<const Acc>() const noexcept requires(!std::is_const_v<Acc>) {
    return {data, key_stride, value_stride};
  }
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

  // The states that are kept on the way, null if there are none. How many of the tokens `at` it takes to the next one,
  // more than there are if none follows; where the one after the token `at` may be swept to; and that state, which lies
  // at S in rows without gaps, into all slots that do not hold it yet.
  index_t (*next)(const void* state, index_t sequence, const tokens& at) noexcept = nullptr;
  state_place<Acc> (*kept)(const void* state, index_t sequence, const tokens& at) noexcept = nullptr;
  void (*keep)(const void* state, index_t sequence, const tokens& at, const state_place<const Acc>& S,
               const Acc* z) noexcept = nullptr;
};

/// Heads of one token whose rows are loaded at once, into one half of the panels, before the last head of the other
/// half is swept.
inline constexpr index_t heads_at_once = 4;

/// How a call is cut up: a function of shape and options.
struct matrix_plan {
  index_t chunk;       // tokens per chunk
  index_t queries;     // query heads that read one state
  index_t groups;      // heads of a group share q and k
  index_t members;     // heads of a group
  index_t block;       // heads of one task
  index_t blocks;      // tasks of a sequence
  index_t k_stride;    // of panels and z
  index_t v_stride;    // of panels
  index_t v_width;     // of values in whole vectors: v_stride, but where panels are columns of wider ones
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
    p.v_stride = p.v_width = padded<Acc>(n.value_dim);
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
  const void* turned = nullptr;  // the hooks' op with its axes of tokens and heads exchanged, for steps of one token
  state_hooks<Acc> states;
  integers offsets;
  integers lengths;
  index_t sequences = 0;
  heads head_map = heads::consecutive;
  index_t interval = 0;  // chunks end at its multiples, counted over whole sequences
  integers position;     // tokens of a sequence that came before
  bool normalise = false;
  Acc bias = Acc(0);
  bool outputs = true;
  form how = form::chunked;
  bool in_place = false;   // a step: sweep the caller's state where it lies
  bool one_token = false;  // of each sequence, and `turned` is there: a task works on its states two at a time
  index_t segment = 0;     // tokens of a segment of time, 0 for no segments; additive writes in chunks, none kept
  matrix_plan plan{};

  /// Numbers of the states of a task, and with them their rows z.
  index_t working_states() const noexcept { return one_token ? std::min<index_t>(plan.block, 2) : plan.block; }
  index_t states_size() const noexcept { return working_states() * n.key_dim * plan.state_rows; }
  index_t carried_size() const noexcept { return states_size() + working_states() * plan.k_stride; }
  index_t decays_size() const noexcept { return plan.block * plan.k_stride; }
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
  Acc* before;  // of a segment of time: the states before it with their z,
  Acc* alone;   // what it leaves of states of zeros, likewise,
  Acc* passed;  // and the product of its decays, [block, k_stride]

  folds<Acc> folded;

  channel_decays<Acc> channels;  // per key channel
  Acc* decayed_q;
  Acc* decayed_removal;
  Acc* decayed_k;
  Acc* decayed_b;
  Acc* turned_b;
  Acc* recalled;
  Acc* removal;  // what removes: a, or the decayed k of a sweep
  Acc* b;
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
    const index_t tokens = tile_rows(plan.chunk);
    // A sweep interleaves the query heads, and folds rows.
    const index_t rows =
        chunked ? tokens : std::max(round_up(plan.chunk * plan.queries, folded_tokens), 2 * heads_at_once);
    const index_t hooked = chunked ? plan.chunk : std::max(plan.chunk, 2 * heads_at_once);  // rows of hooks
    const index_t score = chunked ? tokens * padded<Acc>(tokens) : 0;
    const index_t keys = rows * plan.k_stride;
    const index_t turned = p.n.key_dim * plan.turned<Acc>();
    matrix_scratch s{};
    s.room = memory.take<Acc>(hooked * std::max(padded<Acc>(p.n.input_dim), plan.v_stride) + simd::width<Acc>);
    s.q = memory.take<Acc>(std::max(tokens, hooked) * plan.queries * plan.k_stride);
    s.k = memory.take<Acc>(keys);
    s.v = memory.take<Acc>(rows * plan.v_stride);
    s.o = memory.take<Acc>(rows * plan.v_stride);
    s.scores = memory.take<Acc>(plan.queries * score);
    s.turned = memory.take<Acc>(chunked ? turned : 0);
    s.decayed = memory.take<Acc>(score);
    s.decays.a = memory.take<Acc>(std::max(padded<Acc>(rows), 2 * padded<Acc>(heads_at_once)));
    s.decays.from_start = memory.take<Acc>(rows);
    s.decays.to_end = memory.take<Acc>(rows);
    s.denominator = memory.take<Acc>(hooked);
    s.denominators = memory.take<Acc>(rows);
    s.states = memory.take<Acc>(p.carried_size());
    s.z = s.states == nullptr ? nullptr : s.states + p.states_size();
    s.before = memory.take<Acc>(p.segment > 0 ? p.carried_size() : 0);
    s.alone = memory.take<Acc>(p.segment > 0 ? p.carried_size() : 0);
    s.passed = memory.take<Acc>(p.segment > 0 ? p.decays_size() : 0);
    if (!chunked && !removes && decays != decay::none && !p.in_place) {
      const index_t blocks = rows / folded_tokens;
      s.folded.q = memory.take<Acc>(per_key ? keys : 0);
      s.folded.k = memory.take<Acc>(per_key ? keys : 0);
      s.folded.whole = memory.take<Acc>(per_key ? blocks * plan.k_stride : 0);
      s.folded.scores = memory.take<Acc>(per_key ? 0 : blocks * fold_weights);
      s.folded.weights = memory.take<Acc>(blocks * fold_weights);
    }
    if (per_key) {
      s.channels.a = memory.take<Acc>(keys);
      s.channels.from_start = memory.take<Acc>(plan.k_stride);
      s.channels.in_tile = memory.take<Acc>(plan.k_stride);
      s.channels.in_block = memory.take<Acc>(plan.k_stride);
      s.channels.whole = memory.take<Acc>(plan.k_stride);
      s.decayed_q = memory.take<Acc>(chunked ? tokens * plan.queries * plan.k_stride : 0);
      s.decayed_removal = memory.take<Acc>(chunked && removes ? keys : 0);
      s.decayed_k = memory.take<Acc>(chunked ? keys : 0);
      s.decayed_b = memory.take<Acc>(chunked && low_rank ? keys : 0);
    }
    if (removes) {
      s.recalled = memory.take<Acc>(4 * simd::width<Acc>);
      s.removal = memory.take<Acc>(keys);
      s.removal_scores = memory.take<Acc>(score);
      s.solved = memory.take<Acc>(score);
      s.beta = memory.take<Acc>(p.hooks.beta_per_value ? rows * plan.v_stride : padded<Acc>(rows));
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

/// What a task does before and between its products. Instantiated per (accumulator, instruction set, policies), never
/// per operator.
template <class Acc, class Arch, decay Decay, write Write, read Read>
class matrix_panels {
 protected:
  matrix_panels(const matrix_problem<Acc>& p, const matrix_scratch<Acc>& s) noexcept : p_(p), plan_(p.plan), s_(s) {}

  /// Tokens of a sequence.
  struct span_of_tokens {
    index_t batch, begin, length, live;
  };
  span_of_tokens span_of(index_t sequence) const noexcept {
    const bool packed = p_.offsets.present();
    const index_t begin = packed ? p_.offsets.at(sequence) : 0;
    const index_t length = packed ? p_.offsets.at(sequence + 1) - begin : p_.n.length;
    return {packed ? 0 : sequence, begin, length,
            p_.lengths.present() ? std::min(p_.lengths.at(sequence), length) : length};
  }
  /// Those of them in the chunk that starts at t.
  tokens chunk_at(const span_of_tokens& span, index_t t) const noexcept {
    tokens at;
    at.batch = span.batch;
    at.token = span.begin + t;
    at.count = std::min(plan_.chunk, span.length - t);
    at.live = std::clamp<index_t>(span.live - t, 0, at.count);
    at.position = t;
    return at;
  }

  /// The head of an operand with `held` heads that a group uses.
  index_t shared(index_t held, index_t g) const noexcept {
    return p_.head_map == heads::consecutive ? g / (plan_.groups / held) : g % held;
  }
  index_t query_head(index_t r, index_t g) const noexcept {
    if (plan_.queries == 1) return shared(p_.n.query_heads, g);
    return p_.head_map == heads::consecutive ? g * plan_.queries + r : r * p_.n.heads + g;
  }

  index_t score_stride() const noexcept { return padded<Acc>(tile_rows(plan_.chunk)); }
  /// Elements of the panel of one query head, and of its scores.
  index_t query_panel() const noexcept { return tile_rows(plan_.chunk) * plan_.k_stride; }
  index_t score_panel() const noexcept { return tile_rows(plan_.chunk) * score_stride(); }

  /// x yᵀ on and below the diagonal.
  void score(index_t count, const Acc* x, const Acc* y, Acc* to) noexcept {
    if (!scoring_) return;
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
    for (index_t r = 0; r < (reading_ ? plan_.queries : 0); ++r) {
      at.head = query_head(r, g);
      Acc* q = s_.q + r * query_panel();
      p_.hooks.load_q(p_.hooks.op, at, q, plan_.k_stride, s_.room);
      if constexpr (plain) score(at.count, q, s_.k, s_.scores + r * score_panel());
      if constexpr (plain && Write == write::low_rank) score(at.count, q, s_.b, s_.q_b + r * score_panel());
    }
  }

  /// The decays per key channel of one head.
  void load_channels(const tokens& at) noexcept {
    p_.hooks.load_gates(p_.hooks.op, at, s_.channels.a, plan_.k_stride);
    measure_channels<Acc, Arch>(at.count, p_.n.key_dim, plan_.k_stride, s_.channels);
  }

  /// The scores of one head under its decays per key channel.
  void score_channels(const tokens& at, const even_parts& ask) noexcept {
    constexpr int keys = Write == write::low_rank ? 2 : 1;
    const index_t K = p_.n.key_dim, R = reading_ ? plan_.queries : 0, turned = plan_.template turned<Acc>();
    load_channels(at);
    written_keys<Acc> written[keys];
    written[0] = {s_.k, s_.decayed_k, s_.turned};
    if constexpr (Write == write::low_rank) written[1] = {s_.b, s_.decayed_b, s_.turned_b};
    channel_scores<Acc, Arch, Write, Read, keys>(
        at.count, K, s_.channels, R,
        [&](index_t r) noexcept -> reader<Acc> {
          if (r == R) return {Write == write::delta ? s_.k : s_.removal, s_.decayed_removal};
          return {s_.q + r * query_panel(), s_.decayed_q + r * query_panel()};
        },
        written, Read == read::before ? load_bonus(at.head) : nullptr,
        [&](index_t r, int n) noexcept -> Acc* {
          if (r == R) return n == 0 ? s_.removal_scores : s_.a_b;
          return (n == 0 ? s_.scores : s_.q_b) + r * score_panel();
        },
        {plan_.k_stride, turned, score_stride()}, ask);
  }

  /// The row u, or nothing.
  const Acc* load_bonus(index_t head) const noexcept {
    return p_.hooks.load_bonus(p_.hooks.op, head, s_.u) ? s_.u : nullptr;
  }
  /// q·(u ⊙ k) of one token.
  Acc bonus(const Acc* q, const Acc* u, const Acc* k) const noexcept {
    simd::batch<Acc, Arch> sum(Acc(0));
    for (index_t at = 0; u != nullptr && at < plan_.k_stride; at += simd::width<Acc, Arch>) {
      sum = simd::fma(simd::load<Arch>(q + at) * simd::load<Arch>(u + at), simd::load<Arch>(k + at), sum);
    }
    return simd::reduce_add(sum);
  }

  /// The parts in which a head asks for rows ahead: in products of its tokens with the state, each way, and in scores
  /// per key channel.
  index_t parts(index_t count, index_t reading, index_t writing, index_t queries) const noexcept {
    using asking = asking_ahead<linalg::overwrite>;
    const index_t K = p_.n.key_dim, V = plan_.v_width;
    index_t all = reading * asking::template parts<Acc, Arch>(count, V, K) +
                  writing * asking::template parts<Acc, Arch>(K, V, count);
    if constexpr (Decay == decay::per_key) {
      const index_t readers = queries + (Write == write::additive ? 0 : 1), keys = Write == write::low_rank ? 2 : 1;
      all += readers * keys * tile_asks * ((count + tile_tokens - 1) / tile_tokens);
    }
    return all;
  }

  /// The panels as a chunk, what belongs to one head still missing.
  chunk<Acc> panels_of(index_t count) const noexcept {
    chunk<Acc> c;
    c.tokens = count;
    c.key_dim = p_.n.key_dim;
    c.value_dim = plan_.v_width;
    c.k = Decay == decay::per_key ? s_.decayed_k : s_.k;
    c.k_stride = plan_.k_stride;
    c.v = s_.v;
    c.o = s_.o;
    c.v_stride = plan_.v_stride;
    c.decayed = s_.decayed;
    c.score_stride = score_stride();
    c.decays = s_.decays;
    c.state_stride = plan_.state_rows;
    c.whole = s_.channels.whole;
    c.removal = Decay == decay::per_key ? s_.decayed_removal : Write == write::delta ? s_.k : s_.removal;
    c.b = Decay == decay::per_key ? s_.decayed_b : s_.b;
    c.removal_scores = s_.removal_scores;
    c.solved = s_.solved;
    c.a_b = s_.a_b;
    c.w = s_.w;
    c.beta = s_.beta;
    c.beta_stride = p_.hooks.beta_per_value ? plan_.v_stride : 0;
    return c;
  }

  /// What head `at.head` adds to its group's panels: values, decays and scores.
  void load_head(chunk<Acc>& c, const tokens& at) noexcept {
    p_.hooks.load_v(p_.hooks.op, at, c.v, c.v_stride, c.decays.a, s_.room);
    if constexpr (Decay == decay::scalar) measure_segment<Acc, Arch>(c.tokens, c.decays);
    if constexpr (Decay == decay::per_key) {
      if (scoring_) {
        score_channels(at, c.ask);
      } else {
        load_channels(at);
        if constexpr (Read == read::before) load_bonus(at.head);
      }
    }
    if constexpr (Write == write::delta) {
      p_.hooks.load_beta(p_.hooks.op, at, s_.beta, p_.hooks.beta_per_value ? plan_.v_stride : 1);
    }
  }

  const matrix_problem<Acc>& p_;
  const matrix_plan& plan_;
  matrix_scratch<Acc> s_;
  bool reading_ = true;  // there are outputs; where writes only add, scores per key channel want them
  bool scoring_ = true;  // scores are wanted, and rows under decays per key channel
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

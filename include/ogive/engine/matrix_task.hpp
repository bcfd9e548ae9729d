// L5: a task of the matrix engine, in all forms: one sequence and a block of its heads. Heads that share q and k share
// their scores.
#pragma once

#include <ogive/engine/matrix_panels.hpp>
#include <ogive/engine/time_segments.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// What the parts of a scan over time leave for each other; it lies in the first worker's scratch.
template <class Acc>
struct matrix_carries {
  Acc* states;  // with their z, before the segments in the middle, then before the last ones
  Acc* alone;   // [segments, likewise] of those in the middle, then the states before them
  Acc* passed;  // [segments, block, k_stride]

  static matrix_carries carve(const matrix_problem<Acc>& p, arena& memory) noexcept {
    const index_t most = p.segment > 0 ? segments_of(p.n.length, p.segment) : 0;
    matrix_carries all{};
    all.states = memory.take<Acc>(most > 0 ? p.carried_size() : 0);
    all.alone = memory.take<Acc>(most * p.carried_size());
    all.passed = memory.take<Acc>(most * p.decays_size());
    return all;
  }
};

/// The engine: one task, in all forms. Instantiated per (accumulator, instruction set, policies), never per operator.
template <class Acc, class Arch, decay Decay, write Write, read Read>
class matrix_task : matrix_panels<Acc, Arch, Decay, Write, Read> {
  using panels = matrix_panels<Acc, Arch, Decay, Write, Read>;
  using panels::bonus, panels::load_group, panels::p_, panels::panels_of, panels::plan_, panels::query_head;
  using panels::query_panel, panels::s_, panels::score_panel, panels::shared;

 public:
  OGIVE_NOINLINE static void run(const matrix_problem<Acc>& p, index_t task, arena memory) noexcept;

  /// Segments of time of a task, and a part of its scan over them.
  static index_t segments(const matrix_problem<Acc>& p, index_t task) noexcept {
    return p.segment == 0 ? 1 : segments_of(matrix_task(p, {}, task).span_.length, p.segment);
  }
  OGIVE_NOINLINE static void run_part(const matrix_problem<Acc>& p, index_t task, scan_part what,
                                      const time_shares& shares, index_t i, arena memory, arena first) noexcept;

 private:
  matrix_task(const matrix_problem<Acc>& p, const matrix_scratch<Acc>& s, index_t task) noexcept : panels(p, s) {
    this->reading_ = p.outputs || (Decay == decay::per_key && Write == write::additive);
    sequence_ = task / plan_.blocks;
    first_ = std::min(task % plan_.blocks * plan_.block, p.n.heads);
    count_ = std::min(plan_.block, p.n.heads - first_);
    span_ = this->span_of(sequence_);
    kept_ = p.states.next == nullptr ? span_.length + 1 : 0;
  }

  /// The task's heads are taken group by group: member m belongs to group(m).
  index_t group(index_t m) const noexcept { return (first_ + m) / plan_.members; }
  index_t head(index_t m) const noexcept {
    if (p_.head_map == heads::consecutive) return first_ + m;
    return (first_ + m) % plan_.members * plan_.groups + group(m);
  }
  index_t output_head(index_t m, index_t r) const noexcept {
    return plan_.queries == 1 ? head(m) : query_head(r, group(m));
  }
  /// Where a task keeps what belongs to a member.
  index_t slot(index_t member) const noexcept { return p_.one_token ? member % 2 : member; }
  Acc* state(index_t member) const noexcept { return s_.states + slot(member) * p_.n.key_dim * plan_.state_rows; }
  Acc* z(index_t member) const noexcept { return s_.z + slot(member) * plan_.k_stride; }

  void sequence() noexcept {
    const bool direct = p_.in_place && span_.length > 0;
    if (!direct) load_states();
    sweep_segments(0, segments_of(span_.length, p_.segment));
    if (!direct) save_states();
  }

  /// Segments [first, last), one after the other. States cross a segment as S ← passed ⊙ S + alone, whoever sweeps it
  /// and when, but for the first one, whose end is known as soon as this is, and the last one, which nothing follows.
  void sweep_segments(index_t first, index_t last) noexcept {
    for (index_t s = first; s < last; ++s) {
      if (s == 0 || s + 1 == segments_of(span_.length, p_.segment)) {
        sweep_segment(s, carried::state);
        continue;
      }
      std::copy_n(s_.states, p_.carried_size(), s_.before);
      std::fill_n(s_.alone, p_.carried_size(), Acc(0));
      sweep_segment(s, carried::both);
      cross(s_.passed, s_.alone, s_.before, s_.states);
    }
  }

  void sweep_segment(index_t s, carried what) noexcept {
    carried_ = what;
    if (what != carried::state) std::fill_n(s_.passed, p_.decays_size(), Acc(1));
    end_ = p_.segment > 0 ? std::min(span_.length, (s + 1) * p_.segment) : span_.length;
    for (index_t t = s * p_.segment; t < end_;) {
      const tokens at = next_chunk(t);
      if (p_.how == form::chunked) {
        chunked(at);
      } else {
        recurrent(at);
      }
      t += at.count;
    }
  }

  /// to ← passed ⊙ from + alone, z included.
  void cross(const Acc* passed, const Acc* alone, const Acc* from, Acc* to) const noexcept {
    const index_t rows = count_ * p_.n.key_dim, z = p_.states_size();
    const auto numbers = [&](const simd::batch<Acc, Arch>& a, index_t i) noexcept {
      simd::store(to + i, simd::fma(a, simd::load<Arch>(from + i), simd::load<Arch>(alone + i)));
    };
    constexpr index_t W = simd::width<Acc, Arch>;
    for (index_t r = 0; r < rows; ++r) {
      const simd::batch<Acc, Arch> a(passed[r / p_.n.key_dim * plan_.k_stride + r % p_.n.key_dim]);
      for (index_t j = 0; j < plan_.v_stride; j += W) numbers(a, r * plan_.state_rows + j);
    }
    for (index_t i = 0; i < count_ * plan_.k_stride; i += W) numbers(simd::load<Arch>(passed + i), z + i);
  }

  /// What the chunk's decays do to a segment's.
  void pass(const chunk<Acc>& c, index_t m) noexcept {
    constexpr index_t W = simd::width<Acc, Arch>;
    Acc* passed = s_.passed + m * plan_.k_stride;
    for (index_t i = 0; i < plan_.k_stride; i += W) {
      simd::batch<Acc, Arch> a(c.decays.whole);
      if constexpr (Decay == decay::per_key) a = simd::load<Arch>(c.whole + i);
      simd::store(passed + i, simd::load<Arch>(passed + i) * a);
    }
  }

  void begin(const time_shares& shares, const matrix_carries<Acc>& to, index_t i) noexcept {
    if (i == 0) {
      load_states();
      sweep_segments(0, shares.first);
      std::copy_n(s_.states, p_.carried_size(), to.states);
      return;
    }
    std::fill_n(s_.states, p_.carried_size(), Acc(0));
    this->reading_ = Decay == decay::per_key;
    sweep_segment(shares.first + i - 1, carried::alone);
    std::copy_n(s_.states, p_.carried_size(), to.alone + (i - 1) * p_.carried_size());
    std::copy_n(s_.passed, p_.decays_size(), to.passed + (i - 1) * p_.decays_size());
  }

  void carry(const time_shares& shares, const matrix_carries<Acc>& all) noexcept {
    for (index_t i = 0; i < shares.middle; ++i) {
      Acc* alone = all.alone + i * p_.carried_size();
      std::copy_n(all.states, p_.carried_size(), s_.before);
      cross(all.passed + i * p_.decays_size(), alone, s_.before, all.states);
      std::copy_n(s_.before, p_.carried_size(), alone);
    }
  }

  void finish(const time_shares& shares, const matrix_carries<Acc>& from, index_t i) noexcept {
    const Acc* before = i == 0 ? from.states : from.alone + (i - 1) * p_.carried_size();
    std::copy_n(before, p_.carried_size(), s_.states);
    if (i > 0) return sweep_segment(shares.first + i - 1, carried::state);
    const index_t last = shares.first + shares.middle;
    sweep_segments(last, last + shares.last);
    save_states();
  }

  /// The chunk that starts at t. Chunks also end with a segment, where a state is kept, and at the multiples of an
  /// interval.
  tokens next_chunk(index_t t) noexcept {
    tokens at = this->chunk_at(span_, t);
    at.count = std::min(at.count, end_ - t);
    if (p_.interval > 0) {
      const index_t before = p_.position.present() ? p_.position.at(sequence_) : 0;
      at.count = std::min(at.count, p_.interval - (before + t) % p_.interval);
    }
    if (t >= kept_) {
      tokens rest = at;
      rest.count = span_.length - t;
      rest.live = std::max<index_t>(span_.live - t, 0);
      kept_ = t + p_.states.next(p_.states.state, sequence_, rest);
    }
    at.count = std::min(at.count, kept_ - t);
    at.live = std::min(at.live, at.count);
    return at;
  }
  bool ends(const tokens& at) const noexcept { return at.position + at.count == span_.length; }

  /// The token after which member m's next state is kept.
  tokens kept_token(index_t m) const noexcept {
    return {span_.batch, span_.begin + kept_ - 1, 1, 1, kept_ - 1, head(m)};
  }
  /// Member m's state after the tokens `at`, which lies at S, into the slots that want it.
  void keep(const tokens& at, index_t m, const state_place<const Acc>& S) noexcept {
    if (at.position + at.count == kept_) p_.states.keep(p_.states.state, sequence_, kept_token(m), S, z(m));
  }
  state_place<Acc> working_state(index_t m) const noexcept { return {state(m), plan_.state_rows, 1}; }

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

  /// What is wanted after member m: of the next one, or of the next chunk's first. No further ahead, since a chunk's
  /// rows of all members, as far apart as they are, fall on few sets of a cache.
  lines_ahead rows_after(tokens at, index_t m) const noexcept {
    lines_ahead lines;
    const bool last = m + 1 == count_;
    if (!last) at.token -= at.count;
    m = last ? 0 : m + 1;
    const auto add = [&](operand which, index_t head) noexcept {
      at.head = head;
      p_.hooks.ahead(p_.hooks.op, which, at, lines);
    };
    const index_t g = group(m);
    if (m == 0 || g != group(m - 1)) {
      add(operand::key, shared(p_.n.key_heads, g));
      for (index_t r = 0; r < (this->reading_ ? plan_.queries : 0); ++r) add(operand::query, query_head(r, g));
    }
    add(operand::value, head(m));
    for (index_t r = 0; r < (p_.outputs ? plan_.queries : 0); ++r) add(operand::output, output_head(m, r));
    return lines;
  }

  void chunked(tokens at) noexcept {
    const bool spared = ends(at) && kept_ != span_.length && !p_.states.wanted(p_.states.state, sequence_);
    chunk<Acc> c = panels_of(at.count);
    const Acc* queries = Decay == decay::per_key ? s_.decayed_q : s_.q;
    const index_t reads = p_.outputs ? plan_.queries : 0;
    const index_t parts =
        this->parts(at.count, reads + (Write == write::additive ? 0 : 1), Write == write::low_rank ? 2 : 1, reads);
    for (index_t m = 0; m < count_; ++m) {
      if (m == 0 || group(m) != group(m - 1)) load_group(at, group(m));
      at.head = head(m);
      lines_ahead ahead = rows_after(at, m);
      c.ask = even_parts::over(parts, ahead);
      this->load_head(c, at);
      c.state = state(m);
      c.fresh = fresh_[m];
      if constexpr (Write == write::delta) correct_values<Acc, Arch>(c, compare_values<Acc, Arch, Decay>(c));
      if constexpr (Write == write::low_rank) recall_removals<Acc, Arch>(c);
      for (index_t r = 0; r < plan_.queries && p_.outputs && carried_ != carried::alone; ++r) {
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
      if (spared) continue;
      if constexpr (Write == write::additive) {
        const bool both = carried_ == carried::both;
        if (carried_ != carried::state) pass(c, m);
        c.alone = both ? s_.alone + (state(m) - s_.states) : nullptr;
        if (p_.normalise) write_normaliser<Acc, Arch, Decay>(c, z(m));
        if (p_.normalise && both) write_normaliser<Acc, Arch, Decay>(c, s_.alone + (z(m) - s_.states));
      }
      write_chunk<Acc, Arch, Decay, Write>(c);
      fresh_[m] = false;
      keep(at, m, working_state(m));
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
    interleave_keys(
        at, s_.k, [&](Acc* rows, index_t stride) noexcept { p_.hooks.load_k(p_.hooks.op, at, rows, stride, s_.room); });
    if constexpr (Write == write::low_rank) {
      if (R > 1) zero_rows(s_.b, plan_.k_stride, at.count * R, plan_.k_stride);
      interleave_keys(at, s_.removal, [&](Acc* rows, index_t stride) noexcept {
        p_.hooks.load_removal(p_.hooks.op, at, rows, s_.b + writer() * plan_.k_stride, stride);
      });
    }
    for (index_t r = 0; r < R && p_.outputs; ++r) {
      at.head = query_head(r, g);
      p_.hooks.load_q(p_.hooks.op, at, s_.q + r * plan_.k_stride, R * plan_.k_stride, s_.room);
    }
  }

  /// Without outputs a sweep only carries the state on, and q is not there.
  void as_read(auto&& sweep_by) const noexcept {
    if (p_.outputs) return sweep_by(std::integral_constant<read, Read>{});
    sweep_by(std::integral_constant<read, read::none>{});
  }

  /// Sweeps fold tokens where that spares decays; a step does not, so that it gives the same bits as the next one. A
  /// last fold is filled up with rows that do nothing, as padding does.
  static constexpr bool folds_tokens = Write == write::additive && Decay != decay::none;
  static constexpr index_t folds_of(index_t rows) noexcept { return (rows + folded_tokens - 1) / folded_tokens; }
  void fold(const sweep<Acc>& w) noexcept {
    if (p_.in_place) return;
    const index_t blocks = folds_of(w.tokens), more = blocks * folded_tokens - w.tokens;
    zero_rows(s_.k + w.tokens * plan_.k_stride, plan_.k_stride, more, plan_.k_stride);
    if (p_.outputs) zero_rows(s_.q + w.tokens * plan_.k_stride, plan_.k_stride, more, plan_.k_stride);
    if (!p_.outputs && Decay == decay::scalar) return;
    as_read([&](auto by) noexcept {
      fold_tokens<Acc, Arch, Decay, by()>(blocks, w.q, w.k, w.decay, plan_.k_stride, w.u, s_.folded);
    });
  }
  void fold_head(sweep<Acc>& w) noexcept {
    if (p_.in_place) return;
    const index_t rows = folds_of(w.tokens) * folded_tokens;
    zero_rows(s_.v + w.tokens * plan_.v_stride, plan_.v_stride, rows - w.tokens, plan_.v_stride);
    if constexpr (Decay == decay::per_key) fold(w);
    if constexpr (Decay == decay::scalar) {
      if (p_.outputs) decay_folded<Acc, Read>(rows / folded_tokens, w.decay, s_.folded);
    }
    for (index_t i = 0; w.bonus != nullptr && i < w.tokens; ++i) {
      s_.folded.weights[i * folded_tokens + i % folded_tokens] = w.bonus[i];
    }
    w.folded = s_.folded;
    w.tokens = rows;
  }
  /// Rows that fill up a fold do not decay.
  const Acc* filled_up(Acc* a, index_t rows, index_t width) noexcept {
    if (folds_tokens && !p_.in_place) std::fill(a + rows * width, a + folds_of(rows) * folded_tokens * width, Acc(1));
    return a;
  }

  /// The panels as tokens that are swept.
  sweep<Acc> panels_to_sweep() const noexcept {
    sweep<Acc> w;
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
    return w;
  }

  void recurrent(tokens at) noexcept {
    if (p_.turned != nullptr && at.count == 1) return step_heads(at);
    const index_t R = plan_.queries;
    sweep<Acc> w = panels_to_sweep();
    for (index_t m = 0; m < count_; ++m) {
      const state_place<const Acc> S = p_.in_place ? begins(at, m) : state_place<const Acc>{};
      w.tokens = at.count * R;
      ask(S, 0);
      if (m == 0 || group(m) != group(m - 1)) {
        interleave_group(at, group(m));
        if constexpr (folds_tokens && Decay == decay::scalar) fold(w);
      }
      at.head = head(m);
      ask(S, 1);
      load_values(at);
      ask(S, 2);
      lines_ahead ahead;
      if (!p_.in_place) ahead = rows_after(at, m);
      w.ahead = &ahead;
      w.pace = pace_of<Arch, Write>(w, ahead.lines());
      load_decays(w, at);
      load_removals(w, at);
      ask(S, 3);
      if constexpr (Read == read::before) {
        if (p_.outputs) load_bonuses(w, at);
      }
      if (p_.in_place) {
        placed goes;
        place(w, goes, at, m, s_.denominators);
        sweep_placed(w, at, m, goes, {}, {});
      } else {
        carry_normaliser(w, m, s_.denominators);
        if constexpr (folds_tokens) fold_head(w);
        w.from = w.to = state(m);
        w.from_stride = w.to_stride = plan_.state_rows;
        as_read([&](auto by) noexcept { sweep_k_first<Acc, Arch, Decay, Write, by()>(w); });
        keep(at, m, working_state(m));
      }
      for (index_t r = 0; r < R && p_.outputs; ++r) {
        at.head = output_head(m, r);
        for (index_t t = 0; t < at.count && p_.normalise; ++t) s_.denominator[t] = s_.denominators[t * R + r];
        p_.hooks.store(p_.hooks.op, at, s_.o + r * plan_.v_stride, R * plan_.v_stride,
                       p_.normalise ? s_.denominator : nullptr, s_.room);
      }
    }
  }

  /// Rows of heads of one token, as their sweeps take them.
  struct rows_of_heads {
    index_t first = 0;  // of the members
    index_t end = 0;
    index_t group = 0;  // of the first one
    index_t half = 0;   // the first of their rows in panels
    lying_rows<const Acc> q, k, v, decay, removal, b;
    lying_rows<Acc> o;
  };

  /// One token, whose heads are the rows of panels: a hook loads some of them at once, since calls for each row would
  /// cost as much as a third of its sweep, and none where rows can be swept where they lie. A sweep is made ready
  /// before the one in front of it begins, which then recalls for it; what it is told has long been written when it
  /// is read.
  void step_heads(const tokens& at) noexcept {
    rows_of_heads rows[2];
    placed placed_at[2];
    sweep<Acc> sweeps[2] = {panels_to_sweep(), panels_to_sweep()};
    recalls<Acc> recalled{s_.recalled};
    const auto make_ready = [&](index_t m) noexcept {
      rows_of_heads& own = rows[m / heads_at_once % 2];
      sweep<Acc>& w = sweeps[m % 2];
      if (m % heads_at_once == 0) load_heads(own, at, m);
      const index_t i = m - own.first, row = own.half + i, key = group(m) - own.group;
      w.tokens = 1;
      if (p_.outputs) w.q = own.q[key];
      w.k = own.k[key];
      w.v = own.v[i];
      w.o = own.o[i];
      if constexpr (Decay != decay::none) w.decay = own.decay[i];
      if constexpr (Write == write::low_rank) w.b = own.b[key];
      // Where the decays of a head are in what it recalls, that is the head's own.
      if constexpr (Write != write::additive) {
        w.removal = own.removal[Write == write::low_rank || Decay == decay::none ? key : i];
      }
      if constexpr (Write == write::delta) {
        w.beta = s_.beta + row * beta_row();
        w.beta_stride = p_.hooks.beta_per_value ? plan_.v_stride : 0;
      }
      if constexpr (Read == read::before) {
        w.bonus = s_.bonus + m % 2;
        if (p_.outputs) s_.bonus[m % 2] = bonus(w.q, this->load_bonus(head(m)), w.k);
      }
      place(w, placed_at[m % 2], at, m, s_.denominator + row);
    };
    make_ready(0);
    for (index_t m = 0; m < count_; ++m) {
      if (m + 1 < count_) make_ready(m + 1);
      const sweep<Acc>& w = sweeps[m % 2];
      recall_ahead<Acc> after;
      if constexpr (Write != write::additive) {
        const sweep<Acc>& next = sweeps[(m + 1) % 2];
        const bool alike = m + 1 < count_ && !placed_at[m % 2].v_first && !placed_at[(m + 1) % 2].v_first;
        if (alike && next.from_stride == w.from_stride && recalls_ahead<Acc, Arch>(w))
          after = {next.from, next.removal};
      }
      sweep_placed(w, at, m, placed_at[m % 2], recalled, after);
      recalled.known = after.from != nullptr;
      const rows_of_heads& own = rows[m / heads_at_once % 2];
      if (m + 1 == own.end && p_.outputs && own.o.data == s_.o + own.half * plan_.v_stride) {
        p_.hooks.store(p_.turned, heads_of(at, own), own.o.data, plan_.v_stride,
                       p_.normalise ? s_.denominator + own.half : nullptr, s_.room);
      }
    }
  }

  /// Heads of one token as the turned operator has them.
  static tokens turned_rows(const tokens& at, index_t head, index_t count) noexcept {
    return {at.batch, head, count, at.live > 0 ? count : 0, at.position, at.token};
  }
  tokens heads_of(const tokens& at, const rows_of_heads& rows) const noexcept {
    return turned_rows(at, head(rows.first), rows.end - rows.first);
  }
  /// The rows of members from `first` on. Meanwhile the state that is read next comes nearer.
  void load_heads(rows_of_heads& all, const tokens& at, index_t first) noexcept {
    const auto& hooks = p_.hooks;
    all.first = first;
    all.end = std::min(first + heads_at_once, count_);
    all.group = group(first);
    all.half = first / heads_at_once % 2 * heads_at_once;
    const index_t count = all.end - first, K = all.half * plan_.k_stride, V = all.half * plan_.v_stride;
    const tokens heads = heads_of(at, all);
    const tokens keys = turned_rows(at, all.group, group(all.end - 1) + 1 - all.group);
    const state_place<const Acc> soon = begins(at, Write == write::additive ? std::max<index_t>(first - 1, 0) : first);
    const auto lying = [&](operand which, const tokens& rows) noexcept {
      return hooks.lying == nullptr ? lying_rows<const Acc>{} : hooks.lying(p_.turned, which, rows);
    };
    all.k = lying(operand::key, keys);
    if (all.k.data == nullptr) {
      all.k = {s_.k + K, plan_.k_stride};
      hooks.load_k(p_.turned, keys, s_.k + K, plan_.k_stride, s_.room);
    }
    if (hooks.lying != nullptr) all.o = hooks.lying_output(p_.turned, heads);
    if (all.o.data == nullptr) all.o = {s_.o + V, plan_.v_stride};
    ask(soon, 0);
    if constexpr (Write == write::low_rank) {
      all.removal = {s_.removal + K, plan_.k_stride};
      all.b = {s_.b + K, plan_.k_stride};
      hooks.load_removal(p_.turned, keys, s_.removal + K, s_.b + K, plan_.k_stride);
    }
    ask(soon, 1);
    if (p_.outputs) all.q = lying(operand::query, keys);
    if (p_.outputs && all.q.data == nullptr) {
      all.q = {s_.q + K, plan_.k_stride};
      hooks.load_q(p_.turned, keys, s_.q + K, plan_.k_stride, s_.room);
    }
    ask(soon, 2);
    all.v = lying(operand::value, heads);
    Acc* decays = s_.decays.a + all.half / heads_at_once * padded<Acc>(heads_at_once);
    if (all.v.data == nullptr || Decay == decay::scalar) {
      hooks.load_v(p_.turned, heads, all.v.data == nullptr ? s_.v + V : nullptr, plan_.v_stride, decays, s_.room);
    }
    if (all.v.data == nullptr) all.v = {s_.v + V, plan_.v_stride};
    ask(soon, 3);
    if constexpr (Decay == decay::scalar) {
      decay_tokens(decays, count);
      all.decay = {decays, 1};
    }
    if constexpr (Decay == decay::per_key) {
      all.decay = {s_.channels.a + K, plan_.k_stride};
      hooks.load_gates(p_.turned, heads, s_.channels.a + K, plan_.k_stride);
      decay_channels(s_.channels.a + K, count);
    }
    if constexpr (Write == write::delta) {
      hooks.load_beta(p_.turned, heads, s_.beta + all.half * beta_row(), beta_row());
      all.removal = all.k;
      if constexpr (Decay != decay::none) {
        all.removal = {s_.removal + K, plan_.k_stride};
        decay_keys(all.decay, count, s_.removal + K,
                   [&](index_t i) noexcept { return all.k[group(first + i) - all.group]; });
      }
    }
  }

  /// Where member m's state lies before the tokens `at`.
  state_place<const Acc> begins(const tokens& at, index_t m) const noexcept {
    return at.position == 0 ? p_.states.from(p_.states.state, sequence_, head(m)) : lies_[slot(m)];
  }
  /// Asks for a quarter of the columns of a state that are swept first.
  void ask(const state_place<const Acc>& S, index_t quarter) const noexcept {
    const bool k_first = S.value_stride == 1;
    const index_t rows = S.data == nullptr ? 0 : k_first ? p_.n.key_dim : p_.n.value_dim;
    const index_t columns = std::min(4 * simd::width<Acc>, k_first ? p_.n.value_dim : p_.n.key_dim);
    const index_t stride = k_first ? S.key_stride : S.value_stride;
    for (index_t i = rows * quarter / 4; i < rows * (quarter + 1) / 4; ++i) {
      for (index_t j = 0; j < columns; j += simd::width<Acc>) __builtin_prefetch(S.data + i * stride + j);
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

  /// The bonus of each row of a sweep, or u for folds that sum it, where every row writes.
  void load_bonuses(sweep<Acc>& w, const tokens& at) noexcept {
    const index_t R = plan_.queries;
    const Acc* u = this->load_bonus(at.head);
    const bool folded = folds_tokens && Decay == decay::per_key && R == 1 && !p_.in_place;
    w.u = folded ? u : nullptr;
    w.bonus = folded ? nullptr : s_.bonus;
    for (index_t i = 0; !folded && i < w.tokens; ++i) {
      s_.bonus[i] = bonus(s_.q + i * plan_.k_stride, u, s_.k + (i / R * R + writer()) * plan_.k_stride);
    }
  }

  /// exp(g) per row of a sweep; the further reads of a token decay nothing.
  void load_decays(sweep<Acc>& w, const tokens& at) noexcept {
    const index_t R = plan_.queries, rows = at.count * R;
    if constexpr (Decay == decay::scalar) {
      Acc* a = s_.decays.a;
      decay_tokens(a, at.count);
      if (R > 1) {
        for (index_t i = 0; i < rows; ++i) s_.decays.to_end[i] = i % R == writer() ? a[i / R] : Acc(1);
        a = s_.decays.to_end;
      }
      w.decay = filled_up(a, rows, 1);
    }
    if constexpr (Decay == decay::per_key) {
      Acc* a = s_.channels.a;
      interleave_keys(at, a,
                      [&](Acc* to, index_t stride) noexcept { p_.hooks.load_gates(p_.hooks.op, at, to, stride); });
      decay_channels(a, rows);
      w.decay = filled_up(a, rows, plan_.k_stride);
    }
  }
  static void decay_tokens(Acc* a, index_t count) noexcept {
    for (index_t i = 0; i < count; i += simd::width<Acc, Arch>) {
      simd::store(a + i, simd::exp(simd::load<Arch>(a + i)));
    }
  }
  void decay_channels(Acc* rows, index_t count) const noexcept {
    change_rows(rows, plan_.k_stride, count, p_.n.key_dim,
                [](index_t, index_t, auto g) noexcept { return simd::exp(g); });
  }

  /// What a token recalls, and β: (D_t S)ᵀ k_t = Sᵀ (D_t k_t).
  void load_removals(sweep<Acc>& w, const tokens& at) noexcept {
    if constexpr (Write == write::low_rank) w.removal = s_.removal;
    if constexpr (Write == write::delta) {
      const index_t R = plan_.queries, stride = beta_row();
      if (R > 1) zero_rows(s_.beta, stride, at.count * R, stride);
      p_.hooks.load_beta(p_.hooks.op, at, s_.beta + writer() * stride, R * stride);
      w.beta = s_.beta;
      w.beta_stride = p_.hooks.beta_per_value ? plan_.v_stride : 0;
      w.removal = s_.k;
      if constexpr (Decay != decay::none) {
        w.removal = s_.removal;
        decay_keys({w.decay, Decay == decay::per_key ? plan_.k_stride : 1}, w.tokens, s_.removal,
                   [&](index_t i) noexcept { return s_.k + i * plan_.k_stride; });
      }
    }
  }
  index_t beta_row() const noexcept { return p_.hooks.beta_per_value ? plan_.v_stride : 1; }
  /// D_t k_t, for the row k(i) of panels in row i.
  void decay_keys(const lying_rows<const Acc>& decays, index_t rows, Acc* to, auto&& key) const noexcept {
    for (index_t i = 0; i < rows; ++i, to += plan_.k_stride) {
      const Acc *k = key(i), *decay = decays[i];
      for (index_t j = 0; j < plan_.k_stride; j += simd::width<Acc, Arch>) {
        simd::batch<Acc, Arch> a(*decay);
        if constexpr (Decay == decay::per_key) a = simd::load<Arch>(decay + j);
        simd::store(to + j, a * simd::load<Arch>(k + j));
      }
    }
  }

  /// Where member m's state goes next: the slot of the next one to keep, or, at the end, the final one's.
  state_place<Acc> destination(index_t m) const noexcept {
    state_place<Acc> to;
    if (kept_ >= span_.length) to = p_.states.to(p_.states.state, sequence_, head(m));
    if (to.data == nullptr && kept_ <= span_.length) to = p_.states.kept(p_.states.state, sequence_, kept_token(m));
    return to;
  }

  /// Where a sweep leaves a state.
  struct placed {
    state_place<Acc> to;
    bool v_first = false;
  };

  /// The caller's own state is swept from where it lies to where it goes; what cannot be is worked on in scratch.
  void place(sweep<Acc>& w, placed& S, const tokens& at, index_t m, Acc* denominators) noexcept {
    const index_t K = p_.n.key_dim, V = p_.n.value_dim;
    const state_place<Acc> own = working_state(m);
    state_place<const Acc> lies = begins(at, m);
    if (at.position == 0 && (p_.normalise || lies.data == nullptr)) {
      // z is one row: it goes through scratch. So does a state of another type.
      Acc* room = lies.data == nullptr ? own.data : nullptr;
      const bool given = p_.states.load(p_.states.state, sequence_, head(m), room, plan_.state_rows, z(m));
      if (!given) zero_rows(z(m), 0, 1, plan_.k_stride);
      if (given && room != nullptr) lies = own;
    }
    carry_normaliser(w, m, denominators);
    const state_place<Acc> wanted = destination(m);
    state_place<Acc> to = wanted.data == nullptr ? own : wanted;
    const bool v_first = to.value_stride != 1 && to.key_stride == 1 && (lies.data == nullptr || lies.key_stride == 1);
    if (!v_first && to.value_stride != 1) to = own;
    if (!v_first && lies.data != nullptr && lies.value_stride != 1) {
      load_rows(view<const Acc, 2>(lies.data, {K, V}, {lies.key_stride, lies.value_stride}), own.data, own.key_stride);
      lies = own;
    }
    w.to = to.data;
    w.to_stride = v_first ? to.value_stride : to.key_stride;
    w.from = lies.data;
    w.from_stride = v_first ? lies.value_stride : lies.key_stride;
    if (lies.data == nullptr) {
      zero_rows(w.to, w.to_stride, v_first ? V : K, v_first ? K : V);
      w.from = w.to;
      w.from_stride = w.to_stride;
    }
    S.to = to;
    S.v_first = v_first;
  }
  void carry_normaliser(const sweep<Acc>& w, index_t m, Acc* denominators) noexcept {
    if (!p_.normalise) return;
    as_read([&](auto by) noexcept { sweep_normaliser<Acc, Arch, by()>(w, z(m), p_.bias, denominators); });
  }
  void sweep_placed(const sweep<Acc>& w, const tokens& at, index_t m, const placed& S, const recalls<Acc>& recalled,
                    const recall_ahead<Acc>& after) noexcept {
    as_read([&](auto by) noexcept {
      if (S.v_first) {
        sweep_v_first<Acc, Arch, Decay, Write, by()>(w);
      } else {
        sweep_k_first<Acc, Arch, Decay, Write, by()>(w, recalled, after);
      }
    });
    lies_[slot(m)] = S.to;
    keep(at, m, S.to);
    const bool own = S.to.data == state(m);
    if (ends(at) && (p_.normalise || own)) {
      p_.states.save(p_.states.state, sequence_, head(m), own ? S.to.data : nullptr, plan_.state_rows, z(m));
    }
  }

  index_t sequence_ = 0;
  index_t first_ = 0;
  index_t count_ = 0;
  typename panels::span_of_tokens span_{};
  index_t end_ = 0;  // of the segment of time
  carried carried_ = carried::state;
  index_t kept_ = 0;  // tokens of the sequence until the next state that is kept
  bool fresh_[matrix_plan::most_heads] = {};
  state_place<const Acc> lies_[matrix_plan::most_heads];  // where a step's states are
};

// Not inline, so that an extern template spares a unit the bodies.
template <class Acc, class Arch, decay Decay, write Write, read Read>
void matrix_task<Acc, Arch, Decay, Write, Read>::run(const matrix_problem<Acc>& p, index_t task,
                                                     arena memory) noexcept {
  matrix_task(p, matrix_scratch<Acc>::carve(p, memory), task).sequence();
}

template <class Acc, class Arch, decay Decay, write Write, read Read>
void matrix_task<Acc, Arch, Decay, Write, Read>::run_part(const matrix_problem<Acc>& p, index_t task, scan_part what,
                                                          const time_shares& shares, index_t i, arena memory,
                                                          arena first) noexcept {
  matrix_task part(p, matrix_scratch<Acc>::carve(p, memory), task);
  matrix_scratch<Acc>::carve(p, first);
  const auto carries = matrix_carries<Acc>::carve(p, first);
  switch (what) {
    case scan_part::begin:
      return part.begin(shares, carries, i);
    case scan_part::carry:
      return part.carry(shares, carries);
    case scan_part::finish:
      return part.finish(shares, carries, i);
  }
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

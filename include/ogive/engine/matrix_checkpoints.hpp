// L5: the states that a forward of the matrix engine keeps for its backward: where they lie, and how a sweep leaves
// them there, beside the states that the caller wants kept.
#pragma once

#include <ogive/core/checkpoints.hpp>
#include <ogive/engine/matrix_panels.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// States [slots, H, K, row] and after them, of a normaliser, z [slots, H, row of z]; sequence s has the slots from
/// first(s) on, one for each `interval` tokens.
template <class Acc>
struct matrix_checkpoints {
  Acc* states = nullptr;
  Acc* normalisers = nullptr;
  index_t interval = 0;
  matrix_extents n{};
  integers offsets{};
  index_t slots = 0;
  index_t state_rows = 0;
  index_t z_row = 0;

  /// In this memory, or, with none, only how large it is.
  static matrix_checkpoints of(const matrix_problem<Acc>& p, index_t interval, arena& memory) noexcept {
    matrix_checkpoints all{};
    all.interval = interval;
    all.n = p.n;
    all.offsets = p.offsets;
    const index_t chunks = (p.n.length + interval - 1) / interval;
    all.slots = p.offsets.present() ? p.n.length / interval + p.sequences : p.sequences * chunks;
    all.state_rows = p.plan.state_rows;
    all.z_row = p.plan.k_stride;
    all.states = memory.take<Acc>(all.slots * p.n.heads * p.n.key_dim * all.state_rows);
    if (p.normalise) all.normalisers = memory.take<Acc>(all.slots * p.n.heads * all.z_row);
    return all;
  }

  /// Those of `count` columns of V; the first ones have the normalisers.
  matrix_checkpoints columns(index_t first, index_t count) const noexcept {
    matrix_checkpoints part = *this;
    if (states != nullptr) part.states += first;
    part.n.value_dim = count;
    if (first > 0) part.normalisers = nullptr;
    return part;
  }

  /// What the call has comes before what follows from it.
  static constexpr const char* numbers[] = {
      "bytes of a number", "B",       "L", "sequences", "Hq", "Hk", "H", "K", "V", "tokens of an interval",
      "row of a state",    "row of z"};
  /// What call it is.
  static checkpoints::call call_of(const char* op, const matrix_problem<Acc>& p, index_t interval) noexcept {
    const matrix_extents& n = p.n;
    return {op,
            {static_cast<index_t>(sizeof(Acc)), n.batch, n.length, p.sequences, n.query_heads, n.key_heads, n.heads,
             n.key_dim, n.value_dim, interval, p.plan.state_rows, p.plan.k_stride},
            p.offsets,
            p.lengths};
  }

  /// Refuses checkpoints of another call than `ours`, by the first thing in which they differ.
  static void check(core::checker& ask, const checkpoints::call& theirs, const checkpoints::call& ours) noexcept {
    if (theirs == ours) return;
    status& text = ask.refuse("checkpoints");
    if (theirs.op == nullptr) {
      text << "are empty; give them to forward first";
      return;
    }
    text << "are of another call: ";
    for (std::size_t i = 0; i < ours.numbers.size(); ++i) {
      if (ours.numbers[i] == theirs.numbers[i]) continue;
      text << numbers[i] << " = " << theirs.numbers[i] << ", now " << ours.numbers[i];
      return;
    }
    const auto list = [&](const char* name, const integers& a, const integers& b) noexcept {
      const index_t i = checkpoints::difference(a, b);
      if (i < 0) return false;
      if (i < a.size() && i < b.size()) {
        text << "entry " << i << " of " << name << " = " << a.at(i) << ", now " << b.at(i);
      } else {
        text << name << " of " << a.size() << " entries, now of " << b.size();
      }
      return true;
    };
    if (list("offsets", theirs.offsets, ours.offsets) || list("lengths", theirs.lengths, ours.lengths)) return;
    text << "of " << theirs.op;
  }

  index_t length_of(index_t sequence) const noexcept {
    return offsets.present() ? offsets.at(sequence + 1) - offsets.at(sequence) : n.length;
  }
  index_t first(index_t sequence) const noexcept {
    return offsets.present() ? offsets.at(sequence) / interval + sequence
                             : sequence * ((n.length + interval - 1) / interval);
  }
  Acc* state(index_t slot, index_t head) const noexcept {
    return states + (slot * n.heads + head) * n.key_dim * state_rows;
  }
  /// Whether states go past the caches: they are many, and their rows made of whole lines.
  bool past_caches() const noexcept {
    const index_t state = n.heads * n.key_dim * state_rows;
    return detail::past_caches<Acc>(
        view<Acc, 4>(states, {slots, n.heads, n.key_dim, n.value_dim}, {state, n.key_dim * state_rows, state_rows, 1}));
  }
  Acc* z(index_t slot, index_t head) const noexcept { return normalisers + (slot * n.heads + head) * z_row; }
};

/// The hooks of a state, and checkpoints besides.
template <class Acc>
struct matrix_keeping {
  matrix_checkpoints<Acc> to;
  state_hooks<Acc> given{};

  state_hooks<Acc> hooks() const noexcept {
    return {this,
            [](const void* self, index_t sequence, index_t head, Acc* S, index_t stride, Acc* z) noexcept {
              const auto& inner = of(self).given;
              return inner.load(inner.state, sequence, head, S, stride, z);
            },
            [](const void* self, index_t sequence, index_t head, const Acc* S, index_t stride, const Acc* z) noexcept {
              const auto& inner = of(self).given;
              inner.save(inner.state, sequence, head, S, stride, z);
            },
            [](const void* self, index_t sequence) noexcept {
              return of(self).given.wanted(of(self).given.state, sequence);
            },
            [](const void* self, index_t sequence, index_t head) noexcept {
              return of(self).given.from(of(self).given.state, sequence, head);
            },
            [](const void* self, index_t sequence, index_t head) noexcept {
              return of(self).given.to(of(self).given.state, sequence, head);
            },
            next,
            [](const void* self, index_t sequence, const tokens& at) noexcept -> state_place<Acc> {
              const auto& inner = of(self).given;
              return inner.next == nullptr ? state_place<Acc>{} : inner.kept(inner.state, sequence, at);
            },
            keep};
  }

  /// The states that the sequences of a call start from.
  OGIVE_NOINLINE void begin(index_t sequence, arena memory) const noexcept {
    if (to.length_of(sequence) == 0) return;
    Acc* unused = memory.take<Acc>(to.z_row);
    const index_t slot = to.first(sequence);
    for (index_t h = 0; h < to.n.heads; ++h) {
      Acc* z = to.normalisers == nullptr ? unused : to.z(slot, h);
      if (given.load(given.state, sequence, h, to.state(slot, h), to.state_rows, z)) continue;
      zero_rows(to.state(slot, h), to.state_rows, to.n.key_dim, to.state_rows);
      if (to.normalisers != nullptr) zero_rows(z, 0, 1, to.z_row);
    }
  }

 private:
  static const matrix_keeping& of(const void* self) noexcept { return *static_cast<const matrix_keeping*>(self); }

  static index_t next(const void* self, index_t sequence, const tokens& at) noexcept {
    const auto& [to, given] = of(self);
    const index_t own = to.interval - at.position % to.interval;
    const index_t other = given.next == nullptr ? at.count + 1 : given.next(given.state, sequence, at);
    return std::min(other, own < at.count ? own : at.count + 1);
  }
  static void keep(const void* self, index_t sequence, const tokens& at, const state_place<const Acc>& S,
                   const Acc* z) noexcept {
    const auto& [to, given] = of(self);
    if (given.next != nullptr) given.keep(given.state, sequence, at, S, z);
    const index_t end = at.position + 1;
    if (end % to.interval != 0 || end >= to.length_of(sequence)) return;
    const index_t slot = to.first(sequence) + end / to.interval;
    Acc* own = to.state(slot, at.head);
    if (S.value_stride == 1) {
      store_rows(S.data, S.key_stride, view<Acc, 2>(own, {to.n.key_dim, to.n.value_dim}, {to.state_rows, 1}),
                 to.past_caches());
    } else {
      linalg::transpose(to.n.value_dim, to.n.key_dim, linalg::panel<const Acc>{S.data, S.value_stride},
                        linalg::panel<Acc>{own, to.state_rows});
    }
    if (to.normalisers != nullptr) std::copy_n(z, to.z_row, to.z(slot, at.head));
  }
};

/// Tokens per chunk of the backward, the best of 16, 32 and 64: the scores of all heads weigh little beside five
/// products and more with a large state, but under decays per key channel they cost as much per pair as a product, and
/// beside a state of K = V = 64 they show as well; so do the solves of the delta rule.
inline options backward_options(const matrix_policies& policies, const matrix_extents& n, options how) noexcept {
  const bool small = n.key_dim * n.value_dim <= 4096, per_key = policies.decays == decay::per_key;
  if (how.chunk == 0) how.chunk = per_key && small ? 16 : per_key || small || policies.writes == write::delta ? 32 : 64;
  how.form = form::chunked;
  return how;
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

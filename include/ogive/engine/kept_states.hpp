// L5: states that a call keeps on its way, after tokens and at boundaries: the slots they go to, and what is asked of
// these at the door. What the fields mean stands at `state`.
#pragma once

#include <ogive/engine/checks.hpp>

#include <algorithm>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

template <with_kept State>
bool keeps(const State& st) noexcept {
  return st.snapshots.present() || st.boundaries.present();
}

/// Tokens of a sequence before this call.
template <with_kept State>
index_t tokens_before(const State& st, index_t sequence) noexcept {
  return st.position.present() ? st.position.at(sequence) : 0;
}
/// The slot of the state after a token of a row, −1 where none is wanted.
template <with_kept State>
index_t snapshot_slot(const State& st, index_t batch, index_t token) noexcept {
  return st.snapshots.present() ? st.snapshot_slots(batch, token) : -1;
}
/// The slot of the boundary behind a token, its position counted from the first one of this call.
template <with_kept State>
index_t boundary_slot(const State& st, index_t sequence, index_t position) noexcept {
  const index_t begin = tokens_before(st, sequence), end = begin + position + 1;
  if (!st.boundaries.present() || end % st.interval != 0) return -1;
  return st.boundary_slots(sequence, end / st.interval - begin / st.interval - 1);
}
/// f(pool, slot) wherever the state after a token is wanted.
template <with_kept State, class F>
OGIVE_INLINE void for_kept(const State& st, index_t sequence, index_t batch, index_t token, index_t position,
                           const F& f) noexcept {
  if (const index_t slot = snapshot_slot(st, batch, token); slot >= 0) f(st.snapshots, slot);
  if (const index_t slot = boundary_slot(st, sequence, position); slot >= 0) f(st.boundaries, slot);
}

/// There is a slot for every boundary that a sequence reaches, padding left out.
template <class Op, class State>
void check_boundaries(core::checker& ask, const Op& op, const State& st, index_t sequences, index_t length) noexcept {
  if (st.interval < 1) {
    ask.refuse("interval", status_code::value)
        << "= " << st.interval << " must be a number of tokens where boundaries are given";
  }
  for (index_t s = 0; ask && s < sequences; ++s) {
    index_t live = op.offsets.present() ? op.offsets.at(s + 1) - op.offsets.at(s) : length;
    if (op.lengths.present()) live = std::min(live, op.lengths.at(s));
    const index_t begin = tokens_before(st, s);
    const index_t reached = (begin + live) / st.interval - begin / st.interval;
    if (reached > st.boundary_slots.extent(1)) {
      ask.refuse("boundary_slots") << "has " << st.boundary_slots.extent(1) << " slots for each sequence, but sequence "
                                   << s << " reaches " << reached << " boundaries";
    }
  }
}

/// Questions about the states that are kept on the way, `slot` the extents of a pool, `tokens` {B, L}. They come after
/// those about sequences, the initial and the final state.
template <class Op, class State, std::size_t Rank>
void check_kept(core::checker& ask, const Op& op, const State& st, const shape<2>& tokens, const shape<Rank>& slot,
                const char* letters) noexcept {
  bool any = keeps(st) || st.snapshot_slots.present() || st.boundary_slots.present() || st.interval != 0 ||
             st.position.present();
  if constexpr (with_normaliser<State>) any = any || st.z_snapshots.present() || st.z_boundaries.present();
  if (!ask || !any) return;
  const index_t sequences = op.offsets.present() ? op.offsets.size() - 1 : tokens[0];
  if (st.interval < 0) ask.refuse("interval", status_code::value) << "= " << st.interval << " must not be negative";
  if (ask && st.position.present() && st.position.size() != sequences) {
    ask.refuse("position") << "has " << st.position.size() << " entries for " << sequences << " sequences";
  }
  for (index_t s = 0; ask && st.position.present() && s < sequences; ++s) {
    if (st.position.at(s) < 0) {
      ask.refuse("position") << "entry " << s << " is " << st.position.at(s) << ", must not be negative";
    }
  }
  if (st.snapshots.present() || st.snapshot_slots.present()) {
    ask.given("snapshots", st.snapshots).given("snapshot_slots", st.snapshot_slots);
    ask.extents("snapshot_slots", st.snapshot_slots, tokens, "[B, L]");
  }
  if (st.boundaries.present() || st.boundary_slots.present()) {
    ask.given("boundaries", st.boundaries).given("boundary_slots", st.boundary_slots);
    ask.extents("boundary_slots", st.boundary_slots, {sequences, -1}, "[sequences, boundaries of a call]");
    if (ask) check_boundaries(ask, op, st, sequences, tokens[1]);
  }
  const auto pools = [&]<std::size_t R>(const shape<R>& extents, const char* axes, const char* const* names,
                                        const auto& initial, const auto& final, const auto& snapshots,
                                        const auto& boundaries) noexcept {
    const auto ends = [&](const auto& f) noexcept {
      f(names[0], initial, "initial_slots", st.initial_slots);
      f(names[1], final, "final_slots", st.final_slots);
    };
    ask.kept(names[2], snapshots, extents, axes, "snapshot_slots", st.snapshot_slots, ends);
    ask.kept(names[3], boundaries, extents, axes, "boundary_slots", st.boundary_slots, [&](const auto& f) noexcept {
      ends(f);
      f(names[2], snapshots, "snapshot_slots", st.snapshot_slots);
    });
  };
  constexpr const char* names[] = {"initial", "final", "snapshots", "boundaries"};
  pools(slot, letters, names, st.initial, st.final, st.snapshots, st.boundaries);
  if constexpr (with_normaliser<State>) {
    constexpr const char* z_names[] = {"z_initial", "z_final", "z_snapshots", "z_boundaries"};
    const auto together = [&](const char* z, const char* S, const auto& z_pool, const auto& S_pool) noexcept {
      if (!ask || (!op.normalise && !z_pool.present())) return;
      if (z_pool.present() != S_pool.present() || z_pool.extent(0) != S_pool.extent(0)) {
        ask.refuse(z) << "must come with " << S << ", with as many slots: the normaliser is part of the state";
      }
    };
    together("z_snapshots", "snapshots", st.z_snapshots, st.snapshots);
    together("z_boundaries", "boundaries", st.z_boundaries, st.boundaries);
    pools(shape<3>{slot[0], slot[1], slot[2]}, "[slots, H, K]", z_names, st.z_initial, st.z_final, st.z_snapshots,
          st.z_boundaries);
  }
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

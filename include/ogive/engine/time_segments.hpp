// L5: the parallel scan over time: one task of an engine as several.
//
//   (a₂, b₂) ∘ (a₁, b₁) = (a₂ a₁, a₂ b₁ + b₂)
//
// Time is cut into segments of fixed length, so the bits are a function of shape. A task that goes through segments one
// after the other gets the state behind each of them, h ← decay ⊙ h + alone, in the same sweep as the outputs, for one
// multiply-add per state more. Where there are more workers than tasks,
//   1. the first segments are swept by one task, while others sweep each of those in the middle from zero: what it
//      leaves, and the product of its decays;
//   2. the state crosses the segments in the middle, in order;
//   3. these are swept with their outputs, each from its own state, while one task goes through the last segments.
// So P workers do the work of (P + 1)/2, and the bits are those of a single task.
#pragma once

#include <ogive/engine/tasks.hpp>

#include <algorithm>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// What a sweep over a segment of time carries: the state, which the outputs read; the state that the segment would
/// leave if nothing came before it; or both, for which decays and writes are then made once. Either has the same bits
/// with the other and without.
enum class carried { state, alone, both };

/// Segments of a sequence; a segment of 0 tokens means that it is not cut.
constexpr index_t segments_of(index_t length, index_t segment) noexcept {
  return segment == 0 ? 1 : std::max<index_t>(1, (length + segment - 1) / segment);
}

/// The segments of a sequence: `first` of them for one task, `middle` for one task each, and the rest for one task. The
/// sweep of a segment from zero costs some 0.8 of one with outputs, one that does both 1.1.
struct time_shares {
  index_t first;
  index_t middle;
  index_t last;

  static constexpr time_shares of(index_t segments, index_t workers) noexcept {
    // In hundredths: first · 110 = 80 · middle / (workers − 1), last · 110 = 100 · middle / (workers − 1).
    const index_t all = 100 * workers + 64;
    const index_t first = std::max<index_t>(1, (73 * segments + all / 2) / all);
    const index_t last = std::max<index_t>(1, (91 * segments + all / 2) / all);
    return {first, segments - first - last, last};
  }
};

/// The three steps of a scan, as above.
enum class scan_part { begin, carry, finish };

/// Runs whole(task, arena) for all tasks; those of more than two segments(task) as part(task, what, shares, i, arena)
/// for i = 0 … shares.middle, or 0 alone for the carry, where that leaves fewer workers without work.
template <class Segments, class Whole, class Part>
void run_over_time(context& ctx, index_t tasks, std::size_t bytes, const Segments& segments, const Whole& whole,
                   const Part& part) noexcept {
  index_t long_ones = 0;
  for (index_t task = 0; task < tasks && ctx.workers() > 1; ++task) long_ones += segments(task) > 2 ? 1 : 0;
  const bool split = long_ones > 0 && 2 * long_ones <= ctx.workers();
  if (!split || long_ones < tasks) {
    run_tasks(ctx, tasks, bytes, [&](index_t task, arena memory) noexcept {
      if (!split || segments(task) <= 2) whole(task, memory);
    });
  }
  for (index_t task = 0; split && task < tasks; ++task) {
    if (segments(task) <= 2) continue;
    const auto shares = time_shares::of(segments(task), ctx.workers());
    for (const scan_part what : {scan_part::begin, scan_part::carry, scan_part::finish}) {
      const index_t count = what == scan_part::carry ? 1 : shares.middle + 1;
      run_tasks(ctx, count, bytes, [&](index_t i, arena memory) noexcept { part(task, what, shares, i, memory); });
    }
  }
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

// L5: one sequence and block of channels as several tasks: the parallel scan over time.
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

#include <ogive/engine/diagonal_task.hpp>
#include <ogive/engine/tasks.hpp>

#include <algorithm>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// The segments of a sequence: `first` of them for one task, `middle` for one task each, and the rest for one task. The
/// sweep of a segment from zero costs some 0.8 of one with outputs, one that does both 1.1.
struct diagonal_shares {
  index_t first;
  index_t middle;
  index_t last;

  static diagonal_shares of(index_t segments, index_t workers) noexcept {
    // In hundredths: first · 110 = 80 · middle / (workers − 1), last · 110 = 100 · middle / (workers − 1).
    const index_t all = 100 * workers + 64;
    const index_t first = std::max<index_t>(1, (73 * segments + all / 2) / all);
    const index_t last = std::max<index_t>(1, (91 * segments + all / 2) / all);
    return {first, segments - first - last, last};
  }
};

/// What the tasks of a scan leave for each other, per segment in the middle; it lies in the first worker's scratch.
template <class Acc>
struct diagonal_carries {
  Acc* h;      // [states, planes, row], the state before the first of them, then before the last segments
  Acc* alone;  // [segments, states, planes, row], then the states before the segments
  Acc* decay;  // likewise

  static diagonal_carries carve(const diagonal_problem<Acc>& p, arena& memory) noexcept {
    const index_t most = p.segment > 0 ? (p.n.length + p.segment - 1) / p.segment : 0;
    diagonal_carries all{};
    all.h = memory.take<Acc>(most > 0 ? p.state_size() : 0);
    all.alone = memory.take<Acc>(most * p.state_size());
    all.decay = memory.take<Acc>(most * p.state_size());
    return all;
  }
};

/// The parts of a scan. Instantiated per (accumulator, instruction set, real or complex), never per operator.
template <class Acc, class Arch, bool Complex>
class diagonal_scan : diagonal_task<Acc, Arch, Complex> {
  using task = diagonal_task<Acc, Arch, Complex>;
  using task::p_;
  using task::s_;

 public:
  /// Whether a sequence has segments in the middle.
  static bool splits(const diagonal_problem<Acc>& p, index_t index) noexcept {
    return diagonal_scan(p, {}, index).segments() > 2;
  }

  /// One task after the other, in parallel over time.
  static void run(const diagonal_problem<Acc>& p, index_t index, std::size_t bytes, context& ctx) noexcept {
    const auto shares = diagonal_shares::of(diagonal_scan(p, {}, index).segments(), ctx.workers());
    arena shared = ctx.scratch(0, bytes);
    diagonal_scratch<Acc>::carve(p, shared);
    const auto carries = diagonal_carries<Acc>::carve(p, shared);
    const auto part = [&](index_t count, auto member) noexcept {
      run_tasks(ctx, count, bytes, [&](index_t i, arena memory) noexcept {
        (diagonal_scan(p, diagonal_scratch<Acc>::carve(p, memory), index).*member)(shares, carries, i);
      });
    };
    part(shares.middle + 1, &diagonal_scan::begin);
    part(1, &diagonal_scan::carry);
    part(shares.middle + 1, &diagonal_scan::finish);
  }

 private:
  diagonal_scan(const diagonal_problem<Acc>& p, const diagonal_scratch<Acc>& s, index_t index) noexcept
      : task(p, s, index) {}

  Acc* of(Acc* carries, index_t i) const noexcept { return carries + i * p_.state_size(); }

  void start_at(index_t segment) noexcept {
    this->begin_ = segment * p_.segment;
    if (p_.A.present()) this->load_rates();
  }

  OGIVE_NOINLINE void begin(const diagonal_shares& shares, const diagonal_carries<Acc>& to, index_t i) noexcept {
    if (i == 0) {
      start_at(0);
      this->load_state();
      this->sweep_segments(0, shares.first);
      this->copy_state(s_.h, to.h);
      return;
    }
    start_at(shares.first + i - 1);
    this->sweep_segment(shares.first + i - 1, carried::alone);
    this->copy_state(s_.alone, of(to.alone, i - 1));
    this->copy_state(s_.decay, of(to.decay, i - 1));
  }

  OGIVE_NOINLINE void carry(const diagonal_shares& shares, const diagonal_carries<Acc>& all, index_t) noexcept {
    for (index_t i = 0; i < shares.middle; ++i) {
      this->copy_state(all.h, s_.before);
      this->cross(of(all.decay, i), of(all.alone, i), s_.before, all.h);
      this->copy_state(s_.before, of(all.alone, i));
    }
  }

  OGIVE_NOINLINE void finish(const diagonal_shares& shares, const diagonal_carries<Acc>& from, index_t i) noexcept {
    const index_t last = shares.first + shares.middle;
    start_at(i == 0 ? last : shares.first + i - 1);
    this->copy_state(i == 0 ? from.h : of(from.alone, i - 1), s_.h);
    if (i > 0) return this->sweep_segment(shares.first + i - 1, carried::state);
    this->sweep_segments(last, last + shares.last);
    this->store_state();
  }
};

/// All sequences and blocks, over time too where they alone leave workers without a task.
template <class Acc, class Arch, bool Complex>
void run_diagonal_tasks(const diagonal_problem<Acc>& p, std::size_t bytes, context& ctx) noexcept {
  using whole = diagonal_task<Acc, Arch, Complex>;
  using scan = diagonal_scan<Acc, Arch, Complex>;
  index_t long_ones = 0;
  for (index_t i = 0; p.segment > 0 && i < p.tasks(); ++i) long_ones += scan::splits(p, i) ? 1 : 0;
  const bool split = long_ones > 0 && 2 * long_ones <= ctx.workers();
  if (!split || long_ones < p.tasks()) {
    run_tasks(ctx, p.tasks(), bytes, [&](index_t i, arena memory) noexcept {
      if (!split || !scan::splits(p, i)) whole::run(p, i, memory);
    });
  }
  for (index_t i = 0; split && i < p.tasks(); ++i) {
    if (scan::splits(p, i)) scan::run(p, i, bytes, ctx);
  }
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

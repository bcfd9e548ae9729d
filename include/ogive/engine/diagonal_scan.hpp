// L5: the scan over time of the diagonal engine: one sequence and block of channels as several tasks.
#pragma once

#include <ogive/engine/diagonal_task.hpp>

#include <algorithm>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// What the parts of a scan leave for each other; it lies in the first worker's scratch.
template <class Acc>
struct diagonal_carries {
  Acc* h;      // [states, planes, row], the state before the segments in the middle, then before the last ones
  Acc* alone;  // [segments, states, planes, row] of those in the middle, then the states before them
  Acc* decay;  // likewise

  static diagonal_carries carve(const diagonal_problem<Acc>& p, arena& memory) noexcept {
    const index_t most = p.segment > 0 ? segments_of(p.n.length, p.segment) : 0;
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
  static index_t segments(const diagonal_problem<Acc>& p, index_t index) noexcept {
    return p.segment == 0 ? 1 : diagonal_scan(p, {}, index).task::segments();
  }

  OGIVE_NOINLINE static void run(const diagonal_problem<Acc>& p, index_t index, scan_part what,
                                 const time_shares& shares, index_t i, arena memory, arena first) noexcept;

 private:
  diagonal_scan(const diagonal_problem<Acc>& p, const diagonal_scratch<Acc>& s, index_t index) noexcept
      : task(p, s, index) {}

  Acc* of(Acc* carries, index_t i) const noexcept { return carries + i * p_.state_size(); }

  void start_at(index_t segment) noexcept {
    this->begin_ = segment * p_.segment;
    if (p_.A.present()) this->load_rates();
  }

  void begin(const time_shares& shares, const diagonal_carries<Acc>& to, index_t i) noexcept {
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

  void carry(const time_shares& shares, const diagonal_carries<Acc>& all) noexcept {
    for (index_t i = 0; i < shares.middle; ++i) {
      this->copy_state(all.h, s_.before);
      this->cross(of(all.decay, i), of(all.alone, i), s_.before, all.h);
      this->copy_state(s_.before, of(all.alone, i));
    }
  }

  void finish(const time_shares& shares, const diagonal_carries<Acc>& from, index_t i) noexcept {
    const index_t last = shares.first + shares.middle;
    start_at(i == 0 ? last : shares.first + i - 1);
    this->copy_state(i == 0 ? from.h : of(from.alone, i - 1), s_.h);
    if (i > 0) return this->sweep_segment(shares.first + i - 1, carried::state);
    this->sweep_segments(last, last + shares.last);
    this->store_state();
  }
};

// Not inline, so that an extern template spares a unit the bodies.
template <class Acc, class Arch, bool Complex>
void diagonal_scan<Acc, Arch, Complex>::run(const diagonal_problem<Acc>& p, index_t index, scan_part what,
                                            const time_shares& shares, index_t i, arena memory, arena first) noexcept {
  diagonal_scan scan(p, diagonal_scratch<Acc>::carve(p, memory), index);
  diagonal_scratch<Acc>::carve(p, first);
  const auto carries = diagonal_carries<Acc>::carve(p, first);
  switch (what) {
    case scan_part::begin: return scan.begin(shares, carries, i);
    case scan_part::carry: return scan.carry(shares, carries);
    case scan_part::finish: return scan.finish(shares, carries, i);
  }
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

// L5: one task of the engine of fixed modes: a block of channels through some of the sequences, cut by shape alone. Its
// coefficients are discretised once, in double.
#pragma once

#include <ogive/core/check.hpp>
#include <ogive/core/scratch.hpp>
#include <ogive/engine/checks.hpp>
#include <ogive/engine/diagonal_policy.hpp>
#include <ogive/engine/kept_panels.hpp>
#include <ogive/engine/modes_sweep.hpp>
#include <ogive/maps/discretisation.hpp>

#include <algorithm>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// double, or a complex number of doubles where Number is complex.
template <class Number>
using wide_of = typename maps::detail::parts<Number>::wide;

/// a and b of mode n of channel d: A and B held over the channel's step, or as they are where they are steps already.
template <class Op>
step_pair<wide_of<typename Op::number>> mode_of(const Op& op, index_t d, index_t n) noexcept {
  using wide = wide_of<typename Op::number>;
  const wide A(op.A(d, n)), B(op.B(d, n));
  const double dt = op.rule == discretisation::none ? 0 : static_cast<double>(op.dt(d));
  return discretise<wide>(op.rule, dt, A, B, op.alpha);
}

/// How a call is cut up: a function of shape.
struct modes_plan {
  static constexpr index_t few = 4;      // tokens up to which channels, not tokens, are neighbours in panels
  static constexpr index_t at_once = 4;  // channels between whose sums and y nothing else is done

  bool brief;
  index_t channels;   // of a task
  index_t blocks;     // of channels
  index_t sequences;  // of a task
  index_t groups;     // of sequences
  index_t tokens;     // of a tile
  index_t width;      // numbers of a channel's state
  index_t units;
  index_t row;  // of the panels of u and y

  template <class Acc, bool Complex>
  static modes_plan of(const diagonal_extents& n, index_t sequences) noexcept {
    constexpr index_t W = simd::width<Acc>;
    constexpr index_t wanted = 16;  // tasks
    modes_plan p{};
    p.brief = n.length <= few;
    p.channels = std::clamp<index_t>(n.channels, 1, std::max(W, 64 / static_cast<index_t>(sizeof(Acc))));
    p.blocks = (n.channels + p.channels - 1) / p.channels;
    p.groups = std::clamp<index_t>((wanted + p.blocks - 1) / std::max<index_t>(1, p.blocks), 1,
                                   std::max<index_t>(1, sequences));
    p.sequences = (sequences + p.groups - 1) / p.groups;
    p.tokens = std::clamp<index_t>(n.length, 1, p.brief ? few : 64);
    p.width = (Complex ? 2 : 1) * n.states;
    p.units = units_of<Complex, Acc>(p.width);
    p.row = units_of<false, Acc>(p.brief ? p.channels : p.tokens) * W;
    return p;
  }
  index_t tasks() const noexcept { return blocks * groups; }
};

/// A worker's memory.
template <class Acc>
struct modes_scratch {
  Acc* numbers;  // [3, width]
  Acc* modes;    // [channels, units, 3, unit]
  Acc* h;        // [channels, width]
  Acc* u;        // [channels, row], or [tokens, row] in brief calls
  Acc* y;        // likewise
  Acc* sums;     // the same with W lanes each, of at_once channels or all of brief calls

  static modes_scratch carve(const modes_plan& p, arena& memory) noexcept {
    constexpr index_t W = simd::width<Acc>;
    const index_t most = p.units * unit<true, Acc>;  // units may be of complex numbers
    const index_t rows = p.brief ? p.tokens : p.channels;
    modes_scratch s{};
    s.numbers = memory.take<Acc>(3 * most);
    s.modes = memory.take<Acc>(p.channels * 3 * most);
    s.h = memory.take<Acc>(p.channels * p.width);
    s.u = memory.take<Acc>(rows * p.row);
    s.y = memory.take<Acc>(rows * p.row);
    s.sums = memory.take<Acc>((p.brief ? p.tokens : modes_plan::at_once) * p.row * W);
    return s;
  }
};

/// Tokens of one sequence: where it begins in which row of the batch, how many there are, and how many are no padding.
struct modes_sequence {
  index_t batch, begin, length, live;

  template <class Op>
  static modes_sequence of(const Op& op, index_t s) noexcept {
    const bool packed = op.offsets.present();
    const index_t begin = packed ? op.offsets.at(s) : 0;
    const index_t length = packed ? op.offsets.at(s + 1) - begin : op.u.extent(1);
    return {packed ? 0 : s, begin, length, op.lengths.present() ? std::min(op.lengths.at(s), length) : length};
  }
};

/// Numbers of channel d of a state, real and imaginary parts side by side.
template <class Acc, class S>
void load_state(const view<const S, 3>& pool, index_t slot, index_t d, Acc* to) noexcept {
  for (index_t n = 0; n < pool.extent(2); ++n) {
    const S x = pool(slot, d, n);
    if constexpr (is_complex<S>) {
      to[2 * n] = static_cast<Acc>(x.real());
      to[2 * n + 1] = static_cast<Acc>(x.imag());
    } else {
      to[n] = static_cast<Acc>(static_cast<accum_t<S>>(x));
    }
  }
}
template <class Acc, class S>
void store_state(const Acc* from, const view<S, 3>& pool, index_t slot, index_t d) noexcept {
  for (index_t n = 0; n < pool.extent(2); ++n) {
    if constexpr (is_complex<S>) {
      using Real = typename S::value_type;
      pool(slot, d, n) = S(static_cast<Real>(from[2 * n]), static_cast<Real>(from[2 * n + 1]));
    } else {
      pool(slot, d, n) = static_cast<S>(from[n]);
    }
  }
}

/// a, b and c of channel d as a row of packed_modes, by way of three rows of numbers.
template <class Acc, class Op>
void pack_modes(const Op& op, index_t d, const modes_plan& plan, Acc* numbers, Acc* to) noexcept {
  constexpr bool complex = is_complex<typename Op::number>;
  constexpr index_t step = unit<complex, Acc>;
  const index_t row = plan.units * step;
  const auto put = [&](index_t which, index_t n, const auto& x) noexcept {
    Acc* at = numbers + which * row;
    if constexpr (complex) {
      at[2 * n] = static_cast<Acc>(x.real());
      at[2 * n + 1] = static_cast<Acc>(x.imag());
    } else {
      at[n] = static_cast<Acc>(x);
    }
  };
  for (index_t n = 0; n < op.A.extent(1); ++n) {
    const auto [a, b] = mode_of(op, d, n);
    put(0, n, a);
    put(1, n, b);
    put(2, n, op.C(d, n));
  }
  const plain_modes<complex, Acc> plain{numbers, numbers + row, numbers + 2 * row, 0, 0, 0, plan.width};
  for (index_t i = 0; i < plan.units; ++i) {
    const auto mode = plain.template get<simd::default_arch>(i);
    store_mode(to + 3 * i * step, mode.a);
    store_mode(to + (3 * i + 1) * step, mode.b);
    store_mode(to + (3 * i + 2) * step, mode.c);
  }
}

/// Which rows of y a task writes.
enum class modes_outputs { all, of_padding };

template <class Acc, class Op, class State>
class modes_task {
  using number = typename Op::number;
  using storage = typename State::storage_type;
  using output = view<typename Op::scalar, 3>;
  using arch = simd::default_arch;
  using vector = simd::batch<Acc, arch>;
  static constexpr bool complex = is_complex<number>;
  static constexpr index_t W = simd::width<Acc, arch>;

 public:
  OGIVE_NOINLINE static void run(const Op& op, const State& st, const output& y, const modes_plan& plan,
                                 modes_outputs wanted, index_t task, arena memory) noexcept {
    modes_task own(op, st, y, plan, wanted, task % plan.blocks, modes_scratch<Acc>::carve(plan, memory));
    const index_t first = task / plan.blocks * plan.sequences;
    const index_t last = std::min(first + plan.sequences, input_sequences(op));
    const index_t mode_row = 3 * plan.units * unit<complex, Acc>;
    if constexpr (has_panels<Op>) {
      const Acc* modes = reinterpret_cast<const Acc*>(op.panels) + own.channel_ * mode_row;
      for (index_t s = first; s < last; ++s) own.sequence(s, packed_modes<complex, Acc>{modes, mode_row});
    } else if (own.plain()) {
      const auto row = [](const view<const number, 2>& x) noexcept { return (complex ? 2 : 1) * x.stride(0); };
      const auto at = [&](const view<const number, 2>& x) noexcept {
        return reinterpret_cast<const Acc*>(x.pointer(own.channel_, 0));
      };
      const plain_modes<complex, Acc> modes{at(op.A), at(op.B), at(op.C), row(op.A), row(op.B), row(op.C), plan.width};
      for (index_t s = first; s < last; ++s) own.sequence(s, modes);
    } else {
      for (index_t d = 0; first < last && d < own.channels_; ++d) {
        pack_modes(op, own.channel_ + d, plan, own.s_.numbers, own.s_.modes + d * mode_row);
      }
      for (index_t s = first; s < last; ++s) own.sequence(s, packed_modes<complex, Acc>{own.s_.modes, mode_row});
    }
  }

 private:
  modes_task(const Op& op, const State& st, const output& y, const modes_plan& plan, modes_outputs wanted,
             index_t block, const modes_scratch<Acc>& s) noexcept
      : op_(op),
        st_(st),
        y_(y),
        plan_(plan),
        wanted_(wanted),
        s_(s),
        channel_(block * plan.channels),
        channels_(std::min(plan.channels, op.u.extent(2) - channel_)) {}

  /// Whether a, b and c are read where the operator has them.
  bool plain() const noexcept {
    if constexpr (std::is_same_v<real_of<number>, Acc>) {
      return plan_.brief && op_.rule == discretisation::none && op_.A.stride(1) == 1 && op_.B.stride(1) == 1 &&
             op_.C.stride(1) == 1;
    } else {
      return false;
    }
  }

  /// The rows of a pool, if they are numbers as the sweep has them.
  template <class S>
  static bool native(const view<S, 3>& pool) noexcept {
    return std::is_same_v<real_of<std::remove_const_t<S>>, Acc> && pool.stride(2) == 1;
  }
  template <class S>
  Acc* rows(const view<S, 3>& pool, index_t slot, index_t& row) const noexcept {
    row = (complex ? 2 : 1) * pool.stride(1);
    return reinterpret_cast<Acc*>(const_cast<std::remove_const_t<S>*>(pool.pointer(slot, channel_, 0)));
  }

  template <class Modes>
  void sequence(index_t s, const Modes& modes) noexcept {
    const modes_sequence at = modes_sequence::of(op_, s);
    const index_t from = st_.initial.present() ? core::checker::slot_of(st_.initial_slots, s) : -1;
    const index_t to = st_.final.present() ? core::checker::slot_of(st_.final_slots, s) : -1;
    const index_t own_row = plan_.width;
    from_ = to_ = s_.h;
    from_row_ = to_row_ = own_row;
    if (from >= 0 && native(st_.initial)) {
      from_ = rows(st_.initial, from, from_row_);
    } else {
      for (index_t d = 0; d < channels_; ++d) {
        Acc* h = s_.h + d * own_row;
        for (index_t i = 0; from < 0 && i < plan_.width; ++i) h[i] = Acc(0);
        if (from >= 0) load_state(st_.initial, from, channel_ + d, h);
      }
    }
    const bool in_place = to >= 0 && native(st_.final);
    if (in_place) to_ = rows(st_.final, to, to_row_);

    for (index_t t = 0; t < at.length; t += plan_.tokens) {
      const index_t count = std::min(plan_.tokens, at.length - t);
      tile(modes, at.batch, at.begin + t, count, std::clamp<index_t>(at.live - t, 0, count));
    }
    if (to < 0) return;
    for (index_t d = 0; d < channels_; ++d) {
      const Acc* h = from_ + d * from_row_;
      if (!in_place) {
        store_state(h, st_.final, to, channel_ + d);
      } else if (from_ != to_) {  // no token was there
        for (index_t i = 0; i < plan_.width; ++i) to_[d * to_row_ + i] = h[i];
      }
    }
  }

  /// The part of a tensor [B, L, D] that a tile covers, rows as the panels have them.
  template <class X>
  view<X, 2> block(const view<X, 3>& x, index_t batch, index_t token, index_t count) const noexcept {
    const view<X, 2> tokens(x.pointer(batch, token, channel_), {count, channels_}, {x.stride(1), x.stride(2)});
    return plan_.brief ? tokens : tokens.permute({1, 0});
  }

  template <class Modes>
  void tile(const Modes& modes, index_t batch, index_t token, index_t count, index_t live) noexcept {
    load_tile(block(op_.u, batch, token, count), s_.u, plan_.row);
    const index_t first = wanted_ == modes_outputs::all ? 0 : live;  // row of y that is written
    const bool writes = y_.present() && first < count;
    const index_t row = plan_.row, step = plan_.brief ? channels_ : modes_plan::at_once;
    for (index_t d = 0; d < channels_; d += step) {
      modes_sweep<Acc> w{};
      w.tokens = live;
      w.channels = std::min(step, channels_ - d);
      w.width = plan_.width;
      w.u = s_.u + (plan_.brief ? d : d * row);
      (plan_.brief ? w.u_step : w.u_row) = row;
      (plan_.brief ? w.u_row : w.u_step) = 1;
      w.sums = s_.sums;
      (plan_.brief ? w.sums_step : w.sums_row) = row;
      (plan_.brief ? w.sums_row : w.sums_step) = 1;
      w.from = from_ + d * from_row_;
      w.from_row = from_row_;
      w.to = to_ + d * to_row_;
      w.to_row = to_row_;
      const auto here = modes.from(d);
      if (live > 0) sweep_modes<complex, arch>(w, here);
      if (!writes) continue;
      if (plan_.width == 0) zero_sums(w, count);
      add_lanes(w, d);
      if (live < count) pad(w, here, d, live, count);
    }
    if (live > 0) {
      from_ = to_;
      from_row_ = to_row_;
    }
    if (!writes) return;
    add_skip(count);
    store_tile(s_.y + (plan_.brief ? first * row : first), row, block(y_, batch, token + first, count - first));
  }

  /// A sum over no modes.
  void zero_sums(const modes_sweep<Acc>& w, index_t count) noexcept {
    for (index_t i = 0; i < (plan_.brief ? count : w.channels) * plan_.row * W; ++i) w.sums[i] = Acc(0);
  }

  /// The lanes of the sums, W of them at a time, into y.
  void add_lanes(const modes_sweep<Acc>& w, index_t d) noexcept {
    const index_t rows = plan_.brief ? w.tokens : w.channels, across = plan_.brief ? w.channels : w.tokens;
    for (index_t i = 0; i < rows; ++i) {
      for (index_t j = 0; j < across; j += W) {
        const Acc* sums = w.sums + (i * plan_.row + j) * W;
        vector lanes[vector::size];
        unroll<static_cast<int>(W)>([&](auto k)
                                        __attribute__((always_inline)) { lanes[k] = simd::load<arch>(sums + k * W); });
        simd::store(s_.y + (plan_.brief ? i : d + i) * plan_.row + j, simd::reduce_add_all(lanes));
      }
    }
  }

  /// What rows of padding read: the state as it is after the last real token.
  template <class Modes>
  void pad(const modes_sweep<Acc>& w, const Modes& modes, index_t d, index_t live, index_t count) noexcept {
    for (index_t i = 0; i < w.channels; ++i) {
      const Acc* h = live > 0 ? w.to + i * w.to_row : w.from + i * w.from_row;
      const Acc read = simd::reduce_add(read_modes<complex, arch>(h, plan_.width, modes.from(i)));
      for (index_t t = live; t < count; ++t) s_.y[plan_.brief ? t * plan_.row + d + i : (d + i) * plan_.row + t] = read;
    }
  }

  void add_skip(index_t count) noexcept {
    if (!op_.D.present()) return;
    const index_t rows = plan_.brief ? count : channels_, across = plan_.brief ? channels_ : count;
    for (index_t i = 0; i < rows; ++i) {
      for (index_t j = 0; j < across; j += W) {
        Acc* y = s_.y + i * plan_.row + j;
        const vector skip =
            plan_.brief ? simd::load_strided<Acc, arch>(op_.D.pointer(channel_ + j), op_.D.stride(0), across - j)
                        : vector(static_cast<Acc>(op_.D(channel_ + i)));
        simd::store(y, simd::fma(skip, simd::load<arch>(s_.u + i * plan_.row + j), simd::load<arch>(y)));
      }
    }
  }

  const Op& op_;
  const State& st_;
  const output& y_;
  const modes_plan& plan_;
  modes_outputs wanted_;
  modes_scratch<Acc> s_;
  index_t channel_, channels_;
  Acc *from_ = nullptr, *to_ = nullptr;  // rows of the state before and after a tile
  index_t from_row_ = 0, to_row_ = 0;
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

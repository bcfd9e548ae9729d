// L5: one task of the diagonal engine: a sequence and a block of channels, cut by shape alone, so the bits do not
// depend on how many threads run the tasks.
#pragma once

#include <ogive/core/scratch.hpp>
#include <ogive/engine/diagonal_sweep.hpp>

#include <algorithm>
#include <limits>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// A pool [slots, D, N] of numbers of any storage and strides, real or complex, behind two functions.
template <class Acc>
struct diagonal_pool {
  const void* data = nullptr;
  shape<3> strides{};   // in real elements; the imaginary part is one further
  bool native = false;  // real, of Acc, neighbours in n
  void (*load)(const void* data, index_t offset, const shape<2>& extents, const shape<2>& strides, Acc* panel,
               index_t row) noexcept = nullptr;
  void (*store)(const void* data, index_t offset, const shape<2>& extents, const shape<2>& strides, const Acc* panel,
                index_t row) noexcept = nullptr;

  template <class X>
  static diagonal_pool of(const view<X, 3>& x) noexcept {
    diagonal_pool pool;
    if (!x.present()) return pool;
    using Number = std::remove_const_t<X>;
    using Real = real_of<Number>;
    constexpr index_t parts = is_complex<Number> ? 2 : 1;
    pool.data = x.data();
    for (std::size_t i = 0; i < 3; ++i) pool.strides[i] = parts * x.stride(i);
    pool.native = std::is_same_v<Number, Acc> && x.stride(2) == 1;
    pool.load = [](const void* from, index_t offset, const shape<2>& extents, const shape<2>& steps, Acc* panel,
                   index_t row) noexcept {
      load_tile(view<const Real, 2>(static_cast<const Real*>(from) + offset, extents, steps), panel, row);
    };
    if constexpr (!std::is_const_v<X>) {
      pool.store = [](const void* to, index_t offset, const shape<2>& extents, const shape<2>& steps, const Acc* panel,
                      index_t row) noexcept {
        store_tile(panel, row, view<Real, 2>(static_cast<Real*>(const_cast<void*>(to)) + offset, extents, steps));
      };
    }
    return pool;
  }

  bool present() const noexcept { return data != nullptr; }
  index_t offset(index_t slot, index_t channel) const noexcept { return slot * strides[0] + channel * strides[1]; }
  const Acc* native_row(index_t slot, index_t channel) const noexcept {
    return static_cast<const Acc*>(data) + offset(slot, channel);
  }
};

/// Room for `count` numbers in whole vectors.
template <class Acc>
constexpr index_t whole_vectors(index_t count) noexcept {
  return (count + simd::width<Acc> - 1) / simd::width<Acc> * simd::width<Acc>;
}

/// How a call is cut up: a function of shape and verb, but for direct operands.
struct diagonal_plan {
  bool factored;
  bool direct;
  bool in_place;  // direct, and no panels are needed
  bool brief;     // whether sequences of at most `few` tokens are swept across states
  index_t planes;
  index_t row;   // of the panels
  index_t step;  // channels of a task: a row, or fewer in a backward pass
  index_t blocks;
  index_t tokens;      // per tile
  index_t shared_row;  // of B and C; also a row of N numbers

  /// A sweep across channels first turns A and the state around, which costs it some three tokens.
  static constexpr index_t few = 4;

  template <class Acc>
  static diagonal_plan of(const diagonal_extents& n, index_t run, index_t sequences, bool complex,
                          bool brief_allowed) noexcept {
    constexpr index_t W = simd::width<Acc>;
    constexpr index_t line = 64 / static_cast<index_t>(sizeof(Acc));
    diagonal_plan p{};
    p.planes = complex ? 2 : 1;
    p.factored = !complex && run > 0 && (run == n.channels || run % W == 0);
    p.brief = brief_allowed && p.factored && 2 * n.states >= W;
    p.shared_row = whole_vectors<Acc>(n.states);
    p.row = W;
    if (p.factored) {
      // Two cache lines of channels keep the panels of a tile in the first-level cache; a few tokens fit there with
      // more, and pay for each task.
      const bool wide = p.brief && n.length <= few * sequences;
      const index_t wished = wide ? 16 * line : std::max(2 * line, W);
      p.row = run <= wished ? whole_vectors<Acc>(run) : run % wished == 0 || run == n.channels ? wished : W;
      p.tokens = wide ? few : 32;
    } else {
      p.tokens = std::clamp<index_t>(2048 / std::max<index_t>(1, n.states * p.planes * W), 1, 32);
    }
    p.tokens = std::clamp<index_t>(n.length, 1, p.tokens);
    p.step = p.row;
    p.blocks = (n.channels + p.step - 1) / p.step;
    return p;
  }

  /// Of direct operands: 4 KiB of neighbouring channels; half of it, or a quarter, where workers would have nothing to
  /// do, which costs one of them 15 or 25 %. Channels never meet, so the bits are those of any width.
  template <class Acc>
  static diagonal_plan direct_of(const diagonal_extents& n, index_t sequences, bool in_place,
                                 index_t workers) noexcept {
    constexpr index_t line = 64 / static_cast<index_t>(sizeof(Acc)), page = 64 * line;
    diagonal_plan p{};
    p.direct = true;
    p.in_place = in_place;
    p.planes = 1;
    index_t most = in_place ? page : 2 * line;
    const auto blocks = [&] { return std::max<index_t>(1, (n.channels + most - 1) / most); };
    while (most > page / 4 && sequences * blocks() < workers) most /= 2;
    p.step = std::max<index_t>(1, ((n.channels + blocks() - 1) / blocks() + line - 1) / line) * line;
    p.row = whole_vectors<Acc>(p.step);
    p.blocks = (n.channels + p.step - 1) / p.step;
    p.tokens = std::clamp<index_t>(n.length, 1, 32);
    return p;
  }
};

template <class Acc>
struct diagonal_problem {
  diagonal_extents n;
  diagonal_hooks<Acc> hooks;
  diagonal_pool<Acc> A;
  diagonal_pool<Acc> initial;
  diagonal_pool<Acc> final;
  view<const std::int32_t, 1> initial_slots;
  view<const std::int32_t, 1> final_slots;
  integers offsets;
  integers lengths;
  index_t sequences = 0;
  index_t segment = 0;  // tokens of a segment of time, 0 for no segments
  diagonal_plan plan{};

  index_t tasks() const noexcept { return sequences * plan.blocks; }
  index_t state_size() const noexcept { return n.states * plan.planes * plan.row; }
};

/// A worker's memory.
template <class Acc>
struct diagonal_scratch {
  diagonal_panels<Acc> panels;
  Acc* A;
  Acc* largest_rate;  // [row]: the largest |A| of a channel
  Acc* h;             // [states, planes, row], or rows of N numbers
  Acc* before;        // [states, planes, row], of a segment: the state before it,
  Acc* alone;         // what it leaves of a state of zeros,
  Acc* decay;         // the product of its decays,
  Acc* elapsed;       // and [row] the sum of its δ, in units of ln 2

  static diagonal_scratch carve(const diagonal_problem<Acc>& p, arena& memory) noexcept {
    const diagonal_plan& plan = p.plan;
    const index_t per_token = plan.in_place ? 0 : plan.tokens * plan.row;
    const index_t per_state = p.n.states * plan.planes * plan.row;
    const index_t turned = plan.brief ? plan.row * plan.shared_row : 0;  // the same numbers, in rows of N
    const index_t operands = plan.factored || plan.direct ? 0 : plan.tokens * per_state;
    diagonal_scratch s{};
    s.panels.factored = plan.factored;
    s.panels.row = plan.row;
    s.panels.states = p.n.states;
    s.panels.planes = plan.planes;
    s.panels.shared_row = plan.shared_row;
    s.panels.delta = memory.take<Acc>(per_token);
    s.panels.x = memory.take<Acc>(per_token);
    s.panels.y = memory.take<Acc>(per_token);
    s.panels.B = memory.take<Acc>(plan.tokens * plan.shared_row * plan.planes);
    s.panels.C = memory.take<Acc>(plan.tokens * plan.shared_row * plan.planes);
    s.panels.a = memory.take<Acc>(operands);
    s.panels.b = memory.take<Acc>(operands);
    s.panels.c = memory.take<Acc>(operands);
    s.panels.own = memory.take<Acc>(plan.factored || plan.direct ? 0 : per_state);
    s.A = memory.take<Acc>(plan.direct ? 0 : std::max(per_state, turned));
    s.panels.A = s.A;
    s.largest_rate = memory.take<Acc>(plan.direct ? 0 : plan.row);
    s.h = memory.take<Acc>(std::max(per_state, turned));
    const index_t of_segment = p.segment > 0 ? per_state : 0;
    s.before = memory.take<Acc>(of_segment);
    s.alone = memory.take<Acc>(of_segment);
    s.decay = memory.take<Acc>(of_segment);
    s.elapsed = memory.take<Acc>(p.segment > 0 ? plan.row : 0);
    return s;
  }
};

/// The engine: one task. Instantiated per (accumulator, instruction set, real or complex), never per operator.
template <class Acc, class Arch, bool Complex>
class diagonal_task {
 public:
  OGIVE_NOINLINE static void run(const diagonal_problem<Acc>& p, index_t task, arena memory) noexcept;

 protected:
  using vector = simd::batch<Acc, Arch>;
  static constexpr index_t W = simd::width<Acc, Arch>;

  diagonal_task(const diagonal_problem<Acc>& p, const diagonal_scratch<Acc>& s, index_t task) noexcept
      : p_(p), plan_(p.plan), s_(s), sequence_(task / p.plan.blocks) {
    at_.channel = task % p.plan.blocks * p.plan.step;
    at_.channels = std::min(p.plan.step, p.n.channels - at_.channel);
    if (p.sequences == 0) return;  // sums of nothing are drained too
    const bool packed = p.offsets.present();
    const index_t begin = packed ? p.offsets.at(sequence_) : 0;
    length_ = packed ? p.offsets.at(sequence_ + 1) - begin : p.n.length;
    live_ = p.lengths.present() ? std::min(p.lengths.at(sequence_), length_) : length_;
    at_.batch = packed ? 0 : sequence_;
    at_.token = begin;
    from_ = p.initial.present() ? core::checker::slot_of(p.initial_slots, sequence_) : -1;
    to_ = p.final.present() ? core::checker::slot_of(p.final_slots, sequence_) : -1;
  }

  void sequence() noexcept {
    if (!Complex && plan_.brief && 0 < length_ && length_ <= diagonal_plan::few) {
      across_states();
    } else {
      across_channels();
    }
  }

  diagonal_tile tile_at(index_t position, index_t count) const noexcept {
    diagonal_tile at = at_;
    at.position = position;
    at.token += position;
    at.count = count;
    at.live = std::clamp<index_t>(live_ - position, 0, count);
    at.first = position == begin_;
    return at;
  }

  /// The hooks of one tile, around a sweep that fills y.
  template <class Sweep>
  void tile(index_t position, index_t count, const Sweep& sweep) noexcept {
    const diagonal_tile at = tile_at(position, count);
    p_.hooks.load(p_.hooks.bound, at, s_.panels);
    sweep(at);
    if (carried_ != carried::alone) p_.hooks.store(p_.hooks.bound, at, s_.panels);
  }

  void across_channels() noexcept {
    if (length_ > 0 && p_.A.present()) load_rates();
    load_state();
    sweep_segments(0, segments());
    store_state();
  }

  index_t segments() const noexcept { return segments_of(length_, p_.segment); }

  /// Segments [first, last), one after the other. The state crosses a segment as h ← decay ⊙ h + alone, whoever sweeps
  /// it and when, but for the first one, whose end is known as soon as this is, and the last one, which nothing
  /// follows.
  void sweep_segments(index_t first, index_t last) noexcept {
    begin_ = first * p_.segment;
    for (index_t s = first; s < last; ++s) {
      if (s == 0 || s + 1 == segments()) {
        sweep_segment(s, carried::state);
        continue;
      }
      copy_state(s_.h, s_.before);
      sweep_segment(s, carried::both);
      cross(s_.decay, s_.alone, s_.before, s_.h);
    }
  }

  void sweep_segment(index_t s, carried what) noexcept {
    carried_ = what;
    if (what != carried::state) {
      each_mode([&](index_t i) noexcept {
        for (index_t part = 0; part < plan_.planes; ++part) {
          simd::store(s_.alone + i + part * plan_.row, vector(Acc(0)));
          simd::store(s_.decay + i + part * plan_.row, vector(part == 0 ? Acc(1) : Acc(0)));
        }
      });
      zero_tile(s_.elapsed, plan_.row, 0, 1, at_.channels);
    }
    const index_t end = s + 1 < segments() ? (s + 1) * p_.segment : length_;
    for (index_t t = s * p_.segment; t < end; t += plan_.tokens) sweep_tile(t, std::min(plan_.tokens, end - t));
    if (what == carried::state || !plan_.factored) return;
    each_mode([&](index_t i) noexcept {
      const vector elapsed = simd::load<Arch>(s_.elapsed + i % plan_.row);
      simd::store(s_.decay + i, simd::exp2_product<true>(elapsed, simd::load<Arch>(s_.A + i)));
    });
  }

  /// to ← decay ⊙ from + alone.
  void cross(const Acc* decay, const Acc* alone, const Acc* from, Acc* to) const noexcept {
    each_mode([&](index_t i) noexcept {
      constexpr index_t planes = Complex ? 2 : 1;
      vector h[planes];
      for (index_t k = 0; k < planes; ++k) h[k] = simd::load<Arch>(from + i + k * plan_.row);
      advance<Complex>(decay + i, alone + i, h);
      for (index_t k = 0; k < planes; ++k) simd::store(to + i + k * plan_.row, h[k]);
    });
  }

  void copy_state(const Acc* from, Acc* to) const noexcept {
    each_mode([&](index_t i) noexcept {
      for (index_t part = 0; part < plan_.planes; ++part) {
        simd::store(to + i + part * plan_.row, simd::load<Arch>(from + i + part * plan_.row));
      }
    });
  }

  /// f(place) of each vector of numbers of a state, of its real part where there are two.
  template <class F>
  void each_mode(const F& f) const noexcept {
    for (index_t n = 0; n < p_.n.states; ++n) {
      for (index_t v = 0; v < at_.channels; v += W) f(n * plan_.planes * plan_.row + v);
    }
  }

  void sweep_tile(index_t position, index_t count) noexcept {
    if (plan_.direct) {
      const direct_state<Acc> state{carried_, s_.h, s_.alone, s_.decay};
      return p_.hooks.sweep(p_.hooks.bound, tile_at(position, count), s_.panels, state);
    }
    tile(position, count, [this](const diagonal_tile& at) noexcept {
      if (p_.n.states == 0) {
        zero_tile(s_.panels.y, plan_.row, 0, at.count, at.channels);  // a sum over no states
      } else if (plan_.factored) {
        if constexpr (!Complex) factored(at);
      } else {
        expanded(at);
      }
    });
  }

  void factored(const diagonal_tile& at) noexcept {
    const diagonal_panels<Acc>& panels = s_.panels;
    const vector log2_e(Acc(1.4426950408889634074L));
    diagonal_ahead ahead = p_.hooks.ahead(p_.hooks.bound, at);
    for (const char*& row : ahead.row) {
      if (row == nullptr) row = reinterpret_cast<const char*>(panels.y);  // an address that costs nothing to ask for
    }
    for (index_t v = 0; v < at.channels; v += W) {
      vector longest(Acc(0)), elapsed(Acc(0));
      for (index_t t = 0; t < at.count; ++t) {
        Acc* delta = panels.delta + t * plan_.row + v;
        const vector step = simd::load<Arch>(delta) * log2_e;
        simd::store(delta, step);
        longest = simd::max(simd::abs(step), longest);
        elapsed = elapsed + step;
      }
      if (carried_ != carried::state) {
        simd::store(s_.elapsed + v, simd::load<Arch>(s_.elapsed + v) + elapsed);
      }
      const vector furthest = longest * simd::load<Arch>(s_.largest_rate + v);
      const factored_sweep<Acc> w{.tokens = at.count,
                                  .states = p_.n.states,
                                  .row = plan_.row,
                                  .delta = panels.delta + v,
                                  .x = panels.x + v,
                                  .B = panels.B,
                                  .C = panels.C,
                                  .shared_row = panels.shared_row,
                                  .A = panels.A + v,
                                  .h = s_.h + v,
                                  .alone = s_.alone + v,
                                  .y = panels.y + v,
                                  .ahead = ahead};
      const bool any = simd::any(furthest > vector(simd::exp2_product_limit<Acc>));
      with_carried([&](auto what) noexcept {
        any ? sweep_factored<true, what(), Arch>(w) : sweep_factored<false, what(), Arch>(w);
      });
      for (int i = 0; i < diagonal_ahead::streams; ++i) ahead.row[i] += W * ahead.element[i];
    }
  }

  void expanded(const diagonal_tile& at) noexcept {
    const diagonal_panels<Acc>& panels = s_.panels;
    p_.hooks.expand(p_.hooks.bound, at, panels);
    const expanded_sweep<Acc> w{at.count, p_.n.states, panels.a, panels.b, panels.c,
                                s_.h,     s_.alone,    s_.decay, panels.y};
    with_carried([&](auto what) noexcept { sweep_expanded<Complex, what(), Arch>(w); });
  }

  /// f(what the sweep carries, as a constant).
  template <class F>
  void with_carried(const F& f) const noexcept {
    switch (carried_) {
      case carried::state:
        return f(std::integral_constant<carried, carried::state>());
      case carried::alone:
        return f(std::integral_constant<carried, carried::alone>());
      case carried::both:
        return f(std::integral_constant<carried, carried::both>());
    }
  }

  /// A turned around, its numbers finite.
  void load_rates() noexcept {
    load_turned(p_.A, p_.A.offset(0, at_.channel), s_.A);
    for (index_t v = 0; v < at_.channels; v += W) {
      vector largest(Acc(0));
      for (index_t n = 0; n < p_.n.states * plan_.planes; ++n) {
        Acc* A = s_.A + n * plan_.row + v;
        const vector rate = bounded(simd::load<Arch>(A));
        simd::store(A, rate);
        largest = simd::max(simd::abs(rate), largest);
      }
      simd::store(s_.largest_rate + v, largest);
    }
  }

  void load_state() noexcept {
    if (from_ >= 0) {
      load_turned(p_.initial, p_.initial.offset(from_, at_.channel), s_.h);
    } else {
      zero_tile(s_.h, plan_.row, 0, p_.n.states * plan_.planes, at_.channels);
    }
  }
  void store_state() noexcept {
    if (to_ >= 0) store_turned(p_.final, p_.final.offset(to_, at_.channel), s_.h);
  }
  /// [channels, N] to panels [N, planes, row].
  void load_turned(const diagonal_pool<Acc>& pool, index_t base, Acc* panel) const noexcept {
    for (index_t part = 0; part < plan_.planes; ++part) {
      pool.load(pool.data, base + part, {p_.n.states, at_.channels}, {pool.strides[2], pool.strides[1]},
                panel + part * plan_.row, plan_.planes * plan_.row);
    }
  }
  void store_turned(const diagonal_pool<Acc>& pool, index_t base, const Acc* panel) const noexcept {
    for (index_t part = 0; part < plan_.planes; ++part) {
      pool.store(pool.data, base + part, {p_.n.states, at_.channels}, {pool.strides[2], pool.strides[1]},
                 panel + part * plan_.row, plan_.planes * plan_.row);
    }
  }

  /// The state is swept where it lies; what is of another type or order goes through scratch.
  void across_states() noexcept {
    const shape<2> rows{at_.channels, p_.n.states};
    state_sweep<Acc> w{};
    const auto fetch = [&](const diagonal_pool<Acc>& pool, index_t slot, Acc* panel, const Acc*& data,
                           index_t& stride) noexcept {
      data = panel;
      stride = plan_.shared_row;
      if (pool.native) {
        data = pool.native_row(slot, at_.channel);
        stride = pool.strides[1];
      } else {
        pool.load(pool.data, pool.offset(slot, at_.channel), rows, {pool.strides[1], pool.strides[2]}, panel, stride);
      }
    };
    fetch(p_.A, 0, s_.A, w.A, w.A_stride);
    if (from_ >= 0) {
      fetch(p_.initial, from_, s_.h, w.from, w.from_stride);
    } else {
      zero_tile(s_.h, 0, 0, 1, plan_.shared_row);
      w.from = s_.h;
    }
    const bool native = to_ >= 0 && p_.final.native;
    w.to = native ? const_cast<Acc*>(p_.final.native_row(to_, at_.channel)) : s_.h;
    w.to_stride = native ? p_.final.strides[1] : plan_.shared_row;
    if (!native && from_ < 0) {
      zero_tile(s_.h, plan_.shared_row, 0, at_.channels, plan_.shared_row);
      w.from_stride = plan_.shared_row;
    }
    tile(0, length_, [&](const diagonal_tile& at) noexcept {
      const diagonal_panels<Acc>& panels = s_.panels;
      const vector log2_e(Acc(1.4426950408889634074L));
      vector shortest(std::numeric_limits<Acc>::max());
      for (index_t t = 0; t < at.live; ++t) {
        for (index_t v = 0; v < at.channels; v += W) {
          Acc* delta = panels.delta + t * plan_.row + v;
          const vector step = simd::load<Arch>(delta) * log2_e;
          simd::store(delta, step);
          shortest = simd::min(simd::abs(step), shortest);
        }
      }
      w.tokens = at.count;
      w.live = at.live;
      w.channels = at.channels;
      w.states = p_.n.states;
      w.row = plan_.row;
      w.delta = panels.delta;
      w.x = panels.x;
      w.y = panels.y;
      w.B = panels.B;
      w.C = panels.C;
      w.shared_row = panels.shared_row;
      if (simd::any(shortest == vector(Acc(0)))) {
        sweep_states<true, Arch>(w);
      } else {
        sweep_states<false, Arch>(w);
      }
    });
    if (to_ >= 0 && !native) {
      p_.final.store(p_.final.data, p_.final.offset(to_, at_.channel), rows, {p_.final.strides[1], p_.final.strides[2]},
                     s_.h, plan_.shared_row);
    }
  }

  const diagonal_problem<Acc>& p_;
  const diagonal_plan& plan_;
  diagonal_scratch<Acc> s_;
  index_t sequence_;
  index_t length_ = 0;
  index_t live_ = 0;
  index_t from_ = -1;  // slots, −1 for none
  index_t to_ = -1;
  index_t begin_ = 0;  // of the tokens that are swept
  carried carried_ = carried::state;
  diagonal_tile at_;
};

// Not inline, so that an extern template spares a unit the bodies.
template <class Acc, class Arch, bool Complex>
void diagonal_task<Acc, Arch, Complex>::run(const diagonal_problem<Acc>& p, index_t task, arena memory) noexcept {
  diagonal_task(p, diagonal_scratch<Acc>::carve(p, memory), task).sequence();
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

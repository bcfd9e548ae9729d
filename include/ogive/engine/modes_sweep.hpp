// L5: the inner loops over fixed modes: every token has the same a, b and c.
//
//   h_t = a ⊙ h_{t-1} + b u_t,   y_t = Re Σ_n c_n h_{t,n}
//
// Lanes are the numbers of a channel's state as they lie in memory, real parts beside imaginary ones, so that a step
// works on the state where it lies. A complex product is two multiply-adds on pairs of lanes,
// a h = (Re a, Re a) ⊙ h + (−Im a, Im a) ⊙ (Im h, Re h), and a token costs four for its modes whether they are real or
// not; the lanes of y are added up later, many tokens at a time.
#pragma once

#include <ogive/engine/unroll.hpp>
#include <ogive/simd/batch.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// Whole vectors that hold `count` numbers.
template <class Acc, class Arch = simd::default_arch>
constexpr index_t vectors_of(index_t count) noexcept {
  return (count + simd::width<Acc, Arch> - 1) / simd::width<Acc, Arch>;
}

/// a, b and c of one vector of numbers, for products with pairs of lanes. c is 2 conj(c) of the formula where modes
/// are complex, so that y is a sum over lanes.
template <bool Complex, class Acc, class Arch>
struct fixed_mode {
  using vector = simd::batch<Acc, Arch>;
  vector a, turn, b, c;  // turn: (−Im a, Im a), unused where modes are real

  OGIVE_INLINE vector next(const vector& h, const vector& u) const noexcept {
    if constexpr (Complex) {
      return simd::fma(a, h, simd::fma(turn, simd::swap_pairs(h), b * u));
    } else {
      return simd::fma(a, h, b * u);
    }
  }
};

/// The numbers of a panel [channels, vectors, planes, W]: a, (−Im a, Im a), b, c.
template <bool Complex, class Acc>
struct packed_modes {
  static constexpr index_t planes = Complex ? 4 : 3;
  const Acc* first;
  index_t row;  // from channel to channel

  packed_modes from(index_t channel) const noexcept { return {first + channel * row, row}; }
  template <class Arch>
  OGIVE_INLINE fixed_mode<Complex, Acc, Arch> get(index_t channel, index_t vector) const noexcept {
    constexpr index_t W = simd::width<Acc, Arch>;
    const Acc* p = first + channel * row + vector * planes * W;
    if constexpr (Complex) {
      return {simd::load<Arch>(p), simd::load<Arch>(p + W), simd::load<Arch>(p + 2 * W), simd::load<Arch>(p + 3 * W)};
    } else {
      return {simd::load<Arch>(p), {}, simd::load<Arch>(p + W), simd::load<Arch>(p + 2 * W)};
    }
  }
};

/// (s, 1, s, 1, …)
template <class Acc, class Arch>
OGIVE_INLINE simd::batch<Acc, Arch> beside_one(Acc s) noexcept {
  alignas(64) Acc lanes[simd::width<Acc, Arch>];
  for (index_t i = 0; i < simd::width<Acc, Arch>; ++i) lanes[i] = i % 2 == 0 ? s : Acc(1);
  return simd::load<Arch>(lanes);
}

/// Rows of numbers a, b and c as an operator holds them, `width` of them per channel: for calls of so few tokens that
/// packing them would cost more.
template <bool Complex, class Acc>
struct plain_modes {
  const Acc *a, *b, *c;
  index_t a_row, b_row, c_row;
  index_t width;

  plain_modes from(index_t d) const noexcept {
    return {a + d * a_row, b + d * b_row, c + d * c_row, a_row, b_row, c_row, width};
  }
  template <class Arch>
  OGIVE_INLINE fixed_mode<Complex, Acc, Arch> get(index_t channel, index_t vector) const noexcept {
    using batch = simd::batch<Acc, Arch>;
    constexpr index_t W = simd::width<Acc, Arch>;
    const index_t n = vector * W;
    const auto load = [&](const Acc* p) __attribute__((always_inline)) {
      return n + W <= width ? simd::load<Arch>(p + n) : simd::load<Arch>(p + n, width - n);
    };
    const batch A = load(a + channel * a_row), B = load(b + channel * b_row), C = load(c + channel * c_row);
    if constexpr (Complex) {
      const batch signs = beside_one<Acc, Arch>(Acc(-1));
      return {simd::first_of_pairs(A), simd::second_of_pairs(A) * signs, B, C * (signs * batch(Acc(-2)))};
    } else {
      return {A, {}, B, C};
    }
  }
};

/// One tile of tokens for some channels of one sequence. sums[channel · sums_row + token · sums_step] are vectors.
template <class Acc>
struct modes_sweep {
  index_t tokens;
  index_t channels;
  index_t width;  // numbers of a row of the state
  const Acc* u;
  index_t u_row;   // from channel to channel
  index_t u_step;  // from token to token
  const Acc* from;
  index_t from_row;
  Acc* to;  // may be `from`
  index_t to_row;
  Acc* sums;
  index_t sums_row;
  index_t sums_step;
};

/// `Vectors` vectors of the states of `Rows` channels, from vector v of channel d on.
template <bool Complex, int Rows, int Vectors, class Arch, class Acc, class Modes>
OGIVE_INLINE void sweep_modes_block(const modes_sweep<Acc>& w, const Modes& modes, index_t d, index_t v) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  const bool whole = (v + Vectors) * W <= w.width;
  const simd::lanes<Acc, Arch> tail(whole ? W : w.width - (v + Vectors - 1) * W);
  vector h[Rows * Vectors];
  unroll<Rows * Vectors>([&](auto i) __attribute__((always_inline)) {
    const Acc* p = w.from + (d + i / Vectors) * w.from_row + (v + i % Vectors) * W;
    h[i] = i % Vectors + 1 < Vectors ? simd::load<Arch>(p) : simd::load(p, tail);
  });
  for (index_t t = 0; t < w.tokens; ++t) {
    unroll<Rows>([&](auto r) __attribute__((always_inline)) {
      const vector u(w.u[(d + r) * w.u_row + t * w.u_step]);
      Acc* at = w.sums + ((d + r) * w.sums_row + t * w.sums_step) * W;
      vector sum = v == 0 ? vector(Acc(0)) : simd::load<Arch>(at);
      unroll<Vectors>([&](auto i) __attribute__((always_inline)) {
        const auto mode = modes.template get<Arch>(d + r, v + i);
        vector& state = h[r * Vectors + i];
        state = mode.next(state, u);
        sum = simd::fma(mode.c, state, sum);
      });
      simd::store(at, sum);
    });
  }
  unroll<Rows * Vectors>([&](auto i) __attribute__((always_inline)) {
    Acc* p = w.to + (d + i / Vectors) * w.to_row + (v + i % Vectors) * W;
    if (i % Vectors + 1 < Vectors) {
      simd::store(p, h[i]);
    } else {
      simd::store(p, h[i], tail);
    }
  });
}

template <bool Complex, int Rows, int Vectors, class Arch, class Acc, class Modes>
OGIVE_INLINE void sweep_modes_rows(const modes_sweep<Acc>& w, const Modes& modes, index_t v) noexcept {
  index_t d = 0;
  for (; d + Rows <= w.channels; d += Rows) sweep_modes_block<Complex, Rows, Vectors, Arch>(w, modes, d, v);
  for (; Rows > 1 && d < w.channels; ++d) sweep_modes_block<Complex, 1, Vectors, Arch>(w, modes, d, v);
}

/// Eight vectors of states, or four, fill the registers and the time that one multiply-add waits for the last.
template <bool Complex, class Arch, class Acc, class Modes>
OGIVE_NOINLINE void sweep_modes(const modes_sweep<Acc>& w, const Modes& modes) noexcept {
  constexpr bool large = sizeof(simd::batch<Acc, Arch>) == 64;
  const index_t vectors = vectors_of<Acc, Arch>(w.width);
  index_t v = 0;
  if constexpr (large) {
    for (; v + 8 <= vectors; v += 8) sweep_modes_rows<Complex, 1, 8, Arch>(w, modes, v);
  }
  for (; v + 4 <= vectors; v += 4) sweep_modes_rows<Complex, large ? 2 : 1, 4, Arch>(w, modes, v);
  if (v + 2 <= vectors) {
    sweep_modes_rows<Complex, large ? 4 : 2, 2, Arch>(w, modes, v);
    v += 2;
  }
  if (v < vectors) sweep_modes_rows<Complex, 4, 1, Arch>(w, modes, v);
}

/// Σ_n c_n h_n by lanes, of a state that stays as it is.
template <bool Complex, class Arch, class Acc, class Modes>
OGIVE_NOINLINE simd::batch<Acc, Arch> read_modes(const Acc* h, index_t width, const Modes& modes,
                                                 index_t channel) noexcept {
  constexpr index_t W = simd::width<Acc, Arch>;
  simd::batch<Acc, Arch> sum(Acc(0));
  for (index_t v = 0; v * W < width; ++v) {
    const auto mode = modes.template get<Arch>(channel, v);
    sum = simd::fma(mode.c, simd::load<Arch>(h + v * W, width - v * W), sum);
  }
  return sum;
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

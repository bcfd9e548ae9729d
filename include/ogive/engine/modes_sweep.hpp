// L5: the inner loops over fixed modes: every token has the same a, b and c.
//
//   h_t = a ⊙ h_{t-1} + b u_t,   y_t = Re Σ_n c_n h_{t,n}
//
// Lanes are the modes of a channel. Its state stays in registers for a tile of tokens, and is read and written where it
// lies. A token costs a complex mode eight multiply-adds, a real one three; the lanes of y are added up later, many
// tokens at a time.
#pragma once

#include <ogive/engine/mode_vector.hpp>
#include <ogive/engine/unroll.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// Numbers of a state that are swept together, and how many such units hold `width` of them.
template <bool Complex, class Acc, class Arch = simd::default_arch>
inline constexpr index_t unit = (Complex ? 2 : 1) * simd::width<Acc, Arch>;
template <bool Complex, class Acc, class Arch = simd::default_arch>
constexpr index_t units_of(index_t width) noexcept {
  return (width + unit<Complex, Acc, Arch> - 1) / unit<Complex, Acc, Arch>;
}

/// a, b and c of a unit; c is 2 conj(c) of the formula where modes are complex.
template <bool Complex, class Acc, class Arch = simd::default_arch>
struct fixed_mode {
  using modes = mode_vector<Complex, Acc, Arch>;
  modes a, b, c;

  OGIVE_INLINE modes next(const modes& h, const simd::batch<Acc, Arch>& u) const noexcept {
    return mode_fma(a, h, scaled(b, u));
  }
};

/// a, b and c of some channels as panels [channels, units, 3, unit].
template <bool Complex, class Acc>
struct packed_modes {
  const Acc* first;
  index_t row;  // from channel to channel

  packed_modes from(index_t channel) const noexcept { return {first + channel * row, row}; }

  template <class Arch, bool Whole = false>
  OGIVE_INLINE fixed_mode<Complex, Acc, Arch> get(index_t index) const noexcept {
    constexpr index_t step = unit<Complex, Acc, Arch>;
    const Acc* p = first + index * 3 * step;
    return {load_mode<Complex, Arch>(p), load_mode<Complex, Arch>(p + step), load_mode<Complex, Arch>(p + 2 * step)};
  }
};

/// Rows of numbers a, b and c, `width` of them per channel, real parts beside imaginary ones: as an operator holds
/// them, for calls of so few tokens that packing them would cost more.
template <bool Complex, class Acc>
struct plain_modes {
  const Acc *a, *b, *c;
  index_t a_row, b_row, c_row;
  index_t width;

  plain_modes from(index_t d) const noexcept {
    return {a + d * a_row, b + d * b_row, c + d * c_row, a_row, b_row, c_row, width};
  }
  /// `Whole`: all of the unit is there.
  template <class Arch, bool Whole = false>
  OGIVE_INLINE fixed_mode<Complex, Acc, Arch> get(index_t index) const noexcept {
    constexpr index_t step = unit<Complex, Acc, Arch>;
    const index_t n = index * step;
    const auto load = [&](const Acc* p) __attribute__((always_inline)) {
      return load_interleaved<Complex, Arch>(p + n, Whole ? step : width - n);
    };
    if constexpr (Complex) {
      return {load(a), load(b), scaled(conjugate(load(c)), simd::batch<Acc, Arch>(Acc(2)))};
    } else {
      return {load(a), load(b), load(c)};
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

/// `Units` units of the states of `Rows` channels, from unit v of channel d on; `Whole`: all of them are there.
template <bool Complex, int Rows, int Units, bool Whole, class Arch, class Acc, class Modes>
OGIVE_INLINE void sweep_modes_block(const modes_sweep<Acc>& w, const Modes& modes, index_t d, index_t v) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>, step = unit<Complex, Acc, Arch>;
  mode_vector<Complex, Acc, Arch> h[Rows * Units];
  unroll<Rows * Units>([&](auto i) __attribute__((always_inline)) {
    const index_t n = (v + i % Units) * step;
    h[i] = load_interleaved<Complex, Arch>(w.from + (d + i / Units) * w.from_row + n, Whole ? step : w.width - n);
  });
  const index_t tokens = w.tokens, u_step = w.u_step, sums_step = w.sums_step * W;
  const Acc* u[Rows];
  Acc* sums[Rows];
  Modes of_row[Rows];
  unroll<Rows>([&](auto r) __attribute__((always_inline)) {
    u[r] = w.u + (d + r) * w.u_row;
    sums[r] = w.sums + (d + r) * w.sums_row * W;
    of_row[r] = modes.from(d + r);
  });
  for (index_t t = 0; t < tokens; ++t) {
    unroll<Rows>([&](auto r) __attribute__((always_inline)) {
      const vector input(u[r][t * u_step]);
      Acc* at = sums[r] + t * sums_step;
      vector sum = v == 0 ? vector(Acc(0)) : simd::load<Arch>(at);
      unroll<Units>([&](auto i) __attribute__((always_inline)) {
        const auto mode = of_row[r].template get<Arch, Whole>(v + i);
        auto& state = h[r * Units + i];
        state = mode.next(state, input);
        sum = inner(mode.c, state, sum);
      });
      simd::store(at, sum);
    });
  }
  unroll<Rows * Units>([&](auto i) __attribute__((always_inline)) {
    const index_t n = (v + i % Units) * step;
    store_interleaved(w.to + (d + i / Units) * w.to_row + n, h[i], Whole ? step : w.width - n);
  });
}

template <bool Complex, int Rows, int Units, class Arch, class Acc, class Modes>
OGIVE_INLINE void sweep_modes_rows(const modes_sweep<Acc>& w, const Modes& modes, index_t v) noexcept {
  index_t d = 0;
  if ((v + Units) * unit<Complex, Acc, Arch> <= w.width) {
    for (; d + Rows <= w.channels; d += Rows) sweep_modes_block<Complex, Rows, Units, true, Arch>(w, modes, d, v);
  } else {
    for (; d + Rows <= w.channels; d += Rows) sweep_modes_block<Complex, Rows, Units, false, Arch>(w, modes, d, v);
  }
  for (; d < w.channels; ++d) sweep_modes_block<Complex, 1, Units, false, Arch>(w, modes, d, v);
}

/// As many states at a time as fill the registers, and the time for which one multiply-add waits for the last.
template <bool Complex, class Arch, class Acc, class Modes>
OGIVE_NOINLINE void sweep_modes(const modes_sweep<Acc>& w, const Modes& modes) noexcept {
  constexpr int most = (sizeof(simd::batch<Acc, Arch>) == 64 ? 8 : 4) / (Complex ? 2 : 1);
  const index_t units = units_of<Complex, Acc, Arch>(w.width);
  index_t v = 0;
  for (; v + most <= units; v += most) sweep_modes_rows<Complex, 1, most, Arch>(w, modes, v);
  if constexpr (most > 4) {
    if (v + 4 <= units) {
      sweep_modes_rows<Complex, 2, 4, Arch>(w, modes, v);
      v += 4;
    }
  }
  if constexpr (most > 2) {
    if (v + 2 <= units) {
      sweep_modes_rows<Complex, 2, 2, Arch>(w, modes, v);
      v += 2;
    }
  }
  if (v < units) sweep_modes_rows<Complex, Complex ? most : 4, 1, Arch>(w, modes, v);
}

/// Σ_n c_n h_n by lanes, of a state that stays as it is.
template <bool Complex, class Arch, class Acc, class Modes>
OGIVE_NOINLINE simd::batch<Acc, Arch> read_modes(const Acc* h, index_t width, const Modes& modes) noexcept {
  constexpr index_t step = unit<Complex, Acc, Arch>;
  simd::batch<Acc, Arch> sum(Acc(0));
  for (index_t n = 0; n < width; n += step) {
    sum = inner(modes.template get<Arch>(n / step).c, load_interleaved<Complex, Arch>(h + n, width - n), sum);
  }
  return sum;
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

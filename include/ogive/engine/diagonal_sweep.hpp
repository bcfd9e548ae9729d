// L5: the inner loops of the diagonal engine. Time runs inside, so a block of the state stays in registers for a whole
// tile of tokens. Every y sums over n = 0 … N−1 in order, but for the sweep across states.
#pragma once

#include <ogive/engine/diagonal_policy.hpp>
#include <ogive/engine/time_segments.hpp>
#include <ogive/engine/unroll.hpp>
#include <ogive/simd/exp2_product.hpp>

#include <limits>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// x with the largest finite number for ∞; NaN stays. Of rates: a δ of 0 keeps the state whatever the rate is, since
/// 0 · max is 0, and any other one forgets as well as with −∞, but for a δ that is next to the smallest normal number.
template <class Acc, class Arch>
OGIVE_INLINE simd::batch<Acc, Arch> bounded(const simd::batch<Acc, Arch>& x) noexcept {
  const simd::batch<Acc, Arch> most(std::numeric_limits<Acc>::max());
  return simd::max(-most, simd::min(most, x));
}

/// Factored operands, for one vector of channels: pointers are to its first lane, rows `row` apart.
///   h_t = 2^(δ_t A) h_{t-1} + x_t B_t,   y_t = C_t · h_t          δ in units of ln 2; at least one state
template <class Acc>
struct factored_sweep {
  index_t tokens;
  index_t states;
  index_t row;
  const Acc* delta;
  const Acc* x;
  const Acc* B;
  const Acc* C;
  index_t shared_row;
  const Acc* A;
  Acc* h;
  Acc* alone;
  Acc* y;
  diagonal_ahead ahead;
};

/// `Block` states from n on. `Any`: some product of δ and A is beyond what exp2_product takes at full speed; the others
/// keep their bits.
template <int Block, bool Any, carried Carried, class Arch, class Acc>
OGIVE_INLINE void sweep_factored_block(const factored_sweep<Acc>& w, index_t n) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr bool reads = Carried != carried::alone, apart = Carried != carried::state;
  const Acc* A = w.A + n * w.row;
  Acc* state = w.h + n * w.row;
  Acc* other = apart ? w.alone + n * w.row : nullptr;
  vector h[Block], alone[Block];
  unroll<Block>([&](auto i) __attribute__((always_inline)) {
    if constexpr (reads) h[i] = simd::load<Arch>(state + i * w.row);
    if constexpr (apart) alone[i] = simd::load<Arch>(other + i * w.row);
  });
  for (index_t t = 0; t < w.tokens; ++t) {
    const vector delta = simd::load<Arch>(w.delta + t * w.row);
    const vector x = simd::load<Arch>(w.x + t * w.row);
    const Acc* B = w.B + t * w.shared_row + n;
    const Acc* C = w.C + t * w.shared_row + n;
    vector y(Acc(0));
    if (n == 0) {
      unroll<diagonal_ahead::streams>([&](auto i) __attribute__((always_inline)) {
        __builtin_prefetch(w.ahead.row[i] + t * w.ahead.step[i], 0, 2);
      });
    } else if constexpr (reads) {
      y = simd::load<Arch>(w.y + t * w.row);
    }
    unroll<Block>([&](auto i) __attribute__((always_inline)) {
      const vector a = simd::exp2_product<Any>(delta, simd::load<Arch>(A + i * w.row));
      const vector b = x * vector(B[i]);
      if constexpr (apart) alone[i] = simd::fma(a, alone[i], b);
      if constexpr (reads) {
        h[i] = simd::fma(a, h[i], b);
        y = simd::fma(vector(C[i]), h[i], y);
      }
    });
    if constexpr (reads) simd::store(w.y + t * w.row, y);
  }
  unroll<Block>([&](auto i) __attribute__((always_inline)) {
    if constexpr (reads) simd::store(state + i * w.row, h[i]);
    if constexpr (apart) simd::store(other + i * w.row, alone[i]);
  });
}

template <bool Any, carried Carried, class Arch, class Acc>
OGIVE_NOINLINE void sweep_factored(const factored_sweep<Acc>& w) noexcept {
  // Eight states, their decays on the way and the coefficients fill 32 registers; four fill 16.
  constexpr int block = sizeof(simd::batch<Acc, Arch>) == 64 ? 8 : 4;
  index_t n = 0;
  for (; n + block <= w.states; n += block) sweep_factored_block<block, Any, Carried, Arch>(w, n);
  if constexpr (block == 8) {
    if (n + 4 <= w.states) {
      sweep_factored_block<4, Any, Carried, Arch>(w, n);
      n += 4;
    }
  }
  if (n + 2 <= w.states) {
    sweep_factored_block<2, Any, Carried, Arch>(w, n);
    n += 2;
  }
  if (n < w.states) sweep_factored_block<1, Any, Carried, Arch>(w, n);
}

/// Factored operands for a few tokens, lanes across states: the state and A are read where they lie, rows of N
/// numbers, and `from` may be `to`. The state has the bits of sweep_factored; y sums by lanes first.
template <class Acc>
struct state_sweep {
  index_t tokens;
  index_t live;
  index_t channels;
  index_t states;
  index_t row;
  const Acc* delta;
  const Acc* x;
  Acc* y;
  const Acc* B;
  const Acc* C;
  index_t shared_row;
  const Acc* A;
  index_t A_stride;
  const Acc* from;
  index_t from_stride;
  Acc* to;
  index_t to_stride;
};

/// Token t of `Rows` channels from `channel` on: sums[i] holds the products C ⊙ h of channel i, still by lanes.
/// `Still`: some δ is 0, so that rates have to be bounded (4 % of a step in cache).
template <int Rows, bool Writes, bool Still, class Arch, class Acc>
OGIVE_INLINE void sweep_states_rows(const state_sweep<Acc>& w, index_t t, index_t channel,
                                    simd::batch<Acc, Arch>* sums) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  const Acc* B = w.B + t * w.shared_row;
  const Acc* C = w.C + t * w.shared_row;
  const Acc* A = w.A + channel * w.A_stride;
  const index_t from_stride = t == 0 ? w.from_stride : w.to_stride;
  const Acc* from = (t == 0 ? w.from : w.to) + channel * from_stride;
  Acc* to = w.to + channel * w.to_stride;
  vector delta[Rows];
  vector x[Rows];
  vector sum[Rows];
  unroll<Rows>([&](auto i) __attribute__((always_inline)) {
    delta[i] = vector(w.delta[t * w.row + channel + i]);
    x[i] = vector(w.x[t * w.row + channel + i]);
    sum[i] = vector(Acc(0));
  });
  const auto vectors = [&](index_t n, const auto& load, const auto& store) __attribute__((always_inline)) {
    const vector B_n = simd::load<Arch>(B + n);
    const vector C_n = simd::load<Arch>(C + n);
    unroll<Rows>([&](auto i) __attribute__((always_inline)) {
      vector h = load(from + i * from_stride + n);
      if constexpr (Writes) {
        vector rate = load(A + i * w.A_stride + n);
        if constexpr (Still) rate = bounded(rate);
        h = simd::fma(simd::exp2_product<true>(delta[i], rate), h, x[i] * B_n);
      }
      store(to + i * w.to_stride + n, h);
      sum[i] = simd::fma(C_n, h, sum[i]);
    });
  };
  const index_t whole = w.states / W * W;
  for (index_t n = 0; n < whole; n += W) {
    vectors(
        n, [](const Acc* p) __attribute__((always_inline)) { return simd::load<Arch>(p); },
        [](Acc * p, const vector& v) __attribute__((always_inline)) { simd::store(p, v); });
  }
  if (whole < w.states) {
    const simd::lanes<Acc, Arch> tail(w.states - whole);
    vectors(
        whole, [&](const Acc* p) __attribute__((always_inline)) { return simd::load(p, tail); },
        [&](Acc * p, const vector& v) __attribute__((always_inline)) { simd::store(p, v, tail); });
  }
  unroll<Rows>([&](auto i) __attribute__((always_inline)) { sums[i] = sum[i]; });
}

template <bool Writes, bool Still, class Arch, class Acc>
OGIVE_INLINE void sweep_states_token(const state_sweep<Acc>& w, index_t t) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  constexpr int rows = W < 4 ? static_cast<int>(W) : 4;
  vector sums[vector::size];
  index_t channel = 0;
  for (; channel + W <= w.channels; channel += W) {
    for (index_t i = 0; i < W; i += rows) sweep_states_rows<rows, Writes, Still, Arch>(w, t, channel + i, sums + i);
    simd::store(w.y + t * w.row + channel, simd::reduce_add_all(sums));
  }
  if (channel == w.channels) return;
  for (index_t i = 0; i < W; ++i) {
    if (channel + i < w.channels) {
      sweep_states_rows<1, Writes, Still, Arch>(w, t, channel + i, sums + i);
    } else {
      sums[i] = vector(Acc(0));
    }
  }
  simd::store(w.y + t * w.row + channel, simd::reduce_add_all(sums));
}

template <bool Still, class Arch, class Acc>
OGIVE_NOINLINE void sweep_states(const state_sweep<Acc>& w) noexcept {
  for (index_t t = 0; t < w.live; ++t) sweep_states_token<true, Still, Arch>(w, t);
  for (index_t t = w.live; t < w.tokens; ++t) sweep_states_token<false, false, Arch>(w, t);
}

/// h ← a ⊙ h + b, numbers of one vector of channels, real parts first.
template <bool Complex, class Acc, class Arch>
OGIVE_INLINE void advance(const Acc* a, const Acc* b, simd::batch<Acc, Arch>* h) noexcept {
  constexpr index_t W = simd::width<Acc, Arch>;
  const auto a_re = simd::load<Arch>(a);
  if constexpr (Complex) {
    const auto a_im = simd::load<Arch>(a + W);
    const auto re = simd::fma(a_re, h[0], simd::fnma(a_im, h[1], simd::load<Arch>(b)));
    h[1] = simd::fma(a_re, h[1], simd::fma(a_im, h[0], simd::load<Arch>(b + W)));
    h[0] = re;
  } else {
    h[0] = simd::fma(a_re, h[0], simd::load<Arch>(b));
  }
}

/// h ← a ⊙ h.
template <bool Complex, class Acc, class Arch>
OGIVE_INLINE void decay_by(const Acc* a, simd::batch<Acc, Arch>* h) noexcept {
  constexpr index_t W = simd::width<Acc, Arch>;
  const auto a_re = simd::load<Arch>(a);
  if constexpr (Complex) {
    const auto a_im = simd::load<Arch>(a + W);
    const auto re = simd::fnma(a_im, h[1], a_re * h[0]);
    h[1] = simd::fma(a_re, h[1], a_im * h[0]);
    h[0] = re;
  } else {
    h[0] = a_re * h[0];
  }
}

/// Expanded operands, one vector of channels: a, b, c [tokens, states, planes, W], h, alone and decay, the product of
/// all a, [states, planes, W].
template <class Acc>
struct expanded_sweep {
  index_t tokens;
  index_t states;
  const Acc* a;
  const Acc* b;
  const Acc* c;
  Acc* h;
  Acc* alone;
  Acc* decay;
  Acc* y;
};

template <bool Complex, int Block, carried Carried, class Arch, class Acc>
OGIVE_INLINE void sweep_expanded_block(const expanded_sweep<Acc>& w, index_t n) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  constexpr int planes = Complex ? 2 : 1, numbers = Block * planes;
  constexpr bool reads = Carried != carried::alone, apart = Carried != carried::state;
  const index_t first = n * planes * W;
  vector h[numbers], alone[numbers], decay[numbers];
  unroll<numbers>([&](auto i) __attribute__((always_inline)) {
    const index_t at = first + i * W;
    if constexpr (reads) h[i] = simd::load<Arch>(w.h + at);
    if constexpr (apart) alone[i] = simd::load<Arch>(w.alone + at), decay[i] = simd::load<Arch>(w.decay + at);
  });
  for (index_t t = 0; t < w.tokens; ++t) {
    const index_t at = t * w.states * planes * W + first;
    vector y = !reads || n == 0 ? vector(Acc(0)) : simd::load<Arch>(w.y + t * W);
    unroll<Block>([&](auto i) __attribute__((always_inline)) {
      constexpr int k = i * planes;
      const Acc *a = w.a + at + k * W, *b = w.b + at + k * W, *c = w.c + at + k * W;
      if constexpr (apart) {
        advance<Complex>(a, b, alone + k);
        decay_by<Complex>(a, decay + k);
      }
      if constexpr (reads) {
        advance<Complex>(a, b, h + k);
        y = simd::fma(simd::load<Arch>(c), h[k], y);
        if constexpr (Complex) y = simd::fnma(simd::load<Arch>(c + W), h[k + 1], y);
      }
    });
    if constexpr (reads) simd::store(w.y + t * W, y);
  }
  unroll<numbers>([&](auto i) __attribute__((always_inline)) {
    const index_t at = first + i * W;
    if constexpr (reads) simd::store(w.h + at, h[i]);
    if constexpr (apart) simd::store(w.alone + at, alone[i]), simd::store(w.decay + at, decay[i]);
  });
}

template <bool Complex, carried Carried, class Arch, class Acc>
OGIVE_NOINLINE void sweep_expanded(const expanded_sweep<Acc>& w) noexcept {
  index_t n = 0;
  for (; n + 4 <= w.states; n += 4) sweep_expanded_block<Complex, 4, Carried, Arch>(w, n);
  for (; n < w.states; ++n) sweep_expanded_block<Complex, 1, Carried, Arch>(w, n);
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

// L5: the inner loops of the diagonal engine's backward pass, and what its hooks see.
//
//   g_t = conj(c_t) ȳ_t + conj(a_{t+1}) g_{t+1},   ā_t = g_t conj(h_{t-1}),   b̄_t = g_t,   c̄_t = ȳ_t conj(h_t)
//
// with g the cotangent of the state, from the last token to the first. A bar is the derivative of a real number by what
// is below it: for complex z by its two parts, z̄ = ∂/∂Re z + i ∂/∂Im z. States within a tile are computed again from
// the one at its beginning; nothing is divided by a decay.
#pragma once

#include <ogive/engine/diagonal_sweep.hpp>
#include <ogive/engine/mode_vector.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// What a rate has to say to its step: 0 where it is infinite, since no step changes what it does.
template <class Acc, class Arch>
OGIVE_INLINE simd::batch<Acc, Arch> slope_of_step(const simd::batch<Acc, Arch>& rate) noexcept {
  using vector = simd::batch<Acc, Arch>;
  return simd::select(simd::abs(rate) < vector(std::numeric_limits<Acc>::max()), rate, vector(Acc(0)));
}
template <class Acc, class Arch>
OGIVE_INLINE complex_vector<Acc, Arch> slope_of_step(const complex_vector<Acc, Arch>& rate) noexcept {
  return {slope_of_step(rate.re), slope_of_step(rate.im)};
}

/// How the gradient of B or C is summed. An axis without a step in its view is summed over; groups may reach over
/// several tasks, whose sums are then added in their order.
struct diagonal_shared_sum {
  bool wanted = false;
  bool over_batch = false;
  bool over_time = false;
  bool complete = true;  // every group lies within a task
  index_t run = 1;       // channels of a group
  index_t groups = 1;    // of a task
  index_t batch = 0;
  index_t length = 0;

  /// Whether a tile has the whole of it.
  bool direct() const noexcept { return complete && !over_batch && !over_time; }
  index_t rows() const noexcept { return (over_batch ? 1 : batch) * (over_time ? 1 : length); }
  index_t row(index_t b, index_t token) const noexcept {
    return (over_batch ? 0 : b * (over_time ? 1 : length)) + (over_time ? 0 : token);
  }
};

}  // namespace detail

/// What a backward task has beside the panels of `diagonal_panels`: cotangents of a tile, and sums over its tokens.
/// `shared[i]` is how the gradients of B (0) and C (1) are summed, `d_shared[i]` those of the tile,
/// [tokens, groups, planes, shared_row].
template <class Acc>
struct diagonal_adjoints {
  Acc* d_y;      ///< [tokens, row]: the cotangent of ⟨c, h⟩, from the operator
  Acc* d_delta;  ///< [tokens, row]: of δ, by way of the decay only
  Acc* d_x;      ///< [tokens, row]
  Acc* own;      ///< [tokens, row]: the operator's own, 0 before the tile
  Acc* spare;    ///< [tokens, row]: room
  Acc* d_A;      ///< [states, planes, row]: sum of the task
  Acc* sums;     ///< [2, row]: the operator's own sums of the task
  Acc* d_a;      ///< [tokens, states, planes, row], for expanded operands
  Acc* d_b;      ///< likewise
  Acc* d_c;      ///< likewise
  Acc* again;    ///< likewise: room
  detail::diagonal_shared_sum shared[2];
  Acc* d_shared[2];
};

/// Of a backward pass over a tile.
template <class Acc>
struct direct_adjoint {
  Acc* c;       ///< [row], the cotangent of the state after it, then before it
  Acc* decays;  ///< [tokens, row]: room
  Acc* states;  ///< [tokens, row]: the state before the tile, then room
  bool accumulate;
};

namespace detail {

/// Factored operands, for one vector of channels as in factored_sweep; here δ is in its own unit. Tokens from `live` on
/// are padding: they read the state and do nothing to it. What they read it with, NaN too, counts only where somebody
/// asks for their output.
template <class Acc>
struct factored_adjoint {
  index_t tokens;
  index_t live;
  index_t states;
  index_t row;
  const Acc* delta;
  const Acc* x;
  const Acc* B;
  const Acc* C;
  index_t shared_row;
  const Acc* A;
  const Acc* h;  // before the tile
  Acc* g;        // after it, then before it
  const Acc* d_y;
  Acc* y;  // nullptr if nobody asks; with d_delta and d_x added to
  Acc* d_delta;
  Acc* d_x;
  Acc* d_A;
  Acc* lanes[2];  // [tokens, states, W] of B and C, added to but for the first vector of a block; or nullptr
  bool first;
  Acc* kept;  // room: [tokens, 2, block, W]
};

template <class Acc, class Arch>
inline constexpr int adjoint_block = sizeof(simd::batch<Acc, Arch>) == 64 ? 4 : 2;

template <int Block, class Arch, class Acc>
OGIVE_INLINE void adjoint_factored_block(const factored_adjoint<Acc>& w, index_t n) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  const vector log2_e(Acc(1.4426950408889634074L));
  vector h[Block];
  unroll<Block>([&](auto i) __attribute__((always_inline)) { h[i] = simd::load<Arch>(w.h + (n + i) * w.row); });
  for (index_t t = 0; t < w.tokens; ++t) {
    const vector delta = simd::load<Arch>(w.delta + t * w.row) * log2_e;
    const vector x = simd::load<Arch>(w.x + t * w.row);
    Acc* kept = w.kept + t * (2 * Block * W);
    unroll<Block>([&](auto i) __attribute__((always_inline)) {
      const vector a = simd::exp2_product<true>(delta, simd::load<Arch>(w.A + (n + i) * w.row));
      simd::store(kept + 2 * i * W, a);
      simd::store(kept + (2 * i + 1) * W, h[i]);
      h[i] = simd::fma(a, h[i], x * vector(w.B[t * w.shared_row + n + i]));
    });
    if (w.y != nullptr) {
      vector y = simd::load<Arch>(w.y + t * w.row);
      unroll<Block>([&](auto i) __attribute__((always_inline)) {
        y = simd::fma(vector(w.C[t * w.shared_row + n + i]), h[i], y);
      });
      simd::store(w.y + t * w.row, y);
    }
  }
  vector g[Block], slope[Block], d_A[Block];
  unroll<Block>([&](auto i) __attribute__((always_inline)) {
    g[i] = simd::load<Arch>(w.g + (n + i) * w.row);
    slope[i] = slope_of_step(simd::load<Arch>(w.A + (n + i) * w.row));
    d_A[i] = vector(Acc(0));
  });
  const auto add_lanes = [&](Acc * to, const vector& term) __attribute__((always_inline)) {
    simd::store(to, w.first ? term : simd::load<Arch>(to) + term);
  };
  for (index_t t = w.tokens; t-- > w.live;) {
    const vector d_y = simd::load<Arch>(w.d_y + t * w.row), none(Acc(0));
    unroll<Block>([&](auto i) __attribute__((always_inline)) {
      const index_t lane = ((t * w.states + n) + i) * W;
      if (w.lanes[0] != nullptr) add_lanes(w.lanes[0] + lane, none);
      if (w.lanes[1] != nullptr) add_lanes(w.lanes[1] + lane, d_y * h[i]);
      g[i] = simd::select(d_y == none, g[i], simd::fma(vector(w.C[t * w.shared_row + n + i]), d_y, g[i]));
    });
  }
  for (index_t t = w.live; t-- > 0;) {
    const vector delta = simd::load<Arch>(w.delta + t * w.row);
    const vector x = simd::load<Arch>(w.x + t * w.row);
    const vector d_y = simd::load<Arch>(w.d_y + t * w.row);
    const Acc* B = w.B + t * w.shared_row + n;
    const Acc* C = w.C + t * w.shared_row + n;
    const Acc* kept = w.kept + t * (2 * Block * W);
    const index_t lanes = (t * w.states + n) * W;
    if (w.lanes[1] != nullptr) {
      unroll<Block>([&](auto i) __attribute__((always_inline)) { add_lanes(w.lanes[1] + lanes + i * W, d_y * h[i]); });
    }
    unroll<Block>([&](auto i) __attribute__((always_inline)) { g[i] = simd::fma(vector(C[i]), d_y, g[i]); });
    if (w.lanes[0] != nullptr) {
      unroll<Block>([&](auto i) __attribute__((always_inline)) { add_lanes(w.lanes[0] + lanes + i * W, g[i] * x); });
    }
    vector d_x = simd::load<Arch>(w.d_x + t * w.row);
    vector d_delta = simd::load<Arch>(w.d_delta + t * w.row);
    unroll<Block>([&](auto i) __attribute__((always_inline)) {
      h[i] = simd::load<Arch>(kept + (2 * i + 1) * W);
      d_x = simd::fma(g[i], vector(B[i]), d_x);
      g[i] = g[i] * simd::load<Arch>(kept + 2 * i * W);
      const vector exponent = g[i] * h[i];
      d_delta = simd::fma(exponent, slope[i], d_delta);
      d_A[i] = simd::fma(exponent, delta, d_A[i]);
    });
    simd::store(w.d_x + t * w.row, d_x);
    simd::store(w.d_delta + t * w.row, d_delta);
  }
  unroll<Block>([&](auto i) __attribute__((always_inline)) {
    simd::store(w.g + (n + i) * w.row, g[i]);
    Acc* sum = w.d_A + (n + i) * w.row;
    simd::store(sum, simd::load<Arch>(sum) + d_A[i]);
  });
}

template <class Arch, class Acc>
OGIVE_NOINLINE void adjoint_factored(const factored_adjoint<Acc>& w) noexcept {
  constexpr int block = adjoint_block<Acc, Arch>;
  index_t n = 0;
  for (; n + block <= w.states; n += block) adjoint_factored_block<block, Arch>(w, n);
  for (; n < w.states; ++n) adjoint_factored_block<1, Arch>(w, n);
}

/// The lanes of [tokens, states, W] summed into rows of `row` numbers.
template <class Arch, class Acc>
OGIVE_NOINLINE void reduce_lanes(const Acc* lanes, index_t tokens, index_t states, Acc* to, index_t row) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  for (index_t t = 0; t < tokens; ++t, to += row) {
    for (index_t n = 0; n < states; n += W) {
      const Acc* from = lanes + (t * states + n) * W;
      vector block[vector::size];
      for (index_t i = 0; i < W; ++i) {
        block[i] = n + i < states ? simd::load<Arch>(from + i * W) : vector(Acc(0));
      }
      simd::store(to + n, simd::reduce_add_all(block));
    }
  }
}

/// Expanded operands, one vector of channels as in expanded_sweep.
template <class Acc>
struct expanded_adjoint {
  index_t tokens;
  index_t live;
  index_t states;
  const Acc* a;
  const Acc* b;
  const Acc* c;
  const Acc* h;  // before the tile
  Acc* g;        // after it, then before it
  const Acc* d_y;
  Acc* y;  // nullptr if nobody asks, else added to
  Acc* d_a;
  Acc* d_b;
  Acc* d_c;
  Acc* kept;  // room: [tokens, planes, W]
};

template <bool Complex, class Arch, class Acc>
OGIVE_NOINLINE void adjoint_expanded(const expanded_adjoint<Acc>& w) noexcept {
  constexpr index_t W = simd::width<Acc, Arch>, step = (Complex ? 2 : 1) * W;
  const auto load = [](const Acc* p) __attribute__((always_inline)) { return load_mode<Complex, Arch>(p); };
  for (index_t n = 0; n < w.states; ++n) {
    auto h = load(w.h + n * step);
    for (index_t t = 0; t < w.tokens; ++t) {
      const index_t at = (t * w.states + n) * step;
      store_mode(w.kept + t * step, h);
      h = mode_fma(load(w.a + at), h, load(w.b + at));
      if (w.y != nullptr) {
        simd::store(w.y + t * W, inner(conjugate(load(w.c + at)), h, simd::load<Arch>(w.y + t * W)));
      }
    }
    auto g = load(w.g + n * step);
    for (index_t t = w.tokens; t-- > 0;) {
      const index_t at = (t * w.states + n) * step;
      const auto d_y = simd::load<Arch>(w.d_y + t * W);
      store_mode(w.d_c + at, scaled(conjugate(h), d_y));
      const auto read = mode_sum(g, scaled(conjugate(load(w.c + at)), d_y));
      if (t >= w.live) {
        g = mode_select(d_y == simd::batch<Acc, Arch>(Acc(0)), g, read);
        continue;
      }
      g = read;
      h = load(w.kept + t * step);
      store_mode(w.d_b + at, g);
      store_mode(w.d_a + at, times(g, conjugate(h)));
      g = times(g, conjugate(load(w.a + at)));
    }
    store_mode(w.g + n * step, g);
  }
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

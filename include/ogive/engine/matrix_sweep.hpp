// L5: the state token by token. A block of columns stays in registers and the first-level cache while time runs, so a
// state is read and written once for several tokens.
#pragma once

#include <ogive/engine/matrix_policy.hpp>
#include <ogive/engine/unroll.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// One head's tokens and its state. `from` is read by the first pass over the state and may be `to`; rows of the
/// state are `from_stride` and `to_stride` apart, rows of panels `*_stride`.
template <class Acc>
struct sweep {
  index_t tokens = 0;
  index_t key_dim = 0;
  index_t value_dim = 0;
  const Acc* q = nullptr;
  index_t q_stride = 0;
  const Acc* k = nullptr;
  index_t k_stride = 0;
  const Acc* v = nullptr;
  Acc* o = nullptr;
  index_t v_stride = 0;
  const Acc* decay = nullptr;  // exp(g), one per token
  const Acc* from = nullptr;
  index_t from_stride = 0;
  Acc* to = nullptr;
  index_t to_stride = 0;
};

/// `Tokens` tokens from `t` on over `Vectors` vectors of columns from `column` on, all K rows. Every o sums over
/// k = 0 … K−1 in order, whatever the block.
template <class Acc, class Arch, decay Decay, int Vectors, int Tokens, bool Tail>
OGIVE_INLINE void sweep_block(const sweep<Acc>& w, index_t t, index_t column, const Acc* from, index_t from_stride,
                              const simd::lanes<Acc, Arch>& tail) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  vector v[Tokens * Vectors];
  vector o[Tokens * Vectors];
  vector a[Tokens];
  const Acc* q = w.q + t * w.q_stride;
  const Acc* k = w.k + t * w.k_stride;
  unroll<Tokens * Vectors>([&](auto i) __attribute__((always_inline)) {
    v[i] = simd::load<Arch>(w.v + (t + i / Vectors) * w.v_stride + column + (i % Vectors) * W);
    o[i] = vector(Acc(0));
  });
  if constexpr (Decay == decay::scalar) {
    unroll<Tokens>([&](auto i) __attribute__((always_inline)) { a[i] = vector(w.decay[t + i]); });
  }
  const Acc* in = from + column;
  Acc* out = w.to + column;
  for (index_t row = 0; row < w.key_dim; ++row) {
    vector s[Vectors];
    unroll<Vectors>([&](auto j) __attribute__((always_inline)) {
      if constexpr (Tail) {
        s[j] = simd::load(in, tail);
      } else {
        s[j] = simd::load<Arch>(in + j * W);
      }
    });
    unroll<Tokens>([&](auto i) __attribute__((always_inline)) {
      const vector k_i(k[i * w.k_stride + row]);
      const vector q_i(q[i * w.q_stride + row]);
      unroll<Vectors>([&](auto j) __attribute__((always_inline)) {
        if constexpr (Decay == decay::scalar) s[j] = s[j] * a[i];
        s[j] = simd::fma(k_i, v[i * Vectors + j], s[j]);
        o[i * Vectors + j] = simd::fma(q_i, s[j], o[i * Vectors + j]);
      });
    });
    unroll<Vectors>([&](auto j) __attribute__((always_inline)) {
      if constexpr (Tail) {
        simd::store(out, s[j], tail);
      } else {
        simd::store(out + j * W, s[j]);
      }
    });
    in += from_stride;
    out += w.to_stride;
  }
  unroll<Tokens * Vectors>([&](auto i) __attribute__((always_inline)) {
    simd::store(w.o + (t + i / Vectors) * w.v_stride + column + (i % Vectors) * W, o[i]);
  });
}

template <class Acc, class Arch, decay Decay, int Vectors, bool Tail>
OGIVE_INLINE void sweep_columns(const sweep<Acc>& w, index_t column, const simd::lanes<Acc, Arch>& tail) noexcept {
  const Acc* from = w.from;
  index_t from_stride = w.from_stride;
  index_t t = 0;
  for (; t + 4 <= w.tokens; t += 4) {
    sweep_block<Acc, Arch, Decay, Vectors, 4, Tail>(w, t, column, from, from_stride, tail);
    from = w.to;
    from_stride = w.to_stride;
  }
  for (; t < w.tokens; ++t) {
    sweep_block<Acc, Arch, Decay, Vectors, 1, Tail>(w, t, column, from, from_stride, tail);
    from = w.to;
    from_stride = w.to_stride;
  }
}

/// K-first: a row of the state is one k, its columns are contiguous.
template <class Acc, class Arch, decay Decay>
OGIVE_NOINLINE void sweep_k_first(const sweep<Acc>& w) noexcept {
  constexpr index_t W = simd::width<Acc, Arch>;
  const simd::lanes<Acc, Arch> all(W);
  index_t column = 0;
  if (w.tokens < 4) {
    for (; column + 4 * W <= w.value_dim; column += 4 * W) {
      sweep_columns<Acc, Arch, Decay, 4, false>(w, column, all);
    }
  }
  for (; column + 2 * W <= w.value_dim; column += 2 * W) sweep_columns<Acc, Arch, Decay, 2, false>(w, column, all);
  for (; column < w.value_dim; column += W) {
    const simd::lanes<Acc, Arch> some(w.value_dim - column);
    sweep_columns<Acc, Arch, Decay, 1, true>(w, column, some);
  }
}

/// `Rows` values of one token against the contiguous keys of their state rows. The sums over k run in lanes. Few rows
/// at a time, so that memory is walked nearly in order.
template <class Acc, class Arch, decay Decay, int Rows>
OGIVE_INLINE void sweep_rows(const sweep<Acc>& w, index_t t, index_t value, const Acc* from,
                             index_t from_stride) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  constexpr int together = Rows % 4 == 0 ? 4 : 1;
  vector sum[Rows];
  const Acc* v = w.v + t * w.v_stride + value;
  const Acc* q = w.q + t * w.q_stride;
  const Acc* k = w.k + t * w.k_stride;
  const vector a(Decay == decay::scalar ? w.decay[t] : Acc(1));
  const index_t whole = w.key_dim / W * W;
  const simd::lanes<Acc, Arch> tail(w.key_dim - whole);
  unroll<Rows / together>([&](auto block) __attribute__((always_inline)) {
    constexpr int first = block * together;
    const Acc* in = from + (value + first) * from_stride;
    Acc* out = w.to + (value + first) * w.to_stride;
    unroll<together>([&](auto i) __attribute__((always_inline)) { sum[first + i] = vector(Acc(0)); });
    const auto update = [&](auto i, vector s, const vector& k_at, const vector& q_at) __attribute__((always_inline)) {
      if constexpr (Decay == decay::scalar) s = s * a;
      s = simd::fma(k_at, vector(v[first + i]), s);
      sum[first + i] = simd::fma(q_at, s, sum[first + i]);
      return s;
    };
    for (index_t at = 0; at < whole; at += W) {
      const vector k_at = simd::load<Arch>(k + at);
      const vector q_at = simd::load<Arch>(q + at);
      unroll<together>([&](auto i) __attribute__((always_inline)) {
        simd::store(out + i * w.to_stride + at, update(i, simd::load<Arch>(in + i * from_stride + at), k_at, q_at));
      });
    }
    if (whole < w.key_dim) {
      const vector k_at = simd::load(k + whole, tail);
      const vector q_at = simd::load(q + whole, tail);
      unroll<together>([&](auto i) __attribute__((always_inline)) {
        const vector s = update(i, simd::load(in + i * from_stride + whole, tail), k_at, q_at);
        simd::store(out + i * w.to_stride + whole, s, tail);
      });
    }
  });
  Acc* o = w.o + t * w.v_stride + value;
  if constexpr (Rows == W) {
    simd::store(o, simd::reduce_add_all(sum));
  } else {
    unroll<Rows>([&](auto i) __attribute__((always_inline)) { o[i] = simd::reduce_add(sum[i]); });
  }
}

template <class Acc, class Arch, decay Decay, int Rows>
OGIVE_INLINE void sweep_values(const sweep<Acc>& w, index_t value) noexcept {
  const Acc* from = w.from;
  index_t from_stride = w.from_stride;
  for (index_t t = 0; t < w.tokens; ++t) {
    sweep_rows<Acc, Arch, Decay, Rows>(w, t, value, from, from_stride);
    from = w.to;
    from_stride = w.to_stride;
  }
}

/// V-first: a row of the state is one v, its keys are contiguous. Same state to the bit as K-first; the sums of o run
/// in another order.
template <class Acc, class Arch, decay Decay>
OGIVE_NOINLINE void sweep_v_first(const sweep<Acc>& w) noexcept {
  constexpr int W = static_cast<int>(simd::width<Acc, Arch>);
  index_t value = 0;
  for (; value + W <= w.value_dim; value += W) sweep_values<Acc, Arch, Decay, W>(w, value);
  for (; value < w.value_dim; ++value) sweep_values<Acc, Arch, Decay, 1>(w, value);
}

/// z_t = a_t z_{t-1} + k_t and denominator_t = q_t·(z_t + bias), K-vectors in panels' rows.
template <class Acc, class Arch>
OGIVE_NOINLINE void sweep_normaliser(const sweep<Acc>& w, Acc* z, Acc bias, Acc* denominator) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  for (index_t t = 0; t < w.tokens; ++t) {
    vector sum(Acc(0));
    const vector a(w.decay != nullptr ? w.decay[t] : Acc(1));
    for (index_t at = 0; at < w.key_dim; at += W) {
      const vector z_at = simd::fma(simd::load<Arch>(z + at), a, simd::load<Arch>(w.k + t * w.k_stride + at));
      simd::store(z + at, z_at);
      sum = simd::fma(simd::load<Arch>(w.q + t * w.q_stride + at), z_at + vector(bias), sum);
    }
    denominator[t] = simd::reduce_add(sum);
  }
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

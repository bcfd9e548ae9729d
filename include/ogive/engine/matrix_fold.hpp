// L5: four tokens folded into one pass over the state.
//
//   o_i = (q_i ⊙ Π_{m≤i} a_m)ᵀ S₀ + Σ_{j≤i} P_ij v_j      P_ij = Σ_κ q_iκ k_jκ Π_{j<m≤i} a_mκ
//   S₄  = (Π a) ⊙ S₀ + Σ_j (k_j ⊙ Π_{m>j} a_m) v_jᵀ
//
// A reader before its own write has Π_{m<i}, and P_ii = Σ_κ q_iκ u_κ k_iκ by its bonus u, 0 without one. Token by token
// each number of the state costs three operations a token, the decay among them, each waiting for the one before;
// folded two and a quarter, and o waits for nothing. Nothing is divided by a decay.
#pragma once

#include <ogive/engine/matrix_policy.hpp>
#include <ogive/engine/unroll.hpp>
#include <ogive/simd/batch.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

inline constexpr int folded_tokens = 4;
inline constexpr index_t fold_weights = folded_tokens * folded_tokens;

/// Blocks of folded tokens. A scalar decay scales v and o in the sweep, whose q and k stay as they are, shared by
/// heads.
template <class Acc>
struct folds {
  Acc* q = nullptr;        // rows q_i ⊙ Π_{m≤i} a_m
  Acc* k = nullptr;        // rows k_j ⊙ Π_{m>j} a_m
  Acc* whole = nullptr;    // Π a, a row of K per block
  Acc* scores = nullptr;   // q_i·k_j without decay
  Acc* weights = nullptr;  // P_ij, [blocks, i, j]
};

/// Under a decay per key channel everything; else the scores. Rows of q, k and a are `stride` apart and padded with
/// zeros, a with anything finite; without outputs q is not read. What reads before its own write sees that through the
/// row `bonus`, if there is one.
template <class Acc, class Arch, decay Decay, read Read>
OGIVE_NOINLINE void fold_tokens(index_t blocks, const Acc* q, const Acc* k, const Acc* a, index_t stride,
                                const Acc* bonus, const folds<Acc>& to) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  constexpr int T = folded_tokens;
  constexpr bool per_key = Decay == decay::per_key;
  constexpr int reach = Read == read::after ? 1 : 0;  // token i reads the writes j < i + reach
  static_assert(fold_weights % W == 0);
  for (index_t b = 0; b < blocks; ++b) {
    vector sum[fold_weights];
    unroll<fold_weights>([&](auto i) __attribute__((always_inline)) { sum[i] = vector(Acc(0)); });
    for (index_t at = 0; at < stride; at += W) {
      const index_t row = b * T * stride + at;
      vector y[T];
      vector product(Acc(1));
      unroll<T>([&](auto i) __attribute__((always_inline)) {
        vector q_i(Acc(0));
        if constexpr (Read != read::none) q_i = simd::load<Arch>(q + row + i * stride);
        y[i] = simd::load<Arch>(k + row + i * stride);
        const auto read_writes = [&]() __attribute__((always_inline)) {
          unroll<i + reach>([&](auto j) __attribute__((always_inline)) {
            sum[i * T + j] = simd::fma(q_i, y[j], sum[i * T + j]);
          });
        };
        if constexpr (per_key) {
          const vector a_i = simd::load<Arch>(a + row + i * stride);
          if constexpr (Read == read::before) {
            read_writes();
            if (bonus != nullptr) {
              sum[i * T + i] = simd::fma(q_i * simd::load<Arch>(bonus + at), y[i], sum[i * T + i]);
            }
            simd::store(to.q + row + i * stride, product * q_i);
          }
          unroll<i>([&](auto j) __attribute__((always_inline)) { y[j] = y[j] * a_i; });
          product = product * a_i;
          if constexpr (Read == read::after) {
            read_writes();
            simd::store(to.q + row + i * stride, product * q_i);
          }
        } else {
          read_writes();
        }
      });
      if constexpr (per_key) {
        unroll<T>([&](auto i) __attribute__((always_inline)) { simd::store(to.k + row + i * stride, y[i]); });
        simd::store(to.whole + b * stride + at, product);
      }
    }
    if constexpr (Read == read::none) continue;
    Acc* scores = (per_key ? to.weights : to.scores) + b * fold_weights;
    unroll<static_cast<int>(fold_weights / W)>([&](auto part) __attribute__((always_inline)) {
      simd::store(scores + part * W, simd::reduce_add_all(sum + part * W));
    });
  }
}

/// P under a decay per token, from the scores.
template <class Acc, read Read>
OGIVE_NOINLINE void decay_folded(index_t blocks, const Acc* a, const folds<Acc>& to) noexcept {
  constexpr int T = folded_tokens;
  for (index_t b = 0; b < blocks; ++b, a += T) {
    const Acc* scores = to.scores + b * fold_weights;
    Acc* weights = to.weights + b * fold_weights;
    for (int j = 0; j < T; ++j) {
      Acc between(1);
      for (int i = j; i < T; ++i) {
        if (Read == read::after && i > j) between *= a[i];
        weights[i * T + j] = between * scores[i * T + j];
        if (Read == read::before && i > j) between *= a[i];
      }
    }
  }
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

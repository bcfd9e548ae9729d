// L5: a chunk of C tokens as matrix products; the state is touched once per chunk.
//
//   A_ij = Π_{j<m≤i} a_m (j ≤ i)      the decay between two tokens, a_m = exp(g_m)
//   O    = diag(Π_{m≤i} a_m) Q S₀ + (A ∘ QKᵀ) V
//   S    = exp(Σ g) S₀ + Σ_j (Π_{m>j} a_m) k_j v_jᵀ      the sum from zero, then one fma with S₀
//
// The delta rule writes u in place of v, the low-rank write adds b wᵀ:
//
//   U = (I + diag(β) tril₋(A ∘ KKᵀ))⁻¹ diag(β) (V − diag(Π a) K S₀)
//   W = (I − tril₋(A₋ ∘ aBᵀ))⁻¹ (diag(Π₋ a) a S₀ + tril₋(A₋ ∘ aKᵀ) V)      A₋, Π₋: without the own token's decay
//
// Decays are running products along segments: nothing is divided by a decay, no positive exponent is formed that the
// input does not hold, and no cumulative sums are subtracted. The decays per key channel are in matrix_scores.hpp.
#pragma once

#include <ogive/engine/matrix_scores.hpp>
#include <ogive/engine/matrix_sweep.hpp>
#include <ogive/linalg/trsm.hpp>
#include <ogive/simd/math.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// The decays of a chunk: a_i = exp(g_i), from_start_i = Π_{m≤i} a_m, to_end_i = Π_{m>i} a_m, and exp(Σ g).
template <class Acc>
struct segment {
  Acc* a = nullptr;
  Acc* from_start = nullptr;
  Acc* to_end = nullptr;
  Acc whole = Acc(1);
};

/// Fills the segment from the log decays g, which become a in place.
template <class Acc, class Arch>
OGIVE_NOINLINE void measure_segment(index_t count, segment<Acc>& s) noexcept {
  constexpr index_t W = simd::width<Acc, Arch>;
  Acc total = Acc(0);
  for (index_t i = 0; i < count; ++i) total += s.a[i];
  for (index_t i = 0; i < count; i += W) simd::store(s.a + i, simd::exp(simd::load<Arch>(s.a + i)));
  Acc product = Acc(1);
  for (index_t i = 0; i < count; ++i) s.from_start[i] = product *= s.a[i];
  product = Acc(1);
  for (index_t i = count; i-- > 0; product *= s.a[i]) s.to_end[i] = product;
  s.whole = simd::reduce_max(simd::exp(simd::batch<Acc, Arch>(total)));
}

/// p_ij = A_ij s_ij on and below the diagonal, lanes over j. Above it p holds no numbers anyone reads.
template <class Acc, class Arch>
OGIVE_NOINLINE void decay_scores(index_t count, const Acc* s, const Acc* a, Acc* p, index_t stride) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  const vector lane = simd::iota<Acc, Arch>();
  for (index_t j = 0; j < count; j += W) {
    vector between(Acc(0));
    for (index_t i = j; i < count; ++i) {
      between = between * vector(a[i]);
      if (i < j + W) between = simd::select(lane == vector(static_cast<Acc>(i - j)), vector(Acc(1)), between);
      simd::store(p + i * stride + j, simd::load<Arch>(s + i * stride + j) * between);
    }
  }
}

/// A finish that asks for rows ahead, a part for every 16 terms of a tile. (More evenly, between the terms, it cost
/// more than it hid.)
template <class Finish>
struct asking_ahead {
  Finish finish;
  even_parts ask;
  static constexpr bool reads = Finish::reads;
  static constexpr index_t beat = 16;
  template <class V>
  OGIVE_INLINE V operator()(index_t i, index_t j, V sum, V c) const noexcept {
    return finish(i, j, sum, c);
  }
  OGIVE_INLINE void begin(index_t k) const noexcept { ask((k + beat - 1) / beat); }

  /// The parts of an m × n product of k terms.
  template <class Acc, class Arch>
  static constexpr index_t parts(index_t m, index_t n, index_t k) noexcept {
    using tile = linalg::whole_tile<Acc, Arch>;
    return m * n / (tile::rows * tile::columns) * ((k + beat - 1) / beat);
  }
};

/// A finish that does the same to a second matrix of C's shape: what a segment of time leaves if nothing comes before
/// it.
template <class Acc, class Arch, class Finish>
struct finishing_both {
  Finish finish;
  linalg::panel<Acc> alone;
  static constexpr bool reads = Finish::reads;
  template <class V>
  OGIVE_INLINE V operator()(index_t i, index_t j, V sum, V c) const noexcept {
    Acc* other = alone.row(i) + j;
    simd::store(other, finish(i, j, sum, simd::load<Arch>(other)));
    return finish(i, j, sum, c);
  }
};

/// One head's chunk. Panels are dense rows; scores hold what they say on and below the diagonal. Under a decay per key
/// channel the rows that read the state, the keys that write it and the scores come with their decays; under the other
/// decays they are plain, and shared by the heads that share q and k.
template <class Acc>
struct chunk {
  index_t tokens = 0;
  index_t key_dim = 0;
  index_t value_dim = 0;  // padded to whole vectors
  const Acc* q = nullptr;
  const Acc* k = nullptr;
  index_t k_stride = 0;
  Acc* v = nullptr;  // the delta rule turns it into u, the write into (Π_{m>j} a_m) v_j
  Acc* o = nullptr;
  index_t v_stride = 0;
  const Acc* scores = nullptr;  // q·k
  Acc* decayed = nullptr;       // room for A ∘ QKᵀ
  index_t score_stride = 0;
  segment<Acc> decays;
  Acc* state = nullptr;
  index_t state_stride = 0;
  bool fresh = false;    // the state is zero and holds nothing yet
  Acc* alone = nullptr;  // a state that is written like the state, which then is not fresh
  even_parts ask;        // for rows that come next

  const Acc* whole = nullptr;    // per key channel: exp(Σ g)
  const Acc* removal = nullptr;  // rows that recall from the state: k of the delta rule, or a
  const Acc* b = nullptr;
  const Acc* removal_scores = nullptr;  // removal·k
  Acc* solved = nullptr;                // room for diag(β) A ∘ KKᵀ
  const Acc* a_b = nullptr;             // a·b
  const Acc* q_b = nullptr;             // q·b
  Acc* w = nullptr;
  const Acc* beta = nullptr;
  index_t beta_stride = 0;  // 0: one per token
};

/// u of the delta rule in place of v, with β per value: the substitution row by row, since β then is no factor of A.
/// What u is without its own β goes to `compared`, if that is given.
template <class Acc, class Arch>
OGIVE_NOINLINE void substitute_per_value(const chunk<Acc>& c, const Acc* A, Acc* compared = nullptr) noexcept {
  constexpr index_t W = simd::width<Acc, Arch>;
  for (index_t i = 0; i < c.tokens; ++i) {
    for (index_t at = 0; at < c.value_dim; at += W) {
      Acc* u = c.v + i * c.v_stride + at;
      auto sum = simd::load<Arch>(u);
      for (index_t j = 0; j < i; ++j) {
        sum = simd::fnma(simd::batch<Acc, Arch>(A[i * c.score_stride + j]), simd::load<Arch>(c.v + j * c.v_stride + at),
                         sum);
      }
      if (compared != nullptr) simd::store(compared + i * c.v_stride + at, sum);
      simd::store(u, simd::load<Arch>(c.beta + i * c.beta_stride + at) * sum);
    }
  }
}

/// What the delta rule compares: v − (decayed k)ᵀ S₀ in place of v. Answers the decayed scores A ∘ KKᵀ.
template <class Acc, class Arch, decay Decay>
OGIVE_NOINLINE const Acc* compare_values(chunk<Acc>& c) noexcept {
  const linalg::panel<Acc> U{c.v, c.v_stride};
  const linalg::panel<const Acc> X{c.removal, c.k_stride};
  const linalg::panel<const Acc> S{c.state, c.state_stride};
  const Acc* A = c.removal_scores;
  if constexpr (Decay == decay::scalar) {
    decay_scores<Acc, Arch>(c.tokens, A, c.decays.a, c.solved, c.score_stride);
    A = c.solved;
  }
  if (!c.fresh) {
    if constexpr (Decay == decay::scalar) {
      linalg::gemm_ab<Arch>(c.tokens, c.value_dim, c.key_dim, X, S, U,
                            asking_ahead<linalg::subtract_scaled_rows<Acc>>{{c.decays.from_start}, c.ask});
    } else {
      linalg::gemm_ab<Arch>(c.tokens, c.value_dim, c.key_dim, X, S, U, asking_ahead<linalg::subtract>{{}, c.ask});
    }
  }
  return A;
}

/// u in place of it, for the decayed scores A.
template <class Acc, class Arch>
OGIVE_NOINLINE void correct_values(chunk<Acc>& c, const Acc* A) noexcept {
  if (c.beta_stride != 0) {
    substitute_per_value<Acc, Arch>(c, A);
    return;
  }
  change_rows(c.v, c.v_stride, c.tokens, c.value_dim,
              [&](index_t i, index_t, auto x) noexcept { return decltype(x)(c.beta[i]) * x; });
  for (index_t i = 1; i < c.tokens; ++i) {
    const simd::batch<Acc, Arch> beta(c.beta[i]);
    for (index_t j = 0; j < i; j += simd::width<Acc, Arch>) {
      simd::store(c.solved + i * c.score_stride + j, beta * simd::load<Arch>(A + i * c.score_stride + j));
    }
  }
  linalg::solve_unit_lower<Arch>(c.tokens, c.value_dim, linalg::panel<const Acc>{c.solved, c.score_stride},
                                 linalg::panel<Acc>{c.v, c.v_stride});
}

/// w of the low-rank write.
template <class Acc, class Arch>
OGIVE_NOINLINE void recall_removals(chunk<Acc>& c) noexcept {
  const linalg::panel<Acc> W{c.w, c.v_stride};
  const linalg::panel<const Acc> K{c.removal_scores, c.score_stride};
  const linalg::panel<const Acc> V{c.v, c.v_stride};
  if (c.fresh) {
    linalg::gemm_strict_tril<Arch>(c.tokens, c.value_dim, K, V, W, linalg::overwrite{});
  } else {
    linalg::gemm_ab<Arch>(c.tokens, c.value_dim, c.key_dim, linalg::panel<const Acc>{c.removal, c.k_stride},
                          linalg::panel<const Acc>{c.state, c.state_stride}, W,
                          asking_ahead<linalg::overwrite>{{}, c.ask});
    linalg::gemm_strict_tril<Arch>(c.tokens, c.value_dim, K, V, W, linalg::add{});
  }
  linalg::accumulate_unit_lower<Arch>(c.tokens, c.value_dim, linalg::panel<const Acc>{c.a_b, c.score_stride}, W);
}

/// O of the chunk; the state is only read.
template <class Acc, class Arch, decay Decay, write Write>
OGIVE_NOINLINE void read_chunk(chunk<Acc>& c) noexcept {
  const linalg::panel<Acc> O{c.o, c.v_stride};
  const linalg::panel<const Acc> Q{c.q, c.k_stride};
  const linalg::panel<const Acc> S{c.state, c.state_stride};
  const linalg::panel<const Acc> V{c.v, c.v_stride};
  const Acc* weights = c.scores;
  if constexpr (Decay == decay::scalar) {
    decay_scores<Acc, Arch>(c.tokens, c.scores, c.decays.a, c.decayed, c.score_stride);
    weights = c.decayed;
  }
  const linalg::panel<const Acc> A{weights, c.score_stride};
  if (c.fresh) {
    linalg::gemm_tril<Arch>(c.tokens, c.value_dim, A, V, O, linalg::overwrite{});
  } else {
    const auto from_state = [&](auto finish) noexcept {
      linalg::gemm_ab<Arch>(c.tokens, c.value_dim, c.key_dim, Q, S, O, asking_ahead<decltype(finish)>{finish, c.ask});
    };
    if constexpr (Decay == decay::scalar) {
      from_state(linalg::scale_rows<Acc>{c.decays.from_start});
    } else {
      from_state(linalg::overwrite{});
    }
    linalg::gemm_tril<Arch>(c.tokens, c.value_dim, A, V, O, linalg::add{});
  }
  if constexpr (Write == write::low_rank) {
    linalg::gemm_tril<Arch>(c.tokens, c.value_dim, linalg::panel<const Acc>{c.q_b, c.score_stride},
                            linalg::panel<const Acc>{c.w, c.v_stride}, O, linalg::add{});
  }
}

/// S after the chunk.
template <class Acc, class Arch, decay Decay, write Write>
OGIVE_NOINLINE void write_chunk(chunk<Acc>& c) noexcept {
  constexpr index_t W = simd::width<Acc, Arch>;
  const linalg::panel<const Acc> V{c.v, c.v_stride};
  const linalg::panel<Acc> S{c.state, c.state_stride};
  if constexpr (Decay == decay::scalar) {
    for (index_t i = 0; i < c.tokens; ++i) {
      const simd::batch<Acc, Arch> left(c.decays.to_end[i]);
      Acc* row = c.v + i * c.v_stride;
      for (index_t j = 0; j < c.value_dim; j += W) simd::store(row + j, left * simd::load<Arch>(row + j));
    }
  }
  const auto to_state = [&](const auto& finish) noexcept {
    const linalg::panel<const Acc> keys{c.k, c.k_stride};
    const asking_ahead<std::remove_cvref_t<decltype(finish)>> last{finish, c.ask};
    if constexpr (Write == write::low_rank) {
      linalg::gemm_atb_pair<Arch>(c.key_dim, c.value_dim, c.tokens, keys, V, linalg::panel<const Acc>{c.b, c.k_stride},
                                  linalg::panel<const Acc>{c.w, c.v_stride}, S, last);
    } else {
      linalg::gemm_atb<Arch>(c.key_dim, c.value_dim, c.tokens, keys, V, S, last);
    }
  };
  if (c.fresh) {
    to_state(linalg::overwrite{});
  } else {
    const auto decayed = [&] {
      if constexpr (Decay == decay::scalar) {
        return linalg::decay<Acc>{c.decays.whole};
      } else if constexpr (Decay == decay::per_key) {
        return linalg::decay_rows<Acc>{c.whole};
      } else {
        return linalg::add{};
      }
    }();
    if constexpr (Write == write::additive) {
      if (c.alone != nullptr) {
        const finishing_both<Acc, Arch, std::remove_const_t<decltype(decayed)>> both{decayed,
                                                                                     {c.alone, c.state_stride}};
        return to_state(both);
      }
    }
    to_state(decayed);
  }
}

/// denominator_i = Π_{m≤i} a_m q_i·z₀ + Σ_{j≤i} A_ij q_i·k_j + bias Σ q_i.
template <class Acc, class Arch, decay Decay>
OGIVE_NOINLINE void read_normaliser(const chunk<Acc>& c, const Acc* z, Acc bias, Acc* denominator) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  const Acc* weights = Decay == decay::scalar ? c.decayed : c.scores;
  for (index_t i = 0; i < c.tokens; ++i) {
    vector along(Acc(0));
    vector plain(Acc(0));
    for (index_t at = 0; at < c.key_dim; at += W) {
      const vector q = simd::load<Arch>(c.q + i * c.k_stride + at);
      along = simd::fma(q, simd::load<Arch>(z + at), along);
      plain = plain + q;
    }
    if constexpr (Decay == decay::scalar) along = along * vector(c.decays.from_start[i]);
    vector sum = simd::fma(plain, vector(bias), along);
    const Acc* row = weights + i * c.score_stride;
    index_t j = 0;
    for (; j + W <= i + 1; j += W) sum = sum + simd::load<Arch>(row + j);
    if (j < i + 1) sum = sum + simd::load<Arch>(row + j, i + 1 - j);
    denominator[i] = simd::reduce_add(sum);
  }
}

/// z = exp(Σ g) z₀ + Σ_j (Π_{m>j} a_m) k_j.
template <class Acc, class Arch, decay Decay>
OGIVE_NOINLINE void write_normaliser(const chunk<Acc>& c, Acc* z) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  for (index_t at = 0; at < c.key_dim; at += W) {
    vector sum(Acc(0));
    for (index_t j = 0; j < c.tokens; ++j) {
      const vector k = simd::load<Arch>(c.k + j * c.k_stride + at);
      if constexpr (Decay == decay::scalar) {
        sum = simd::fma(vector(c.decays.to_end[j]), k, sum);
      } else {
        sum = sum + k;
      }
    }
    simd::store(z + at, simd::fma(vector(c.decays.whole), simd::load<Arch>(z + at), sum));
  }
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

// L5: scores under a decay per key channel.
//
//   P_ij = Σ_κ x_iκ y_jκ Π_{j<m≤i} a_mκ      (a reader before the decay of its own token: Π_{j<m<i})
//
// A reader before its own write has P_ii = Σ_κ x_iκ u_κ y_iκ by a bonus u, and 0 without one.
//
// A chunk is cut into tiles, a tile into blocks of four tokens. Inside a block the products run along the pairs, lanes
// over κ. Between blocks they split into (x from its block's start) · (the blocks between) · (y to its block's end):
// dot products of rows between the blocks of a tile, a product of matrices between tiles. Afterwards x holds the decay
// from the chunk's start, for reading the state, and y the one to its end, for writing it. Nothing is divided by a
// decay and no cumulative sums are subtracted. (Lanes over j on the diagonal of a tile cost twice as much: each pair
// then carries a decay of its own.)
#pragma once

#include <ogive/engine/matrix_policy.hpp>
#include <ogive/engine/unroll.hpp>
#include <ogive/linalg/gemm.hpp>
#include <ogive/simd/math.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// Tokens of a block and of a tile.
inline constexpr int block_tokens = 4;
inline constexpr index_t tile_tokens = 16;

/// Rows of panels that blocks touch beyond the last token.
constexpr index_t tile_rows(index_t tokens) noexcept { return round_up(tokens, block_tokens); }

/// The decays of a chunk per key channel.
template <class Acc>
struct channel_decays {
  Acc* a = nullptr;           // rows of K: log decays, then exp(g)
  Acc* from_start = nullptr;  // [K], of the tiles that are done
  Acc* in_tile = nullptr;     // [K], of the blocks of a tile that are done
  Acc* in_block = nullptr;    // [K], of a block
  Acc* whole = nullptr;       // [K], exp(Σ g)
};

/// exp(g) and exp(Σ g); rows beyond the last token decay nothing.
template <class Acc, class Arch>
OGIVE_NOINLINE void measure_channels(index_t count, index_t key_dim, index_t stride, channel_decays<Acc>& d) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  for (index_t at = 0; at < key_dim; at += W) {
    vector total(Acc(0));
    Acc* g = d.a + at;
    for (index_t i = 0; i < count; ++i, g += stride) {
      const vector x = simd::load<Arch>(g);
      total = total + x;
      simd::store(g, simd::exp(x));
    }
    for (index_t i = count; i < tile_rows(count); ++i, g += stride) simd::store(g, vector(Acc(1)));
    simd::store(d.whole + at, simd::exp(total));
    simd::store(d.from_start + at, vector(Acc(1)));
  }
}

/// One side of the scores that reads: rows x of a chunk, and room for them under their decay.
template <class Acc>
struct reader {
  const Acc* x = nullptr;
  Acc* decayed = nullptr;
};

/// The other side: rows y, room for them under theirs, and for those turned round, [K, tokens].
template <class Acc>
struct written_keys {
  const Acc* y = nullptr;
  Acc* decayed = nullptr;
  Acc* turned = nullptr;
};

struct score_strides {
  index_t rows;    // of x, y, a and the decayed ones
  index_t turned;  // of y turned round
  index_t scores;
};

/// sum[i·4 + j] over their lanes goes to row i and column j of `to`.
template <class Acc, class Arch>
OGIVE_INLINE void store_block(const simd::batch<Acc, Arch>* sum, Acc* to, index_t stride) noexcept {
  constexpr index_t W = simd::width<Acc, Arch>;
  constexpr int T = block_tokens, all = T * T;
  static_assert(all % W == 0);
  alignas(64) Acc scores[all];
  unroll<static_cast<int>(all / W)>([&](auto part) __attribute__((always_inline)) {
    simd::store(scores + part * W, simd::reduce_add_all(sum + part * W));
  });
  unroll<T>([&](auto i) __attribute__((always_inline)) { std::copy_n(scores + i * T, T, to + i * stride); });
}

/// The pairs inside one block, whose rows the pointers name. x from the block's start goes to x.decayed, y to its end
/// to y.decayed, the product of its decays to `whole`, where these are given; a reader before its own write sees that
/// through the row `bonus`, if there is one.
template <class Acc, class Arch, read Read>
OGIVE_NOINLINE void block_scores(index_t stride, const Acc* a, const reader<Acc>& x, const written_keys<Acc>& y,
                                 const Acc* bonus, Acc* whole, Acc* to, index_t score_stride,
                                 const even_parts& ask) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  constexpr int T = block_tokens;
  constexpr int own = Read == read::after ? 1 : 0;
  const Acc *const rows = x.x, *const keys = y.y;
  Acc *const decayed_rows = x.decayed, *const decayed_keys = y.decayed;
  ask();
  vector sum[T * T];
  unroll<T * T>([&](auto i) __attribute__((always_inline)) { sum[i] = vector(Acc(0)); });
  for (index_t at = 0; at < stride; at += W) {
    vector key[T];
    vector product(Acc(1));
    unroll<T>([&](auto i) __attribute__((always_inline)) {
      const index_t row = i * stride + at;
      const vector a_i = simd::load<Arch>(a + row);
      const vector x_i = simd::load<Arch>(rows + row);
      key[i] = simd::load<Arch>(keys + row);
      const vector before = product;
      product = product * a_i;
      if (decayed_rows != nullptr) simd::store(decayed_rows + row, x_i * (Read == read::after ? product : before));
      const auto read_keys = [&]() __attribute__((always_inline)) {
        unroll<i + own>([&](auto j) __attribute__((always_inline)) {
          sum[i * T + j] = simd::fma(x_i, key[j], sum[i * T + j]);
        });
      };
      if constexpr (Read == read::before) {
        read_keys();
        if (bonus != nullptr) sum[i * T + i] = simd::fma(x_i * simd::load<Arch>(bonus + at), key[i], sum[i * T + i]);
      }
      unroll<i>([&](auto j) __attribute__((always_inline)) { key[j] = key[j] * a_i; });
      if constexpr (Read == read::after) read_keys();
    });
    if (decayed_keys != nullptr) {
      unroll<T>([&](auto j) __attribute__((always_inline)) { simd::store(decayed_keys + j * stride + at, key[j]); });
    }
    if (whole != nullptr) simd::store(whole + at, product);
  }
  store_block<Acc, Arch>(sum, to, score_stride);
}

/// How often a tile of scores of one reader with one key asks.
inline constexpr index_t tile_asks = (tile_tokens / block_tokens) * (tile_tokens / block_tokens + 1) / 2;

/// The dot products of a block of decayed x with an earlier one of decayed y.
template <class Acc, class Arch>
OGIVE_NOINLINE void cross_scores(index_t stride, const Acc* x, const Acc* y, Acc* to, index_t score_stride,
                                 const even_parts& ask) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr int T = block_tokens;
  ask();
  vector sum[T * T];
  unroll<T * T>([&](auto i) __attribute__((always_inline)) { sum[i] = vector(Acc(0)); });
  for (index_t at = 0; at < stride; at += simd::width<Acc, Arch>) {
    vector key[T];
    unroll<T>([&](auto j) __attribute__((always_inline)) { key[j] = simd::load<Arch>(y + j * stride + at); });
    unroll<T>([&](auto i) __attribute__((always_inline)) {
      const vector x_i = simd::load<Arch>(x + i * stride + at);
      unroll<T>([&](auto j)
                    __attribute__((always_inline)) { sum[i * T + j] = simd::fma(x_i, key[j], sum[i * T + j]); });
    });
  }
  store_block<Acc, Arch>(sum, to, score_stride);
}

/// Rows of `x` times the row `by`.
template <class Acc, class Arch>
OGIVE_NOINLINE void scale_channels(Acc* x, index_t rows, index_t stride, const Acc* by) noexcept {
  constexpr index_t W = simd::width<Acc, Arch>;
  for (index_t at = 0; at < stride; at += W) {
    const auto decay = simd::load<Arch>(by + at);
    for (index_t i = 0; i < rows; ++i) {
      Acc* to = x + i * stride + at;
      simd::store(to, simd::load<Arch>(to) * decay);
    }
  }
}

/// The finished tiles of y, rows and turned ones, decay on by a whole tile, and the tile at `first` joins the latter if
/// another one follows.
template <class Acc, class Arch>
OGIVE_NOINLINE void carry_keys(index_t first, bool last, index_t key_dim, const Acc* by, const written_keys<Acc>& y,
                               const score_strides& stride) noexcept {
  using vector = simd::batch<Acc, Arch>;
  scale_channels<Acc, Arch>(y.decayed, first, stride.rows, by);
  if (last) return;
  for (index_t at = 0; at < key_dim; ++at) {
    Acc* row = y.turned + at * stride.turned;
    const vector decay(by[at]);
    for (index_t j = 0; j < first; j += simd::width<Acc, Arch>) simd::store(row + j, decay * simd::load<Arch>(row + j));
  }
  linalg::transpose<Arch>(tile_tokens, key_dim, linalg::panel<const Acc>{y.decayed + first * stride.rows, stride.rows},
                          linalg::panel<Acc>{y.turned + first, stride.turned});
}

/// All scores of a chunk: readers 0 … queries − 1 are q, and where the write removes, a last one is what removes.
/// `readers(r)` gives them, `scores(r, n)` where their products with keys[n] go. There is at least one reader. Those of
/// q see their own keys[0] through the row `bonus`, if there is one and they read before they write.
template <class Acc, class Arch, write Write, read Read, int Keys, class Readers, class Scores>
void channel_scores(index_t count, index_t key_dim, channel_decays<Acc>& d, index_t queries, const Readers& readers,
                    const written_keys<Acc> (&keys)[Keys], const Acc* bonus, const Scores& scores,
                    const score_strides& stride, const even_parts& ask) noexcept {
  constexpr bool removes = Write != write::additive;
  constexpr read removal = Write == write::low_rank ? read::before : read::after;
  constexpr index_t T = block_tokens;
  const index_t all = queries + (removes ? 1 : 0);
  for (index_t first = 0; first < count; first += tile_tokens) {
    const index_t end = std::min(first + tile_tokens, count);
    for (index_t block = first; block < end; block += T) {
      const index_t row = block * stride.rows, corner = block * (stride.scores + 1);
      for (int n = 0; n < Keys; ++n) {
        for (index_t e = first; e + T < block; e += T) {
          scale_channels<Acc, Arch>(keys[n].decayed + e * stride.rows, T, stride.rows, d.in_block);
        }
      }
      for (index_t r = 0; r < all; ++r) {
        for (int n = 0; n < Keys; ++n) {
          const reader<Acc> x{readers(r).x + row, n == 0 ? readers(r).decayed + row : nullptr};
          const written_keys<Acc> y{keys[n].y + row, r == 0 ? keys[n].decayed + row : nullptr};
          Acc* whole = r == 0 && n == 0 ? d.in_block : nullptr;
          if (removes && r == queries) {
            block_scores<Acc, Arch, removal>(stride.rows, d.a + row, x, y, nullptr, whole, scores(r, n) + corner,
                                             stride.scores, ask);
          } else {
            block_scores<Acc, Arch, Read>(stride.rows, d.a + row, x, y, n == 0 ? bonus : nullptr, whole,
                                          scores(r, n) + corner, stride.scores, ask);
          }
          for (index_t e = first; e < block; e += T) {
            cross_scores<Acc, Arch>(stride.rows, readers(r).decayed + row, keys[n].decayed + e * stride.rows,
                                    scores(r, n) + block * stride.scores + e, stride.scores, ask);
          }
        }
        if (block > first) scale_channels<Acc, Arch>(readers(r).decayed + row, T, stride.rows, d.in_tile);
      }
      if (block == first) {
        std::copy_n(d.in_block, stride.rows, d.in_tile);
      } else {
        scale_channels<Acc, Arch>(d.in_tile, 1, stride.rows, d.in_block);
      }
    }
    for (const written_keys<Acc>& y : keys) {
      const index_t last = (end - first - 1) / T * T;
      scale_channels<Acc, Arch>(y.decayed + first * stride.rows, last, stride.rows, d.in_block);
    }
    for (index_t r = 0; r < all && first > 0; ++r) {
      Acc* in_tile = readers(r).decayed + first * stride.rows;
      for (int n = 0; n < Keys; ++n) {
        linalg::gemm_ab<Arch>(end - first, first, key_dim, linalg::panel<const Acc>{in_tile, stride.rows},
                              linalg::panel<const Acc>{keys[n].turned, stride.turned},
                              linalg::panel<Acc>{scores(r, n) + first * stride.scores, stride.scores});
      }
      scale_channels<Acc, Arch>(in_tile, end - first, stride.rows, d.from_start);
    }
    scale_channels<Acc, Arch>(d.from_start, 1, stride.rows, d.in_tile);
    for (const written_keys<Acc>& y : keys) {
      carry_keys<Acc, Arch>(first, end == count, key_dim, d.in_tile, y, stride);
    }
  }
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

// L5: scores under a decay per key channel.
//
//   P_ij = Σ_κ x_iκ y_jκ Π_{j<m≤i} a_mκ      (a reader before the decay of its own token: Π_{j<m<i})
//
// A chunk is cut into tiles of as many tokens as a vector has lanes. On the diagonal the products run along, lanes over
// j. Between tiles they split into (x from its tile's start) · (the tiles between) · (y to its tile's end): a product of
// matrices. Afterwards x holds the decay from the chunk's start, for reading the state, and y the one to its end, for
// writing it. Nothing is divided by a decay and no cumulative sums are subtracted.
#pragma once

#include <ogive/engine/matrix_policy.hpp>
#include <ogive/engine/unroll.hpp>
#include <ogive/linalg/gemm.hpp>
#include <ogive/simd/math.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// The decays of a chunk per key channel.
template <class Acc>
struct channel_decays {
  Acc* a = nullptr;  // rows of K: log decays, then exp(g), then products from the start of each tile
  Acc* from_start = nullptr;  // [K], of the tiles that are done
  Acc* whole = nullptr;       // [K], exp(Σ g)
};

/// Rows of the panel a that tiles touch beyond the last token.
template <class Acc>
constexpr index_t tile_rows(index_t tokens) noexcept {
  return round_up(tokens, 4);
}

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
    for (index_t i = count; i < tile_rows<Acc>(count); ++i, g += stride) simd::store(g, vector(Acc(1)));
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

/// The other side: y turned round, [K, tokens], and room for one tile of it.
template <class Acc>
struct written_keys {
  Acc* turned = nullptr;
  Acc* tile = nullptr;
};

template <class Acc>
struct score_strides {
  index_t rows;    // of x, a and the decayed x
  index_t turned;  // of y
  index_t scores;
};

/// The scores of one tile with itself for one or two readers; `first` is its first token. The rest of y that the tile
/// leaves, decayed to its end, goes to y.tile.
template <class Acc, class Arch, read First, read Second, int Readers>
OGIVE_NOINLINE void tile_scores(index_t first, index_t rows, index_t key_dim, const Acc* a, const Acc* const* x,
                                const written_keys<Acc>& y, Acc* const* scores, const score_strides<Acc>& stride,
                                lines_ahead& ahead) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  constexpr int together = W < 4 ? static_cast<int>(W) : 4;  // no more than a tile has
  const vector lane = simd::iota<Acc, Arch>();
  for (index_t i = 0; i < rows; i += together) {
    vector place[together];
    vector sum[Readers * together];
    unroll<together>([&](auto r) __attribute__((always_inline)) { place[r] = vector(static_cast<Acc>(i + r)); });
    unroll<Readers * together>([&](auto r) __attribute__((always_inline)) { sum[r] = vector(Acc(0)); });
    const index_t row = (first + i) * stride.rows;
    const Acc* from = a + row;
    const Acc* x0 = x[0] + row;
    const Acc* x1 = Readers > 1 ? x[Readers - 1] + row : x0;
    for (index_t at = 0; at < key_dim; ++at) {
      if (at % 4 == 0) ahead.ask();
      const vector fresh = simd::load<Arch>(y.turned + at * stride.turned + first);
      vector w = fresh;
      if (i > 0) w = simd::load<Arch>(y.tile + at * W);
      unroll<together>([&](auto r) __attribute__((always_inline)) {
        const vector q0(x0[r * stride.rows + at]);
        const vector q1(Readers > 1 ? x1[r * stride.rows + at] : Acc(0));
        if constexpr (First == read::before) sum[r] = simd::fma(q0, w, sum[r]);
        if constexpr (Readers > 1 && Second == read::before) {
          sum[together + r] = simd::fma(q1, w, sum[together + r]);
        }
        w = simd::select(lane < place[r], w * vector(from[r * stride.rows + at]), fresh);
        if constexpr (First == read::after) sum[r] = simd::fma(q0, w, sum[r]);
        if constexpr (Readers > 1 && Second == read::after) sum[together + r] = simd::fma(q1, w, sum[together + r]);
      });
      simd::store(y.tile + at * W, w);
    }
    unroll<Readers * together>([&](auto r) __attribute__((always_inline)) {
      simd::store(scores[r / together] + (first + i + r % together) * stride.scores + first, sum[r]);
    });
  }
}

/// The decays of a tile become products from its start, in place; x gets the one it reads under.
template <class Acc, class Arch>
OGIVE_NOINLINE void run_products(index_t first, index_t rows, index_t key_dim, Acc* a, index_t stride) noexcept {
  constexpr index_t W = simd::width<Acc, Arch>;
  for (index_t at = 0; at < key_dim; at += W) {
    Acc* row = a + first * stride + at;
    auto product = simd::load<Arch>(row);
    for (index_t i = 1; i < rows; ++i) {
      row += stride;
      product = product * simd::load<Arch>(row);
      simd::store(row, product);
    }
  }
}
template <class Acc, class Arch, read Read>
OGIVE_NOINLINE void read_from_tile(index_t first, index_t rows, index_t key_dim, const Acc* a, const reader<Acc>& x,
                                   index_t stride) noexcept {
  constexpr index_t W = simd::width<Acc, Arch>;
  for (index_t i = first; i < first + rows; ++i) {
    const bool start = Read == read::before && i == first;
    const Acc* by = a + (Read == read::before ? i - 1 : i) * stride;
    for (index_t at = 0; at < key_dim; at += W) {
      const auto row = simd::load<Arch>(x.x + i * stride + at);
      simd::store(x.decayed + i * stride + at, start ? row : row * simd::load<Arch>(by + at));
    }
  }
}

/// rows of `x` times the row `by`.
template <class Acc, class Arch>
OGIVE_NOINLINE void scale_channels(Acc* x, index_t rows, index_t key_dim, index_t stride, const Acc* by) noexcept {
  constexpr index_t W = simd::width<Acc, Arch>;
  for (index_t i = 0; i < rows; ++i) {
    for (index_t at = 0; at < key_dim; at += W) {
      Acc* to = x + i * stride + at;
      simd::store(to, simd::load<Arch>(to) * simd::load<Arch>(by + at));
    }
  }
}

/// The finished tiles of y decay on by a whole tile, and the tile at `first` joins them.
template <class Acc, class Arch>
OGIVE_NOINLINE void carry_keys(index_t first, index_t key_dim, const Acc* by, const written_keys<Acc>& y,
                               index_t stride) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  for (index_t at = 0; at < key_dim; ++at) {
    Acc* row = y.turned + at * stride;
    const vector decay(by[at]);
    for (index_t j = 0; j < first; j += W) simd::store(row + j, decay * simd::load<Arch>(row + j));
    simd::store(row + first, simd::load<Arch>(y.tile + at * W));
  }
}

/// All scores of a chunk: readers 0 … queries − 1 are q, and where the write removes, a last one is what removes.
/// `readers(r)` gives them, `scores(r, n)` where their products with keys[n] go.
template <class Acc, class Arch, write Write, read Read, int Keys, class Readers, class Scores>
void channel_scores(index_t count, index_t key_dim, channel_decays<Acc>& d, index_t queries, const Readers& readers,
                    const written_keys<Acc> (&keys)[Keys], const Scores& scores,
                    const score_strides<Acc>& stride, lines_ahead& ahead) noexcept {
  constexpr index_t W = simd::width<Acc, Arch>;
  constexpr bool removes = Write != write::additive;
  constexpr read removal = Write == write::low_rank ? read::before : read::after;
  for (index_t first = 0; first < count; first += W) {
    const index_t rows = std::min(W, count - first);
    for (int n = 0; n < Keys; ++n) {
      index_t done = 0;
      if (removes && queries == 0) {
        const Acc* const x[] = {readers(0).x};
        Acc* const to[] = {scores(0, n)};
        tile_scores<Acc, Arch, removal, removal, 1>(first, rows, key_dim, d.a, x, keys[n], to, stride, ahead);
      } else if constexpr (removes) {
        const Acc* const x[] = {readers(0).x, readers(queries).x};
        Acc* const to[] = {scores(0, n), scores(queries, n)};
        tile_scores<Acc, Arch, Read, removal, 2>(first, rows, key_dim, d.a, x, keys[n], to, stride, ahead);
        done = 1;
      }
      for (; done < queries; ++done) {
        const Acc* const x[] = {readers(done).x};
        Acc* const to[] = {scores(done, n)};
        tile_scores<Acc, Arch, Read, Read, 1>(first, rows, key_dim, d.a, x, keys[n], to, stride, ahead);
      }
    }
    run_products<Acc, Arch>(first, rows, key_dim, d.a, stride.rows);
    const Acc* whole = d.a + (first + rows - 1) * stride.rows;
    for (index_t r = 0; r < queries + (removes ? 1 : 0); ++r) {
      const reader<Acc> x = readers(r);
      if (removes && r == queries) {
        read_from_tile<Acc, Arch, removal>(first, rows, key_dim, d.a, x, stride.rows);
      } else {
        read_from_tile<Acc, Arch, Read>(first, rows, key_dim, d.a, x, stride.rows);
      }
      if (first == 0) continue;
      Acc* in_tile = x.decayed + first * stride.rows;
      for (int n = 0; n < Keys; ++n) {
        linalg::gemm_ab<Arch>(rows, first, key_dim, linalg::panel<const Acc>{in_tile, stride.rows},
                              linalg::panel<const Acc>{keys[n].turned, stride.turned},
                              linalg::panel<Acc>{scores(r, n) + first * stride.scores, stride.scores});
      }
      scale_channels<Acc, Arch>(in_tile, rows, key_dim, stride.rows, d.from_start);
    }
    scale_channels<Acc, Arch>(d.from_start, 1, key_dim, 0, whole);
    for (const written_keys<Acc>& y : keys) carry_keys<Acc, Arch>(first, key_dim, whole, y, stride.turned);
  }
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

// L5: the adjoint of the scores under a decay per key channel.
//
//   P_ij = Σ_κ x_iκ y_jκ Π_{j<m≤i} a_mκ      (a reader before the decay of its own token: Π_{j<m<i})
//   dx_i += Σ_j dP_ij y_j ⊙ Π a              dy_j += Σ_i dP_ij x_i ⊙ Π a
//
// Rows stay rows, lanes run over κ. A chunk is cut into tiles and blocks as in the forward. Between tiles both sums are
// products of matrices. A column of lanes goes through the blocks of a tile from the last one, in registers: ẏ_j is the
// cotangent of what key j has in the state, it gains dP_ij x_i where token i reads and decays by a_i on its way to i −
// 1; after its own token it is dy_j.
//
// A channel's decay at m scales what crosses m: what S₀ held and what was written before m, where it is read at or
// after m (a reader before its own decay: after m) or stays in the state. With ŷ a key under the decays up to m,
// dx_i(…) what these gave, and B the block of m in the tile T,
//
//   dg_m = exp(Σ g) ⊙ Σ_v S₀ ⊙ dS + Σ_{i>T} x_i ⊙ dx_i(S₀) + Σ_{B<i in T} x_i ⊙ dx_i(S₀, j < T)
//        + Σ_{j<B} ŷ_j ⊙ ẏ_j + Σ_{i≥m in B} x_i ⊙ dx_i(S₀, j < B) + Σ_{j<m in B} ŷ_j ⊙ ẏ_j
//
// Σ x_i ⊙ dx_i − Σ y_j ⊙ dy_j over all i, j ≥ m is the same without tiles, but what does not cross m cancels there up
// to its rounding, and where gates are strong nothing else is left.
#pragma once

#include <ogive/core/scratch.hpp>
#include <ogive/engine/matrix_scores.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// Rows x or y of a chunk, and their gradients: what the state gave them comes in, under no decay yet.
template <class Acc>
struct row_adjoint {
  const Acc* rows = nullptr;
  Acc* d = nullptr;
};

/// Panels of rows that the adjoint works in, all of their padded width.
template <class Acc>
struct channel_room {
  const Acc* a = nullptr;  // exp(g) of the chunk
  Acc* starts = nullptr;   // per tile: the product of all decays before it
  Acc* inner = nullptr;    // of one tile and each reader
  Acc* carried = nullptr;  // per key and tile: the keys before it, decayed to its start

  static index_t tiles(index_t chunk) noexcept { return (chunk + tile_tokens - 1) / tile_tokens; }
  /// The row of `carried` where the keys before tile n begin.
  static index_t first_carried(index_t n) noexcept { return tile_tokens * n * (n - 1) / 2; }
  static index_t carried_rows(index_t chunk) noexcept { return first_carried(tiles(chunk)); }

  static channel_room carve(index_t chunk, index_t readers, index_t keys, index_t stride, arena& memory) noexcept {
    channel_room room;
    const bool split = tiles(chunk) > 1;
    room.starts = memory.take<Acc>(tiles(chunk) * stride);
    room.inner = memory.take<Acc>(split ? readers * tile_tokens * stride : 0);
    room.carried = memory.take<Acc>(keys * carried_rows(chunk) * stride);
    return room;
  }
};

/// The decays before each tile, and the keys before it decayed to its start.
template <class Acc, class Arch, int Keys>
OGIVE_NOINLINE void carry_rows(index_t count, index_t key_dim, index_t stride, const channel_room<Acc>& room,
                               index_t carried_rows, const row_adjoint<Acc> (&keys)[Keys]) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  for (index_t at = 0; at < key_dim; at += W) simd::store(room.starts + at, vector(Acc(1)));
  for (index_t first = 0, n = 0; first + tile_tokens < count; first += tile_tokens, ++n) {
    const index_t end = first + tile_tokens;
    for (index_t at = 0; at < key_dim; at += W) {
      vector product(Acc(1));
      for (index_t j = end; j-- > first;) product = product * simd::load<Arch>(room.a + j * stride + at);
      simd::store(room.starts + (n + 1) * stride + at, product * simd::load<Arch>(room.starts + n * stride + at));
      for (int key = 0; key < Keys; ++key) {
        const Acc* before = room.carried + (key * carried_rows + room.first_carried(n)) * stride + at;
        Acc* after = room.carried + (key * carried_rows + room.first_carried(n + 1)) * stride + at;
        for (index_t j = 0; j < first; ++j) {
          simd::store(after + j * stride, product * simd::load<Arch>(before + j * stride));
        }
        vector to_end(Acc(1));
        for (index_t j = end; j-- > first;) {
          simd::store(after + j * stride, to_end * simd::load<Arch>(keys[key].rows + j * stride + at));
          to_end = to_end * simd::load<Arch>(room.a + j * stride + at);
        }
      }
    }
  }
}

/// The rows of tile n: gradients of readers, keys and decays. Where there are tiles before it, room.inner has what
/// their keys gave each reader, and gets the readers under the decays from the start of the tile.
template <class Acc, class Arch, write Write, read Read, int Keys, class Readers, class Scores>
OGIVE_NOINLINE void tile_adjoint(index_t n, index_t count, index_t key_dim, index_t stride,
                                 const channel_room<Acc>& room, index_t carried_rows, index_t queries,
                                 const Readers& readers, const row_adjoint<Acc> (&keys)[Keys], const Scores& d_scores,
                                 index_t score_stride, Acc* boundary, Acc* d_g) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr int T = block_tokens;
  constexpr index_t most = tile_tokens, blocks = most / T - 1 + T - 1;  // the last tile may end in blocks of a token
  constexpr bool removes = Write != write::additive;
  constexpr read removal = Write == write::low_rank ? read::before : read::after;
  const index_t first = n * tile_tokens, tokens = std::min(tile_tokens, count - first);
  const index_t corner = first * (score_stride + 1);
  const bool split = first > 0;
  vector from[most];                    // Π a from the start of a token's block
  vector starts[blocks];                // Π a of the blocks before
  vector carried[Keys][blocks * most];  // per block: the keys before it in the tile, decayed to its start
  const auto block_of = [](index_t i) noexcept { return i / T + i % T; };

  for (index_t at = 0; at < key_dim; at += simd::width<Acc, Arch>) {
    const Acc* const a = room.a + first * stride + at;
    vector start(Acc(1));
    const auto carry = [&]<int N>(index_t i, std::integral_constant<int, N>) __attribute__((always_inline)) {
      const index_t block = block_of(i);
      vector product(Acc(1)), key[Keys][N];
      unroll<N>([&](auto m) __attribute__((always_inline)) {
        const vector a_m = simd::load<Arch>(a + (i + m) * stride);
        product = product * a_m;
        from[i + m] = product;
        unroll<Keys>([&](auto k) __attribute__((always_inline)) {
          unroll<m>([&](auto j) __attribute__((always_inline)) { key[k][j] = key[k][j] * a_m; });
          key[k][m] = simd::load<Arch>(keys[k].rows + (first + i + m) * stride + at);
        });
      });
      starts[block] = start;
      start = start * product;
      if (i + N == tokens) return;
      unroll<Keys>([&](auto k) __attribute__((always_inline)) {
        const vector* before = carried[k] + block * most;
        vector* after = carried[k] + (block + 1) * most;
        for (index_t j = 0; j < i; ++j) after[j] = product * before[j];
        unroll<N>([&](auto j) __attribute__((always_inline)) { after[i + j] = key[k][j]; });
      });
    };
    index_t next = 0;
    for (; next + T <= tokens; next += T) carry(next, std::integral_constant<int, T>{});
    for (; next < tokens; ++next) carry(next, std::integral_constant<int, 1>{});

    const vector tile_start = simd::load<Arch>(room.starts + n * stride + at);
    vector crossing = simd::load<Arch>(boundary + at);  // what every token of a block lets cross
    for (int k = 0; k < Keys; ++k) {
      const Acc* before = room.carried + (k * carried_rows + room.first_carried(n)) * stride + at;
      for (index_t j = 0; j < first; ++j) {
        Acc* to = keys[k].d + j * stride + at;
        const vector d = start * simd::load<Arch>(to);
        simd::store(to, d);
        crossing = simd::fma(simd::load<Arch>(before + j * stride), d, crossing);
      }
    }
    vector of_state(Acc(0));

    const auto retreat = [&]<int N>(index_t i, std::integral_constant<int, N>) __attribute__((always_inline)) {
      const index_t block = block_of(i), row = (first + i) * stride + at;
      const vector whole = from[i + N - 1], before_block = starts[block];
      vector gates[N], inside = crossing;
      unroll<N>([&](auto m) __attribute__((always_inline)) { gates[m] = vector(Acc(0)); });
      // The row of token m under the decays from the start of its block to where it reads.
      const auto from_block = [&]<read By, int M>(std::integral_constant<int, M> m, const vector& x)
          __attribute__((always_inline)) {
        if constexpr (By == read::after) {
          return from[i + m] * x;
        } else if constexpr (M > 0) {
          return from[i + m - 1] * x;
        } else {
          return x;
        }
      };
      // What a reader takes from before the block, and gives to the keys there. (Two readers at once did not help.)
      const auto reads = [&]<read By, bool First>(index_t r) __attribute__((always_inline)) {
        const row_adjoint<Acc> x = readers(r);
        vector decayed[N], d[N];
        unroll<N>([&](auto m) __attribute__((always_inline)) {
          decayed[m] = from_block.template operator()<By>(m, simd::load<Arch>(x.rows + row + m * stride));
          d[m] = vector(Acc(0));
        });
        unroll<Keys>([&](auto k) __attribute__((always_inline)) {
          const Acc* D = d_scores(r, k) + corner + i * score_stride;
          Acc* to = keys[k].d + first * stride + at;
          const vector* key = carried[k] + block * most;
          for (index_t j = 0; j < i; ++j, ++D, ++key, to += stride) {
            vector d_key = simd::load<Arch>(to);
            if constexpr (First) {
              d_key = whole * d_key;
              inside = simd::fma(*key, d_key, inside);
            }
            unroll<N>([&](auto m) __attribute__((always_inline)) {
              const vector by(D[m * score_stride]);
              d[m] = simd::fma(by, *key, d[m]);
              d_key = simd::fma(by, decayed[m], d_key);
            });
            simd::store(to, d_key);
          }
        });
        vector through(Acc(0));
        unroll<N>([&](auto down) __attribute__((always_inline)) {
          constexpr int m = N - 1 - down;
          Acc* to = x.d + row + m * stride;
          const vector from_tile = before_block * decayed[m];
          vector before = tile_start * simd::load<Arch>(to);
          of_state = simd::fma(from_tile, before, of_state);
          if (split) {
            Acc* inner = room.inner + (r * most + i + m) * stride + at;
            before = before + simd::load<Arch>(inner);
            simd::store(inner, from_tile);
          }
          crossing = simd::fma(from_tile, before, crossing);
          const vector all = simd::fma(before_block, before, d[m]);
          const vector more_through = simd::fma(decayed[m], all, through);
          gates[m] = gates[m] + (By == read::after ? more_through : through);
          through = more_through;
          simd::store(to, from_block.template operator()<By>(std::integral_constant<int, m>{}, all));
        });
      };
      reads.template operator()<Read, true>(0);
      for (index_t r = 1; r < queries; ++r) reads.template operator()<Read, false>(r);
      if constexpr (removes) reads.template operator()<removal, false>(queries);
      // The pairs inside the block.
      vector key[Keys][N][N], d_key[Keys][N];  // key j under the decays up to token m, and ẏ_j
      unroll<Keys>([&](auto k) __attribute__((always_inline)) {
        unroll<N>([&](auto m) __attribute__((always_inline)) {
          const vector a_m = simd::load<Arch>(a + (i + m) * stride);
          if constexpr (m > 0) {
            unroll<m>([&](auto j) __attribute__((always_inline)) { key[k][m][j] = a_m * key[k][m - 1][j]; });
          }
          key[k][m][m] = simd::load<Arch>(keys[k].rows + row + m * stride);
          d_key[k][m] = simd::load<Arch>(keys[k].d + row + m * stride);
        });
      });
      unroll<N>([&](auto down) __attribute__((always_inline)) {
        constexpr int m = N - 1 - down;
        const auto pairs = [&]<read By, bool Strict>(index_t r) __attribute__((always_inline)) {
          const row_adjoint<Acc> x = readers(r);
          const vector x_m = simd::load<Arch>(x.rows + row + m * stride);
          vector d_x = simd::load<Arch>(x.d + row + m * stride);
          constexpr int decays = By == read::after ? m : m - 1;
          unroll<Keys>([&](auto k) __attribute__((always_inline)) {
            const Acc* D = d_scores(r, k) + corner + (i + m) * score_stride + i;
            unroll<Strict ? m : m + 1>([&](auto j) __attribute__((always_inline)) {
              const vector by(D[j]);
              d_x = simd::fma(by, key[k][decays][j], d_x);
              d_key[k][j] = simd::fma(by, x_m, d_key[k][j]);
            });
          });
          simd::store(x.d + row + m * stride, d_x);
        };
        const auto all_pairs = [&]<read By>() __attribute__((always_inline)) {
          if constexpr (By == read::before && m == 0) {
            return;
          } else {
            for (index_t r = 0; Read == By && r < queries; ++r) pairs.template operator()<By, By == read::before>(r);
            if constexpr (removes && removal == By) pairs.template operator()<By, true>(queries);
          }
        };
        all_pairs.template operator()<read::after>();
        unroll<Keys>([&](auto k) __attribute__((always_inline)) {
          unroll<m>([&](auto j)
                        __attribute__((always_inline)) { gates[m] = simd::fma(key[k][m][j], d_key[k][j], gates[m]); });
        });
        if (m > 0) {
          const vector a_m = simd::load<Arch>(a + (i + m) * stride);
          unroll<Keys>([&](auto k) __attribute__((always_inline)) {
            unroll<m>([&](auto j) __attribute__((always_inline)) { d_key[k][j] = a_m * d_key[k][j]; });
          });
        }
        all_pairs.template operator()<read::before>();
        unroll<Keys>([&](auto k)
                         __attribute__((always_inline)) { simd::store(keys[k].d + row + m * stride, d_key[k][m]); });
        if (d_g != nullptr) simd::store(d_g + row + m * stride, inside + gates[m]);
      });
    };
    while (next % T > 0) retreat(--next, std::integral_constant<int, 1>{});
    while (next > 0) retreat(next -= T, std::integral_constant<int, T>{});
    simd::store(boundary + at, simd::load<Arch>(boundary + at) + of_state);
  }
}

/// Turns the gradients that reads of the state left in readers(r).d, and its writes in keys[n].d, into those by the
/// rows themselves, with what the gradients of the scores, d_scores(r, n), say; and into those of the decays, d_g, if
/// wanted. `boundary` [K] has what S₀ and dS say of these, and is worked in. Readers are those of channel_scores.
template <class Acc, class Arch, write Write, read Read, int Keys, class Readers, class Scores>
void channel_scores_adjoint(index_t count, index_t chunk, index_t key_dim, index_t stride,
                            const channel_room<Acc>& room, index_t queries, const Readers& readers,
                            const row_adjoint<Acc> (&keys)[Keys], const Scores& d_scores, index_t score_stride,
                            Acc* boundary, Acc* d_g) noexcept {
  const index_t carried_rows = room.carried_rows(chunk), all = queries + (Write == write::additive ? 0 : 1);
  carry_rows<Acc, Arch, Keys>(count, key_dim, stride, room, carried_rows, keys);
  for (index_t n = room.tiles(count); n-- > 0;) {
    const index_t first = n * tile_tokens, rows = std::min(tile_tokens, count - first);
    const auto across = [&](const auto& product) noexcept {
      for (index_t r = 0; r < all && first > 0; ++r) {
        for (int key = 0; key < Keys; ++key) {
          product(linalg::panel<const Acc>{d_scores(r, key) + first * score_stride, score_stride}, r, key);
        }
      }
    };
    across([&](const linalg::panel<const Acc>& D, index_t r, int key) noexcept {
      const Acc* before = room.carried + (key * carried_rows + room.first_carried(n)) * stride;
      const linalg::panel<Acc> inner{room.inner + r * tile_tokens * stride, stride};
      if (key == 0) {
        linalg::gemm_ab<Arch>(rows, stride, first, D, linalg::panel<const Acc>{before, stride}, inner);
      } else {
        linalg::gemm_ab<Arch>(rows, stride, first, D, linalg::panel<const Acc>{before, stride}, inner, linalg::add{});
      }
    });
    tile_adjoint<Acc, Arch, Write, Read, Keys>(n, count, key_dim, stride, room, carried_rows, queries, readers, keys,
                                               d_scores, score_stride, boundary, d_g);
    across([&](const linalg::panel<const Acc>& D, index_t r, int key) noexcept {
      linalg::gemm_atb<Arch>(first, stride, rows, D,
                             linalg::panel<const Acc>{room.inner + r * tile_tokens * stride, stride},
                             linalg::panel<Acc>{keys[key].d, stride}, linalg::add{});
    });
  }
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

// L5: the adjoint of the scores under a decay per key channel.
//
//   P_ij = Σ_κ x_iκ y_jκ Π_{j<m≤i} a_mκ      (a reader before the decay of its own token: Π_{j<m<i})
//   dx_i += Σ_j dP_ij y_j ⊙ Π a              dy_j += Σ_i dP_ij x_i ⊙ Π a
//
// Rows stay rows, lanes run over κ. A chunk is cut into tiles as in the forward: inside a tile the products run along
// the pairs; between tiles they split, and both sums are products of matrices.
//
// A channel's decay at m scales what crosses m: what S₀ held and what was written before m, where it is read at or
// after m (a reader before its own decay: after m) or stays in the state. In a tile T that is
//
//   dg_m = exp(Σ g) ⊙ Σ_v S₀ ⊙ dS + Σ_{i>T} x_i ⊙ dx_i(S₀) + Σ_{j<T} ŷ_j ⊙ dŷ_j
//        + Σ_{i≥m in T} x_i ⊙ dx_i(S₀, j < T) + Σ_{j<m in T} y_j ⊙ dy_j(i ≥ m, dS)
//
// with ŷ a key under the decays up to T. Σ x_i ⊙ dx_i − Σ y_j ⊙ dy_j over all i, j ≥ m is the same without tiles, but
// what does not cross m cancels there up to its rounding, and where gates are strong nothing else is left.
#pragma once

#include <ogive/core/scratch.hpp>
#include <ogive/engine/matrix_scores.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// Tokens of a tile.
inline constexpr index_t adjoint_tile = 8;

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
  Acc* from = nullptr;     // of one tile: products from its start
  Acc* inner = nullptr;    // of one tile
  Acc* carried = nullptr;  // per key and tile: the keys before it, decayed to its start

  static index_t tiles(index_t chunk) noexcept { return (chunk + adjoint_tile - 1) / adjoint_tile; }
  /// The row of `carried` where the keys before tile n begin.
  static index_t first_carried(index_t n) noexcept { return adjoint_tile * n * (n - 1) / 2; }
  static index_t carried_rows(index_t chunk) noexcept { return first_carried(tiles(chunk)); }

  static channel_room carve(index_t chunk, index_t keys, index_t stride, arena& memory) noexcept {
    channel_room room;
    room.starts = memory.take<Acc>(tiles(chunk) * stride);
    room.from = memory.take<Acc>(adjoint_tile * stride);
    room.inner = memory.take<Acc>(adjoint_tile * stride);
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
  for (index_t first = 0, n = 0; first + adjoint_tile < count; first += adjoint_tile, ++n) {
    const index_t end = first + adjoint_tile;
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

/// The pairs inside one tile, of all readers; d_g, if wanted, gains what crosses its token from inside the tile.
template <class Acc, class Arch, write Write, read Read, int Keys, class Readers, class Scores>
OGIVE_NOINLINE void tile_pairs(index_t first, index_t end, index_t key_dim, index_t stride, const Acc* a,
                               index_t queries, const Readers& readers, const row_adjoint<Acc> (&keys)[Keys],
                               const Scores& d_scores, index_t score_stride, Acc* d_g) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr read removal = Write == write::low_rank ? read::before : read::after;
  const auto pairs = [&]<read By, bool Strict>(index_t at, index_t i, index_t r) noexcept {
    const row_adjoint<Acc> x = readers(r);
    const vector row = simd::load<Arch>(x.rows + i * stride + at);
    vector d_row = simd::load<Arch>(x.d + i * stride + at);
    for (int key = 0; key < Keys; ++key) {
      const row_adjoint<Acc>& y = keys[key];
      const Acc* d_score = d_scores(r, key) + i * score_stride;
      vector product(Acc(1));
      constexpr index_t last = By == read::before ? 1 : 0;  // token i − last is the last to decay
      for (index_t j = Strict ? i - 1 : i; j >= first; --j) {
        if (j < i - last) product = product * simd::load<Arch>(a + (j + 1) * stride + at);
        const vector by = product * vector(d_score[j]);
        Acc* d_key = y.d + j * stride + at;
        d_row = simd::fma(by, simd::load<Arch>(y.rows + j * stride + at), d_row);
        simd::store(d_key, simd::fma(by, row, simd::load<Arch>(d_key)));
      }
    }
    simd::store(x.d + i * stride + at, d_row);
  };
  const auto read_at = [&]<read By>(index_t at, index_t i) noexcept {
    for (index_t r = 0; Read == By && r < queries; ++r) {
      pairs.template operator()<Read, Read == read::before>(at, i, r);
    }
    if constexpr (Write != write::additive && removal == By) pairs.template operator()<removal, true>(at, i, queries);
  };
  for (index_t at = 0; at < key_dim; at += simd::width<Acc, Arch>) {
    for (index_t i = end; i-- > first;) {
      read_at.template operator()<read::after>(at, i);
      if (d_g != nullptr) {
        vector sum = simd::load<Arch>(d_g + i * stride + at);
        for (const row_adjoint<Acc>& y : keys) {
          for (index_t j = first; j < i; ++j) {
            const index_t row = j * stride + at;
            sum = simd::fma(simd::load<Arch>(y.rows + row), simd::load<Arch>(y.d + row), sum);
          }
        }
        simd::store(d_g + i * stride + at, sum);
      }
      read_at.template operator()<read::before>(at, i);
    }
  }
}

/// Tile n of one reader: dx from what was before the tile, and what it gives to the gradients of the keys there. d_g,
/// if wanted, gains what crosses its token on this way, and `later` what this tile reads of S₀.
template <class Acc, class Arch, read Read, int Keys, class Scores>
void reader_tile(index_t n, index_t count, index_t key_dim, index_t stride, const channel_room<Acc>& room,
                 index_t carried_rows, const row_adjoint<Acc>& x, const row_adjoint<Acc> (&keys)[Keys],
                 const Scores& d_scores, index_t score_stride, Acc* d_g, Acc* later) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  const index_t first = n * adjoint_tile, end = std::min(first + adjoint_tile, count), rows = end - first;
  for (int key = 0; key < Keys && first > 0; ++key) {
    const linalg::panel<const Acc> D{d_scores(key) + first * score_stride, score_stride};
    const linalg::panel<const Acc> before{room.carried + (key * carried_rows + room.first_carried(n)) * stride, stride};
    const linalg::panel<Acc> inner{room.inner, stride};
    if (key == 0) {
      linalg::gemm_ab<Arch>(rows, stride, first, D, before, inner);
    } else {
      linalg::gemm_ab<Arch>(rows, stride, first, D, before, inner, linalg::add{});
    }
  }
  for (index_t at = 0; at < key_dim; at += W) {
    const vector start = simd::load<Arch>(room.starts + n * stride + at);
    vector of_state(Acc(0)), crossing(Acc(0));
    for (index_t i = rows; i-- > 0;) {
      const index_t row = (first + i) * stride + at;
      vector from(Acc(1));
      if (Read == read::after || i > 0)
        from = simd::load<Arch>(room.from + (Read == read::after ? i : i - 1) * stride + at);
      const vector decayed = from * simd::load<Arch>(x.rows + row);
      vector d = start * simd::load<Arch>(x.d + row);
      of_state = simd::fma(decayed, d, of_state);
      if (first > 0) d = d + simd::load<Arch>(room.inner + i * stride + at);
      if (d_g != nullptr) {
        const vector through = simd::fma(decayed, d, crossing);
        simd::store(d_g + row, simd::load<Arch>(d_g + row) + (Read == read::after ? through : crossing));
        crossing = through;
      }
      simd::store(x.d + row, from * d);
      simd::store(room.inner + i * stride + at, decayed);
    }
    simd::store(later + at, simd::load<Arch>(later + at) + of_state);
  }
  for (int key = 0; key < Keys && first > 0; ++key) {
    linalg::gemm_atb<Arch>(
        first, stride, rows, linalg::panel<const Acc>{d_scores(key) + first * score_stride, score_stride},
        linalg::panel<const Acc>{room.inner, stride}, linalg::panel<Acc>{keys[key].d, stride}, linalg::add{});
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
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  constexpr read removal = Write == write::low_rank ? read::before : read::after;
  const index_t carried_rows = room.carried_rows(chunk);
  carry_rows<Acc, Arch, Keys>(count, key_dim, stride, room, carried_rows, keys);
  for (index_t n = room.tiles(count); n-- > 0;) {
    const index_t first = n * adjoint_tile, end = std::min(first + adjoint_tile, count);
    for (index_t at = 0; at < key_dim; at += W) {
      vector product(Acc(1));
      for (index_t i = first; i < end; ++i) {
        product = product * simd::load<Arch>(room.a + i * stride + at);
        simd::store(room.from + (i - first) * stride + at, product);
      }
      vector crossing = simd::load<Arch>(boundary + at);
      for (int key = 0; key < Keys; ++key) {
        const Acc* carried = room.carried + (key * carried_rows + room.first_carried(n)) * stride + at;
        Acc* d_key = keys[key].d + at;
        for (index_t j = 0; j < first; ++j) {
          const vector d = product * simd::load<Arch>(d_key + j * stride);
          simd::store(d_key + j * stride, d);
          crossing = simd::fma(simd::load<Arch>(carried + j * stride), d, crossing);
        }
        vector to_end(Acc(1));
        for (index_t j = end; j-- > first;) {
          simd::store(d_key + j * stride, to_end * simd::load<Arch>(d_key + j * stride));
          to_end = to_end * simd::load<Arch>(room.a + j * stride + at);
        }
      }
      for (index_t m = first; m < end && d_g != nullptr; ++m) simd::store(d_g + m * stride + at, crossing);
    }
    for (index_t r = 0; r < queries; ++r) {
      reader_tile<Acc, Arch, Read, Keys>(
          n, count, key_dim, stride, room, carried_rows, readers(r), keys,
          [&](int key) noexcept { return d_scores(r, key); }, score_stride, d_g, boundary);
    }
    if constexpr (Write != write::additive) {
      reader_tile<Acc, Arch, removal, Keys>(
          n, count, key_dim, stride, room, carried_rows, readers(queries), keys,
          [&](int key) noexcept { return d_scores(queries, key); }, score_stride, d_g, boundary);
    }
    tile_pairs<Acc, Arch, Write, Read, Keys>(first, end, key_dim, stride, room.a, queries, readers, keys, d_scores,
                                             score_stride, d_g);
  }
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

// L5: the adjoint of the scores under a decay per key channel.
//
//   P_ij = Σ_κ x_iκ y_jκ Π_{j<m≤i} a_mκ      (a reader before the decay of its own token: Π_{j<m<i})
//   dx_i += Σ_j dP_ij y_j ⊙ Π a              dy_j += Σ_i dP_ij x_i ⊙ Π a
//
// Rows stay rows, lanes run over κ. A chunk is cut into tiles as in the forward: inside a tile the products run along
// the pairs; between tiles they split, and both sums are products of matrices. A channel's decay at m scales what pairs
// across m, what reads the state at or after m, and what is written before m:
//
//   dg_m = Σ_{i≥m} x_i ⊙ dx_i − Σ_{j≥m} y_j ⊙ dy_j + (exp(Σ g) ⊙ Σ_v S₀ ⊙ dS + Σ_j ŷ_j ⊙ dŷ_j)      (before: i > m)
#pragma once

#include <ogive/engine/matrix_scores.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// Tokens of a tile.
inline constexpr index_t adjoint_tile = 16;

/// Rows x or y of a chunk, and their gradients: what the state gave them comes in, under no decay yet.
template <class Acc>
struct row_adjoint {
  const Acc* rows = nullptr;
  Acc* d = nullptr;
};

/// Panels of rows that the adjoint works in, all of their padded width.
template <class Acc>
struct channel_room {
  Acc* a = nullptr;        // exp(g) of the chunk
  Acc* whole = nullptr;    // per tile: the product of its decays
  Acc* starts = nullptr;   // per tile: the product of all decays before it
  Acc* from = nullptr;     // of one tile: products from its start
  Acc* inner = nullptr;    // of one tile
  Acc* carried = nullptr;  // per key and tile: the keys before it, decayed to its start; then those decayed to the end

  static index_t tiles(index_t chunk) noexcept { return (chunk + adjoint_tile - 1) / adjoint_tile; }
  /// The row of `carried` where the keys before tile n begin.
  static index_t first_carried(index_t n) noexcept { return adjoint_tile * n * (n - 1) / 2; }
  static index_t carried_rows(index_t chunk) noexcept { return first_carried(tiles(chunk) + 1); }

  static channel_room carve(index_t chunk, index_t keys, index_t stride, arena& memory) noexcept {
    channel_room room;
    room.a = memory.take<Acc>(tile_rows<Acc>(chunk) * stride);
    room.whole = memory.take<Acc>(tiles(chunk) * stride);
    room.starts = memory.take<Acc>((tiles(chunk) + 1) * stride);
    room.from = memory.take<Acc>(adjoint_tile * stride);
    room.inner = memory.take<Acc>(adjoint_tile * stride);
    room.carried = memory.take<Acc>(keys * carried_rows(chunk) * stride);
    return room;
  }
};

/// Decays of all tiles, and the keys decayed to the start of each.
template <class Acc, class Arch, int Keys>
OGIVE_NOINLINE void carry_rows(index_t count, index_t key_dim, index_t stride, const channel_room<Acc>& room,
                               index_t carried_rows, const row_adjoint<Acc> (&keys)[Keys]) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  for (index_t at = 0; at < key_dim; at += W) simd::store(room.starts + at, vector(Acc(1)));
  for (index_t first = 0, n = 0; first < count; first += adjoint_tile, ++n) {
    const index_t end = std::min(first + adjoint_tile, count);
    for (index_t at = 0; at < key_dim; at += W) {
      vector product(Acc(1));
      for (index_t j = end; j-- > first;) product = product * simd::load<Arch>(room.a + j * stride + at);
      simd::store(room.whole + n * stride + at, product);
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

/// The pairs inside one tile.
template <class Acc, class Arch, read Read, bool Strict>
OGIVE_NOINLINE void tile_pairs(index_t first, index_t end, index_t key_dim, index_t stride, const Acc* a,
                               const row_adjoint<Acc>& x, const row_adjoint<Acc>& y, const Acc* d_scores,
                               index_t score_stride) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  for (index_t at = 0; at < key_dim; at += W) {
    for (index_t i = first; i < end; ++i) {
      const vector row = simd::load<Arch>(x.rows + i * stride + at);
      vector d_row = simd::load<Arch>(x.d + i * stride + at);
      vector product(Acc(1));
      constexpr index_t last = Read == read::before ? 1 : 0;  // token i − last is the last to decay
      for (index_t j = Strict ? i - 1 : i; j >= first; --j) {
        if (j < i - last) product = product * simd::load<Arch>(a + (j + 1) * stride + at);
        const vector by = product * vector(d_scores[i * score_stride + j]);
        Acc* d_key = y.d + j * stride + at;
        d_row = simd::fma(by, simd::load<Arch>(y.rows + j * stride + at), d_row);
        simd::store(d_key, simd::fma(by, row, simd::load<Arch>(d_key)));
      }
      simd::store(x.d + i * stride + at, d_row);
    }
  }
}

/// Tile n of one reader: dx from the keys before the tile and inside it, and what it gives to their gradients.
template <class Acc, class Arch, read Read, bool Strict, int Keys, class Scores>
void reader_tile(index_t n, index_t count, index_t key_dim, index_t stride, const channel_room<Acc>& room,
                 index_t carried_rows, const row_adjoint<Acc>& x, const row_adjoint<Acc> (&keys)[Keys],
                 const Scores& d_scores, index_t score_stride) noexcept {
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
    for (index_t i = 0; i < rows; ++i) {
      const index_t row = (first + i) * stride + at;
      vector from(Acc(1));
      if (Read == read::after || i > 0)
        from = simd::load<Arch>(room.from + (Read == read::after ? i : i - 1) * stride + at);
      vector d = start * simd::load<Arch>(x.d + row);
      if (first > 0) d = d + simd::load<Arch>(room.inner + i * stride + at);
      simd::store(x.d + row, from * d);
      simd::store(room.inner + i * stride + at, from * simd::load<Arch>(x.rows + row));
    }
  }
  for (int key = 0; key < Keys; ++key) {
    if (first > 0) {
      linalg::gemm_atb<Arch>(
          first, stride, rows, linalg::panel<const Acc>{d_scores(key) + first * score_stride, score_stride},
          linalg::panel<const Acc>{room.inner, stride}, linalg::panel<Acc>{keys[key].d, stride}, linalg::add{});
    }
    tile_pairs<Acc, Arch, Read, Strict>(first, end, key_dim, stride, room.a, x, keys[key], d_scores(key), score_stride);
  }
}

/// Turns the gradients that reads of the state left in readers(r).d, and its writes in keys[n].d, into those by the
/// rows themselves, with what the gradients of the scores, d_scores(r, n), say. `boundary` [K] gains Σ_j ŷ_j ⊙ dŷ_j.
/// Readers are those of channel_scores.
template <class Acc, class Arch, write Write, read Read, int Keys, class Readers, class Scores>
void channel_scores_adjoint(index_t count, index_t chunk, index_t key_dim, index_t stride,
                            const channel_room<Acc>& room, index_t queries, const Readers& readers,
                            const row_adjoint<Acc> (&keys)[Keys], const Scores& d_scores, index_t score_stride,
                            Acc* boundary) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  constexpr read removal = Write == write::low_rank ? read::before : read::after;
  const index_t carried_rows = room.carried_rows(chunk);
  carry_rows<Acc, Arch, Keys>(count, key_dim, stride, room, carried_rows, keys);
  const index_t tiles = room.tiles(count);
  for (int key = 0; key < Keys; ++key) {
    const Acc* to_end = room.carried + (key * carried_rows + room.first_carried(tiles)) * stride;
    for (index_t at = 0; at < key_dim; at += W) {
      vector sum = simd::load<Arch>(boundary + at);
      for (index_t j = 0; j < count; ++j) {
        sum =
            simd::fma(simd::load<Arch>(to_end + j * stride + at), simd::load<Arch>(keys[key].d + j * stride + at), sum);
      }
      simd::store(boundary + at, sum);
    }
  }
  for (index_t n = tiles; n-- > 0;) {
    const index_t first = n * adjoint_tile, end = std::min(first + adjoint_tile, count);
    for (index_t at = 0; at < key_dim; at += W) {
      vector product(Acc(1));
      for (index_t i = first; i < end; ++i) {
        product = product * simd::load<Arch>(room.a + i * stride + at);
        simd::store(room.from + (i - first) * stride + at, product);
      }
      for (const row_adjoint<Acc>& key : keys) {
        for (index_t j = 0; j < first; ++j) {
          simd::store(key.d + j * stride + at, product * simd::load<Arch>(key.d + j * stride + at));
        }
        vector to_end(Acc(1));
        for (index_t j = end; j-- > first;) {
          simd::store(key.d + j * stride + at, to_end * simd::load<Arch>(key.d + j * stride + at));
          to_end = to_end * simd::load<Arch>(room.a + j * stride + at);
        }
      }
    }
    for (index_t r = 0; r < queries; ++r) {
      reader_tile<Acc, Arch, Read, Read == read::before, Keys>(
          n, count, key_dim, stride, room, carried_rows, readers(r), keys,
          [&](int key) noexcept { return d_scores(r, key); }, score_stride);
    }
    if constexpr (Write != write::additive) {
      reader_tile<Acc, Arch, removal, true, Keys>(
          n, count, key_dim, stride, room, carried_rows, readers(queries), keys,
          [&](int key) noexcept { return d_scores(queries, key); }, score_stride);
    }
  }
}

/// dg of a chunk, from the last token to the first, for rows that came out of channel_scores_adjoint. A decay of 0 has
/// a slope of 0, where the sums would leave their rounding, which a steep gate behind it may multiply by anything.
template <class Acc, class Arch, write Write, read Read, int Keys, class Readers>
void channel_gates_adjoint(index_t count, index_t key_dim, index_t stride, index_t queries, const Readers& readers,
                           const row_adjoint<Acc> (&keys)[Keys], const Acc* a, const Acc* boundary, Acc* d_g) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr read removal = Write == write::low_rank ? read::before : read::after;
  for (index_t at = 0; at < key_dim; at += simd::width<Acc, Arch>) {
    vector total = simd::load<Arch>(boundary + at);
    for (index_t m = count; m-- > 0;) {
      const index_t row = m * stride + at;
      const auto term = [&](const row_adjoint<Acc>& x) noexcept {
        return simd::load<Arch>(x.rows + row) * simd::load<Arch>(x.d + row);
      };
      vector own(Acc(0));
      for (index_t r = 0; r < queries; ++r) own = own + term(readers(r));
      if constexpr (Write != write::additive && removal == read::after) total = total + term(readers(queries));
      if constexpr (Read == read::after) total = total + own;
      for (const row_adjoint<Acc>& key : keys) total = total - term(key);
      const vector zero(Acc(0));
      simd::store(d_g + row, simd::select(simd::load<Arch>(a + row) == zero, zero, total));
      if constexpr (Read == read::before) total = total + own;
      if constexpr (Write != write::additive && removal == read::before) total = total + term(readers(queries));
    }
  }
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

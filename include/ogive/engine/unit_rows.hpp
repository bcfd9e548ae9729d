// L5: rows of q and k over their length, where an operator asks for it, and back.
//
//   y = f x / n,   n = √(Σ x² + ε)                dx = f (dy − x (x·dy) / n²) / n
//
// A row of zeros stays one, and has dx = f dy / √ε. Without an ε, y = f x.
#pragma once

#include <ogive/engine/rows.hpp>

#include <optional>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// `rows` rows x of a panel, zero up to whole vectors, become y.
template <class Acc, class Eps>
void unit_rows(const std::optional<Eps>& eps, Acc factor, index_t rows, index_t columns, Acc* panel,
               index_t stride) noexcept {
  using vector = simd::batch<Acc>;
  constexpr index_t W = simd::width<Acc>;
  if (!eps && factor == Acc(1)) return;
  columns = padded<Acc>(columns);
  for (index_t i = 0; i < rows; ++i) {
    Acc* row = panel + i * stride;
    vector by(factor);
    if (eps) {
      vector squares(Acc(0));
      for (index_t j = 0; j < columns; j += W) squares = simd::fma(simd::load(row + j), simd::load(row + j), squares);
      by = by / simd::sqrt(vector(simd::reduce_add(squares) + static_cast<Acc>(*eps)));
    }
    for (index_t j = 0; j < columns; j += W) simd::store(row + j, by * simd::load(row + j));
  }
}

/// One row d, zero up to whole vectors as x is: dy becomes dx. Without an ε nobody looks at x.
template <class Acc, class Eps>
void pull_unit_row(const std::optional<Eps>& eps, Acc factor, const Acc* x, Acc* d, index_t columns) noexcept {
  using vector = simd::batch<Acc>;
  constexpr index_t W = simd::width<Acc>;
  columns = padded<Acc>(columns);
  vector by(factor), along(Acc(0));
  if (eps) {
    vector squares(Acc(0)), dots(Acc(0));
    for (index_t j = 0; j < columns; j += W) {
      squares = simd::fma(simd::load(x + j), simd::load(x + j), squares);
      dots = simd::fma(simd::load(x + j), simd::load(d + j), dots);
    }
    const vector square(simd::reduce_add(squares) + static_cast<Acc>(*eps));
    by = by / simd::sqrt(square);
    along = vector(simd::reduce_add(dots)) / square;
  }
  for (index_t j = 0; j < columns; j += W) {
    const vector own = eps ? simd::load(x + j) : vector(Acc(0));
    simd::store(d + j, by * simd::fnma(along, own, simd::load(d + j)));
  }
}

/// The live rows of a panel: dy becomes dx, for the rows of x they belong to. `room` holds a row.
template <class Acc, class Eps, class T>
void pull_unit_rows(const std::optional<Eps>& eps, Acc factor, const view<const T, 4>& x, tokens at, Acc* panel,
                    index_t stride, Acc* room) noexcept {
  if (!eps && factor == Acc(1)) return;
  for (index_t i = 0; i < at.live; ++i, ++at.token) {
    if (eps) load_rows(rows_of(x, at, 1), room, 0);
    pull_unit_row(eps, factor, room, panel + i * stride, x.extent(3));
  }
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

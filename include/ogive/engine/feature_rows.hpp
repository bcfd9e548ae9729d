// L5: what the forms of linear attention share: rows of φ(q) and φ(k) from tensors of any strides, and rows of o
// behind their quotient.
#pragma once

#include <ogive/core/options.hpp>
#include <ogive/engine/unit_rows.hpp>
#include <ogive/maps/feature_map.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// Elements per row that `load_features` wants of its room: only a row map cannot work in the panel itself.
template <feature_map Map>
constexpr index_t room_dim(const Map&, index_t d) noexcept {
  return row_map<Map> ? d : 0;
}

/// What the forms ask of their fields beyond extents: that the map takes q and k, and that no ε is negative.
template <class Op>
void check_features(core::checker& ask, const Op& op) noexcept {
  if (const status fits = check_map(op.map, op.q.extents(), side::query); ask && !fits) {
    ask.refuse("map", fits.code()) << fits.text();
  }
  if (const status fits = check_map(op.map, op.k.extents(), side::key); ask && !fits) {
    ask.refuse("map", fits.code()) << fits.text();
  }
  if (op.qk_l2norm) ask.not_negative("qk_l2norm", *op.qk_l2norm);
  if (op.normalise) ask.not_negative("eps", op.eps);
}

/// Rows that the mask holds back become 0, by choice and not by a product: whatever stands in their memory stays there.
template <class Acc>
void clear_masked(const view<const bool, 2>& keep, const tokens& at, Acc* panel, index_t stride,
                  index_t columns) noexcept {
  if (!keep.present()) return;
  for (index_t r = 0; r < at.live; ++r) {
    if (!keep(at.batch, at.token + r)) zero_rows(panel + r * stride, stride, 1, columns);
  }
}

/// ε: rows are divided by √(Σx² + ε) before the map. None: they are not.
template <class T>
using row_norm = std::optional<accum_t<T>>;

/// The live rows of x in the accumulation type, normalised: as they lie if they can be used so, else loaded to `to`.
template <class Acc, class T>
view<const Acc, 2> plain_rows(const view<const T, 4>& x, const tokens& at, const row_norm<T>& norm, Acc* to,
                              index_t stride) noexcept {
  const view<const T, 2> rows = rows_of(x, at, at.live);
  if constexpr (std::is_same_v<T, Acc>) {
    if (rows.stride(1) == 1 && !norm) return rows;
  }
  load_rows(rows, to, stride);
  unit_rows(norm, Acc(1), at.live, x.extent(3), to, stride);
  return {to, {at.live, x.extent(3)}, {stride, 1}};
}

/// The site of the first row of a chunk of a sequence whose first token is at `first`.
inline map_site site_of(map_site first, const tokens& at) noexcept {
  first.position += at.position;
  first.batch = at.batch;
  first.head = at.head;
  return first;
}

/// Zeros where a panel that holds `columns` of the live rows has nothing: up to whole vectors, and in padding rows.
template <class Acc>
void zero_padding(const tokens& at, Acc* panel, index_t stride, index_t columns) noexcept {
  zero_rows(panel + columns, stride, at.live, padded<Acc>(columns) - columns);
  zero_rows(panel + at.live * stride, stride, at.count - at.live, padded<Acc>(columns));
}

/// panel[r] = φ(x[r]), x[r] normalised if so, for the live tokens, 0 for the others and up to the padded width. `first`
/// is the site of the first token of a sequence; `room` holds as many rows of padded(room_dim) elements as the panel.
template <class Acc, feature_map Map, class T>
void load_features(const Map& map, const view<const T, 4>& x, const tokens& at, const map_site& first,
                   const row_norm<T>& norm, Acc* panel, index_t stride, Acc* room) noexcept {
  const index_t d = x.extent(3);
  const index_t K = features(map, d);
  if constexpr (std::is_same_v<Map, maps::identity>) {
    load_tokens(x, at, panel, stride);
    unit_rows(norm, Acc(1), at.live, d, panel, stride);
  } else {
    const view<const Acc, 2> plain =
        row_map<Map> ? plain_rows(x, at, norm, room, padded<Acc>(d)) : plain_rows(x, at, norm, panel, stride);
    apply_map<Acc>(map, plain, view<Acc, 2>(panel, {at.live, K}, {stride, 1}), site_of(first, at));
    zero_padding(at, panel, stride, K);
  }
}

/// Elements per row that `features_adjoint` wants of its room: a row of x, and what the map itself wants.
template <class Acc, differentiable_map Map>
constexpr index_t adjoint_room_dim(const Map& map, index_t d) noexcept {
  return row_map<Map> ? padded<Acc>(d) + padded<Acc>(adjoint_room(map, d)) : 0;
}

/// d_x[r] = (∂φ/∂x)ᵀ d_y[r] for the live tokens, the adjoint of `load_features` but for the norm, with x[r] normalised
/// if so; 0 for the others and up to the padded width. d_y [count, K] with rows `stride` apart, d_x [count, D] with
/// rows `d_stride` ≥ padded(D) apart, which must not overlap. `room` holds as many rows of adjoint_room_dim elements.
/// `sums` as apply_adjoint has them.
template <class Acc, differentiable_map Map, class T>
void features_adjoint(const Map& map, const view<const T, 4>& x, const tokens& at, const map_site& first,
                      const row_norm<T>& norm, const Acc* d_y, index_t stride, Acc* d_x, index_t d_stride, Acc* room,
                      Acc* sums = nullptr) noexcept {
  const index_t d = x.extent(3);
  const view<const Acc, 2> pushed(d_y, {at.live, features(map, d)}, {stride, 1});
  const view<Acc, 2> pulled(d_x, {at.live, d}, {d_stride, 1});
  if constexpr (std::is_same_v<Map, maps::identity>) {
    load_rows(pushed, d_x, d_stride);
  } else if constexpr (row_map<Map>) {
    const index_t scratch = adjoint_room(map, d);
    const index_t row = padded<Acc>(d);
    const view<const Acc, 2> plain = plain_rows(x, at, norm, room, row);
    const view<Acc, 2> rest(room + at.count * row, {at.live, scratch}, {padded<Acc>(scratch), 1});
    apply_adjoint<Acc>(map, plain, pushed, pulled, rest, site_of(first, at), sums);
  } else {
    apply_adjoint<Acc>(map, plain_rows(x, at, norm, d_x, d_stride), pushed, pulled, {}, first);
  }
  zero_padding(at, d_x, d_stride, d);
}

/// Elements of room that `store_pulled` wants for `count` rows.
template <class Acc, differentiable_map Map>
constexpr index_t pulled_room(const Map& map, index_t d, index_t count) noexcept {
  return (count + 1) * padded<Acc>(d) + count * adjoint_room_dim<Acc>(map, d);
}

/// The rows from the i-th on that a mask treats alike, live where it lets them pass.
inline tokens rows_alike(const view<const bool, 2>& keep, tokens at, index_t i) noexcept {
  const auto kept = [&](index_t r) noexcept { return !keep.present() || r >= at.live || keep(at.batch, at.token + r); };
  index_t end = keep.present() ? i + 1 : at.count;
  while (end < at.count && kept(end) == kept(i)) ++end;
  const index_t live = kept(i) ? std::clamp<index_t>(at.live - i, 0, end - i) : 0;
  at.token += i;
  at.position += i;
  at.count = end - i;
  at.live = live;
  return at;
}

/// The gradient of x from d_y [count, K], that of its features: through the map and the norm, and out as
/// `store_gradient` does; 0 where the mask holds a token back, which then adds nothing to `sums` either.
template <class Acc, differentiable_map Map, class T>
void store_pulled(const Map& map, const view<const T, 4>& x, const tokens& at, const map_site& first,
                  const row_norm<T>& norm, const view<const bool, 2>& keep, const Acc* d_y, index_t stride,
                  const view<T, 4>& d_x, bool accumulate, Acc* room, Acc* sums) noexcept {
  const index_t row = padded<Acc>(x.extent(3));
  Acc* rest = room + at.count * row;
  for (index_t i = 0; i < at.count;) {
    const tokens rows = rows_alike(keep, at, i);
    features_adjoint(map, x, rows, first, norm, d_y + i * stride, stride, room + i * row, row, rest, sums);
    pull_unit_rows(norm, Acc(1), x, rows, room + i * row, row, rest);
    i += rows.count;
  }
  store_gradient(room, row, d_x, at, accumulate, rest);
}

/// What a row of φ(q)·S is multiplied or divided by to become a row of o. By 0: nothing was seen, the row is 0 whatever
/// stands in it.
template <class Acc>
struct row_factor {
  Acc by;
  bool divide = false;

  template <class V>
  OGIVE_INLINE V operator()(V sum) const noexcept {
    if (by == Acc(0)) return V(Acc(0));
    return divide ? sum / V(by) : V(by) * sum;
  }
};

/// How rows of φ(q)·S become rows of o: times s, or, normalised, divided by φ(q)·z with ε where `at` puts it. A row is
/// 0 where its denominator is 0 or subnormal.
template <class Acc>
struct quotient {
  bool normalise;
  Acc scale;
  Acc eps;
  eps_placement at;

  /// By the fields of an operator whose rows have `features`. A sum over none is 0, which no scale may make NaN.
  template <class Op>
  static quotient of(const Op& op, index_t features) noexcept {
    const Acc root = std::sqrt(static_cast<Acc>(std::max<index_t>(features, 1)));
    return {op.normalise, op.scale ? static_cast<Acc>(*op.scale) : Acc(1) / root, static_cast<Acc>(op.eps), op.eps_at};
  }

  /// Added to every z: the denominators that `store` is given are φ(q)·(z + bias).
  Acc bias() const noexcept { return normalise && at == eps_placement::each_key ? eps : Acc(0); }

  /// Of a row with qz = φ(q)·(z + bias). The reciprocal of a denominator serves where it is a normal number.
  row_factor<Acc> factor(Acc qz) const noexcept {
    if (!normalise) return {scale};
    constexpr Acc least = std::numeric_limits<Acc>::min();
    if (at == eps_placement::sum) qz += eps;
    if (at == eps_placement::scaled_sum) qz = scale == Acc(0) ? Acc(0) : qz + eps / scale;
    const Acc size = qz < Acc(0) ? -qz : qz;
    if (size < least) return {Acc(0)};
    if (size > Acc(1) / least) return {qz, true};
    return {Acc(1) / qz};
  }

  /// Puts the factors of rows in place of their qz, if all of them are factors other than 0; else leaves qz alone.
  bool factors(index_t rows, Acc* qz) const noexcept {
    using vector = simd::batch<Acc>;
    constexpr index_t W = simd::width<Acc>;
    constexpr Acc least = std::numeric_limits<Acc>::min();
    if (scale == Acc(0)) return false;
    if (!normalise) {
      for (index_t r = 0; r < rows; ++r) qz[r] = scale;
      return true;
    }
    const vector one(Acc(1)), more(at == eps_placement::sum          ? eps
                                   : at == eps_placement::scaled_sum ? eps / scale
                                                                     : Acc(0));
    const auto denominator = [&](index_t r) noexcept {
      return simd::load_as<Acc, simd::default_arch>(qz + r, std::min(W, rows - r)) + more;
    };
    for (index_t r = 0; r < rows; r += W) {
      const vector size = simd::select(simd::first_n<Acc>(rows - r), simd::abs(denominator(r)), one);
      if (simd::any((size < vector(least)) | (size > vector(Acc(1) / least)))) return false;
    }
    for (index_t r = 0; r < rows; r += W) simd::store_as(qz + r, one / denominator(r), std::min(W, rows - r));
    return true;
  }

  /// Rows of o from rows of φ(q)·S; qz is null where `normalise` is off.
  template <class T>
  void store(const view<T, 4>& o, const tokens& at_rows, const Acc* panel, index_t stride,
             const Acc* qz) const noexcept {
    constexpr index_t W = simd::width<Acc>;
    const view<T, 2> rows = rows_of(o, at_rows, at_rows.count);
    const bool past = past_caches<Acc>(o);
    for (index_t r = 0; r < at_rows.count; ++r) {
      const row_factor<Acc> f = factor(normalise ? qz[r] : Acc(1));
      for (index_t j = 0; j < rows.extent(1); j += W) {
        if constexpr (std::is_same_v<T, Acc>) {
          if (past) {
            simd::stream(rows.pointer(r, j), f(simd::load(panel + r * stride + j)));
            continue;
          }
        }
        simd::store_strided(rows.pointer(r, j), rows.stride(1), f(simd::load(panel + r * stride + j)),
                            std::min(W, rows.extent(1) - j));
      }
    }
  }

  /// The adjoint of `store`. o = n / D of the sums n, rows of φ(q)·S, and D = qz + ε: the panel becomes dn = do / D and
  /// d_qz becomes dD = −(do·o) / D. Unnormalised dn = s do, and neither sums nor qz are looked at.
  template <class T>
  void pull(const view<const T, 4>& d_o, const tokens& at_rows, const Acc* sums, const Acc* qz, Acc* panel,
            index_t stride, Acc* d_qz) const noexcept {
    using vector = simd::batch<Acc>;
    load_rows(rows_of(d_o, at_rows, at_rows.count), panel, stride);
    for (index_t r = 0; r < at_rows.count; ++r) {
      const row_factor<Acc> f = factor(normalise ? qz[r] : Acc(1));
      vector along(Acc(0));
      for (index_t j = 0; j < d_o.extent(3); j += simd::width<Acc>) {
        Acc* to = panel + r * stride + j;
        if (normalise) along = simd::fma(simd::load(to), f(simd::load(sums + r * stride + j)), along);
        simd::store(to, f(simd::load(to)));
      }
      if (normalise) d_qz[r] = -f(simd::reduce_add(along));
    }
  }
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

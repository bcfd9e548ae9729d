// L5: what the forms of linear attention share: rows of φ(q) and φ(k) from tensors of any strides, and rows of o
// behind their quotient.
#pragma once

#include <ogive/core/options.hpp>
#include <ogive/engine/rows.hpp>
#include <ogive/maps/feature_map.hpp>

#include <algorithm>
#include <limits>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// Elements of a row that `load_features` can bring to a row map when it has to convert or gather it first.
template <class Acc>
inline constexpr index_t widest_gathered_row = 16384 / static_cast<index_t>(sizeof(Acc));

/// panel[r] = φ(x[r]) for the live tokens that the mask lets through, 0 for all others (by choice, not by a product:
/// whatever stands in their memory stays there) and 0 up to the padded width. `first` is the site of token 0 of a
/// sequence; `keep` [B, S] may be absent.
template <class Acc, feature_map Map, class T>
void load_features(const Map& map, const view<const T, 4>& x, const view<const bool, 2>& keep, const tokens& at,
                   map_site first, Acc* panel, index_t stride) noexcept {
  const index_t d = x.extent(3);
  const index_t K = features(map, d);
  const view<const T, 2> rows = rows_of(x, at, at.live);
  first.position += at.position;
  first.batch = at.batch;
  first.head = at.head;
  if constexpr (elementwise_map<Map>) {
    load_rows(rows, panel, stride);
    if constexpr (!std::is_same_v<Map, maps::identity>) {
      const view<Acc, 2> y(panel, {at.live, K}, {stride, 1});
      apply_map<Acc>(map, view<const Acc, 2>(y), y, first);
    }
  } else {
    const auto mapped = [&](index_t begin, index_t count) {
      return view<Acc, 2>(panel + begin * stride, {count, K}, {stride, 1});
    };
    bool direct = false;
    if constexpr (std::is_same_v<T, Acc>) {
      direct = rows.stride(1) == 1 || d == 1;
      if (direct) apply_map<Acc>(map, rows, mapped(0, at.live), first);
    }
    if (!direct) {
      alignas(64) Acc room[widest_gathered_row<Acc>];
      OGIVE_ASSERT(padded<Acc>(d) <= widest_gathered_row<Acc>);
      const index_t step = widest_gathered_row<Acc> / padded<Acc>(d);
      for (index_t r = 0; r < at.live; r += step) {
        const index_t count = std::min(step, at.live - r);
        load_rows(rows.slice(0, r, count), room, padded<Acc>(d));
        map_site here = first;
        here.position += r;
        apply_map<Acc>(map, view<const Acc, 2>(room, {count, d}, {padded<Acc>(d), 1}), mapped(r, count), here);
      }
    }
    zero_rows(panel + K, stride, at.live, padded<Acc>(K) - K);
  }
  zero_rows(panel + at.live * stride, stride, at.count - at.live, padded<Acc>(K));
  if (!keep.present()) return;
  for (index_t r = 0; r < at.live; ++r) {
    if (!keep(at.batch, at.token + r)) zero_rows(panel + r * stride, stride, 1, padded<Acc>(K));
  }
}

/// v where the mask lets it through, else 0.
template <class Acc, class T>
void load_kept(const view<const T, 4>& v, const view<const bool, 2>& keep, const tokens& at, Acc* panel,
               index_t stride) noexcept {
  load_tokens(v, at, panel, stride);
  if (!keep.present()) return;
  for (index_t r = 0; r < at.live; ++r) {
    if (!keep(at.batch, at.token + r)) zero_rows(panel + r * stride, stride, 1, padded<Acc>(v.extent(3)));
  }
}

/// o = s φ(q)·S, or divided by φ(q)·z with ε where `at` says; 0 where the denominator is 0.
template <class Acc>
struct quotient {
  bool normalise;
  Acc scale;
  Acc eps;
  eps_placement at;

  /// Added to every z: the denominator that `store` is given is φ(q)·(z + bias).
  Acc bias() const noexcept { return normalise && at == eps_placement::each_key ? eps : Acc(0); }

  Acc denominator(Acc qz) const noexcept {
    if (at == eps_placement::sum) return qz + eps;
    if (at == eps_placement::scaled_sum) return scale * qz + eps;
    return qz;
  }
  Acc numerator() const noexcept { return !normalise || at == eps_placement::scaled_sum ? scale : Acc(1); }

  /// Rows of o from rows of φ(q)·S.
  template <class T>
  void store(const view<T, 4>& o, const tokens& at_rows, const Acc* panel, index_t stride,
             const Acc* qz) const noexcept {
    constexpr index_t W = simd::width<Acc>;
    const view<T, 2> rows = rows_of(o, at_rows, at_rows.count);
    const index_t V = rows.extent(1);
    for (index_t r = 0; r < at_rows.count; ++r) {
      const Acc under = normalise ? denominator(qz[r]) : Acc(1);
      const Acc factor = numerator() / under;
      // The reciprocal of a subnormal number can be infinite where the quotient is not.
      const bool divide = factor > std::numeric_limits<Acc>::max() || factor < std::numeric_limits<Acc>::lowest();
      for (index_t j = 0; j < V; j += W) {
        auto x = simd::load(panel + r * stride + j);
        if (under == Acc(0)) {
          x = simd::broadcast(Acc(0));
        } else if (divide) {
          x = x * simd::broadcast(numerator()) / simd::broadcast(under);
        } else {
          x = x * simd::broadcast(factor);
        }
        simd::store_strided(rows.pointer(r, j), rows.stride(1), x, std::min(W, V - j));
      }
    }
  }
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

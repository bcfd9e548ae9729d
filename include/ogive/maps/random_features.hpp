// L4: random features: φ(q)·φ(k) is an unbiased estimate of a kernel of q and k, exp(q·k) above all. The projection W
// [M, d] is a view, of any strides and either type, onto what maps/random.hpp draws or a model brings; rows are w_j.
// Adjoints give the gradient of x alone: W and whatever keeps an exponential in range, c, are constants in them.
#pragma once

#include <ogive/maps/elementwise.hpp>
#include <ogive/maps/rows.hpp>

#include <algorithm>
#include <limits>
#include <optional>

namespace ogive {
inline namespace OGIVE_ABI {
namespace maps {

namespace detail {

/// The value for a sequence and head, or `otherwise` where no table was given.
template <class Acc, class P>
Acc value_at(const view<const P, 2>& table, const map_site& at, double otherwise) noexcept {
  return static_cast<Acc>(table.present() ? static_cast<double>(table(at.batch, at.head)) : otherwise);
}

/// cosine = f cos u and sine = f sin u; u may be either.
template <class Acc>
void waves(const Acc* u, Acc* cosine, Acc* sine, index_t n, Acc f) noexcept {
  using vec = simd::batch<Acc>;
  for_each_vector<Acc>(n, [&](index_t i, const auto& some) {
    vec s;
    vec c;
    simd::sincos(detail::load(u + i, some), s, c);
    detail::store(cosine + i, vec(f) * c, some);
    detail::store(sine + i, vec(f) * s, some);
  });
}

template <class P>
status check_table(const char* map, const char* field, const view<const P, 2>& table, index_t batch,
                   index_t heads) noexcept {
  return core::checker(map).extents(field, table, {batch, heads}, "[B, H]").result();
}

/// c [B, H] = the largest value(rows, room) over the tokens of a sequence and head that count, 0 where there are none.
template <class P, class T, class Value>
void largest(const char* verb, const view<const T, 4>& x, index_t K, const view<P, 2>& c, const integers& lengths,
             const view<const bool, 2>& mask, context& ctx, const Value& value) {
  core::checker is(verb);
  is.given("x", x).given("c", c).extents("c", c, {x.extent(0), x.extent(2)}, "[B, H]").output("c", c);
  is.extents("mask", mask, {x.extent(0), x.extent(1)}, "[B, L]");
  is.lengths(lengths, x.extent(0));
  require(is.result());
  // Passes of their own: the members of a team write nothing at the door.
  constexpr P none = -std::numeric_limits<P>::infinity();
  const auto replace = [&](const auto& by) {
    ctx.run(c.size(), 0, [&](index_t task, arena) noexcept {
      P& best = c(task / c.extent(1), task % c.extent(1));
      best = by(best);
    });
  };
  replace([](P) noexcept { return none; });
  using Acc = accum_t<T>;
  for_row_blocks<Acc>(x, K, lengths, {}, ctx,
                      [&](const map_site& site, const view<Acc, 2>& rows, const view<Acc, 2>& room) noexcept {
                        index_t count = 0;
                        for (index_t r = 0; r < rows.extent(0); ++r) {
                          if (mask.present() && !mask(site.batch, site.position + r)) continue;
                          if (count != r) std::copy_n(rows.pointer(r, 0), rows.extent(1), rows.pointer(count, 0));
                          ++count;
                        }
                        if (count == 0) return;
                        P& best = c(site.batch, site.head);
                        best = std::max(best, static_cast<P>(value(rows.slice(0, 0, count), room.slice(0, 0, count))));
                      });
  replace([](P best) noexcept { return best == none ? P(0) : best; });
}

}  // namespace detail

/// FAVOR+: φ_j(x) = M^−½ (exp(w_j·s x − s²|x|²/2 − c) + ε), s = d^−¼, so that φ(q)·φ(k) ≈ exp(q·k/√d) e^−c e^−c'.
/// Choromanski et al., Rethinking Attention with Performers, arXiv:2009.14794.
///
/// c keeps exp in range. It cancels in normalised attention but for ε, as long as it is the same for all keys:
/// - a query's c is its own max_j w_j·s x (`stabilise_queries`), which concerns no other token;
/// - the keys' c is `key_shift`, a constant: causal, a later token never changes an earlier one. With 0 features reach
///   exp(|w|²/2), some e^(d/2), so from d = 128 on in float choose it, half the d of the projection say;
/// - or the keys' c is the table `key_stabiliser` [B, H], the maximum over all keys of a sequence and head that the
///   paper's code takes: `stabilisers` computes it in a pass of its own. Not causal, and not for streaming.
template <class P = float>
struct favor {
  view<const P, 2> W;  // [M, d]
  double eps = 1e-4;
  bool normalise_data = true;  ///< s = d^−¼; otherwise 1
  bool stabilise_queries = true;
  double key_shift = 0;
  view<const P, 2> key_stabiliser{};  // [B, H]

  index_t features(index_t) const noexcept { return W.extent(0); }
  status check(index_t d) const noexcept { return detail::check_projection("ogive::maps::favor", "W", W, d); }
  status check_heads(side which, index_t batch, index_t heads) const noexcept {
    if (which == side::query) return {};
    return detail::check_table("ogive::maps::favor", "key_stabiliser", key_stabiliser, batch, heads);
  }

  /// s, the factor of the data.
  double data_scale(index_t d) const noexcept {
    return normalise_data ? 1 / std::sqrt(std::sqrt(static_cast<double>(d))) : 1;
  }

  template <class Acc>
  void operator()(view<const Acc, 2> x, view<Acc, 2> y, const map_site& first) const noexcept {
    using vec = simd::batch<Acc>;
    const index_t M = W.extent(0);
    const Acc s = static_cast<Acc>(data_scale(x.extent(1)));
    const Acc key_c = detail::value_at<Acc>(key_stabiliser, first, key_shift);
    const vec norm(static_cast<Acc>(1 / std::sqrt(static_cast<double>(M))));
    const vec epsilon(static_cast<Acc>(eps));
    detail::project(s, x, W, y);
    for (index_t r = 0; r < x.extent(0); ++r) {
      Acc* row = y.pointer(r, 0);
      const Acc query_c = stabilise_queries ? detail::maximum(row, M) : Acc(0);
      const Acc c = first.which == side::query ? query_c : key_c;
      const vec offset(s * s / 2 * detail::squared_norm(x.pointer(r, 0), x.extent(1)) + c);
      detail::transform(row, row, M, [&](const vec& wx) { return norm * (simd::exp(wx - offset) + epsilon); });
    }
  }

  /// A query's own maximum is a constant too, as in the paper's code.
  index_t adjoint_room(index_t d) const noexcept { return features(d); }
  template <class Acc>
  void adjoint(view<const Acc, 2> x, view<const Acc, 2> d_y, view<Acc, 2> d_x, view<Acc, 2> room,
               const map_site& first) const noexcept {
    const index_t M = W.extent(0);
    const index_t d = x.extent(1);
    const Acc s = static_cast<Acc>(data_scale(d));
    favor exponentials = *this;
    exponentials.eps = 0;
    exponentials(x, room, first);
    detail::pull_projected(s, W, d_y, room, d_x, [&](Acc* y, const Acc* g) {
      detail::transform(y, g, y, M, [](const auto& v, const auto& d_v) { return v * d_v; });
    });
    for (index_t r = 0; r < x.extent(0); ++r) {
      const Acc d_exponent = detail::sum_of(room.pointer(r, 0), M);
      detail::add_multiple(-s * s * d_exponent, x.pointer(r, 0), d_x.pointer(r, 0), d);
    }
  }
};

/// The table of FAVOR+'s `key_stabiliser`: c [B, H] = max over tokens l and features j of w_j·s k_l. k [B, L, H, d];
/// tokens from lengths[b] on do not count, nor those whose mask [B, L] is false. \throws shape_error
template <class P, class T>
void stabilisers(const favor<P>& map, const view<T, 4>& k, const view<P, 2>& c, const integers& lengths = {},
                 const view<const bool, 2>& mask = {}, context& ctx = default_context()) {
  require(map.check(k.extent(3)));
  const auto value = [&]<class Acc>(const view<Acc, 2>& rows, const view<Acc, 2>& wx) noexcept {
    detail::project<Acc>(static_cast<Acc>(map.data_scale(rows.extent(1))), rows, map.W, wx);
    return detail::maximum(wx.data(), wx.size());
  };
  detail::largest<P, std::remove_const_t<T>>("ogive::maps::stabilisers", k, map.W.extent(0), c, lengths, mask, ctx, value);
}

/// FAVOR+ in pairs ±w: φ(x) = [exp(y·w_j − o), exp(−y·w_j − o)] with y = √t x, n = 2 M features,
/// o = |y|²/2 + ln(n)/2 + c. t is `temperature`, d^−½ unless given. c is 0, or what `query_stabiliser` and
/// `key_stabiliser` [B, H] say: the largest |y|² of the sequence in fast-transformers (see `stabilisers`).
/// Choromanski et al., arXiv:2009.14794, the hyperbolic estimator.
template <class P = float>
struct favor_pairs {
  view<const P, 2> W;  // [M, d]
  std::optional<double> temperature{};
  view<const P, 2> query_stabiliser{};  // [B, H]
  view<const P, 2> key_stabiliser{};    // [B, H]

  index_t features(index_t) const noexcept { return 2 * W.extent(0); }
  status check(index_t d) const noexcept { return detail::check_projection("ogive::maps::favor_pairs", "W", W, d); }
  status check_heads(side which, index_t batch, index_t heads) const noexcept {
    return which == side::query
               ? detail::check_table("ogive::maps::favor_pairs", "query_stabiliser", query_stabiliser, batch, heads)
               : detail::check_table("ogive::maps::favor_pairs", "key_stabiliser", key_stabiliser, batch, heads);
  }

  double t(index_t d) const noexcept { return temperature.value_or(1 / std::sqrt(static_cast<double>(d))); }

  template <class Acc>
  void operator()(view<const Acc, 2> x, view<Acc, 2> y, const map_site& first) const noexcept {
    using vec = simd::batch<Acc>;
    const index_t M = W.extent(0);
    const double temper = t(x.extent(1));
    const Acc c = detail::value_at<Acc>(first.which == side::query ? query_stabiliser : key_stabiliser, first, 0) +
                  static_cast<Acc>(std::log(static_cast<double>(2 * M)) / 2);
    detail::project(static_cast<Acc>(std::sqrt(temper)), x, W, y);
    for (index_t r = 0; r < x.extent(0); ++r) {
      Acc* row = y.pointer(r, 0);
      const vec offset(static_cast<Acc>(-temper / 2) * detail::squared_norm(x.pointer(r, 0), x.extent(1)) - c);
      detail::transform(row, row + M, M, [&](const vec& wy) { return simd::exp(offset - wy); });
      detail::transform(row, row, M, [&](const vec& wy) { return simd::exp(offset + wy); });
    }
  }

  index_t adjoint_room(index_t d) const noexcept { return features(d); }
  template <class Acc>
  void adjoint(view<const Acc, 2> x, view<const Acc, 2> d_y, view<Acc, 2> d_x, view<Acc, 2> room,
               const map_site& first) const noexcept {
    const index_t M = W.extent(0);
    const double temper = t(x.extent(1));
    (*this)(x, room, first);
    detail::pull_projected(static_cast<Acc>(std::sqrt(temper)), W, d_y, room, d_x, [M](Acc* y, const Acc* d) {
      const Acc d_exponent = detail::dot(y, d, 2 * M);
      detail::difference_of_products(y, d, y + M, d + M, y, M);
      y[M] = d_exponent;
    });
    for (index_t r = 0; r < x.extent(0); ++r)
      detail::add_multiple(static_cast<Acc>(-temper) * room(r, M), x.pointer(r, 0), d_x.pointer(r, 0), x.extent(1));
  }
};

/// The tables of favor_pairs: c [B, H] = max over tokens l of |y_l|² = t |x_l|². x [B, L, H, d]; tokens from lengths[b]
/// on do not count, nor those whose mask [B, L] is false. \throws shape_error
template <class P, class T>
void stabilisers(const favor_pairs<P>& map, const view<T, 4>& x, const view<P, 2>& c, const integers& lengths = {},
                 const view<const bool, 2>& mask = {}, context& ctx = default_context()) {
  const auto value = [&]<class Acc>(const view<Acc, 2>& rows, const view<Acc, 2>&) noexcept {
    Acc best(0);
    for (index_t r = 0; r < rows.extent(0); ++r)
      best = std::max(best, detail::squared_norm(rows.pointer(r, 0), rows.extent(1)));
    return static_cast<Acc>(map.t(rows.extent(1))) * best;
  };
  detail::largest<P, std::remove_const_t<T>>("ogive::maps::stabilisers", x, 0, c, lengths, mask, ctx, value);
}

/// Generalised kernel features φ(x) = f(W s x) + ε, elementwise f; without W φ(x) = f(s x) + ε. s is `scale`, d^−¼
/// unless given. fast-transformers' form has s = √t and ε = 0. Choromanski et al., arXiv:2009.14794, section 2.2.
template <class P = float, elementwise_map F = relu>
struct generalised {
  view<const P, 2> W{};  // [M, d], or absent
  F f{};
  double eps = 1e-3;
  std::optional<double> scale{};

  index_t features(index_t d) const noexcept { return W.present() ? W.extent(0) : d; }
  status check(index_t d) const noexcept {
    return W.present() ? detail::check_projection("ogive::maps::generalised", "W", W, d) : status();
  }

  template <class Acc>
  void operator()(view<const Acc, 2> x, view<Acc, 2> y, const map_site&) const noexcept {
    const simd::batch<Acc> epsilon(static_cast<Acc>(eps));
    arguments(x, y);
    for (index_t r = 0; r < x.extent(0); ++r) {
      Acc* row = y.pointer(r, 0);
      detail::map_numbers(f, row, row, y.extent(1));
      detail::transform(row, row, y.extent(1), [&](const auto& v) { return v + epsilon; });
    }
  }

  index_t adjoint_room(index_t d) const noexcept { return features(d); }
  template <class Acc>
    requires differentiable_map<F>
  void adjoint(view<const Acc, 2> x, view<const Acc, 2> d_y, view<Acc, 2> d_x, view<Acc, 2> room,
               const map_site&) const noexcept {
    const index_t d = x.extent(1);
    const Acc s = factor<Acc>(d);
    arguments(x, room);
    const auto pull = [&](Acc* u, const Acc* d_u) { detail::pull_numbers(f, u, d_u, u, room.extent(1)); };
    if (W.present()) return detail::pull_projected(s, W, d_y, room, d_x, pull);
    for (index_t r = 0; r < x.extent(0); ++r) {
      pull(room.pointer(r, 0), d_y.pointer(r, 0));
      detail::transform(room.pointer(r, 0), d_x.pointer(r, 0), d, [&](const auto& v) { return s * v; });
    }
  }

 private:
  template <class Acc>
  Acc factor(index_t d) const noexcept {
    return static_cast<Acc>(scale.value_or(1 / std::sqrt(std::sqrt(static_cast<double>(d)))));
  }
  /// u = W s x, or s x
  template <class Acc>
  void arguments(const view<const Acc, 2>& x, const view<Acc, 2>& u) const noexcept {
    const Acc s = factor<Acc>(x.extent(1));
    if (W.present()) return detail::project(s, x, W, u);
    for (index_t r = 0; r < x.extent(0); ++r)
      detail::transform(x.pointer(r, 0), u.pointer(r, 0), x.extent(1), [&](const auto& v) { return s * v; });
  }
};

/// Random Fourier features of exp(−t|q − k|²/2): u = √t W x, φ(x) = M^−½ [cos u, sin u], and one more constant feature
/// where `smoothing` is given. t is `temperature`, d^−½ unless given. Rahimi, Recht, Random Features for Large-Scale
/// Kernel Machines, 2007; in fast-transformers' order.
template <class P = float>
struct random_fourier {
  view<const P, 2> W;  // [M, d]
  std::optional<double> temperature{};
  std::optional<double> smoothing{};

  index_t features(index_t) const noexcept { return 2 * W.extent(0) + (smoothing ? 1 : 0); }
  status check(index_t d) const noexcept { return detail::check_projection("ogive::maps::random_fourier", "W", W, d); }

  template <class Acc>
  void operator()(view<const Acc, 2> x, view<Acc, 2> y, const map_site&) const noexcept {
    const index_t M = W.extent(0);
    const Acc norm = static_cast<Acc>(1 / std::sqrt(static_cast<double>(M)));
    detail::project(data_scale<Acc>(x.extent(1)), x, W, y);
    for (index_t r = 0; r < x.extent(0); ++r) {
      Acc* row = y.pointer(r, 0);
      detail::waves(row, row, row + M, M, norm);
      if (smoothing) row[2 * M] = static_cast<Acc>(*smoothing);
    }
  }

  index_t adjoint_room(index_t d) const noexcept { return features(d); }
  template <class Acc>
  void adjoint(view<const Acc, 2> x, view<const Acc, 2> d_y, view<Acc, 2> d_x, view<Acc, 2> room,
               const map_site& first) const noexcept {
    (*this)(x, room, first);
    detail::pull_projected(data_scale<Acc>(x.extent(1)), W, d_y, room, d_x, [M = W.extent(0)](Acc* y, const Acc* d) {
      detail::difference_of_products(y, d + M, y + M, d, y, M);
    });
  }

 private:
  /// √t
  template <class Acc>
  Acc data_scale(index_t d) const noexcept {
    return static_cast<Acc>(std::sqrt(temperature.value_or(1 / std::sqrt(static_cast<double>(d)))));
  }
};

/// Random feature attention: φ(x) = exp(|x|²/2) M^−½ [sin W x, cos W x], so that φ(q)·φ(k) ≈ exp(q·k). `normalised`
/// takes x/|x| for x and leaves the exponential out, which the paper recommends. Peng et al., arXiv:2103.02143.
template <class P = float>
struct random_features {
  view<const P, 2> W;  // [M, d]
  bool normalised = false;

  index_t features(index_t) const noexcept { return 2 * W.extent(0); }
  status check(index_t d) const noexcept { return detail::check_projection("ogive::maps::random_features", "W", W, d); }

  template <class Acc>
  void operator()(view<const Acc, 2> x, view<Acc, 2> y, const map_site&) const noexcept {
    using vec = simd::batch<Acc>;
    const index_t M = W.extent(0);
    const Acc norm = static_cast<Acc>(1 / std::sqrt(static_cast<double>(M)));
    detail::project(Acc(1), x, W, y);
    for (index_t r = 0; r < x.extent(0); ++r) {
      Acc* row = y.pointer(r, 0);
      const Acc square = detail::squared_norm(x.pointer(r, 0), x.extent(1));
      if (normalised) {
        const vec inverse(inverse_norm(square));
        detail::transform(row, row, M, [&](const vec& v) { return inverse * v; });
      }
      detail::waves(row, row + M, row, M, normalised ? norm : norm * std::exp(square / 2));
    }
  }

  index_t adjoint_room(index_t d) const noexcept { return features(d); }
  template <class Acc>
  void adjoint(view<const Acc, 2> x, view<const Acc, 2> d_y, view<Acc, 2> d_x, view<Acc, 2> room,
               const map_site& first) const noexcept {
    const index_t M = W.extent(0);
    const index_t d = x.extent(1);
    (*this)(x, room, first);
    detail::pull_projected(Acc(1), W, d_y, room, d_x, [M](Acc* y, const Acc* g) {
      const Acc d_exponent = detail::dot(y, g, 2 * M);
      detail::difference_of_products(y + M, g, y, g + M, y, M);
      y[M] = d_exponent;
    });
    for (index_t r = 0; r < x.extent(0); ++r) {
      const Acc* from = x.pointer(r, 0);
      Acc* to = d_x.pointer(r, 0);
      Acc along = room(r, M);
      if (normalised) {  // of x/|x|, so that only what is across x counts
        const Acc inverse = inverse_norm(detail::squared_norm(from, d));
        const simd::batch<Acc> factor(inverse);
        detail::transform(to, to, d, [&](const auto& v) { return factor * v; });
        along = -inverse * inverse * detail::dot(from, to, d);
      }
      detail::add_multiple(along, from, to, d);
    }
  }

 private:
  template <class Acc>
  static Acc inverse_norm(Acc square) noexcept {
    return square > 0 ? Acc(1) / std::sqrt(square) : Acc(0);
  }
};

}  // namespace maps
}  // namespace OGIVE_ABI
}  // namespace ogive

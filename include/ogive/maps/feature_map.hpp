// L4: what a feature map φ is, and how one is applied to rows.
//
// Linear attention replaces exp(q·k) by φ(q)·φ(k). A map is a small type, cheap to copy (weights are views), of one of
// two kinds:
//   elementwise   template <class X> X operator()(X x) const;       X is float, double, or a simd::batch of them, where
//                                                                   comparisons are no conditions: simd::select
//   row map       index_t features(index_t d) const;
//                 template <class Acc>
//                 void operator()(view<const Acc, 2> x, view<Acc, 2> y, const map_site& first) const;
//                                                                   x [rows, d], y [rows, features(d)]
// Rows have unit inner stride; row r is the token at position first.position + r. A map that cannot take every d also
// has `status check(index_t d) const noexcept`, one with tables per sequence and head `status check_heads(side which,
// index_t batch, index_t heads) const noexcept`; verbs call them at the door. Maps never allocate and never throw. One
// that never looks at where rows stand may say `static constexpr bool placeless = true;`, and a step maps the rows of
// several heads at once.
//
// Gradients go through a map that also has its adjoint, d_x = Jᵀ d_y with J = ∂y/∂x; tables are constants.
//   elementwise   template <class X> X slope(X x) const;            φ′(x)
//   row map       template <class Acc>
//                 void adjoint(view<const Acc, 2> x, view<const Acc, 2> d_y, view<Acc, 2> d_x, view<Acc, 2> room,
//                              const map_site& first) const;        d_x [rows, d] is overwritten and overlaps nothing
//                 index_t adjoint_room(index_t d) const;            room [rows, adjoint_room(d)] is scratch; a map
//                                                                   without this member gets none
// and those of weights that are learned come with it where a map of rows says what they are:
//                 struct gradient;                                  mutable views, named as the weights
//                 template <class F>
//                 void for_parameters(const gradient& d, const F& f) const;     f("map.W", W, d.W) for all of them
//                 adjoint(…, first, Acc* sums = nullptr)            also adds to sums, unless null: the elements of
//                                                                   the weights that are present, one after the other
#pragma once

#include <ogive/core/accum.hpp>
#include <ogive/core/check.hpp>
#include <ogive/core/options.hpp>
#include <ogive/core/shared_sums.hpp>
#include <ogive/simd/guarded.hpp>

#include <tuple>

namespace ogive {

/// Which operand of attention is mapped: some maps treat the two differently.
enum class side { query, key };

/// Where rows stand: the absolute position of the first one, and the sequence and head they belong to.
struct map_site {
  index_t position = 0;
  side which = side::query;
  index_t batch = 0;
  index_t head = 0;
};

inline namespace OGIVE_ABI {

namespace maps::detail {

template <class M, class Acc>
concept maps_a_number = requires(const M& map, Acc x) {
  { map(x) } -> std::convertible_to<Acc>;
};
template <class M>
concept counts_features = requires(const M& map, index_t d) {
  { map.features(d) } -> std::convertible_to<index_t>;
};
template <class M, class Acc>
concept maps_rows_of = requires(const M& map, view<const Acc, 2> x, view<Acc, 2> y, const map_site& first) {
  map(x, y, first);
};

template <class M, class Acc>
concept maps_a_guarded_batch = requires(const M& map, simd::guarded<Acc> x) {
  { map(x) } -> std::convertible_to<simd::batch<Acc>>;
};
/// Never run. To find its return type, the compiler looks into the body, and so into the body of the map.
template <class Acc, class M>
auto try_guarded(const M& map) {
  if constexpr (maps_a_guarded_batch<M, Acc>) map(simd::guarded<Acc>());
}

// The compiler prints these names when a type is refused as a feature map.
template <class M>
inline constexpr bool map_can_be_called_with_a_number_or_has_features_of_d =
    (maps_a_number<M, float> && maps_a_number<M, double>) || counts_features<M>;
template <class M>
inline constexpr bool map_with_features_can_be_called_with_rows_x_y_and_a_map_site =
    !counts_features<M> || (maps_rows_of<M, float> && maps_rows_of<M, double>);
template <class M>
inline constexpr bool map_of_a_batch_does_not_branch = requires(const M& map) {
  try_guarded<float>(map);
  try_guarded<double>(map);
};
template <class M>
inline constexpr bool map_can_be_copied = std::copy_constructible<M>;

/// φ′ as a map of its own.
template <class M>
struct slope_of {
  const M& map;

  template <class X, class Map = M>
  OGIVE_INLINE auto operator()(const X& x) const noexcept -> decltype(std::declval<const Map&>().slope(x)) {
    return map.slope(x);
  }
};
template <class M, class Acc>
concept pulls_rows_back = requires(const M& map, view<const Acc, 2> in, view<Acc, 2> out, const map_site& first) {
  map.adjoint(in, in, out, out, first);
};

// The same for adjoints.
template <class M>
inline constexpr bool elementwise_map_has_slope_of_a_number = counts_features<M> ||
                                                              (maps_a_number<slope_of<M>, float> &&
                                                               maps_a_number<slope_of<M>, double>);
template <class M>
inline constexpr bool slope_of_a_batch_does_not_branch =
    counts_features<M> || map_of_a_batch_does_not_branch<slope_of<M>>;
template <class M>
inline constexpr bool row_map_has_adjoint_of_rows_x_d_y_d_x_room_and_a_map_site =
    !counts_features<M> || (pulls_rows_back<M, float> && pulls_rows_back<M, double>);

}  // namespace maps::detail

template <class M>
concept feature_map = maps::detail::map_can_be_copied<M> &&
    maps::detail::map_can_be_called_with_a_number_or_has_features_of_d<M> &&
    maps::detail::map_with_features_can_be_called_with_rows_x_y_and_a_map_site<M> &&
    (maps::detail::counts_features<M> || maps::detail::map_of_a_batch_does_not_branch<M>);

template <class M>
concept row_map = feature_map<M> && maps::detail::counts_features<M>;
template <class M>
concept elementwise_map = feature_map<M> && !maps::detail::counts_features<M>;
/// A map whose rows do not depend on where they stand.
template <class M>
concept placeless_map = elementwise_map<M> ||(feature_map<M>&& requires { requires M::placeless; });

/// A map that gradients go through.
template <class M>
concept differentiable_map = feature_map<M> && maps::detail::elementwise_map_has_slope_of_a_number<M> &&
    maps::detail::slope_of_a_batch_does_not_branch<M> &&
    maps::detail::row_map_has_adjoint_of_rows_x_d_y_d_x_room_and_a_map_site<M>;

/// `static_assert(ogive::explain_feature_map<my_map>());` says in a sentence what my_map lacks.
template <class M>
consteval bool explain_feature_map() {
  static_assert(maps::detail::map_can_be_copied<M>, "a feature map is passed by value: it must be copyable");
  static_assert(maps::detail::map_can_be_called_with_a_number_or_has_features_of_d<M>,
                "a feature map is elementwise, template <class X> X operator()(X x) const, or it maps rows and has "
                "index_t features(index_t d) const");
  static_assert(maps::detail::map_with_features_can_be_called_with_rows_x_y_and_a_map_site<M>,
                "a feature map with features(d) also needs template <class Acc> void operator()(view<const Acc, 2> x, "
                "view<Acc, 2> y, const map_site& first) const, for float and for double");
  return feature_map<M>;
}

/// The same of a map that gradients are to go through, `explain_differentiable_map<my_map>()`.
template <class M>
consteval bool explain_differentiable_map() {
  static_assert(explain_feature_map<M>());
  static_assert(maps::detail::elementwise_map_has_slope_of_a_number<M>,
                "gradients go through an elementwise map by its derivative: template <class X> X slope(X x) const");
  static_assert(maps::detail::row_map_has_adjoint_of_rows_x_d_y_d_x_room_and_a_map_site<M>,
                "gradients go through a map of rows by template <class Acc> void adjoint(view<const Acc, 2> x, "
                "view<const Acc, 2> d_y, view<Acc, 2> d_x, view<Acc, 2> room, const map_site& first) const, for float "
                "and for double");
  return differentiable_map<M>;
}

/// A map with weights that have gradients.
template <class M>
concept learned_map = differentiable_map<M> && row_map<M> && requires {
  typename M::gradient;
};

namespace maps {

/// The gradients of a map without weights that are learned.
struct no_gradient {};

namespace detail {

/// f(element) for all, row by row.
template <class T, std::size_t Rank, class F>
void for_elements(const view<T, Rank>& x, const F& f) noexcept {
  for (index_t i = 0; i < x.extent(0); ++i) {
    if constexpr (Rank == 1) {
      f(x[i]);
    } else {
      for_elements(x[i], f);
    }
  }
}

template <class M>
struct gradient_of {
  using type = no_gradient;
};
template <class M>
requires requires { typename M::gradient; }
struct gradient_of<M> {
  using type = typename M::gradient;
};
}  // namespace detail

}  // namespace maps

/// The gradients of what a map has learned, where it has: one view for each of its weights.
template <class M>
using map_gradient = typename maps::detail::gradient_of<M>::type;

/// f(name, weight, its gradient) for all weights that are learned.
template <feature_map M, class F>
void for_parameters([[maybe_unused]] const M& map, [[maybe_unused]] const map_gradient<M>& d,
                    [[maybe_unused]] const F& f) noexcept {
  if constexpr (learned_map<M>) map.for_parameters(d, f);
}

/// The gradients of a map's weights as one row of sums.
template <feature_map M>
struct weight_sums {
  const M& map;
  const map_gradient<M>& d;

  bool wanted() const noexcept {
    bool any = false;
    for_parameters(map, d, [&](const char*, const auto&, const auto& d_weight) noexcept { any |= d_weight.present(); });
    return any;
  }
  /// Elements of the row.
  index_t size() const noexcept {
    index_t all = 0;
    for_parameters(map, d, [&](const char*, const auto& weight, const auto&) noexcept { all += weight.size(); });
    return all;
  }
  void clear() const noexcept {
    for_parameters(map, d, [](const char*, const auto&, const auto& d_weight) noexcept {
      maps::detail::for_elements(d_weight, [](auto& to) noexcept { to = 0; });
    });
  }
  template <class Acc>
  void add(const Acc* row) const noexcept {
    for_parameters(map, d, [&](const char*, const auto& weight, const auto& d_weight) noexcept {
      const Acc* from = row;
      maps::detail::for_elements(
          d_weight, [&](auto& to) noexcept { to = static_cast<std::remove_reference_t<decltype(to)>>(to + *from++); });
      row += weight.size();
    });
  }
};
template <feature_map M>
weight_sums(const M& map, const map_gradient<M>& d) -> weight_sums<M>;

/// The questions about them at the door.
template <feature_map M>
void check_parameters(core::checker& ask, const M& map, const map_gradient<M>& d) noexcept {
  for_parameters(map, d, [&](const char* field, const auto& weight, const auto& d_weight) noexcept {
    if (!ask || !d_weight.present()) return;
    if (!weight.present()) ask.refuse(field) << "is absent, but its gradient is asked for";
    ask.extents(field, d_weight, weight.extents(), "the shape of the weight").output(field, d_weight);
  });
}

/// K, the number of features of a row of d numbers.
template <feature_map M>
constexpr index_t features(const M& map, index_t d) noexcept {
  if constexpr (row_map<M>) {
    return map.features(d);
  } else {
    return d;
  }
}

/// Elements of scratch per row that the adjoint of a row map wants.
template <differentiable_map M>
constexpr index_t adjoint_room([[maybe_unused]] const M& map, [[maybe_unused]] index_t d) noexcept {
  if constexpr (requires { map.adjoint_room(d); }) {
    return map.adjoint_room(d);
  } else {
    return 0;
  }
}

/// Whether the map can take rows of d numbers; says why not.
template <feature_map M>
status check_map(const M& map, index_t d) noexcept {
  if constexpr (requires {
                  { map.check(d) } -> std::same_as<status>;
                }) {
    return map.check(d);
  } else {
    return {};
  }
}

/// Whether the map can take a tensor [B, L, H, d] of queries or keys.
template <feature_map M>
status check_map(const M& map, const shape<4>& extents, side which) noexcept {
  const status rows = check_map(map, extents[3]);
  if constexpr (requires {
                  { map.check_heads(which, extents[0], extents[2]) } -> std::same_as<status>;
                }) {
    return rows ? map.check_heads(which, extents[0], extents[2]) : rows;
  } else {
    return rows;
  }
}

namespace maps::detail {

/// y_i = map(x_i) for n numbers; x may be y.
template <class M, class Acc>
void map_numbers(const M& map, const Acc* x, Acc* y, index_t n) noexcept {
  if constexpr (maps_a_guarded_batch<M, Acc> && requires(simd::batch<Acc> v) {
                  { map(v) } -> std::same_as<simd::batch<Acc>>;
                }) {
    constexpr index_t width = simd::width<Acc>;
    index_t i = 0;
    for (; i + width <= n; i += width) simd::store(y + i, map(simd::load(x + i)));
    if (i < n) simd::store(y + i, map(simd::load(x + i, n - i)), n - i);
  } else {
    for (index_t i = 0; i < n; ++i) y[i] = static_cast<Acc>(map(x[i]));
  }
}

/// d_x_i = φ′(x_i) d_y_i for n numbers; d_x may be x.
template <class M, class Acc>
void pull_numbers(const M& map, const Acc* x, const Acc* d_y, Acc* d_x, index_t n) noexcept {
  map_numbers(slope_of<M>{map}, x, d_x, n);
  constexpr index_t width = simd::width<Acc>;
  index_t i = 0;
  for (; i + width <= n; i += width) simd::store(d_x + i, simd::load(d_x + i) * simd::load(d_y + i));
  if (i < n) simd::store(d_x + i, simd::load(d_x + i, n - i) * simd::load(d_y + i, n - i), n - i);
}

}  // namespace maps::detail

/// φ of each row: x [rows, d], y [rows, K], both with unit inner stride and any row stride. An elementwise map may work
/// in place.
template <class Acc, feature_map M>
void apply_map(const M& map, const view<const Acc, 2>& x, const view<Acc, 2>& y, const map_site& first) noexcept {
  const index_t rows = x.extent(0);
  const index_t d = x.extent(1);
  OGIVE_ASSERT(y.extent(0) == rows && y.extent(1) == features(map, d));
  OGIVE_ASSERT((d <= 1 || x.stride(1) == 1) && (y.extent(1) <= 1 || y.stride(1) == 1));
  if constexpr (row_map<M>) {
    map(x, y, first);
  } else if (x.stride(0) == d && y.stride(0) == d) {
    maps::detail::map_numbers(map, x.data(), y.data(), rows * d);
  } else {
    for (index_t r = 0; r < rows; ++r) maps::detail::map_numbers(map, x.pointer(r, 0), y.pointer(r, 0), d);
  }
}

/// d_x = Jᵀ d_y for each row, J = ∂φ/∂x: x, d_x [rows, d], d_y [rows, K], all with unit inner stride and any row
/// stride. `room` [rows, adjoint_room(map, d)] is scratch. The d_x of an elementwise map may be x; else nothing
/// overlaps. To `sums`, as many numbers as weight_sums has, the gradients of learned weights are added, unless it is
/// null.
template <class Acc, differentiable_map M>
void apply_adjoint(const M& map, const view<const Acc, 2>& x, const view<const Acc, 2>& d_y, const view<Acc, 2>& d_x,
                   [[maybe_unused]] const view<Acc, 2>& room, [[maybe_unused]] const map_site& first,
                   [[maybe_unused]] Acc* sums = nullptr) noexcept {
  const index_t rows = x.extent(0);
  const index_t d = x.extent(1);
  OGIVE_ASSERT(d_y.extent(0) == rows && d_y.extent(1) == features(map, d) && d_x.extents() == x.extents());
  OGIVE_ASSERT((d <= 1 || (x.stride(1) == 1 && d_x.stride(1) == 1)) && (d_y.extent(1) <= 1 || d_y.stride(1) == 1));
  if constexpr (learned_map<M>) {
    map.adjoint(x, d_y, d_x, room, first, sums);
  } else if constexpr (row_map<M>) {
    map.adjoint(x, d_y, d_x, room, first);
  } else if (x.stride(0) == d && d_y.stride(0) == d && d_x.stride(0) == d) {
    maps::detail::pull_numbers(map, x.data(), d_y.data(), d_x.data(), rows * d);
  } else {
    for (index_t r = 0; r < rows; ++r)
      maps::detail::pull_numbers(map, x.pointer(r, 0), d_y.pointer(r, 0), d_x.pointer(r, 0), d);
  }
}

namespace maps::detail {

/// Between the tokens from t on of sequence b, head h of a tensor of any strides, and rows of Acc.
template <class Acc, class T>
void read_rows(const view<const T, 4>& x, index_t b, index_t t, index_t h, const view<Acc, 2>& rows) noexcept {
  for (index_t r = 0; r < rows.extent(0); ++r)
    for (index_t i = 0; i < rows.extent(1); ++i) rows(r, i) = static_cast<Acc>(x(b, t + r, h, i));
}
template <class Acc, class T>
void write_rows(const view<Acc, 2>& rows, const view<T, 4>& x, index_t b, index_t t, index_t h,
                bool accumulate = false) noexcept {
  for (index_t r = 0; r < rows.extent(0); ++r) {
    for (index_t i = 0; i < rows.extent(1); ++i) {
      T& to = x(b, t + r, h, i);
      to = static_cast<T>(accumulate ? static_cast<Acc>(to) + rows(r, i) : rows(r, i));
    }
  }
}

/// Blocks of tokens of every sequence and head of x [B, L, H, d]: body(site, rows, room) is called with `rows` [n, d]
/// as Acc with unit inner stride, and scratch `room` [n, columns]. A sequence and head is one task, its blocks come in
/// order. `lengths` may be absent.
template <class Acc, class T>
struct row_blocks {
  view<const T, 4> x;
  index_t columns;
  integers lengths;
  map_site first;

  index_t tasks() const noexcept { return x.extent(0) * x.extent(2); }
  std::size_t bytes() const noexcept { return std::get<2>(carve(arena())); }

  template <class Body>
  void run(index_t task, arena memory, const Body& body) const noexcept {
    const auto [rows, room, used] = carve(memory);
    const index_t b = task / x.extent(2), h = task % x.extent(2);
    const index_t length = lengths.present() ? std::min(lengths.at(b), x.extent(1)) : x.extent(1);
    for (index_t t = 0; t < length; t += block) {
      const index_t n = std::min(block, length - t);
      read_rows(x, b, t, h, rows.slice(0, 0, n));
      body(map_site{first.position + t, first.which, first.batch + b, first.head + h}, rows.slice(0, 0, n),
           room.slice(0, 0, n));
    }
  }

 private:
  static constexpr index_t block = 64;

  auto carve(arena memory) const noexcept {
    const view<Acc, 2> rows(memory.take<Acc>(block * x.extent(3)), {block, x.extent(3)});
    const view<Acc, 2> room(memory.take<Acc>(block * columns), {block, columns});
    return std::tuple(rows, room, memory.used());
  }
};

/// All of them, as tasks.
template <class Acc, class T, class Body>
void for_row_blocks(const view<const T, 4>& x, index_t columns, const integers& lengths, const map_site& first,
                    context& ctx, const Body& body) {
  const row_blocks<Acc, T> blocks{x, columns, lengths, first};
  const std::size_t bytes = blocks.bytes();
  ctx.reserve(static_cast<std::size_t>(ctx.workers()) * bytes);
  ctx.run(blocks.tasks(), bytes, [&](index_t task, arena memory) noexcept { blocks.run(task, memory, body); });
}

}  // namespace maps::detail

/// φ of every row of a tensor of any strides: x [B, L, H, d], y [B, L, H, K]. `first` is the site of x(0, 0, 0, ·).
/// \throws shape_error when y does not fit, and what the map's own check says.
template <storage T, feature_map M>
void evaluate(const M& map, const std::type_identity_t<view<const T, 4>>& x, const view<T, 4>& y,
              const map_site& first = {}, context& ctx = default_context()) {
  using Acc = accum_t<T>;
  require(check_map(map, x.extents(), first.which));
  const index_t K = features(map, x.extent(3));
  core::checker is("ogive::evaluate");
  is.given("x", x).given("y", y).extents("y", y, {x.extent(0), x.extent(1), x.extent(2), K}, "[B, L, H, features]");
  is.output("y", y);
  require(is.result());
  maps::detail::for_row_blocks<Acc>(
      x, K, {}, first, ctx, [&](const map_site& site, const view<Acc, 2>& rows, const view<Acc, 2>& mapped) noexcept {
        apply_map<Acc>(map, rows, mapped, site);
        maps::detail::write_rows(mapped, y, site.batch - first.batch, site.position - first.position,
                                 site.head - first.head);
      });
}

/// The adjoint of `evaluate`, d_x = Jᵀ d_y with J = ∂y/∂x at every row: x, d_x [B, L, H, d], d_y [B, L, H, K] of any
/// strides. `d` gets the gradients of weights that the map has learned, sums over all rows in an order that the shape
/// alone decides; what else a map keeps, and stabilisers (FAVOR+'s c), are constants. Either may be absent: it is not
/// wanted. They overwrite, or, with `how.accumulate`, add. \throws shape_error as `evaluate` does.
template <storage T, differentiable_map M>
void evaluate_adjoint(const M& map, const std::type_identity_t<view<const T, 4>>& x,
                      const std::type_identity_t<view<const T, 4>>& d_y, const view<T, 4>& d_x,
                      const std::type_identity_t<map_gradient<M>>& d, const map_site& first = {},
                      const options& how = {}, context& ctx = default_context()) {
  using Acc = accum_t<T>;
  require(check_map(map, x.extents(), first.which));
  const index_t width = x.extent(3);
  const index_t K = features(map, width);
  core::checker is("ogive::evaluate_adjoint");
  is.given("x", x).given("d_y", d_y);
  is.extents("d_y", d_y, {x.extent(0), x.extent(1), x.extent(2), K}, "[B, L, H, features]");
  is.extents("d_x", d_x, x.extents(), "the shape of x").output("d_x", d_x);
  check_parameters(is, map, d);
  require(is.result());
  const weight_sums<M> weights{map, d};
  const index_t scratch = adjoint_room(map, width), sums = weights.wanted() ? weights.size() : 0;
  const maps::detail::row_blocks<Acc, T> blocks{x, K + width + scratch, {}, first};
  const std::size_t bytes = blocks.bytes() + core::summed_bytes<Acc>(sums);
  ctx.reserve(static_cast<std::size_t>(ctx.workers()) * bytes);
  const auto pull = [&](index_t task, const arena& memory, Acc* own) noexcept {
    blocks.run(task, memory, [&](const map_site& site, const view<Acc, 2>& rows, const view<Acc, 2>& room) noexcept {
      const index_t b = site.batch - first.batch;
      const index_t t = site.position - first.position;
      const index_t h = site.head - first.head;
      const view<Acc, 2> pushed = room.slice(1, 0, K);
      const view<Acc, 2> pulled = room.slice(1, K, width);
      maps::detail::read_rows(d_y, b, t, h, pushed);
      apply_adjoint<Acc>(map, rows, pushed, pulled, room.slice(1, K + width, scratch), site, own);
      if (d_x.present()) maps::detail::write_rows(pulled, d_x, b, t, h, how.accumulate);
    });
  };
  core::run_summed<Acc>(
      ctx, blocks.tasks(), bytes, sums, [&](index_t count, const auto& body) noexcept { ctx.run(count, bytes, body); },
      weights, how.accumulate, pull);
}
template <storage T, differentiable_map M>
void evaluate_adjoint(const M& map, const std::type_identity_t<view<const T, 4>>& x,
                      const std::type_identity_t<view<const T, 4>>& d_y, const view<T, 4>& d_x,
                      const map_site& first = {}, context& ctx = default_context()) {
  require(core::checker("ogive::evaluate_adjoint").given("d_x", d_x).result());
  evaluate_adjoint(map, x, d_y, d_x, map_gradient<M>{}, first, {}, ctx);
}

namespace maps {

/// φ(x) = x
struct identity {
  template <class X>
  X operator()(X x) const noexcept {
    return x;
  }
  template <class X>
  X slope(X) const noexcept {
    return X(1);
  }
};

}  // namespace maps

}  // namespace OGIVE_ABI
}  // namespace ogive

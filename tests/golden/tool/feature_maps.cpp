// Feature maps on their own: over a tensor of any strides, row by row, and their adjoints.
#include "tests/golden/tool/feature_maps.hpp"

#include <ogive/maps/cosformer.hpp>
#include <ogive/maps/polynomial.hpp>
#include <ogive/maps/random_features.hpp>

#include "tests/golden/tool/trial.hpp"

namespace ogive::golden {

namespace {

/// How a file orders the axes of x and out.
enum class axes {
  rows,  ///< any leading axes: every row on its own
  bld,   ///< sequence, token, channel
  blhd,  ///< sequence, token, head, channel
  bhld,  ///< sequence, head, token, channel
};

/// A tensor of a file, x or what has its axes, seen as [B, L, H, d].
template <class T>
struct operand {
  axes order;
  tensor<T, 4> stored;

  operand(const golden_case& file, axes order_of_file, const std::string& name = "x") : order(order_of_file) {
    switch (order) {
      case axes::rows: {
        const auto rows = file.merged<T, 2>(name);
        stored = tensor<T, 4>({1, rows.extent(0), 1, rows.extent(1)});
        std::copy(rows.flat().begin(), rows.flat().end(), stored.data());
        break;
      }
      case axes::bld: {
        const auto tokens = file.get<T, 3>(name);
        stored = tensor<T, 4>({tokens.extent(0), tokens.extent(1), 1, tokens.extent(2)});
        std::copy(tokens.flat().begin(), tokens.flat().end(), stored.data());
        break;
      }
      default:
        stored = file.get<T, 4>(name);
    }
  }
  view<const T, 4> x() const { return turned(stored.all()); }
  template <class U>
  view<U, 4> turned(const view<U, 4>& y) const {
    return order == axes::bhld ? from_bhld(y) : y;
  }
};

/// The map over the whole tensor, then its rows one by one, each at its place.
template <class T, class Map>
void run_forms(trial& t, const operand<T>& from, const Map& map, side which) {
  const view<const T, 4> x = from.x();
  require(check_map(map, x.extents(), which));
  const index_t K = features(map, x.extent(3));
  shape<4> extents = from.stored.extents();
  extents[3] = K;
  tensor<T, 4> y(extents, std::numeric_limits<T>::quiet_NaN());
  evaluate(map, x, from.turned(y.all()), map_site{.which = which});
  t.check<T>("tensor", "", {"out", testing::flatten(y.all())});

  tensor<T, 4> one_by_one(extents, std::numeric_limits<T>::quiet_NaN());
  tensor<T, 2> row({1, x.extent(3)}), mapped({1, K});
  for (index_t b = 0; b < x.extent(0); ++b) {
    for (index_t l = 0; l < x.extent(1); ++l) {
      for (index_t h = 0; h < x.extent(2); ++h) {
        for (index_t i = 0; i < x.extent(3); ++i) row(0, i) = x(b, l, h, i);
        apply_map<T>(map, std::as_const(row).all(), mapped.all(), {l, which, b, h});
        for (index_t i = 0; i < K; ++i) from.turned(one_by_one.all())(b, l, h, i) = mapped(0, i);
      }
    }
  }
  t.check<T>("row by row", "", {"out", testing::flatten(one_by_one.all())});
}

/// The gradients of x and of learned weights, where the file has them. What the file has through a table of the map,
/// which is a constant of the adjoint, is added.
template <class T, class Weights>
void run_adjoint(trial& t, const operand<T>& from, const Weights& weights, side which) {
  if (!t.file.has("grad_out")) return;
  const operand<T> d_out(t.file, from.order, "grad_out");
  tensor<T, 4> d_x(from.stored.extents(), std::numeric_limits<T>::quiet_NaN());
  const auto map = weights.mapped().map;
  if constexpr (learned_map<std::remove_const_t<decltype(map)>>) {
    tensor<T, 2> d_W(map.W.extents(), std::numeric_limits<T>::quiet_NaN());
    tensor<T, 1> d_b(map.b.extents(), std::numeric_limits<T>::quiet_NaN());
    evaluate_adjoint(map, from.x(), d_out.x(), from.turned(d_x.all()), {.W = d_W.all(), .b = d_b.all()},
                     map_site{.which = which});
    t.check<T>("adjoint", "", {"d_weight", testing::flatten(d_W.all())});
    t.check<T>("adjoint", "", {"d_bias", testing::flatten(d_b.all())});
  } else {
    evaluate_adjoint(map, from.x(), d_out.x(), from.turned(d_x.all()), map_site{.which = which});
  }
  if constexpr (requires { weights.add_through_table(from.x(), d_out.x(), from.turned(d_x.all())); }) {
    weights.add_through_table(from.x(), d_out.x(), from.turned(d_x.all()));
  }
  t.check<T>("adjoint", "", {"d_x", testing::flatten(d_x.all())});
}

template <class Mapped>
void run_definition(trial& t, const operand<double>& from, const Mapped& mapped, side which) {
  const tensor<double, 4> features_of_x = mapped.template define<double>(from.x(), which);
  t.check<double>("definition", "", {"out", testing::flatten(from.turned(features_of_x.all()))});
}

/// `make(number)` gives the map and its definition, with weights in the type of the number.
template <class Make>
void run(trial& t, axes order, side which, const Make& make) {
  const auto in = [&]<class T>(T number) {
    const operand<T> from(t.file, order);
    const auto weights = make(number, from);
    run_forms<T>(t, from, weights.mapped().map, which);
    run_adjoint<T>(t, from, weights, which);
    if constexpr (std::is_same_v<T, double>) run_definition(t, from, weights.mapped(), which);
  };
  in(double());
  in(float());
}

/// A map without weights.
template <class Mapped>
struct weightless {
  Mapped held;
  const Mapped& mapped() const { return held; }
};
template <class Mapped>
void run_rows(trial& t, const Mapped& mapped) {
  run(t, axes::rows, side::query, [&](auto, const auto&) { return weightless<Mapped>{mapped}; });
}

/// `exact` is right to the last digits where out is only right to those of 1: every element of its own size, down to
/// where float has no full digits.
template <class T>
void check_exact_elu1(trial& t) {
  if (!t.file.has("exact")) return;
  auto exact = t.file.numbers<double>("exact");
  const auto x = t.file.merged<T, 2>("x");
  tensor<T, 2> y(x.extents());
  apply_map<T>(maps::elu1{}, x.all(), y.all(), {});
  auto got = testing::flatten(y.all());
  const double least = static_cast<double>(std::numeric_limits<T>::min());
  for (std::size_t i = 0; i < std::min(got.size(), exact.size()); ++i) {
    if (std::fabs(exact[i]) < least && got[i] <= least) got[i] = exact[i] = 0;
  }
  t.add("every element", type_name<T>(), "", "exact",
        testing::compare(got, exact, testing::tolerance<T>(2) + testing::unit_roundoff<double>(),
                         {.rule = testing::rule::elementwise_rel}));
}

void run_elu1(trial& t) {
  run_rows(t, elu1_map);
  check_exact_elu1<double>(t);
  check_exact_elu1<float>(t);
}

/// W as [features, d], from proj [features, d] or omega [d, features].
template <class T>
struct projection {
  tensor<T, 2> stored;
  view<const T, 2> W;

  explicit projection(const golden_case& file) {
    if (file.has("omega")) {
      stored = file.get<T, 2>("omega");
      W = std::as_const(stored).all().permute({1, 0});
    } else {
      stored = file.get_if<T, 2>(file.has("W") ? "W" : "proj");
      W = std::as_const(stored).all();
    }
  }
};

template <class T>
struct favor_weights {
  projection<T> W;
  tensor<T, 2> c;
  maps::favor<T> map;
  bool query;

  favor_weights(const golden_case& file, const operand<T>& from) : W(file), query(file.flag("is_query", true)) {
    map.W = W.W;
    map.eps = file.number("eps").value_or(1e-4);
    map.normalise_data = file.flag("normalize_data", true);
    if (query) return;
    c = tensor<T, 2>({from.x().extent(0), from.x().extent(2)});
    maps::stabilisers(map, from.x(), c.all());
    map.key_stabiliser = std::as_const(c).all();
  }
  auto mapped() const {
    return defined_map(map, [m = map, q = query]<class Acc>(const auto& rows, const map_site&) {
      const auto stabilise = q ? reference::stabiliser::row : reference::stabiliser::all_rows;
      return reference::favor<Acc>(rows, m.W, stabilise, m.eps, m.normalise_data);
    });
  }
};

void run_favor(trial& t) {
  const side which = t.file.flag("is_query", true) ? side::query : side::key;
  run(t, axes::bhld, which, [&]<class T>(T, const operand<T>& from) { return favor_weights<T>(t.file, from); });
}

template <class T>
struct favor_pairs_weights {
  projection<T> W;
  tensor<T, 2> c;
  maps::favor_pairs<T> map;
  bool stabilise;

  favor_pairs_weights(const golden_case& file, const operand<T>& from)
      : W(file), map{.W = W.W, .temperature = file.number("softmax_temp")}, stabilise(file.flag("stabilize", false)) {
    if (!stabilise) return;
    c = tensor<T, 2>({from.x().extent(0), from.x().extent(2)});
    maps::stabilisers(map, from.x(), c.all());
    map.query_stabiliser = std::as_const(c).all();
  }
  auto mapped() const {
    return defined_map(map, [m = map, s = stabilise]<class Acc>(const auto& rows, const map_site&) {
      return reference::favor_pairs<Acc>(rows, m.W, m.temperature, s);
    });
  }
  /// c = t max |x_l|² by ∂φ/∂c = −φ: d_x_l −= 2 t x_l Σ φ ⊙ d_φ for the longest row.
  void add_through_table(const view<const T, 4>& x, const view<const T, 4>& d_y, const view<T, 4>& d_x) const {
    if (!stabilise) return;
    tensor<T, 4> y(d_y.extents());
    evaluate(map, x, y.all());
    for (index_t b = 0; b < x.extent(0); ++b) {
      for (index_t h = 0; h < x.extent(2); ++h) {
        index_t longest = 0;
        T d_c(0);
        for (index_t l = 0; l < x.extent(1); ++l) {
          if (testing::norm(x[b][l][h]) > testing::norm(x[b][longest][h])) longest = l;
          for (index_t j = 0; j < y.extent(3); ++j) d_c -= y(b, l, h, j) * d_y(b, l, h, j);
        }
        const T factor = 2 * static_cast<T>(map.t(x.extent(3))) * d_c;
        for (index_t i = 0; i < x.extent(3); ++i) d_x(b, longest, h, i) += factor * x(b, longest, h, i);
      }
    }
  }
};

void run_favor_pairs(trial& t) {
  run(t, axes::blhd, side::query,
      [&]<class T>(T, const operand<T>& from) { return favor_pairs_weights<T>(t.file, from); });
}

template <class T>
struct generalised_weights {
  projection<T> W;
  maps::generalised<T> map;

  generalised_weights(const golden_case& file, double eps, std::optional<double> scale)
      : W(file), map{.W = W.W, .eps = eps, .scale = scale} {}
  auto mapped() const {
    return defined_map(map, [m = map]<class Acc>(const auto& rows, const map_site&) {
      const double s = m.scale.value_or(1 / std::sqrt(std::sqrt(static_cast<double>(rows.extent(1)))));
      return reference::generalised<Acc>(rows, m.W, static_cast<Acc>(s), m.eps);
    });
  }
};

void run_generalised(trial& t) {
  const double eps = t.file.number("kernel_epsilon").value_or(1e-3);
  const auto scale = t.file.flag("normalize_data", true) ? std::optional<double>() : 1.0;
  run(t, axes::bhld, side::query,
      [&]<class T>(T, const operand<T>&) { return generalised_weights<T>(t.file, eps, scale); });
}

void run_generalised_ft(trial& t) {
  const double scale = std::sqrt(t.file.number("softmax_temp").value_or(1));
  run(t, axes::blhd, side::query,
      [&]<class T>(T, const operand<T>&) { return generalised_weights<T>(t.file, 0, scale); });
}

template <class T>
struct fourier_weights {
  projection<T> W;
  maps::random_fourier<T> map;

  explicit fourier_weights(const golden_case& file)
      : W(file), map{.W = W.W, .temperature = file.number("softmax_temp"), .smoothing = file.number("smoothing")} {}
  auto mapped() const {
    return defined_map(map, [m = map]<class Acc>(const auto& rows, const map_site&) {
      return reference::random_fourier<Acc>(rows, m.W, m.temperature, m.smoothing);
    });
  }
};

void run_fourier(trial& t) {
  run(t, axes::blhd, side::query, [&]<class T>(T, const operand<T>&) { return fourier_weights<T>(t.file); });
}

template <class T>
struct rfa_weights {
  projection<T> W;
  maps::random_features<T> map;

  explicit rfa_weights(const golden_case& file)
      : W(file), map{.W = W.W, .normalised = file.flag("normalized", false)} {}
  auto mapped() const {
    return defined_map(map, [m = map]<class Acc>(const auto& rows, const map_site&) {
      return reference::random_features<Acc>(rows, m.W, m.normalised);
    });
  }
};

void run_rfa(trial& t) {
  run(t, axes::rows, side::query, [&]<class T>(T, const operand<T>&) { return rfa_weights<T>(t.file); });
}

/// weight [features, d] and bias [features]: t2r, hedgehog in its two forms. `define(rows, W, b)`.
template <class T, template <class> class Map, class Define>
struct learned_weights {
  tensor<T, 2> W;
  tensor<T, 1> b;
  Map<T> map;
  Define define;

  learned_weights(const golden_case& file, const Define& formula)
      : W(file.get<T, 2>("weight")),
        b(file.get_if<T, 1>("bias")),
        map{.W = std::as_const(W).all(), .b = std::as_const(b).all()},
        define(formula) {}
  auto mapped() const {
    return defined_map(map, [m = map, d = define]<class Acc>(const auto& rows, const map_site&) {
      return d.template operator()<Acc>(rows, m.W, m.b);
    });
  }
};
template <template <class> class Map, class Define>
void run_learned(trial& t, const Define& define) {
  run(t, axes::rows, side::query,
      [&]<class T>(T, const operand<T>&) { return learned_weights<T, Map, Define>(t.file, define); });
}

void run_t2r(trial& t) {
  run_learned<maps::t2r>(
      t, []<class Acc>(const auto& rows, const auto& W, const auto& b) { return reference::t2r<Acc>(rows, W, b); });
}
void run_hedgehog(trial& t) {
  run_learned<maps::hedgehog_softmax>(t, []<class Acc>(const auto& rows, const auto& W, const auto& b) {
    return reference::hedgehog_softmax<Acc>(rows, W, b);
  });
}
void run_hedgehog_exp(trial& t) {
  run_learned<maps::hedgehog>(t, []<class Acc>(const auto& rows, const auto& W, const auto& b) {
    return reference::hedgehog<Acc>(rows, W, b);
  });
}

void run_taylor(trial& t) {
  run_rows(t, defined_map(maps::taylor{},
                          []<class Acc>(const auto& rows, const map_site&) { return reference::taylor<Acc>(rows); }));
}

void run_dpfp_of(trial& t, maps::dpfp_form form) {
  const index_t nu = t.file.integer("nu").value_or(1);
  const bool mirrored = form == maps::dpfp_form::fla;
  run_rows(t, defined_map(maps::dpfp{.nu = nu, .form = form}, [=]<class Acc>(const auto& rows, const map_site&) {
             return reference::dpfp<Acc>(rows, nu, mirrored);
           }));
}
void run_dpfp(trial& t) { run_dpfp_of(t, maps::dpfp_form::paper); }
void run_dpfp_fla(trial& t) { run_dpfp_of(t, maps::dpfp_form::fla); }

void run_cosformer(trial& t) {
  const index_t M = t.file.integer("M").value_or(0);
  const index_t base = t.file.integer("base").value_or(1);
  const defined_map mapped(maps::cosformer{.M = M, .base = base},
                           [=]<class Acc>(const auto& rows, const map_site& first) {
                             return reference::cosformer<Acc>(rows, M, base + first.position);
                           });
  run(t, axes::bld, side::query, [&](auto, const auto&) { return weightless<decltype(mapped)>{mapped}; });
}

const registration all[] = {
    {"fm_elu1", run_elu1},
    {"fm_relu", [](trial& t) { run_rows(t, relu_map); }},
    {"fm_sqrelu", [](trial& t) { run_rows(t, squared_relu_map); }},
    {"fm_favor", run_favor},
    {"fm_favor_ft", run_favor_pairs},
    {"fm_generalized", run_generalised},
    {"fm_generalized_ft", run_generalised_ft},
    {"fm_rff", run_fourier},
    {"fm_rfa", run_rfa},
    {"fm_taylor", run_taylor},
    {"fm_dpfp", run_dpfp},
    {"fm_dpfp_fla", run_dpfp_fla},
    {"fm_cosformer", run_cosformer},
    {"fm_hedgehog", run_hedgehog},
    {"fm_hedgehog_exp", run_hedgehog_exp},
    {"fm_t2r", run_t2r},
};

}  // namespace

}  // namespace ogive::golden

// The adjoint of every map: against central differences in double, float against double within what its roundings can
// do, at sizes that fill no vector, with rows that lie apart; what lies between them must stay, scratch may hold
// anything, and a row must get the same bits alone as among others.
#include <ogive/maps/cosformer.hpp>
#include <ogive/maps/elementwise.hpp>
#include <ogive/maps/learned.hpp>
#include <ogive/maps/polynomial.hpp>
#include <ogive/maps/random.hpp>
#include <ogive/maps/random_features.hpp>
#include <ogive/testing/trials.hpp>

#include <cstring>

#include "tests/catch.hpp"
#include "tests/layers/gradients.hpp"

using namespace ogive;

namespace {

constexpr index_t rows = 5;
constexpr double untouched = -123.25;

struct no_slope {
  template <class X>
  X operator()(X x) const {
    return x * x * x;
  }
};
struct cube : no_slope {
  template <class X>
  X slope(X x) const {
    return X(3) * x * x;
  }
};
struct only_scalars {
  double operator()(double x) const { return x < 2 ? x : 2; }
  double slope(double x) const { return x < 2 ? 1 : 0; }
};
struct no_adjoint {
  index_t features(index_t d) const { return d; }
  template <class Acc>
  void operator()(view<const Acc, 2>, view<Acc, 2>, const map_site&) const {}
};
struct only_float_adjoint : no_adjoint {
  void adjoint(view<const float, 2>, view<const float, 2>, view<float, 2>, view<float, 2>, const map_site&) const {}
};

static_assert(explain_differentiable_map<cube>() && explain_differentiable_map<only_scalars>());
static_assert(feature_map<no_slope> && !differentiable_map<no_slope>);
static_assert(feature_map<no_adjoint> && !differentiable_map<no_adjoint> && !differentiable_map<only_float_adjoint>);
static_assert(differentiable_map<maps::generalised<float, cube>> && feature_map<maps::generalised<float, no_slope>> &&
              !differentiable_map<maps::generalised<float, no_slope>>);

/// Rows of x and d_y that float holds, a little apart in memory.
struct fixture {
  index_t d;
  testing::rng random;
  tensor<float, 2> memory;
  view<float, 2> x;

  fixture(index_t size, std::uint64_t seed)
      : d(size), random(seed), memory({rows, size + 3}, float(untouched)), x(memory.all().slice(1, 0, size)) {
    draw(x);
  }
  /// Away from the kink of relu, farther than differences reach.
  void draw(const view<float, 2>& some) {
    testing::fill_normal(random, some);
    testing::for_each(some, [](float& number, index_t) { number += number < 0 ? -0.02F : 0.02F; });
  }

  tensor<float, 2> weights(index_t features, index_t width) {
    tensor<float, 2> W({features, width});
    testing::fill_normal(random, W.all());
    return W;
  }
  tensor<float, 1> vector(index_t size) {
    tensor<float, 1> v({size});
    testing::fill_normal(random, v.all());
    return v;
  }
  /// Draws rows again until no argument x Wᵀ + b is where differences would step over 0.
  void avoid_kinks(const view<const float, 2>& W, const view<const float, 1>& b = {}) {
    for (index_t r = 0; r < rows; ++r) {
      for (index_t j = 0; j < W.extent(0); ++j) {
        double argument = b.present() ? b(j) : 0;
        for (index_t i = 0; i < d; ++i) argument += double(W(j, i)) * double(x(r, i));
        if (std::fabs(argument) > 0.01 * testing::norm(W[j]) * (1 + testing::norm(x[r]))) continue;
        draw(x.slice(0, r, 1));
        j = -1;
      }
    }
  }
  double widest_row() const {
    double widest = 0;
    for (index_t r = 0; r < rows; ++r) widest = std::max(widest, testing::norm(x[r]));
    return widest;
  }
};

/// x as Acc, with as much room between rows.
template <class Acc>
struct widened {
  tensor<Acc, 2> memory;
  view<Acc, 2> rows_apart;

  explicit widened(const view<const float, 2>& x)
      : memory({x.extent(0), x.extent(1) + 3}, Acc(untouched)), rows_apart(memory.all().slice(1, 0, x.extent(1))) {
    testing::for_each(
        rows_apart, [&](Acc& number, index_t at) { number = static_cast<Acc>(x(at / x.extent(1), at % x.extent(1))); });
  }
};

template <class Acc, differentiable_map Map>
tensor<Acc, 2> pulled(const Map& map, const view<const float, 2>& x_given, const view<const float, 2>& d_given,
                      const map_site& first) {
  const widened<Acc> x(x_given), d_y(d_given);
  const index_t n = x_given.extent(0);
  const index_t d = x_given.extent(1);
  const Acc nan = std::numeric_limits<Acc>::quiet_NaN();
  tensor<Acc, 2> room({n, adjoint_room(map, d) + 1}, nan), memory({n, d + 5}, Acc(untouched)), d_x({n, d});
  const view<Acc, 2> out = memory.all().slice(1, 0, d);
  testing::for_each(out, [&](Acc& number, index_t) { number = nan; });
  apply_adjoint<Acc>(map, x.rows_apart, d_y.rows_apart, out, room.all().slice(1, 0, adjoint_room(map, d)), first);
  for (index_t r = 0; r < n; ++r) {
    for (index_t i = 0; i < d; ++i) d_x(r, i) = memory(r, i);
    for (index_t i = d; i < d + 5; ++i) CHECK(memory(r, i) == Acc(untouched));
    CHECK(std::isnan(room(r, adjoint_room(map, d))));
  }
  return d_x;
}

/// How far float may be from double.
struct allowance {
  double error;  ///< relative to
  double size;   ///< what bounds the terms of d_x, times the norm of a row of d_y
};

/// Against differences where there is a definition to differentiate, and float against double.
template <differentiable_map Map>
void check(const char* name, const Map& map, fixture& f, const allowance& allowed, const map_site& first = {},
           bool differences = true) {
  INFO(name << ", d = " << f.d);
  const index_t K = features(map, f.d);
  REQUIRE(check_map(map, f.d));
  tensor<float, 2> d_y = f.weights(rows, K);
  const auto exact = pulled<double>(map, f.x, d_y.all(), first);
  if (differences) {
    const widened<double> x(f.x), d(d_y.all());
    tensor<double, 2> y({rows, K});
    tests::check_gradient("d_x", x.rows_apart, exact.all(), [&] {
      apply_map<double>(map, x.rows_apart, y.all(), first);
      return tests::loss().add(y.all(), d.rows_apart);
    });
  }
  const auto d_x = pulled<float>(map, f.x, d_y.all(), first);
  double longest = 0;
  for (index_t r = 0; r < rows; ++r) longest = std::max(longest, testing::norm(d_y.all()[r]));
  CHECK(testing::compare(d_x.all(), exact.all(), allowed.error, {.scale = allowed.size * longest}));
  for (index_t r = 0; r < rows; ++r) {
    map_site here = first;
    here.position += r;
    const auto alone = pulled<float>(map, f.x.slice(0, r, 1), d_y.all().slice(0, r, 1), here);
    CHECK(std::memcmp(alone.data(), &d_x(r, 0), static_cast<std::size_t>(f.d) * sizeof(float)) == 0);
  }
}

template <feature_map Map>
double largest_feature(const Map& map, const fixture& f, const map_site& first = {}) {
  const widened<double> x(f.x);
  tensor<double, 2> y({rows, features(map, f.d)});
  apply_map<double>(map, x.rows_apart, y.all(), first);
  return testing::max_abs(y.all());
}

double few() { return testing::tolerance<float>(6); }
double rounding(index_t length) { return testing::tolerance<float>(length); }

double widest_row(const view<const float, 2>& W) {
  double widest = 0;
  for (index_t j = 0; j < W.extent(0); ++j) widest = std::max(widest, testing::norm(W[j]));
  return widest;
}

const auto sizes = {1, 3, 7, 33};

}  // namespace

TEST_CASE("slopes of elementwise maps") {
  OGIVE_SEED(seed, 2);
  fixture f(GENERATE(from_range(sizes)), seed);
  const double growth = std::exp(testing::max_abs(f.x));
  check("identity", maps::identity{}, f, {0, 1});
  check("elu1", maps::elu1{}, f, {few(), 1});
  check("relu", maps::relu{}, f, {0, 1});
  check("squared relu", maps::squared_relu{}, f, {few(), 2 * testing::max_abs(f.x)});
  check("exponential", maps::exponential{}, f, {few(), growth});
  check("a map of one's own", cube{}, f, {few(), 3 * std::pow(testing::max_abs(f.x), 2)});
  check("softmax", maps::softmax{}, f, {2 * testing::tolerance<float>(f.d + 4, 1 + f.widest_row()) + rounding(f.d), 2});
}

TEMPLATE_TEST_CASE("slopes keep relative accuracy at both ends", "", float, double) {
  using Acc = TestType;
  constexpr Acc inf = std::numeric_limits<Acc>::infinity();
  const Acc lowest = std::log(std::numeric_limits<Acc>::min());
  for (Acc x = lowest; x < 0; x += Acc(0.37)) {
    const double exact = std::exp(static_cast<double>(x));
    CHECK(std::abs(static_cast<double>(maps::elu1{}.slope(x)) - exact) <= testing::tolerance<Acc>(2) * exact);
    CHECK(std::abs(static_cast<double>(maps::exponential{}.slope(x)) - exact) <= testing::tolerance<Acc>(2) * exact);
  }
  const Acc largest = std::numeric_limits<Acc>::max();
  CHECK(maps::elu1{}.slope(largest) == 1);
  CHECK(maps::elu1{}.slope(inf) == 1);
  CHECK(maps::elu1{}.slope(Acc(0)) == 1);
  CHECK(maps::elu1{}.slope(-inf) == 0);
  CHECK(std::isnan(maps::elu1{}.slope(std::numeric_limits<Acc>::quiet_NaN())));
  for (const Acc x : {Acc(0), -Acc(0), -std::numeric_limits<Acc>::min(), -inf}) {
    CHECK(maps::relu{}.slope(x) == 0);
    CHECK(maps::squared_relu{}.slope(x) == 0);
  }
  CHECK(maps::relu{}.slope(std::numeric_limits<Acc>::denorm_min()) == 1);
  CHECK(maps::relu{}.slope(inf) == 1);
  CHECK(maps::squared_relu{}.slope(Acc(1e30)) == Acc(2e30));

  // Whole vectors and tails give the bits of single numbers.
  const auto n = GENERATE(range<index_t>(0, 40));
  std::vector<Acc> x(static_cast<std::size_t>(n)), d_y(x.size(), Acc(3)), d_x(x.size());
  for (index_t i = 0; i < n; ++i) x[static_cast<std::size_t>(i)] = Acc(0.25) * static_cast<Acc>(i) - 5;
  const auto pull = [&](std::vector<Acc>& to) {
    apply_adjoint<Acc>(maps::elu1{}, view<const Acc, 2>(x, {1, n}), view<const Acc, 2>(d_y, {1, n}),
                       view<Acc, 2>(to, {1, n}), {}, {});
  };
  pull(d_x);
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(d_x[i] == maps::elu1{}.slope(x[i]) * 3);
  pull(x);
  CHECK(x == d_x);
}

TEST_CASE("adjoints of polynomial maps and of cosFormer") {
  OGIVE_SEED(seed, 3);
  fixture f(GENERATE(from_range(sizes)), seed);
  const double d = static_cast<double>(f.d);
  const double length = f.widest_row();
  const double largest = testing::max_abs(f.x);
  const double s = 1 / std::sqrt(d);
  const double products = rounding(f.d + 6);
  check("taylor", maps::taylor{}, f, {products, std::sqrt(s) + 3 * s * length});
  check("taylor, scaled", maps::taylor{.scale = 0.7}, f, {products, 1 + 3 * length});
  check("rebased, plain", maps::rebased<float>{.normalise = false}, f, {products, 3 * s * length});

  // The mean is off by what its sum rounds, which the quotient enlarges; so is u, which the products take twice.
  const tensor<float, 1> gamma = f.vector(f.d), beta = f.vector(f.d);
  const view<const float, 1> g(gamma), b(beta);
  // An ε that differences can live with: a row of three may be nearly constant.
  const double eps = 0.25;
  double steepest = 0;
  for (index_t r = 0; r < rows; ++r) {
    double mean = 0, square = 0;
    for (index_t i = 0; i < f.d; ++i) mean += double(f.x(r, i)) / d;
    for (index_t i = 0; i < f.d; ++i) square += std::pow(double(f.x(r, i)) - mean, 2) / d;
    steepest = std::max(steepest, 1 / std::sqrt(square + eps));
  }
  const double u = testing::norm(g) * std::sqrt(d) + testing::norm(b);
  check("rebased", maps::rebased<float>{.gamma = g, .beta = b, .eps = eps}, f,
        {4 * rounding(2 * f.d + 12) * (1 + largest * steepest), steepest * 3 * testing::max_abs(g) * 3 * s * u});

  for (index_t nu = 1; nu <= 4; ++nu) {
    const double size = 2 * static_cast<double>(nu) * largest;
    check("dpfp", maps::dpfp{.nu = nu}, f, {rounding(2 * nu + 2), size});
    check("dpfp of fla", maps::dpfp{.nu = nu, .form = maps::dpfp_form::fla}, f, {rounding(2 * nu + 2), 2 * size});
  }
  check("cosformer", maps::cosformer{.M = 40}, f, {few(), 2}, {.position = 5});
  check("cosformer from 0", maps::cosformer{.M = rows, .base = 0}, f, {few(), 2});
}

TEST_CASE("adjoints of learned maps, whatever the layout and type of the weights") {
  OGIVE_SEED(seed, 4);
  fixture f(GENERATE(from_range(sizes)), seed);
  const index_t M = GENERATE(1, 5, 40);
  tensor<float, 2> rowwise = f.weights(M, f.d);
  const tensor<float, 1> bias = f.vector(M);
  const view<const float, 1> b(bias), none;
  tensor<float, 2> columnwise({M, f.d}, {1, M}, 0.0F);
  tensor<double, 2> wide({M, f.d});
  for (index_t j = 0; j < M; ++j)
    for (index_t i = 0; i < f.d; ++i) columnwise(j, i) = rowwise(j, i), wide(j, i) = rowwise(j, i);
  const view<const float, 2> W(rowwise), turned(columnwise);

  const double all = testing::norm(W);
  const double sum = rounding(M + 2);
  f.avoid_kinks(W, b);
  check("t2r", maps::t2r<float>{W, b}, f, {sum, all});
  check("t2r, turned", maps::t2r<float>{turned, b}, f, {sum, all});
  f.avoid_kinks(W);
  check("t2r in double", maps::t2r<double>{wide, {}}, f, {sum, all});

  // Weights so small that the fifth derivatives of exponentials are of the size of the others.
  const auto shrink = [&](double by) {
    for (float& weight : rowwise.flat()) weight /= static_cast<float>(by);
  };
  shrink(2 * widest_row(W));
  const double largest = f.widest_row() * widest_row(W) + testing::max_abs(b);
  const double error = testing::tolerance<float>(f.d + 1, largest);
  const maps::hedgehog_softmax<float> normalised{W, b};
  check("hedgehog, softmax", normalised, f, {8 * error + rounding(3 * M + 8), 8 * testing::norm(W)});
  shrink(largest);
  const maps::hedgehog<float> plain{W, none}, shifted{W, b};
  const double size = 2 * testing::norm(W);
  check("hedgehog", plain, f, {rounding(f.d + 1) + few() + sum, largest_feature(plain, f) * size});
  check("hedgehog, b", shifted, f, {error + few() + sum, largest_feature(shifted, f) * size});
}

TEMPLATE_TEST_CASE("gradients of learned weights, whatever their layout, over tensors of any strides", "",
                   maps::t2r<double>, maps::hedgehog<double>, maps::hedgehog_softmax<double>) {
  OGIVE_SEED(seed, 9);
  testing::rng random(seed);
  const index_t B = 2, L = 70, H = 3, d = 5, M = GENERATE(1, 7, 18);
  tensor<double, 4> x({B, H, L, d}), d_x({B, L, H, d});
  tensor<double, 2> W({M, d}, {1, M}, 0.0), d_W({d, M}, untouched);
  tensor<double, 1> b({M}), d_b({M}, untouched);
  for (double& number : x.flat()) number = random.uniform(-1, 1);
  for (index_t j = 0; j < M; ++j) {
    for (index_t i = 0; i < d; ++i) W(j, i) = random.uniform(-0.2, 0.2);
    b(j) = j % 2 == 0 ? 1.1 : -1.1;  // the kink of relu is out of reach
  }
  const TestType map{std::as_const(W).all(), std::as_const(b).all()};
  tensor<double, 4> y({B, L, H, features(map, d)}), d_y(y.extents());
  testing::fill_normal(random, d_y.all());
  const view<double, 4> seen = from_bhld(x.all());
  const auto loss = [&] {
    evaluate(map, seen, y.all());
    return tests::loss().add(y.all(), d_y.all());
  };
  const view<double, 2> turned = d_W.all().permute({1, 0});
  const map_gradient<TestType> wanted{.W = turned, .b = d_b.all()};
  evaluate_adjoint(map, seen, d_y.all(), d_x.all(), wanted);
  tests::check_gradient("W", W.all(), turned, loss);
  tests::check_gradient("b", b.all(), d_b.all(), loss);
  const tensor<double, 2> once = d_W;
  const testing::thread_pool pool;
  context forked = context::fork_join(pool, 3);
  evaluate_adjoint(map, seen, d_y.all(), view<double, 4>(), wanted, {}, {}, forked);
  CHECK(testing::flatten(d_W.all()) == testing::flatten(once.all()));
  const tensor<double, 4> d_x_once = d_x;
  evaluate_adjoint(map, seen, d_y.all(), d_x.all(), wanted, {}, {.accumulate = true});
  for (index_t j = 0; j < d_x.all().size(); ++j) CHECK(d_x.data()[j] == 2 * d_x_once.data()[j]);
  std::vector<double> twice = testing::flatten(once.all());
  for (double& number : twice) number *= 2;
  const double largest = testing::max_abs(once.all());
  CHECK(testing::compare(testing::flatten(d_W.all()), twice, testing::tolerance<double>(8), {.scale = largest}));

  const TestType without{std::as_const(W).all(), {}};
  CHECK_THROWS_AS(evaluate_adjoint(without, seen, d_y.all(), d_x.all(), wanted), shape_error);
  CHECK_THROWS_AS(evaluate_adjoint(map, seen, d_y.all(), d_x.all(), {.W = d_W.all().slice(0, 0, 1)}), shape_error);
}

TEST_CASE("adjoints of random features") {
  OGIVE_SEED(seed, 5);
  fixture f(GENERATE(from_range(sizes)), seed);
  const index_t M = GENERATE(1, 6, 37);
  const tensor<float, 2> orthogonal = maps::orthogonal_projection<float>(M, f.d, seed + 1);
  const view<const float, 2> W(orthogonal);
  f.avoid_kinks(W);
  const double d = static_cast<double>(f.d);
  const double length = f.widest_row();
  const double all = testing::norm(W);
  const double sum = rounding(2 * M + 4);
  const map_site keys{.which = side::key};

  // The exponent's rounding error is the relative error of a feature; φ = exp(w·s x − s²|x|²/2 …) has the slopes
  // φ (s w − s² x).
  const auto exponent_error = [&](double s) {
    return testing::tolerance<float>(f.d + 4, 3 * s * length * widest_row(W) + s * s * length * length) + few();
  };
  const auto slopes = [&](double s) { return 2 * s * all + std::sqrt(2.0 * static_cast<double>(M)) * s * s * length; };
  const double s = 1 / std::sqrt(std::sqrt(d));
  for (const double eps : {0.0, 1e-4}) {
    const maps::favor<float> favor{.W = W, .eps = eps};
    check("favor, keys", favor, f, {exponent_error(s) + sum, largest_feature(favor, f, keys) * slopes(s)}, keys);
    // The stabiliser is a constant, which differences do not know.
    check("favor, queries", favor, f, {exponent_error(s) + sum, largest_feature(favor, f) * slopes(s)}, {}, false);
  }
  const maps::favor<float> shifted{.W = W, .eps = 0, .key_shift = 2};
  check("favor, shifted", shifted, f, {exponent_error(s) + sum, largest_feature(shifted, f, keys) * slopes(s)}, keys);
  const maps::favor_pairs<float> pairs{.W = W}, warm{.W = W, .temperature = 0.3};
  check("pairs", pairs, f, {exponent_error(s) + sum, largest_feature(pairs, f) * slopes(s)});
  const double root = std::sqrt(0.3);
  check("pairs, t", warm, f, {exponent_error(root) + sum, largest_feature(warm, f) * slopes(root)}, keys);

  check("generalised", maps::generalised<float>{.W = W}, f, {sum, s * all});
  check("generalised, no W", maps::generalised<float>{.scale = 0.7}, f, {few(), 1});
  const maps::generalised<float, maps::exponential> smooth{.W = W, .eps = 0, .scale = 0.3};
  check("generalised exp", smooth, f, {exponent_error(0.3) + sum, largest_feature(smooth, f) * 0.3 * all});

  const double projected = testing::tolerance<float>(f.d + 2, length, widest_row(W)) + few() + sum;
  const double norm = 1 / std::sqrt(static_cast<double>(M));
  check("fourier", maps::random_fourier<float>{.W = W}, f, {projected, 2 * norm * all});
  check("fourier, smoothed", maps::random_fourier<float>{.W = W, .temperature = 0.3, .smoothing = 0.5}, f,
        {projected, 2 * norm * all});
  // Rows of length one at least: the direction of a short one turns faster than differences follow.
  for (index_t r = 0; r < rows; ++r) {
    const double size = testing::norm(f.x[r]);
    for (index_t i = 0; i < f.d; ++i) f.x(r, i) /= static_cast<float>(std::min(size, 1.0));
  }
  check("rfa of directions", maps::random_features<float>{.W = W, .normalised = true}, f,
        {projected + 2 * rounding(f.d + 4), 4 * norm * all});

  // Rows of length one at most, so that no exponential leaves the range of float.
  const double longest = f.widest_row();
  for (float& number : f.memory.flat()) number /= static_cast<float>(longest);
  const double short_error = 2 * testing::tolerance<float>(f.d + 4, 1 + widest_row(W)) + few() + sum;
  const double slope = 2 * all + std::sqrt(2.0 * static_cast<double>(M));
  const maps::random_features<float> rfa{.W = W};
  check("rfa", rfa, f, {short_error, largest_feature(rfa, f) * slope});
  const maps::favor<float> as_given{.W = W, .normalise_data = false, .stabilise_queries = false};
  check("favor of data as given", as_given, f, {short_error, largest_feature(as_given, f) * slope});
}

TEST_CASE("FAVOR+: a query's stabiliser is a constant of the adjoint, wherever x is") {
  OGIVE_SEED(seed, 6);
  fixture f(19, seed);
  const index_t M = 23;
  const tensor<float, 2> orthogonal = maps::orthogonal_projection<float>(M, f.d, seed + 1);
  const tensor<float, 2> d_y = f.weights(1, M);
  const double s = 1 / std::sqrt(std::sqrt(static_cast<double>(f.d)));
  for (const float size : {1e-20F, 1.0F, 5.0F, 1e3F}) {
    fixture sized = f;
    const view<float, 2> x = sized.memory.all().slice(1, 0, f.d).slice(0, 0, 1);
    testing::for_each(x, [&](float& number, index_t) { number *= size; });
    double c = -std::numeric_limits<double>::infinity();
    for (index_t j = 0; j < M; ++j) {
      double wx = 0;
      for (index_t i = 0; i < f.d; ++i) wx += double(orthogonal(j, i)) * double(x(0, i));
      c = std::max(c, s * wx);
    }
    const maps::favor<float> query{.W = orthogonal}, key{.W = orthogonal, .key_shift = c};
    const auto by_query = pulled<double>(query, x, d_y.all(), {});
    const auto by_key = pulled<double>(key, x, d_y.all(), {.which = side::key});
    const double exponents = 1 + s * testing::norm(x) * (3 * widest_row(orthogonal) + s * testing::norm(x));
    CHECK(testing::compare(by_query.all(), by_key.all(), testing::tolerance<double>(4 * f.d, exponents)));
    const auto narrow = pulled<float>(query, x, d_y.all(), {});
    for (const float number : narrow.flat()) CHECK(std::isfinite(number));
  }
}

TEST_CASE("a projection of more numbers than fit on the stack at once is turned back the same") {
  OGIVE_SEED(seed, 7);
  fixture f(1100, seed);
  tensor<float, 2> W({4200, f.d}, {1, 4200}, 0.0F);
  testing::fill_normal(f.random, W.all());
  check("t2r", maps::generalised<float, maps::identity>{.W = W, .scale = 1}, f,
        {rounding(W.extent(0) + 2), testing::norm(W.all())}, {}, false);
}

TEST_CASE("a row of zeros has no direction: the adjoint of RFA there is 0") {
  fixture f(9, 1);
  testing::for_each(f.x, [](float& number, index_t) { number = 0; });
  const tensor<float, 2> W = f.weights(4, f.d), d_y = f.weights(rows, 8);
  const auto d_x = pulled<float>(maps::random_features<float>{.W = W, .normalised = true}, f.x, d_y.all(), {});
  for (const float number : d_x.flat()) CHECK(number == 0);
}

TEMPLATE_TEST_CASE("evaluate_adjoint pulls tensors of any strides and storage back", "", float, double, bfloat16,
                   float16) {
  using T = TestType;
  using Acc = accum_t<T>;
  const index_t B = 2, L = 70, H = 3, d = 5;
  OGIVE_SEED(seed, 8);
  testing::rng random(seed);
  const maps::cosformer map{.M = 100};
  tensor<T, 4> x({B, H, L, d}), d_y({B, L, H, 2 * d}), d_x({B, L, H, d}), turned({d, H, L, B});
  testing::fill_normal(random, x.all());
  testing::fill_normal(random, d_y.all());
  const view<const T, 4> seen = from_bhld(view<T, 4>(x));
  const map_site first{.position = 7, .which = side::key};
  evaluate_adjoint(map, seen, d_y.all(), d_x.all(), first);
  evaluate_adjoint(map, seen, d_y.all(), turned.all().permute({3, 2, 1, 0}), first);
  tensor<Acc, 2> row({1, d}), d_row({1, 2 * d}), expected({1, d});
  for (index_t b = 0; b < B; ++b)
    for (index_t t = 0; t < L; ++t)
      for (index_t h = 0; h < H; ++h) {
        for (index_t i = 0; i < d; ++i) row(0, i) = static_cast<Acc>(seen(b, t, h, i));
        for (index_t i = 0; i < 2 * d; ++i) d_row(0, i) = static_cast<Acc>(d_y(b, t, h, i));
        apply_adjoint<Acc>(map, std::as_const(row).all(), std::as_const(d_row).all(), expected.all(), {},
                           {.position = 7 + t, .which = side::key});
        for (index_t i = 0; i < d; ++i) {
          CHECK(static_cast<Acc>(d_x(b, t, h, i)) == static_cast<Acc>(static_cast<T>(expected(0, i))));
          CHECK(static_cast<Acc>(d_x(b, t, h, i)) == static_cast<Acc>(turned(i, h, t, b)));
        }
      }
}

TEST_CASE("evaluate_adjoint refuses what does not fit before anything is written") {
  tensor<float, 4> x({1, 2, 3, 4}), d_y({1, 2, 3, 5}), d_x({1, 2, 3, 4}, 9.0F);
  const auto refused = [&](const auto& map, const view<float, 4>& pushed, const view<float, 4>& to) {
    try {
      evaluate_adjoint(map, x, pushed, to);
    } catch (const shape_error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK_THAT(refused(maps::relu{}, d_y.all(), d_x.all()),
             tests::ContainsSubstring("d_y has shape [1, 2, 3, 5], expected [1, 2, 3, 4]"));
  CHECK_THAT(refused(maps::relu{}, x.all(), d_y.all()),
             tests::ContainsSubstring("d_x has shape [1, 2, 3, 5], expected [1, 2, 3, 4]"));
  CHECK_THAT(refused(maps::favor<float>{}, x.all(), d_x.all()), tests::ContainsSubstring("W is absent"));
  CHECK(d_x(0, 1, 2, 3) == 9.0F);
  tensor<float, 4> none({2, 0, 3, 4}), of_none({2, 0, 3, 15});
  CHECK_NOTHROW(evaluate_adjoint(maps::taylor{}, none, of_none, none.all()));
}

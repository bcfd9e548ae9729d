// Every map against its definition in double, in both precisions, at sizes that fill no vector, with rows that lie
// apart; what lies between them must stay, and a row must get the same bits alone as among others.
#include <ogive/maps/cosformer.hpp>
#include <ogive/maps/elementwise.hpp>
#include <ogive/maps/learned.hpp>
#include <ogive/maps/polynomial.hpp>
#include <ogive/maps/random.hpp>
#include <ogive/maps/random_features.hpp>
#include <ogive/reference/feature_maps.hpp>
#include <ogive/testing/compare.hpp>

#include <cstring>

#include "tests/catch.hpp"

using namespace ogive;

namespace {

constexpr index_t rows = 11;

/// The value that marks memory no map may write.
template <class Acc>
constexpr Acc untouched = Acc(-123.25);

/// x [rows, d] with three more numbers between rows.
template <class Acc>
struct fixture {
  index_t d;
  testing::rng random;
  tensor<Acc, 2> memory;
  view<Acc, 2> x;

  fixture(index_t size, std::uint64_t seed)
      : d(size), random(seed), memory({rows, size + 3}, untouched<Acc>), x(memory.all().slice(1, 0, size)) {
    testing::fill_normal(random, x);
  }

  tensor<Acc, 2> weights(index_t features, index_t width) {
    tensor<Acc, 2> W({features, width});
    testing::fill_normal(random, W.all());
    return W;
  }
  tensor<Acc, 1> vector(index_t size) {
    tensor<Acc, 1> v({size});
    testing::fill_normal(random, v.all());
    return v;
  }
  double widest_row() const {
    double widest = 0;
    for (index_t r = 0; r < rows; ++r) widest = std::max(widest, testing::norm(x[r]));
    return widest;
  }
};

template <class Acc>
double widest_row(const view<const Acc, 2>& W) {
  double widest = 0;
  for (index_t j = 0; j < W.extent(0); ++j) widest = std::max(widest, testing::norm(W[j]));
  return widest;
}

template <class Acc, feature_map Map>
void check(const Map& map, const fixture<Acc>& f, const tensor<double, 2>& expected, double bound,
           const testing::measure& how = {}, const map_site& first = {}) {
  const index_t K = features(map, f.d);
  REQUIRE(expected.extents() == shape<2>{rows, K});
  REQUIRE(check_map(map, f.d));
  tensor<Acc, 2> memory({rows, K + 5}, untouched<Acc>);
  const view<Acc, 2> y = memory.all().slice(1, 0, K);
  apply_map<Acc>(map, f.x, y, first);
  CHECK(testing::compare(y, expected.all(), bound, how));
  for (index_t r = 0; r < rows; ++r)
    for (index_t j = K; j < K + 5; ++j) CHECK(memory(r, j) == untouched<Acc>);

  std::vector<Acc> alone(static_cast<std::size_t>(K));
  for (index_t r = 0; r < rows; ++r) {
    map_site here = first;
    here.position += r;
    apply_map<Acc>(map, f.x.slice(0, r, 1), view<Acc, 2>(alone, {1, K}), here);
    CHECK(std::memcmp(alone.data(), y.pointer(r, 0), alone.size() * sizeof(Acc)) == 0);
  }
}

const auto sizes = {1, 3, 7, 33, 130};

}  // namespace

TEMPLATE_TEST_CASE("elementwise maps are their definitions", "", float, double) {
  using Acc = TestType;
  OGIVE_SEED(seed, 2);
  fixture<Acc> f(GENERATE(from_range(sizes)), seed);
  const view<const Acc, 2> x = f.x;
  const testing::measure each{.rule = testing::rule::elementwise_rel};
  check(maps::identity{}, f, reference::identity<double>(x), 0, each);
  check(maps::relu{}, f, reference::relu<double>(x), 0, each);
  check(maps::squared_relu{}, f, reference::squared_relu<double>(x), testing::tolerance<Acc>(1), each);
  check(maps::elu1{}, f, reference::elu1<double>(x), testing::tolerance<Acc>(2), each);
  check(maps::exponential{}, f, reference::exponential<double>(x), testing::tolerance<Acc>(2), each);
}

TEMPLATE_TEST_CASE("elu1 keeps relative accuracy however negative x is, and the edges", "", float, double) {
  using Acc = TestType;
  const Acc lowest = std::log(std::numeric_limits<Acc>::min());
  for (Acc x = lowest; x < 0; x += Acc(0.37)) {
    const double exact = std::exp(static_cast<double>(x));
    CHECK(std::abs(static_cast<double>(maps::elu1{}(x)) - exact) <= testing::tolerance<Acc>(2) * exact);
  }
  constexpr Acc inf = std::numeric_limits<Acc>::infinity();
  CHECK(maps::elu1{}(Acc(0)) == 1);
  CHECK(maps::elu1{}(-inf) == 0);
  CHECK(maps::elu1{}(inf) == inf);
  CHECK(std::isnan(maps::elu1{}(std::numeric_limits<Acc>::quiet_NaN())));
  CHECK(std::isnan(maps::relu{}(std::numeric_limits<Acc>::quiet_NaN())));
  CHECK(maps::squared_relu{}(-inf) == 0);
}

TEMPLATE_TEST_CASE("polynomial maps are their definitions", "", float, double) {
  using Acc = TestType;
  OGIVE_SEED(seed, 3);
  fixture<Acc> f(GENERATE(from_range(sizes)), seed);
  const view<const Acc, 2> x = f.x;
  check(maps::taylor{}, f, reference::taylor<double>(x), testing::tolerance<Acc>(4));
  check(maps::rebased<Acc>{.normalise = false}, f, reference::rebased<double>(x, false), testing::tolerance<Acc>(4));

  const tensor<Acc, 1> gamma = f.vector(f.d), beta = f.vector(f.d);
  const view<const Acc, 1> g(gamma), b(beta);
  // The mean, the variance and the quotient: 2 d + 8 roundings of terms no larger than the norms.
  const double norms = 1 + (1 + testing::norm(g)) * std::sqrt(static_cast<double>(f.d)) + testing::norm(b);
  const testing::measure scale{.scale = norms * norms};
  const maps::rebased<Acc> normalised{.gamma = g, .beta = b};
  check(normalised, f, reference::rebased<double, const Acc, Acc>(x, true, g, b),
        testing::tolerance<Acc>(2 * f.d + 8) * std::sqrt(f.widest_row() / std::sqrt(normalised.eps)), scale);

  for (index_t nu = 1; nu <= 3; ++nu) {
    check(maps::dpfp{.nu = nu}, f, reference::dpfp<double>(x, nu), testing::tolerance<Acc>(1));
    check(maps::dpfp{.nu = nu, .form = maps::dpfp_form::fla}, f, reference::dpfp<double>(x, nu, true),
          testing::tolerance<Acc>(1));
  }
  CHECK_FALSE(check_map(maps::dpfp{.nu = 0}, f.d));
}

TEMPLATE_TEST_CASE("products of polynomial features are polynomials of q.k", "", float, double) {
  using Acc = TestType;
  OGIVE_SEED(seed, 4);
  fixture<Acc> f(GENERATE(from_range(sizes)), seed);
  const auto product = [&](const auto& map) {
    const index_t K = features(map, f.d);
    tensor<Acc, 2> y({rows, K});
    apply_map<Acc>(map, f.x, y.all(), {});
    double sum = 0;
    for (index_t j = 0; j < K; ++j) sum += static_cast<double>(y(0, j)) * static_cast<double>(y(1, j));
    return sum;
  };
  double dot = 0;
  for (index_t i = 0; i < f.d; ++i) dot += static_cast<double>(f.x(0, i)) * static_cast<double>(f.x(1, i));
  const double s = 0.7;
  const double norms = 1 + s * f.widest_row() * f.widest_row();
  const double bound = testing::tolerance<Acc>(8, norms, norms);
  CHECK(std::abs(product(maps::taylor{.scale = s}) - (1 + s * dot + s * s * dot * dot / 2)) <= bound);
  CHECK(std::abs(product(maps::rebased<Acc>{.normalise = false, .scale = s}) - s * s * dot * dot) <= bound);
}

TEMPLATE_TEST_CASE("cosFormer knows its position", "", float, double) {
  using Acc = TestType;
  OGIVE_SEED(seed, 5);
  fixture<Acc> f(GENERATE(from_range(sizes)), seed);
  const view<const Acc, 2> x = f.x;
  check(maps::cosformer{.M = 40}, f, reference::cosformer<double>(x, 40, 5 + 1), testing::tolerance<Acc>(2), {},
        {.position = 5});
  check(maps::cosformer{.M = rows, .base = 0}, f, reference::cosformer<double>(x, rows, 0), testing::tolerance<Acc>(2));
  CHECK_FALSE(check_map(maps::cosformer{}, f.d));
}

TEMPLATE_TEST_CASE("learned maps are their definitions, whatever the layout and type of the weights", "", float,
                   double) {
  using Acc = TestType;
  OGIVE_SEED(seed, 6);
  fixture<Acc> f(GENERATE(from_range(sizes)), seed);
  const index_t M = GENERATE(1, 5, 40);
  const view<const Acc, 2> x = f.x;
  tensor<Acc, 2> rowwise = f.weights(M, f.d);
  const tensor<Acc, 1> bias = f.vector(M);
  tensor<Acc, 2> columnwise({M, f.d}, {1, M}, Acc(0));
  tensor<double, 2> wide({M, f.d});
  tensor<float, 2> narrow({M, f.d});
  for (index_t j = 0; j < M; ++j)
    for (index_t i = 0; i < f.d; ++i) {
      columnwise(j, i) = rowwise(j, i);
      wide(j, i) = rowwise(j, i);
      narrow(j, i) = static_cast<float>(rowwise(j, i));
    }
  const view<Acc, 2> W(rowwise), turned(columnwise);
  const view<const Acc, 1> b(bias);

  // y = x Wᵀ + b is off by at most `error`, relative to 1.
  const double largest = f.widest_row() * widest_row<Acc>(W) + testing::max_abs(b);
  const double error = testing::tolerance<Acc>(f.d + 1, largest);
  const testing::measure unit{.scale = 1};
  const testing::measure each{.rule = testing::rule::elementwise_rel};
  const double few = testing::tolerance<Acc>(4);
  const auto relu = reference::t2r<double>(x, W, b);
  check(maps::t2r<Acc>{W, b}, f, relu, error, unit);
  check(maps::t2r<Acc>{turned, b}, f, relu, error, unit);
  check(maps::t2r<double>{wide, {}}, f, reference::t2r<double>(x, W), error, unit);
  check(maps::t2r<float>{narrow, {}}, f, reference::t2r<double>(x, narrow.all()), error, unit);

  // Its exponential is off by that much relative to itself.
  tensor<Acc, 2> small = rowwise;
  for (Acc& weight : small.flat()) weight /= static_cast<Acc>(largest);
  const view<Acc, 2> S(small);
  const view<const Acc, 1> none;
  check(maps::hedgehog<Acc>{S, none}, f, reference::hedgehog<double>(x, S), testing::tolerance<Acc>(f.d + 1) + few,
        each);
  check(maps::hedgehog<Acc>{S, b}, f, reference::hedgehog<double>(x, S, b), error + few, each);
  check(maps::hedgehog_softmax<Acc>{W, b}, f, reference::hedgehog_softmax<double>(x, W, b),
        4 * error + testing::tolerance<Acc>(2 * M + 4), unit);
  check(maps::softmax{}, f, reference::softmax<double>(x), testing::tolerance<Acc>(f.d + 4, f.widest_row()), unit);
}

TEMPLATE_TEST_CASE("random features are their definitions", "", float, double) {
  using Acc = TestType;
  OGIVE_SEED(seed, 7);
  fixture<Acc> f(GENERATE(from_range(sizes)), seed);
  const index_t M = GENERATE(1, 6, 37);
  const view<const Acc, 2> x = f.x;
  const tensor<Acc, 2> orthogonal = maps::orthogonal_projection<Acc>(M, f.d, seed + 1);
  const view<const Acc, 2> W(orthogonal);
  const double d = static_cast<double>(f.d);
  const double length = f.widest_row();
  const testing::measure each{.rule = testing::rule::elementwise_rel};
  const testing::measure unit{.scale = 1};

  // The exponent and its rounding error: a product of d terms, |x|² and the stabiliser, which is at most the first.
  const auto exponent_error = [&](double s) {
    const double product = s * length * widest_row<Acc>(W);
    return testing::tolerance<Acc>(f.d + 4, 3 * product + s * s * length * length);
  };
  const double few = testing::tolerance<Acc>(6);
  const double s = 1 / std::sqrt(std::sqrt(d));
  const map_site keys{.which = side::key};
  for (const double eps : {0.0, 1e-4}) {
    check(maps::favor<Acc>{.W = W, .eps = eps}, f, reference::favor<double>(x, W, reference::stabiliser::row, eps),
          exponent_error(s) + few, unit);
    check(maps::favor<Acc>{.W = W, .eps = eps}, f, reference::favor<double>(x, W, reference::stabiliser::none, eps),
          exponent_error(s) + few, each, keys);
  }
  // A constant c of the keys divides the features by e^c.
  const auto plain = reference::favor<double>(x, W, reference::stabiliser::none, 0);
  tensor<double, 2> shifted = plain;
  for (double& feature : shifted.flat()) feature *= std::exp(-2.0);
  check(maps::favor<Acc>{.W = W, .eps = 0, .key_shift = 2}, f, shifted, exponent_error(s) + few, each, keys);

  check(maps::favor_pairs<Acc>{.W = W}, f, reference::favor_pairs<double>(x, W), exponent_error(s) + few, each);
  check(maps::favor_pairs<Acc>{.W = W, .temperature = 0.3}, f, reference::favor_pairs<double>(x, W, 0.3),
        exponent_error(std::sqrt(0.3)) + few, each, keys);

  const double projected = testing::tolerance<Acc>(f.d + 2, length, widest_row<Acc>(W));
  const view<const Acc, 2> absent;
  check(maps::generalised<Acc>{.W = W}, f, reference::generalised<double>(x, W, s), projected + few, unit);
  check(maps::generalised<Acc>{.scale = 0.7}, f, reference::generalised<double>(x, absent, 0.7), few);
  check(maps::generalised<Acc, maps::exponential>{.W = W, .eps = 0, .scale = 1e-3}, f,
        reference::exponential<double>(reference::affine<double>(reference::scaled<double>(x, 1e-3).all(), W).all()),
        projected + few, each);
  check(maps::random_fourier<Acc>{.W = W}, f, reference::random_fourier<double>(x, W), projected + few, unit);
  check(maps::random_fourier<Acc>{.W = W, .temperature = 1, .smoothing = 0.5}, f,
        reference::random_fourier<double>(x, W, 1.0, 0.5), projected + few, unit);
  check(maps::random_features<Acc>{.W = W, .normalised = true}, f, reference::random_features<double>(x, W, true),
        projected + testing::tolerance<Acc>(f.d), unit);

  // Data taken as they are, and of length one at most, so that no exponential leaves the range of float.
  for (Acc& number : f.memory.flat()) number /= static_cast<Acc>(length);
  const double short_error = 2 * testing::tolerance<Acc>(f.d + 4, 1 + widest_row<Acc>(W)) + few;
  check(maps::random_features<Acc>{.W = W}, f, reference::random_features<double>(x, W), short_error, unit);
  check(maps::favor<Acc>{.W = W, .normalise_data = false, .stabilise_queries = false}, f,
        reference::favor<double>(x, W, reference::stabiliser::none, 1e-4, false), short_error, each);
}

TEMPLATE_TEST_CASE("projections of more columns than fit on the stack at once are summed the same", "", float, double) {
  using Acc = TestType;
  OGIVE_SEED(seed, 8);
  fixture<Acc> f(1100, seed);
  tensor<Acc, 2> W = f.weights(19, f.d);
  check(maps::t2r<Acc>{W, {}}, f, reference::t2r<double>(f.x, W.all()),
        testing::tolerance<Acc>(f.d + 1, f.widest_row(), widest_row<Acc>(W)), {.scale = 1});
}

TEMPLATE_TEST_CASE("the stabiliser of the paper is a pass over all keys that count", "", float, double) {
  using Acc = TestType;
  OGIVE_SEED(seed, 9);
  testing::rng random(seed);
  const index_t B = 2, L = 70, H = 3, d = 5, M = 9;
  tensor<Acc, 4> k({B, L, H, d});
  testing::fill_normal(random, k.all(), 3);
  const tensor<Acc, 2> W = maps::gaussian_projection<Acc>(M, d, seed + 1);
  tensor<Acc, 2> c({B, H});
  maps::favor<Acc> map{.W = W};
  stabilisers(map, k.all(), c.all());
  map.key_stabiliser = c;
  tensor<Acc, 4> y({B, L, H, M});
  evaluate(map, k, y.all(), {.which = side::key});
  const auto expected =
      reference::for_heads<double>(view<const Acc, 4>(k), [&](const auto& rows_of_head, index_t, index_t) {
        return reference::favor<double>(rows_of_head, view<const Acc, 2>(W), reference::stabiliser::all_rows);
      });
  double longest = 0;
  for (index_t b = 0; b < B; ++b)
    for (index_t t = 0; t < L; ++t)
      for (index_t h = 0; h < H; ++h) longest = std::max(longest, testing::norm(k.all()[b][t][h]));
  const double norms = longest * (longest + 3 * widest_row<Acc>(W));
  CHECK(testing::compare(y.all(), expected.all(), testing::tolerance<Acc>(d + 10, 1 + norms), {.scale = 1}));

  // Tokens beyond a length do not count, whatever they hold; no token at all leaves 0.
  const std::vector<std::int32_t> lengths{3, 0};
  for (index_t h = 0; h < H; ++h) k(0, 3, h, 0) = std::numeric_limits<Acc>::infinity();
  tensor<Acc, 2> shorter({B, H}, Acc(7)), first_three({1, H});
  stabilisers(map, k.all(), shorter.all(), lengths);
  stabilisers(map, k.all().slice(0, 0, 1).slice(1, 0, 3), first_three.all());
  for (index_t h = 0; h < H; ++h) {
    CHECK(shorter(0, h) == first_three(0, h));
    CHECK(shorter(1, h) == 0);
  }
  // Members of a team, one after the other: none undoes what another has done.
  tensor<Acc, 2> together({B, H}, Acc(7));
  for (const int member : {0, 1}) {
    context mine = context::of({.ith = member, .nth = 2});
    stabilisers(map, k.all(), together.all(), lengths, {}, mine);
  }
  CHECK(testing::flatten(together.all()) == testing::flatten(shorter.all()));
  CHECK_THROWS_AS(stabilisers(map, k.all(), first_three.all()), shape_error);

  maps::favor_pairs<Acc> pairs{.W = W};
  stabilisers(pairs, k.all().slice(1, 0, 3), c.all());
  double largest = 0;
  for (index_t t = 0; t < 3; ++t) largest = std::max(largest, std::pow(testing::norm(k.all()[1][t][2]), 2));
  CHECK(std::abs(static_cast<double>(c(1, 2)) - largest / std::sqrt(5.0)) <= testing::tolerance<Acc>(d + 3, largest));

  // Nor do masked tokens count, the first of all among them.
  tensor<bool, 2> mask({B, L}, false);
  tensor<Acc, 2> masked({B, H}, Acc(7)), alone({1, H});
  for (const index_t t : {3, 20, 65}) mask(0, t) = true;
  tensor<Acc, 4> counted({1, 3, H, d});
  for (index_t h = 0; h < H; ++h) {
    for (index_t j = 0; j < d; ++j) {
      k(0, 3, h, j) = 1;
      counted(0, 0, h, j) = k(0, 3, h, j);
      counted(0, 1, h, j) = k(0, 20, h, j);
      counted(0, 2, h, j) = k(0, 65, h, j);
      k(0, 0, h, j) = k(0, 21, h, j) = std::numeric_limits<Acc>::infinity();
    }
  }
  stabilisers(map, k.all(), masked.all(), {}, mask);
  stabilisers(map, counted.all(), alone.all());
  for (index_t h = 0; h < H; ++h) {
    CHECK(masked(0, h) == alone(0, h));
    CHECK(masked(1, h) == 0);
  }
  CHECK_THROWS_AS(stabilisers(map, k.all(), masked.all(), {}, mask.all().slice(1, 0, 3)), shape_error);
}

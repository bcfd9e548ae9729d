#include <ogive/reference/linear_attention.hpp>
#include <ogive/reference/structured_masked_attention.hpp>
#include <ogive/testing/compare.hpp>
#include <ogive/testing/counted.hpp>

#include "tests/catch.hpp"

using namespace ogive;
using testing::counted;

namespace {

struct causal_fields {
  view<const double, 4> q, k, v;
  bool normalise = true;
  std::optional<double> scale{};
  double eps = 1e-12;
  eps_placement eps_at = eps_placement::sum;
  view<const bool, 2> key_mask{};
  integers lengths{}, offsets{};
  heads head_map{};
};

struct noncausal_fields {
  view<const double, 4> q, k, v;
  bool normalise = true;
  std::optional<double> scale{};
  double eps = 1e-12;
  eps_placement eps_at = eps_placement::sum;
  view<const bool, 2> key_mask{};
  integers lengths{};
  heads head_map{};
};

template <std::size_t Rank>
tensor<double, Rank> random(testing::rng& source, const shape<Rank>& extents, double low = 0.1, double high = 1) {
  tensor<double, Rank> x(extents);
  testing::fill_uniform(source, x.all(), low, high);
  return x;
}

testing::counts cost(index_t n, index_t d, bool causal, bool left) {
  const tensor<counted, 2> x({n, d}, counted(0.5));
  tensor<counted, 2> o({n, d}, counted(0));
  return testing::count([&] {
    if (left) {
      reference::left_product<counted>(x.all(), x.all(), x.all(), o.all(), causal);
    } else {
      reference::right_product<counted>(x.all(), x.all(), x.all(), o.all(), causal);
    }
  });
}

}  // namespace

TEST_CASE("the two products cost the same at n = d, causal at n = 2d - 1") {
  const index_t d = GENERATE(1, 3, 8, 16);
  const index_t n = GENERATE(1, 2, 5, 15, 16, 31, 33);
  CHECK(cost(n, d, false, true).multiplications == 2 * n * n * d);
  CHECK(cost(n, d, false, false).multiplications == 2 * n * d * d);
  CHECK(cost(n, d, true, true).multiplications == n * (n + 1) * d);
  CHECK(cost(n, d, true, false).multiplications == 2 * n * d * d);
  for (const bool causal : {false, true}) {
    const index_t crossing = causal ? 2 * d - 1 : d;
    CHECK(cost(crossing, d, causal, true) == cost(crossing, d, causal, false));
    CHECK(cost(crossing + 1, d, causal, true).flops() > cost(crossing + 1, d, causal, false).flops());
    if (crossing > 1) CHECK(cost(crossing - 1, d, causal, true).flops() < cost(crossing - 1, d, causal, false).flops());
    CHECK(cost(n, d, causal, true).additions == cost(n, d, causal, true).multiplications);
  }
}

TEST_CASE("an associative memory adds up what it was told") {
  const std::vector<double> keys{1, 0, 0.6, 0.8, 1, 0, 0, 1};
  const std::vector<double> values{1, 0, 0, 1, 2, 0, 3, 1};
  const std::vector<double> query{1, 0};
  const noncausal_fields op{.q = view<const double, 4>(query, {1, 1, 1, 2}),
                            .k = view<const double, 4>(keys, {1, 4, 1, 2}),
                            .v = view<const double, 4>(values, {1, 4, 1, 2}),
                            .normalise = false,
                            .scale = 1.0};
  tensor<double, 4> o({1, 1, 1, 2});
  reference::evaluate<double>(op, {}, o.all());
  CHECK(o(0, 0, 0, 0) == 3);
  CHECK(o(0, 0, 0, 1) == 0.6);
}

TEST_CASE("linear attention through the state and through the scores") {
  OGIVE_SEED(seed, 1);
  testing::rng source(seed);
  const auto [Hq, Hk, H] = GENERATE(table<index_t, index_t, index_t>({{2, 2, 2}, {6, 1, 3}, {1, 2, 4}, {2, 4, 4}}));
  const auto map = GENERATE(heads::consecutive, heads::tiled);
  const auto eps_at =
      GENERATE(eps_placement::sum, eps_placement::scaled_sum, eps_placement::each_key, eps_placement::none);
  const bool normalise = GENERATE(false, true);
  CAPTURE(Hq, Hk, H, static_cast<int>(map), static_cast<int>(eps_at), normalise);

  const index_t L = 11, K = 3, V = 5;
  const auto q = random<4>(source, {1, L, Hq, K});
  const auto k = random<4>(source, {1, L, Hk, K});
  const auto v = random<4>(source, {1, L, H, V}, -1, 1);
  const auto S = random<4>(source, {4, H, K, V}, -1, 1);
  const auto z = random<3>(source, {4, H, K});
  tensor<bool, 2> mask({1, L}, true);
  mask(0, 0) = mask(0, 6) = false;
  const std::vector<std::int32_t> offsets{0, 4, 4, 11};
  const std::vector<std::int64_t> lengths{4, 0, 5};
  const std::vector<std::int32_t> from{3, 1, -1};
  const std::vector<std::int32_t> to{0, 2, 1};
  tensor<double, 4> S_final({3, H, K, V});
  tensor<double, 3> z_final({3, H, K});
  const linear_attention_state<double> st{S, S_final, z, z_final, from, to};

  causal_fields op{.q = q,
                   .k = k,
                   .v = v,
                   .normalise = normalise,
                   .eps = 1e-3,
                   .eps_at = eps_at,
                   .key_mask = mask,
                   .lengths = lengths,
                   .offsets = offsets,
                   .head_map = map};
  tensor<double, 4> o({1, L, std::max(H, Hq), V});
  tensor<double, 4> expected = o;
  reference::evaluate<double>(op, st, o.all());
  reference::evaluate_masked<double>(op, st, expected.all());
  CHECK(testing::compare(o.all(), expected.all(), testing::tolerance<double>(2 * L * K)));
  CHECK(S_final(2, 0, 0, 0) == S(1, 0, 0, 0));  // no tokens: unchanged

  const noncausal_fields all{.q = q,
                             .k = k,
                             .v = v,
                             .normalise = normalise,
                             .eps = 1e-3,
                             .eps_at = eps_at,
                             .key_mask = mask,
                             .lengths = {},
                             .head_map = map};
  reference::evaluate<long double>(all, {}, o.all());
  reference::evaluate_masked<long double>(all, {}, expected.all());
  CHECK(testing::compare(o.all(), expected.all(), testing::tolerance<double>(2 * L * K)));
}

TEST_CASE("padding and masked keys are not looked at; a denominator of 0 gives 0") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> keys{1, nan, 2, nan};
  tensor<bool, 2> mask({1, 4}, true);
  mask(0, 1) = false;
  const std::vector<std::int32_t> lengths{3};
  const std::vector<double> queries{0, 1, 1, 1};
  const view<const double, 4> k(keys, {1, 4, 1, 1});
  causal_fields op{.q = view<const double, 4>(queries, {1, 4, 1, 1}),
                   .k = k,
                   .v = k,
                   .eps = 0,
                   .key_mask = mask,
                   .lengths = lengths};
  tensor<double, 4> o({1, 4, 1, 1});
  reference::evaluate<double>(op, {}, o.all());
  CHECK(testing::flatten(o.all()) == std::vector<double>{0, 1, 5. / 3, 5. / 3});
  reference::evaluate_masked<double>(op, {}, o.all());
  CHECK(testing::flatten(o.all()) == std::vector<double>{0, 1, 5. / 3, 5. / 3});
}

TEST_CASE("structured masks: causal is Toeplitz of ones is decay of 1") {
  OGIVE_SEED(seed, 2);
  testing::rng source(seed);
  const index_t n = 7, d = 3;
  const auto q = random<2>(source, {n, d});
  const auto k = random<2>(source, {n, d});
  const auto v = random<2>(source, {n, d});
  const auto masked = [&](const auto& mask) {
    tensor<double, 2> o({n, d});
    reference::structured_masked_attention<double>(q.all(), k.all(), v.all(), mask, o.all());
    return testing::flatten(o.all());
  };
  tensor<double, 2> expected({n, d});
  reference::left_product<double>(q.all(), k.all(), v.all(), expected.all(), true);
  const tensor<double, 1> ones({n}, 1.0);
  tensor<double, 2> lower_triangle({n, n});
  for (index_t i = 0; i < n; ++i) {
    for (index_t j = 0; j <= i; ++j) lower_triangle(i, j) = 1;
  }
  CHECK(masked(reference::causal_mask{}) == testing::flatten(expected.all()));
  CHECK(masked(reference::decay_mask<double>{1}) == testing::flatten(expected.all()));
  CHECK(masked(reference::toeplitz_mask<double>{ones}) == testing::flatten(expected.all()));
  CHECK(masked(reference::semiseparable_mask<double>{ones}) == testing::flatten(expected.all()));
  CHECK(masked(lower_triangle.all()) == testing::flatten(expected.all()));
  CHECK(masked([](index_t i, index_t j) { return j <= i; }) == testing::flatten(expected.all()));
  const tensor<double, 1> halves({n}, 0.5);
  CHECK(masked(reference::semiseparable_mask<double>{halves}) == masked(reference::decay_mask<double>{0.5}));
}

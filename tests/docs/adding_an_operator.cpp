// The operator that docs/adding_an_operator.md builds: its code is taken from the page as it stands.
#include <ogive/engine/matrix_backward.hpp>
#include <ogive/testing/rng.hpp>

#include <cmath>
#include <optional>

#include "tests/layers/gradients.hpp"

namespace ogive {
inline namespace OGIVE_ABI {
#include "adding_an_operator.hpp"
}  // namespace OGIVE_ABI
}  // namespace ogive

using namespace ogive;

TEST_CASE("the operator of the page on adding one gives its formula in every form, and its slopes", "[docs]") {
  OGIVE_SEED(seed, 90);
  testing::rng draw(seed);
  constexpr index_t B = 2, L = 41, Hk = 2, H = 4, K = 9, V = 7;
  tensor<double, 4> q({B, L, Hk, K}), k({B, L, Hk, K}), v({B, L, H, V}), o({B, L, H, V});
  tensor<double, 3> g({B, L, H});
  for (auto* memory : {&q, &k, &v}) {
    for (double& x : memory->flat()) x = draw.uniform();
  }
  for (double& x : g.flat()) x = -2 * draw.unit();
  const simple_gla<double> op{.q = q, .k = k, .v = v, .g = g};

  const auto formula = [&](index_t b, index_t t, index_t h, index_t c, double& size) {
    double sum = 0;
    size = 0;
    for (index_t j = 0; j <= t; ++j) {
      double score = 0;
      for (index_t i = 0; i < K; ++i) score += q(b, t, h / (H / Hk), i) * k(b, j, h / (H / Hk), i);
      double decayed = 0;
      for (index_t m = j + 1; m <= t; ++m) decayed += g(b, m, h);
      const double term = score * std::exp(decayed) * v(b, j, h, c);
      sum += term;
      size += std::fabs(term);
    }
    return sum / std::sqrt(static_cast<double>(K));
  };
  const auto holds = [&] {
    for (index_t b = 0; b < B; ++b) {
      for (index_t t = 0; t < L; ++t) {
        for (index_t h = 0; h < H; ++h) {
          for (index_t c = 0; c < V; ++c) {
            double size = 0;
            const double right = formula(b, t, h, c, size);
            const double bound = (L + K) * std::numeric_limits<double>::epsilon() * (size + 1);
            REQUIRE(std::fabs(o(b, t, h, c) - right) <= bound);
          }
        }
      }
    }
  };
  chunked(op, {}, o, {.chunk = 8});
  holds();
  recurrent(op, {}, o);
  holds();
  step(op, {}, o);
  holds();
  forward(op, {}, o);
  holds();

  tensor<double, 4> d_o({B, L, H, V}), d_q(q.extents()), d_k(k.extents()), d_v(v.extents());
  tensor<double, 3> d_g(g.extents());
  testing::fill_uniform(draw, d_o.all());
  const view<const double, 4> cotangents = d_o;
  backward(op, {}, cotangents, {}, {.q = d_q, .k = d_k, .v = d_v, .g = d_g}, {.chunk = 8});
  const auto slopes = [&](const char* field, const auto& x, const auto& d) {
    const auto some = [](const auto& all) { return all.all().slice(1, L / 2, 2); };
    tests::check_gradient(field, some(x), some(d), [&] {
      chunked(op, {}, o);
      return tests::loss().add(o.all(), cotangents);
    });
  };
  slopes("q", q, d_q);
  slopes("k", k, d_k);
  slopes("v", v, d_v);
  slopes("g", g, d_g);

  simple_gla<double> wrong = op;
  wrong.g = {};
  CHECK_THROWS_AS(forward(wrong, {}, o), shape_error);
}

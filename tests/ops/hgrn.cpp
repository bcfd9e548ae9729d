#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/hgrn.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("HGRN keeps the laws", "", float, double, bfloat16) {
  OGIVE_SEED(seed, 200);
  tests::check_laws<hgrn<TestType>>(seed);
}

TEST_CASE("HGRN with a state of another type") {
  OGIVE_SEED(seed, 201);
  tests::check_law(testing::law_of_states<hgrn<float>, double>(), seed);
  tests::check_law(testing::law_of_states<hgrn<float>, bfloat16>(), seed);
}

TEST_CASE("HGRN: gates of minus infinity forget everything, to the bit") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const tensor<float, 3> x({1, 5, 1}, 0.75F);
  tensor<float, 3> g({1, 5, 1}, -0.5F), o({1, 5, 1}), h({1, 1, 1}, 1e30F);
  for (const index_t t : {0, 3}) g(0, t, 0) = -inf;
  for (const testing::way& how : testing::ways<hgrn<float>>()) {
    CAPTURE(how);
    h(0, 0, 0) = 1e30F;
    context serial;
    testing::call(how, hgrn<float>{.x = x, .g = g}, diagonal_state<float>{.initial = h, .final = h}, o.all(), serial);
    CHECK(o(0, 0, 0) == 0.75F);
    CHECK(o(0, 1, 0) > 0.75F);
    CHECK(o(0, 3, 0) == 0.75F);
    CHECK(h(0, 0, 0) == o(0, 4, 0));
  }
}

TEMPLATE_TEST_CASE("gradients of HGRN keep the laws", "", float, double) {
  OGIVE_SEED(seed, 202);
  for (const testing::law& law : testing::gradient_laws<hgrn<TestType>>()) tests::check_law(law, seed);
}

TEST_CASE("gradients of HGRN in narrow types are those of double, rounded") {
  OGIVE_SEED(seed, 203);
  tests::check_law(testing::law_of_rounded_gradients<hgrn<float>, hgrn<double>>(), seed);
  tests::check_law(testing::law_of_rounded_gradients<hgrn<bfloat16>, hgrn<double>>(), seed);
}

TEST_CASE("HGRN of many channels, in rows and not, is that of a few, to the bit, for any number of workers") {
  OGIVE_SEED(seed, 204);
  testing::rng random(seed);
  const testing::thread_pool pool;
  for (const int workers : {1, 3, 9}) {
    context ctx = context::fork_join(pool, workers);
    const index_t B = 2, L = 21, D = 1100, few = 50;
    const shape<3> all{B, L, D};
    testing::memory room;
    const hgrn<float> op{.x = testing::draw_uniform<float>(random, room, all),
                         .g = testing::draw_uniform<float>(random, room, all, -2, 0)};
    const auto d_o = testing::draw_uniform<float>(random, room, all);
    // o, d_x and d_g with rows of channels, then with columns of tokens; then in slices of a few channels.
    tensor<float, 4> rows({3, B, L, D}), columns({3, B, D, L}), slices({3, B, L, D});
    const auto run = [&](const hgrn<float>& some, const view<const float, 3>& d_some, const view<float, 4>& to) {
      forward(some, {}, to[0], {}, ctx);
      backward(some, {}, d_some, {}, {.x = to[1], .g = to[2]}, {}, ctx);
    };
    run(op, d_o, rows);
    run(op, d_o, columns.all().permute({0, 1, 3, 2}));
    for (index_t c = 0; c < D; c += few) {
      const auto part = [&](const view<const float, 3>& x) { return x.slice(2, c, few); };
      run({.x = part(op.x), .g = part(op.g)}, part(d_o), slices.all().slice(3, c, few));
    }
    bool same = true;
    testing::for_each(rows.all(), [&](const float& x, index_t) { same = same && std::isfinite(x); });
    for (index_t i = 0; i < 3; ++i) {
      for (index_t b = 0; b < B; ++b) {
        for (index_t t = 0; t < L; ++t) {
          for (index_t c = 0; c < D; ++c) {
            same = same && rows(i, b, t, c) == slices(i, b, t, c) && rows(i, b, t, c) == columns(i, b, c, t);
          }
        }
      }
    }
    CHECK(same);
  }
}

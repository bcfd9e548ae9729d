// Gradients by features, a panel of a chunk, on their way back to rows of x: what `features_adjoint` gives is what the
// map's adjoint gives row by row, zeros are where there is nothing, and nothing else is written.
#include <ogive/engine/feature_rows.hpp>
#include <ogive/maps/cosformer.hpp>
#include <ogive/maps/elementwise.hpp>
#include <ogive/maps/learned.hpp>
#include <ogive/maps/polynomial.hpp>
#include <ogive/testing/compare.hpp>

#include "tests/catch.hpp"

using namespace ogive;

namespace {

/// A panel with a row more than it has use for.
template <class Acc>
struct panel {
  index_t rows, stride;
  tensor<Acc, 2> memory;

  panel(index_t count, index_t width)
      : rows(count), stride(width), memory({count + 1, width}, std::numeric_limits<Acc>::quiet_NaN()) {}
  Acc* data() { return memory.data(); }
  bool row_after_is_untouched() const {
    for (index_t j = 0; j < stride; ++j)
      if (!std::isnan(memory(rows, j))) return false;
    return true;
  }
};

template <class Acc, class T, differentiable_map Map>
void check(const Map& map, const view<const T, 4>& x, const tokens& at, std::uint64_t seed) {
  const index_t d = x.extent(3);
  const index_t K = features(map, d);
  const map_site first{.position = 3, .which = side::key};
  testing::rng random(seed);
  tensor<T, 2> gradients({at.count, K});
  testing::fill_normal(random, gradients.all());
  panel<Acc> d_y(at.count, detail::padded<Acc>(K) + simd::width<Acc>);
  panel<Acc> d_x(at.count, detail::padded<Acc>(d) + simd::width<Acc>);
  panel<Acc> room(at.count, detail::adjoint_room_dim<Acc>(map, d));
  for (index_t r = 0; r < at.live; ++r)
    for (index_t j = 0; j < K; ++j) d_y.memory(r, j) = static_cast<Acc>(gradients(r, j));
  detail::features_adjoint<Acc>(map, x, at, first, {}, d_y.data(), d_y.stride, d_x.data(), d_x.stride, room.data());

  tensor<T, 4> one_x({1, 1, 1, d}), one_y({1, 1, 1, K}), expected({1, 1, 1, d});
  for (index_t r = 0; r < at.live; ++r) {
    for (index_t i = 0; i < d; ++i) one_x(0, 0, 0, i) = x(at.batch, at.token + r, at.head, i);
    for (index_t j = 0; j < K; ++j) one_y(0, 0, 0, j) = gradients(r, j);
    evaluate_adjoint(map, one_x, one_y, expected.all(), {.position = 3 + at.position + r, .which = side::key});
    for (index_t i = 0; i < d; ++i) {
      CHECK(static_cast<Acc>(static_cast<T>(d_x.memory(r, i))) == static_cast<Acc>(expected(0, 0, 0, i)));
    }
  }
  for (index_t r = 0; r < at.count; ++r) {
    for (index_t i = r < at.live ? d : 0; i < detail::padded<Acc>(d); ++i) CHECK(d_x.memory(r, i) == 0);
    for (index_t i = detail::padded<Acc>(d); i < d_x.stride; ++i) CHECK(std::isnan(d_x.memory(r, i)));
  }
  CHECK((d_x.row_after_is_untouched() && room.row_after_is_untouched()));
}

}  // namespace

TEMPLATE_TEST_CASE("gradients by features become gradients of rows", "", float, double, bfloat16) {
  using T = TestType;
  using Acc = accum_t<T>;
  OGIVE_SEED(seed, 1);
  testing::rng random(seed);
  const index_t B = 2, L = 11, H = 3;
  const index_t d = GENERATE(1, 5, 16, 19);
  tensor<T, 4> plain({B, L, H, d}), turned({d, H, L, B});
  tensor<Acc, 2> W({7, d});
  testing::fill_normal(random, plain.all());
  testing::fill_normal(random, turned.all());
  testing::fill_normal(random, W.all());
  for (const view<T, 4>& x : {plain.all(), turned.all().permute({3, 2, 1, 0})}) {
    for (const index_t live : {0, 1, 4, 6}) {
      const tokens at{.batch = 1, .token = 2, .count = 6, .live = live, .position = 2, .head = 2};
      check<Acc, T>(maps::identity{}, x, at, seed);
      check<Acc, T>(maps::elu1{}, x, at, seed);
      check<Acc, T>(maps::taylor{}, x, at, seed);
      check<Acc, T>(maps::rebased<Acc>{}, x, at, seed);
      check<Acc, T>(maps::dpfp{.nu = 3}, x, at, seed);
      check<Acc, T>(maps::cosformer{.M = 40}, x, at, seed);
      check<Acc, T>(maps::hedgehog<Acc>{.W = W}, x, at, seed);
    }
  }
}

// The gradient of the short convolution.
#include <ogive/layers/short_convolution.hpp>
#include <ogive/reference/short_convolution.hpp>
#include <ogive/testing/trials.hpp>

#include "tests/layers/gradients.hpp"

using namespace ogive;
using testing::draw_uniform;

namespace {

/// Arguments of one backward pass, drawn.
template <class T>
struct draws {
  testing::memory room;
  short_convolution<T> op;
  window_state<T> st;
  view<T, 3> d_y;
  window_gradient<accum_t<T>> d_st;
  typename short_convolution<T>::gradient d;
  std::vector<std::int32_t> offsets{}, lengths{};

  draws(std::uint64_t seed, testing::layout where = testing::layout::dense) : room(where) {
    testing::rng random(seed);
    const index_t B = random.integer(1, 2), L = random.integer(0, 45), D = random.integer(1, 20);
    const index_t W = random.integer(1, 8), K = W - 1 + random.integer(0, 2);
    op.x = draw_uniform<T>(random, room, shape<3>{B, L, D});
    op.weight = draw_uniform<T>(random, room, shape<2>{D, W});
    if (testing::coin(random)) op.bias = draw_uniform<T>(random, room, shape<1>{D});
    if (testing::coin(random)) op.activation = activation::silu;
    if (B == 1 && testing::coin(random)) {
      const auto cut = static_cast<std::int32_t>(random.integer(0, L));
      offsets = {0, cut, cut, static_cast<std::int32_t>(L)};
      op.offsets = offsets;
    }
    const index_t n = op.offsets.present() ? 3 : B;
    if (testing::coin(random)) {
      for (index_t s = 0; s < n; ++s) lengths.push_back(static_cast<std::int32_t>(random.integer(0, L)));
      op.lengths = lengths;
    }
    if (testing::coin(random)) st.initial = draw_uniform<T>(random, room, shape<3>{n, D, K});
    d_y = draw_uniform<T>(random, room, shape<3>{B, L, D});
    if (testing::coin(random)) d_st.final = draw_uniform<accum_t<T>>(random, room, shape<3>{n, D, K});
    if (st.initial.present()) d_st.initial = room.template take<accum_t<T>>(shape<3>{n, D, K});
    d.x = room.template take<T>(op.x.extents());
    d.weight = room.template take<accum_t<T>>(op.weight.extents());
    if (op.bias.present()) d.bias = room.template take<accum_t<T>>(op.bias.extents());
  }
};

}  // namespace

TEST_CASE("gradients of the short convolution are the differences of its definition") {
  OGIVE_SEED(seed, 50);
  for (std::uint64_t i = 0; i < 40; ++i) {
    CAPTURE(i);
    const draws<double> x(seed + i);
    backward(x.op, x.st, x.d_y, x.d_st, x.d);
    const auto loss = [&] {
      testing::memory room;
      auto st = x.st;
      if (x.d_st.final.present()) st.final = room.take<double>(x.d_st.final.extents());
      const auto y = room.take<double>(x.op.x.extents());
      reference::evaluate<double>(x.op, st, y);
      return tests::loss().add(y, x.d_y).add(st.final, x.d_st.final);
    };
    tests::check_gradient("x", x.op.x, x.d.x, loss);
    tests::check_gradient("weight", x.op.weight, x.d.weight, loss);
    tests::check_gradient("bias", x.op.bias, x.d.bias, loss);
    tests::check_gradient("initial", x.st.initial, x.d_st.initial, loss);
    CHECK(x.room.gaps_untouched());
  }
}

TEMPLATE_TEST_CASE("gradients of the short convolution: any strides, threads, and sums", "", float, bfloat16) {
  using T = TestType;
  OGIVE_SEED(seed, 51);
  for (std::uint64_t i = 0; i < 10; ++i) {
    CAPTURE(i);
    const draws<T> x(seed + i);
    backward(x.op, x.st, x.d_y, x.d_st, x.d);
    const auto same = [&](const draws<T>& other, double factor) {
      const auto hold = [&](const auto& a, const auto& b) {
        if (!a.present()) return;
        const auto got = testing::flatten(a);
        auto expected = testing::flatten(b);
        for (double& number : expected) number *= factor;
        CHECK(got == expected);
      };
      hold(other.d.x, x.d.x);
      hold(other.d.weight, x.d.weight);
      hold(other.d.bias, x.d.bias);
      hold(other.d_st.initial, x.d_st.initial);
      CHECK(other.room.gaps_untouched());
    };
    for (const testing::layout where : testing::all_layouts) {
      const draws<T> other(seed + i, where);
      testing::thread_pool pool;
      context forked = context::fork_join(pool, 3);
      backward(other.op, other.st, other.d_y, other.d_st, other.d, {}, forked);
      same(other, 1);
      backward(other.op, other.st, other.d_y, other.d_st, other.d, {.accumulate = true});
      same(other, 2);
    }
  }
}

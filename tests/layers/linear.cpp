#include <ogive/layers/linear.hpp>
#include <ogive/reference/linear.hpp>
#include <ogive/testing/trials.hpp>

#include <cstring>

#include "tests/layers/gradients.hpp"

using namespace ogive;
using testing::coin;
using testing::draw_uniform;

namespace {

template <class T, class P = T>
struct drawn {
  testing::memory room;
  linear<T, P> op{};
  view<T, 3> y{}, d_y{};
  gradient<linear<T, P>> d{};

  explicit drawn(std::uint64_t seed, testing::layout where, index_t most) : room(where) {
    testing::rng random(seed);
    const index_t B = random.integer(1, 3), L = coin(random) ? random.integer(0, 2) : random.integer(0, most);
    const index_t I = random.integer(1, 2 * most), O = random.integer(1, most);
    op.x = draw_uniform<T>(random, room, shape<3>{B, L, I});
    op.weight = draw_uniform<P>(random, room, shape<2>{O, I});
    if (coin(random)) op.bias = draw_uniform<P>(random, room, shape<1>{O});
    y = room.template take<T>(shape<3>{B, L, O});
    d_y = draw_uniform<T>(random, room, shape<3>{B, L, O});
    d.x = room.template take<T>(op.x.extents());
    d.weight = room.template take<accum_t<T>>(op.weight.extents());
    if (op.bias.present()) d.bias = room.template take<accum_t<T>>(op.bias.extents());
  }
};

}  // namespace

TEMPLATE_TEST_CASE("the linear layer is what it is defined to be, in any layout and by any number of threads", "",
                   (std::pair<float, float>), (std::pair<double, double>), (std::pair<bfloat16, bfloat16>),
                   (std::pair<float16, float>)) {
  using T = typename TestType::first_type;
  using P = typename TestType::second_type;
  OGIVE_SEED(seed, 95);
  for (std::uint64_t i = 0; i < 8; ++i) {
    CAPTURE(i);
    const index_t most = i % 4 == 0 ? 200 : 40;
    const drawn<T, P> x(seed + i, testing::layout::dense, most);
    forward(x.op, x.y);
    tensor<double, 3> expected(x.y.extents());
    reference::linear<double>(x.op, expected.all());
    const index_t I = x.op.x.extent(2);
    const auto found = testing::compare(x.y, std::as_const(expected).all(),
                                        testing::tolerance<T>(I + 2, static_cast<double>(I + 1)), {.scale = 1});
    INFO(found);
    CHECK(found.ok);
    backward(x.op, x.d_y, x.d);
    for (const testing::layout where : testing::all_layouts) {
      const drawn<T, P> other(seed + i, where, most);
      testing::thread_pool pool;
      context forked = context::fork_join(pool, 3);
      const auto same = [&](const auto& a, const auto& b, double factor) {
        if (!a.present()) return;
        auto numbers = testing::flatten(b);
        for (double& number : numbers) number *= factor;
        CHECK(testing::flatten(a) == numbers);
      };
      forward(other.op, other.y, {}, forked);
      // A few tokens are summed along the rows of W where these lie in memory, else as many are.
      if (other.op.weight.stride(1) == 1 || x.op.x.extent(0) * x.op.x.extent(1) > 4) same(other.y, x.y, 1);
      CHECK(testing::compare(other.y, std::as_const(expected).all(), found.bound, {.scale = 1}).ok);
      for (const int times : {1, 2}) {
        backward(other.op, other.d_y, other.d, {.accumulate = times == 2}, forked);
        same(other.d.x, x.d.x, times);
        same(other.d.weight, x.d.weight, times);
        same(other.d.bias, x.d.bias, times);
      }
      CHECK(other.room.gaps_untouched());
    }
  }
}

TEST_CASE("gradients of the linear layer are the differences of its definition") {
  OGIVE_SEED(seed, 96);
  for (std::uint64_t i = 0; i < 12; ++i) {
    CAPTURE(i);
    const drawn<double> x(seed + i, testing::layout::dense, 12);
    backward(x.op, x.d_y, x.d);
    const auto loss = [&] {
      tensor<double, 3> y(x.y.extents());
      reference::linear<double>(x.op, y.all());
      return tests::loss().add(y.all(), x.d_y);
    };
    tests::check_gradient("x", x.op.x, x.d.x, loss);
    tests::check_gradient("weight", x.op.weight, x.d.weight, loss);
    tests::check_gradient("bias", x.op.bias, x.d.bias, loss);
  }
}

TEST_CASE("linear layers that do not fit are refused") {
  tensor<float, 3> x({1, 2, 3}), y({1, 2, 4});
  tensor<float, 2> weight({4, 3}), other({4, 2});
  const auto refused = [](const status& asked, const char* word) {
    CHECK_FALSE(asked);
    CHECK(std::strstr(asked.text(), word) != nullptr);
  };
  refused(check(linear<float>{.x = x, .weight = other}, y), "weight");
  refused(check(linear<float>{.x = x, .weight = weight}, x), "y");
  refused(check(linear<float>{.x = x}, y), "weight is absent");
  CHECK(check(linear<float>{.x = x, .weight = weight}, y));
}

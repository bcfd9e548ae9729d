#include <ogive/layers/norm.hpp>
#include <ogive/reference/norm.hpp>
#include <ogive/testing/trials.hpp>

#include <cstring>

#include "tests/layers/gradients.hpp"

using namespace ogive;
using testing::coin;
using testing::draw_uniform;

namespace {

template <class Acc, class T, class P, class Out>
void define(const rms_norm<T, P>& op, const view<Out, 4>& y) {
  reference::rms_norm<Acc>(op, y);
}
template <class Acc, class T, class P, class Out>
void define(const layer_norm<T, P>& op, const view<Out, 4>& y) {
  reference::layer_norm<Acc>(op, y);
}
template <class Acc, class T, class Out>
void define(const l2_norm<T>& op, const view<Out, 4>& y) {
  reference::l2_norm<Acc>(op, y);
}

/// Drawn arguments with every field that the norm can have, some of the time.
template <class Op>
struct drawn {
  using T = typename Op::scalar;
  testing::memory room;
  Op op;
  view<T, 4> y, d_y;
  gradient<Op> d;

  explicit drawn(std::uint64_t seed, testing::layout where = testing::layout::dense, index_t most = 70) : room(where) {
    testing::rng random(seed);
    const shape<4> all{random.integer(1, 2), random.integer(0, 5), random.integer(1, 3), random.integer(1, most)};
    const shape<2> own{coin(random) ? all[2] : 1, all[3]};
    const auto give = [&](const auto& extents, auto& field) {
      using X = typename std::remove_cvref_t<decltype(field)>::value_type;
      if (coin(random)) field = draw_uniform<X>(random, room, extents, -2, 2);
    };
    op.x = draw_uniform<T>(random, room, all, -2, 2);
    if constexpr (requires { op.weight; }) {
      give(all, op.residual);
      give(own, op.weight);
      give(own, op.bias);
      if (op.weight.present()) d.weight = room.template take<accum_t<T>>(own);
      if (op.bias.present()) d.bias = room.template take<accum_t<T>>(own);
      if (op.residual.present()) {
        op.sum = room.template take<T>(all);
        d.residual = room.template take<T>(all);
        if (coin(random)) d.sum = draw_uniform<T>(random, room, all);
      }
    }
    if constexpr (requires { op.z; }) {
      give(all, op.z);
      op.norm_before_gate = coin(random);
      op.gate = coin(random) ? activation::silu : activation::sigmoid;
      if (op.z.present()) d.z = room.template take<T>(all);
    }
    op.eps = accum_t<T>(random.uniform(1e-6, 0.1));
    y = room.template take<T>(all);
    d_y = draw_uniform<T>(random, room, all);
    d.x = room.template take<T>(all);
  }
};

/// x + r
template <class Op>
tensor<double, 4> stream_of(const Op& op) {
  tensor<double, 4> s(op.x.extents());
  testing::memory::assign(s.all(), op.x);
  if constexpr (requires { op.residual; }) {
    if (op.residual.present()) {
      const auto r = testing::flatten(op.residual);
      for (index_t i = 0; i < s.size(); ++i) s.data()[i] += r[static_cast<std::size_t>(i)];
    }
  }
  return s;
}

}  // namespace

TEMPLATE_TEST_CASE("norms are what they are defined to be", "", rms_norm<float>, rms_norm<double>, rms_norm<bfloat16>,
                   (rms_norm<float16, float>), layer_norm<float>, layer_norm<double>, layer_norm<bfloat16>,
                   l2_norm<float>, l2_norm<double>, l2_norm<float16>) {
  using Op = TestType;
  using T = typename Op::scalar;
  OGIVE_SEED(seed, 70);
  for (std::uint64_t i = 0; i < 30; ++i) {
    CAPTURE(i);
    const drawn<Op> x(seed + i, testing::layout::dense, i % 5 == 0 ? 300 : 70);
    forward(x.op, x.y);
    tensor<double, 4> expected(x.y.extents());
    define<long double>(x.op, expected.all());
    // A row's sums, then some ten roundings; a mean that is taken away is as large as the numbers, which may be larger
    // than what is left by the root of the row's length.
    const index_t N = x.y.extent(3);
    const double left = std::is_same_v<Op, l2_norm<T>> ? 1 : std::sqrt(static_cast<double>(N)) + 1;
    const double bound = testing::tolerance<T>(N + 16, 8 * left);
    const auto found = testing::compare(x.y, std::as_const(expected).all(), bound, {.scale = 1});
    INFO(found);
    CHECK(found.ok);
    CHECK(x.room.gaps_untouched());
    if constexpr (requires { x.op.sum; }) {
      if (!x.op.sum.present()) continue;
      const auto sums = testing::compare(x.op.sum, stream_of(x.op).all(), testing::tolerance<T>(1));
      CHECK(sums.ok);
    }
  }
}

TEMPLATE_TEST_CASE("gradients of norms are the differences of their definition", "", rms_norm<double>,
                   layer_norm<double>, l2_norm<double>) {
  using Op = TestType;
  OGIVE_SEED(seed, 71);
  for (std::uint64_t i = 0; i < 40; ++i) {
    CAPTURE(i);
    drawn<Op> x(seed + i, testing::layout::dense, 20);
    // The fifth derivative, which differences cut off, grows as ε^(−5/2) where a row is small.
    x.op.eps = 0.5;
    backward(x.op, x.d_y, x.d);
    const auto loss = [&] {
      tensor<double, 4> y(x.y.extents());
      define<double>(x.op, y.all());
      return tests::loss().add(y.all(), x.d_y).add(stream_of(x.op).all(), x.d.sum);
    };
    tests::check_gradient("x", x.op.x, x.d.x, loss);
    if constexpr (requires { x.op.weight; }) {
      tests::check_gradient("residual", x.op.residual, x.d.residual, loss);
      tests::check_gradient("weight", x.op.weight, x.d.weight, loss);
      tests::check_gradient("bias", x.op.bias, x.d.bias, loss);
    }
    if constexpr (requires { x.op.z; }) tests::check_gradient("z", x.op.z, x.d.z, loss);
    CHECK(x.room.gaps_untouched());
  }
}

TEMPLATE_TEST_CASE("norms: any strides, threads and sums", "", rms_norm<float>, rms_norm<bfloat16>, layer_norm<float>,
                   l2_norm<float>) {
  using Op = TestType;
  OGIVE_SEED(seed, 72);
  for (std::uint64_t i = 0; i < 10; ++i) {
    CAPTURE(i);
    const drawn<Op> x(seed + i);
    forward(x.op, x.y);
    backward(x.op, x.d_y, x.d);
    for (const testing::layout where : testing::all_layouts) {
      const drawn<Op> other(seed + i, where);
      testing::thread_pool pool;
      context forked = context::fork_join(pool, 3);
      const auto same = [&](const auto& a, const auto& b, double factor) {
        if (!a.present()) return;
        auto expected = testing::flatten(b);
        for (double& number : expected) number *= factor;
        CHECK(testing::flatten(a) == expected);
      };
      const auto all = [&](double factor) {
        same(other.d.x, x.d.x, factor);
        same(other.d.residual, x.d.residual, factor);
        same(other.d.z, x.d.z, factor);
        same(other.d.weight, x.d.weight, factor);
        same(other.d.bias, x.d.bias, factor);
      };
      forward(other.op, other.y, {}, forked);
      same(other.y, x.y, 1);
      backward(other.op, other.d_y, other.d, {}, forked);
      all(1);
      backward(other.op, other.d_y, other.d, {.accumulate = true});
      all(2);
      CHECK(other.room.gaps_untouched());
    }
  }
}

TEST_CASE("rows of zeros are finite under every norm") {
  tensor<float, 4> x({1, 2, 2, 33}), y({1, 2, 2, 33}), z({1, 2, 2, 33}), d_y({1, 2, 2, 33}, 1.0F), d({1, 2, 2, 33});
  const auto finite = [](const tensor<float, 4>& of) {
    for (const float number : of.flat()) CHECK(std::isfinite(number));
  };
  forward(l2_norm<float>{.x = x}, y);
  finite(y);
  backward(l2_norm<float>{.x = x}, d_y, {.x = d});
  finite(d);
  forward(rms_norm<float>{.x = x, .z = z, .norm_before_gate = false}, y);
  finite(y);
  backward(rms_norm<float>{.x = x, .z = z, .norm_before_gate = false}, d_y, {.x = d});
  finite(d);
  forward(layer_norm<float>{.x = x}, y);
  finite(y);
}

TEST_CASE("norms that do not fit are refused") {
  tensor<float, 4> x({1, 2, 2, 8}), y({1, 2, 2, 8});
  tensor<float, 2> weight({3, 8}), shared({1, 8});
  const auto refused = [](const status& asked, const char* word) {
    CHECK_FALSE(asked);
    CHECK(std::strstr(asked.text(), word) != nullptr);
  };
  refused(check(rms_norm<float>{.x = x, .weight = weight}, y), "weight");
  refused(check(rms_norm<float>{.x = x}, x), "overlaps x");
  refused(check(layer_norm<float>{}, y), "x is absent");
  refused(check_backward(rms_norm<float>{.x = x}, y, {.weight = shared}), "d.weight is wanted");
  CHECK_THROWS_AS(forward(l2_norm<float>{.x = x}, y.all().slice(1, 0, 1)), shape_error);
  CHECK(check(rms_norm<float>{.x = x, .weight = shared}, y));
  tensor<float, 3> flat({1, 2, 16});
  CHECK(grouped(flat.all(), 4).extents() == shape<4>{1, 2, 4, 4});
}

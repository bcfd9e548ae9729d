#include <ogive/engine/convolution.hpp>
#include <ogive/reference/convolution.hpp>
#include <ogive/testing/trials.hpp>

#include "tests/catch.hpp"

using namespace ogive;
using namespace ogive::testing;

namespace {

template <class T>
struct sample {
  using accum = accum_t<T>;
  memory room{};
  view<const T, 3> u;
  view<const accum, 2> kernel;
  view<const accum, 1> D;
  view<T, 3> y;
  integers lengths{}, offsets{};

  sample(rng& random, index_t batch, index_t length, index_t channels, index_t taps, layout where = layout::dense)
      : room(where),
        u(draw_uniform<T>(random, room, shape<3>{batch, length, channels})),
        kernel(draw_uniform<accum>(random, room, shape<2>{channels, taps})),
        D(draw_uniform<accum>(random, room, shape<1>{channels})),
        y(room.template take<T>(shape<3>{batch, length, channels})) {}

  ogive::detail::convolution_problem<T> problem() const {
    return {.u = u, .y = y, .taps = kernel.extent(1), .skip = D};
  }

  template <class Kernel>
  void run(form way, const Kernel& own, context& ctx, index_t size = 0) const {
    const auto p = problem();
    const auto cut = ogive::detail::convolution_cut_of<accum>(p, way, size);
    ogive::detail::make_convolution_tables<accum>(cut, ctx);
    ctx.reserve(static_cast<std::size_t>(ctx.workers()) * ogive::detail::convolution_bytes<accum>(p, cut, own));
    ogive::detail::convolve<accum>(p, cut, own, ctx);
  }

  /// ‖K‖·‖u‖ bounds a sum of products, and its error at so many roundings of each.
  void check(index_t roundings) const {
    memory wide;
    const auto right = wide.take<double>(y.extents());
    reference::evaluate<double>(*this, history_state<T>{}, right);
    for (index_t b = 0; b < u.extent(0); ++b) {
      for (index_t c = 0; c < u.extent(2); ++c) {
        const double norms =
            (norm(kernel[c]) + std::fabs(static_cast<double>(D(c)))) * norm(u.slice(0, b, 1).slice(2, c, 1));
        for (index_t t = 0; t < u.extent(1); ++t) {
          const double is = static_cast<double>(y(b, t, c));
          INFO("sequence " << b << ", token " << t << ", channel " << c << ": " << is << ", not " << right(b, t, c));
          REQUIRE(std::fabs(is - right(b, t, c)) <= tolerance<T>(roundings, norms));
        }
      }
    }
  }
};

}  // namespace

TEMPLATE_TEST_CASE("a convolution is its definition, direct and by transforms of every size", "", float, double,
                   bfloat16) {
  OGIVE_SEED(seed, 400);
  for_seeds(seed, 12, [](std::uint64_t s) {
    rng random(s);
    const index_t L = random.integer(0, 700), taps = random.integer(1, coin(random) ? 40 : 900);
    const sample<TestType> x(random, random.integer(1, 3), L, random.integer(1, 37), taps,
                             all_layouts[random.integer(0, 5)]);
    CAPTURE(s, L, taps);
    const ogive::detail::kernel_tensor<accum_t<TestType>> kernel{x.kernel};
    context ctx;
    x.run(form::recurrent, kernel, ctx);
    x.check(taps + 2);
    using Acc = accum_t<TestType>;
    const index_t past = ogive::detail::convolution_cut_of<Acc>(x.problem(), form::recurrent).past;
    ogive::detail::for_transform_sizes<Acc>(L, past, [&](index_t n) {
      CAPTURE(n);
      for_each(x.y, [](TestType& number, index_t) { number = std::numeric_limits<TestType>::quiet_NaN(); });
      x.run(form::convolution, kernel, ctx, n);
      index_t levels = 0;
      for (index_t i = n; i > 1; i /= 2) ++levels;
      x.check(8 * levels);
      CHECK(x.room.gaps_untouched());
    });
  });
}

TEST_CASE("kernels may be made where they are used, on any number of threads") {
  OGIVE_SEED(seed, 401);
  rng random(seed);
  const sample<float> x(random, 2, 300, 45, 100);
  const auto made = [&](index_t channel, float* to, arena) noexcept {
    for (index_t l = 0; l < 100; ++l) to[l] = x.kernel(channel, l);
  };
  memory kept;
  for (const form way : {form::recurrent, form::convolution}) {
    context serial;
    x.run(way, ogive::detail::kernel_tensor<float>{x.kernel}, serial);
    const auto once = kept.copy(x.y);
    thread_pool pool;
    for (const int workers : {1, 2, 5}) {
      context forked = context::fork_join(pool, workers);
      for_each(x.y, [](float& number, index_t) { number = std::numeric_limits<float>::quiet_NaN(); });
      x.run(way, made, forked);
      CHECK(difference(x.y, once) == "");
    }
  }
}

TEST_CASE("outputs larger than the caches are what they are in other memory") {
  OGIVE_SEED(seed, 411);
  rng random(seed);
  const shape<3> extents{1, 2048, 512};
  const sample<float> x(random, 1, extents[1], extents[2], 40);
  tensor<float, 3> large(extents, std::numeric_limits<float>::quiet_NaN());
  const ogive::detail::kernel_tensor<float> kernel{x.kernel};
  for (const form way : {form::recurrent, form::convolution}) {
    context ctx;
    auto p = x.problem();
    const auto cut = ogive::detail::convolution_cut_of<float>(p, way);
    ogive::detail::make_convolution_tables<float>(cut, ctx);
    ctx.reserve(ogive::detail::convolution_bytes<float>(p, cut, kernel));
    memory elsewhere(layout::padded);
    p.y = elsewhere.take<float>(extents);
    ogive::detail::convolve<float>(p, cut, kernel, ctx);
    const auto expected = elsewhere.copy(p.y);
    p.y = large;
    ogive::detail::convolve<float>(p, cut, kernel, ctx);
    CHECK(difference(large.all(), expected) == "");
  }
}

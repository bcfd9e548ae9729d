// C52: every input of every operator has a gradient, on each path and with each option on and off: all elements against
// differences of the library's own forms. (RWKV-4, the short convolution and feature maps have theirs beside them.)
#include <ogive/maps/elementwise.hpp>
#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/delta_rules.hpp>
#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/samplers/linear_attention.hpp>
#include <ogive/testing/samplers/selective_scan.hpp>
#include <ogive/testing/samplers/ssd.hpp>

#include "tests/layers/gradients.hpp"
#include "tests/within.hpp"

using namespace ogive;
using namespace ogive::testing;

namespace {

constexpr index_t B = 2, L = 9, H = 2, G = 1, K = 3, V = 2, N = 3, chunk = 4;

/// Arguments of the case's sizes: U(70).
struct arguments {
  rng random{70};
  memory room{};

  template <std::size_t Rank>
  view<const double, Rank> draw(shape<Rank> extents, double low = -1, double high = 1) {
    return draw_uniform<double>(random, room, extents, low, high);
  }
  /// Fields that operators of q, k and v share, and the others where they have them.
  template <class Op>
  Op of_heads(bool options) {
    Op x;
    if constexpr (requires { x.r; }) {
      x.r = draw<4>({B, L, G, K});
    } else {
      x.q = draw<4>({B, L, G, K});
    }
    x.k = draw<4>({B, L, G, K});
    x.v = draw<4>({B, L, H, V});
    if constexpr (requires { x.log_gamma; }) x.log_gamma = draw<1>({H}, -1, 0);
    if constexpr (requires { x.g; }) x.g = draw({B, L, H, K}, x.g);
    if constexpr (requires { x.w; }) x.w = draw<4>({B, L, H, K}, -1, 0);
    if constexpr (requires { x.u; }) x.u = options ? draw<2>({H, K}) : view<const double, 2>();
    if constexpr (requires { x.beta; }) x.beta = draw<3>({B, L, H}, 0, 1);
    if constexpr (requires { x.normalise; }) x.normalise = options;
    if (options) x.scale = 0.7, x.qk_l2norm = 0.5;
    return x;
  }

 private:
  /// Gates, one for each head or each of its key channels.
  template <std::size_t Rank>
  view<const double, Rank> draw(const shape<4>& all, const view<const double, Rank>&) {
    shape<Rank> extents{};
    std::copy_n(all.begin(), Rank, extents.begin());
    return draw<Rank>(extents, -1, 0);
  }
};

/// Central differences as the case has them: with a step of 1e-5, relative 1e-6.
template <class D, std::size_t Rank, class F>
void check_slopes(const view<const double, Rank>& x, const view<D, Rank>& d_x, const F& loss) {
  if (!x.present()) return;
  const auto slopes = flatten(d_x);
  for_each(x, [&](const double& number, index_t i) {
    constexpr double step = 1e-5, relative = 1e-6;
    auto& moved = const_cast<double&>(number);
    const double there = moved;
    moved = there + step;
    const double above = loss();
    moved = there - step;
    const double slope = (above - loss()) / (2 * step);
    moved = there;
    INFO("element " << i);
    CHECK_THAT(slopes[static_cast<std::size_t>(i)], tests::WithinAbs(slope, relative * (1 + std::fabs(slope))));
  });
}

/// Σ r ⊙ y + Σ s ⊙ S with r and s of U(71).
template <class Op>
void every_gradient(arguments& x, const Op& op) {
  rng random(71);
  const auto c = testing::detail::draw_cotangents(random, x.room, op);
  const auto given = draw_state<double>(x.random, x.room, op, B);
  const auto found = testing::detail::run_backward(op, given, c, {.chunk = chunk});
  std::vector<way> ways{{way::kind::step}, {way::kind::recurrent}, {way::kind::forward}};
  if constexpr (has_chunks<Op>) ways.push_back({way::kind::chunked, chunk});
  for (const way& how : ways) {
    INFO(Op::name << " " << how);
    const auto loss = [&] {
      const auto got = run<double>(how, op, given);
      auto all = tests::loss().add(got.o, c.o).add(got.st.final, c.st.final);
      if constexpr (requires { got.st.z_final; }) all.add(got.st.z_final, c.st.z_final);
      return all.value;
    };
    int number = 0;
    testing::detail::for_gradients(op, found.d, [&](const auto& values, const auto& d) {
      INFO("gradient " << number++);
      check_slopes(values, d, loss);
    });
    INFO("initial state");
    check_slopes(given.initial, found.st.initial, loss);
    if constexpr (requires { given.z_initial; }) check_slopes(given.z_initial, found.st.z_initial, loss);
  }
}

}  // namespace

TEMPLATE_TEST_CASE("C52: every gradient of operators of q, k and v", "", retention<double>, gla<double>, rwkv6<double>,
                   delta_rule<double>, gated_delta_rule<double>, kda<double>, (linear_attention<double, maps::elu1>)) {
  for (const bool options : {false, true}) {
    CAPTURE(options);
    arguments x;
    every_gradient(x, x.of_heads<TestType>(options));
  }
}

TEST_CASE("C52: every gradient of SSD and of the selective scan") {
  for (const bool options : {false, true}) {
    CAPTURE(options);
    arguments x;
    ssd<double> dual{.x = x.draw<4>({B, L, H, V}),
                     .dt = x.draw<3>({B, L, H}, 0.01, 0.51),
                     .A = x.draw<1>({H}, -2.5, -0.5),
                     .B = x.draw<4>({B, L, G, N}),
                     .C = x.draw<4>({B, L, G, N})};
    selective_scan<double> scan{.u = x.draw<3>({B, L, K}),
                                .dt = x.draw<3>({B, L, K}, 0.01, 0.51),
                                .A = x.draw<2>({K, N}, -2.5, -0.5),
                                .B = x.draw<4>({B, L, G, N}),
                                .C = x.draw<4>({B, L, G, N})};
    if (options) {
      dual.D = x.draw<2>({H, V}), dual.z = x.draw<4>({B, L, H, V}), dual.dt_bias = x.draw<1>({H});
      scan.D = x.draw<1>({K}), scan.z = x.draw<3>({B, L, K}), scan.dt_bias = x.draw<1>({K});
      dual.dt_softplus = scan.dt_softplus = true;
    }
    every_gradient(x, dual);
    for (const discretisation rule : {discretisation::mamba, discretisation::zoh}) {
      scan.rule = rule;
      every_gradient(x, scan);
    }
  }
}

TEMPLATE_TEST_CASE("C63: the same gradients to the bit, run after run and on any number of threads", "", ssd<float>,
                   selective_scan<float>) {
  constexpr index_t batch = 4, length = 513, ssd_heads = 8, values = 16, modes = 16, groups = 2;
  rng random(80);
  memory room;
  const auto draw = [&]<std::size_t Rank>(const shape<Rank>& extents, double low = -1, double high = 1) {
    return draw_uniform<float>(random, room, extents, low, high);
  };
  TestType op;
  if constexpr (requires { op.x; }) {
    op.x = draw(shape<4>{batch, length, ssd_heads, values});
    op.dt = draw(shape<3>{batch, length, ssd_heads}, 0.01, 0.51);
    op.A = draw(shape<1>{ssd_heads}, -2.5, -0.5);
    op.D = draw(shape<2>{ssd_heads, values});
    op.dt_bias = draw(shape<1>{ssd_heads});
  } else {
    constexpr index_t channels = ssd_heads * values;
    op.u = draw(shape<3>{batch, length, channels});
    op.dt = draw(shape<3>{batch, length, channels}, 0.01, 0.51);
    op.A = draw(shape<2>{channels, modes}, -2.5, -0.5);
    op.D = draw(shape<1>{channels});
    op.dt_bias = draw(shape<1>{channels});
  }
  op.B = draw(shape<4>{batch, length, groups, modes});
  op.C = draw(shape<4>{batch, length, groups, modes});
  op.dt_softplus = true;
  const auto c = testing::detail::draw_cotangents(random, room, op);
  const auto given = draw_state<float>(random, room, op, batch);
  const auto expected = testing::detail::run_backward(op, given, c, {});
  const thread_pool pool;
  const auto same = [&](int workers) {
    CAPTURE(workers);
    context forked = context::fork_join(pool, workers);
    const auto again = testing::detail::run_backward(op, given, c, {}, forked);
    CHECK(testing::detail::gradient_gap(op, again, expected) == "");
  };
  for (int run = 0; run < 50; ++run) same(8);
  for (const int workers : {1, 2, 3}) same(workers);
}

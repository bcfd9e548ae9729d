#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/causal_convolution.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEST_CASE("gradients of the causal convolution") {
  OGIVE_SEED(seed, 407);
  using Op = causal_convolution<double>;
  for (const testing::law& law : testing::gradient_laws<Op>()) tests::check_law(law, seed);
}

TEMPLATE_TEST_CASE("gradients of the causal convolution in other types", "", float, bfloat16) {
  OGIVE_SEED(seed, 408);
  tests::check_law(testing::law_of_rounded_gradients<causal_convolution<TestType>, causal_convolution<double>>(), seed);
}

TEST_CASE("gradients of the causal convolution by transforms are the direct ones, in many blocks") {
  OGIVE_SEED(seed, 409);
  using namespace ogive::testing;
  for_seeds(seed, 8, [](std::uint64_t s) {
    rng random(s);
    memory room;
    const index_t L = random.integer(0, 2500), taps = random.integer(1, 120), channels = random.integer(1, 20);
    CAPTURE(s, L, taps, channels);
    causal_convolution<double> op;
    op.u = draw_uniform<double>(random, room, shape<3>{2, L, channels});
    op.kernel = draw_uniform<double>(random, room, shape<2>{channels, taps});
    op.D = draw_uniform<double>(random, room, shape<1>{channels});
    const std::vector<std::int32_t> lengths{static_cast<std::int32_t>(L), static_cast<std::int32_t>(L / 2)};
    op.lengths = lengths;
    const history_state<double> st{.initial = draw_uniform<double>(random, room, shape<3>{2, channels, taps - 1})};
    const auto d_y = draw_uniform<double>(random, room, op.u.extents());
    const auto d_final = draw_uniform<double>(random, room, st.initial.extents());
    const auto run = [&](form way) {
      const auto all = [&](const auto&... shapes) { return std::tuple(room.take<double>(shapes)...); };
      const auto found = all(op.u.extents(), op.kernel.extents(), op.D.extents(), st.initial.extents());
      const auto& [u, kernel, D, initial] = found;
      backward(op, st, view<const double, 3>(d_y), history_state_gradient<double>{.final = d_final, .initial = initial},
               {.u = u, .kernel = kernel, .D = D}, {.form = way});
      return found;
    };
    const auto direct = run(form::recurrent), fast = run(form::convolution);
    const auto near = [&](const auto& got, const auto& right, double size) {
      CHECK(compare(flatten(got), flatten(right), tolerance<double>(2 * taps + 128, size + 1), {.scale = 1}));
    };
    near(std::get<0>(fast), std::get<0>(direct), norm(d_y) * norm(op.kernel) + norm(op.D));
    near(std::get<1>(fast), std::get<1>(direct), norm(d_y) * (norm(op.u) + norm(st.initial)));
    near(std::get<2>(fast), std::get<2>(direct), norm(d_y) * norm(op.u));
    near(std::get<3>(fast), std::get<3>(direct), norm(d_y) * norm(op.kernel));
  });
}

// The gradient of the token shift.
#include <ogive/testing/samplers/token_shift.hpp>
#include <ogive/testing/trials.hpp>

#include "tests/layers/gradients.hpp"

using namespace ogive;

TEST_CASE("gradients of the token shift are the differences of its definition") {
  OGIVE_SEED(seed, 91);
  for (std::uint64_t i = 0; i < 30; ++i) {
    CAPTURE(i);
    testing::trial<token_shift<double>> x(seed + i, 40, i % 3 == 0 ? 1 : 0);
    if (i % 3 == 0) x.pack();
    if (i % 2 == 0) x.shorten();
    const index_t n = testing::sequence_count(x.op), D = x.op.x.extent(2), K = 1 + static_cast<index_t>(i % 2);
    window_state<double> st;
    window_gradient<double> d_st;
    if (i % 4 != 0) {
      st.initial = testing::draw_uniform<double>(x.random, x.room, shape<3>{n, D, K});
      d_st.initial = x.room.take<double>(shape<3>{n, D, K});
    }
    if (i % 5 != 0) d_st.final = testing::draw_uniform<double>(x.random, x.room, shape<3>{n, D, K});
    const auto out = testing::sampler<token_shift<double>>::output(x.op);
    const auto d_y = testing::draw_uniform<double>(x.random, x.room, out);
    token_shift<double>::gradient d;
    d.x = x.room.take<double>(x.op.x.extents());
    if (x.op.mu.present()) d.mu = x.room.take<double>(x.op.mu.extents());
    if (x.op.mix.present()) d.mix = x.room.take<double>(x.op.mix.extents());
    backward(x.op, st, d_y, d_st, d);
    const auto loss = [&] {
      testing::memory room;
      auto left = st;
      if (d_st.final.present()) left.final = room.take<double>(d_st.final.extents());
      const auto y = room.take<double>(out);
      reference::evaluate<double>(x.op, left, y);
      return tests::loss().add(y, d_y).add(left.final, d_st.final);
    };
    if (x.op.x.size() < 1500) tests::check_gradient("x", x.op.x, d.x, loss);
    tests::check_gradient("mu", x.op.mu, d.mu, loss);
    if (x.op.mix.size() < 1500) tests::check_gradient("mix", x.op.mix, d.mix, loss);
    tests::check_gradient("initial", st.initial, d_st.initial, loss);
    CHECK(x.room.gaps_untouched());
  }
}

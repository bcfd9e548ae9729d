#include <ogive/testing/samplers/shared_state.hpp>
#include <ogive/testing/trials.hpp>

#include "tests/catch.hpp"

using namespace ogive;
using namespace ogive::testing;

namespace {

/// A sample without what only one of its tokens needs, and its whole output and final state.
template <class Op>
struct stream {
  rng random;
  memory room{};
  index_t batch = 2, length = 75;
  Op op;
  outcome<Op, typename Op::number> whole{memory()};

  explicit stream(std::uint64_t seed) : random(seed), op(sampler<Op>::draw(random, room, batch, length)) {
    whole = run<typename Op::number>({way::kind::recurrent}, op, {});
  }
};

}  // namespace

TEMPLATE_TEST_CASE("a prepared system gives the bits of the operator, in any pieces, without its parameters", "",
                   lti<float>, s5<float>, lru<double>, s5<bfloat16>) {
  using scalar = typename TestType::scalar;
  OGIVE_SEED(seed, 480);
  for_seeds(seed, 4, [](std::uint64_t s) {
    stream<TestType> x(s);
    const auto make = [&] {
      memory gone;
      return prepare(copy_of(x.op, gone), {.batch = x.batch, .length = x.random.integer(0, 40)});
    };
    prepared<TestType> ready = make();
    for (const layout where : {layout::dense, layout::tokens_in, layout::backwards}) {  // planar, and against the grain
      memory elsewhere(where);
      const auto u = elsewhere.copy(x.op.u);
      const auto y = elsewhere.template take<scalar>(x.whole.o.extents());
      ready.reset();
      for (index_t t = 0; t < x.length;) {
        const index_t count = std::min(x.random.integer(1, 40), x.length - t);
        ready.step(u.slice(1, t, count), y.slice(1, t, count));
        t += count;
      }
      CHECK(difference(y, x.whole.o) == "");
      CHECK(difference(ready.state(), x.whole.st.final) == "");
      CHECK(elsewhere.gaps_untouched());
      const auto again = x.room.template take<scalar>(x.whole.o.extents());
      ready.forward(u, again);
      CHECK(difference(again, x.whole.o) == "");
      CHECK(difference(ready.state(), x.whole.st.final) == "");
    }
    prepared<TestType> moved = std::move(ready);
    const auto last = x.room.template take<scalar>(x.whole.o.extents());
    moved.forward(x.op.u, last);
    CHECK(difference(last, x.whole.o) == "");
    moved.reset();
    moved.step(x.op.u, {});
    CHECK(difference(moved.state(), x.whole.st.final) == "");
  });
}

TEST_CASE("another rate is another step") {
  OGIVE_SEED(seed, 481);
  stream<s5<float>> x(seed);
  auto ready = prepare(x.op, {.batch = x.batch});
  const auto y = x.room.take<float>(x.whole.o.extents()), expected = x.room.take<float>(y.extents());
  s5<float> other = x.op;
  const auto dt = x.room.copy(x.op.dt);
  for_each(dt, [](float& step, index_t) { step = static_cast<float>(static_cast<double>(step) / 1.5); });
  other.dt = dt;
  recurrent(other, {}, expected);
  ready.set_rate(1.5);
  ready.step(x.op.u, y);
  CHECK(difference(y, expected) == "");
  ready.set_rate(1);
  ready.reset();
  ready.step(x.op.u, y);
  CHECK(difference(y, x.whole.o) == "");
  for (const double rate : {0.0, -1.0, std::numeric_limits<double>::infinity()}) {
    CHECK_THROWS_AS(ready.set_rate(rate), std::invalid_argument);
  }
}

TEST_CASE("what does not fit a prepared system is refused before anything is written") {
  OGIVE_SEED(seed, 482);
  stream<lti<double>> x(seed);
  auto ready = prepare(x.op, {.batch = x.batch});
  const auto y = x.room.take<double>(x.whole.o.extents());
  CHECK_THROWS_AS(ready.step(x.op.u, y.slice(1, 0, 3)), shape_error);
  CHECK_THROWS_AS(ready.step(x.op.u.slice(0, 0, 1), y), shape_error);
  CHECK_THROWS_AS(ready.forward({}, y), shape_error);
  CHECK_FALSE(ready.check(x.op.u, y.slice(2, 0, 0)));
  for (const double number : flatten(y)) CHECK(std::isnan(number));
  for (const double number : flatten(ready.state())) CHECK(number == 0);
  lti<double> bad = x.op;
  bad.C = {};
  CHECK_THROWS_AS(prepare(bad), shape_error);
  CHECK_THROWS_AS(prepare(x.op, {.batch = -1}), shape_error);
  STATIC_REQUIRE(noexcept(ready.step(prechecked, x.op.u, y))&& noexcept(ready.forward(prechecked, x.op.u, y)));
}

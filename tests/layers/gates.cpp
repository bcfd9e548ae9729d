#include <ogive/layers/gates.hpp>
#include <ogive/reference/gates.hpp>
#include <ogive/testing/trials.hpp>

#include <cstring>

#include "tests/layers/gradients.hpp"
#include "tests/within.hpp"

using namespace ogive;
using testing::coin;
using testing::draw_uniform;
using tests::WithinRoundings;

namespace {

// What each form is defined to be.
template <class Acc>
Acc defined(const gates::softplus_form&, const Acc& u, const Acc& s) {
  return reference::softplus_decay(u, s);
}
template <class Acc>
Acc defined(const gates::bounded_form& form, const Acc& u, const Acc& s) {
  return reference::bounded_decay(u, s, form.lowest);
}
template <class Acc>
Acc defined(const gates::log_sigmoid_form& form, const Acc& u, const Acc&) {
  return reference::logsigmoid(u) / Acc(form.tau);
}
template <class Acc>
Acc defined(const gates::minus_exp_form&, const Acc& u, const Acc&) {
  return -std::exp(u);
}
template <class Acc>
Acc defined(const gates::log_form&, const Acc& u, const Acc&) {
  return std::log(u);
}

template <class Op>
struct drawn {
  using T = typename Op::scalar;
  testing::memory room;
  Op op{};
  view<accum_t<T>, 4> g{}, d_g{};
  gradient<Op> d{};

  explicit drawn(std::uint64_t seed, testing::layout where = testing::layout::dense) : room(where) {
    testing::rng random(seed);
    const shape<4> all{random.integer(1, 2), random.integer(0, 70), random.integer(1, 20),
                       coin(random) ? 1 : random.integer(1, 70)};
    const double low = std::is_same_v<decltype(op.form), gates::log_form> ? 1 : -4;
    op.a = draw_uniform<T>(random, room, all, low, 4);
    if (Op::scaled && coin(random)) op.A_log = draw_uniform<accum_t<T>>(random, room, shape<1>{all[2]});
    if (coin(random)) op.dt_bias = draw_uniform<accum_t<T>>(random, room, shape<2>{all[2], all[3]}, 0, 1);
    if constexpr (requires { op.form.tau; }) op.form.tau = random.uniform(1, 16);
    g = room.template take<accum_t<T>>(all);
    d_g = draw_uniform<accum_t<T>>(random, room, all);
    d.a = room.template take<T>(all);
    if (op.A_log.present()) d.A_log = room.template take<accum_t<T>>(op.A_log.extents());
    if (op.dt_bias.present()) d.dt_bias = room.template take<accum_t<T>>(op.dt_bias.extents());
  }

  template <class Acc>
  tensor<Acc, 4> definition() const {
    tensor<Acc, 4> expected(op.a.extents());
    reference::gate<Acc>(op, expected.all(), [&](const Acc& u, const Acc& s) { return defined(op.form, u, s); });
    return expected;
  }
};

}  // namespace

TEMPLATE_TEST_CASE("gates are what they are defined to be, and their gradients its differences", "",
                   gates::softplus_decay<double>, gates::bounded_decay<double>, gates::log_sigmoid<double>,
                   gates::minus_exp<double>, gates::log_decay<double>) {
  using Op = TestType;
  OGIVE_SEED(seed, 80);
  for (std::uint64_t i = 0; i < 12; ++i) {
    CAPTURE(i);
    const drawn<Op> x(seed + i);
    forward(x.op, x.g);
    const auto expected = x.template definition<double>();
    const auto found = testing::compare(x.g, expected.all(), testing::tolerance<double>(16));
    CHECK(found.ok);
    backward(x.op, x.d_g, x.d);
    const auto loss = [&] { return tests::loss().add(x.template definition<double>().all(), x.d_g); };
    if (x.op.a.size() < 500) tests::check_gradient("a", x.op.a, x.d.a, loss);
    tests::check_gradient("A_log", x.op.A_log, x.d.A_log, loss);
    if (x.op.a.size() < 2000) tests::check_gradient("dt_bias", x.op.dt_bias, x.d.dt_bias, loss);
    CHECK(x.room.gaps_untouched());
  }
}

TEMPLATE_TEST_CASE("gates: types, strides, threads and sums", "", gates::softplus_decay<float>,
                   gates::softplus_decay<bfloat16>, gates::bounded_decay<float>, gates::log_sigmoid<float16>) {
  using Op = TestType;
  using T = typename Op::scalar;
  OGIVE_SEED(seed, 81);
  for (std::uint64_t i = 0; i < 8; ++i) {
    CAPTURE(i);
    const drawn<Op> x(seed + i);
    forward(x.op, x.g);
    const auto expected = x.template definition<double>();
    CHECK(testing::compare(x.g, expected.all(), testing::tolerance<accum_t<T>>(16)).ok);
    backward(x.op, x.d_g, x.d);
    for (const testing::layout where : testing::all_layouts) {
      const drawn<Op> other(seed + i, where);
      testing::thread_pool pool;
      context forked = context::fork_join(pool, 3);
      const auto same = [&](const auto& a, const auto& b, double factor) {
        if (!a.present()) return;
        auto numbers = testing::flatten(b);
        for (double& number : numbers) number *= factor;
        CHECK(testing::flatten(a) == numbers);
      };
      forward(other.op, other.g, {}, forked);
      same(other.g, x.g, 1);
      for (const int times : {1, 2}) {
        backward(other.op, other.d_g, other.d, {.accumulate = times == 2}, forked);
        same(other.d.a, x.d.a, times);
        same(other.d.A_log, x.d.A_log, times);
        same(other.d.dt_bias, x.d.dt_bias, times);
      }
      CHECK(other.room.gaps_untouched());
    }
  }
}

TEMPLATE_TEST_CASE("gates keep their digits at both ends", "", float, double) {
  using T = TestType;
  tensor<T, 4> a({1, 4, 1, 1}), g({1, 4, 1, 1}), one({1, 4, 1, 1}, T(1)), slope({1, 4, 1, 1});
  const T ends[] = {T(-80), T(-30), T(30), T(100)};
  std::copy(std::begin(ends), std::end(ends), a.data());
  const double small = std::exp(-30.0);
  const auto near = [](T got, double expected) {
    CHECK_THAT(static_cast<double>(got), WithinRoundings<T>(expected, 8));
  };
  forward(gates::softplus_decay<T>{.a = a}, g);
  near(g(0, 0, 0, 0), -std::exp(-80.0));
  near(g(0, 1, 0, 0), -std::log1p(std::exp(-30.0)));
  near(g(0, 3, 0, 0), -100);
  backward(gates::softplus_decay<T>{.a = a}, one, {.a = slope});
  near(slope(0, 0, 0, 0), -std::exp(-80.0));
  near(slope(0, 3, 0, 0), -1);
  forward(gates::log_sigmoid<T>{.a = a, .form = {.tau = 16}}, g);
  near(g(0, 0, 0, 0), -80.0 / 16);
  near(g(0, 2, 0, 0), -std::log1p(std::exp(-30.0)) / 16);
  backward(gates::log_sigmoid<T>{.a = a}, one, {.a = slope});
  near(slope(0, 0, 0, 0), 1);
  near(slope(0, 2, 0, 0), small / (1 + small));
  forward(gates::bounded_decay<T>{.a = a, .form = gates::rwkv7}, g);
  near(g(0, 0, 0, 0), -std::exp(-0.5) * std::exp(-80.0));
  near(g(0, 3, 0, 0), -std::exp(-0.5));
  backward(gates::bounded_decay<T>{.a = a, .form = gates::rwkv7}, one, {.a = slope});
  near(slope(0, 2, 0, 0), -std::exp(-0.5) * small / ((1 + small) * (1 + small)));
  for (T& number : a.flat()) number = T(0);
  forward(gates::log_decay<T>{.a = a}, g);
  CHECK(g(0, 0, 0, 0) == -std::numeric_limits<T>::infinity());
}

TEST_CASE("fixed decays of heads") {
  tensor<double, 1> g({8});
  gates::retnet(g.all());
  for (index_t h = 0; h < 8; ++h) {  // the logarithm of an exact number
    CHECK_THAT(g(h), WithinRoundings<double>(std::log(1 - std::pow(2.0, -5.0 - static_cast<double>(h))), 2));
  }
  gates::lightning(g.all(), 3, 12);
  CHECK(g(0) == 0);
  CHECK(g(4) == -3);
}

TEST_CASE("gates that do not fit are refused") {
  tensor<float, 4> a({1, 2, 3, 4}), g({1, 2, 3, 4});
  tensor<float, 1> A({2}), heads({3});
  const auto refused = [](const status& asked, const char* word) {
    CHECK_FALSE(asked);
    CHECK(std::strstr(asked.text(), word) != nullptr);
  };
  refused(check(gates::softplus_decay<float>{.a = a, .A_log = A}, g), "A_log");
  refused(check(gates::minus_exp<float>{.a = a, .A_log = heads}, g), "no place");
  refused(check(gates::softplus_decay<float>{.a = a}, a), "overlaps a");
  CHECK(check(gates::softplus_decay<float>{.a = a, .A_log = heads}, g));
  // By the name that the caller has for it.
  tensor<float, 2> bias({3, 5});
  refused(check(gates::softplus_decay<float>{.a = a, .dt_bias = bias}, g), "gates::softplus_decay: dt_bias has shape");
  refused(check(gates::bounded_decay<float>{.a = a, .dt_bias = bias}, g), "gates::bounded_decay: dt_bias has shape");
  refused(check(gates::log_sigmoid<float>{.a = a, .dt_bias = bias}, g), "gates::log_sigmoid: dt_bias has shape");
  refused(check(gates::minus_exp<float>{.a = a, .dt_bias = bias}, g), "gates::minus_exp: dt_bias has shape");
  refused(check(gates::log_decay<float>{.a = a, .dt_bias = bias}, g), "gates::log_decay: dt_bias has shape");
}

#include <ogive/testing/samplers/s4.hpp>

#include "tests/laws/laws.hpp"
#include "tests/within.hpp"

using namespace ogive;

namespace {

using complex = std::complex<double>;

/// A random stable system with N modes and a low-rank term of rank R.
struct system_of {
  tensor<complex, 2> Lambda, B, C;
  tensor<complex, 3> P;
  tensor<double, 1> dt, D;
  tensor<double, 3> u;

  system_of(std::uint64_t seed, index_t batch, index_t length, index_t channels, index_t N, index_t R)
      : Lambda({channels, N}),
        B({channels, N}),
        C({channels, N}),
        P({channels, R, N}),
        dt({channels}),
        D({channels}),
        u({batch, length, channels}) {
    testing::rng random(seed);
    for (complex& x : Lambda.flat()) x = {-random.uniform(0.05, 2), random.uniform(-20, 20)};
    testing::fill_normal(random, B.all());
    testing::fill_normal(random, C.all());
    testing::fill_normal(random, P.all());
    testing::fill_uniform(random, dt.all(), 0.01, 0.2);
    testing::fill_normal(random, D.all());
    testing::fill_normal(random, u.all());
  }
  s4<double> op() const { return {.u = u, .Lambda = Lambda, .P = P, .B = B, .C = C, .dt = dt, .D = D}; }
};

/// What rounding may do to K̂ and its coefficients, relative to the largest |K|: a Cauchy sum loses up to 1/|1 − z a|,
/// at least as near as the slowest mode is to the unit circle, and the solve with I + z QᵀEU as much again.
double kernel_bound(const system_of& of, index_t L) {
  double nearest = 1;
  for (index_t d = 0; d < of.dt.extent(0); ++d)
    for (index_t n = 0; n < of.Lambda.extent(1); ++n) {
      const auto a = discretise(discretisation::bilinear, of.dt(d), of.Lambda(d, n), complex(1)).A;
      nearest = std::min(nearest, 1 - std::abs(a));
    }
  return testing::tolerance<double>(8 * (of.Lambda.extent(1) + 16), std::sqrt(static_cast<double>(L)), 1 / nearest);
}

}  // namespace

TEST_CASE("S4 keeps the laws") {
  OGIVE_SEED(seed, 460);
  tests::check_laws<s4<float>>(seed);
}

TEMPLATE_TEST_CASE("S4 in another type", "", double, bfloat16) {
  OGIVE_SEED(seed, 461);
  tests::check_law(testing::law_of_states<s4<TestType>, std::complex<accum_t<TestType>>>(), seed);
}

TEST_CASE("S4 with a state of doubles") {
  OGIVE_SEED(seed, 462);
  tests::check_law(testing::law_of_states<s4<float>, std::complex<double>>(), seed);
}

TEST_CASE("S4: the kernel is the response to an impulse, of any rank and length") {
  OGIVE_SEED(seed, 463);
  for (const index_t R : {0, 1, 2, 3, 5}) {
    for (const index_t L : {1, 37, 128, 129, 600}) {
      const system_of of(seed, 1, 1, 5, 6, R);
      INFO("R " << R << " L " << L);
      tensor<double, 2> K({5, L}), expected({5, L}), turned({L, 5});
      kernel(of.op(), K.all());
      reference::kernel<double>(of.op(), expected.all());
      const auto held = testing::compare(K.all(), expected.all(), kernel_bound(of, L));
      INFO(held);
      CHECK(held.ok);
      kernel(of.op(), turned.all().permute({1, 0}));
      CHECK(testing::difference(turned.all().permute({1, 0}), K.all()).empty());
    }
  }
}

TEST_CASE("S4: convolution is the recurrence, whole, packed, and from the automatic choice") {
  OGIVE_SEED(seed, 464);
  for (const index_t R : {1, 2}) {
    const index_t batch = 24, length = 300, channels = 11;  // so many that a kernel pays
    const system_of of(seed, batch, length, channels, 40, R);
    tensor<double, 3> expected(of.u.extents()), got(of.u.extents());
    recurrent(of.op(), {}, expected.all());
    const double bound = kernel_bound(of, length) * std::log2(4.0 * length);
    const auto hold = [&](const char* what) {
      const auto held = testing::compare(got.all(), expected.all(), bound);
      INFO(what << ": " << held);
      CHECK(held.ok);
      for (double& x : got.flat()) x = 0;
    };
    convolution(of.op(), {}, got.all());
    hold("convolution");
    forward(of.op(), {}, got.all(), {.form = form::convolution});
    hold("forced");
    forward(of.op(), {}, got.all());
    hold("automatic");

    // Sequences of 100, 0 and 7100 tokens in one row.
    s4<double> packed = of.op();
    packed.u = {of.u.data(), {1, batch * length, channels}};
    const std::vector<std::int64_t> offsets{0, 100, 100, batch * length};
    packed.offsets = offsets;
    const view<double, 3> row(got.data(), {1, batch * length, channels});
    recurrent(packed, {}, view<double, 3>(expected.data(), {1, batch * length, channels}));
    convolution(packed, {}, row);
    hold("packed");
  }
}

TEST_CASE("S4: with a state, or padding that reads it, a convolution gives what the recurrence does, to the bit") {
  OGIVE_SEED(seed, 465);
  const system_of of(seed, 2, 40, 9, 3, 1);
  tensor<complex, 3> from({2, 9, 3}), left({2, 9, 3}), other({2, 9, 3});
  testing::rng random(seed);
  testing::fill_normal(random, from.all());
  tensor<double, 3> expected(of.u.extents()), got(of.u.extents());
  s4<double> op = of.op();
  const std::vector<std::int32_t> lengths{40, 7};
  op.lengths = lengths;
  const view<const complex, 3> initial = std::as_const(from).all();
  recurrent(op, diagonal_state<complex>{.initial = initial, .final = left}, expected.all());
  convolution(op, diagonal_state<complex>{.initial = initial, .final = other}, got.all());
  CHECK(testing::difference(got.all(), expected.all()).empty());
  CHECK(testing::difference(other.all(), left.all()).empty());
  recurrent(op, {}, expected.all());
  convolution(op, {}, got.all());
  CHECK(testing::difference(got.all(), expected.all()).empty());
}

TEST_CASE("S4: a conjugate system with a conjugate C is the same system") {
  OGIVE_SEED(seed, 466);
  system_of of(seed, 1, 30, 2, 3, 1);
  tensor<double, 3> expected(of.u.extents()), got(of.u.extents());
  recurrent(of.op(), {}, expected.all());
  const auto turn = [](auto& all) {
    for (complex& x : all.flat()) x = std::conj(x);
  };
  turn(of.Lambda);
  turn(of.P);
  turn(of.B);
  turn(of.C);
  recurrent(of.op(), {}, got.all());
  const auto held = testing::compare(got.all(), expected.all(), testing::tolerance<double>(8));
  INFO(held);
  CHECK(held.ok);
}

TEST_CASE("S4: discretised once, the same bits") {
  OGIVE_SEED(seed, 468);
  for (const index_t R : {0, 1, 3}) {
    const system_of of(seed, 2, 20, 11, 5, R);
    s4<double> steps = of.op();
    tensor<complex, 2> a(of.B.extents()), B_bar(of.B.extents());
    tensor<complex, 3> U(of.P.extents()), Q(of.P.extents());
    discretise(of.op(), a.all(), B_bar.all(), U.all(), Q.all());
    steps.Lambda = a;
    steps.B = B_bar;
    steps.P = U;
    steps.Q = Q;
    steps.dt = {};
    tensor<double, 3> expected(of.u.extents()), got(of.u.extents());
    recurrent(of.op(), {}, expected.all());
    step(steps, {}, got.all());
    CHECK(testing::difference(got.all(), expected.all()).empty());
    tensor<double, 2> K({11, 20}), L({11, 20});
    kernel(of.op(), K.all());
    kernel(steps, L.all());
    CHECK(testing::difference(K.all(), L.all()).empty());
    CHECK_THROWS_AS(discretise(of.op(), a.all(), a.all(), U.all(), Q.all()), shape_error);
  }
}

TEST_CASE("S4: results do not depend on the workers") {
  OGIVE_SEED(seed, 467);
  const system_of of(seed, 3, 200, 35, 4, 1);
  const testing::thread_pool pool{};
  context forked = context::fork_join(pool, 3);
  tensor<double, 3> one(of.u.extents()), many(of.u.extents());
  tensor<double, 2> K({35, 70}), L({35, 70});
  convolution(of.op(), {}, one.all());
  convolution(of.op(), {}, many.all(), {}, forked);
  CHECK(testing::difference(one.all(), many.all()).empty());
  kernel(of.op(), K.all());
  kernel(of.op(), L.all(), forked);
  CHECK(testing::difference(K.all(), L.all()).empty());
}

TEST_CASE("S4: systems that do not exist are refused and nothing is written") {
  system_of of(1, 1, 4, 2, 3, 1);
  tensor<double, 3> y(of.u.extents(), 7.0);
  tensor<double, 2> K({2, 4}, 7.0);
  const auto refused = [&](const char* words) {
    CHECK_THROWS_WITH(recurrent(of.op(), {}, y.all()), tests::ContainsSubstring(words));
    CHECK_THROWS_WITH(kernel(of.op(), K.all()), tests::ContainsSubstring(words));
    for (const double x : y.flat()) CHECK(x == 7);
    for (const double x : K.flat()) CHECK(x == 7);
  };
  of.dt(1) = 0;
  refused("s4: dt of channel 1 must be positive and finite");
  of.dt(1) = 0.5;
  of.Lambda(1, 2) = 4;
  refused("s4: Lambda of channel 1: dt/2 Lambda has a mode at 1");
  for (index_t n = 0; n < 3; ++n) {
    of.Lambda(1, n) = 8;
    of.P(1, 0, n) = n == 1 ? std::sqrt(2.0) : 0;
  }
  refused("s4: P of channel 1: I - dt/2 A is singular");
  of.Lambda(1, 1) = -8;
  CHECK_NOTHROW(recurrent(of.op(), {}, y.all()));
  CHECK_THROWS_AS(recurrent(of.op(), {}, y.all(), {.form = form::chunked}), std::invalid_argument);
  s4<double> op = of.op();
  op.B = op.B.slice(1, 0, 2);
  CHECK_THROWS_WITH(recurrent(op, {}, y.all()), tests::ContainsSubstring("s4: B has shape [2, 2], expected [2, 3]"));
  CHECK_THROWS_AS(kernel(of.op(), K.all().slice(0, 0, 1)), shape_error);
}

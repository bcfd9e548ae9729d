// Faults that users of selective scans met elsewhere, as right values, in every way to run the operator.
#include <ogive/core/openmp.hpp>
#include <ogive/testing/samplers/selective_scan.hpp>

#include "tests/laws/laws.hpp"
#include "tests/within.hpp"

using namespace ogive;
using testing::way;
using tests::WithinDigits;
using tests::WithinRel;
using tests::WithinRoundings;

namespace {

template <class Op, class State, class Check>
void in_every_way(const Op& op, const State& st, const view<typename Op::scalar, 3>& y, const Check& check) {
  for (const way& how : testing::ways<Op>()) {
    CAPTURE(how);
    context serial;
    testing::call(how, op, st, y, serial);
    check();
  }
}

/// One channel with one state: rate A, step dt, input u_t, B = C = 1.
template <class T>
struct scalar_scan {
  tensor<T, 3> u, dt;
  tensor<T, 2> A;
  tensor<T, 4> one;
  tensor<T, 3> y;
  tensor<T, 3> h;

  scalar_scan(index_t length, T rate, T step, T input)
      : u({1, length, 1}, input),
        dt({1, length, 1}, step),
        A({1, 1}, rate),
        one({1, length, 1, 1}, T(1)),
        y({1, length, 1}),
        h({1, 1, 1}) {}
  selective_scan<T> op() const { return {.u = u, .dt = dt, .A = A, .B = one, .C = one}; }
};

/// |a − b| ≤ τ (1 + |b|)
template <class T>
double furthest(const view<T, 3>& got, const view<double, 3>& expected) {
  const auto a = testing::flatten(got);
  const auto b = testing::flatten(expected);
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::fmax(most, std::fabs(a[i] - b[i]) / (1 + std::fabs(b[i])));
  return most;
}
/// τ, stated by the cases for all that they do not bound otherwise.
template <class T>
constexpr double tau = std::is_same_v<T, double> ? 1e-11 : 2e-5;

/// Arguments of given sizes, uniform draws in the order of the fields.
template <class T>
selective_scan<T> sized(std::uint64_t seed, testing::memory& room, index_t B, index_t L, index_t D, index_t N,
                        index_t G) {
  testing::rng random(seed);
  selective_scan<T> op;
  op.u = testing::draw_uniform<T>(random, room, shape<3>{B, L, D});
  op.dt = testing::draw_uniform<accum_t<T>>(random, room, shape<3>{B, L, D}, 0.01, 0.51);
  op.A = testing::draw_uniform<accum_t<T>>(random, room, shape<2>{D, N}, -2.5, -0.5);
  op.B = testing::draw_uniform<T>(random, room, shape<4>{B, L, G, N});
  op.C = testing::draw_uniform<T>(random, room, shape<4>{B, L, G, N});
  return op;
}

}  // namespace

TEST_CASE("C01: strong decays are not divided by") {
  constexpr float tolerated = 1e-6F;  // relative, stated by C01
  scalar_scan<float> s(32, -16, 1, 0);
  for (index_t t = 0; t < 32; ++t) s.u(0, t, 0) = static_cast<float>(t + 1);
  in_every_way(s.op(), diagonal_state<float>{.final = s.h}, s.y.all(), [&] {
    CHECK(s.y(0, 0, 0) == 1);
    CHECK_THAT(s.y(0, 1, 0), WithinRel(2.0000001125F, tolerated));
    CHECK_THAT(s.y(0, 2, 0), WithinRel(3.0000002251F, tolerated));
    CHECK_THAT(s.y(0, 31, 0), WithinRel(32.0000034886F, tolerated));
    CHECK_THAT(s.h(0, 0, 0), WithinRel(32.0000034886F, tolerated));
  });

  scalar_scan<double> d(32, -128, 1, 0);
  for (index_t t = 0; t < 32; ++t) d.u(0, t, 0) = static_cast<double>(t + 1);
  tensor<double, 3> expected({1, 32, 1});
  reference::evaluate<long double>(d.op(), diagonal_state<double>{}, expected.all());
  in_every_way(d.op(), diagonal_state<double>{.final = d.h}, d.y.all(), [&] {
    // Of what was before next to nothing is left: dt B u, the sum, and C times it.
    for (index_t t = 0; t < 32; ++t) CHECK_THAT(d.y(0, t, 0), WithinRoundings<double>(expected(0, t, 0), 4));
  });
}

TEST_CASE("C09: a raw step of -20 is a small step, not none") {
  constexpr float tolerated = 1e-5F;  // relative, stated by C09
  scalar_scan<float> s(1, -1, -20, 1e9F);
  auto op = s.op();
  op.dt_softplus = true;
  in_every_way(op, diagonal_state<float>{.final = s.h}, s.y.all(),
               [&] { CHECK_THAT(s.y(0, 0, 0), WithinRel(2.0611536203F, tolerated)); });
}

TEST_CASE("C25: B is discretised by the Euler term, by zero-order hold on request") {
  scalar_scan<double> s(3, -1, 1, 1);
  auto op = s.op();
  const auto is = [&](double y0, double y1, double y2) {
    in_every_way(op, diagonal_state<double>{.final = s.h}, s.y.all(), [&] {
      CHECK_THAT(s.y(0, 0, 0), WithinDigits(y0, 12));
      CHECK_THAT(s.y(0, 1, 0), WithinDigits(y1, 12));
      CHECK_THAT(s.y(0, 2, 0), WithinDigits(y2, 12));
    });
  };
  is(1, 1.36787944117, 1.50321472441);
  op.rule = discretisation::zoh;
  is(0.632120558829, 0.864664716763, 0.950212931632);
  op.rule = discretisation::bilinear;
  CHECK_THROWS_AS(forward(op, {}, s.y), std::invalid_argument);
}

TEST_CASE("C25: zero-order hold keeps its digits where dt A is next to nothing, and where A is 0") {
  for (const double rate : {0.0, -1e-300, -1e-12, -1e-5, -0.1, -30.0}) {
    scalar_scan<double> s(1, rate, 0.5, 3);
    auto op = s.op();
    op.rule = discretisation::zoh;
    const double expected = rate == 0 ? 1.5 : std::expm1(0.5 * rate) / rate * 3;
    // ΔA, its exponential (two), the quotient, the products with B and u.
    in_every_way(op, diagonal_state<double>{.final = s.h}, s.y.all(),
                 [&] { CHECK_THAT(s.y(0, 0, 0), WithinRoundings<double>(expected, 6)); });
  }
}

TEST_CASE("C35: any cut of a sequence gives the same outputs and states") {
  OGIVE_SEED(seed, 40);
  testing::memory room;
  testing::rng random(seed);
  auto op = sized<double>(seed, room, 1, 8, 4, 3, 1);
  op.D = testing::draw_uniform<double>(random, room, shape<1>{4});
  op.dt_bias = testing::draw_uniform<double>(random, room, shape<1>{4});
  op.dt_softplus = true;
  tensor<double, 3> expected({1, 8, 4}), h_expected({1, 4, 3});
  reference::evaluate<long double>(op, diagonal_state<double>{.final = h_expected}, expected.all());
  const std::vector<std::vector<index_t>> cuts{{8}, {3, 5}, {1, 7}, {4, 4}, {2, 1, 5}, {1, 1, 1, 1, 1, 1, 1, 1}};
  for (const auto& cut : cuts) {
    for (int verb = 0; verb < 3; ++verb) {
      CAPTURE(cut, verb);
      tensor<double, 3> y({1, 8, 4}), h({1, 4, 3});
      index_t begin = 0;
      for (const index_t count : cut) {
        const auto piece = testing::tokens_of(op, begin, count);
        const auto out = y.all().slice(1, begin, count);
        if (verb == 0) step(piece, h, out);
        if (verb == 1) recurrent(piece, h, out);
        if (verb == 2) forward(piece, h, out);
        begin += count;
      }
      CHECK(furthest(y.all(), expected.all()) <= tau<double>);
      CHECK(furthest(h.all(), h_expected.all()) <= tau<double>);
    }
  }
}

TEST_CASE("C41: padding neither decays nor writes in a selective scan") {
  const index_t length = 5;
  tensor<float, 3> u({2, length, 1}, 9), y({2, length, 1}), h({2, 1, 1});
  tensor<float, 3> dt({2, length, 1}, 0.693147181F);
  tensor<float, 4> one({2, length, 1, 1}, 1);
  const tensor<float, 2> A({1, 1}, -1);
  const std::vector<std::int32_t> lengths{3, 5};
  // h = h/2 + x_t: u carries x over dt, for B̄ is dt B
  for (index_t b = 0; b < 2; ++b) {
    for (index_t t = 0; t < lengths[static_cast<std::size_t>(b)]; ++t) {
      u(b, t, 0) = static_cast<float>(t + 1) / dt(b, t, 0);
    }
  }
  const selective_scan<float> op{.u = u, .dt = dt, .A = A, .B = one, .C = one, .lengths = lengths};
  const auto right = [&] {
    // A token has the exponential of its decay (two), a product and a sum; what is written, dt · x/dt, has two.
    CHECK_THAT(h(0, 0, 0), WithinRoundings<float>(4.25, 4 * 3 + 2));
    CHECK_THAT(y(0, 2, 0), WithinRoundings<float>(4.25, 4 * 3 + 2));
    CHECK_THAT(h(1, 0, 0), WithinRoundings<float>(8.0625, 4 * 5 + 2));
  };
  for (int verb = 0; verb < 3; ++verb) {
    const auto run = [&] {
      const diagonal_state<float> st{.final = h};
      if (verb == 0) step(op, st, y);
      if (verb == 1) recurrent(op, st, y);
      if (verb == 2) forward(op, st, y);
    };
    run();
    right();
    for (index_t t = 3; t < length; ++t) {
      u(0, t, 0) = dt(0, t, 0) = one(0, t, 0, 0) = std::numeric_limits<float>::quiet_NaN();
    }
    run();
    right();
    for (index_t t = 3; t < length; ++t) u(0, t, 0) = dt(0, t, 0) = one(0, t, 0, 0) = 9;
  }
}

TEST_CASE("C22: channels share groups with their neighbours, whose gradients are sums over them") {
  const tensor<double, 3> dt({1, 1, 4}, 1), d_y({1, 1, 4}, 1);
  const tensor<double, 2> A({4, 1}, -1);
  const tensor<double, 4> C({1, 1, 2, 1}, 1);
  tensor<double, 4> B({1, 1, 2, 1}), d_B(B.extents()), d_C(B.extents());
  B(0, 0, 0, 0) = 1, B(0, 0, 1, 0) = 10;
  tensor<double, 3> u({1, 1, 4}, 1), y({1, 1, 4});
  const selective_scan<double> op{.u = u, .dt = dt, .A = A, .B = B, .C = C};
  in_every_way(op, diagonal_state<double>(), y.all(), [&] {
    CHECK(testing::flatten(y.all()) == std::vector<double>{1, 1, 10, 10});
  });
  for (index_t d = 0; d < 4; ++d) u(0, 0, d) = static_cast<double>(1 + d);  // no two channels are alike
  backward(op, {}, d_y.all(), {}, {.B = d_B, .C = d_C});
  CHECK(testing::flatten(d_B.all()) == std::vector<double>{3, 7});
  CHECK(testing::flatten(d_C.all()) == std::vector<double>{3, 70});
}

TEST_CASE("C45: an initial state is used, by every form") {
  scalar_scan<double> s(4, -1, 0.5, 0);
  tensor<double, 4> C({1, 4, 1, 1}, 2);
  auto op = s.op();
  op.C = C;
  const tensor<double, 3> three({1, 1, 1}, 3);
  const double expected[] = {3.639183958, 2.207276647, 1.338780961, 0.8120116994};
  in_every_way(op, diagonal_state<double>{.initial = three, .final = s.h}, s.y.all(), [&] {
    for (index_t t = 0; t < 4; ++t) CHECK_THAT(s.y(0, t, 0), WithinDigits(expected[t], 10));
    CHECK_THAT(2 * s.h(0, 0, 0), WithinDigits(expected[3], 10));
  });
  op.rule = discretisation::zoh;
  in_every_way(op, diagonal_state<double>{.initial = three, .final = s.h}, s.y.all(),
               [&] { CHECK_THAT(s.y(0, 3, 0), WithinDigits(expected[3], 10)); });
}

TEST_CASE("C57: columns of one fused buffer give the bits of contiguous copies") {
  OGIVE_SEED(seed, 57);
  for (const index_t batch : {1, 3}) {
    testing::memory room;
    auto op = sized<float>(seed, room, batch, 37, 33, 5, 1);
    testing::rng random(seed + 1);
    op.z = testing::draw_uniform<float>(random, room, shape<3>{batch, 37, 33});
    tensor<float, 3> plain({batch, 37, 33}), h_plain({batch, 33, 5});
    for (const way& how : testing::ways<selective_scan<float>>()) {
      context serial;
      testing::call(how, op, diagonal_state<float>{.final = h_plain}, plain.all(), serial);
      for (const testing::layout layout : testing::all_layouts) {
        CAPTURE(batch, how, static_cast<int>(layout));
        testing::memory other(layout);
        const auto moved = testing::copy_of(op, other);
        const auto y = other.take<float>(shape<3>{batch, 37, 33});
        const auto h = other.take<float>(shape<3>{batch, 33, 5});
        testing::call(how, moved, diagonal_state<float>{.final = h}, y, serial);
        CHECK(testing::difference(y, plain.all()).empty());
        CHECK(testing::difference(h, h_plain.all()).empty());
        CHECK(other.gaps_untouched());
      }
    }
    // one input for the whole batch
    const auto shared = [&](auto& x) {
      auto strides = x.strides();
      strides[0] = 0;
      x = {x.data(), x.extents(), strides};
    };
    auto broadcast = op;
    shared(broadcast.u);
    tensor<float, 3> y({batch, 37, 33});
    forward(broadcast, {}, y);
    testing::memory copies;
    tensor<float, 3> of_copies({batch, 37, 33});
    forward(testing::copy_of(broadcast, copies), {}, of_copies);
    CHECK(testing::difference(y.all(), of_copies.all()).empty());
  }
}

TEMPLATE_TEST_CASE("C58: any length, number of channels and of states", "", float, double) {
  OGIVE_SEED(seed, 58);
  const auto check = [&](index_t L, index_t D, index_t N) {
    testing::memory room;
    const auto op = sized<TestType>(seed, room, 1, L, D, N, 1);
    tensor<double, 3> expected({1, L, D}), h_expected({1, D, N});
    reference::evaluate<double>(op, diagonal_state<double>{.final = h_expected}, expected.all());
    tensor<TestType, 3> y({1, L, D}), h({1, D, N});
    for (int verb = 0; verb < 2; ++verb) {
      if (verb == 0) recurrent(op, diagonal_state<TestType>{.final = h}, y);
      if (verb == 1) forward(op, diagonal_state<TestType>{.final = h}, y);
      const double error = std::fmax(furthest(y.all(), expected.all()), furthest(h.all(), h_expected.all()));
      if (error <= tau<TestType>) continue;
      FAIL("L " << L << ", D " << D << ", N " << N << ", verb " << verb << ": error " << error);
    }
  };
  for (const index_t N : {1, 2, 3, 5, 16, 17, 100}) {
    for (const index_t D : {1, 3, 5, 8, 12, 16, 17, 33}) {
      for (index_t L = 1; L <= 7; ++L) check(L, D, N);
    }
    for (const index_t L : {31, 33, 63, 64, 65, 100, 130}) check(L, N % 7 + 1, N);
  }
  SUCCEED();
}

TEST_CASE("C63: the same bits for any number of threads") {
  OGIVE_SEED(seed, 80);
  testing::memory room;
  const auto op = sized<float>(seed, room, 4, 513, 128, 16, 2);
  tensor<float, 3> plain({4, 513, 128}), h_plain({4, 128, 16});
  forward(op, diagonal_state<float>{.final = h_plain}, plain);
  for (const int workers : {1, 2, 3, 8}) {
    for (int run = 0; run < 5; ++run) {
      CAPTURE(workers, run);
      context forked = openmp_context(workers);
      tensor<float, 3> y({4, 513, 128}, -1), h({4, 128, 16}, -1);
      forward(op, diagonal_state<float>{.final = h}, y, {}, forked);
      CHECK(testing::difference(y.all(), plain.all()).empty());
      CHECK(testing::difference(h.all(), h_plain.all()).empty());
    }
  }
}

TEMPLATE_TEST_CASE("steps and rates of any size", "", float, double) {
  constexpr TestType infinity = std::numeric_limits<TestType>::infinity();
  const TestType rates[] = {-infinity, TestType(-1e30), TestType(-1), TestType(0), TestType(-1e-30)};
  const TestType steps[] = {TestType(1e30), TestType(1), TestType(1e-30), TestType(0)};
  for (const index_t L : {3, 40}) {
    const index_t D = 20, N = 16;
    tensor<TestType, 3> u({1, L, D}), dt({1, L, D}), y({1, L, D}), h({1, D, N});
    tensor<TestType, 2> A({D, N});
    const tensor<TestType, 4> one({1, L, 1, N}, 1);
    for (index_t d = 0; d < D; ++d) {
      for (index_t n = 0; n < N; ++n) A(d, n) = rates[(d + n) % 5];
      for (index_t t = 0; t < L; ++t) {
        dt(0, t, d) = steps[(t + d) % 4];
        u(0, t, d) = dt(0, t, d) == 0 ? 1 : 1 / dt(0, t, d);
      }
    }
    const std::vector<std::int32_t> lengths{static_cast<std::int32_t>(L - 1)};  // padding meets a rate of −∞ too
    const selective_scan<TestType> op{.u = u, .dt = dt, .A = A, .B = one, .C = one, .lengths = lengths};
    tensor<double, 3> expected({1, L, D}), h_expected({1, D, N});
    reference::evaluate<double>(op, diagonal_state<double>{.final = h_expected}, expected.all());
    const double bound = testing::tolerance<TestType>(8 * L + 2 * N);
    for (int verb = 0; verb < 3; ++verb) {
      CAPTURE(L, verb);
      const diagonal_state<TestType> st{.final = h};
      if (verb == 0) step(op, st, y);
      if (verb == 1) recurrent(op, st, y);
      if (verb == 2) forward(op, st, y);
      CHECK(testing::compare(y.all(), expected.all(), bound, {testing::rule::elementwise_rel}).ok);
      CHECK(testing::compare(h.all(), h_expected.all(), bound, {testing::rule::elementwise_rel}).ok);
    }
  }
}

TEMPLATE_TEST_CASE("a step of 0 keeps every bit of the state, whatever the rate is", "", float, double,
                   std::complex<float>, std::complex<double>) {
  using Real = decltype(std::real(TestType()));
  constexpr Real infinity = std::numeric_limits<Real>::infinity();
  const Real rates[] = {-infinity, -1, 0, infinity, -std::numeric_limits<Real>::max()};
  OGIVE_SEED(seed, 90);
  const index_t D = 20, N = 17;
  for (const index_t L : {1, 3, 40}) {
    for (const index_t G : {index_t{1}, D}) {
      for (const discretisation rule : {discretisation::mamba, discretisation::zoh}) {
        testing::memory room;
        testing::rng random(seed);
        const auto u = testing::draw_uniform<Real>(random, room, shape<3>{1, L, D});
        const auto B = testing::draw_uniform<TestType>(random, room, shape<4>{1, L, G, N});
        const auto h = testing::draw_uniform<TestType>(random, room, shape<3>{1, D, N});
        const tensor<Real, 3> dt({1, L, D}, 0);
        tensor<TestType, 2> A({D, N});
        for (index_t d = 0; d < D; ++d) {
          for (index_t n = 0; n < N; ++n) A(d, n) = TestType(rates[(d + n) % 5]);
        }
        const selective_scan<Real, TestType> op{.u = u, .dt = dt, .A = A, .B = B, .C = B, .rule = rule};
        tensor<Real, 3> y({1, L, D}), expected({1, L, D});
        tensor<TestType, 3> last({1, D, N});
        const diagonal_state<TestType> st{.initial = h, .final = last};
        reference::evaluate<Real>(op, st, expected.all());
        CHECK(testing::difference(last.all(), h).empty());
        in_every_way(op, st, y.all(), [&] {
          CAPTURE(L, G, static_cast<int>(rule));
          CHECK(testing::difference(last.all(), h).empty());
          CHECK(testing::compare(y.all(), expected.all(), testing::tolerance<Real>(4 * N)).ok);
        });
      }
    }
  }
}

TEMPLATE_TEST_CASE("a rate of minus infinity forgets at any other step", "", float, std::complex<float>,
                   std::complex<double>) {
  using Real = decltype(std::real(TestType()));
  const index_t L = 6, D = 3, N = 17;
  for (const discretisation rule : {discretisation::mamba, discretisation::zoh}) {
    const tensor<Real, 3> u({1, L, D}, 1);
    tensor<Real, 3> dt({1, L, D}), y({1, L, D});
    testing::for_each(dt.all(), [](Real& d, index_t i) { d = static_cast<Real>(i % 4) / 2; });
    tensor<TestType, 2> A({D, N}, TestType(-std::numeric_limits<Real>::infinity()));
    const tensor<TestType, 4> one({1, L, 1, N}, TestType(1));
    const tensor<TestType, 3> given({1, D, N}, TestType(5));
    tensor<TestType, 3> h({1, D, N});
    const selective_scan<Real, TestType> op{.u = u, .dt = dt, .A = A, .B = one, .C = one, .rule = rule};
    in_every_way(op, diagonal_state<TestType>{.initial = given, .final = h}, y.all(), [&] {
      for (index_t d = 0; d < D; ++d) {
        Real written = 0;  // by the last step that was not 0
        for (index_t t = 0; t < L; ++t) written = dt(0, t, d) == 0 ? written : dt(0, t, d);
        CAPTURE(d, static_cast<int>(rule));
        const Real left = rule == discretisation::zoh ? 0 : written;
        CHECK(std::abs(h(0, d, N - 1) - left) <= std::numeric_limits<Real>::min());
      }
    });
  }
}

TEST_CASE("the selective scan says what does not fit") {
  testing::memory room;
  const auto good = sized<float>(1, room, 2, 5, 6, 3, 2);
  tensor<float, 3> y({2, 5, 6}, 7), h({2, 6, 3}, 7);
  const auto says = [&](const selective_scan<float>& op, const std::string& words, options how = {}) {
    const status asked = check(op, h, y, how);
    INFO(asked.text());
    CHECK_FALSE(asked);
    CHECK(std::string(asked.text()).find("selective_scan: " + words) == 0);
    CHECK_THROWS_WITH(forward(op, h, y, how), asked.text());
  };
  auto op = good;
  op.dt = good.dt.slice(2, 0, 5);
  says(op, "dt has shape [2, 5, 5], expected [2, 5, 6] = [B, L, D] as u");
  op = good;
  op.A = good.A.slice(0, 0, 4);
  says(op, "A has shape [4, 3], expected [6, any] = [D, N], D as u");
  op = good;
  op.C = good.C.slice(3, 0, 2);
  says(op, "C has shape [2, 5, 2, 2], expected [2, 5, any, 3]");
  op = good;
  op.B = room.take<float>(shape<4>{2, 5, 4, 3});
  says(op, "G (groups of B) = 4 must divide D (channels of u) = 6");
  op = good;
  op.u = {};
  says(op, "u is absent");
  op = good;
  op.z = y;
  says(op, "y of shape [2, 5, 6] is written and overlaps z");
  op.z = {};
  op.D = view<const float, 1>(h.data(), {6});
  says(op, "final of shape [2, 6, 3] is written and overlaps D");
  says(good, "form chunked does not exist", {.form = form::chunked});
  says(good, "form left does not exist", {.form = form::left});
  says(good, "chunk = -3", {.chunk = -3});
  for (const float x : y.flat()) CHECK(x == 7);
  for (const float x : h.flat()) CHECK(x == 7);
}

TEST_CASE("the selective scan advances a state without an output") {
  testing::memory room;
  const auto op = sized<float>(2, room, 2, 3, 20, 16, 1);
  tensor<float, 3> y({2, 3, 20}), h({2, 20, 16}, 0.5F), alone({2, 20, 16}, 0.5F);
  step(op, h, y);
  step(op, alone, {});
  CHECK(testing::difference(h.all(), alone.all()).empty());
}

TEST_CASE("a step and the whole sequence leave the same bits in the state") {
  OGIVE_SEED(seed, 3);
  testing::memory room;
  const auto op = sized<float>(seed, room, 1, 50, 40, 16, 1);
  tensor<float, 3> y({1, 50, 40}), whole({1, 40, 16}), stepped({1, 40, 16});
  recurrent(op, diagonal_state<float>{.final = whole}, y);
  for (index_t t = 0; t < 50; ++t) step(testing::tokens_of(op, t, 1), stepped, y.all().slice(1, t, 1));
  CHECK(testing::difference(whole.all(), stepped.all()).empty());
}

TEST_CASE("scratch of the selective scan is what scratch_bytes says, whatever the state") {
  testing::memory room;
  for (const index_t L : {1, 5, 200}) {
    const auto op = sized<float>(4, room, 1, L, 70, 16, 1);
    std::vector<std::byte> buffer(scratch_bytes(op) + 64);
    auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(buffer.data()) + 63) / 64 * 64);
    context own(std::span<std::byte>(aligned, scratch_bytes(op)));
    tensor<float, 3> y({1, L, 70});
    tensor<double, 3> h({1, 70, 16});
    tensor<bfloat16, 3> narrow({1, 70, 16}, bfloat16(0));
    CHECK_NOTHROW(forward(op, h, y, {}, own));
    CHECK_NOTHROW(step(op, narrow, y, {}, own));
    CHECK_NOTHROW(recurrent(op, h, y, {}, own));
  }
}

TEST_CASE("A selective scan over no states is its skip", "") {
  const index_t D = GENERATE(1, 4, 40), L = 5;
  tensor<float, 3> u({1, L, D}, 1.0F), dt({1, L, D}, 1.0F), y({1, L, D}, -1.0F);
  tensor<float, 4> none({1, L, 1, 0});
  tensor<float, 2> A({D, 0});
  tensor<float, 1> skip({D}, 2.0F);
  const selective_scan<float> op{.u = u, .dt = dt, .A = A, .B = none, .C = none, .D = skip};
  for (int call = 0; call < 3; ++call) {
    forward(op, {}, y);
    for (const float x : y.flat()) CHECK(x == 2.0F);
    step(op, {}, y);
    for (const float x : y.flat()) CHECK(x == 2.0F);
  }
}

// Faults that users of such operators met elsewhere, as right values. The scalar ones drive SSD with a log decay g and
// an input 1: A = −1, dt = −g, x = 1/dt, B = C = 1.
#include <ogive/testing/samplers/ssd.hpp>

#include <numbers>

#include "tests/laws/laws.hpp"
#include "tests/within.hpp"

using namespace ogive;
using testing::way;
using tests::WithinAbs;
using tests::WithinDigits;
using tests::WithinRel;
using tests::WithinRoundings;

namespace {

/// Arguments of given sizes, uniform draws in the order of the fields.
template <class T>
ssd<T> sized(std::uint64_t seed, testing::memory& room, index_t B, index_t L, index_t H, index_t P, index_t G,
             index_t N) {
  using accum = accum_t<T>;
  testing::rng random(seed);
  ssd<T> op;
  op.x = testing::draw_uniform<T>(random, room, shape<4>{B, L, H, P});
  op.dt = testing::draw_uniform<accum>(random, room, shape<3>{B, L, H}, 0.01, 0.51);
  op.A = testing::draw_uniform<accum>(random, room, shape<1>{H}, -2.5, -0.5);
  op.B = testing::draw_uniform<T>(random, room, shape<4>{B, L, G, N});
  op.C = testing::draw_uniform<T>(random, room, shape<4>{B, L, G, N});
  return op;
}

/// One head, one channel, one state: log decay g, written x with every token.
template <class T>
struct scalar {
  tensor<T, 4> x, one;
  tensor<accum_t<T>, 3> dt;
  tensor<accum_t<T>, 1> A;
  tensor<T, 4> y;

  scalar(index_t batch, index_t length, double g)
      : x({batch, length, 1, 1}, static_cast<T>(-1 / g)),
        one({batch, length, 1, 1}, T(1.0F)),
        dt({batch, length, 1}, static_cast<accum_t<T>>(-g)),
        A({1}, accum_t<T>(-1)),
        y({batch, length, 1, 1}) {}
  ssd<T> op() const { return {.x = x, .dt = dt, .A = A, .B = one, .C = one}; }
};

constexpr double half = -std::numbers::ln2;

/// x, the state of a scalar whose decays are 1/2, after `length` tokens: each has the exponential of its decay (two), a
/// product and a sum; and what is written, dt · 1/dt, has two.
auto after(index_t length, double x) { return WithinRoundings<double>(x, 4 * length + 2); }

}  // namespace

TEST_CASE("C06: no decay exceeds one, however large its sum") {
  constexpr double tolerated = 1e-3;  // stated by C06
  const index_t batch = 400, length = 256;
  scalar<float> s(batch, length, -1);
  for (index_t m = 0; m < batch; ++m) {
    for (index_t i = 0; i < length; ++i) {
      s.dt(m, i, 0) = i % 16 == 0 ? 1e-6F : 1e5F + 7.3F * static_cast<float>((37 * m + 101 * i) % 9973);
      s.x(m, i, 0, 0) = 1 / s.dt(m, i, 0);
    }
  }
  const auto check = [&](const char* how) {
    for (index_t m = 0; m < batch; ++m) {
      for (index_t i = 0; i < length; ++i) {
        const double expected = i % 16 == 0 && i > 0 ? 1 + std::exp(-1e-6) : 1;
        if (std::fabs(static_cast<double>(s.y(m, i, 0, 0)) - expected) < tolerated) continue;
        FAIL(how << ": y(" << m << ", " << i << ") = " << s.y(m, i, 0, 0));
      }
    }
  };
  chunked(s.op(), {}, s.y, {.chunk = 256});
  check("chunked");
  recurrent(s.op(), {}, s.y);
  check("recurrent");
}

TEST_CASE("C20: a decay next to one over 100,000 tokens") {
  // Relative errors, stated by C20.
  constexpr double chunked_float = 2e-5, recurrent_float = 5e-4, double_state = 1e-6, all_double = 1e-11;
  const index_t length = 131072;
  const double expected = 8191.99907901;
  const double g = std::log1p(-0x1p-13);
  const auto last = [&](auto type, auto storage, const way& how) {
    using T = decltype(type);
    using S = decltype(storage);
    scalar<T> s(1, length, g);
    tensor<S, 4> S_last({1, 1, 1, 1});
    const state<S> st{.final = S_last};
    context serial;
    testing::call(how, s.op(), st, s.y.all(), serial);
    return static_cast<double>(S_last(0, 0, 0, 0));
  };
  CHECK_THAT(last(1.0F, 1.0F, {way::kind::chunked, 64}), WithinRel(expected, chunked_float));
  CHECK_THAT(last(1.0F, 1.0F, {way::kind::recurrent}), WithinRel(expected, recurrent_float));
  CHECK_THAT(last(1.0F, 1.0, {way::kind::recurrent}), WithinRel(expected, double_state));
  CHECK_THAT(last(1.0F, 1.0, {way::kind::chunked}), WithinRel(expected, double_state));
  CHECK_THAT(last(1.0, 1.0, {way::kind::recurrent}), WithinRel(expected, all_double));
  CHECK_THAT(last(1.0, 1.0, {way::kind::chunked}), WithinRel(expected, all_double));
}

TEST_CASE("C22: heads share groups with their neighbours") {
  const auto outputs = [](index_t H, index_t G) {
    const tensor<float, 4> x({1, 1, H, 1}, 1), C({1, 1, G, 1}, 1);
    const tensor<float, 3> dt({1, 1, H}, 1);
    const tensor<float, 1> A({H}, -1);
    tensor<float, 4> B({1, 1, G, 1}), y({1, 1, H, 1});
    for (index_t g = 0; g < G; ++g) B(0, 0, g, 0) = std::pow(10.0F, static_cast<float>(g));
    forward(ssd<float>{.x = x, .dt = dt, .A = A, .B = B, .C = C}, {}, y);
    return testing::flatten(y.all());
  };
  CHECK(outputs(4, 2) == std::vector<double>{1, 1, 10, 10});
  CHECK(outputs(6, 3) == std::vector<double>{1, 1, 10, 10, 100, 100});
  CHECK_THROWS_AS(outputs(3, 2), shape_error);
}

TEST_CASE("C22: gradients of a group are sums over its heads") {
  const tensor<double, 4> C({1, 1, 2, 1}, 1), d_y({1, 1, 4, 1}, 1);
  const tensor<double, 3> dt({1, 1, 4}, 1);
  const tensor<double, 1> A({4}, -1);
  tensor<double, 4> x({1, 1, 4, 1}), B({1, 1, 2, 1}), d_B(B.extents()), d_C(B.extents());
  for (index_t h = 0; h < 4; ++h) x(0, 0, h, 0) = static_cast<double>(1 + h);  // no two heads are alike
  B(0, 0, 0, 0) = 1, B(0, 0, 1, 0) = 10;
  backward(ssd<double>{.x = x, .dt = dt, .A = A, .B = B, .C = C}, {}, d_y.all(), {}, {.B = d_B, .C = d_C});
  CHECK(testing::flatten(d_B.all()) == std::vector<double>{3, 7});
  CHECK(testing::flatten(d_C.all()) == std::vector<double>{3, 70});
}

TEST_CASE("C29: chunks hand their state on") {
  scalar<double> s(1, 12, half);
  const std::pair<index_t, double> expected[] = {{3, 1.875}, {4, 1.9375}, {7, 1.9921875}, {11, 1.99951171875}};
  for (const way& how : testing::ways<ssd<double>>()) {
    context serial;
    testing::call(how, s.op(), state<double>{.final = make_state<double>(1, 1, 1, 1)}, s.y.all(), serial);
    for (const auto& [t, y] : expected) CHECK_THAT(s.y(0, t, 0, 0), after(t + 1, y));
  }
  tensor<double, 4> entering({1, 1, 1, 1});
  chunked(testing::tokens_of(s.op(), 0, 4), state<double>{.final = entering}, s.y.all().slice(1, 0, 4), {.chunk = 4});
  CHECK_THAT(entering(0, 0, 0, 0), after(4, 1.875));
}

TEST_CASE("C35: a sequence continues from its state, in pieces of any length") {
  testing::memory room;
  const auto op = sized<float>(40, room, 1, 8, 2, 3, 1, 4);
  tensor<float, 4> whole({1, 8, 2, 3}), whole_state({1, 2, 4, 3});
  const testing::definition<ssd<float>> expected(op, {});
  for (const auto& cuts :
       std::vector<std::vector<index_t>>{{8}, {3, 5}, {1, 7}, {4, 4}, {2, 1, 5}, std::vector<index_t>(8, 1)}) {
    testing::outcome<ssd<float>, float> got{testing::memory()};
    got.o = got.room.take<float>(shape<4>{1, 8, 2, 3});
    testing::give_finals(got.room, op, 1, got.st);
    testing::for_each(got.st.final, [](float& x, index_t) { x = 0; });
    index_t begin = 0;
    for (const index_t count : cuts) {
      chunked(testing::tokens_of(op, begin, count), got.st.final, got.o.slice(1, begin, count), {.chunk = 4});
      begin += count;
    }
    CHECK(expected.excess(got, static_cast<index_t>(cuts.size())) == "");
  }
}

TEST_CASE("C37: packed sequences that begin inside a chunk start from their own states") {
  scalar<double> s(1, 32, half);
  const std::vector<std::int32_t> offsets{0, 5, 12, 13, 32};
  const std::vector<double> h0{1, 2, 3, 4};
  tensor<double, 4> last({4, 1, 1, 1});
  auto op = s.op();
  op.offsets = offsets;
  const state<double> st{.initial = view<const double, 4>(h0, {4, 1, 1, 1}), .final = last};
  for (const index_t chunk : {1, 4, 8, 16}) {
    chunked(op, st, s.y, {.chunk = chunk});
    CHECK_THAT(s.y(0, 0, 0, 0), after(1, 1.5));
    CHECK_THAT(s.y(0, 5, 0, 0), after(1, 2));
    CHECK_THAT(s.y(0, 12, 0, 0), after(1, 2.5));
    CHECK_THAT(s.y(0, 13, 0, 0), after(1, 3));
    CHECK_THAT(last(0, 0, 0, 0), after(5, 1.96875));
    CHECK_THAT(last(1, 0, 0, 0), after(7, 2));
    CHECK_THAT(last(2, 0, 0, 0), after(1, 2.5));
    CHECK_THAT(last(3, 0, 0, 0), after(19, 2 + 0x1p-18));
  }
}

TEST_CASE("C41: padding neither decays nor writes") {
  scalar<double> s(2, 5, half);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double pad : {9.0, nan}) {
    for (index_t t = 0; t < 5; ++t) {
      s.x(0, t, 0, 0) = t < 3 ? static_cast<double>(t + 1) / s.dt(0, 0, 0) : pad;
      if (t >= 3) s.dt(0, t, 0) = pad;
      s.x(1, t, 0, 0) = 1 / s.dt(1, 0, 0);
    }
    const std::vector<std::int32_t> lengths{3, 5};
    auto op = s.op();
    op.lengths = lengths;
    tensor<double, 4> last({2, 1, 1, 1});
    for (const way& how : testing::ways<ssd<double>>()) {
      if (how.kind == way::kind::steps) continue;
      context serial;
      testing::call(how, op, state<double>{.final = last}, s.y.all(), serial);
      CHECK_THAT(last(0, 0, 0, 0), after(3, 4.25));
      CHECK_THAT(last(1, 0, 0, 0), after(5, 1.9375));
    }
  }
}

TEST_CASE("C45: an initial state is used") {
  scalar<double> s(1, 4, -0.5);
  const tensor<double, 4> C({1, 4, 1, 1}, 2.0), nothing({1, 4, 1, 1}, 0.0), h0({1, 1, 1, 1}, 3.0);
  auto op = s.op();
  op.C = C;
  op.x = nothing;
  tensor<double, 4> last({1, 1, 1, 1});
  for (const way& how : testing::ways<ssd<double>>()) {
    context serial;
    testing::call(how, op, state<double>{.initial = h0, .final = last}, s.y.all(), serial);
    const double expected[] = {3.639183958, 2.207276647, 1.338780961, 0.8120116994};
    for (index_t t = 0; t < 4; ++t) CHECK_THAT(s.y(0, t, 0, 0), WithinDigits(expected[t], 10));
  }
}

TEST_CASE("C57: arguments that are slices of one projection, and a B that all sequences share") {
  const index_t batch = GENERATE(1, 3), L = 21, H = 2, P = 5, N = 3;
  testing::memory dense, fused(testing::layout::fused);
  auto op = sized<float>(57, dense, batch, L, H, P, 1, N);
  op.B = view<const float, 4>(op.B.data(), op.B.extents(), {0, op.B.stride(1), op.B.stride(2), op.B.stride(3)});
  const auto copied = testing::copy_of(op, dense);
  const auto sliced = testing::copy_of(op, fused);
  for (const way& how : testing::ways<ssd<float>>()) {
    const auto expected = testing::run<float>(how, copied, {});
    CHECK(testing::difference(testing::run<float>(how, op, {}), expected) == "");
    CHECK(testing::difference(testing::run<float>(how, sliced, {}), expected) == "");
  }
}

TEMPLATE_TEST_CASE("C58: lengths, channels and states of any size", "", float, double) {
  const std::vector<way> ways{{way::kind::chunked, 1},  {way::kind::chunked, 3}, {way::kind::chunked, 16},
                              {way::kind::chunked, 64}, {way::kind::recurrent},  {way::kind::step}};
  const auto check = [&](index_t L, index_t N, index_t P, index_t H) {
    testing::memory room;
    const auto op = sized<TestType>(58, room, 1, L, H, P, 1, N);
    const testing::definition<ssd<TestType>> expected(op, {});
    for (const way& how : ways) {
      const std::string gap = expected.excess(testing::run<TestType>(how, op, {}), 1);
      if (!gap.empty()) FAIL(how << ", L " << L << ", N " << N << ", P " << P << ", H " << H << ": " << gap);
    }
  };
  for (const index_t N : {1, 2, 3, 5, 16, 17, 100}) {
    for (const index_t P : {1, 3, 5, 8, 12}) {
      for (const index_t H : {1, 3}) {
        for (const index_t L : {1, 2, 3, 5, 7}) check(L, N, P, H);
      }
    }
  }
  for (const index_t L : {31, 33, 63, 64, 65, 100, 130}) {
    check(L, 17, 5, 3);
    check(L, 100, 12, 1);
    check(L, 3, 1, 3);
  }
}

TEST_CASE("C63: the same input gives the same bits, run after run and on any number of threads") {
  testing::memory room;
  const auto op = sized<float>(80, room, 4, 513, 8, 16, 2, 16);
  const way how{way::kind::forward};
  const auto expected = testing::run<float>(how, op, {});
  testing::thread_pool pool;
  for (int repeat = 0; repeat < 50; ++repeat) {
    context forked = context::fork_join(pool, 8);
    CHECK(testing::difference(testing::run<float>(how, op, {}, forked), expected) == "");
  }
  for (const int workers : {1, 2, 3}) {
    context forked = context::fork_join(pool, workers);
    CHECK(testing::difference(testing::run<float>(how, op, {}, forked), expected) == "");
  }
}

TEST_CASE("A step of 0 keeps the state, whatever A is; a rate of minus infinity forgets") {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const index_t H = 5, L = 7, N = 4, P = 3;
  testing::memory room;
  auto op = sized<double>(21, room, 1, L, H, P, 1, N);
  const double rates[] = {-inf, inf, -std::numeric_limits<double>::max(), 0, -1};
  tensor<double, 3> dt({1, L, H}, 0.0);
  op.A = rates;
  op.dt = dt;
  const tensor<double, 4> initial({1, H, N, P}, 2.0);
  tensor<double, 4> y({1, L, H, P}), final({1, H, N, P}), fresh({1, L, H, P});
  const state<double> st{.initial = initial, .final = final};
  const auto verbs = {
      +[](const ssd<double>& o, const state<double>& s, const view<double, 4>& out) { step(o, s, out); },
      +[](const ssd<double>& o, const state<double>& s, const view<double, 4>& out) {
        recurrent(o, s, out, {.chunk = 4});
      },
      +[](const ssd<double>& o, const state<double>& s, const view<double, 4>& out) {
        chunked(o, s, out, {.chunk = 4});
      }};
  for (const auto verb : verbs) {
    verb(op, st, y);
    for (const double kept : final.flat()) CHECK(kept == 2);
    std::ranges::fill(dt.flat(), 0.5);
    verb(op, {.initial = initial}, y);
    reference::evaluate<double>(op, state<double>{}, fresh.all());
    for (index_t t = 0; t < L; ++t) {
      for (index_t c = 0; c < P; ++c) {
        CHECK_THAT(y(0, t, 0, c), WithinAbs(fresh(0, t, 0, c), testing::tolerance<double>(L * N)));
      }
    }
    std::ranges::fill(dt.flat(), 0.0);
  }
}

// S4D: values that users of it missed elsewhere, one system as a recurrence, a convolution and its exact solution, and
// what is refused.
#include <ogive/core/openmp.hpp>
#include <ogive/testing/samplers/s4d.hpp>
#include <ogive/testing/trials.hpp>

#include "tests/laws/laws.hpp"
#include "tests/within.hpp"

using namespace ogive;
using testing::way;
using tests::WithinDecimals;
using number = std::complex<double>;

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

/// One channel, one pair of modes: A = −0.5 ± iπ, B = C = 1, Δ = 0.1.
struct one_pair {
  tensor<number, 2> A{{1, 1}, number(-0.5, 3.14159265358979323846)}, B{{1, 1}, number(1)}, C{{1, 1}, number(1)};
  tensor<double, 1> dt{{1}, 0.1};
  tensor<double, 3> u{{1, 4, 1}}, y{{1, 4, 1}};
  tensor<number, 3> h{{1, 1, 1}};

  s4d<double> op() {
    u(0, 0, 0) = 1, u(0, 2, 0) = -1, u(0, 3, 0) = 2;
    return {.u = u, .A = A, .B = B, .C = C, .dt = dt};
  }
};

std::vector<double> kernel_of(const s4d<double>& op, index_t length) {
  tensor<double, 2> K({1, length});
  kernel(op, K.all());
  return {K.flat().begin(), K.flat().end()};
}

}  // namespace

TEST_CASE("C33: a pair counts twice, in the kernel and in every way to run it") {
  one_pair s;
  auto op = s.op();
  const double zoh[] = {0.1919289066, 0.1647731619,  0.1244671862,  0.0761112689,
                        0.0250890437, -0.0234735660, -0.0651733056, -0.0966812914};
  const double bilinear[] = {0.1906446467, 0.1642734249, 0.1248949387, 0.0774247263};
  const double y[] = {0.1919289066, 0.1647731619, -0.0674617204, 0.2951959202};
  const auto check = [&](const double* expected, const std::vector<double>& got) {
    for (std::size_t i = 0; i < got.size(); ++i) CHECK_THAT(got[i], WithinDecimals(expected[i], 10));
  };
  const auto check_all = [&] {
    op.rule = discretisation::zoh;
    check(zoh, kernel_of(op, 8));
    in_every_way(op, diagonal_state<number>{.final = s.h}, s.y.all(), [&] {
      check(y, {s.y.flat().begin(), s.y.flat().end()});
    });
    op.rule = discretisation::bilinear;
    check(bilinear, kernel_of(op, 4));
  };
  check_all();
  s.A(0, 0) = std::conj(s.A(0, 0));
  check_all();
}

TEST_CASE("C33: conjugate modes with conjugate inputs and outputs are the same system") {
  OGIVE_SEED(seed, 240);
  testing::for_seeds(seed, 10, [](std::uint64_t s) {
    testing::trial<s4d<double>> x(s, 65);
    const auto given = testing::draw_state<number>(x.random, x.room, x.op, testing::sequence_count(x.op));
    const auto turned = [&](const auto& from) {
      const auto to = x.room.copy(from);
      testing::for_each(to, [](number& z, index_t) { z = std::conj(z); });
      return to;
    };
    auto op = x.op;
    op.A = turned(x.op.A), op.B = turned(x.op.B), op.C = turned(x.op.C);
    auto st = given;
    st.initial = turned(given.initial);
    for (const way& how : testing::ways<s4d<double>>()) {
      const auto a = testing::run<number>(how, x.op, given), b = testing::run<number>(how, op, st);
      INFO(x << how);
      // Signs of zero apart nothing is computed differently, but that transforms of the kernel see other roundings.
      const double bound = how.kind == way::kind::convolution || how.kind == way::kind::forward ? 1e-11 : 0;
      CHECK(testing::compare(a.o, view<const double, 3>(b.o), bound).ok);
    }
  });
}

TEST_CASE("real modes are modes without an imaginary part, once") {
  OGIVE_SEED(seed, 241);
  testing::rng random(seed);
  testing::memory room;
  const auto real = testing::sampler<s4d<double, double>>::draw(random, room, 2, 40);
  const auto complex = [&](const view<const double, 2>& x, double factor) {
    const auto z = room.take<number>(x.extents());
    testing::for_each(z, [&](number& to, index_t i) { to = factor * x.data()[i]; });
    return z;
  };
  const s4d<double> pairs{.u = real.u,
                          .A = complex(real.A, 1),
                          .B = complex(real.B, 1),
                          .C = complex(real.C, 0.5),
                          .dt = real.dt,
                          .D = real.D,
                          .rule = real.rule,
                          .alpha = real.alpha};
  tensor<double, 3> a(real.u.extents()), b(real.u.extents());
  recurrent(real, {}, a);
  recurrent(pairs, {}, b);
  const index_t roundings = testing::sampler<s4d<double>>::roundings(pairs);
  CHECK(testing::compare(a.all(), view<const double, 3>(b), testing::tolerance<double>(roundings)).ok);
}

/// Zero-order hold is exact for an input that is constant over steps: h(t + Δ) = e^{ΔA} h(t) + (e^{ΔA} − 1)/A B u, here
/// as the sum over all steps of what each leaves, in long double.
TEMPLATE_TEST_CASE("recurrence, convolution and the exact solution are one", "", float, double) {
  OGIVE_SEED(seed, 242);
  testing::rng random(seed);
  using value = std::complex<TestType>;
  for (const auto& sizes : {std::pair<index_t, index_t>{1, 64}, {4, 1024}, {32, 4096}, {64, 16384}}) {
    const index_t N = sizes.first, L = sizes.second, D = 2;
    testing::memory room;
    s4d<TestType> op;
    op.u = testing::draw_uniform<TestType>(random, room, shape<3>{1, L, D});
    const auto A = room.take<value>(shape<2>{D, N});
    testing::for_each(A, [&](value& z, index_t i) {  // S4D-Lin
      z = value(TestType(-0.5), static_cast<TestType>(3.14159265 * static_cast<double>(i % N)));
    });
    op.A = A;
    op.B = testing::draw_uniform<value>(random, room, shape<2>{D, N});
    op.C = testing::draw_uniform<value>(random, room, shape<2>{D, N});
    op.dt = testing::draw_uniform<TestType>(random, room, shape<1>{D}, 1e-3, 1e-1);
    op.D = testing::draw_uniform<TestType>(random, room, shape<1>{D});
    const diagonal_state<value> st{.initial = testing::draw_uniform<value>(random, room, shape<3>{1, D, N})};

    constexpr index_t samples = 20;
    double worst_recurrent = 0, worst_convolution = 0, size = 0;
    tensor<TestType, 3> swept({1, L, D}), convolved({1, L, D});
    recurrent(op, st, swept);
    convolution(op, st, convolved);
    for (index_t sample = 0; sample < samples; ++sample) {
      const index_t t = sample == 0 ? L - 1 : random.integer(0, L - 1), d = random.integer(0, D - 1);
      long double exact = static_cast<long double>(op.D(d)) * static_cast<long double>(op.u(0, t, d));
      double terms = 0;
      for (index_t n = 0; n < N; ++n) {
        using wide = std::complex<long double>;
        const wide a(op.A(d, n)), dt(static_cast<long double>(op.dt(d)));
        const wide input = reference::exp_minus_1(dt * a) / a * wide(op.B(d, n));
        const auto left = [&](index_t steps) { return std::exp(static_cast<long double>(steps) * dt * a); };
        wide h = left(t + 1) * wide(st.initial(0, d, n));
        double h_size = static_cast<double>(std::abs(h));
        for (index_t j = 0; j <= t; ++j) {
          const wide term = left(t - j) * input * static_cast<long double>(op.u(0, j, d));
          h += term;
          h_size += static_cast<double>(std::abs(term));
        }
        exact += 2 * (wide(op.C(d, n)) * h).real();
        terms += 2 * h_size * static_cast<double>(std::abs(op.C(d, n)));
      }
      size = std::fmax(size, terms);
      worst_recurrent = std::fmax(worst_recurrent, std::fabs(static_cast<double>(swept(0, t, d) - exact)));
      worst_convolution = std::fmax(worst_convolution, std::fabs(static_cast<double>(convolved(0, t, d) - exact)));
    }
    INFO("N = " << N << ", L = " << L << ": error relative to the terms, recurrent " << worst_recurrent / size
                << ", convolution " << worst_convolution / size);
    const double bound = testing::tolerance<TestType>(testing::sampler<s4d<TestType>>::roundings(op), size);
    CHECK(worst_recurrent <= bound);
    CHECK(worst_convolution <= bound);
  }
}

TEST_CASE("S4D through discretise and rule none has the bits of S4D, in one step at a time too") {
  OGIVE_SEED(seed, 243);
  testing::for_seeds(seed, 8, [](std::uint64_t s) {
    testing::trial<s4d<double>> x(s, 40);
    const auto given = testing::draw_state<number>(x.random, x.room, x.op, testing::sequence_count(x.op));
    auto steps = x.op;
    const auto A_bar = x.room.take<number>(x.op.A.extents()), B_bar = x.room.take<number>(x.op.A.extents());
    discretise(x.op, A_bar, B_bar);
    steps.A = A_bar, steps.B = B_bar, steps.rule = discretisation::none, steps.dt = {};
    for (const auto kind : {way::kind::recurrent, way::kind::steps, way::kind::step}) {
      INFO(x);
      CHECK(testing::difference(testing::run<number>({kind}, steps, given),
                                testing::run<number>({way::kind::recurrent}, x.op, given)) == "");
    }
  });
}

TEST_CASE("S4D says what does not fit") {
  testing::rng random(1);
  testing::memory room;
  const auto draw = [&] {
    auto op = testing::sampler<s4d<float>>::draw(random, room, 2, 5);
    op.rule = discretisation::zoh;
    testing::for_each(op.A, [](const std::complex<float>& a, index_t) {
      const_cast<std::complex<float>&>(a) = {-std::fabs(a.real()), a.imag()};
    });
    return op;
  };
  const auto good = draw();
  const index_t D = good.A.extent(0), N = good.A.extent(1);
  tensor<float, 3> y(good.u.extents(), 7.0F);
  const auto says = [&](const s4d<float>& op, const std::string& words, options how = {}) {
    const status asked = check(op, {}, y, how);
    INFO(asked.text());
    CHECK_FALSE(asked);
    CHECK(std::string(asked.text()).find("s4d: " + words) == 0);
    CHECK_THROWS_WITH(forward(op, {}, y, how), asked.text());
    CHECK_THROWS_WITH(convolution(op, {}, y, how), asked.text());
  };
  auto op = good;
  const auto A = room.copy(good.A);
  op.A = A;
  A(0, N - 1) = {1e-6F, 2};
  says(op, "A of channel 0, mode " + std::to_string(N - 1) + " has a positive real part");
  tensor<float, 2> K({D, 4}, 7.0F);
  CHECK_THROWS_AS(kernel(op, K.all()), std::invalid_argument);
  op.rule = discretisation::none;
  CHECK(check(op, {}, y));
  op = good;
  const auto dt = room.copy(good.dt);
  op.dt = dt;
  for (const float wrong : {0.0F, -0.1F, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    dt(D - 1) = wrong;
    says(op, "dt of channel " + std::to_string(D - 1) + " is not positive and finite");
  }
  op = good;
  op.dt = {};
  says(op, "dt is absent");
  op = good;
  op.rule = discretisation::generalised_bilinear;
  op.alpha = 1.5;
  says(op, "alpha is outside [0, 1]");
  op = good;
  op.C = good.C.slice(0, 0, D - 1);
  says(op, "C has shape");
  op = good;
  op.A = room.take<std::complex<float>>(shape<2>{D + 1, N});
  says(op, "A has shape");
  says(good, "form must be", {.form = form::chunked});
  says(good, "chunk = -3", {.chunk = -3});
  op = good;
  op.u = y;
  says(op, "y of shape");
  CHECK_THROWS_AS(kernel(good, K.all().slice(0, 0, D - 1)), shape_error);
  op = good;
  op.A = A;  // no memory of its own for A_bar
  A(0, N - 1) = good.A(0, N - 1);
  CHECK_THROWS_AS(discretise(op, A, room.take<std::complex<float>>(shape<2>{D, N})), shape_error);
  CHECK_THROWS_AS(kernel(good, view<float, 2>(K.data(), {D, 4}, {4, 0})), shape_error);
  for (const float x : y.flat()) CHECK(x == 7.0F);
  for (const float x : K.flat()) CHECK(x == 7.0F);
}

TEST_CASE("a kernel is no longer than a sequence: modes that grow do not overflow beyond its end") {
  constexpr index_t L = 600;
  const std::complex<float> twice = 2, one = 1;  // 2^L is infinite, 2^5 is not
  tensor<float, 3> u({1, L, 1}), y({1, L, 1});
  s4d<float> op{.u = u, .A = {&twice, {1, 1}}, .B = {&one, {1, 1}}, .C = {&one, {1, 1}}};
  op.rule = discretisation::none;
  std::vector<std::int32_t> offsets, lengths;
  for (std::int32_t at = 0; at <= L; at += 6) offsets.push_back(at), u(0, std::min<index_t>(at, L - 1), 0) = 1;
  const auto check_tokens = [&](index_t begin, index_t live) {
    const double most = testing::tolerance<float>(12 * 6 + 2 + 16, 2 * 64);  // of ‖K‖ ‖u‖
    for (index_t t = 0; t < live; ++t) {
      CHECK_THAT(y(0, begin + t, 0), tests::WithinAbs(std::ldexp(2.0, static_cast<int>(t)), most));
    }
  };
  u(0, L - 1, 0) = 0;
  op.offsets = offsets;
  convolution(op, {}, y.all());
  for (index_t begin = 0; begin < L; begin += 6) check_tokens(begin, 6);

  lengths.push_back(5);
  op.offsets = {};
  op.lengths = lengths;
  convolution(op, {}, y.all());
  check_tokens(0, 5);
}

TEST_CASE("modes that grow are swept unless a convolution is asked for") {
  constexpr index_t B = 64, L = 1024;  // so many that else a convolution is cheaper
  const std::vector<std::complex<float>> grows(64, 1.2F), one(64, 1);
  tensor<float, 3> u({B, L, 1}, 1.0F), y(u.extents()), expected(u.extents());
  s4d<float> op{.u = u, .A = {grows, {1, 64}}, .B = {one, {1, 64}}, .C = {one, {1, 64}}};
  op.rule = discretisation::none;
  const diagonal_state<std::complex<float>> rest;
  CHECK_FALSE(detail::convolution_is_faster<float>(op, rest));
  recurrent(op, {}, expected);
  forward(op, {}, y);
  CHECK(testing::difference(y.all(), expected.all()).empty());  // to infinity, which K_l reaches as soon
  op.A = op.B;
  CHECK(detail::convolution_is_faster<float>(op, rest));
}

TEST_CASE("S4D over no modes is its skip") {
  const index_t D = GENERATE(1, 4, 40), L = 5;
  tensor<float, 3> u({1, L, D}, 1.0F), y({1, L, D}, -1.0F);
  tensor<std::complex<float>, 2> none({D, 0});
  tensor<float, 1> dt({D}, 0.1F), skip({D}, 2.0F);
  const s4d<float> op{.u = u, .A = none, .B = none, .C = none, .dt = dt, .D = skip};
  in_every_way(op, diagonal_state<std::complex<float>>{}, y.all(), [&] {
    for (const float x : y.flat()) CHECK(x == 2.0F);
  });
}

TEST_CASE("kernels have the same bits on any number of threads") {
  testing::rng random(5);
  testing::memory room;
  const auto op = testing::sampler<s4d<float>>::draw(random, room, 1, 1);
  const auto alone = room.take<float>(shape<2>{op.A.extent(0), 700}), forked = room.take<float>(alone.extents());
  kernel(op, alone);
  testing::thread_pool pool;
  context three = context::fork_join(pool, 3);
  kernel(op, forked, three);
  CHECK(testing::difference(alone, forked) == "");
}

#include <ogive/ops/prepared.hpp>
#include <ogive/testing/samplers/shared_state.hpp>
#include <ogive/testing/trials.hpp>

#include "tests/within.hpp"

using namespace ogive;
using namespace ogive::testing;

namespace {

/// S4D, as its definition takes it.
struct channel_modes {
  view<const double, 3> u;
  view<const std::complex<double>, 2> A, B, C;
  view<const double, 1> dt, D{};
  discretisation rule;
  double alpha = 0.5;
  integers lengths{}, offsets{};
};

/// ℂᴺ as ℝ²ᴺ: what an operator of complex modes is as a dense system.
template <class Op>
struct real_form {
  tensor<double, 2> A_bar, B_bar, C, D;
  lti<double> op;

  explicit real_form(const Op& modes)
      : A_bar({2 * modes.C.extent(1), 2 * modes.C.extent(1)}),
        B_bar({2 * modes.C.extent(1), modes.u.extent(2)}),
        C({modes.C.extent(0), 2 * modes.C.extent(1)}),
        D({modes.C.extent(0), modes.u.extent(2)}) {
    const index_t N = modes.C.extent(1);
    for (index_t n = 0; n < N; ++n) {
      const auto [a, w] = modes.template mode<double>(n);
      A_bar(n, n) = A_bar(N + n, N + n) = a.real();
      A_bar(N + n, n) = a.imag();
      A_bar(n, N + n) = -a.imag();
      for (index_t m = 0; m < modes.u.extent(2); ++m) {
        B_bar(n, m) = (w * modes.B(n, m)).real();
        B_bar(N + n, m) = (w * modes.B(n, m)).imag();
      }
      for (index_t p = 0; p < modes.C.extent(0); ++p) {
        C(p, n) = Op::parts * modes.C(p, n).real();
        C(p, N + n) = -Op::parts * modes.C(p, n).imag();
      }
    }
    op = {.u = modes.u, .A_bar = A_bar, .B_bar = B_bar, .C = C};
    if (!modes.D.present()) return;
    for (index_t m = 0; m < D.extent(1); ++m) D(m, m) = modes.D(m);
    op.D = D;
  }
};

}  // namespace

TEMPLATE_TEST_CASE("complex modes are a dense system of rotations", "", s5<double>, lru<double>) {
  OGIVE_SEED(seed, 460);
  for_seeds(seed, 12, [](std::uint64_t s) {
    trial<TestType> x(s, 65);
    const real_form<TestType> dense(x.op);
    const definition<TestType> expected(x.op, {});
    outcome<TestType, std::complex<double>> got{memory()};
    got.o = got.room.template take<double>(expected.o.extents());
    recurrent(dense.op, {}, got.o);
    INFO(x);
    // A row sums 2N + M terms.
    const double dense_bound = tolerance<double>(sampler<lti<double>>::roundings(dense.op));
    CHECK(excess(got.o, expected.o, expected.o_size, expected.relative + 2 * dense_bound) == "");
  });
}

TEST_CASE("S5 with one input and one output is S4D of one channel") {
  OGIVE_SEED(seed, 461);
  rng random(seed);
  constexpr index_t L = 41, N = 6;
  memory room;
  s5<double> op = sampler<s5<double>>::draw(random, room, 1, L);
  using complex = std::complex<double>;
  op.u = draw_uniform<double>(random, room, shape<3>{1, L, 1});
  const auto A = room.take<complex>(shape<1>{N});
  for_each(A, [&](complex& rate, index_t) { rate = {-random.uniform(0, 2), random.uniform(-3, 3)}; });
  op.A = A;
  op.B = draw_uniform<complex>(random, room, shape<2>{N, 1});
  op.C = draw_uniform<complex>(random, room, shape<2>{1, N});
  const double dt = 0.3, D = 0.7;
  op.dt = {&dt, {N}, {0}};
  op.D = {&D, {1}};
  for (const auto rule : {discretisation::zoh, discretisation::bilinear, discretisation::mamba}) {
    op.rule = rule;
    const channel_modes s4d{.u = op.u,
                            .A = {A.data(), {1, N}},
                            .B = op.B.permute({1, 0}),
                            .C = op.C,
                            .dt = {&dt, {1}},
                            .D = op.D,
                            .rule = rule};
    tensor<double, 3> y({1, L, 1}), expected({1, L, 1}), K({1, 1, L});
    tensor<double, 2> K_expected({1, L});
    forward(op, {}, y);
    kernel(op, K);
    reference::evaluate<double>(s4d, diagonal_state<complex>(), expected.all());
    reference::kernel<double>(s4d, K_expected.all());
    const double bound = tolerance<double>(8 * L + 4 * N + 32, static_cast<double>(N * L), 2 * 2);
    CHECK(compare(y.all(), expected.all(), bound, {.scale = 1}));
    CHECK(compare(view<double, 2>(K.data(), {1, L}), K_expected.all(), bound, {.scale = 1}));
  }
}

TEST_CASE("S5 on steps is S5 on the system that they are steps of, growing ones too") {
  OGIVE_SEED(seed, 465);
  trial<s5<double>> x(seed, 33);
  const index_t N = x.op.A.extent(0), M = x.op.B.extent(1);
  memory room;
  const auto a = room.take<std::complex<double>>(shape<1>{N});
  const auto B_bar = room.take<std::complex<double>>(shape<2>{N, M});
  for (index_t n = 0; n < N; ++n) {
    const auto mode = x.op.mode<double>(n);
    a[n] = mode.a;
    for (index_t m = 0; m < M; ++m) B_bar(n, m) = mode.w * x.op.B(n, m);
  }
  s5<double> steps = x.op;
  steps.A = a;
  steps.B = B_bar;
  steps.dt = {};
  steps.rule = discretisation::none;
  outcome<s5<double>, std::complex<double>> got{memory()};
  const definition<s5<double>> expected(x.op, {});
  got.o = got.room.take<double>(expected.o.extents());
  forward(steps, {}, got.o);
  CHECK(excess(got.o, expected.o, expected.o_size, expected.relative) == "");
  a[0] = {1.25, 0};
  CHECK(check(steps, {}, got.o));
}

TEMPLATE_TEST_CASE("the kernel is its definition, in any memory, and the answer to an impulse", "", lti<float>,
                   s5<float>, lru<float>, s5<double>) {
  using accum = typename TestType::accum;
  OGIVE_SEED(seed, 462);
  for_seeds(seed, 6, [](std::uint64_t s) {
    trial<TestType> x(s, 3);
    const index_t M = x.op.u.extent(2), P = x.op.C.extent(0), L = odd_extent(x.random, 100);
    INFO(x << "kernel of " << L);
    TestType op = x.op;
    op.u = x.op.u.slice(1, 0, 0);  // the kernel has nothing to do with u
    memory room;
    const shape<3> extents{P, M, L};
    const auto expected = room.template take<double>(extents), size = room.template take<double>(extents);
    reference::kernel<double>(op, expected);
    reference::kernel<double>(sampler<TestType>::absolute(op, room).op, size);
    TestType impulses = x.op;
    const auto units = room.template take<typename TestType::scalar>(shape<3>{M, L, M});
    for_each(units, [](auto& unit, index_t) { unit = 0; });
    for (index_t m = 0; m < M; ++m) units(m, 0, m) = 1;
    impulses.u = units;
    impulses.D = {};
    const auto answers = room.template take<typename TestType::scalar>(shape<3>{M, L, P});
    recurrent(impulses, {}, answers);
    const double bound = tolerance<accum>(sampler<TestType>::roundings(impulses));
    CHECK(excess(view<accum, 3>(answers.permute({2, 0, 1})), expected, size, bound) == "");
    for (const layout where : all_layouts) {
      memory elsewhere(where);
      const auto K = elsewhere.template take<accum>(extents);
      kernel(op, K);
      CHECK(excess(K, expected, size, bound) == "");
      CHECK(elsewhere.gaps_untouched());
    }
  });
}

TEST_CASE("a system that grows is swept unless a convolution is asked for") {
  constexpr index_t L = 1024;
  tensor<float, 3> u({1, L, 1}, 1.0F), y({1, L, 1}), swept(y);
  const float one = 1, growing = 1.25F, fading = 0.75F;
  for (const float* A : {&growing, &fading}) {
    const lti<float> op{.u = u, .A_bar = {A, {1, 1}}, .B_bar = {&one, {1, 1}}, .C = {&one, {1, 1}}};
    recurrent(op, {}, swept);
    forward(op, {}, y);
    CHECK((difference(y.all(), swept.all()) == "") == (*A > 1));
    auto kept = prepare(op, {.length = L, .form = form::convolution});
    kept.forward(u, y);
    CHECK((difference(y.all(), swept.all()) == "") == (*A > 1));
  }
}

TEST_CASE("gamma of the LRU keeps its digits where modes hardly forget") {
  for (const double nu : {-40.0, -20.0, -3.0, 1.0}) {
    const double theta = -1;
    const std::complex<double> unit(1);
    const double u = 1;
    const lru<double> op{.u = {&u, {1, 1, 1}},
                         .nu_log = {&nu, {1}},
                         .theta_log = {&theta, {1}},
                         .B = {&unit, {1, 1}},
                         .C = {&unit, {1, 1}}};
    double y = 0;
    forward(op, {}, view<double, 3>(&y, {1, 1, 1}));
    const long double rate = std::exp(static_cast<long double>(nu));
    const auto gamma = static_cast<double>(std::sqrt(-std::expm1(-2 * rate)));
    CHECK_THAT(y, tests::WithinRoundings<double>(gamma, 8));
    const double learned = std::log(0.25);
    lru<double> other = op;
    other.gamma_log = {&learned, {1}};
    forward(other, {}, view<double, 3>(&y, {1, 1, 1}));
    CHECK_THAT(y, tests::WithinRoundings<double>(0.25, 4));
  }
}

TEST_CASE("a backward pass of a bidirectional layer is a call on views that run backwards") {
  OGIVE_SEED(seed, 463);
  trial<s5<float>> x(seed, 33, 2);
  const index_t L = length_of(x.op);
  const auto flipped = [](const auto& v) {
    using View = std::remove_cvref_t<decltype(v)>;
    auto strides = v.strides();
    strides[1] = -strides[1];
    return View(v.pointer(0, v.extent(1) - 1, 0), v.extents(), strides);
  };
  memory room;
  s5<float> turned = x.op;
  const auto u = room.copy(x.op.u);
  for (index_t t = 0; t < L; ++t) {
    for (index_t b = 0; b < 2; ++b) {
      for (index_t m = 0; m < u.extent(2); ++m) u(b, t, m) = x.op.u(b, L - 1 - t, m);
    }
  }
  turned.u = u;
  const auto y = room.take<float>(sampler<s5<float>>::output(x.op)), expected = room.take<float>(y.extents());
  forward(turned, {}, expected);
  s5<float> backwards = x.op;
  backwards.u = flipped(x.op.u);
  forward(backwards, {}, flipped(y));
  CHECK(difference(y, flipped(expected)) == "");
}

TEST_CASE("systems that make no sense are refused by name") {
  OGIVE_SEED(seed, 464);
  memory room;
  rng random(seed);
  s5<double> op = sampler<s5<double>>::draw(random, room, 1, 4);
  const auto y = room.take<double>(sampler<s5<double>>::output(op));
  const auto refused = [&](const s5<double>& bad, const std::string& word) {
    const status asked = check(bad, {}, y);
    CHECK_FALSE(asked);
    CHECK_THAT(std::string(asked.text()), tests::ContainsSubstring(word));
    CHECK_THROWS_AS(forward(bad, {}, y), std::invalid_argument);
    CHECK_THROWS_AS(kernel(bad, room.take<double>(shape<3>{op.C.extent(0), op.u.extent(2), 3})), std::invalid_argument);
  };
  const auto dt = room.copy(op.dt);
  dt[0] = 0;
  s5<double> bad = op;
  bad.dt = dt;
  refused(bad, "dt");
  bad = op;
  const auto A = room.copy(op.A);
  A[0] = {1e-3, 1};
  bad.A = A;
  refused(bad, "A");
  bad = op;
  bad.rule = discretisation::generalised_bilinear;
  bad.alpha = 2;
  refused(bad, "alpha");
  bad = op;
  bad.D = room.take<double>(shape<1>{op.u.extent(2) + 1});
  refused(bad, "");
  CHECK_THROWS_AS(kernel(op, room.take<double>(shape<3>{op.C.extent(0) + 1, op.u.extent(2), 3})), shape_error);
  CHECK_THROWS_AS(kernel(op, {}), shape_error);
  for (const double number : flatten(y)) CHECK(std::isnan(number));
}

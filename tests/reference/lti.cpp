#include <ogive/reference/lti.hpp>
#include <ogive/testing/compare.hpp>

#include "tests/within.hpp"

using namespace ogive;
using tests::WithinDecimals;
using tests::WithinDigits;
using tests::WithinRoundings;

namespace {

enum class rules { zoh, mamba, euler, bilinear, backward_euler, generalised_bilinear };

struct dense_arguments {
  view<const double, 3> u{};
  view<const double, 2> A_bar{}, B_bar{}, C{}, D{};
  integers lengths{}, offsets{};
};
template <class Number, std::size_t Rank>  // of A: 2 for modes of each channel, 1 for shared ones
struct mode_arguments {
  view<const double, 3> u{};
  view<const Number, Rank> A{};
  view<const Number, 2> B{}, C{};
  view<const double, 1> dt{}, D{};
  rules rule = rules::zoh;
  integers lengths{}, offsets{};
};
struct lru_arguments {
  view<const double, 3> u{};
  view<const double, 1> nu_log{}, theta_log{}, gamma_log{};
  view<const std::complex<double>, 2> B{}, C{};
  view<const double, 1> D{};
  integers lengths{}, offsets{};
};

template <class T = double, std::size_t Rank>
tensor<T, Rank> random(testing::rng& source, const shape<Rank>& extents, double low = -1, double high = 1) {
  tensor<T, Rank> x(extents);
  testing::fill_uniform(source, x.all(), low, high);
  return x;
}

/// y_t = Σ_{l ≤ t} K_l u_{t−l}, K [P, M, L].
tensor<double, 3> convolve(const view<const double, 3>& K, const view<const double, 3>& u) {
  tensor<double, 3> y({u.extent(0), u.extent(1), K.extent(0)});
  for (index_t b = 0; b < u.extent(0); ++b) {
    for (index_t t = 0; t < u.extent(1); ++t) {
      for (index_t p = 0; p < K.extent(0); ++p) {
        for (index_t l = 0; l <= t; ++l) {
          for (index_t m = 0; m < K.extent(1); ++m) y(b, t, p) += K(p, m, l) * u(b, t - l, m);
        }
      }
    }
  }
  return y;
}

const double x_of_example[] = {2, 4, 0, 8};
constexpr double A_of_example = -1, B_of_example = 2, one = 1, half = 0.5;

}  // namespace

TEST_CASE("h' = -h + 2x held over steps of 0.5, as a dense system, as a mode of a channel, as a shared mode") {
  const double ones[] = {1, 1};
  const double A_bar = std::exp(-0.5), B_bar = 2 * -std::expm1(-0.5);
  const auto check = [](const auto& op, auto ones_op, const auto& state) {
    tensor<double, 3> h({1, 2, 1}), y({1, 4, 1});
    reference::evaluate<double>(ones_op, state, h.all());
    CHECK_THAT(h(0, 1, 0), WithinDecimals(1.2642, 4));
    CHECK_THAT(h(0, 1, 0), WithinRoundings<double>(2 * -std::expm1(-1.0), 8));
    reference::evaluate<double>(op, state, y.all());
    tensor<double, 1> K(shape<1>{4});
    if constexpr (reference::channel_modes_fields<std::remove_cvref_t<decltype(op)>>) {
      reference::kernel<double>(op, view<double, 2>(K.data(), {1, 4}));
    } else {
      reference::kernel<double>(op, view<double, 3>(K.data(), {1, 1, 4}));
    }
    CHECK_THAT(K(0), WithinDecimals(0.7869, 4));
    CHECK_THAT(K(1) / K(0), WithinDecimals(0.6065, 4));
    const auto convolved = convolve({K.data(), {1, 1, 4}}, {x_of_example, {1, 4, 1}});
    CHECK_THAT(convolved(0, 3, 0), WithinDecimals(7.80468, 5));
    CHECK_THAT(y(0, 3, 0), WithinRoundings<double>(convolved(0, 3, 0), 2 * 4));
  };
  const auto both = [&](auto op, const auto& state) {
    auto short_op = op;
    op.u = {x_of_example, {1, 4, 1}};
    short_op.u = {ones, {1, 2, 1}};
    check(op, short_op, state);
  };
  SECTION("dense") {
    both(dense_arguments{.A_bar = {&A_bar, {1, 1}}, .B_bar = {&B_bar, {1, 1}}, .C = {&one, {1, 1}}},
         vector_state<double>());
  }
  SECTION("a channel's") {
    both(
        mode_arguments<double, 2>{
            .A = {&A_of_example, {1, 1}}, .B = {&B_of_example, {1, 1}}, .C = {&one, {1, 1}}, .dt = {&half, {1}}},
        diagonal_state<double>());
  }
  SECTION("shared") {
    both(
        mode_arguments<double, 1>{
            .A = {&A_of_example, {1}}, .B = {&B_of_example, {1, 1}}, .C = {&one, {1, 1}}, .dt = {&half, {1}}},
        vector_state<double>());
  }
}

TEST_CASE("one stored pair of modes counts twice") {
  const std::complex<double> A(-0.5, 3.14159265358979323846), unit(1);
  const double dt = 0.1, u[] = {1, 0, -1, 2};
  mode_arguments<std::complex<double>, 2> op{
      .u = {u, {1, 4, 1}}, .A = {&A, {1, 1}}, .B = {&unit, {1, 1}}, .C = {&unit, {1, 1}}, .dt = {&dt, {1}}};
  const double held[] = {0.1919289066, 0.1647731619,  0.1244671862,  0.0761112689,
                         0.0250890437, -0.0234735660, -0.0651733056, -0.0966812914};
  const double tustin[] = {0.1906446467, 0.1642734249, 0.1248949387, 0.0774247263};
  const double response[] = {0.1919289066, 0.1647731619, -0.0674617204, 0.2951959202};
  tensor<double, 2> K({1, 8});
  tensor<double, 3> y({1, 4, 1});
  reference::evaluate<double>(op, diagonal_state<std::complex<double>>(), y.all());
  reference::kernel<double>(op, K.all());
  for (index_t l = 0; l < 8; ++l) CHECK_THAT(K(0, l), WithinDecimals(held[l], 10));
  for (index_t t = 0; t < 4; ++t) CHECK_THAT(y(0, t, 0), WithinDecimals(response[t], 10));
  op.rule = rules::bilinear;
  reference::kernel<double>(op, K.all());
  for (index_t l = 0; l < 4; ++l) CHECK_THAT(K(0, l), WithinDecimals(tustin[l], 10));
}

TEST_CASE("recurrence is convolution with the kernel, and shared modes are a dense system of rotations") {
  OGIVE_SEED(seed, 410);
  testing::rng source(seed);
  using complex = std::complex<double>;
  constexpr index_t B = 2, L = 23, M = 3, P = 3, N = 5;
  const auto u = random(source, shape<3>{B, L, M});
  const auto D = random(source, shape<1>{M});
  auto nu = random(source, shape<1>{N}, -3, 0), theta = random(source, shape<1>{N}, -2, 1);
  tensor<complex, 2> in({N, M}), out({P, N});
  for (complex& x : in.flat()) x = {source.uniform(), source.uniform()};
  for (complex& x : out.flat()) x = {source.uniform(), source.uniform()};
  const lru_arguments lru{.u = u, .nu_log = nu, .theta_log = theta, .B = in, .C = out, .D = D};

  // ℂ as ℝ²: A̅ has blocks [re −im; im re].
  tensor<double, 2> A_bar({2 * N, 2 * N}), B_bar({2 * N, M}), C({P, 2 * N}), skip({P, M});
  for (index_t n = 0; n < N; ++n) {
    const complex a = std::exp(complex(-std::exp(nu(n)), std::exp(theta(n))));
    const double w = std::sqrt(1 - std::norm(a));
    A_bar(n, n) = A_bar(N + n, N + n) = a.real();
    A_bar(N + n, n) = a.imag();
    A_bar(n, N + n) = -a.imag();
    for (index_t m = 0; m < M; ++m) {
      B_bar(n, m) = w * in(n, m).real();
      B_bar(N + n, m) = w * in(n, m).imag();
    }
    for (index_t p = 0; p < P; ++p) {
      C(p, n) = out(p, n).real();
      C(p, N + n) = -out(p, n).imag();
    }
  }
  for (index_t m = 0; m < M; ++m) skip(m, m) = D(m);
  const dense_arguments dense{.u = u, .A_bar = A_bar, .B_bar = B_bar, .C = C, .D = skip};

  tensor<double, 3> y({B, L, P}), y_dense({B, L, P}), K({P, M, L}), K_dense({P, M, L});
  reference::evaluate<double>(lru, vector_state<complex>(), y.all());
  reference::evaluate<double>(dense, vector_state<double>(), y_dense.all());
  reference::kernel<double>(lru, K.all());
  reference::kernel<double>(dense, K_dense.all());
  // |a| ≤ 1 and w ≤ 1: an output sums L (M w + 1) |C| |u| terms at most, through 4 roundings a token.
  const double size = static_cast<double>(L * N) * M * std::sqrt(2.0) * std::sqrt(2.0);
  const double bound = testing::tolerance<double>(4 * L + 2 * N + M + 16, size);
  const testing::measure absolute{.scale = 1};
  CHECK(testing::compare(y_dense.all(), y.all(), bound, absolute));
  CHECK(testing::compare(K_dense.all(), K.all(), bound, absolute));
  tensor<double, 3> convolved = convolve(K, u);
  for (index_t b = 0; b < B; ++b) {
    for (index_t t = 0; t < L; ++t) {
      for (index_t m = 0; m < M; ++m) convolved(b, t, m) += D(m) * u(b, t, m);
    }
  }
  CHECK(testing::compare(convolved.all(), y.all(), bound, absolute));
}

TEST_CASE("padding neither decays nor writes, and a state goes on") {
  OGIVE_SEED(seed, 411);
  testing::rng source(seed);
  constexpr index_t L = 9, N = 3;
  const auto u = random(source, shape<3>{1, L, 1});
  const auto A_bar = random(source, shape<2>{N, N}, -0.5, 0.5), B_bar = random(source, shape<2>{N, 1});
  const auto C = random(source, shape<2>{1, N});
  dense_arguments op{.u = u, .A_bar = A_bar, .B_bar = B_bar, .C = C};
  tensor<double, 2> at_four({1, N}), padded({1, N}), whole({1, N});
  tensor<double, 3> y({1, L, 1}), y_padded({1, L, 1}), y_tail({1, L - 4, 1});
  reference::evaluate<double>(op, vector_state<double>{.final = whole}, y.all());
  const std::vector<std::int32_t> four{4};
  op.lengths = four;
  reference::evaluate<double>(op, vector_state<double>{.final = padded}, y_padded.all());
  CHECK(y_padded(0, 3, 0) == y(0, 3, 0));
  CHECK(y_padded(0, L - 1, 0) == y(0, 3, 0));
  op.lengths = {};
  op.u = u.all().slice(1, 0, 4);
  reference::evaluate<double>(op, vector_state<double>{.final = at_four}, view<double, 3>());
  for (index_t n = 0; n < N; ++n) CHECK(at_four(0, n) == padded(0, n));
  op.u = u.all().slice(1, 4, L - 4);
  reference::evaluate<double>(op, at_four.all(), y_tail.all());
  CHECK(y_tail(0, L - 5, 0) == y(0, L - 1, 0));
  for (index_t n = 0; n < N; ++n) CHECK(at_four(0, n) == whole(0, n));
}

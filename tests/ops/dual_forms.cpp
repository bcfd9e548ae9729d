// One system, three ways: the recurrence, the convolution with its kernel, and the continuous solution. Zero-order hold
// is exact for an input that is constant over each step: all three agree to rounding, however long the steps are.
#include <ogive/maps/discretisation_dense.hpp>
#include <ogive/ops/lti.hpp>
#include <ogive/ops/s5.hpp>
#include <ogive/testing/compare.hpp>

#include "tests/catch.hpp"

using namespace ogive;

namespace {

using matrix = Eigen::MatrixXd;
using vector = Eigen::VectorXd;

/// h' = A h + B u with A + Aᵀ ≤ −2c: ‖exp(tA)‖ ≤ exp(−ct).
struct dissipative {
  matrix A, B, C, D;
  double c = 0.5;

  dissipative(testing::rng& random, index_t N, index_t M, index_t P)
      : A(drawn(random, N, N)), B(drawn(random, N, M)), C(drawn(random, P, N)), D(drawn(random, P, M)) {
    const matrix S = drawn(random, N, N);
    A = (A - A.transpose()) / 2 - S * S.transpose() / static_cast<double>(N) - c * matrix::Identity(N, N);
  }
  static matrix drawn(testing::rng& random, index_t rows, index_t columns) {
    return matrix::NullaryExpr(rows, columns, [&] { return random.uniform(); });
  }
};

/// An input that jumps at some steps and is constant between them.
struct steps {
  std::vector<index_t> begin;
  matrix value;  // a column for each

  steps(testing::rng& random, index_t inputs, index_t length) : begin{0} {
    for (const index_t at : {length / 7, length / 3, length - length / 5}) {
      if (at > begin.back() && at < length) begin.push_back(at);
    }
    value = dissipative::drawn(random, inputs, static_cast<index_t>(begin.size()));
  }
  index_t piece(index_t t) const {
    index_t i = 0;
    while (static_cast<std::size_t>(i) + 1 < begin.size() && begin[static_cast<std::size_t>(i) + 1] <= t) ++i;
    return i;
  }
};

/// h(tΔ + Δ) from exponentials of the whole time since the last jump, not of one step: nothing is shared with what is
/// tested.
vector solution(const dissipative& s, const steps& u, vector h, double dt, index_t t) {
  for (index_t i = 0; i <= u.piece(t); ++i) {
    const index_t from = u.begin[static_cast<std::size_t>(i)];
    const index_t to = i == u.piece(t) ? t + 1 : u.begin[static_cast<std::size_t>(i) + 1];
    const matrix E = matrix(static_cast<double>(to - from) * dt * s.A).exp();
    h = E * h + s.A.lu().solve((E - matrix::Identity(s.A.rows(), s.A.rows())) * s.B * u.value.col(i));
  }
  return h;
}

template <class T>
tensor<T, 2> stored(const matrix& m) {
  tensor<T, 2> x({m.rows(), m.cols()});
  for (index_t i = 0; i < m.rows(); ++i) {
    for (index_t j = 0; j < m.cols(); ++j) x(i, j) = static_cast<T>(m(i, j));
  }
  return x;
}
template <class T>
tensor<T, 3> stored(const steps& u, index_t length) {
  tensor<T, 3> x({1, length, u.value.rows()});
  for (index_t t = 0; t < length; ++t) {
    for (index_t m = 0; m < u.value.rows(); ++m) x(0, t, m) = static_cast<T>(u.value(m, u.piece(t)));
  }
  return x;
}

/// Tokens to look at: about jumps, and spread.
std::vector<index_t> places(index_t length) {
  std::vector<index_t> all;
  for (const index_t t : {index_t{0}, index_t{1}, length / 7, length / 3 - 1, length / 3, length / 2, length - 1}) {
    if (t >= 0 && t < length) all.push_back(t);
  }
  return all;
}

/// Σ_l K_l u_{t−l} + D u_t
template <class T>
double convolved(const view<const T, 3>& K, const view<const T, 3>& u, index_t t, index_t p) {
  double sum = 0;
  for (index_t l = 0; l <= t; ++l) {
    for (index_t m = 0; m < K.extent(1); ++m)
      sum += static_cast<double>(K(p, m, l)) * static_cast<double>(u(0, t - l, m));
  }
  return sum;
}

/// A step loses (N + M + 1) u of ‖h‖ per row, √N of that in all, in products and in its matrices; losses fade by
/// exp(−cΔ) a step. ‖h‖ ≤ ‖h₀‖ + ‖B‖ ‖u‖/c. The kernel is such a run itself, with the sum over l on top.
template <class T>
double bound(const dissipative& s, const steps& u, const vector& h0, double dt, index_t length) {
  const double N = static_cast<double>(s.A.rows());
  const double lasting = std::fmin(static_cast<double>(length), 1 / -std::expm1(-s.c * dt));
  const double largest_u = u.value.colwise().norm().maxCoeff();
  const double largest_h = h0.norm() + s.B.norm() * largest_u / s.c;
  const auto roundings = static_cast<index_t>(lasting * (N + static_cast<double>(s.B.cols()) + 8));
  return testing::tolerance<T>(roundings + s.A.rows(), std::sqrt(N), s.C.norm() * largest_h + s.D.norm() * largest_u);
}

/// Transforms round once a level, relative to the norms of what they go through: three of them, of twice the length.
template <class T>
double spectral_bound(const view<const T, 3>& K, const view<const T, 3>& u) {
  const auto norm = [](const auto& x) {
    double squares = 0;
    testing::for_each(x, [&](const T& number, index_t) { squares += std::pow(static_cast<double>(number), 2); });
    return std::sqrt(squares);
  };
  const auto levels = static_cast<index_t>(std::log2(2 * static_cast<double>(u.extent(1)))) + 1;
  return testing::tolerance<T>(3 * 4 * levels + K.extent(1), norm(K) * norm(u));
}

struct size {
  index_t N, M, P, length;
  double dt;
};

}  // namespace

TEMPLATE_TEST_CASE("recurrence, convolution and continuous solution of dense systems are one", "", float, double) {
  using T = TestType;
  const size one = GENERATE(size{1, 1, 1, 16384, 0.01}, size{2, 1, 1, 1000, 0.3}, size{7, 3, 2, 211, 2.0},
                            size{64, 1, 1, 16384, 0.002});
  OGIVE_SEED(seed, 450);
  testing::rng random(seed);
  const dissipative s(random, one.N, one.M, one.P);
  const steps input(random, one.M, one.length);
  const vector h0 = dissipative::drawn(random, one.N, 1), zero = vector::Zero(one.N);

  tensor<double, 3> A_step({1, one.N, one.N}), B_step({1, one.N, one.M});
  const auto A = stored<double>(s.A), B = stored<double>(s.B);
  discretise_dense(discretisation::zoh, view<const double, 1>(&one.dt, {1}), A, B, A_step, B_step);
  tensor<T, 2> A_bar({one.N, one.N}), B_bar({one.N, one.M});
  std::transform(A_step.flat().begin(), A_step.flat().end(), A_bar.data(), [](double x) { return static_cast<T>(x); });
  std::transform(B_step.flat().begin(), B_step.flat().end(), B_bar.data(), [](double x) { return static_cast<T>(x); });
  const auto C = stored<T>(s.C), D = stored<T>(s.D), start = stored<T>(h0.transpose());
  const auto u = stored<T>(input, one.length);
  const lti<T> op{.u = u, .A_bar = A_bar, .B_bar = B_bar, .C = C, .D = D};
  const shape<3> outputs{1, one.length, one.P};
  tensor<T, 3> y(outputs), from_start(outputs), fast(outputs), fast_from_start(outputs);
  tensor<T, 3> K({one.P, one.M, one.length});
  tensor<T, 2> end({1, one.N}), fast_end({1, one.N});
  recurrent(op, {}, y);
  recurrent(op, vector_state<T>{.initial = start, .final = end}, from_start);
  convolution(op, {}, fast);
  convolution(op, vector_state<T>{.initial = start, .final = fast_end}, fast_from_start);
  kernel(op, K);
  CHECK(testing::compare(fast_end.all(), end.all(), 0));

  const double within = bound<T>(s, input, h0, one.dt, one.length);
  const double fast_within = within + spectral_bound<T>(K, u);
  for (const index_t t : places(one.length)) {
    const vector skip = s.D * input.value.col(input.piece(t));
    const vector exact = s.C * solution(s, input, zero, one.dt, t) + skip;
    const vector continued = s.C * solution(s, input, h0, one.dt, t) + skip;
    for (index_t p = 0; p < one.P; ++p) {
      INFO("N " << one.N << ", token " << t << ", output " << p);
      CHECK(std::fabs(static_cast<double>(y(0, t, p)) - exact(p)) <= within);
      CHECK(std::fabs(static_cast<double>(from_start(0, t, p)) - continued(p)) <= within);
      CHECK(std::fabs(static_cast<double>(fast(0, t, p)) - exact(p)) <= fast_within);
      CHECK(std::fabs(static_cast<double>(fast_from_start(0, t, p)) - continued(p)) <= fast_within);
      const double sum = convolved<T>(K, u, t, p) + skip(p);
      CHECK(std::fabs(sum - exact(p)) <= within);
    }
  }
}

TEMPLATE_TEST_CASE("recurrence, convolution and continuous solution of complex modes are one", "", float, double) {
  using T = TestType;
  using complex = std::complex<double>;
  using number = std::complex<T>;
  const size one = GENERATE(size{1, 1, 1, 16384, 0.01}, size{2, 1, 1, 1000, 0.3}, size{7, 3, 2, 211, 2.0},
                            size{64, 2, 2, 16384, 0.002});
  constexpr double c = 0.5;
  OGIVE_SEED(seed, 451);
  testing::rng random(seed);
  const steps input(random, one.M, one.length);
  tensor<number, 1> A({one.N});
  tensor<number, 2> B({one.N, one.M}), C({one.P, one.N});
  for (number& x : A.flat()) x = number(static_cast<T>(-random.uniform(c, 2)), static_cast<T>(random.uniform(-20, 20)));
  testing::fill_uniform(random, B.all());
  testing::fill_uniform(random, C.all());
  const T dt = static_cast<T>(one.dt);
  const auto u = stored<T>(input, one.length);
  const s5<T> op{.u = u, .A = A, .B = B, .C = C, .dt = {&dt, {one.N}, {0}}};
  tensor<T, 3> y({1, one.length, one.P}), fast(y), K({one.P, one.M, one.length});
  recurrent(op, {}, y);
  convolution(op, {}, fast);
  kernel(op, K);

  // Of each mode: 8 roundings a step, which fade; 2 |C| |B| |u|/c is the most that an output has of it.
  const double lasting = std::fmin(static_cast<double>(one.length), 1 / -std::expm1(-c * one.dt));
  const double within = testing::tolerance<T>(static_cast<index_t>(8 * lasting) + 4 * (one.N + one.M) + 32,
                                              static_cast<double>(one.N * one.M), 2 * 2 / c);
  const double fast_within = within + spectral_bound<T>(K, u);
  for (const index_t t : places(one.length)) {
    for (index_t p = 0; p < one.P; ++p) {
      complex sum = 0;
      for (index_t n = 0; n < one.N; ++n) {
        const complex a(A(n));
        complex h = 0;
        for (index_t i = 0; i <= input.piece(t); ++i) {
          const index_t from = input.begin[static_cast<std::size_t>(i)];
          const index_t to = i == input.piece(t) ? t + 1 : input.begin[static_cast<std::size_t>(i) + 1];
          const complex e = std::exp(a * (static_cast<double>(to - from) * static_cast<double>(dt)));
          complex driven = 0;
          for (index_t m = 0; m < one.M; ++m) driven += complex(B(n, m)) * static_cast<double>(u(0, from, m));
          h = e * h + (e - 1.0) / a * driven;
        }
        sum += complex(C(p, n)) * h;
      }
      INFO("N " << one.N << ", token " << t << ", output " << p);
      CHECK(std::fabs(static_cast<double>(y(0, t, p)) - 2 * sum.real()) <= within);
      CHECK(std::fabs(static_cast<double>(fast(0, t, p)) - 2 * sum.real()) <= fast_within);
      CHECK(std::fabs(convolved<T>(K, u, t, p) - 2 * sum.real()) <= within);
    }
  }
}

TEST_CASE("Euler's rule is of first order, the bilinear one of second, zero-order hold exact") {
  OGIVE_SEED(seed, 452);
  testing::rng random(seed);
  constexpr index_t N = 4;
  const dissipative s(random, N, 1, 1);
  const steps input(random, 1, 1);  // constant
  const vector exact = solution(s, input, vector::Zero(N), 1.0, 0);
  const auto A = stored<double>(s.A), B = stored<double>(s.B);
  const auto error = [&](discretisation rule, index_t length) {
    const double dt = 1 / static_cast<double>(length);
    tensor<double, 3> A_bar({1, N, N}), B_bar({1, N, 1});
    discretise_dense(rule, view<const double, 1>(&dt, {1}), A, B, A_bar, B_bar);
    const auto u = stored<double>(input, length);
    const auto C = stored<double>(s.C);
    tensor<double, 2> h({1, N});
    const lti<double> op{
        .u = u, .A_bar = view<const double, 3>(A_bar)[0], .B_bar = view<const double, 3>(B_bar)[0], .C = C};
    recurrent(op, h.all(), {});
    return (Eigen::Map<const vector>(h.data(), N) - exact).norm();
  };
  // The error is e Δ^p (1 + O(Δ ‖A‖ (1 + ‖A‖))), so halving Δ shows p up to that.
  for (const index_t length : {128, 256, 512}) {
    const double A_size = s.A.norm(), slack = A_size * (1 + A_size) / static_cast<double>(length);
    const auto order = [&](discretisation rule) { return std::log2(error(rule, length) / error(rule, 2 * length)); };
    INFO("from " << length << " steps, within " << slack);
    CHECK(std::fabs(order(discretisation::euler) - 1) <= slack);
    CHECK(std::fabs(order(discretisation::backward_euler) - 1) <= slack);
    CHECK(std::fabs(order(discretisation::bilinear) - 2) <= slack);
    CHECK(error(discretisation::zoh, length) <=
          testing::tolerance<double>(length * (N + 8), std::sqrt(static_cast<double>(N)), exact.norm() + 1));
  }
}

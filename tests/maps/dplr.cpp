#include <ogive/maps/discretisation_dense.hpp>
#include <ogive/maps/dplr.hpp>
#include <ogive/testing/compare.hpp>

#include "tests/catch.hpp"

using namespace ogive;

namespace {

using complex = std::complex<double>;
using modes = tensor<complex, 1>;

struct system_of {
  modes Lambda, B;
  tensor<complex, 2> P;
};

system_of random_system(testing::rng& random, index_t N, index_t R) {
  system_of made{modes({N}), modes({N}), tensor<complex, 2>({R, N})};
  for (complex& x : made.Lambda.flat()) x = {-random.uniform(0, 2), random.uniform(-20, 20)};
  testing::fill_normal(random, made.B.all());
  testing::fill_normal(random, made.P.all());
  return made;
}

struct step_of {
  modes A, B;
  tensor<complex, 2> U, Q;
  step_of(double dt, const system_of& of) : A(of.B.extents()), B(of.B.extents()), U(of.P.extents()), Q(of.P.extents()) {
    discretise_dplr(dt, of.Lambda.all(), of.P.all(), of.B.all(), {A, U, Q, B});
  }
};

/// diag(a) x − Σ_r U_r 2 Re(Q_r · x), on one of each conjugate pair.
modes apply(const modes& a, const tensor<complex, 2>& U, const tensor<complex, 2>& Q, const modes& x) {
  modes y(x.extents());
  for (index_t n = 0; n < x.extent(0); ++n) y(n) = a(n) * x(n);
  for (index_t r = 0; r < U.extent(0); ++r) {
    double read = 0;
    for (index_t n = 0; n < x.extent(0); ++n) read += 2 * (Q(r, n) * x(n)).real();
    for (index_t n = 0; n < x.extent(0); ++n) y(n) -= U(r, n) * read;
  }
  return y;
}

/// The real matrix [2N, 2N] of a map that is linear over the real numbers, on (Re x, Im x).
template <class F>
tensor<double, 2> matrix_of(index_t N, const F& f) {
  tensor<double, 2> m({2 * N, 2 * N});
  for (index_t k = 0; k < 2 * N; ++k) {
    modes x({N});
    x(k % N) = k < N ? complex(1, 0) : complex(0, 1);
    const modes y = f(x);
    for (index_t n = 0; n < N; ++n) {
      m(n, k) = y(n).real();
      m(N + n, k) = y(n).imag();
    }
  }
  return m;
}

/// A̅ and B̅ against the dense bilinear rule on the same system.
void check_against_dense(double dt, const system_of& of) {
  const index_t N = of.Lambda.extent(0), R = of.P.extent(0);
  tensor<complex, 2> conjugate(of.P);
  for (complex& p : conjugate.flat()) p = std::conj(p);
  const tensor<double, 2> A = matrix_of(N, [&](const modes& x) { return apply(of.Lambda, of.P, conjugate, x); });
  tensor<double, 2> B({2 * N, 1});
  for (index_t n = 0; n < N; ++n) {
    B(n, 0) = of.B(n).real();
    B(N + n, 0) = of.B(n).imag();
  }
  tensor<double, 3> A_bar({1, 2 * N, 2 * N}), B_bar({1, 2 * N, 1});
  discretise_dense(discretisation::bilinear, tensor<double, 1>({1}, dt), A, B, A_bar, B_bar);

  const step_of got(dt, of);
  const tensor<double, 2> found = matrix_of(N, [&](const modes& x) { return apply(got.A, got.U, got.Q, x); });
  // A solve with I − Δ/2 A: N roundings times its condition, at most 1 + Δ/2 ‖A‖ times ‖(I − Δ/2 A)⁻¹‖ ≤ (1 + ‖A̅‖)/2.
  const double inverse = (1 + testing::norm(A_bar.all())) / 2;
  const double bound = testing::tolerance<double>(8 * (N + R), 1 + dt / 2 * testing::norm(A.all()), inverse, inverse);
  for (index_t n = 0; n < 2 * N; ++n) {
    for (index_t k = 0; k < 2 * N; ++k) CHECK(std::abs(found(n, k) - A_bar(0, n, k)) <= bound);
    const double b = n < N ? got.B(n).real() : got.B(n - N).imag();
    CHECK(std::abs(b - B_bar(0, n, 0)) <= bound * dt * testing::norm(B.all()));
  }
}

}  // namespace

TEST_CASE("the bilinear rule of a diagonal plus low-rank A is the dense one") {
  OGIVE_SEED(seed, 81);
  testing::rng random(seed);
  for (const index_t N : {1, 2, 5, 16}) {
    for (const index_t R : {0, 1, 2, 3, 16}) {
      for (const double dt : {1e-3, 0.1, 2.0}) {
        INFO("N " << N << " R " << R << " dt " << dt);
        check_against_dense(dt, random_system(random, N, R));
      }
    }
  }
}

TEST_CASE("parameters in float give the coefficients of these numbers in double") {
  OGIVE_SEED(seed, 82);
  testing::rng random(seed);
  const index_t N = 4, R = 2;
  const system_of made = random_system(random, N, R);
  tensor<std::complex<float>, 1> Lambda({N}), B({N});
  tensor<std::complex<float>, 2> P({R, N});
  system_of rounded{modes({N}), modes({N}), tensor<complex, 2>({R, N})};
  const auto round = [](const auto& from, auto& to, auto& wide) {
    for (std::size_t i = 0; i < from.flat().size(); ++i)
      wide.flat()[i] = to.flat()[i] = std::complex<float>(from.flat()[i]);
  };
  round(made.Lambda, Lambda, rounded.Lambda);
  round(made.B, B, rounded.B);
  round(made.P, P, rounded.P);
  const step_of expected(0.1, rounded);
  step_of got(0.1, made);
  discretise_dplr(0.1, std::as_const(Lambda).all(), std::as_const(P).all(), std::as_const(B).all(),
                  {got.A, got.U, got.Q, got.B});
  for (index_t n = 0; n < N; ++n) {
    CHECK((got.A(n) == expected.A(n) && got.B(n) == expected.B(n)));
    for (index_t r = 0; r < R; ++r) CHECK((got.U(r, n) == expected.U(r, n) && got.Q(r, n) == expected.Q(r, n)));
  }
}

TEST_CASE("singular systems and steps that are none are refused, and nothing is written") {
  system_of made{modes({2}), modes({2}), tensor<complex, 2>({1, 2})};
  step_of to(0.5, made);
  const auto run = [&](double dt) {
    to.A.flat()[0] = to.U.flat()[0] = 7;
    discretise_dplr(dt, std::as_const(made.Lambda).all(), std::as_const(made.P).all(), std::as_const(made.B).all(),
                    {to.A, to.U, to.Q, to.B});
  };
  made.Lambda(1) = 4;
  CHECK_THROWS_WITH(run(0.5), tests::ContainsSubstring("Lambda") && tests::ContainsSubstring("choose another dt"));
  // 1 − Δ/2 (λ − 2 |p|²) … with Λ = 8 and |p|² chosen so that 1 + Δ/2 · 2 |p|² / (1 − Δ/2 8) = 0, for both halves.
  made.Lambda(0) = made.Lambda(1) = 8;
  made.P(0, 0) = std::sqrt(2.0);
  CHECK_THROWS_WITH(run(0.5), tests::ContainsSubstring("I - dt/2 A is singular"));
  made.Lambda(0) = made.Lambda(1) = complex(-1, 3);
  CHECK_NOTHROW(run(0.5));
  for (const double dt :
       {0.0, -0.1, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    CHECK_THROWS_WITH(run(dt), tests::ContainsSubstring("dt") && tests::ContainsSubstring("positive and finite"));
    CHECK(to.A(0) == 7.0);
    CHECK(to.U(0, 0) == 7.0);
  }
}

TEST_CASE("low-rank systems whose extents do not fit are refused") {
  const modes Lambda({3}), B({3});
  const tensor<complex, 2> P({1, 3}), many({17, 3});
  modes A({3}), b({3});
  tensor<complex, 2> U({1, 3}), Q({1, 3}), wide({17, 3}), wider({17, 3});
  CHECK_NOTHROW(discretise_dplr(0.1, Lambda.all(), P.all(), B.all(), {A, U, Q, b}));
  CHECK_THROWS_AS(discretise_dplr(0.1, Lambda.all(), P.all(), B.all(), {A, U, U, b}), shape_error);
  CHECK_THROWS_AS(discretise_dplr(0.1, Lambda.all(), P.all(), B.all(), {A, U, Q, A}), shape_error);
  CHECK_THROWS_AS(discretise_dplr(0.1, Lambda.all(), P.all(), B.all().slice(0, 0, 2), {A, U, Q, b}), shape_error);
  CHECK_THROWS_WITH(discretise_dplr(0.1, Lambda.all(), many.all(), B.all(), {A, wide, wider, b}),
                    tests::ContainsSubstring("at most 16"));
}

#include <ogive/maps/discretisation_dense.hpp>
#include <ogive/testing/compare.hpp>

#include "tests/catch.hpp"

using namespace ogive;

namespace {

struct result {
  tensor<double, 3> A, B;
};

result discretised(discretisation rule, const tensor<double, 1>& dt, const tensor<double, 2>& A,
                   const tensor<double, 2>& B, double alpha = 0.5) {
  const index_t L = dt.extent(0), N = A.extent(0), M = B.extent(1);
  result r{tensor<double, 3>({L, N, N}), tensor<double, 3>({L, N, M})};
  discretise_dense(rule, dt, A, B, r.A, r.B, alpha);
  return r;
}

const auto all_rules = {discretisation::zoh,      discretisation::mamba,          discretisation::euler,
                        discretisation::bilinear, discretisation::backward_euler, discretisation::generalised_bilinear};

}  // namespace

TEST_CASE("a diagonal A gives what the diagonal rules give") {
  const index_t N = 4, L = 5;
  tensor<double, 2> A({N, N}), B({N, 1});
  tensor<double, 1> dt({L});
  for (index_t n = 0; n < N; ++n) {
    A(n, n) = -static_cast<double>(n * n);  // 0 among them
    B(n, 0) = 1 + static_cast<double>(n);
  }
  for (index_t l = 0; l < L; ++l) dt(l) = std::pow(10.0, static_cast<double>(l - 4));
  for (const discretisation rule : all_rules) {
    const result r = discretised(rule, dt, A, B, 0.3);
    for (index_t l = 0; l < L; ++l)
      for (index_t n = 0; n < N; ++n) {
        const auto pair = discretise(rule, dt(l), A(n, n), B(n, 0), 0.3);
        // Relative to the largest element of the matrix, one of whose squarings may be off by N.
        const double bound = testing::tolerance<double>(8 * N) * (1 + std::abs(pair.A) + std::abs(pair.B));
        CHECK(std::abs(r.A(l, n, n) - pair.A) <= bound);
        CHECK(std::abs(r.B(l, n, 0) - pair.B) <= bound);
        for (index_t m = 0; m < N; ++m)
          if (m != n) CHECK(std::abs(r.A(l, n, m)) <= bound);
      }
  }
}

TEST_CASE("a singular A has its zero-order hold: a chain of integrators") {
  // h'_1 = h_2, h'_2 = x over a step of Δ: h_1 gains Δ h_2 + Δ²/2 x, h_2 gains Δ x.
  tensor<double, 2> A({2, 2}), B({2, 1});
  A(0, 1) = 1;
  B(1, 0) = 1;
  tensor<double, 1> dt({2});
  dt(0) = 0.25;
  dt(1) = 1e-8;
  const result r = discretised(discretisation::zoh, dt, A, B);
  const double bound = testing::tolerance<double>(8);
  for (index_t l = 0; l < 2; ++l) {
    CHECK(std::abs(r.A(l, 0, 1) - dt(l)) <= bound * dt(l));
    CHECK(std::abs(r.B(l, 0, 0) - dt(l) * dt(l) / 2) <= bound * dt(l) * dt(l));
    CHECK(std::abs(r.B(l, 1, 0) - dt(l)) <= bound * dt(l));
    CHECK(r.A(l, 0, 0) == 1);
    CHECK(r.A(l, 1, 0) == 0);
  }
}

TEST_CASE("two half steps of zero-order hold are one step") {
  OGIVE_SEED(seed, 41);
  testing::rng random(seed);
  const index_t N = 6, M = 2;
  tensor<double, 2> A({N, N}), B({N, M});
  testing::fill_normal(random, A.all());
  testing::fill_normal(random, B.all());
  for (index_t n = 0; n < N; ++n) A(n, n) -= 4;
  tensor<double, 1> dt({2});
  dt(0) = 0.35;
  dt(1) = 0.7;
  const result r = discretised(discretisation::zoh, dt, A, B);
  const double norm = 1 + testing::norm(r.A.all()[0]);
  const double bound = testing::tolerance<double>(40 * N, norm, norm + testing::norm(r.B.all()[0]));
  for (index_t i = 0; i < N; ++i) {
    for (index_t j = 0; j < N; ++j) {
      double twice = 0;
      for (index_t k = 0; k < N; ++k) twice += r.A(0, i, k) * r.A(0, k, j);
      CHECK(std::abs(twice - r.A(1, i, j)) <= bound);
    }
    for (index_t m = 0; m < M; ++m) {
      double twice = r.B(0, i, m);
      for (index_t k = 0; k < N; ++k) twice += r.A(0, i, k) * r.B(0, k, m);
      CHECK(std::abs(twice - r.B(1, i, m)) <= bound);
    }
  }
}

TEST_CASE("a singular system is refused with its step, a stiff one is solved") {
  tensor<double, 2> A({2, 2}), B({2, 1});
  A(0, 0) = A(1, 1) = 1;
  A(0, 1) = 2;
  A(1, 0) = 0.5;  // eigenvalues 0 and 2
  tensor<double, 1> dt({2});
  dt(0) = 0.1;
  dt(1) = 1;
  CHECK_THROWS_WITH(discretised(discretisation::bilinear, dt, A, B),
                    tests::ContainsSubstring("I - alpha dt A is singular") && tests::ContainsSubstring("dt[1] = 1.0"));
  tensor<double, 2> stiff({2, 2});
  stiff(0, 1) = 1e12;
  CHECK_NOTHROW(discretised(discretisation::backward_euler, dt, stiff, B));
}

TEST_CASE("extents that do not fit are refused") {
  const tensor<double, 1> dt({3});
  tensor<double, 3> A_bar({3, 2, 2}), B_bar({3, 2, 1});
  CHECK_THROWS_AS(
      discretise_dense(discretisation::zoh, dt, tensor<double, 2>({2, 3}), tensor<double, 2>({2, 1}), A_bar, B_bar),
      shape_error);
  CHECK_THROWS_AS(
      discretise_dense(discretisation::zoh, dt, tensor<double, 2>({2, 2}), tensor<double, 2>({2, 4}), A_bar, B_bar),
      shape_error);
  CHECK_THROWS_AS(
      discretised(discretisation::generalised_bilinear, dt, tensor<double, 2>({2, 2}), tensor<double, 2>({2, 1}), -0.1),
      std::invalid_argument);
  CHECK_THROWS_AS(discretise_dense(discretisation::zoh, dt, A_bar.all()[0], tensor<double, 2>({2, 1}), A_bar, B_bar),
                  shape_error);
}

TEST_CASE("no states at all") {
  const tensor<double, 1> dt({2});
  for (const discretisation rule : all_rules)
    CHECK_NOTHROW(discretised(rule, dt, tensor<double, 2>({0, 0}), tensor<double, 2>({0, 1})));
}

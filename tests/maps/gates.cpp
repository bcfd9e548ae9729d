#include <ogive/maps/gates.hpp>
#include <ogive/testing/compare.hpp>

#include "tests/catch.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("A is minus the exponential of its logarithm", "", float, double) {
  using T = TestType;
  tensor<T, 2> A_log({3, 5});
  for (index_t d = 0; d < 3; ++d)
    for (index_t n = 0; n < 5; ++n) A_log(d, n) = std::log(static_cast<T>(n + 1)) - static_cast<T>(d);
  tensor<T, 2> A({5, 3});
  A_from_log(A_log, A.all().permute({1, 0}));
  for (index_t d = 0; d < 3; ++d)
    for (index_t n = 0; n < 5; ++n) {
      const double exact = -std::exp(static_cast<double>(A_log(d, n)));
      CHECK(std::abs(static_cast<double>(A(n, d)) - exact) <= testing::tolerance<T>(2) * std::abs(exact));
    }
  A_from_log(A_log, A_log.all());
  CHECK(A_log(2, 4) == A(4, 2));
  CHECK_THROWS_AS(A_from_log(A_log, A.all()), shape_error);
}

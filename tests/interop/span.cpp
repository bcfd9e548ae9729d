#include <ogive/interop/span.hpp>

#include <vector>

#include "tests/catch.hpp"

using namespace ogive;

TEST_CASE("spans and views are one memory") {
  std::vector<float> numbers{0, 1, 2, 3, 4, 5};
  const auto x = as_view(std::span(numbers), shape<2>{2, 3});
  CHECK(&x(1, 2) == &numbers[5]);
  CHECK(as_span(x).data() == numbers.data());
  CHECK(as_span(x).size() == 6);
  CHECK(as_span(x.slice(0, 1, 1)).front() == 3);
  CHECK_THROWS_AS(as_span(x.slice(1, 0, 2)), shape_error);
  CHECK_THROWS_AS(as_span(x.permute({1, 0})), shape_error);
  CHECK_THROWS_AS(as_view(std::span(numbers), shape<2>{2, 4}), shape_error);
  CHECK(as_span(view<float, 2>(numbers.data(), {0, 3})).empty());
}

#if defined(__cpp_lib_mdspan)
TEST_CASE("mdspans of any layout are views") {
  std::vector<float> numbers{0, 1, 2, 3, 4, 5};
  const std::mdspan<float, std::dextents<int, 2>, std::layout_left> columns(numbers.data(), 2, 3);
  CHECK(as_view(columns)(1, 2) == 5);
  CHECK(as_view(columns)(0, 1) == 2);
  CHECK(as_mdspan(as_view(columns))[std::array{1, 2}] == 5);
}
#endif

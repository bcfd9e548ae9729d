#include <ogive/core/tensor.hpp>

#include "tests/catch.hpp"

using namespace ogive;

TEST_CASE("a tensor that is absent, or has been moved from, is absent wherever it goes") {
  tensor<float, 2> nothing;
  const tensor<float, 2> copied = nothing;
  CHECK(!copied.all().present());
  CHECK(copied.flat().empty());

  tensor<float, 2> x({2, 3}, 1.0F);
  tensor<float, 2> taken = std::move(x);
  CHECK(taken.size() == 6);
  tensor<float, 2> from_moved = x;
  CHECK(!from_moved.all().present());
  CHECK(x.flat().empty());
  CHECK(x.extents() == shape<2>{});

  from_moved = taken;
  CHECK(from_moved(1, 2) == 1);
  from_moved = nothing;
  CHECK(!from_moved.all().present());
  taken = std::move(from_moved);
  CHECK(!taken.all().present());
}

TEST_CASE("a copy of a tensor has strides and memory of its own; no elements are not absent") {
  tensor<int, 2> padded({2, 3}, {8, 1}, 7);
  tensor<int, 2> copy = padded;
  padded(1, 2) = 0;
  CHECK(copy(1, 2) == 7);
  CHECK(copy.all().stride(0) == 8);
  copy = padded;
  CHECK(copy(1, 2) == 0);
  const tensor<int, 2> empty({0, 3});
  const tensor<int, 2> again = empty;
  CHECK(again.all().present());
  CHECK(again.extents() == shape<2>{0, 3});
}

#include <ogive/testing/samplers.hpp>

#include <set>

#include "tests/catch.hpp"

using namespace ogive;
using namespace ogive::testing;

TEST_CASE("memory holds the same numbers in any layout, each at a place of its own") {
  rng random(1);
  memory dense;
  const auto x = draw_uniform<float>(random, dense, shape<4>{2, 3, 4, 5});
  for (const layout how : all_layouts) {
    memory room(how);
    const auto y = room.copy(x);
    const auto wide = room.copy<double>(x);
    const auto flags = room.take<bool>(shape<2>{2, 3});
    const auto third = room.copy(x);
    CHECK(flatten(y) == flatten(x));
    CHECK(flatten(wide) == flatten(x));
    CHECK(flatten(third) == flatten(x));
    std::set<const void*> places;
    for (const auto& one : {y, third}) for_each(one, [&](float& element, index_t) { places.insert(&element); });
    for_each(flags, [&](bool& element, index_t) { places.insert(&element); });
    CHECK(places.size() == 2 * 120 + 6);
    CHECK(room.gaps_untouched());
  }
  CHECK(memory(layout::tokens_in).take<float>(shape<4>{2, 3, 4, 5}).stride(1) == 1);
  CHECK(memory(layout::tokens_in).take<float>(shape<3>{2, 3, 4}).stride(1) == 1);
  CHECK(memory(layout::turned).take<float>(shape<4>{2, 3, 4, 5}).stride(2) == 1);
  CHECK(memory(layout::backwards).take<float>(shape<1>{3}).stride(0) == -1);
}

TEST_CASE("elements of fresh memory are NaN, and a write into a gap is seen") {
  memory room(layout::padded);
  const auto x = room.take<bfloat16>(shape<2>{2, 3});
  for (const double number : flatten(x)) CHECK(std::isnan(number));
  for_each(x, [](bfloat16& element, index_t) { element = bfloat16(1.0F); });
  CHECK(room.gaps_untouched());
  *(x.pointer(0, 2) + 1) = bfloat16(0.0F);
  CHECK_FALSE(room.gaps_untouched());
}

TEST_CASE("absolute values, complex ones by modulus") {
  memory room;
  const std::vector<std::complex<float>> numbers{{3, -4}, {-1, 0}};
  const auto y = absolute(room, view<const std::complex<float>, 1>(numbers));
  CHECK(flatten(y) == std::vector<double>{5, 0, 1, 0});
}

TEST_CASE("odd extents and divisors") {
  rng random(2);
  std::set<index_t> seen;
  for (int i = 0; i < 500; ++i) {
    seen.insert(odd_extent(random, 17));
    CHECK(12 % divisor_of(random, 12) == 0);
  }
  CHECK(seen == std::set<index_t>{1, 2, 3, 5, 7, 8, 12, 16, 17});
}

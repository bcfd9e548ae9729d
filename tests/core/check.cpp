#include <ogive/core/check.hpp>

#include <vector>

#include "tests/catch.hpp"

using namespace ogive;

TEST_CASE("views share an element, in whatever direction they run") {
  std::vector<float> memory(64);
  const auto forwards = [&](index_t from) { return view<float, 2>(memory.data() + from, {3, 4}, {5, 1}); };
  const auto backwards = [&](index_t from) { return view<float, 2>(memory.data() + from + 13, {3, 4}, {-5, -1}); };
  for (index_t apart = 0; apart < 16; ++apart) {
    // Rows of four, and a gap: elements, not spans, are what may not be shared.
    const bool meet = apart < 14 && apart % 5 != 4;
    CAPTURE(apart);
    CHECK(core::share(forwards(10), forwards(10 + apart)) == meet);
    CHECK(core::share(backwards(10), backwards(10 + apart)) == meet);
    CHECK(core::share(backwards(10), forwards(10 + apart)) == meet);
    CHECK(core::share(forwards(10), backwards(10 + apart)) == meet);
  }
}

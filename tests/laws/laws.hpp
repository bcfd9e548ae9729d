// Runs the laws of an operator as sections of a test case.
#pragma once

#include <ogive/testing/laws.hpp>

#include "tests/catch.hpp"

namespace ogive::tests {

inline void check_law(const testing::law& law, std::uint64_t seed) {
  DYNAMIC_SECTION(law.name) {
    testing::report found;
    law.check(seed, found);
    INFO(found.text());
    CHECK(found.ok());
  }
}

template <class Op>
void check_laws(std::uint64_t seed) {
  for (const testing::law& law : testing::laws<Op>()) check_law(law, seed);
}

}  // namespace ogive::tests

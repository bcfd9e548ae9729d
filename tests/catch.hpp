// Catch2, version 2 (Debian 12) or 3, under one name. Use WithinAbs / WithinRel from here, not Approx, and
// ContainsSubstring, not Contains: the spelling of the others, or what they mean, differs between the two.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <cstdint>
#include <cstdlib>
#include <string>

namespace ogive::tests {

using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;
#if __has_include(<catch2/catch_all.hpp>)
using Catch::Matchers::ContainsSubstring;
#else
inline auto ContainsSubstring(const std::string& text) { return Catch::Matchers::Contains(text); }
#endif

/// The seed of a random test: `fallback`, or the environment variable OGIVE_SEED (decimal or 0x…) to repeat a failure.
inline std::uint64_t seed_or(std::uint64_t fallback) {
  const char* text = std::getenv("OGIVE_SEED");
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 0);
}

}  // namespace ogive::tests

/// `OGIVE_SEED(seed, 7);` declares `const std::uint64_t seed` and has every failure of this scope print it.
#define OGIVE_SEED(name, fallback)                              \
  const std::uint64_t name = ::ogive::tests::seed_or(fallback); \
  INFO("seed " << name << " (repeat with OGIVE_SEED=" << name << ")")

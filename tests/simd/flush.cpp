#include <ogive/simd/flush.hpp>

#include <limits>

#include "../catch.hpp"

using ogive::flush_subnormals;

#if defined(__SSE2__) || defined(__aarch64__)

namespace {

/// The smallest normal number halved, by the machine and not by the compiler.
OGIVE_NOINLINE float halved() {
  volatile float x = std::numeric_limits<float>::min();
  return x * 0.5F;
}

/// The smallest subnormal number, brought back up.
OGIVE_NOINLINE float raised() {
  volatile float x = std::numeric_limits<float>::denorm_min();
  return x * 0x1p100F;
}

}  // namespace

TEST_CASE("subnormals are flushed for as long as the guard lives") {
  REQUIRE(halved() > 0.0F);
  {
    const flush_subnormals guard;
    CHECK(halved() == 0.0F);
    {
      const flush_subnormals inner;
      CHECK(halved() == 0.0F);
    }
    CHECK(halved() == 0.0F);
  }
  CHECK(halved() > 0.0F);
}

TEST_CASE("subnormal inputs count as zero") {
  CHECK(raised() > 0.0F);
  const flush_subnormals guard;
  CHECK(raised() == 0.0F);
}

#endif

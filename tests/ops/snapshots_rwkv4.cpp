#include <ogive/testing/samplers/rwkv4.hpp>

#include "tests/ops/snapshots.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("RWKV-4 keeps states on the way", "", rwkv4<float>, rwkv4<double>) {
  OGIVE_SEED(seed, 154);
  tests::check_kept_states<TestType>(seed, 12);
}

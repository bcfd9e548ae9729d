#include <ogive/testing/samplers/s4.hpp>
#include <ogive/testing/samplers/shared_state.hpp>

#include "tests/ops/own_memory.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("what S4 and the LRU write has memory of its own, and every extent is asked for", "", s4<float>,
                   lru<float>) {
  OGIVE_SEED(seed, 318);
  tests::check_doors<TestType>(seed);
}

#include <ogive/testing/samplers/causal_convolution.hpp>
#include <ogive/testing/samplers/s4.hpp>
#include <ogive/testing/samplers/s4d.hpp>

#include "tests/ops/own_memory.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE(
    "what systems of channels and convolutions write has memory of its own, and every extent is asked for", "",
    causal_convolution<float>, s4d<float>, s4<float>) {
  OGIVE_SEED(seed, 318);
  tests::check_own_memory<TestType>(seed);
}

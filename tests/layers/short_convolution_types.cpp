// The short convolution in 16-bit storage, with parameters of another type.
#include <ogive/testing/samplers/short_convolution.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("the short convolution keeps the laws in 16 bits", "", (short_convolution<bfloat16>),
                   (short_convolution<float16, float>)) {
  OGIVE_SEED(seed, 41);
  tests::check_laws<TestType>(seed);
}

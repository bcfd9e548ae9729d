#include <ogive/testing/samplers/gated_rfa.hpp>
#include <ogive/testing/samplers/noncausal_linear_attention.hpp>
#include <ogive/testing/samplers/ssd.hpp>

#include "tests/ops/qk_l2norm.hpp"

using namespace ogive;
using namespace ogive::tests;

TEMPLATE_TEST_CASE("q and k are normalised before a map, C and B before anything else", "", ssd<double>,
                   (linear_attention<double, maps::elu1>), (linear_attention<double, maps::taylor>),
                   (gated_rfa<double, maps::elu1>), (noncausal_linear_attention<double, maps::elu1>)) {
  OGIVE_SEED(seed, 222);
  check_l2norm<TestType>(seed);
}

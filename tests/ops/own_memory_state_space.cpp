#include <ogive/testing/samplers/causal_convolution.hpp>
#include <ogive/testing/samplers/s4d.hpp>
#include <ogive/testing/samplers/shared_state.hpp>

#include "tests/ops/own_memory.hpp"

using namespace ogive;

// Operators that are included together have one engine each.
static_assert(requires(const s5<float>& op, const output_of<s5<float>>& y) { check(op, {}, y); });
static_assert(requires(const s4d<float>& op, const output_of<s4d<float>>& y) { check(op, {}, y); });

TEMPLATE_TEST_CASE("what a time-invariant system writes has memory of its own, and every extent is asked for", "",
                   s4d<float>, s5<float>, lti<float>, causal_convolution<float>) {
  OGIVE_SEED(seed, 311);
  tests::check_doors<TestType>(seed);
}

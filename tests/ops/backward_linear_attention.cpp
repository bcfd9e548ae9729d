#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/gated_rfa.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("gradients of linear attention", "", maps::identity, maps::elu1, maps::taylor, maps::cosformer) {
  OGIVE_SEED(seed, 205);
  for (const testing::law& law : testing::gradient_laws<linear_attention<double, TestType>>()) {
    tests::check_law(law, seed);
  }
}

TEMPLATE_TEST_CASE("gradients of linear attention in float", "", maps::identity, maps::elu1) {
  OGIVE_SEED(seed, 206);
  tests::check_law(
      testing::law_of_rounded_gradients<linear_attention<float, TestType>, linear_attention<double, TestType>>(), seed);
}

TEMPLATE_TEST_CASE("gradients of gated RFA", "", maps::random_features<double>, maps::elu1) {
  OGIVE_SEED(seed, 207);
  for (const testing::law& law : testing::gradient_laws<gated_rfa<double, TestType>>()) tests::check_law(law, seed);
}

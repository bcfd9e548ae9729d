// Gradients of bfloat16 are those of double, rounded.
#pragma once

#include <ogive/testing/gradient_laws.hpp>

#include "tests/laws/laws.hpp"

namespace ogive::tests {

template <class Narrow, class Wide>
void check_rounded_gradients() {
  OGIVE_SEED(seed, 212);
  check_law(testing::law_of_rounded_gradients<Narrow, Wide>(), seed);
}

}  // namespace ogive::tests

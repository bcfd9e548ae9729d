// The body of both units; UNIT(name) gives the functions their names.
#include "units.hpp"

#include <ogive/core/tensor.hpp>

#include <vector>

namespace two_isas {

void UNIT(fails)() {
  const std::vector<float> five(5);
  static_cast<void>(ogive::view<const float, 2>(five, {2, 3}));
}

bool UNIT(catches)(run other) {
  try {
    other();
  } catch (const ogive::shape_error&) {
    return true;
  }
  return false;
}

}  // namespace two_isas

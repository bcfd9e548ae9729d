#include "tests/kernels/kernels.hpp"

OGIVE_BONUS_KERNELS(, float)
OGIVE_BONUS_KERNELS(, double)

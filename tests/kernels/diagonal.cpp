#include "tests/kernels/kernels.hpp"

OGIVE_DIAGONAL_KERNELS(, float)
OGIVE_DIAGONAL_KERNELS(, double)

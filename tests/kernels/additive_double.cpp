#include "tests/kernels/kernels.hpp"

OGIVE_MATRIX_KERNELS(, additive, double)

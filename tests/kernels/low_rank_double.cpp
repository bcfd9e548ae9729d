#include "tests/kernels/kernels.hpp"

OGIVE_MATRIX_KERNELS(, low_rank, double)

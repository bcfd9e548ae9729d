#include "tests/kernels/kernels.hpp"

OGIVE_BONUS_KERNELS(, float)
OGIVE_BONUS_KERNELS(, double)
OGIVE_PRODUCT_KERNELS(, float)
OGIVE_PRODUCT_KERNELS(, double)

#include "tests/kernels/kernels.hpp"

OGIVE_PRODUCT_KERNELS(, float)
OGIVE_PRODUCT_KERNELS(, double)
OGIVE_SOFTMAX_KERNELS(, float)
OGIVE_SOFTMAX_KERNELS(, double)

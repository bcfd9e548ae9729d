#define UNIT(name) wide_##name
#include "unit.hpp"

#define UNIT(name) narrow_##name
#include "unit.hpp"

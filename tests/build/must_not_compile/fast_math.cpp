// error: -ffast-math
#if defined(OGIVE_BREAK)
#define __FAST_MATH__ 1
#endif
#include <ogive/config.hpp>

// error: ogive needs C\+\+20
#if defined(OGIVE_BREAK)
#undef __cplusplus
#define __cplusplus 201703L
#endif
#include <ogive/config.hpp>

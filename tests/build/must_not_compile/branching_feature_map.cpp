// error: a comparison of simd::batch has one truth value per lane and is no condition: write simd::select
#include <ogive/maps/feature_map.hpp>

struct positive_squared {
  template <class X>
  X operator()(X x) const {
#if defined(OGIVE_BREAK)
    return x < 0 ? X(0) : x * x;
#else
    return ogive::simd::select(x < X(0), X(0), x * x);
#endif
  }
};

static_assert(ogive::feature_map<positive_squared>);

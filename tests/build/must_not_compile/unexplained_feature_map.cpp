// error: a feature map is elementwise, template <class X> X operator\(\)\(X x\) const, or it maps rows
#include <ogive/maps/feature_map.hpp>

struct cube {
#if !defined(OGIVE_BREAK)
  template <class X>
  X operator()(X x) const {
    return x * x * x;
  }
#endif
};

static_assert(ogive::explain_feature_map<cube>());

// error: map_with_features_can_be_called_with_rows_x_y_and_a_map_site
#include <ogive/maps/feature_map.hpp>

struct double_features {
  ogive::index_t features(ogive::index_t d) const { return 2 * d; }
#if !defined(OGIVE_BREAK)
  template <class Acc>
  void operator()(ogive::view<const Acc, 2>, ogive::view<Acc, 2>, const ogive::map_site&) const {}
#endif
};

template <ogive::feature_map Map>
struct user_of_maps {
  Map map;
};

user_of_maps<double_features> user;

// A feature map beside its definition.
#pragma once

#include <ogive/maps/elementwise.hpp>
#include <ogive/maps/learned.hpp>
#include <ogive/reference/feature_maps.hpp>

#include <stdexcept>
#include <string>

namespace ogive::golden {

/// `define<Acc>(rows, site)` is the map of `rows` [n, d] by its formula, in Acc.
template <feature_map Map, class Definition>
struct defined_map {
  using map_type = Map;

  Map map;
  Definition definition;

  defined_map(const Map& a_map, const Definition& its_definition) : map(a_map), definition(its_definition) {}

  template <class Acc, class T>
  tensor<Acc, 2> define(const view<T, 2>& rows, const map_site& first = {}) const {
    return definition.template operator()<Acc>(rows, first);
  }
  /// Of every sequence and head of x [B, L, H, d], whose first token is the first of a sequence.
  template <class Acc, class T>
  tensor<Acc, 4> define(const view<T, 4>& x, side which) const {
    if (x.empty()) return tensor<Acc, 4>({x.extent(0), x.extent(1), x.extent(2), features(map, x.extent(3))});
    return reference::for_heads<Acc>(x, [&](const auto& rows, index_t b, index_t h) {
      return define<Acc>(rows, map_site{0, which, b, h});
    });
  }
};

inline const defined_map identity_map(maps::identity{}, []<class Acc>(const auto& rows, const map_site&) {
  return reference::identity<Acc>(rows);
});
inline const defined_map elu1_map(maps::elu1{}, []<class Acc>(const auto& rows, const map_site&) {
  return reference::elu1<Acc>(rows);
});
inline const defined_map relu_map(maps::relu{}, []<class Acc>(const auto& rows, const map_site&) {
  return reference::relu<Acc>(rows);
});
inline const defined_map squared_relu_map(maps::squared_relu{}, []<class Acc>(const auto& rows, const map_site&) {
  return reference::squared_relu<Acc>(rows);
});
inline const defined_map exponential_map(maps::exponential{}, []<class Acc>(const auto& rows, const map_site&) {
  return reference::exponential<Acc>(rows);
});
inline const defined_map softmax_map(maps::softmax{}, []<class Acc>(const auto& rows, const map_site&) {
  return reference::softmax<Acc>(rows);
});

/// Calls use(map) with the map that files call by this name.
template <class Use>
void with_map(const std::string& name, const Use& use) {
  if (name == "identity") return use(identity_map);
  if (name == "elu1") return use(elu1_map);
  if (name == "relu") return use(relu_map);
  if (name == "sqrelu") return use(squared_relu_map);
  if (name == "exp") return use(exponential_map);
  if (name == "softmax") return use(softmax_map);
  throw std::runtime_error("the feature map '" + name + "' is not known");
}

}  // namespace ogive::golden

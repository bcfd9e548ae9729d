// Linear attention on a file, causal or not: what the families of files say of it, and its arguments.
#pragma once

#include <ogive/ops/linear_attention.hpp>
#include <ogive/ops/noncausal_linear_attention.hpp>
#include <ogive/reference/linear_attention.hpp>
#include <ogive/testing/samplers/linear_attention.hpp>

#include "tests/golden/tool/feature_maps.hpp"
#include "tests/golden/tool/sequence_forms.hpp"

namespace ogive::golden {

/// In which order a file has the axes of q, k and v.
enum class axes {
  blhd,  ///< sequence, token, head, channel: ogive's own
  bhld,  ///< sequence, head, token, channel
  lbhd,  ///< token, sequence, head, channel
};

template <class T>
view<T, 4> from_file(const view<T, 4>& x, axes order) {
  if (order == axes::bhld) return x.permute({0, 2, 1, 3});
  if (order == axes::lbhd) return x.permute({1, 0, 2, 3});
  return x;  // both permutations are their own inverse: to_file is the same
}

/// The rules of a family of files.
struct attention_rules {
  axes order = axes::blhd;
  bool normalise = true;
  std::optional<double> scale{};
  double eps = 0;
  eps_placement eps_at = eps_placement::sum;
};

/// Kind is linear_attention or noncausal_linear_attention.
template <template <class, class> class Kind, class T, class Map>
struct attention_arguments {
  using accum = accum_t<T>;
  using op_type = Kind<T, typename Map::map_type>;

  Map map;
  axes order;
  tensor<T, 4> q, k, v;
  tensor<accum, 4> S;
  tensor<accum, 3> z;
  tensor<bool, 2> mask;
  std::vector<std::int64_t> lengths;
  op_type op;
  linear_attention_state<accum> st;
  tensor<T, 4> d_o;
  tensor<accum, 4> d_S;
  tensor<accum, 3> d_z;
  testing::cotangents_of<op_type> cotangents;
  index_t chunk = 0;

  attention_arguments(const golden_case& file, const attention_rules& rules, const Map& with)
      : map(with),
        order(rules.order),
        q(file.get<T, 4>("q")),
        k(file.get<T, 4>("k")),
        v(file.get<T, 4>("v")),
        mask(file.get_if<bool, 2>("key_mask")),
        lengths(file.integers("key_lengths")),
        d_o(file.get_if<T, 4>("grad_out")),
        d_S(file.get_if<accum, 4>("grad_final_state")) {
    op.q = from_file(std::as_const(q).all(), order);
    op.k = from_file(std::as_const(k).all(), order);
    op.v = from_file(std::as_const(v).all(), order);
    op.map = map.map;
    op.normalise = rules.normalise;
    if (rules.scale) op.scale = static_cast<accum>(*rules.scale);
    op.eps = static_cast<accum>(rules.eps);
    op.eps_at = rules.eps_at;
    op.key_mask = std::as_const(mask).all();
    if (!lengths.empty()) op.lengths = lengths;
    if (file.has("initial_state")) begin_from(file);
    if (file.has("grad_final_z")) d_z = file.without_axis<accum, 3>("grad_final_z", 1);
    cotangents.o = from_file(std::as_const(d_o).all(), order);
    cotangents.st.final = std::as_const(d_S).all();
    cotangents.st.z_final = std::as_const(d_z).all();
  }

  template <class O>
  named_views outputs(const view<O, 4>& o, const linear_attention_state<accum>& left) const {
    named_views all;
    add_output(all, "out", from_file(o, order));
    add_state(all, "final_state", left.final);
    add_state(all, "kv", left.final);
    add_state(all, "final_z", left.z_final);
    return all;
  }
  named_views gradients(const testing::gradients_found<op_type>& found) const {
    named_views all;
    add_output(all, "d_q", from_file(found.d.q, order));
    add_output(all, "d_k", from_file(found.d.k, order));
    add_output(all, "d_v", from_file(found.d.v, order));
    add_state(all, "d_initial_state", found.st.initial);
    add_state(all, "d_initial_z", found.st.z_initial);
    return all;
  }
  template <class Acc, class State>
  void define(const op_type& o, const State& from, const view<Acc, 4>& y) const {
    with_features<Acc>(o, [&](const auto& wide) { reference::evaluate<Acc>(wide, from, y); });
  }
  template <class Acc, class State>
  void define_masked(const op_type& o, const State& from, const view<Acc, 4>& y) const {
    with_features<Acc>(o, [&](const auto& wide) { reference::evaluate_masked<Acc>(wide, from, y); });
  }

 private:
  void begin_from(const golden_case& file) {
    S = file.get<accum, 4>("initial_state");
    st.initial = std::as_const(S).all();
    if (!op.normalise) return;
    z = file.has("initial_z") ? file.without_axis<accum, 3>("initial_z", 1)
                              : tensor<accum, 3>({S.extent(0), S.extent(1), S.extent(2)});
    st.z_initial = std::as_const(z).all();
  }

  /// The operator in Acc, with features for q and k.
  template <class Acc, class Use>
  void with_features(const op_type& o, const Use& use) const {
    const tensor<Acc, 4> fq = map.template define<Acc>(o.q, side::query);
    const tensor<Acc, 4> fk = map.template define<Acc>(o.k, side::key);
    testing::memory room;
    Kind<Acc, maps::identity> wide;
    wide.q = fq;
    wide.k = fk;
    wide.v = room.copy<Acc>(o.v);
    wide.normalise = o.normalise;
    if (o.scale) wide.scale = static_cast<Acc>(*o.scale);
    wide.eps = static_cast<Acc>(o.eps);
    wide.eps_at = o.eps_at;
    wide.key_mask = o.key_mask;
    wide.lengths = o.lengths;
    use(wide);
  }
};

/// Everything there is to run of one kind with one map. 16-bit tensors meet their map as float rows, so one map that is
/// not the identity stands for all.
template <template <class, class> class Kind, class Map>
void run_attention(trial& t, const attention_rules& rules, const Map& map) {
  const auto make = [&]<class T>(T) { return attention_arguments<Kind, T, Map>(t.file, rules, map); };
  using given = typename Map::map_type;
  if constexpr (std::is_same_v<given, maps::identity> || std::is_same_v<given, maps::elu1>) {
    run_all(t, make);
  } else {
    run_wide(t, make);
  }
}

/// The same with the map of this name; each defined in the file of its kind.
void run_causal(trial& t, const attention_rules& rules, const std::string& map);
void run_noncausal(trial& t, const attention_rules& rules, const std::string& map);

}  // namespace ogive::golden

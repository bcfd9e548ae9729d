// Attention through FAVOR+ features as performer-pytorch has it: maximum of w·x per query, over all keys of a head.
#include <ogive/maps/random_features.hpp>
#include <ogive/testing/samplers/noncausal_linear_attention.hpp>

#include "tests/golden/tool/attention.hpp"

namespace ogive::golden {

namespace {

constexpr double feature_eps = 1e-4;

/// For tensors stored as T; heads first. The table of key stabilisers belongs to the arguments.
template <template <class, class> class Kind, class T>
struct favor_arguments {
  using accum = accum_t<T>;
  using map_type = maps::favor<accum>;
  using op_type = Kind<T, map_type>;

  struct definition {
    view<const accum, 2> W;
    template <class Acc>
    tensor<Acc, 2> operator()(const auto& rows, const map_site& first) const {
      const auto stabilise = first.which == side::query ? reference::stabiliser::row : reference::stabiliser::all_rows;
      return reference::favor<Acc>(rows, W, stabilise, feature_eps);
    }
  };

  tensor<accum, 2> W, stabilisers;
  attention_arguments<Kind, T, defined_map<map_type, definition>> inner;
  op_type op;
  linear_attention_state<accum> st{};
  testing::cotangents_of<op_type> cotangents;
  index_t chunk = 0;

  favor_arguments(const golden_case& file, const attention_rules& rules)
      : W(file.get<accum, 2>("proj")),
        inner(file, rules, {map_type{.W = W, .eps = feature_eps}, definition{std::as_const(W).all()}}),
        op(inner.op),
        cotangents(inner.cotangents) {
    stabilisers = tensor<accum, 2>({op.k.extent(0), op.k.extent(2)});
    maps::stabilisers(op.map, op.k, stabilisers.all());
    op.map.key_stabiliser = std::as_const(stabilisers).all();
  }

  template <class O>
  named_views outputs(const view<O, 4>& o, const linear_attention_state<accum>& left) const {
    return inner.outputs(o, left);
  }
  named_views gradients(const testing::gradients_found<op_type>& found) const { return inner.gradients(found); }
  template <class Acc, class State>
  void define(const op_type& o, const State& from, const view<Acc, 4>& y) const {
    inner.template define<Acc>(o, from, y);
  }
  template <class Acc, class State>
  void define_masked(const op_type& o, const State& from, const view<Acc, 4>& y) const {
    inner.template define_masked<Acc>(o, from, y);
  }
};

void run(trial& t) {
  attention_rules rules{.order = axes::bhld, .eps_at = eps_placement::none};
  if (!t.file.flag("causal", false)) {
    return run_wide(t, [&]<class T>(T) { return favor_arguments<noncausal_linear_attention, T>(t.file, rules); });
  }
  rules.eps = 1e-6;
  rules.eps_at = eps_placement::each_key;
  run_wide(t, [&]<class T>(T) { return favor_arguments<linear_attention, T>(t.file, rules); });
}

const registration here("favor_attention", run);

}  // namespace

}  // namespace ogive::golden

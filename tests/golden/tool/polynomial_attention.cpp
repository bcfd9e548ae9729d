// Based and ReBased: causal linear attention with features whose products are polynomials of s q·k.
#include <ogive/maps/polynomial.hpp>

#include "tests/golden/tool/attention.hpp"

namespace ogive::golden {

namespace {

/// Heads first, ε = 1e-6 added to the sum of scores; the scale s, K^-½ by default, is the map's.
attention_rules rules_of(const golden_case& file) {
  return {.order = axes::bhld, .normalise = file.flag("use_norm", true), .scale = 1, .eps = 1e-6};
}

/// Rows times √(s√d): definitions have s = d^-½.
template <class Acc, class T>
tensor<Acc, 2> with_scale(const view<T, 2>& rows, const std::optional<double>& scale) {
  const double root = std::sqrt(static_cast<double>(rows.extent(1)));
  return reference::scaled<Acc>(rows, static_cast<Acc>(std::sqrt(scale.value_or(1 / root) * root)));
}

/// 1 + s + s²/2
void run_based(trial& t) {
  const auto scale = t.file.number("scale");
  run_attention<linear_attention>(t, rules_of(t.file),
                                  defined_map(maps::taylor{scale}, [=]<class Acc>(const auto& rows, const map_site&) {
                                    return reference::taylor<Acc>(with_scale<Acc>(rows, scale).all());
                                  }));
}
/// s², rows not normalised
void run_rebased(trial& t) {
  const auto scale = t.file.number("scale");
  run_attention<linear_attention>(t, rules_of(t.file),
                                  defined_map(maps::rebased<float>{.normalise = false, .scale = scale},
                                              [=]<class Acc>(const auto& rows, const map_site&) {
                                                return reference::rebased<Acc>(with_scale<Acc>(rows, scale).all(),
                                                                               false);
                                              }));
}

const registration taylor("based", run_based);
const registration square("rebased", run_rebased);

}  // namespace

}  // namespace ogive::golden

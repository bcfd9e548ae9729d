// Operators that decay and add: retention, Lightning attention, simple GLA, GLA, RWKV-5 and RWKV-6.
#include <ogive/testing/samplers/gated.hpp>

#include "tests/golden/tool/matrix_state.hpp"

namespace ogive::golden {

namespace {

/// log γ_h of every head, by a formula of h and H.
template <class Op, class Formula>
void fill_log_gamma(Op& op, file_views& from, const Formula& log_gamma) {
  using accum = typename Op::accum;
  const index_t H = op.v.extent(2);
  tensor<accum, 1> g({H});
  for (index_t h = 0; h < H; ++h) g(h) = static_cast<accum>(log_gamma(static_cast<double>(h), H));
  op.log_gamma = from.keep(std::move(g));
}

/// γ_h = 1 − 2^(−5−h).
void run_retention(trial& t) {
  run_family_wide<retention>(t, family_order::heads_first, {"q", "k", "v"}, [](auto& op, auto& from) {
    fill_log_gamma(op, from, [](double h, index_t) { return std::log1p(-std::exp2(-5 - h)); });
  });
}
void run_retention_state(trial& t) {
  run_family_wide<retention>(t, family_order::tokens_first, {"q", "k", "v", "log_gamma"});
}
/// log γ_h = −(8/H)(1 − layer/layers) h.
void run_lightning(trial& t) {
  const double layer = t.file.number("layer_idx").value_or(0), layers = t.file.number("num_layers").value_or(1);
  run_family_wide<lightning_attention>(t, family_order::tokens_first, {"q", "k", "v"}, [&](auto& op, auto& from) {
    fill_log_gamma(op, from,
                   [&](double h, index_t H) { return -8.0 / static_cast<double>(H) * (1 - layer / layers) * h; });
  });
}

/// s = K^-½ unless given.
struct root_scale {
  template <class Op>
  void operator()(Op& op, const file_views& from) const {
    using accum = typename Op::accum;
    if (!from.file.number("scale")) op.scale = accum(1) / std::sqrt(static_cast<accum>(op.r.extent(3)));
  }
};
void run_rwkv5(trial& t) {
  run_family_wide<rwkv5>(t, family_order::heads_first, {"r", "k", "v", "w", "u"}, root_scale());
}
/// r is q here.
void run_rwkv6(trial& t) {
  run_family_wide<rwkv6>(t, family_order::heads_first, {"q", "k", "v", "w", "u"}, root_scale());
}

}  // namespace

void run_simple_gla(trial& t) { run_family_wide<simple_gla>(t, family_order::tokens_first, {"q", "k", "v", "g"}); }
void run_gla(trial& t) {
  run_family<gla>(t, family_order::tokens_first, {"q", "k", "v", t.file.has("gk") ? "gk" : "g"});
}

namespace {

const registration fixed("retention", run_retention);
const registration fixed_with_state("retention_state", run_retention_state);
const registration lightning("lightning", run_lightning);
const registration per_head("simple_gla", run_simple_gla);
const registration per_key("gla", run_gla);
const registration eagle("rwkv5", run_rwkv5);
const registration finch("rwkv6", run_rwkv6);

}  // namespace

}  // namespace ogive::golden

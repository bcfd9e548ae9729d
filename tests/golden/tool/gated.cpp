// Operators that decay and add: retention, Lightning attention, simple GLA, GLA, RWKV-5 and RWKV-6.
#include <ogive/testing/samplers/gated.hpp>

#include "tests/golden/tool/matrix_state.hpp"

namespace ogive::golden {

namespace {

/// log γ_h of every head, by a formula of h and H.
template <class Op, class From, class Formula>
void fill_retention(Op& op, From& from, const Formula& log_gamma) {
  op.q = from.rows("q");
  const index_t H = op.v.extent(2);
  tensor<typename From::accum, 1> g({H});
  for (index_t h = 0; h < H; ++h) g(h) = static_cast<typename From::accum>(log_gamma(static_cast<double>(h), H));
  op.log_gamma = from.keep(std::move(g));
}

/// γ_h = 1 − 2^(−5−h), heads first.
void run_retention(trial& t) {
  run_family_wide<retention>(t, family_order::heads_first, [](auto& op, auto& from) {
    fill_retention(op, from, [](double h, index_t) { return std::log1p(-std::exp2(-5 - h)); });
  });
}
void run_retention_state(trial& t) {
  run_family_wide<retention>(t, family_order::tokens_first, [](auto& op, auto& from) {
    using accum = typename std::remove_cvref_t<decltype(op)>::accum;
    op.q = from.rows("q");
    op.log_gamma = from.template plain<accum, 1>("log_gamma");
  });
}
/// log γ_h = −(8/H)(1 − layer/layers) h.
void run_lightning(trial& t) {
  const double layer = t.file.number("layer_idx").value_or(0), layers = t.file.number("num_layers").value_or(1);
  run_family_wide<lightning_attention>(t, family_order::tokens_first, [&](auto& op, auto& from) {
    fill_retention(op, from,
                   [&](double h, index_t H) { return -8.0 / static_cast<double>(H) * (1 - layer / layers) * h; });
  });
}

/// r or q, k, v and w with heads first; s = K^-½ unless given.
void run_rwkv5(trial& t) {
  run_family_wide<rwkv5>(t, family_order::heads_first, [](auto& op, auto& from) {
    using accum = typename std::remove_cvref_t<decltype(op)>::accum;
    op.r = from.rows("r");
    op.w = from.template plain<accum, 2>("w");
    op.u = from.template plain<accum, 2>("u");
    if (!from.file.number("scale")) op.scale = accum(1) / std::sqrt(static_cast<accum>(op.r.extent(3)));
  });
}
void run_rwkv6(trial& t) {
  run_family_wide<rwkv6>(t, family_order::heads_first, [](auto& op, auto& from) {
    using accum = typename std::remove_cvref_t<decltype(op)>::accum;
    op.r = from.rows("q");
    op.w = from.gates("w");
    op.u = from.template plain<accum, 2>("u");
    if (!from.file.number("scale")) op.scale = accum(1) / std::sqrt(static_cast<accum>(op.r.extent(3)));
  });
}

}  // namespace

void run_simple_gla(trial& t) {
  run_family_wide<simple_gla>(t, family_order::tokens_first, [](auto& op, auto& from) {
    op.q = from.rows("q");
    op.g = from.head_gates("g");
  });
}
void run_gla(trial& t) {
  run_family<gla>(t, family_order::tokens_first, [](auto& op, auto& from) {
    op.q = from.rows("q");
    op.g = from.gates(from.file.has("gk") ? "gk" : "g");
  });
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

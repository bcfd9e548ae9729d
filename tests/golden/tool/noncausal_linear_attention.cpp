// Linear attention without time: fast-transformers' quotient, performer's, and none.
#include <ogive/testing/samplers/noncausal_linear_attention.hpp>

#include "tests/golden/tool/attention.hpp"

namespace ogive::golden {

void run_noncausal(trial& t, const attention_rules& rules, const std::string& name) {
  with_map(name, [&](const auto& map) { run_attention<noncausal_linear_attention>(t, rules, map); });
}

namespace {

void run_fast_transformers(trial& t) {
  run_noncausal(t, {.eps = t.file.number("eps").value_or(1e-6)}, t.file.text("feature_map", "elu1"));
}

/// o = s φ(q)ᵀ Σ φ(k) vᵀ, the sum an output of its own.
void run_unnormalised(trial& t) {
  run_noncausal(t, {.normalise = false, .scale = t.file.number("scale").value_or(1)},
                t.file.text("feature_map", "identity"));
}

/// performer-pytorch: features given and positive, no ε, heads first.
void run_performer(trial& t) { run_noncausal(t, {.order = axes::bhld, .eps_at = eps_placement::none}, "identity"); }

const registration whole("linattn_noncausal", run_fast_transformers);
const registration unnormalised("linattn_noncausal_unnorm", run_unnormalised);
const registration performer("linattn_noncausal_performer", run_performer);

}  // namespace

}  // namespace ogive::golden

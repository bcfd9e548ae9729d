// The delta rule, gated per head and gated per key channel; and packed sequences of these and of gated operators.
#include <ogive/testing/samplers/delta_rules.hpp>

#include "tests/golden/tool/matrix_state.hpp"

namespace ogive::golden {

void run_gated_delta_rule(trial& t) {
  run_family_wide<gated_delta_rule>(t, family_order::tokens_first, {"q", "k", "v", "g", "beta"});
}
void run_kda(trial& t) { run_family<kda>(t, family_order::tokens_first, {"q", "k", "v", "g", "beta"}); }

namespace {

/// β one for a token, or one for each value channel.
void run_delta_rule(trial& t) {
  const bool per_value = t.file.shape("beta").size() == 4;
  run_family_wide<delta_rule>(t, family_order::heads_first,
                              {"q", "k", "v", per_value ? "" : "beta", per_value ? "beta" : ""});
}

void run_packed(trial& t) {
  const std::string base = t.file.text("base", "");
  if (base == "simple_gla") return run_simple_gla(t);
  if (base == "gla") return run_gla(t);
  if (base == "gated_delta_rule") return run_gated_delta_rule(t);
  if (base == "kda") return run_kda(t);
  throw std::runtime_error("the operator '" + base + "' of packed sequences is not known");
}

const registration plain("delta_rule", run_delta_rule);
const registration per_head("gated_delta_rule", run_gated_delta_rule);
const registration per_key("kda", run_kda);
const registration packed("varlen", run_packed);

}  // namespace

}  // namespace ogive::golden

// Causal linear attention, in the conventions of three libraries.
#include "tests/golden/tool/attention.hpp"

namespace ogive::golden {

namespace {

/// flash-linear-attention: features given, o = s q·S / (s q·z + ε), s = K^-½ by default.
void run_fla(trial& t) {
  const attention_rules rules{.normalise = t.file.flag("normalize", false),
                              .scale = t.file.number("scale"),
                              .eps = t.file.number("eps").value_or(1e-10),
                              .eps_at = eps_placement::scaled_sum};
  run_attention<linear_attention>(t, rules, identity_map);
}

/// performer-pytorch: features given, o = q·S / (q·(z + ε)), heads first.
void run_performer(trial& t) {
  const attention_rules rules{
      .order = axes::bhld, .eps = t.file.number("eps").value_or(1e-6), .eps_at = eps_placement::each_key};
  run_attention<linear_attention>(t, rules, identity_map);
}

const registration fla("linattn_causal", run_fla);
const registration performer("linattn_causal_performer", run_performer);

}  // namespace

}  // namespace ogive::golden

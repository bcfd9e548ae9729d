// The delta rules: what a key reads is corrected before it is written. Per token and head 6·K·V flops; decays, norms
// and the solve within a chunk are not counted.
#include <ogive/ops/delta_rule.hpp>
#include <ogive/ops/gated_delta_rule.hpp>
#include <ogive/ops/kda.hpp>

#include <bench/family.hpp>

namespace {

using namespace ogive;
using namespace ogive::bench;

struct delta_rule_problem : family_problem {
  using family_problem::family_problem;
  delta_rule<float> op() const { return {.q = q_, .k = k_, .v = v_, .beta = beta_, .qk_l2norm = 1e-6F}; }
  gradient<delta_rule<float>> gradients() { return {like(q_), like(k_), like(v_), like(beta_)}; }
};
struct gated_delta_rule_problem : family_problem {
  using family_problem::family_problem;
  gated_delta_rule<float> op() const {
    return {.q = q_, .k = k_, .v = v_, .g = head_g_, .beta = beta_, .qk_l2norm = 1e-6F};
  }
  gradient<gated_delta_rule<float>> gradients() { return {like(q_), like(k_), like(v_), like(head_g_), like(beta_)}; }
};
struct kda_problem : family_problem {
  using family_problem::family_problem;
  kda<float> op() const { return {.q = q_, .k = k_, .v = v_, .g = g_, .beta = beta_, .qk_l2norm = 1e-6F}; }
  gradient<kda<float>> gradients() { return {like(q_), like(k_), like(v_), like(g_), like(beta_)}; }
};

const bool registered = [] {
  const extents n{.heads = 16, .key_dim = 128, .value_dim = 128, .length = 2048, .multiply_adds = 3};
  add_operator<delta_rule_problem>("delta_rule", n);
  add_operator<gated_delta_rule_problem>("gated_delta_rule", n);
  add_operator<kda_problem>("kda", n);
  return true;
}();

}  // namespace

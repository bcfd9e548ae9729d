// Operators whose writes only add. Per token and head 4·K·V flops; decays are not counted.
#include <ogive/maps/elementwise.hpp>
#include <ogive/ops/gated_rfa.hpp>
#include <ogive/ops/gla.hpp>
#include <ogive/ops/hgrn2.hpp>
#include <ogive/ops/retention.hpp>
#include <ogive/ops/rwkv5.hpp>
#include <ogive/ops/rwkv6.hpp>
#include <ogive/ops/simple_gla.hpp>

#include <bench/family.hpp>

namespace {

using namespace ogive;
using namespace ogive::bench;

/// RetNet's and Lightning attention's: one operator, whose decays cost the same whatever they are.
struct retention_problem : family_problem {
  using family_problem::family_problem;
  retention<float> op() const { return {.q = q_, .k = k_, .v = v_, .log_gamma = log_gamma_}; }
  gradient<retention<float>> gradients() { return {like(q_), like(k_), like(v_), like(log_gamma_)}; }
};
struct simple_gla_problem : family_problem {
  using family_problem::family_problem;
  simple_gla<float> op() const { return {.q = q_, .k = k_, .v = v_, .g = head_g_}; }
  gradient<simple_gla<float>> gradients() { return {like(q_), like(k_), like(v_), like(head_g_)}; }
};
struct gated_rfa_problem : family_problem {
  using family_problem::family_problem;
  gated_rfa<float, maps::elu1> op() const { return {.q = q_, .k = k_, .v = v_, .g = head_g_}; }
  gradient<gated_rfa<float, maps::elu1>> gradients() { return {like(q_), like(k_), like(v_), like(head_g_)}; }
};
struct gla_problem : family_problem {
  using family_problem::family_problem;
  gla<float> op() const { return {.q = q_, .k = k_, .v = v_, .g = g_}; }
  gradient<gla<float>> gradients() { return {like(q_), like(k_), like(v_), like(g_)}; }
};
struct hgrn2_problem : family_problem {
  using family_problem::family_problem;
  hgrn2<float> op() const { return {.q = q_, .v = v_, .g = g_}; }
  gradient<hgrn2<float>> gradients() { return {like(q_), like(v_), like(g_)}; }
};
struct rwkv5_problem : family_problem {
  using family_problem::family_problem;
  rwkv5<float> op() const { return {.r = q_, .k = k_, .v = v_, .w = w_, .u = u_}; }
  gradient<rwkv5<float>> gradients() { return {like(q_), like(k_), like(v_), like(w_), like(u_)}; }
};
struct rwkv6_problem : family_problem {
  using family_problem::family_problem;
  rwkv6<float> op() const { return {.r = q_, .k = k_, .v = v_, .w = g_, .u = u_}; }
  gradient<rwkv6<float>> gradients() { return {like(q_), like(k_), like(v_), like(g_), like(u_)}; }
};

const bool registered = [] {
  const extents n{.heads = 32, .key_dim = 64, .value_dim = 64, .length = 2048, .multiply_adds = 2};
  add_operator<retention_problem>("retention", n);
  add_operator<simple_gla_problem>("simple_gla", n);
  add_operator<gated_rfa_problem>("gated_rfa", n);
  add_operator<gla_problem>("gla", n);
  add_operator<hgrn2_problem>("hgrn2", n);
  add_operator<rwkv5_problem>("rwkv5", n);
  add_operator<rwkv6_problem>("rwkv6", n);
  return true;
}();

}  // namespace

// Operators that form a removal beside the write. Per token and head 8·K·V flops; decays and the solve within a chunk
// are not counted.
#include <ogive/ops/dplr.hpp>
#include <ogive/ops/iplr.hpp>
#include <ogive/ops/rwkv7.hpp>

#include <bench/family.hpp>

namespace {

using namespace ogive;
using namespace ogive::bench;

struct rwkv7_problem : family_problem {
  using family_problem::family_problem;
  rwkv7<float> op() const { return {.r = q_, .w = g_, .k = k_, .v = v_, .kk = a_, .a = rate_}; }
  gradient<rwkv7<float>> gradients() { return {like(q_), like(g_), like(k_), like(v_), like(a_), like(rate_)}; }
};
struct dplr_problem : family_problem {
  using family_problem::family_problem;
  dplr<float> op() const { return {.q = q_, .k = k_, .v = v_, .a = a_, .b = b_, .g = g_}; }
  gradient<dplr<float>> gradients() { return {like(q_), like(k_), like(v_), like(a_), like(b_), like(g_)}; }
};
struct iplr_problem : family_problem {
  using family_problem::family_problem;
  iplr<float> op() const { return {.q = q_, .k = k_, .v = v_, .a = a_, .b = b_}; }
  gradient<iplr<float>> gradients() { return {like(q_), like(k_), like(v_), like(a_), like(b_)}; }
};

const bool registered = [] {
  const extents n{.heads = 32, .key_dim = 64, .value_dim = 64, .length = 2048, .multiply_adds = 4};
  add_operator<rwkv7_problem>("rwkv7", n);
  add_operator<dplr_problem>("dplr", n);
  add_operator<iplr_problem>("iplr", n);
  return true;
}();

}  // namespace

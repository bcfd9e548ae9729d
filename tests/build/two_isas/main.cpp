// One unit for SSE2 and one for AVX2 in one program: each runs its own kernels, takes over the other's memory and
// states, and catches the other's errors.
#include "units.hpp"

#include <ogive/testing/compare.hpp>

#include <cstdio>

using namespace two_isas;
using ogive::index_t;
using ogive::tensor;

namespace {

constexpr index_t length = 37, heads = 3, value_dim = 21, key_dim = 18;

// All terms are positive, so that rounding stays relative to each result.
arguments draw(std::uint64_t seed) {
  arguments in{.x = tensor<float, 4>({1, length, heads, value_dim}),
               .B = tensor<float, 4>({1, length, 1, key_dim}),
               .C = tensor<float, 4>({1, length, 1, key_dim}),
               .dt = tensor<float, 3>({1, length, heads}),
               .A = tensor<float, 1>({heads})};
  ogive::testing::rng random(seed);
  for (auto* positive : {&in.x, &in.B, &in.C}) ogive::testing::fill_uniform(random, positive->all(), 0.1, 1);
  ogive::testing::fill_uniform(random, in.dt.all(), 0.01, 0.5);
  ogive::testing::fill_uniform(random, in.A.all(), -1.5, -0.5);
  return in;
}

// As many heads and elements as above; values positive, features always are.
attention_arguments draw_heads(std::uint64_t seed) {
  attention_arguments in{.q = tensor<float, 4>({1, length, heads, key_dim}),
                         .k = tensor<float, 4>({1, length, heads, key_dim}),
                         .v = tensor<float, 4>({1, length, heads, value_dim})};
  ogive::testing::rng random(seed);
  for (auto* any : {&in.q, &in.k}) ogive::testing::fill_normal(random, any->all());
  ogive::testing::fill_uniform(random, in.v.all(), 0.1, 1);
  return in;
}

tensor<float, 4> zero_state() { return tensor<float, 4>({1, heads, key_dim, value_dim}); }

}  // namespace

int main() {
  constexpr int skipped = 77;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return skipped;
  int failed = 0;
  const auto check = [&](bool ok, const char* what) {
    if (!ok) std::printf("failed: %s\n", what);
    failed += ok ? 0 : 1;
  };

  check(narrow_width() == 4 && wide_width() == 8, "each unit has vectors of its own width");

  // Each token is a chain of two products and two sums, and an exponential good to two ulp; a read sums key_dim terms.
  const double bound = ogive::testing::tolerance<float>(8 * length + key_dim);
  const ogive::testing::measure relative{.rule = ogive::testing::rule::elementwise_rel};
  const index_t half = length / 2;
  for (std::uint64_t round = 0; round < 100; ++round) {
    const arguments in = draw(round);
    auto state = zero_state();
    const auto whole = narrow_run(in, 0, length, state);
    auto carried = zero_state();
    const auto first = wide_run(in, 0, half, carried);
    const auto second = narrow_run(in, half, length - half, carried);
    const auto expect = [&](const auto& got, const auto& expected) {
      return ogive::testing::compare(got.all(), expected, bound, relative).ok;
    };
    check(expect(first, whole.all().slice(1, 0, half)), "the units compute the same");
    check(expect(second, whole.all().slice(1, half, length - half)), "a state crosses between the units");
    check(expect(carried, state.all()), "and ends as if it had not");
  }

  // Numerator and denominator sum `length` weights, sums of key_dim products of two features good to two ulp.
  const double attention_bound = ogive::testing::tolerance<float>(2 * (length + key_dim + 4));
  for (std::uint64_t round = 0; round < 100; ++round) {
    const attention_arguments in = draw_heads(round);
    for (const auto how : {ogive::form::automatic, ogive::form::recurrent, ogive::form::chunked, ogive::form::left}) {
      const auto narrow = narrow_attend(in, how);
      check(ogive::testing::compare(wide_attend(in, how).all(), narrow.all(), attention_bound, relative).ok,
            "the units attend the same");
    }
  }

  const arguments in = draw(0);
  check(narrow_catches(narrow_run, in), "the narrow unit catches its own error");
  check(narrow_catches(wide_run, in), "the narrow unit catches the wide unit's error");
  check(wide_catches(narrow_run, in), "the wide unit catches the narrow unit's error");
  check(wide_catches(wide_run, in), "the wide unit catches its own error");
  return failed == 0 ? 0 : 1;
}

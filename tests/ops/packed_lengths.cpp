// Packed sequences with a length each: what engines and definitions make of them is what they make of each alone.
// Sequences of no tokens beside others of one, as a server has them.
#include <ogive/testing/samplers/delta_rules.hpp>
#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/samplers/linear_attention.hpp>
#include <ogive/testing/samplers/low_rank.hpp>
#include <ogive/testing/samplers/selective_scan.hpp>
#include <ogive/testing/samplers/ssd.hpp>
#include <ogive/testing/trials.hpp>

#include "tests/catch.hpp"

using namespace ogive;
using testing::way;

TEMPLATE_TEST_CASE("packed sequences have a length each", "", linear_attention<float>, ssd<float>,
                   selective_scan<float>) {
  using Op = TestType;
  using testing::sampler;
  OGIVE_SEED(seed, 110);
  const std::vector<std::int32_t> offsets{0, 9, 9, 10, 30, 50};
  const std::vector<std::int32_t> lengths{4, 0, 7, 20, 13};
  const auto sequences = static_cast<index_t>(lengths.size());
  for (std::uint64_t s = seed; s < seed + 5; ++s) {
    testing::rng random(s);
    testing::memory room;
    const Op row = sampler<Op>::draw(random, room, 1, 50);
    Op packed = row;
    packed.offsets = offsets;
    packed.lengths = lengths;
    const auto given = testing::draw_state<float>(random, room, packed, sequences);
    const auto each_alone = [&]<class X, std::size_t Rank>(const auto& run, const view<X, Rank>& o, const auto& st) {
      for (index_t i = 0; i < sequences; ++i) {
        CAPTURE(s, i);
        const index_t begin = packed.offsets.at(i), count = packed.offsets.at(i + 1) - begin;
        Op alone = testing::tokens_of(row, begin, count);
        if constexpr (requires { alone.position; }) alone.position = row.position;
        alone.lengths = std::span(lengths).subspan(static_cast<std::size_t>(i), 1);
        auto own = given;
        testing::for_pools(own, [&](auto& initial, auto&) { initial = initial.slice(0, i, 1); });
        testing::give_finals(room, alone, 1, own);
        const auto out = room.take<X>(sampler<Op>::output(alone));
        run(alone, own, out);
        CHECK(testing::difference(o.slice(1, begin, count), out).empty());
        CHECK(testing::difference(st.final.slice(0, i, 1), own.final).empty());
      }
    };
    auto st = given;
    testing::give_finals(room, packed, sequences, st);
    for (const way& how : testing::ways<Op>()) {
      if (how.kind == way::kind::steps || how.kind == way::kind::forward) continue;  // they look at the whole length
      CAPTURE(how);
      const auto run = [&](const Op& op, const auto& own, const auto& o) {
        context serial;
        testing::call(how, op, own, o, serial);
      };
      tensor<float, testing::output_rank<Op>> o(sampler<Op>::output(packed));
      run(packed, st, o.all());
      each_alone(run, o.all(), st);
    }
    const auto define = [](const Op& op, const auto& own, const auto& o) {
      sampler<Op>::template define<double>(op, own, o);
    };
    tensor<double, testing::output_rank<Op>> o(sampler<Op>::output(packed));
    define(packed, st, o.all());
    each_alone(define, o.all(), st);
  }
}

TEMPLATE_TEST_CASE("a step leaves the states of sequences that have no token as they are", "", linear_attention<float>,
                   ssd<float>, gla<float>, gated_delta_rule<float>, rwkv7<float>) {
  using Op = TestType;
  using testing::sampler;
  OGIVE_SEED(seed, 111);
  const std::vector<std::int32_t> lengths{1, 0, 1};
  testing::for_seeds(seed, 20, [&](std::uint64_t s) {
    testing::rng random(s);
    testing::memory room;
    Op op = sampler<Op>::draw(random, room, 3, 1);
    op.lengths = lengths;
    const auto given = testing::draw_state<float>(random, room, op, 3);
    const testing::definition<Op> right(op, given);
    const Op spoiled = testing::copy_of(op, room);
    testing::poison_tokens(spoiled, sampler<Op>::tokens, 1, 0, 1, std::numeric_limits<double>::quiet_NaN());
    for (const way& how : testing::ways<Op>()) {
      if (how.kind == way::kind::steps) continue;  // they carry states from step to step
      CAPTURE(s, how);
      const auto got = testing::run<float>(how, op, given), other = testing::run<float>(how, spoiled, given);
      CHECK(right.excess(got, 1) == "");
      CHECK(testing::difference(got.st.final.slice(0, 1, 1), room.copy(given.initial.slice(0, 1, 1))) == "");
      CHECK(testing::difference_of_states(other, got) == "");
      for (const index_t b : {0, 2}) CHECK(testing::difference(other.o.slice(0, b, 1), got.o.slice(0, b, 1)) == "");
    }
  });
}

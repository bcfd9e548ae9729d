// Packed sequences with a length each: what engines and definitions make of them is what they make of each alone.
#include <ogive/testing/samplers/linear_attention.hpp>
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

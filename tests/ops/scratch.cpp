// Scratch that is reserved for a long call is enough for every shorter one: who has reserved for a prompt can step.
#include <ogive/testing/samplers/linear_attention.hpp>
#include <ogive/testing/samplers/noncausal_linear_attention.hpp>
#include <ogive/testing/samplers/s4.hpp>
#include <ogive/testing/samplers/selective_scan.hpp>
#include <ogive/testing/samplers/shared_state.hpp>
#include <ogive/testing/samplers/softmax_attention.hpp>
#include <ogive/testing/samplers/ssd.hpp>
#include <ogive/testing/trials.hpp>

#include "tests/catch.hpp"

using namespace ogive;
using testing::way;

namespace {

template <class Op>
concept packable = requires(Op& op) {
  op.offsets;
};

/// Runs an operator every way with a state and without, in this scratch; a verb that needs more is refused.
template <class Op>
void runs_within(const Op& op, std::span<std::byte> scratch) {
  using S = testing::storage_of<Op>;
  testing::memory room;
  testing::rng random(1);
  const index_t sequences = testing::sequence_count(op);
  const auto o = room.take<typename Op::scalar>(testing::sampler<Op>::output(op));
  const auto given = testing::draw_state<S>(random, room, op, sequences);
  for (const way& how : testing::ways<Op>()) {
    if (how.chunk > 0 || how.time_split > 0 || how.kind == way::kind::steps) continue;
    CAPTURE(how);
    for (const bool initial : {false, true}) {
      for (const bool final : {false, true}) {
        CAPTURE(initial, final);
        auto st = initial ? given : testing::state_for<Op, S>{};
        if (final) testing::give_finals(room, op, sequences, st);
        context own(scratch);
        CHECK_NOTHROW(testing::call(how, op, st, o, own));
      }
    }
  }
}

}  // namespace

TEMPLATE_TEST_CASE("what a call needs is enough for fewer tokens, in every form", "", linear_attention<float>,
                   (linear_attention<bfloat16, maps::taylor>), noncausal_linear_attention<float>, ssd<float>,
                   selective_scan<float>, (selective_scan<float, std::complex<float>>), softmax_attention<float>,
                   s4<float>, lti<float>) {
  using Op = TestType;
  OGIVE_SEED(seed, 100);
  testing::rng random(seed);
  for (int trial = 0; trial < 30; ++trial) {
    testing::memory room;
    const index_t batch = random.integer(1, 3);
    const index_t length = random.integer(1, trial % 2 == 0 ? 40 : 400);
    const Op whole = testing::sampler<Op>::draw(random, room, batch, length);
    const std::size_t bytes = scratch_bytes(whole);
    tensor<std::byte, 1> scratch({static_cast<index_t>(bytes)});
    for (const index_t count : {index_t{0}, index_t{1}, index_t{2}, index_t{5}, random.integer(1, length)}) {
      if (count > length) continue;
      CAPTURE(trial, batch, length, count);
      Op piece = testing::tokens_of(whole, 0, count);
      runs_within(piece, scratch.flat());
      for (const way& how : testing::ways<Op>()) {
        const auto need = [&](const Op& op) { return scratch_bytes(op, how.how()); };
        CAPTURE(how);
        CHECK(need(piece) <= need(whole));
      }
      if constexpr (packable<Op>) {
        if (batch > 1 || count == 0) continue;
        std::vector<std::int32_t> each(static_cast<std::size_t>(count) + 1);
        for (std::size_t i = 0; i < each.size(); ++i) each[i] = static_cast<std::int32_t>(i);
        piece.offsets = each;
        runs_within(piece, scratch.flat());
        const std::vector<std::int32_t> one{0, static_cast<std::int32_t>(count)};
        Op alone = piece;
        alone.offsets = one;
        CHECK(scratch_bytes(alone) == scratch_bytes(piece));
      }
    }
  }
}

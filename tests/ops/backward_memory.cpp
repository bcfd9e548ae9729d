// What backward keeps grows with the number of chunks, not with that of tokens or pairs of tokens: a state of every
// head at each chunk, what corrections wrote, and the keys and queries of a chunk where many heads share them.
#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/delta_rules.hpp>
#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/samplers/gated_rfa.hpp>
#include <ogive/testing/samplers/low_rank.hpp>
#include <ogive/testing/samplers/rwkv4.hpp>
#include <ogive/testing/samplers/ssd.hpp>

#include "tests/catch.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("backward keeps no state per token, and nothing per pair of tokens", "",
                   (linear_attention<float, maps::taylor>), ssd<float>, gla<float>, rwkv6<float>,
                   gated_delta_rule<float>, kda<float>, rwkv7<float>, (gated_rfa<float, maps::elu1>), rwkv4<float>) {
  using Op = TestType;
  OGIVE_SEED(seed, 213);
  constexpr index_t L = 1024, C = 16;
  int large = 0;
  testing::for_seeds(seed, 12, [&](std::uint64_t s) {
    CAPTURE(s);
    testing::rng random(s);
    testing::memory room;
    const Op op = testing::sampler<Op>::draw(random, room, 1, L);
    const auto bytes = [&](index_t length) {
      return static_cast<index_t>(backward_scratch_bytes(testing::tokens_of(op, 0, length), {.chunk = C}));
    };
    const index_t quarter = bytes(L / 4), half = bytes(L / 2), whole = bytes(L);
    CHECK(whole - half <= 2 * (half - quarter) + 4096);  // memory is aligned
    const auto row = [](index_t n) { return n + 32; };   // and rows are padded
    const auto slot = testing::sampler<Op>::slot(op);
    constexpr index_t size = sizeof(double), chunks = L / 2 / C;
    if constexpr (std::tuple_size_v<decltype(slot)> == 3) {
      const auto [H, K, V] = slot;
      large += H * K * V >= 2048 ? 1 : 0;
      CHECK(whole - half <= chunks * (H * (K + 1 + C) * row(V) + 8 * C * row(K)) * size);
      context ctx;
      checkpoints kept(C);
      const auto o = room.take<float>(testing::sampler<Op>::output(op));
      forward(op, {}, o, {}, ctx, kept);
      CHECK(static_cast<index_t>(kept.capacity()) <=
            L / C * H * (K + 1) * row(V) * static_cast<index_t>(sizeof(float)));
    } else {
      large += slot[1] >= 64 ? 1 : 0;
      constexpr index_t tile = 64, block = 256;  // of RWKV-4: tokens between states, and channels that go together
      CHECK(whole - half <= L / 2 / tile * slot[0] * (slot[1] + block) * size);
    }
  });
  CHECK(large > 0);
}

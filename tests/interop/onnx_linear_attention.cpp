// What the standard does not allow in a LinearAttention node.
#include <ogive/interop/onnx/linear_attention.hpp>

#include <cstring>

#include "tests/catch.hpp"
#include "tests/interop/onnx.hpp"

using namespace ogive;
using ogive::tests::dense;

TEST_CASE("LinearAttention nodes that the standard rejects are rejected, before anything is written") {
  using node = onnx::linear_attention<float>;
  const dense packed({2, 3, 64}), per_head({2, 3, 4}), state({2, 4, 16, 16});
  dense output({2, 3, 64}), present({2, 4, 16, 16});
  const node linear{.query = packed,
                    .key = packed,
                    .value = packed,
                    .q_num_heads = 4,
                    .kv_num_heads = 4,
                    .update_rule = "linear"};
  const node gated_delta = [&] {
    node good = linear;
    good.past_state = state;
    good.decay = packed;
    good.beta = per_head;
    good.update_rule = "gated_delta";
    return good;
  }();
  CHECK(check(linear, output, present));
  CHECK(check(gated_delta, output, present));
  run(linear, output, {});
  CHECK(output.numbers[0] == 4.0F);  // 16 products of ones, times 1/√16

  const dense written = output;
  const auto rejected = [&](node bad, const char* field, auto change) {
    change(bad);
    const status asked = check(bad, output, present);
    CAPTURE(field, asked.text());
    CHECK_FALSE(asked);
    CHECK(std::strstr(asked.text(), field) != nullptr);
    CHECK_THROWS_AS(run(bad, output, present), std::invalid_argument);
    CHECK(output.numbers == written.numbers);
  };
  const dense rank_4({2, 3, 4, 16}), odd({2, 3, 62}), half({2, 3, 32}), later({2, 4, 64}), seven({2, 3, 7});
  const dense eight({2, 3, 8}), wide({2, 3, 128}), rank_3({2, 4, 16}), of_queries({2, 8, 16, 16});
  rejected(linear, "q_num_heads", [](node& n) { n.q_num_heads = 0; });
  rejected(linear, "kv_num_heads", [](node& n) { n.q_num_heads = n.kv_num_heads = 0; });
  rejected(linear, "q_num_heads", [&](node& n) { n.q_num_heads = 2, n.query = half; });
  rejected(linear, "query", [&](node& n) { n.query = rank_4; });
  rejected(linear, "query", [](node& n) { n.query = {}; });
  rejected(linear, "key", [&](node& n) { n.key = odd; });
  rejected(linear, "query", [&](node& n) { n.key = half; });
  rejected(linear, "value", [&](node& n) { n.value = later; });
  rejected(linear, "update_rule", [](node& n) { n.update_rule = "delta_rule"; });
  rejected(linear, "beta", [&](node& n) { n.beta = per_head; });
  rejected(gated_delta, "beta", [](node& n) { n.update_rule = "gated"; });
  rejected(gated_delta, "decay", [](node& n) { n.update_rule = "delta"; });
  rejected(gated_delta, "beta", [](node& n) { n.beta = {}; });
  rejected(gated_delta, "decay", [](node& n) { n.decay = {}; });
  rejected(gated_delta, "decay", [&](node& n) { n.decay = seven; });
  rejected(gated_delta, "decay", [&](node& n) { n.q_num_heads = 8, n.query = wide, n.decay = eight; });
  rejected(gated_delta, "beta", [&](node& n) { n.beta = packed; });
  rejected(linear, "past_state", [&](node& n) { n.past_state = rank_3; });
  rejected(linear, "past_state", [&](node& n) { n.q_num_heads = 8, n.query = wide, n.past_state = of_queries; });
}

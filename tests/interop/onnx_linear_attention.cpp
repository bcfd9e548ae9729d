// What the standard does not allow in a LinearAttention node, and what it says in words.
#include <ogive/interop/onnx/linear_attention.hpp>
#include <ogive/testing/compare.hpp>

#include <cstring>

#include "tests/catch.hpp"
#include "tests/interop/onnx.hpp"

using namespace ogive;
using ogive::tests::dense;
using ogive::tests::numbers_of_node;

TEST_CASE("LinearAttention nodes that the standard rejects are rejected, before anything is written") {
  using node = onnx::linear_attention<float>;
  const dense packed({2, 3, 64}), per_head({2, 3, 4}), state({2, 4, 16, 16});
  dense output({2, 3, 64}), present({2, 4, 16, 16});
  const node linear{
      .query = packed, .key = packed, .value = packed, .q_num_heads = 4, .kv_num_heads = 4, .update_rule = "linear"};
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

  const dense written = output, left = present;
  const auto rejected = [&](node bad, const char* field, auto change) {
    change(bad);
    const status asked = check(bad, output, present);
    CAPTURE(field, asked.text());
    CHECK_FALSE(asked);
    CHECK(std::strstr(asked.text(), field) != nullptr);
    const bool attribute = std::strstr("q_num_heads, kv_num_heads, update_rule", field) != nullptr;
    CHECK(asked.code() == (attribute ? status_code::value : status_code::shape));
    if (attribute) CHECK_THROWS_AS(run(bad, output, present), std::invalid_argument);
    if (!attribute) CHECK_THROWS_AS(run(bad, output, present), shape_error);
    CHECK(output.numbers == written.numbers);
    CHECK(present.numbers == left.numbers);
  };
  const dense rank_2({6, 64}), rank_4({2, 3, 4, 16}), odd({2, 3, 62}), half({2, 3, 32}), seven({2, 3, 7});
  const dense later({2, 4, 64}), fewer({1, 3, 64}), eight({2, 3, 8}), wide({2, 3, 128}), per_pair({2, 3, 2});
  const dense later_heads({2, 4, 4}), fewer_heads({1, 3, 4}), heads_rank_2({6, 4});
  const dense rank_3({2, 4, 16}), of_queries({2, 8, 16, 16}), of_one({1, 4, 16, 16}), of_keys({2, 4, 8, 16});
  const dense of_values({2, 4, 16, 8});
  SECTION("heads and rules") {
    rejected(linear, "q_num_heads", [](node& n) { n.q_num_heads = 0; });
    rejected(linear, "q_num_heads", [](node& n) { n.q_num_heads = -4; });
    rejected(linear, "kv_num_heads", [](node& n) { n.kv_num_heads = 0; });
    rejected(linear, "kv_num_heads", [](node& n) { n.kv_num_heads = -4; });
    rejected(linear, "kv_num_heads", [](node& n) { n.q_num_heads = n.kv_num_heads = 0; });
    rejected(linear, "q_num_heads", [&](node& n) { n.q_num_heads = 2, n.query = half; });
    rejected(linear, "q_num_heads", [&](node& n) { n.q_num_heads = 6, n.query = wide; });
    rejected(linear, "update_rule", [](node& n) { n.update_rule = "delta_rule"; });
    rejected(linear, "update_rule", [](node& n) { n.update_rule = "Linear"; });
    rejected(linear, "update_rule", [](node& n) { n.update_rule = ""; });
  }
  SECTION("query, key and value") {
    rejected(linear, "query", [&](node& n) { n.query = rank_4; });
    rejected(linear, "query", [&](node& n) { n.query = rank_2; });
    rejected(linear, "key", [&](node& n) { n.key = rank_4; });
    rejected(linear, "value", [&](node& n) { n.value = rank_4; });
    rejected(linear, "query", [](node& n) { n.query = {}; });
    rejected(linear, "key", [](node& n) { n.key = {}; });
    rejected(linear, "value", [](node& n) { n.value = {}; });
    rejected(linear, "query", [&](node& n) { n.query = odd; });
    rejected(linear, "key", [&](node& n) { n.key = odd; });
    rejected(linear, "value", [&](node& n) { n.value = odd; });
    rejected(linear, "query", [&](node& n) { n.key = half; });
    rejected(linear, "key", [&](node& n) { n.key = later; });
    rejected(linear, "value", [&](node& n) { n.value = later; });
    rejected(linear, "key", [&](node& n) { n.key = fewer; });
    rejected(linear, "value", [&](node& n) { n.value = fewer; });
  }
  SECTION("decay and beta") {
    rejected(linear, "beta", [&](node& n) { n.beta = per_head; });
    rejected(linear, "decay", [&](node& n) { n.decay = per_head; });
    rejected(gated_delta, "beta", [](node& n) { n.update_rule = "gated"; });
    rejected(gated_delta, "decay", [](node& n) { n.update_rule = "delta"; });
    rejected(gated_delta, "decay", [](node& n) { n.update_rule = "linear"; });
    rejected(gated_delta, "beta", [](node& n) { n.beta = {}; });
    rejected(gated_delta, "decay", [](node& n) { n.decay = {}; });
    rejected(gated_delta, "decay", [](node& n) { n.update_rule = "gated", n.decay = n.beta = {}; });
    rejected(gated_delta, "beta", [](node& n) { n.update_rule = "delta", n.decay = n.beta = {}; });
    rejected(gated_delta, "decay", [&](node& n) { n.decay = seven; });
    rejected(gated_delta, "decay", [&](node& n) { n.decay = wide; });
    rejected(gated_delta, "decay", [&](node& n) { n.q_num_heads = 8, n.query = wide, n.decay = eight; });
    rejected(gated_delta, "decay", [&](node& n) { n.decay = rank_4; });
    rejected(gated_delta, "decay", [&](node& n) { n.decay = later; });
    rejected(gated_delta, "decay", [&](node& n) { n.decay = fewer; });
    rejected(gated_delta, "beta", [&](node& n) { n.beta = packed; });
    rejected(gated_delta, "beta", [&](node& n) { n.beta = per_pair; });
    rejected(gated_delta, "beta", [&](node& n) { n.q_num_heads = 8, n.query = wide, n.beta = eight; });
    rejected(gated_delta, "beta", [&](node& n) { n.beta = heads_rank_2; });
    rejected(gated_delta, "beta", [&](node& n) { n.beta = later_heads; });
    rejected(gated_delta, "beta", [&](node& n) { n.beta = fewer_heads; });
  }
  SECTION("states and what is written") {
    rejected(linear, "past_state", [&](node& n) { n.past_state = rank_3; });
    rejected(linear, "past_state", [&](node& n) { n.past_state = of_one; });
    rejected(linear, "past_state", [&](node& n) { n.past_state = of_keys; });
    rejected(linear, "past_state", [&](node& n) { n.past_state = of_values; });
    rejected(linear, "past_state", [&](node& n) { n.q_num_heads = 8, n.query = wide, n.past_state = of_queries; });
    dense wrong({2, 3, 32});
    CHECK_THROWS_AS(run(linear, wrong, present), shape_error);
    dense transposed({2, 4, 16, 8});
    CHECK_THROWS_AS(run(linear, output, transposed), shape_error);
    node overwritten = linear;
    overwritten.value = output;
    CHECK_THROWS_WITH(
        run(overwritten, output, present),
        Catch::Matchers::Equals("LinearAttention: output of dims [2, 3, 64] is written and overlaps value "
                                "of dims [2, 3, 64]; give it memory of its own"));
    overwritten = gated_delta;
    overwritten.past_state = onnx::tensor_view<const float>(present.numbers.data(), present.dims);
    CHECK(check(overwritten, output, present));  // in place
    overwritten.past_state = onnx::tensor_view<const float>(output.numbers.data(), present.dims);
    CHECK(std::strstr(check(overwritten, output, present).text(),
                      "output of dims [2, 3, 64] is written and overlaps "
                      "past_state of dims [2, 4, 16, 16]") != nullptr);
    overwritten.past_state = onnx::tensor_view<const float>(present.numbers.data() + 1, present.dims);
    CHECK(std::strstr(check(overwritten, output, present).text(), "present_state of dims") != nullptr);
    const onnx::tensor_view<float> over(output.numbers.data(), present.dims);
    CHECK(std::strstr(check(linear, output, over).text(),
                      "output of dims [2, 3, 64] is written and overlaps "
                      "present_state of dims [2, 4, 16, 16]") != nullptr);
    CHECK(output.numbers == written.numbers);
  }
}

TEST_CASE("A scale of 0 is 1/√d_k, every other one itself") {
  numbers_of_node x(2, 2, 16, 5);
  auto node = x.node();
  const std::vector<float> standard = x.run_of(node), state = x.present.numbers;
  for (const float same : {0.25F, -0.0F, 0.0F}) {
    node.scale = same;
    CHECK(x.run_of(node) == standard);
  }
  for (const float scale : {1.0F, -2.0F}) {
    node.scale = scale;
    const std::vector<float> scaled = x.run_of(node);
    for (std::size_t i = 0; i < scaled.size(); ++i) CHECK(scaled[i] == 4 * scale * standard[i]);
    CHECK(x.present.numbers == state);
  }
}

TEST_CASE("What all channels or heads share may be given once") {
  numbers_of_node x(4, 2, 3, 5);
  auto node = x.node();
  const std::vector<float> per_head = x.run_of(node);
  dense decay({2, 3, 6});
  for (std::size_t i = 0; i < decay.numbers.size(); ++i) decay.numbers[i] = x.decay.numbers[i / 3];
  node.decay = decay;
  const std::vector<float> per_key = x.run_of(node);
  double largest = 1;  // number of a state
  for (const float number : x.present.numbers) largest = std::max(largest, std::abs(static_cast<double>(number)));
  constexpr index_t L = 3, K = 3;
  const double bound = testing::tolerance<float>(L * (2 * K + 4), K, largest);
  for (std::size_t i = 0; i < per_key.size(); ++i) {
    CHECK(std::abs(static_cast<double>(per_key[i]) - static_cast<double>(per_head[i])) <= bound);
  }

  dense shared({2, 3, 1});
  for (std::size_t i = 0; i < shared.numbers.size(); ++i) shared.numbers[i] = x.beta.numbers[2 * i];
  for (std::size_t i = 0; i < x.beta.numbers.size(); ++i) x.beta.numbers[i] = shared.numbers[i / 2];
  node = x.node();
  const std::vector<float> repeated = x.run_of(node);
  node.beta = shared;
  CHECK(x.run_of(node) == repeated);
}

TEST_CASE("Consecutive query heads read one state") {
  numbers_of_node x(6, 2, 3, 5);
  const std::vector<float> grouped = x.run_of(x.node());
  numbers_of_node each(6, 6, 3, 5);  // keys, values, gates and states repeated for every query head
  each.query = x.query;
  const auto repeat = [](const dense& from, dense& to, std::size_t width) {
    for (std::size_t i = 0; i < to.numbers.size(); ++i)
      to.numbers[i] = from.numbers[i / (3 * width) * width + i % width];
  };
  repeat(x.key, each.key, 3), repeat(x.value, each.value, 5);
  repeat(x.decay, each.decay, 1), repeat(x.beta, each.beta, 1), repeat(x.past, each.past, 15);
  CHECK(each.run_of(each.node()) == grouped);
}

TEST_CASE("No tokens, no sequences, no past, states of another type and in place") {
  numbers_of_node none(4, 2, 3, 5, 0);
  for (float& number : none.present.numbers) number = 7;
  run(none.node(), none.output, none.present);
  CHECK(none.present.numbers == none.past.numbers);
  auto fresh = none.node();
  fresh.past_state = {};
  run(fresh, none.output, none.present);
  CHECK(none.present.numbers == std::vector<float>(none.present.numbers.size(), 0.0F));

  numbers_of_node no_keys(4, 2, 0, 5);
  CHECK(no_keys.run_of(no_keys.node()) == std::vector<float>(no_keys.output.numbers.size(), 0.0F));

  dense nothing({0, 3, 8}), no_state({0, 2, 4, 4});
  const onnx::linear_attention<float> empty{
      .query = nothing, .key = nothing, .value = nothing, .q_num_heads = 2, .kv_num_heads = 2, .update_rule = "linear"};
  run(empty, nothing, no_state);

  numbers_of_node x(4, 2, 3, 5);
  const std::vector<float> apart = x.run_of(x.node()), after = x.present.numbers;
  run(x.node(), x.output, x.past);
  CHECK(x.output.numbers == apart);
  CHECK(x.past.numbers == after);
}

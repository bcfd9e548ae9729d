#include <ogive/reference/softmax_attention.hpp>
#include <ogive/testing/compare.hpp>

#include "tests/catch.hpp"

using namespace ogive;

namespace {

struct arguments {
  view<const double, 4> q, k, v;
  bool causal = false;
  index_t position = 0;
  index_t window = 0;
  std::optional<double> scale{};
  integers lengths{};
  view<double, 3> max_logits{};
};

}  // namespace

TEST_CASE("softmax attention over equal keys is the mean of what a row sees") {
  const index_t L = 3, S = 5;
  const tensor<double, 4> q({1, L, 2, 2}, 1.0);
  const tensor<double, 4> k({1, S, 1, 2}, 1.0);
  tensor<double, 4> v({1, S, 1, 1});
  for (index_t j = 0; j < S; ++j) v(0, j, 0, 0) = static_cast<double>(j);
  tensor<double, 4> o({1, L, 2, 1});
  tensor<double, 3> logits({1, L, 2});
  arguments op{.q = q, .k = k, .v = v, .scale = 3.0, .max_logits = logits};
  const auto rows = [&] {
    reference::evaluate<double>(op, o.all());
    CHECK(o(0, 1, 0, 0) == o(0, 1, 1, 0));
    return std::vector{o(0, 0, 0, 0), o(0, 1, 0, 0), o(0, 2, 1, 0)};
  };
  CHECK(rows() == std::vector{2., 2., 2.});
  CHECK(logits(0, 0, 1) == 6);
  op.causal = true;
  CHECK(rows() == std::vector{0., 0.5, 1.});
  op.position = 2;
  CHECK(rows() == std::vector{1., 1.5, 2.});
  op.window = 2;
  CHECK(rows() == std::vector{1.5, 2.5, 3.5});
  const std::vector<std::int32_t> none{0};
  op.lengths = none;
  CHECK(rows() == std::vector{0., 0., 0.});
  for (const double logit : logits.flat()) CHECK(logit == -std::numeric_limits<double>::infinity());
}

#include <ogive/testing/rng.hpp>
#include <ogive/testing/safetensors.hpp>

#include <algorithm>
#include <bench/crossover/input.hpp>
#include <cmath>
#include <sstream>

namespace ogive::crossover {

input::input(const settings& chosen) : seed_(chosen.seed) {
  if (!chosen.input) {
    description_ = "generator, seed " + std::to_string(seed_);
    return;
  }
  const testing::safetensors file(*chosen.input);
  std::ostringstream text;
  text << file.path().filename().string() << ":";
  for (const auto& [name, rows] : {std::pair{"q", &q_}, {"k", &k_}, {"v", &v_}}) {
    const auto& stored = file.shape(name);
    if (stored.size() < 2 || stored.size() > 4) file.fail("must be [B, L, H, D] or [L, D]", name);
    const std::size_t tokens = stored.size() == 4 ? 2 : 1;
    rows->tokens = rows->width = 1;
    text << ' ' << name << " [";
    for (std::size_t axis = 0; axis < stored.size(); ++axis) {
      (axis < tokens ? rows->tokens : rows->width) *= stored[axis];
      text << (axis == 0 ? "" : ", ") << stored[axis];
    }
    text << ']';
    if (rows->tokens * rows->width == 0) file.fail("is empty", name);
    rows->numbers = file.values<float>(name);
    if (!std::ranges::all_of(rows->numbers, [](float x) { return std::isfinite(x); })) {
      file.fail("holds numbers that are not finite", name);
    }
  }
  if (k_.tokens != q_.tokens) file.fail("has not as many tokens as 'q'", "k");
  if (v_.tokens != q_.tokens) file.fail("has not as many tokens as 'q'", "v");
  description_ = text.str();
}

qkv input::take(index_t tokens, index_t heads, index_t d) const {
  const shape<4> extents{1, tokens, heads, d};
  if (q_.tokens > 0) return {cut(q_, extents), cut(k_, extents), cut(v_, extents)};
  qkv drawn{tensor<float, 4>(extents), tensor<float, 4>(extents), tensor<float, 4>(extents)};
  testing::rng random(seed_);
  testing::fill_normal(random, drawn.q.all(), 0.5);
  testing::fill_normal(random, drawn.k.all(), 0.5);
  testing::fill_normal(random, drawn.v.all());
  return drawn;
}

tensor<float, 4> input::cut(const table& rows, const shape<4>& extents) {
  tensor<float, 4> x(extents);
  const index_t width = extents[2] * extents[3];
  for (index_t t = 0; t < extents[1]; ++t) {
    const float* row = rows.numbers.data() + t % rows.tokens * rows.width;
    for (index_t c = 0; c < width; ++c) x.data()[t * width + c] = row[c % rows.width];
  }
  return x;
}

}  // namespace ogive::crossover

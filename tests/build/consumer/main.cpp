#include <ogive/ops/linear_attention.hpp>

#include <cstdio>

// What a memory of four pairs answers to the query [1, 0]: [3, 0.6].
int main() {
  const float q[] = {0, 0, 0, 0, 0, 0, 1, 0};
  const float k[] = {1, 0, 0.6F, 0.8F, 1, 0, 0, 1};
  const float v[] = {1, 0, 0, 1, 2, 0, 3, 1};
  float o[8];
  const ogive::shape<4> extents{1, 4, 1, 2};  // [B, L, H, ·]
  const ogive::linear_attention<float> op{
      .q = {q, extents}, .k = {k, extents}, .v = {v, extents}, .normalise = false, .scale = 1.0F};
  ogive::forward(op, {}, {o, extents});
  std::printf("%g %g\n", static_cast<double>(o[6]), static_cast<double>(o[7]));
  return o[6] == 3 && o[7] == 0.6F ? 0 : 1;  // all products and sums are exact
}

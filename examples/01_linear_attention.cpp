// Causal linear attention over a whole sequence: include a header, name the tensors, call forward.
#include <ogive/ops/linear_attention.hpp>
#include <ogive/maps/elementwise.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  using namespace ogive;
  constexpr index_t B = 1, L = 512, H = 4, D = 32;

  // Your own memory, row-major [B, L, H, D]. A view is a pointer, extents, and strides if you have others.
  std::vector<float> q(B * L * H * D), k(q.size()), v(q.size()), o(q.size());
  for (std::size_t i = 0; i < q.size(); ++i) {
    const auto x = static_cast<float>(i);
    q[i] = std::sin(0.37F * x);
    k[i] = std::cos(0.61F * x);
    v[i] = std::sin(0.11F * x);
  }
  const view<float, 4> out(o, {B, L, H, D});

  // S_t = S_{t-1} + φ(k_t) v_tᵀ,  o_t = S_tᵀ φ(q_t) / (φ(q_t)·z_t + ε),  φ = elu + 1
  const linear_attention<float, maps::elu1> attention{
      .q = {q, {B, L, H, D}}, .k = {k, {B, L, H, D}}, .v = {v, {B, L, H, D}}};
  forward(attention, {}, out);

  // The same by the definition: the first rows, one key after the other, in double.
  double worst = 0;
  const auto phi = [](float x) { return x < 0 ? std::exp(static_cast<double>(x)) : x + 1.0; };
  for (index_t t = 0; t < 32; ++t) {
    for (index_t c = 0; c < D; ++c) {
      double sum = 0, weight = 0;
      for (index_t j = 0; j <= t; ++j) {
        double score = 0;
        for (index_t i = 0; i < D; ++i) score += phi(attention.q(0, t, 0, i)) * phi(attention.k(0, j, 0, i));
        sum += score * static_cast<double>(attention.v(0, j, 0, c));
        weight += score;
      }
      worst = std::fmax(worst, std::fabs(sum / (weight + 1e-6) - static_cast<double>(out(0, t, 0, c))));
    }
  }
  std::printf("%td tokens, %td heads of %td: largest difference from the definition %.1e\n", L, H, D, worst);
  return worst < 1e-5 ? 0 : 1;
}

// The selective scan of Mamba-1 as its block uses it: raw time steps through bias and softplus, skip D, gate z, tensors
// kept channels first, and a state that carries on from one piece to the next.
#include <ogive/ops/selective_scan.hpp>

#include <cmath>
#include <cstdio>

int main() {
  using namespace ogive;
  constexpr index_t B = 1, L = 100, D = 96, N = 16;

  // [B, D, L], as the model's convolution leaves it; from_bdl shows it as [B, L, D]. Nothing is copied.
  tensor<float, 3> u({B, D, L}), dt({B, D, L}), z({B, D, L}), y({B, D, L}), pieces({B, D, L});
  tensor<float, 4> b({B, L, 1, N}), c({B, L, 1, N});
  tensor<float, 2> a({D, N});
  tensor<float, 1> skip({D}, 1.0F), bias({D}, -3.0F);
  float wave = 0;
  for (auto* memory : {&u, &dt, &z}) {
    for (float& element : memory->flat()) element = std::sin(wave += 0.9F);
  }
  for (auto* memory : {&b, &c}) {
    for (float& element : memory->flat()) element = std::cos(wave += 0.4F);
  }
  for (index_t d = 0; d < D; ++d) {
    for (index_t n = 0; n < N; ++n) a(d, n) = -static_cast<float>(n + 1);  // S4D-Real, Mamba's start
  }

  const auto seen = [](const tensor<float, 3>& x) { return from_bdl(x.all()); };
  const auto scan = [&](index_t from, index_t count) {
    return selective_scan<float>{.u = seen(u).slice(1, from, count),
                                 .dt = seen(dt).slice(1, from, count),
                                 .A = a,
                                 .B = std::as_const(b).all().slice(1, from, count),
                                 .C = std::as_const(c).all().slice(1, from, count),
                                 .D = skip,
                                 .z = seen(z).slice(1, from, count),
                                 .dt_bias = bias,
                                 .dt_softplus = true};
  };

  forward(scan(0, L), {}, from_bdl(y.all()));

  tensor<float, 3> h({B, D, N});  // the state of each channel, read and written in place
  for (const auto& [from, count] : {std::pair<index_t, index_t>{0, 57}, {57, 1}, {58, 42}}) {
    forward(scan(from, count), h, from_bdl(pieces.all()).slice(1, from, count));
  }

  float worst = 0, largest = 0;
  for (std::size_t i = 0; i < y.flat().size(); ++i) {
    worst = std::fmax(worst, std::fabs(y.flat()[i] - pieces.flat()[i]));
    largest = std::fmax(largest, std::fabs(y.flat()[i]));
  }
  std::printf("%td channels, %td tokens in one call and in pieces of 57, 1 and 42: largest difference %.1e of %.2f\n",
              D, L, static_cast<double>(worst), static_cast<double>(largest));
  return worst <= 1e-5F * largest ? 0 : 1;
}

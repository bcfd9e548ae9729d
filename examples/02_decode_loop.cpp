// Prefill a prompt, then decode token by token: the past is a state of fixed size that stays where it is.
#include <ogive/core/state.hpp>
#include <ogive/ops/ssd.hpp>

#include <cmath>
#include <cstdio>

int main() {
  using namespace ogive;
  constexpr index_t B = 2, prompt = 48, generated = 16, L = prompt + generated, H = 8, G = 1, N = 64, P = 32;

  tensor<float, 4> x({B, L, H, P}), b({B, L, G, N}), c({B, L, G, N}), y({B, L, H, P}), whole({B, L, H, P});
  tensor<float, 3> dt({B, L, H});
  tensor<float, 1> a({H});
  float wave = 0;
  for (auto* memory : {&x, &b, &c}) {
    for (float& element : memory->flat()) element = std::sin(wave += 0.7F);
  }
  for (float& element : dt.flat()) element = 0.05F + 0.04F * std::sin(wave += 0.3F);
  for (index_t h = 0; h < H; ++h) a(h) = -0.5F * static_cast<float>(h + 1);

  // The operator over tokens [from, from + count): views into the same tensors.
  const auto tokens = [&](index_t from, index_t count) {
    const auto part4 = [&](const tensor<float, 4>& of) { return of.all().slice(1, from, count); };
    return ssd<float>{
        .x = part4(x), .dt = std::as_const(dt).all().slice(1, from, count), .A = a, .B = part4(b), .C = part4(c)};
  };

  // A pool of states, one slot per sequence, zero to begin with. Given as it is, it is read and written in place.
  tensor<float, 4> states = make_state<float>(B, H, N, P);

  // An engine that must not wait: scratch once, then no verb allocates or throws.
  context ctx;
  ctx.reserve(scratch_bytes(tokens(0, prompt)));

  forward(tokens(0, prompt), states, y.all().slice(1, 0, prompt), {}, ctx);
  for (index_t t = prompt; t < L; ++t) {
    const ssd<float> token = tokens(t, 1);
    const view<float, 4> out = y.all().slice(1, t, 1);
    if (const status fits = check(token, states, out); !fits) return std::puts(fits.text()), 1;
    step(prechecked, token, states, out, {}, ctx);
  }

  // One call over everything gives the same.
  forward(tokens(0, L), {}, whole, {}, ctx);
  float worst = 0;
  for (std::size_t i = 0; i < y.flat().size(); ++i) worst = std::fmax(worst, std::fabs(y.flat()[i] - whole.flat()[i]));
  std::printf("prefill %td + decode %td against one call of %td: largest difference %.1e; the state is %td KiB\n",
              prompt, generated, L, static_cast<double>(worst), B * H * N * P * index_t{sizeof(float)} / 1024);
  return worst < 1e-4F ? 0 : 1;
}

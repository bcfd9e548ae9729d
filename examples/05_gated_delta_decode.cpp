// A Gated DeltaNet head block: prefill a prompt, decode token by token, put the state into a file in the middle, and go on
// from the file as if nothing had happened.
#include <ogive/core/state.hpp>
#include <ogive/ops/gated_delta_rule.hpp>
#include <ogive/testing/rng.hpp>
#include <ogive/testing/safetensors.hpp>

#include <cmath>
#include <cstdio>

namespace {

using namespace ogive;

constexpr index_t B = 2, prompt = 100, generated = 40, L = prompt + generated, Hk = 2, H = 4, K = 64, V = 64;

/// What the projections of a layer would give: keys of two heads, values and gates of four.
struct activations {
  tensor<float, 4> q{{B, L, Hk, K}}, k{{B, L, Hk, K}}, v{{B, L, H, V}};
  tensor<float, 3> g{{B, L, H}}, beta{{B, L, H}};

  activations() {
    testing::rng random(7);
    for (auto* x : {&q, &k, &v}) testing::fill_normal(random, x->all());
    testing::fill_uniform(random, g.all(), -0.5, 0);  // natural logs of decays
    testing::fill_uniform(random, beta.all(), 0, 1);
  }

  /// The operator over tokens [from, from + count): views into the same tensors. q and k are normalised on the way in.
  gated_delta_rule<float> tokens(index_t from, index_t count) const {
    const auto part = [&](const auto& x) { return x.all().slice(1, from, count); };
    return {.q = part(q), .k = part(k), .v = part(v), .g = part(g), .beta = part(beta), .qk_l2norm = 1e-6F};
  }
};

/// One token after the other, the state updated where it lies.
void decode(const activations& x, const view<float, 4>& S, const view<float, 4>& o, index_t from, index_t to,
            context& ctx) {
  for (index_t t = from; t < to; ++t) step(x.tokens(t, 1), S, o.slice(1, t, 1), {}, ctx);
}

}  // namespace

int main(int count, char** arguments) {
  const char* path = count > 1 ? arguments[1] : "gated_delta_state.safetensors";
  const activations x;
  tensor<float, 4> o({B, L, H, V}), resumed({B, L, H, V}), whole({B, L, H, V});
  context ctx;
  ctx.reserve(scratch_bytes(x.tokens(0, L)));

  // Prefill, half of the tokens, then the state goes into a file: [slots, H, K, V], the same on every machine.
  tensor<float, 4> S = make_state<float>(B, H, K, V);
  forward(x.tokens(0, prompt), S, o.all().slice(1, 0, prompt), {}, ctx);
  decode(x, S, o, prompt, prompt + generated / 2, ctx);
  testing::safetensors_writer file;
  file.add("state", S.all());
  file.write(path);
  decode(x, S, o, prompt + generated / 2, L, ctx);

  // Another process, another day: the state from the file.
  tensor<float, 4> restored = testing::safetensors(path).get<float, 4>("state");
  decode(x, restored, resumed, prompt + generated / 2, L, ctx);

  // One call over everything.
  forward(x.tokens(0, L), {}, whole, {}, ctx);

  float worst = 0;
  index_t different = 0;
  for (index_t b = 0; b < B; ++b) {
    for (index_t t = 0; t < L; ++t) {
      for (index_t h = 0; h < H; ++h) {
        for (index_t j = 0; j < V; ++j) {
          worst = std::fmax(worst, std::fabs(o(b, t, h, j) - whole(b, t, h, j)));
          different += t >= prompt + generated / 2 && resumed(b, t, h, j) != o(b, t, h, j);
        }
      }
    }
  }
  std::printf("prefill %td, then %td tokens one by one, against one call: largest difference %.1e\n", prompt, generated,
              static_cast<double>(worst));
  std::printf("resumed from %s (%td KiB): %td of %td outputs differ\n", path,
              B * H * K * V * index_t{sizeof(float)} / 1024, different, B * generated / 2 * H * V);
  return worst < 1e-4F && different == 0 ? 0 : 1;
}

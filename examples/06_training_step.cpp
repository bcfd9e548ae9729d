// Training: a small Gated DeltaNet learns to remember, with every gradient but those of a softmax and a sigmoid from
// the library.
//
// A sequence comes in two pieces. The first shows pairs, a key and its value, drawn anew for every sequence; the second
// asks for the values of keys. All that goes from one piece to the other is the state: forwards with what was seen,
// backwards with the gradient that says what would have been worth keeping. What came before the first piece is where
// backpropagation is truncated.
#include <ogive/layers/gates.hpp>
#include <ogive/layers/linear.hpp>
#include <ogive/layers/norm.hpp>
#include <ogive/layers/short_convolution.hpp>
#include <ogive/ops/gated_delta_rule.hpp>
#include <ogive/testing/finite_differences.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

namespace {

using namespace ogive;
using real = double;  // for the sake of the central difference: float trains as well

constexpr index_t B = 16, L = 16;                      // sequences, tokens of a piece
constexpr index_t H = 2, K = 16, D = H * K, taps = 3;  // heads, their width, that of the model, of the convolution
constexpr index_t keys = L / 2, words = 2 * keys;      // words [0, keys) are keys, the others values

/// A token is projected to q, k, v, and from these columns on the gate of the output, β, and the gate of the state.
constexpr index_t z = 3 * D, beta = z + D, gate = beta + H, columns = gate + H;

/// What is learnt. Gradients, and Adam's two moments, have the same shapes.
struct parameters {
  tensor<real, 2> embedding{{words, D}}, project{{columns, D}}, filter{{z, taps}}, norm{{1, K}}, answer{{words, D}};
  tensor<real, 1> A_log{{H}};
  tensor<real, 2> dt_bias{{H, 1}};

  std::array<std::span<real>, 7> all() {
    return {embedding.flat(), project.flat(), filter.flat(), norm.flat(), answer.flat(), A_log.flat(), dt_bias.flat()};
  }
};

/// What a piece computes on its way; their gradients have the same shapes.
struct activations {
  tensor<real, 3> x{{B, L, D}}, p{{B, L, columns}}, c{{B, L, z}}, beta{{B, L, H}}, g{{B, L, H}};
  tensor<real, 3> o{{B, L, D}}, y{{B, L, D}}, logits{{B, L, words}};
};

/// What goes from piece to piece: the state of the delta rule, and the inputs that the convolution looks back to.
struct carried {
  tensor<real, 4> S{{B, H, K, K}};
  tensor<real, 3> inputs{{B, z, taps - 1}};
};

/// Columns of a [B, L, ·] tensor, and the same as heads [B, L, H, ·]: nothing moves.
template <class Tensor>
auto part(Tensor& x, index_t first, index_t count) {
  return x.all().slice(2, first, count);
}
template <class Tensor>
auto heads_of(Tensor& x, index_t first, index_t count) {
  return grouped(part(x, first, count), H);
}

/// The model: each layer reads the activations that another one writes.
struct model {
  linear<real> project;
  short_convolution<real> mix;
  gates::softplus_decay<real> decay;
  gated_delta_rule<real> recall;
  rms_norm<real> norm;
  linear<real> answer;

  model(const parameters& w, const activations& a)
      : project{.x = a.x, .weight = w.project},
        mix{.x = part(a.p, 0, z), .weight = w.filter, .activation = activation::silu},
        decay{.a = heads_of(a.p, gate, H), .A_log = w.A_log, .dt_bias = w.dt_bias},
        recall{.q = heads_of(a.c, 0, D),
               .k = heads_of(a.c, D, D),
               .v = heads_of(a.c, 2 * D, D),
               .g = a.g,
               .beta = a.beta,
               .qk_l2norm = 1e-6},
        norm{.x = heads_of(a.o, 0, D), .z = heads_of(a.p, z, D), .weight = w.norm},
        answer{.x = a.y, .weight = w.answer} {}
};

/// One piece of every sequence: its words, and the words that are to be answered; −1: nothing is asked.
struct piece {
  tensor<index_t, 2> word{{B, L}}, answer{{B, L}, -1};
};

template <class F>
void for_tokens(const F& f) {
  for (index_t b = 0; b < B; ++b) {
    for (index_t t = 0; t < L; ++t) f(b, t);
  }
}

void forward_piece(const parameters& w, const piece& text, const carried& before, activations& a, carried& after) {
  for_tokens([&](index_t b, index_t t) {
    for (index_t i = 0; i < D; ++i) a.x(b, t, i) = w.embedding(text.word(b, t), i);
  });
  const model f(w, a);
  forward(f.project, a.p);
  forward(f.mix, {.initial = before.inputs, .final = after.inputs}, a.c);
  forward(f.decay, heads_of(a.g, 0, H));
  for_tokens([&](index_t b, index_t t) {
    for (index_t h = 0; h < H; ++h) a.beta(b, t, h) = 1 / (1 + std::exp(-a.p(b, t, beta + h)));
  });
  forward(f.recall, {.initial = before.S, .final = after.S}, heads_of(a.o, 0, D));
  forward(f.norm, heads_of(a.y, 0, D));
  forward(f.answer, a.logits);
}

/// The same from its end: d.logits, d_after → d, d_before and what the piece adds to the gradient of the parameters.
void backward_piece(const parameters& w, const piece& text, const carried& before, const activations& a, activations& d,
                    const carried& d_after, carried& d_before, parameters& d_w) {
  const model f(w, a);
  const options add{.accumulate = true};  // everything starts at zero, and parameters see two pieces
  backward(f.answer, d.logits, {.x = d.y, .weight = d_w.answer}, add);
  backward(f.norm, heads_of(d.y, 0, D), {.x = heads_of(d.o, 0, D), .z = heads_of(d.p, z, D), .weight = d_w.norm}, add);
  backward(f.recall, {.initial = before.S}, heads_of(d.o, 0, D), {.final = d_after.S, .initial = d_before.S},
           {.q = heads_of(d.c, 0, D), .k = heads_of(d.c, D, D), .v = heads_of(d.c, 2 * D, D), .g = d.g, .beta = d.beta},
           add);
  for_tokens([&](index_t b, index_t t) {
    for (index_t h = 0; h < H; ++h) {
      d.p(b, t, beta + h) += d.beta(b, t, h) * a.beta(b, t, h) * (1 - a.beta(b, t, h));
    }
  });
  backward(f.decay, heads_of(d.g, 0, H), {.a = heads_of(d.p, gate, H), .A_log = d_w.A_log, .dt_bias = d_w.dt_bias},
           add);
  backward(f.mix, {.initial = before.inputs}, d.c, {.final = d_after.inputs, .initial = d_before.inputs},
           {.x = part(d.p, 0, z), .weight = d_w.filter}, add);
  backward(f.project, d.p, {.x = d.x, .weight = d_w.project}, add);
  for_tokens([&](index_t b, index_t t) {
    for (index_t i = 0; i < D; ++i) d_w.embedding(text.word(b, t), i) += d.x(b, t, i);
  });
}

/// Adds −log softmax(logits)_answer / (B L) for every question, and its gradient to d_logits.
real cross_entropy(const tensor<real, 3>& logits, const tensor<index_t, 2>& answer, tensor<real, 3>& d_logits) {
  real loss = 0;
  for_tokens([&](index_t b, index_t t) {
    if (answer(b, t) < 0) return;
    real top = logits(b, t, 0), sum = 0;
    for (index_t i = 1; i < words; ++i) top = std::fmax(top, logits(b, t, i));
    for (index_t i = 0; i < words; ++i) sum += std::exp(logits(b, t, i) - top);
    loss += (top + std::log(sum) - logits(b, t, answer(b, t))) / (B * L);
    for (index_t i = 0; i < words; ++i) d_logits(b, t, i) += std::exp(logits(b, t, i) - top) / sum / (B * L);
    d_logits(b, t, answer(b, t)) -= real(1) / (B * L);
  });
  return loss;
}

using sequence = std::array<piece, 2>;

/// Pairs in any order, then questions.
sequence draw(testing::rng& random) {
  sequence text;
  tensor<index_t, 1> order({keys}), value({keys});
  for (index_t b = 0; b < B; ++b) {
    for (index_t i = 0; i < keys; ++i) {
      const index_t j = random.integer(0, i);
      order(i) = order(j);
      order(j) = i;
      value(i) = random.integer(keys, words - 1);
    }
    for (index_t t = 0; t < L; ++t) {
      text[0].word(b, t) = t % 2 == 0 ? order(t / 2) : value(order(t / 2));
      text[1].word(b, t) = random.integer(0, keys - 1);
      text[1].answer(b, t) = value(text[1].word(b, t));
    }
  }
  return text;
}

/// The loss, and its gradient.
real learn(const parameters& w, const sequence& text, parameters& d_w) {
  std::array<activations, 2> a, d;
  std::array<carried, 3> at, d_at;  // before, between and after the pieces
  real loss = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    forward_piece(w, text[i], at[i], a[i], at[i + 1]);
    loss += cross_entropy(a[i].logits, text[i].answer, d[i].logits);
  }
  for (std::size_t i = 2; i-- > 0;) backward_piece(w, text[i], at[i], a[i], d[i], d_at[i + 1], d_at[i], d_w);
  return loss;
}

/// f of the same number of each.
template <class F, class... Others>
void for_numbers(const F& f, parameters& first, Others&... others) {
  for (std::size_t n = 0; n < first.all().size(); ++n) {
    for (std::size_t i = 0; i < first.all()[n].size(); ++i) f(first.all()[n][i], others.all()[n][i]...);
  }
}

/// Kingma & Ba, Adam, arXiv:1412.6980.
void adam(parameters& w, parameters& d_w, parameters& mean, parameters& square, int step) {
  const real rate = 0.01, b1 = 0.9, b2 = 0.99, unbias1 = 1 - std::pow(b1, step), unbias2 = 1 - std::pow(b2, step);
  const auto move = [&](real& x, real d, real& m, real& v) {
    m += (1 - b1) * (d - m);
    v += (1 - b2) * (d * d - v);
    x -= rate * (m / unbias1) / (std::sqrt(v / unbias2) + 1e-8);
  };
  for_numbers(move, w, d_w, mean, square);
}

/// All gradients at once: the slope of the loss along a random direction of length 1, against differences. These are
/// good to eps^(4/5) of the loss, up to the fifth derivatives that they cut off: some tens of times that.
bool gradient_is_slope(const parameters& w, testing::rng& random) {
  const sequence text = draw(random);
  parameters d_w, u;
  const real loss = learn(w, text, d_w);
  real square = 0, slope = 0, shift = 0;
  for_numbers([&](real& x) { x = random.normal(), square += x * x; }, u);
  for_numbers([&](real& x, real d) { x /= std::sqrt(square), slope += x * d; }, u, d_w);
  const real difference = testing::finite_differences(view<real, 1>(&shift, {1}), [&] {
    parameters moved = w, unused;
    for_numbers([&](real& x, real v) { x += shift * v; }, moved, u);
    return learn(moved, text, unused);
  })(0);
  const real bound = 64 * std::pow(std::numeric_limits<real>::epsilon(), 0.8) * (1 + loss);
  std::printf("slope along a random direction %.9f, by differences %.9f: apart by %.0e, allowed %.0e\n", slope,
              difference, std::fabs(slope - difference), bound);
  return std::fabs(slope - difference) <= bound;
}

}  // namespace

int main() {
  testing::rng random(6);
  parameters w, mean, square;
  for (auto* matrix : {&w.embedding, &w.project, &w.filter, &w.answer}) {
    testing::fill_normal(random, matrix->all(), 1 / std::sqrt(static_cast<real>(matrix->extent(1))));
  }
  std::ranges::fill(w.norm.flat(), 1);
  std::ranges::fill(w.dt_bias.flat(), -4);  // decays near 1 to begin with
  const bool right = gradient_is_slope(w, random);

  std::printf("a guess has the loss ln %td = %.3f\n", words, std::log(words));
  constexpr int steps = 200, shown = 40;
  real loss = 0;
  for (int step = 1; step <= steps; ++step) {
    if (step % shown == 1) loss = 0;
    parameters d_w;
    loss += learn(w, draw(random), d_w) / shown;
    adam(w, d_w, mean, square, step);
    if (step % shown == 0) std::printf("steps %3d to %3d: %.3f\n", step - shown + 1, step, loss);
  }
  return right && loss < 0.1 * std::log(words) ? 0 : 1;
}

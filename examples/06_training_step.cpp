// Training: a small model learns to remember, with every gradient but those of a softmax and a sigmoid from the
// library; once with a state that only adds, once with the delta rule.
//
// A sequence comes in two pieces. The first shows pairs, a key and its value, drawn anew for every sequence; keys come
// again with other values. The second asks for the values that keys had last. All that goes from one piece to the other
// is the state: forwards with what was seen, backwards with the gradient that says what would have been worth keeping.
// What came before the first piece is where backpropagation is truncated.
//
// Everything but the state is the same. One that only adds, S + k vᵀ, keeps the old values of a key beside the last one
// and cannot tell which it was: it plateaus. The gated delta rule, S' + β k (v − S'ᵀ k)ᵀ with S' = exp(g) S, replaces
// them, and solves the task. (A gate alone, simple_gla, ends between the two: it lets everything fade, the old
// soonest.) Draws both losses, as text and as SVG.
//
// usage: example_06_training_step [picture.svg]
#include <ogive/layers/gates.hpp>
#include <ogive/layers/linear.hpp>
#include <ogive/layers/norm.hpp>
#include <ogive/layers/short_convolution.hpp>
#include <ogive/ops/gated_delta_rule.hpp>
#include <ogive/ops/retention.hpp>
#include <ogive/testing/finite_differences.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

#include "chart.hpp"

namespace {

using namespace ogive;
using real = double;  // for the sake of the central difference: float trains as well

constexpr index_t B = 16, L = 32;                      // sequences, tokens of a piece
constexpr index_t H = 2, K = 16, D = H * K, taps = 3;  // heads, their width, that of the model, of the convolution
constexpr index_t keys = 8, words = 2 * keys;          // words [0, keys) are keys, the others values

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

/// The two states, and where the gradients of what they read go.
struct adding {
  static constexpr const char* name = "adding";
  using op = retention<real>;
  static op reads(const activations& a) {
    static constexpr real nothing_fades = 0;
    return {.q = heads_of(a.c, 0, D),
            .k = heads_of(a.c, D, D),
            .v = heads_of(a.c, 2 * D, D),
            .log_gamma = {&nothing_fades, {H}, {0}}};
  }
  static gradient<op> writes(activations& d) {
    return {.q = heads_of(d.c, 0, D), .k = heads_of(d.c, D, D), .v = heads_of(d.c, 2 * D, D)};
  }
};
struct correcting {
  static constexpr const char* name = "delta rule";
  using op = gated_delta_rule<real>;
  static op reads(const activations& a) {
    return {.q = heads_of(a.c, 0, D),
            .k = heads_of(a.c, D, D),
            .v = heads_of(a.c, 2 * D, D),
            .g = a.g,
            .beta = a.beta,
            .qk_l2norm = 1e-6};
  }
  static gradient<op> writes(activations& d) {
    return {.q = heads_of(d.c, 0, D), .k = heads_of(d.c, D, D), .v = heads_of(d.c, 2 * D, D), .g = d.g, .beta = d.beta};
  }
};

/// The model: each layer reads the activations that another one writes.
template <class State>
struct model {
  linear<real> project;
  short_convolution<real> mix;
  gates::softplus_decay<real> decay;
  typename State::op recall;
  rms_norm<real> norm;
  linear<real> answer;

  model(const parameters& w, const activations& a)
      : project{.x = a.x, .weight = w.project},
        mix{.x = part(a.p, 0, z), .weight = w.filter, .activation = activation::silu},
        decay{.a = heads_of(a.p, gate, H), .A_log = w.A_log, .dt_bias = w.dt_bias},
        recall(State::reads(a)),
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

template <class State>
void forward_piece(const parameters& w, const piece& text, const carried& before, activations& a, carried& after) {
  for_tokens([&](index_t b, index_t t) {
    for (index_t i = 0; i < D; ++i) a.x(b, t, i) = w.embedding(text.word(b, t), i);
  });
  const model<State> f(w, a);
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
template <class State>
void backward_piece(const parameters& w, const piece& text, const carried& before, const activations& a, activations& d,
                    const carried& d_after, carried& d_before, parameters& d_w) {
  const model<State> f(w, a);
  const options add{.accumulate = true};  // everything starts at zero, and parameters see two pieces
  backward(f.answer, d.logits, {.x = d.y, .weight = d_w.answer}, add);
  backward(f.norm, heads_of(d.y, 0, D), {.x = heads_of(d.o, 0, D), .z = heads_of(d.p, z, D), .weight = d_w.norm}, add);
  backward(f.recall, {.initial = before.S}, heads_of(d.o, 0, D), {.final = d_after.S, .initial = d_before.S},
           State::writes(d), add);
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

/// Pairs, then questions about their keys.
sequence draw(testing::rng& random) {
  sequence text;
  for (index_t b = 0; b < B; ++b) {
    std::array<index_t, keys> last{};
    for (index_t t = 0; t < L; t += 2) {
      const index_t key = random.integer(0, keys - 1), value = random.integer(keys, words - 1);
      text[0].word(b, t) = key;
      text[0].word(b, t + 1) = last[static_cast<std::size_t>(key)] = value;
    }
    for (index_t t = 0; t < L; ++t) {
      const index_t key = text[0].word(b, 2 * random.integer(0, L / 2 - 1));
      text[1].word(b, t) = key;
      text[1].answer(b, t) = last[static_cast<std::size_t>(key)];
    }
  }
  return text;
}

/// The loss, and its gradient.
template <class State>
real learn(const parameters& w, const sequence& text, parameters& d_w) {
  std::array<activations, 2> a, d;
  std::array<carried, 3> at, d_at;  // before, between and after the pieces
  real loss = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    forward_piece<State>(w, text[i], at[i], a[i], at[i + 1]);
    loss += cross_entropy(a[i].logits, text[i].answer, d[i].logits);
  }
  for (std::size_t i = 2; i-- > 0;) backward_piece<State>(w, text[i], at[i], a[i], d[i], d_at[i + 1], d_at[i], d_w);
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
template <class State>
bool gradient_is_slope(const parameters& w, testing::rng& random) {
  const sequence text = draw(random);
  parameters d_w, u;
  const real loss = learn<State>(w, text, d_w);
  real square = 0, slope = 0, shift = 0;
  for_numbers([&](real& x) { x = random.normal(), square += x * x; }, u);
  for_numbers([&](real& x, real d) { x /= std::sqrt(square), slope += x * d; }, u, d_w);
  const real difference = testing::finite_differences(view<real, 1>(&shift, {1}), [&] {
    parameters moved = w, unused;
    for_numbers([&](real& x, real v) { x += shift * v; }, moved, u);
    return learn<State>(moved, text, unused);
  })(0);
  const real bound = 64 * std::pow(std::numeric_limits<real>::epsilon(), 0.8) * (1 + loss);
  std::printf("%s: slope along a random direction %.9f, by differences %.9f: apart by %.0e, allowed %.0e\n",
              State::name, slope, difference, std::fabs(slope - difference), bound);
  return std::fabs(slope - difference) <= bound;
}

/// A model that learns step by step; always the same sequences, whatever it is.
template <class State>
class learner {
 public:
  learner() {
    for (auto* matrix : {&w_.embedding, &w_.project, &w_.filter, &w_.answer}) {
      testing::fill_normal(random_, matrix->all(), 1 / std::sqrt(static_cast<real>(matrix->extent(1))));
    }
    std::ranges::fill(w_.norm.flat(), 1);
    std::ranges::fill(w_.dt_bias.flat(), -4);  // decays near 1 to begin with
    right_ = gradient_is_slope<State>(w_, random_);
  }
  bool right() const { return right_; }
  real learn_more() {
    parameters d_w;
    const real loss = learn<State>(w_, draw(random_), d_w);
    adam(w_, d_w, mean_, square_, ++steps_);
    return loss;
  }

 private:
  testing::rng random_{6};
  parameters w_, mean_, square_;
  int steps_ = 0;
  bool right_;
};

}  // namespace

int main(int count, char** arguments) {
  const std::string path = count > 1 ? arguments[1] : "training_step.svg";
  learner<adding> sum;
  learner<correcting> rule;
  const real guess = std::log(real(keys));
  std::printf("a guess among the values has the loss ln %td = %.3f\n\n", keys, guess);

  constexpr int steps = 400, shown = 40, drawn = 5;
  std::vector<chart::curve> curves{{adding::name, "#d55e00", {}, 'o'}, {correcting::name, "#0072b2", {}, '+'}};
  std::printf("steps        %10s  %10s\n", adding::name, correcting::name);
  real last[2] = {};
  for (int step = 0; step < steps; step += shown) {
    last[0] = last[1] = 0;
    for (int some = 0; some < shown; some += drawn) {
      real loss[2] = {};
      for (int i = 0; i < drawn; ++i) loss[0] += sum.learn_more() / drawn, loss[1] += rule.learn_more() / drawn;
      for (std::size_t i = 0; i < 2; ++i) curves[i].values.push_back(loss[i]), last[i] += loss[i] * drawn / shown;
    }
    std::printf("%3d to %3d   %10.3f  %10.3f\n", step + 1, step + shown, last[0], last[1]);
  }
  const chart::frame frame{"The loss while a state learns to remember what a key held last", 0, 3};
  std::printf("\n");
  draw_text(frame, curves);
  if (!draw_svg(path, frame, curves)) {
    std::fprintf(stderr, "cannot write %s\n", path.c_str());
    return 1;
  }
  std::printf("\n%s: the same as a picture\n", path.c_str());
  return sum.right() && rule.right() && last[0] > 5 * last[1] && last[1] < 0.1 * guess ? 0 : 1;
}

// Gradients of what a feature map has learned, through attention: the slopes of the forward in double, the same bits
// for any number of workers, and no others' business: gradients of q, k and v are what they are without them.
#include <ogive/maps/learned.hpp>
#include <ogive/maps/polynomial.hpp>
#include <ogive/ops/gated_rfa.hpp>
#include <ogive/ops/linear_attention.hpp>
#include <ogive/ops/noncausal_linear_attention.hpp>
#include <ogive/testing/trials.hpp>

#include <cstring>

#include "tests/catch.hpp"
#include "tests/layers/gradients.hpp"

using namespace ogive;

namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// An operator over grouped heads, a mask, lengths or offsets; what the mask and lengths hold back is NaN.
template <class Op>
struct problem {
  static constexpr index_t D = 5, V = 4, Hq = 4, Hk = 2, H = 4;
  static constexpr bool causal = requires(Op op) { op.offsets; };
  bool packed;
  index_t B, L;
  std::vector<std::int32_t> bounds;
  tensor<double, 4> q, k, v, d_o;
  tensor<double, 3> g;
  tensor<bool, 2> mask;
  tensor<double, 2> W;
  tensor<double, 1> b, gamma, beta;
  Op op;

  problem(std::uint64_t seed, bool packs, bool normalise)
      : packed(packs && causal),
        B(packed ? 1 : 3),
        L(packed ? 150 : 71),
        bounds(packed ? std::vector<std::int32_t>{0, 70, 70, 150} : std::vector<std::int32_t>{71, 0, 66}),
        q({B, L, Hq, D}),
        k({B, L, Hk, D}),
        v({B, L, H, V}),
        d_o({B, L, H, V}),
        g({B, L, Hk}),
        mask({B, L}, true),
        W({3, D}),
        b({3}),
        gamma({D}),
        beta({D}) {
    testing::rng random(seed);
    for (auto* x : {&q, &k, &v, &d_o})
      testing::for_each(x->all(), [&](double& one, index_t) { one = random.uniform(-1, 1); });
    for (double& weight : W.flat()) weight = random.uniform(-0.5, 0.5);
    b(0) = 2.6, b(1) = -2.6, b(2) = 2.8;  // the kink of relu is out of reach
    for (auto* x : {&gamma, &beta}) {
      for (double& weight : x->flat()) weight = random.uniform(0.5, 1);
    }
    for (double& gate : g.flat()) gate = -random.unit();
    for (index_t t = 0; t < L; t += 3) {
      mask(0, t) = false;
      k(0, t, 1, 2) = nan, v(0, t, 3, 0) = nan;
    }
    op.q = q, op.k = k, op.v = v, op.key_mask = mask;
    op.normalise = normalise;
    op.head_map = packs ? heads::tiled : heads::consecutive;
    if constexpr (requires { op.g; }) op.g = g;
    if constexpr (causal) {
      if (packed) op.offsets = bounds;
    }
    if (!packed) {
      op.lengths = bounds;
      for (index_t t = 66; t < L; ++t) k(2, t, 0, 1) = nan;
    }
    if constexpr (requires { op.map.W; }) {
      op.map.W = W, op.map.b = b;
    } else {
      op.map.gamma = gamma, op.map.beta = beta;
    }
  }

  tests::loss loss() const {
    tensor<double, 4> o(d_o.extents(), nan);
    forward(op, {}, o.all());
    return tests::loss().add(o.all(), d_o.all());
  }
};

/// Memory for all gradients of a problem, filled with `before`.
template <class Op>
struct gradients_of {
  tensor<double, 4> q, k, v;
  tensor<double, 2> W;
  tensor<double, 1> b, gamma, beta;
  gradient<Op> d{};

  explicit gradients_of(const problem<Op>& x, double before = nan)
      : q(x.q.extents(), before),
        k(x.k.extents(), before),
        v(x.v.extents(), before),
        W(x.W.extents(), before),
        b(x.b.extents(), before),
        gamma(x.gamma.extents(), before),
        beta(x.beta.extents(), before) {
    d.q = q, d.k = k, d.v = v;
    if constexpr (requires { d.map.W; }) {
      d.map.W = W, d.map.b = b;
    } else {
      d.map.gamma = gamma, d.map.beta = beta;
    }
  }
  gradients_of(const gradients_of&) = delete;
};

template <class T, std::size_t Rank>
bool same(const tensor<T, Rank>& x, const tensor<T, Rank>& y) {
  return std::memcmp(x.data(), y.data(), static_cast<std::size_t>(x.all().size()) * sizeof(T)) == 0;
}
template <class Op>
void check_same(const gradients_of<Op>& x, const gradients_of<Op>& y) {
  CHECK(same(x.q, y.q));
  CHECK(same(x.k, y.k));
  CHECK(same(x.v, y.v));
  CHECK(same(x.W, y.W));
  CHECK(same(x.b, y.b));
  CHECK(same(x.gamma, y.gamma));
  CHECK(same(x.beta, y.beta));
}

}  // namespace

TEMPLATE_TEST_CASE("gradients of learned maps through attention", "",
                   (linear_attention<double, maps::hedgehog_softmax<double>>),
                   (linear_attention<double, maps::t2r<double>>),
                   (noncausal_linear_attention<double, maps::hedgehog<double>>),
                   (gated_rfa<double, maps::hedgehog_softmax<double>>),
                   (noncausal_linear_attention<double, maps::rebased<double>>)) {
  using Op = TestType;
  OGIVE_SEED(seed, 230);
  const bool packed = GENERATE(false, true), normalise = GENERATE(false, true);
  const problem<Op> x(seed, packed, normalise);
  CAPTURE(x.packed, normalise);

  const gradients_of<Op> found(x);
  backward(x.op, {}, x.d_o.all(), {}, found.d);
  const auto slope = [&](const char* field, const auto& weight, const auto& d_weight) {
    tests::check_gradient(field, weight, d_weight, [&] { return x.loss(); });
  };
  for_parameters(x.op.map, found.d.map, slope);

  testing::thread_pool pool;
  for (const int workers : {2, 3}) {
    context forked = context::fork_join(pool, workers);
    const gradients_of<Op> again(x);
    backward(x.op, {}, x.d_o.all(), {}, again.d, {}, forked);
    check_same(again, found);
  }
  constexpr int members = 3;
  const gradients_of<Op> together(x);
  testing::run_team(pool, members, [&](context& mine) { backward(x.op, {}, x.d_o.all(), {}, together.d, {}, mine); });
  check_same(together, found);
  for (const index_t chunk : {1, 16, 150}) {
    const gradients_of<Op> other(x);
    backward(x.op, {}, x.d_o.all(), {}, other.d, {.chunk = chunk});
    for_parameters(x.op.map, other.d.map, slope);
  }

  const gradients_of<Op> added(x, 1);
  backward(x.op, {}, x.d_o.all(), {}, added.d, {.accumulate = true});
  const auto one_more = [](const auto& sum, const auto& once) {
    std::vector<double> expected = testing::flatten(once.all());
    double largest = 1;
    for (double& number : expected) largest = std::max(largest, std::fabs(number)), number += 1;
    // Sums over a dozen tasks, each as large as all of them may be.
    CHECK(testing::compare(testing::flatten(sum.all()), expected, testing::tolerance<double>(16), {.scale = largest}));
  };
  if constexpr (requires { x.op.map.W; }) {
    one_more(added.W, found.W), one_more(added.b, found.b);
  } else {
    one_more(added.gamma, found.gamma), one_more(added.beta, found.beta);
  }

  const gradients_of<Op> tokens(x), weights(x);
  gradient<Op> d = tokens.d;
  d.map = {};
  backward(x.op, {}, x.d_o.all(), {}, d);
  CHECK(same(tokens.q, found.q));
  CHECK(same(tokens.k, found.k));
  d = {};
  d.map = weights.d.map;
  backward(x.op, {}, x.d_o.all(), {}, d);
  CHECK(same(weights.W, found.W));
  CHECK(same(weights.b, found.b));
  CHECK(same(weights.beta, found.beta));
}

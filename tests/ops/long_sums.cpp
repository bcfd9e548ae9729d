// Sums over a million tokens that hardly forget: what they lose is what their order says, and no more.
#include <ogive/ops/gla.hpp>
#include <ogive/ops/retention.hpp>
#include <ogive/ops/selective_scan.hpp>
#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/trials.hpp>

#include "tests/catch.hpp"

using namespace ogive;
using testing::way;

namespace {

constexpr index_t L = 1000000, chunk = 64, segment = 4096;

/// k and v of numbers between 0 and 1, and S = e^g S + k v in long double.
struct million {
  float g;
  tensor<float, 4> k{{1, L, 1, 1}}, v{{1, L, 1, 1}}, o{{1, L, 1, 1}};
  float one = 1;
  view<const float, 4> ones{&one, {1, L, 1, 1}, {0, 0, 0, 0}};
  long double exact = 0;

  million(std::uint64_t seed, float gate) : g(gate) {
    testing::rng random(seed);
    const long double kept = std::exp(static_cast<long double>(g));
    for (index_t t = 0; t < L; ++t) {
      k(0, t, 0, 0) = static_cast<float>(random.unit());
      v(0, t, 0, 0) = static_cast<float>(random.unit());
      exact = kept * exact + static_cast<long double>(k(0, t, 0, 0)) * static_cast<long double>(v(0, t, 0, 0));
    }
  }

  /// Within so many roundings of S, and two more that are stored.
  template <class S, class Op>
  void check(const Op& op, const options& how, bool chunks, double roundings) {
    tensor<S, 4> sum({1, 1, 1, 1});
    if (chunks) {
      chunked(op, state<S>{.final = sum}, o, how);
    } else {
      recurrent(op, state<S>{.final = sum}, o, how);
    }
    INFO(Op::name << (chunks ? ", chunks of " : ", tokens, segments of ") << (chunks ? how.chunk : how.time_split));
    CHECK_THAT(static_cast<double>(sum(0, 0, 0, 0)), tests::WithinRel(static_cast<double>(exact), roundings));
    CHECK_THAT(static_cast<double>(o(0, L - 1, 0, 0)),
               tests::WithinRel(static_cast<double>(exact), roundings + testing::tolerance<float>(2)));
  }
  /// Token by token a decay and a sum each; in chunks those of one chunk, and a decay and a sum for each chunk.
  template <class Op>
  void check_forms(const Op& op) {
    constexpr index_t in_chunks = 3 * (chunk + L / chunk + 1);
    check<float>(op, {}, false, testing::tolerance<float>(3 * (L + 1)));
    check<float>(op, {.chunk = chunk}, true, testing::tolerance<float>(in_chunks));
    check<float>(op, {.chunk = chunk, .time_split = segment}, true, testing::tolerance<float>(in_chunks + L / segment));
    check<double>(op, {}, false, testing::tolerance<double>(3 * (L + 1)));
    check<double>(op, {.chunk = chunk}, true, testing::tolerance<double>(in_chunks));
  }
};

}  // namespace

TEST_CASE("a million tokens under a decay of next to nothing") {
  OGIVE_SEED(seed, 181);
  for (const float g : {0.0F, -1e-7F, -1e-6F, -1e-5F}) {
    CAPTURE(g);
    million x(seed, g);
    const view<const float, 1> gamma(&x.g, {1});
    x.check_forms(retention<float>{.q = x.ones, .k = x.k, .v = x.v, .log_gamma = gamma, .scale = 1.0F});
    const view<const float, 4> gates(&x.g, {1, L, 1, 1}, {0, 0, 0, 0});
    x.check_forms(gla<float>{.q = x.ones, .k = x.k, .v = x.v, .g = gates, .scale = 1.0F});
  }
}

TEST_CASE("a million tokens on the diagonal engine under a decay of next to nothing") {
  OGIVE_SEED(seed, 182);
  for (const float g : {-1e-7F, -1e-6F, -1e-5F}) {
    million x(seed, g);
    tensor<float, 3> y({1, L, 1});
    const auto flat = [](const tensor<float, 4>& field) { return view<const float, 3>(field.data(), {1, L, 1}); };
    const view<const float, 4> B(x.v.data(), {1, L, 1, 1});
    const view<const float, 3> steps(&x.one, {1, L, 1}, {0, 0, 0});
    const selective_scan<float> op{
        .u = flat(x.k), .dt = steps, .A = view<const float, 2>(&x.g, {1, 1}), .B = B, .C = x.ones};
    // A decay and a sum for each token, whatever segments they are in, and the same for each segment.
    const auto check = [&](auto storage, index_t split, double bound) {
      using S = decltype(storage);
      CAPTURE(g, split);
      tensor<S, 3> sum({1, 1, 1});
      recurrent(op, diagonal_state<S>{.final = sum}, y, {.time_split = split});
      CHECK_THAT(static_cast<double>(sum(0, 0, 0)), tests::WithinRel(static_cast<double>(x.exact), bound));
      CHECK_THAT(static_cast<double>(y(0, L - 1, 0)),
                 tests::WithinRel(static_cast<double>(x.exact), bound + testing::tolerance<float>(2)));
    };
    for (const index_t split : {index_t(0), segment}) {
      check(1.0F, split, testing::tolerance<float>(3 * (L + 1 + L / segment)));
      check(1.0, split, testing::tolerance<double>(3 * (L + 1 + L / segment)));
    }
  }
}

TEST_CASE("what is too little to change a sum alone counts together, in chunks and in folds of four tokens") {
  constexpr index_t tokens = 128;
  constexpr float much = 0x1p24F;  // which a half leaves as it is, and 2 does not
  const tensor<float, 4> halves({1, tokens, 1, 1}, 0.5F), ones({1, tokens, 1, 1}, 1.0F), S({1, 1, 1, 1}, much);
  const tensor<float, 4> gates({1, tokens, 1, 1}, 0.0F);
  const tensor<float, 1> gamma({1}, 0.0F);
  const auto check = [&](const auto& op) {
    for (const way& how : {way{way::kind::recurrent}, way{way::kind::chunked, 4}, way{way::kind::chunked, 16},
                           way{way::kind::chunked, 64}, way{way::kind::chunked, 16, form::automatic, 32}}) {
      tensor<float, 4> o({1, tokens, 1, 1}), sum({1, 1, 1, 1});
      context serial;
      testing::call(how, op, state<float>{.initial = S, .final = sum}, o.all(), serial);
      INFO(op.name << " " << how);
      CHECK(sum(0, 0, 0, 0) == much + 0.5F * tokens);
    }
  };
  check(retention<float>{.q = ones, .k = halves, .v = ones, .log_gamma = gamma, .scale = 1.0F});
  check(gla<float>{.q = ones, .k = halves, .v = ones, .g = gates, .scale = 1.0F});
}

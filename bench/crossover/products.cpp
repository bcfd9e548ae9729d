#include <ogive/core/openmp.hpp>
#include <ogive/ops/linear_attention.hpp>
#include <ogive/ops/noncausal_linear_attention.hpp>
#include <ogive/ops/softmax_attention.hpp>
#include <ogive/testing/compare.hpp>

#include <bench/clock.hpp>
#include <bench/crossover/measures.hpp>
#include <sstream>
#include <stdexcept>

namespace ogive::crossover {

namespace {

using rows = view<const float, 4>;
using outputs = view<float, 4>;

/// The first batch·n tokens as sequences of n.
template <class T>
view<T, 4> sequences(T* tokens, const shape<4>& extents, index_t batch, index_t n) {
  return {tokens, {batch, n, extents[2], extents[3]}};
}

/// The kernels that are measured, on the first tokens of an input. Unnormalised and without a feature map, as they are
/// counted.
class kernels {
 public:
  kernels(const qkv& all, index_t batch, index_t n, bool causal, context& ctx)
      : q_(sequences(all.q.data(), all.q.extents(), batch, n)),
        k_(sequences(all.k.data(), all.k.extents(), batch, n)),
        v_(sequences(all.v.data(), all.v.extents(), batch, n)),
        causal_(causal),
        ctx_(ctx) {}

  void left(const outputs& o) const {
    if (causal_) {
      forward(causal_linear(), {}, o, {.form = form::left}, ctx_);
    } else {
      forward(noncausal_linear(), {}, o, {.form = form::left}, ctx_);
    }
  }
  void right(const outputs& o) const {
    if (causal_) {
      chunked(causal_linear(), {}, o, {.chunk = 32}, ctx_);  // left to itself, a short sequence is one triangle
    } else {
      forward(noncausal_linear(), {}, o, {.form = form::right}, ctx_);
    }
  }
  void softmax(const outputs& o) const {
    const softmax_attention<float> op{.q = q_, .k = k_, .v = v_, .causal = causal_};
    forward(op, o, {}, ctx_);
  }

 private:
  linear_attention<float> causal_linear() const { return {.q = q_, .k = k_, .v = v_, .normalise = false}; }
  noncausal_linear_attention<float> noncausal_linear() const { return {.q = q_, .k = k_, .v = v_, .normalise = false}; }

  rows q_, k_, v_;
  bool causal_;
  context& ctx_;
};

context make_context(const settings& how) { return how.threads == 1 ? context() : openmp_context(how.threads); }

void take_magnitudes(tensor<float, 4>& x) {
  for (float& number : x.flat()) number = std::fabs(number);
}

/// ‖left − right‖ / ‖right‖, and what it may be. Every output is a sum of terms q k v that went through at most n + d +
/// 1 roundings on either side; taken as independent and of mean zero, they add up to an error of root mean square √(n +
/// d + 1) u |q| |k| |v|, summed. Magnitudes go through the right product themselves.
agreement compare_at(const qkv& all, index_t n, bool causal, context& ctx) {
  const shape<4> extents{1, n, all.q.extent(2), all.q.extent(3)};
  tensor<float, 4> left(extents), right(extents);
  kernels(all, 1, n, causal, ctx).left(left.all());
  kernels(all, 1, n, causal, ctx).right(right.all());
  double apart = 0;
  for (index_t i = 0; i < left.size(); ++i) {
    const double difference = static_cast<double>(left.data()[i]) - static_cast<double>(right.data()[i]);
    apart += difference * difference;
  }
  const double size = testing::norm(std::as_const(right).all());

  qkv magnitudes = all;
  for (auto* x : {&magnitudes.q, &magnitudes.k, &magnitudes.v}) take_magnitudes(*x);
  kernels(magnitudes, 1, n, causal, ctx).right(left.all());
  const double roundings = 2 * static_cast<double>(n + extents[3] + 1);
  const double bound =
      std::sqrt(roundings) * testing::unit_roundoff<float>() * testing::norm(std::as_const(left).all());
  return {n, std::sqrt(apart) / size, bound / size};
}

/// From d/16 on, closer to each other around the crossings.
constexpr double multiples_of_d[] = {1. / 16, 1. / 8, 0.25, 0.375, 0.5, 0.75, 1, 1.5, 2, 3, 4, 8, 16, 32, 64};
constexpr double fewer = 16;
constexpr index_t least_tokens = 8;  // times d, in one call

double budget(bool brief) { return brief ? 0.02 : 0.25; }

double seconds_of_point(index_t n, index_t d, bool causal, bool brief, double peak) {
  const double pairs = static_cast<double>(n) * static_cast<double>(n) / (causal ? 2 : 1);
  const double round = pairs * static_cast<double>(4 * d) * 2.5 / (0.8 * peak);
  return std::max(budget(brief), std::min(4 * round, 2 * round + 6));
}

}  // namespace

std::vector<index_t> token_counts(index_t d, bool brief) {
  std::vector<index_t> counts;
  for (const double multiple : multiples_of_d) {
    if (brief && multiple > fewer) break;
    counts.push_back(static_cast<index_t>(multiple * static_cast<double>(d)));
  }
  return counts;
}

double expected_seconds(index_t d, bool causal, bool brief, double peak) {
  double total = 0;
  for (const index_t n : token_counts(d, brief)) total += seconds_of_point(n, d, causal, brief, peak);
  return total;
}

void compare_products(curve& c, const input& from, const settings& how) {
  context ctx = make_context(how);
  const index_t most = token_counts(c.d, how.brief).back();
  const qkv all = from.take(most, how.threads, c.d);
  for (const index_t n : {c.d, most}) {
    const agreement& found = c.agreements.emplace_back(compare_at(all, n, c.causal, ctx));
    if (found.difference <= found.bound) continue;
    std::ostringstream text;
    text << "left and right product disagree, d = " << c.d << ", n = " << n << ", " << c.mask() << ": "
         << found.difference << " of the norm, rounding explains " << found.bound << "; nothing was timed";
    throw std::runtime_error(text.str());
  }
}

void time_products(curve& c, const input& from, const settings& how, double peak, progress& shown) {
  context ctx = make_context(how);
  const bench::stopwatch watch(how.threads);
  const auto counts = token_counts(c.d, how.brief);
  const qkv all = from.take(counts.back(), how.threads, c.d);
  tensor<float, 4> o(all.q.extents());
  for (const index_t n : counts) {
    shown.step("timing d = " + std::to_string(c.d) + ", " + c.mask(), "n = " + std::to_string(n),
               seconds_of_point(n, c.d, c.causal, how.brief, peak));
    // Short sequences come many at a time, so that kernels are measured and not the cost of a call.
    const index_t batch = std::max<index_t>(1, least_tokens * c.d / n);
    const kernels run(all, batch, n, c.causal, ctx);
    const outputs out = sequences(o.data(), o.extents(), batch, n);
    const auto [left, right, softmax] = watch.least(
        budget(how.brief), [&] { run.left(out); }, [&] { run.right(out); }, [&] { run.softmax(out); });
    const double heads = static_cast<double>(batch * how.threads);
    c.points.push_back({n, left / heads, right / heads, softmax / heads});
  }
}

}  // namespace ogive::crossover

// The functions that gates and time steps pass through, in every lane of a vector and in every tail.
#include <ogive/reference/activations.hpp>
#include <ogive/simd/math.hpp>

#include "tests/golden/tool/trial.hpp"

namespace ogive::golden {

namespace {

template <class T>
std::vector<double> widened(const std::vector<T>& x) {
  return {x.begin(), x.end()};
}

/// f of every number of x, `count` at a time: a number alone, or a vector of which that many lanes are numbers.
template <class T, class F>
std::vector<T> in_vectors(const std::vector<T>& x, index_t count, const F& f) {
  std::vector<T> y(x.size());
  for (std::size_t i = 0; i < x.size(); i += static_cast<std::size_t>(count)) {
    const index_t lanes = std::min(count, static_cast<index_t>(x.size() - i));
    simd::store(y.data() + i, f(simd::load(x.data() + i, lanes)), lanes);
  }
  return y;
}

/// `hold(form, variant, values)` for f on a scalar and on vectors with every number of lanes.
template <class T, class F, class Hold>
void for_forms(const std::vector<T>& x, const F& f, const Hold& hold) {
  std::vector<T> y;
  for (const T number : x) y.push_back(f(number));
  hold("scalar", std::string(), widened(y));
  for (index_t count = 1; count <= simd::width<T>; ++count) {
    hold("vector", std::to_string(count) + " lanes", widened(in_vectors(x, count, f)));
  }
}

/// PyTorch's softplus is x itself above 20; ours is exact there, and `out` is corrected by the difference. `exact` has
/// all digits at both ends, so it is held to them.
template <class T>
void run_softplus_in(trial& t) {
  const auto x = t.file.numbers<T>("x");
  target wanted = t.file.expected<T>("out");
  if (wanted.numbers.size() != x.size()) throw std::runtime_error("x and out must have one length");
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = static_cast<double>(x[i]);
    if (at > 20) wanted.numbers[i] += std::log1p(std::exp(-at));
  }
  t.expect<T>("out", wanted);

  std::vector<double> exact;
  if (t.file.has("exact")) exact = t.file.numbers<double>("exact");
  const double least = static_cast<double>(std::numeric_limits<T>::min());
  const auto hold = [&](const std::string& form, const std::string& variant, std::vector<double> got) {
    t.check<T>(form, variant, {"out", got});
    if (exact.empty()) return;
    std::vector<double> normal = exact;
    for (std::size_t i = 0; i < std::min(got.size(), normal.size()); ++i) {
      if (std::fabs(normal[i]) < least && std::fabs(got[i]) <= least) got[i] = normal[i] = 0;
    }
    // exp and log1p, each good to a few units of the last place.
    t.add("digits", type_name<T>(), variant.empty() ? form : form + ", " + variant, "exact",
          testing::compare(got, normal, testing::tolerance<T>(8), {.rule = testing::rule::elementwise_rel}));
  };
  if constexpr (std::is_same_v<T, double>) {
    std::vector<double> defined;
    for (const double at : x) defined.push_back(reference::softplus(at));
    hold("definition", "", defined);
  }
  for_forms(
      x, [](const auto& v) { return simd::softplus(v); }, hold);

  // The slope is sigmoid, which PyTorch takes for 1 above 20.
  if (!t.file.has("grad_out")) return;
  const auto d_out = t.file.numbers<T>("grad_out");
  target slope = t.file.expected<T>("d_x");
  if (slope.numbers.size() != x.size() || d_out.size() != x.size()) {
    throw std::runtime_error("x, grad_out and d_x must have one length");
  }
  std::vector<double> d_x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] > 20) slope.numbers[i] *= reference::sigmoid(static_cast<double>(x[i]));
    d_x.push_back(static_cast<double>(simd::sigmoid(x[i]) * d_out[i]));
  }
  t.expect<T>("d_x", slope);
  t.check<T>("slope", "", {"d_x", d_x});
}

void run_softplus(trial& t) {
  run_softplus_in<double>(t);
  run_softplus_in<float>(t);
}

template <class T>
void run_activations_in(trial& t) {
  const auto x = t.file.numbers<T>("x");
  const auto run = [&](const std::string& name, const auto& f, const auto& define) {
    const auto hold = [&](const std::string& form, const std::string& variant, const std::vector<double>& got) {
      t.check<T>(form, variant, {name, got});
    };
    if constexpr (std::is_same_v<T, double>) {
      std::vector<double> defined;
      for (const double at : x) defined.push_back(define(at));
      hold("definition", "", defined);
    }
    for_forms(x, f, hold);
  };
  run(
      "silu", [](const auto& v) { return simd::silu(v); }, [](double v) { return reference::silu(v); });
  run(
      "sigmoid", [](const auto& v) { return simd::sigmoid(v); }, [](double v) { return reference::sigmoid(v); });
  run(
      "logsigmoid", [](const auto& v) { return -simd::softplus(-v); },
      [](double v) { return reference::logsigmoid(v); });
}

void run_activations(trial& t) {
  run_activations_in<double>(t);
  run_activations_in<float>(t);
}

const registration softplus("softplus", run_softplus);
const registration activations("activations", run_activations);

}  // namespace

}  // namespace ogive::golden

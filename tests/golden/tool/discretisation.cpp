// Discretisation of diagonal systems, real and complex, and of dense ones.
#include <ogive/maps/discretisation_dense.hpp>
#include <ogive/reference/discretisation.hpp>

#include "tests/golden/tool/trial.hpp"

namespace ogive::golden {

namespace {

struct method {
  discretisation rule;
  double alpha;
};

method method_of(const golden_case& file) {
  const std::string name = file.text("method", "zoh");
  if (name == "zoh") return {discretisation::zoh, 0.5};
  if (name == "mamba") return {discretisation::mamba, 0.5};
  if (name == "euler") return {discretisation::euler, 0};
  if (name == "bilinear") return {discretisation::bilinear, 0.5};
  if (name == "backward") return {discretisation::backward_euler, 1};
  if (name == "gbt") return {discretisation::generalised_bilinear, file.number("alpha").value_or(0.5)};
  throw std::runtime_error("the method '" + name + "' is not known");
}

/// The rules that are the generalised bilinear one with an alpha of their own.
bool is_rational(discretisation rule) { return rule != discretisation::zoh && rule != discretisation::mamba; }

/// Numbers of a file with every part that T cannot hold in full set to what T makes of it: 0 below its normal numbers.
/// Only float drops any here.
template <class T>
void flush(std::vector<double>& numbers) {
  for (double& x : numbers) {
    x = static_cast<double>(static_cast<T>(x));
    if (std::fabs(x) < static_cast<double>(std::numeric_limits<T>::min())) x = 0;
  }
}

/// Holds Ā and B̄ against the file. float is computed in double and rounded once.
template <class T, class X>
void check(trial& t, const std::string& form, const tensor<X, 2>& A_bar, const tensor<X, 2>& B_bar) {
  for (const auto& [name, result] : {std::pair{"Abar", &A_bar}, std::pair{"Bbar", &B_bar}}) {
    named_numbers got{name, testing::flatten(result->all())};
    if constexpr (std::is_same_v<T, float>) {
      target wanted = t.file.expected<float>(name);
      flush<float>(wanted.numbers);
      flush<float>(got.numbers);
      wanted.bound = testing::tolerance<float>(1);
      t.expect<float>(name, wanted);
    }
    t.check<T>(form, "", got);
  }
}

/// X is T or std::complex<T>.
template <class T, class X>
void run_diagonal_in(trial& t) {
  const auto A = t.file.get<X, 1>("A");
  const auto B = t.file.get<X, 1>("B");
  const auto dt = t.file.get<T, 1>("dt");
  const method chosen = method_of(t.file);
  const index_t L = dt.extent(0), N = A.extent(0);
  tensor<X, 2> A_bar({L, N}), B_bar({L, N});

  discretise<X>(chosen.rule, dt.all(), A.all(), B.all(), A_bar.all(), B_bar.all(), chosen.alpha);
  check<T>(t, "all steps", A_bar, B_bar);
  const auto each = [&](const std::string& form, const auto& pair_of) {
    for (index_t l = 0; l < L; ++l) {
      for (index_t n = 0; n < N; ++n) {
        const auto [a, b] = pair_of(dt(l), A(n), B(n));
        A_bar(l, n) = a;
        B_bar(l, n) = b;
      }
    }
    check<T>(t, form, A_bar, B_bar);
  };
  each("one mode",
       [&](T step, X a, X b) { return discretise(chosen.rule, static_cast<double>(step), a, b, chosen.alpha); });
  if (is_rational(chosen.rule)) {
    each("gbt", [&](T step, X a, X b) {
      return discretise(discretisation::generalised_bilinear, static_cast<double>(step), a, b, chosen.alpha);
    });
  }
}

template <class Number>
std::pair<Number, Number> defined_step(const method& chosen, Number A, Number B, long double delta) {
  if (chosen.rule == discretisation::zoh) return reference::zoh(A, B, delta);
  if (chosen.rule == discretisation::mamba) return reference::mamba(A, B, delta);
  return reference::generalised_bilinear(A, B, delta, static_cast<long double>(chosen.alpha));
}

/// In long double: ΔA in double is off by |ΔA| roundings, which the exponential makes its own relative error.
template <class X>
void run_definition(trial& t) {
  using Wide = std::conditional_t<std::is_same_v<X, double>, long double, std::complex<long double>>;
  const auto A = t.file.get<X, 1>("A");
  const auto B = t.file.get<X, 1>("B");
  const auto dt = t.file.get<double, 1>("dt");
  const method chosen = method_of(t.file);
  tensor<X, 2> A_bar({dt.extent(0), A.extent(0)}), B_bar(A_bar);
  if (B.extents() != A.extents()) throw std::runtime_error("A and B must have one length");
  for (index_t l = 0; l < dt.extent(0); ++l) {
    for (index_t n = 0; n < A.extent(0); ++n) {
      const auto [a_bar, b_bar] = defined_step(chosen, Wide(A(n)), Wide(B(n)), static_cast<long double>(dt(l)));
      A_bar(l, n) = static_cast<X>(a_bar);
      B_bar(l, n) = static_cast<X>(b_bar);
    }
  }
  check<double>(t, "definition", A_bar, B_bar);
}

void run_real(trial& t) {
  run_definition<double>(t);
  run_diagonal_in<double, double>(t);
  run_diagonal_in<float, float>(t);
}
void run_complex(trial& t) {
  run_definition<std::complex<double>>(t);
  run_diagonal_in<double, std::complex<double>>(t);
  run_diagonal_in<float, std::complex<float>>(t);
}

void run_dense(trial& t) {
  const auto A = t.file.get<double, 2>("A");
  const auto B = t.file.get<double, 2>("B");
  const auto dt = t.file.get<double, 1>("dt");
  const method chosen = method_of(t.file);
  const index_t L = dt.extent(0), N = A.extent(0), M = B.extent(1);
  tensor<double, 3> A_bar({L, N, N}), B_bar({L, N, M});
  const auto run = [&](const std::string& form, discretisation as) {
    discretise_dense(as, dt.all(), A.all(), B.all(), A_bar.all(), B_bar.all(), chosen.alpha);
    t.check<double>(form, "", {"Abar", testing::flatten(A_bar.all())});
    t.check<double>(form, "", {"Bbar", testing::flatten(B_bar.all())});
  };
  run("all steps", chosen.rule);
  if (is_rational(chosen.rule)) run("gbt", discretisation::generalised_bilinear);
}

const registration real("disc_diag_real", run_real);
const registration complex("disc_diag_complex", run_complex);
const registration dense("disc_dense", run_dense);

}  // namespace

}  // namespace ogive::golden

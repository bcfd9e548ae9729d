// L1*: a continuous pole A and input weight B, held over a step Δ, as (Ā, B̄): h_t = Ā h_{t-1} + B̄ u_t.
#pragma once

#include <cmath>
#include <complex>
#include <utility>

namespace ogive::reference {

/// eˣ − 1, complex without cancellation: e^x cos y − 1 = expm1(x) cos y − 2 sin²(y/2).
template <class Acc>
Acc exp_minus_1(const Acc& x) {
  using std::expm1;
  return expm1(x);
}
template <class Acc>
std::complex<Acc> exp_minus_1(const std::complex<Acc>& w) {
  using std::cos;
  using std::exp;
  using std::expm1;
  using std::sin;
  const Acc half = sin(w.imag() / Acc(2));
  return {expm1(w.real()) * cos(w.imag()) - Acc(2) * half * half, exp(w.real()) * sin(w.imag())};
}

/// Zero-order hold: Ā = exp(ΔA), B̄ = (exp(ΔA) − 1)/A · B; at A = 0 B̄ = ΔB. Real or complex, like the rest.
template <class Number, class Step>
std::pair<Number, Number> zoh(const Number& A, const Number& B, const Step& delta) {
  using std::exp;
  const Number x = delta * A;
  return {exp(x), A == Number(0) ? delta * B : exp_minus_1(x) / A * B};
}

/// Generalised bilinear: Ā = (1 + (1 − α)ΔA)/(1 − αΔA), B̄ = ΔB/(1 − αΔA). α = 0 is Euler's forward rule, ½ the
/// bilinear (Tustin), 1 the backward one.
template <class Number, class Step>
std::pair<Number, Number> generalised_bilinear(const Number& A, const Number& B, const Step& delta, const Step& alpha) {
  const Number denominator = Number(1) - alpha * delta * A;
  return {(Number(1) + (Step(1) - alpha) * delta * A) / denominator, delta * B / denominator};
}

/// Mamba's rule: Ā = exp(ΔA) and Euler's B̄ = ΔB. Gu and Dao 2023, arXiv:2312.00752: the code, not equation (4).
template <class Number, class Step>
std::pair<Number, Number> mamba(const Number& A, const Number& B, const Step& delta) {
  using std::exp;
  return {exp(delta * A), delta * B};
}

/// By the rule of an operator: an enumeration with the names of these and of the three values of α, and perhaps `none`,
/// for A and B that are Ā and B̄.
template <class Rule, class Number, class Step>
std::pair<Number, Number> discretise(Rule rule, const Number& A, const Number& B, const Step& delta,
                                     const Step& alpha) {
  if constexpr (requires { Rule::none; }) {
    if (rule == Rule::none) return {A, B};
  }
  if (rule == Rule::zoh) return zoh(A, B, delta);
  if (rule == Rule::mamba) return mamba(A, B, delta);
  const Step weight = rule == Rule::euler            ? Step(0)
                      : rule == Rule::bilinear       ? Step(1) / Step(2)
                      : rule == Rule::backward_euler ? Step(1)
                                                     : alpha;
  return generalised_bilinear(A, B, delta, weight);
}

}  // namespace ogive::reference

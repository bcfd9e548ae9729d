// L1*: the functions that gates and time steps pass through, for any scalar that has exp, log1p and a sign.
#pragma once

#include <cmath>

namespace ogive::reference {

/// log(1 + eˣ) = max(x, 0) + log1p(e^−|x|): no digit is lost at either end.
template <class Acc>
Acc softplus(const Acc& x) {
  using std::exp;
  using std::log1p;
  return x < Acc(0) ? log1p(exp(x)) : x + log1p(exp(-x));
}

/// 1 / (1 + e^−x)
template <class Acc>
Acc sigmoid(const Acc& x) {
  using std::exp;
  return x < Acc(0) ? exp(x) / (Acc(1) + exp(x)) : Acc(1) / (Acc(1) + exp(-x));
}

/// x sigmoid(x)
template <class Acc>
Acc silu(const Acc& x) {
  return x * sigmoid(x);
}

/// log sigmoid(x) = −softplus(−x)
template <class Acc>
Acc logsigmoid(const Acc& x) {
  return -softplus(-x);
}

}  // namespace ogive::reference

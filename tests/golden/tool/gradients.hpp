// What runs outside the forms of an operator have in common: gradients, layers.
#pragma once

#include "tests/golden/tool/trial.hpp"

namespace ogive::golden {

/// The numbers of x, if it is there, under a name of the file.
template <class T, class X, std::size_t Rank>
void hold(trial& t, const std::string& form, const std::string& output, const view<X, Rank>& x) {
  if (x.present()) t.check<T>(form, "", {output, testing::flatten(x)});
}

/// In double and float.
template <class Run>
void in_both(trial& t, const Run& run) {
  run(t, double());
  run(t, float());
}

/// A tensor like the file's, to be written; nothing if the file has none.
template <class T, std::size_t Rank>
tensor<T, Rank> like(const view<const T, Rank>& x) {
  return x.present() ? tensor<T, Rank>(x.extents(), std::numeric_limits<T>::quiet_NaN()) : tensor<T, Rank>();
}

}  // namespace ogive::golden

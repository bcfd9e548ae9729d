// L5: operators that are the same for every token, made ready: what only their parameters decide is computed once, and
// the object that has it takes a stream of tokens as it comes.
#pragma once

#include <ogive/core/view.hpp>

namespace ogive {

/// What an operator is made ready for: `batch` streams side by side, and sequences of `length` tokens where it has a
/// form for whole sequences that wants to know (0: it then has none).
struct prepare_options {
  index_t batch = 1;
  index_t length = 0;
};

inline namespace OGIVE_ABI {

/// An operator made ready, with memory and a state of its own; engines specialise it. Nothing of the operator is needed
/// any more, and nothing but `prepare` and `set_rate` computes coefficients or allocates.
template <class Op>
class prepared;

/// \throws shape_error, std::invalid_argument as the operator's verbs. u is not looked at.
template <class Op>
prepared<Op> prepare(const Op& op, const prepare_options& how = {}) {
  return prepared<Op>(op, how);
}

}  // namespace OGIVE_ABI
}  // namespace ogive

// L5: coefficients that outlive a call. Engines of time-invariant operators make them for every call, in its scratch; a
// `prepared` operator (ogive/ops/prepared.hpp) makes them once, and its calls find them there.
#pragma once

#include <ogive/core/scratch.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// An operator with its coefficients, in the panels that its engine's `pack` has filled.
template <class Op>
struct with_panels : Op {
  std::byte* panels = nullptr;
};

template <class Op>
concept has_panels = requires(const Op& op) {
  op.panels;
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

// L5: loops of constant length written out, so that arrays of vectors stay in registers at -O2 too.
#pragma once

#include <ogive/config.hpp>

#include <utility>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// Calls f(0), …, f(N − 1) with the index as a constant: arrays indexed by it stay in registers.
template <int N, class F>
OGIVE_INLINE void unroll(F&& f) noexcept {
  [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
    (f(std::integral_constant<int, I>{}), ...);
  }
  (std::make_integer_sequence<int, N>{});
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

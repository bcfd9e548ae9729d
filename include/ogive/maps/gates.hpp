// L4: from the parameters of checkpoints to what operators take.
#pragma once

#include <ogive/core/check.hpp>
#include <ogive/simd/math.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

/// A = −exp(A_log), how Mamba's checkpoints keep a decay rate negative.
template <std::floating_point T>
T A_from_log(T A_log) noexcept {
  return -simd::exp(A_log);
}

/// The same for every element: A_log [H] or [D, N], A of the same shape; they may be the same memory.
/// \throws shape_error
template <std::floating_point T, std::size_t Rank>
void A_from_log(const std::type_identity_t<view<const T, Rank>>& A_log, const view<T, Rank>& A) {
  core::checker is("ogive::A_from_log");
  is.given("A_log", A_log).given("A", A).extents("A", A, A_log.extents(), "the shape of A_log").output("A", A);
  require(is.result());
  for (index_t i = 0; i < A.extent(0); ++i) {
    if constexpr (Rank == 1) {
      A[i] = A_from_log(A_log[i]);
    } else {
      A_from_log<T, Rank - 1>(A_log[i], A[i]);
    }
  }
}

}  // namespace OGIVE_ABI
}  // namespace ogive

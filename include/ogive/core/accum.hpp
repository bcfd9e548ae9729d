// L1: what is added in, for each storage type.
#pragma once

#include <ogive/core/half.hpp>

#include <complex>
#include <type_traits>

namespace ogive {

namespace core {

template <class T>
struct accum {
  using type = T;
};
template <>
struct accum<bfloat16> {
  using type = float;
};
template <>
struct accum<float16> {
  using type = float;
};

}  // namespace core

/// The type of sums, gates, dt, A, β and biases: float for the 16-bit types, else T itself.
template <class T>
using accum_t = typename core::accum<std::remove_const_t<T>>::type;

/// What a sweep computes in when tensors are of T and states of S: the wider of the two accumulators.
template <class T, class S>
using sweep_t =
    std::conditional_t<std::is_same_v<accum_t<T>, double> || std::is_same_v<accum_t<S>, double>, double, float>;

template <class T>
concept storage =
    std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, bfloat16> || std::same_as<T, float16>;

}  // namespace ogive

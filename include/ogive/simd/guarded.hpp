// L2: batches that cannot be branched on, to try generic code with before it is given real ones.
//
// On AVX-512 a comparison of batches converts to its bits and so to bool: `x < 0 ? a : b`, `if (x < 0)`, std::max and
// the like compile there and choose by whether any lane is below 0, for all lanes. `guarded<T>` is a batch<T> whose
// comparisons are refused as conditions, with a sentence, on every machine. What is computed from one is guarded
// again. Nothing here is ever run: functions are declared only.
#pragma once

#include <ogive/simd/math.hpp>

#include <concepts>

namespace ogive {
inline namespace OGIVE_ABI {
namespace simd {

namespace detail {

template <class Nothing>
bool one_truth_value_per_lane() noexcept {
  static_assert(!std::is_void_v<Nothing>,
                "a comparison of simd::batch has one truth value per lane and is no condition: write "
                "simd::select(x < X(0), a, b), simd::max(x, X(0)), ... instead of ?:, if, while, std::max, ...");
  return false;
}

}  // namespace detail

/// A comparison of guarded<T>.
template <class T>
struct guarded_mask : batch_mask<T> {
  guarded_mask(const batch_mask<T>& mask) noexcept;
  explicit operator bool() const noexcept {
    return detail::one_truth_value_per_lane<std::conditional_t<sizeof(T) != 0, void, T>>();  // said once, not per T
  }
  explicit operator typename batch_mask<T>::register_type() const noexcept;  // hides the implicit one of the batch
};

/// A batch<T> whose comparisons are guarded_mask<T>.
template <class T>
struct guarded : batch<T> {
  guarded() noexcept;
  guarded(T x) noexcept;
  guarded(const batch<T>& x) noexcept;
  explicit guarded(const batch_mask<T>& mask) noexcept;
  guarded& operator+=(const guarded& other) noexcept;
  guarded& operator-=(const guarded& other) noexcept;
  guarded& operator*=(const guarded& other) noexcept;
  guarded& operator/=(const guarded& other) noexcept;
};

namespace detail {

template <class... V>
struct guard_among {};
template <class V, class... Rest>
struct guard_among<V, Rest...> : guard_among<Rest...> {};
template <class T, class... Rest>
struct guard_among<guarded<T>, Rest...> {
  using values = guarded<T>;
  using comparison = guarded_mask<T>;
};
template <class T, class... Rest>
struct guard_among<guarded_mask<T>, Rest...> : guard_among<Rest...> {
  using truths = guarded_mask<T>;
};

// No type where no operand is guarded: overloads for batches and numbers are then the only ones.
template <class... V>
using guarded_values = typename guard_among<V...>::values;
template <class... V>
using guarded_comparison = typename guard_among<V...>::comparison;
template <class... V>
using guarded_truths = typename guard_among<V...>::truths;

}  // namespace detail

template <class T>
guarded<T> operator-(const guarded<T>& x) noexcept;
template <class T>
guarded<T> operator+(const guarded<T>& x) noexcept;
template <class A, class B>
detail::guarded_values<A, B> operator+(const A& a, const B& b) noexcept;
template <class A, class B>
detail::guarded_values<A, B> operator-(const A& a, const B& b) noexcept;
template <class A, class B>
detail::guarded_values<A, B> operator*(const A& a, const B& b) noexcept;
template <class A, class B>
detail::guarded_values<A, B> operator/(const A& a, const B& b) noexcept;

template <class A, class B>
detail::guarded_comparison<A, B> operator==(const A& a, const B& b) noexcept;
template <class A, class B>
detail::guarded_comparison<A, B> operator!=(const A& a, const B& b) noexcept;
template <class A, class B>
detail::guarded_comparison<A, B> operator<(const A& a, const B& b) noexcept;
template <class A, class B>
detail::guarded_comparison<A, B> operator<=(const A& a, const B& b) noexcept;
template <class A, class B>
detail::guarded_comparison<A, B> operator>(const A& a, const B& b) noexcept;
template <class A, class B>
detail::guarded_comparison<A, B> operator>=(const A& a, const B& b) noexcept;

template <class T>
guarded_mask<T> operator!(const guarded_mask<T>& x) noexcept;
template <class T>
guarded_mask<T> operator~(const guarded_mask<T>& x) noexcept;
template <class A, class B>
detail::guarded_truths<A, B> operator&(const A& a, const B& b) noexcept;
template <class A, class B>
detail::guarded_truths<A, B> operator|(const A& a, const B& b) noexcept;
template <class A, class B>
detail::guarded_truths<A, B> operator^(const A& a, const B& b) noexcept;
template <class A, class B>
detail::guarded_truths<A, B> operator&&(const A& a, const B& b) noexcept;
template <class A, class B>
detail::guarded_truths<A, B> operator||(const A& a, const B& b) noexcept;
template <class A, class B>
detail::guarded_truths<A, B> operator==(const A& a, const B& b) noexcept;
template <class A, class B>
detail::guarded_truths<A, B> operator!=(const A& a, const B& b) noexcept;

template <class Mask, class A, class B>
detail::guarded_values<A, B> select(const Mask& mask, const A& a, const B& b) noexcept;
template <class T>
guarded<T> select(const guarded_mask<T>& mask, const batch<T>& a, const batch<T>& b) noexcept;
template <class A, class B, class C>
detail::guarded_values<A, B, C> fma(const A& a, const B& b, const C& c) noexcept;
template <class A, class B, class C>
detail::guarded_values<A, B, C> fnma(const A& a, const B& b, const C& c) noexcept;
template <class A, class B>
detail::guarded_values<A, B> divide(const A& a, const B& b) noexcept;
template <class A, class B>
detail::guarded_values<A, B> min(const A& a, const B& b) noexcept;
template <class A, class B>
detail::guarded_values<A, B> max(const A& a, const B& b) noexcept;
template <class A, class B>
detail::guarded_values<A, B> scale2(const A& a, const B& b) noexcept;

template <class T>
guarded<T> abs(const guarded<T>& x) noexcept;
template <class T>
guarded<T> sqrt(const guarded<T>& x) noexcept;
template <class T>
guarded<T> exp(const guarded<T>& x) noexcept;
template <class T>
guarded<T> exp2(const guarded<T>& x) noexcept;
template <class T>
guarded<T> expm1(const guarded<T>& x) noexcept;
template <class T>
guarded<T> log(const guarded<T>& x) noexcept;
template <class T>
guarded<T> log1p(const guarded<T>& x) noexcept;
template <class T>
guarded<T> softplus(const guarded<T>& x) noexcept;
template <class T>
guarded<T> sigmoid(const guarded<T>& x) noexcept;
template <class T>
guarded<T> silu(const guarded<T>& x) noexcept;
template <class T>
guarded<T> sin(const guarded<T>& x) noexcept;
template <class T>
guarded<T> cos(const guarded<T>& x) noexcept;

}  // namespace simd
}  // namespace OGIVE_ABI
}  // namespace ogive

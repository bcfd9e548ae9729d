// A number that counts: run a definition on it and read off the operations that the definition costs.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>

namespace ogive::testing {

/// Operations on `counted` numbers. Subtractions count as additions; negations, comparisons and copies as nothing.
struct counts {
  std::int64_t multiplications = 0;
  std::int64_t additions = 0;
  std::int64_t divisions = 0;
  std::int64_t functions = 0;  ///< exp, log1p, sqrt, …

  /// A multiplication with its addition makes two.
  std::int64_t flops() const noexcept { return multiplications + additions + divisions; }
  friend bool operator==(const counts&, const counts&) = default;
  friend counts operator-(const counts& a, const counts& b) noexcept {
    return {a.multiplications - b.multiplications, a.additions - b.additions, a.divisions - b.divisions,
            a.functions - b.functions};
  }
};

/// A double that adds to its thread's `counted::total` whatever is done with it.
class counted {
 public:
  static inline thread_local counts total{};

  counted() = default;
  constexpr explicit counted(double value) noexcept : value_(value) {}
  constexpr explicit operator double() const noexcept { return value_; }
  constexpr explicit operator float() const noexcept { return static_cast<float>(value_); }

  friend counted operator+(counted a, counted b) noexcept { return ++total.additions, counted(a.value_ + b.value_); }
  friend counted operator-(counted a, counted b) noexcept { return ++total.additions, counted(a.value_ - b.value_); }
  friend counted operator*(counted a, counted b) noexcept {
    return ++total.multiplications, counted(a.value_ * b.value_);
  }
  friend counted operator/(counted a, counted b) noexcept { return ++total.divisions, counted(a.value_ / b.value_); }
  friend constexpr counted operator-(counted a) noexcept { return counted(-a.value_); }
  friend constexpr auto operator<=>(const counted&, const counted&) = default;

  friend counted exp(counted a) noexcept { return ++total.functions, counted(std::exp(a.value_)); }
  friend counted expm1(counted a) noexcept { return ++total.functions, counted(std::expm1(a.value_)); }
  friend counted log(counted a) noexcept { return ++total.functions, counted(std::log(a.value_)); }
  friend counted log1p(counted a) noexcept { return ++total.functions, counted(std::log1p(a.value_)); }
  friend counted sqrt(counted a) noexcept { return ++total.functions, counted(std::sqrt(a.value_)); }
  friend counted sin(counted a) noexcept { return ++total.functions, counted(std::sin(a.value_)); }
  friend counted cos(counted a) noexcept { return ++total.functions, counted(std::cos(a.value_)); }

 private:
  double value_;
};

/// What `work()` costs on this thread.
template <class Work>
counts count(Work&& work) {
  const counts before = counted::total;
  work();
  return counted::total - before;
}

}  // namespace ogive::testing

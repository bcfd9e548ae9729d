#include <ogive/simd/exp2_product.hpp>

#include <cmath>
#include <limits>

#include "vectors.hpp"

using namespace ogive;
using namespace ogive::tests;

namespace {

template <class T, class Arch>
constexpr bool scales = requires(typename simd::batch<T, Arch>::register_type r) {
  simd::native::scale2(r, r);
};

/// 2^(x y) with the product in two parts.
template <class T>
long double exact(T x, T y) {
  const long double product = static_cast<long double>(x) * static_cast<long double>(y);
  const long double rest = std::fma(static_cast<long double>(x), static_cast<long double>(y), -product);
  return std::exp2(product) * (1 + 0.693147180559945309417L * rest);
}

template <bool Any, class T, class Arch>
T one(T x, T y) {
  using V = simd::batch<T, Arch>;
  T out[V::size];
  simd::store(out, simd::exp2_product<Any>(V(x), V(y)));
  return out[V::size - 1];
}

}  // namespace

TEST_CASE("exp2_product is 2 to an exact product") {
  std::mt19937_64 engine(7);
  for_each_vector([&]<class T, class Arch>() {
    const double highest = std::numeric_limits<T>::max_exponent - 2;
    std::uniform_real_distribution<double> exponent(-highest, highest), logarithm(-20, 20), near(-2, 2);
    double worst = 0;
    for (int i = 0; i < 20000; ++i) {
      const T x = static_cast<T>(std::exp(logarithm(engine)));
      const T y = static_cast<T>((i % 2 == 0 ? exponent(engine) : near(engine)) / static_cast<double>(x));
      const long double expected = exact(x, y);
      double bound = 1.5 * static_cast<double>(std::numeric_limits<T>::epsilon());
      if (!scales<T, Arch>) {
        bound += std::fabs(static_cast<double>(x) * static_cast<double>(y)) * std::numeric_limits<T>::epsilon() / 2;
      }
      const auto got = static_cast<long double>(one<false, T, Arch>(x, y));
      worst = std::fmax(worst, static_cast<double>(std::fabs(got - expected) / expected) / bound);
      CHECK(bits_of(one<true, T, Arch>(x, y)) == bits_of(one<false, T, Arch>(x, y)));
    }
    INFO("bytes " << sizeof(T) << ", lanes " << (simd::width<T, Arch>));
    CHECK(worst <= 1);
  });
}

TEST_CASE("exp2_product at its ends") {
  for_each_vector([]<class T, class Arch>() {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    constexpr T limit = simd::exp2_product_limit<T>;
    INFO("bytes " << sizeof(T) << ", lanes " << (simd::width<T, Arch>));
    for (const T y : {T(0), T(-0.0), T(1), T(-3e30)}) CHECK(one<false, T, Arch>(T(0), y) == T(1));
    CHECK(one<false, T, Arch>(limit, T(-1)) == T(0));
    CHECK(one<false, T, Arch>(limit, T(1)) == infinity);
    CHECK(one<false, T, Arch>(T(1), T(-1200)) == T(0));
    CHECK(one<false, T, Arch>(T(1200), T(1)) == infinity);
    CHECK(std::isnan(one<false, T, Arch>(std::numeric_limits<T>::quiet_NaN(), T(1))));
    for (const T huge : {limit, std::numeric_limits<T>::max(), infinity}) {
      CHECK(one<true, T, Arch>(huge, -huge) == T(0));
      CHECK(one<true, T, Arch>(huge, huge) == infinity);
      CHECK(one<true, T, Arch>(T(1), -huge) == T(0));
    }
  });
}

#include <ogive/simd/math.hpp>

#include <cmath>
#include <limits>

#include "vectors.hpp"

using namespace ogive;
using namespace ogive::tests;

namespace {

/// |got − exact| in units of the last place of the exact value; 0 where both are the same infinity or both are NaN.
template <class T>
double ulps(T got, long double exact) {
  if (std::isnan(exact)) return std::isnan(got) ? 0.0 : std::numeric_limits<double>::infinity();
  if (static_cast<T>(exact) == got) return 0.0;
  constexpr int digits = std::numeric_limits<T>::digits, lowest = std::numeric_limits<T>::min_exponent;
  int exponent = 0;
  std::frexp(exact, &exponent);
  const long double unit = std::ldexp(1.0L, std::max(exponent, lowest) - digits);
  // What rounds to infinity is one unit above the largest number.
  const long double value = std::isinf(got) ? std::copysign(std::ldexp(1.0L, std::numeric_limits<T>::max_exponent),
                                                            static_cast<long double>(got))
                                            : static_cast<long double>(got);
  return static_cast<double>(std::fabs(value - exact) / unit);
}

struct errors {
  double fused, plain;  // what math.hpp states: with fma and without
};

/// The largest error over samples of [low, high], evenly spread or evenly in the logarithm.
template <class T, class Arch, class F, class Exact>
void check_errors(const char* name, const F& f, const Exact& exact, errors stated, double low, double high,
                  std::mt19937_64& engine, bool logarithmic = false) {
  using V = simd::batch<T, Arch>;
  const double bound = simd::has_fma<T, Arch> ? stated.fused : stated.plain;
  std::uniform_real_distribution<double> draw(logarithmic ? std::log(low) : low, logarithmic ? std::log(high) : high);
  double worst = 0;
  T where = 0;
  for (int i = 0; i < 20000; i += int(V::size)) {
    T x[V::size], y[V::size];
    for (T& one : x) one = static_cast<T>(logarithmic ? std::exp(draw(engine)) : draw(engine));
    simd::store(y, f(simd::load<Arch>(x)));
    for (std::size_t j = 0; j < V::size; ++j) {
      const double error = ulps(y[j], exact(static_cast<long double>(x[j])));
      if (!(error <= worst)) {
        worst = error;
        where = x[j];
      }
    }
  }
  CAPTURE(name, sizeof(T), V::size, low, high, where);
  CHECK(worst <= bound);
}

long double exact_softplus(long double x) { return std::max(x, 0.0L) + std::log1p(std::exp(-std::fabs(x))); }
long double exact_sigmoid(long double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }

}  // namespace

#define OGIVE_FUNCTION(name) [](auto x) { return simd::name(x); }
#define OGIVE_AT(name, x) simd::first(simd::name(V(x)))
#define OGIVE_EXACT(expression) [](long double x) -> long double { return expression; }

TEST_CASE("exponentials keep their stated errors") {
  OGIVE_SEED(seed, 11);
  std::mt19937_64 engine(seed);
  for_each_vector([&]<class T, class Arch>() {
    constexpr bool f = sizeof(T) == 4;
    const double low = f ? -104 : -745, high = f ? 88.8 : 709.9, low2 = f ? -150 : -1075, high2 = f ? 128.1 : 1024.1;
    const auto check = [&](const char* name, const auto& g, const auto& exact, errors stated, double from, double to,
                           bool logarithmic = false) {
      check_errors<T, Arch>(name, g, exact, stated, from, to, engine, logarithmic);
    };
    for (const double scale : {1.0, 0.01}) {
      check("exp", OGIVE_FUNCTION(exp), OGIVE_EXACT(std::exp(x)), {0.95, 1.25}, scale * low, scale * high);
      check("exp2", OGIVE_FUNCTION(exp2), OGIVE_EXACT(std::exp2(x)), {1.0, 1.3}, scale * low2, scale * high2);
      check("expm1", OGIVE_FUNCTION(expm1), OGIVE_EXACT(std::expm1(x)), {2.1, 2.2}, scale * low, scale * high);
    }
    check("expm1", OGIVE_FUNCTION(expm1), OGIVE_EXACT(std::expm1(x)), {2.1, 2.2}, 1e-30, 1, true);
  });
}

TEST_CASE("logarithms keep their stated errors") {
  OGIVE_SEED(seed, 12);
  std::mt19937_64 engine(seed);
  for_each_vector([&]<class T, class Arch>() {
    const double least = double(std::numeric_limits<T>::denorm_min()), most = double(std::numeric_limits<T>::max());
    const auto check = [&](const char* name, const auto& g, const auto& exact, errors stated, double from, double to,
                           bool logarithmic = false) {
      check_errors<T, Arch>(name, g, exact, stated, from, to, engine, logarithmic);
    };
    check("log", OGIVE_FUNCTION(log), OGIVE_EXACT(std::log(x)), {0.95, 0.95}, least, most, true);
    check("log", OGIVE_FUNCTION(log), OGIVE_EXACT(std::log(x)), {0.95, 0.95}, 0.5, 2);
    check("log1p", OGIVE_FUNCTION(log1p), OGIVE_EXACT(std::log1p(x)), {1.6, 1.6}, least, most, true);
    check("log1p", OGIVE_FUNCTION(log1p), OGIVE_EXACT(std::log1p(x)), {1.6, 1.6}, -0.9999, 2);
  });
}

TEST_CASE("softplus, sigmoid and silu keep their stated errors") {
  OGIVE_SEED(seed, 13);
  std::mt19937_64 engine(seed);
  for_each_vector([&]<class T, class Arch>() {
    const double low = sizeof(T) == 4 ? -104 : -745, normal = sizeof(T) == 4 ? -87 : -708;
    const auto check = [&](const char* name, const auto& g, const auto& exact, errors stated, double from, double to) {
      check_errors<T, Arch>(name, g, exact, stated, from, to, engine);
    };
    for (const double scale : {1.0, 0.03}) {
      check("softplus", OGIVE_FUNCTION(softplus), exact_softplus, {1.8, 1.9}, scale * low, scale * 100);
      check("sigmoid", OGIVE_FUNCTION(sigmoid), exact_sigmoid, {2.4, 2.4}, scale * low, scale * 40);
      check("silu", OGIVE_FUNCTION(silu), OGIVE_EXACT(x * exact_sigmoid(x)), {3.1, 3.1}, scale * normal, scale * 40);
    }
  });
}

TEST_CASE("sine and cosine keep their stated errors, far out too") {
  OGIVE_SEED(seed, 14);
  std::mt19937_64 engine(seed);
  for_each_vector([&]<class T, class Arch>() {
    const double limit = sizeof(T) == 4 ? 1e5 : 1e8;
    for (const double range : {1.0, 10.0, limit, 1e4 * limit}) {
      check_errors<T, Arch>("sin", OGIVE_FUNCTION(sin), OGIVE_EXACT(std::sin(x)), {1.6, 3.3}, -range, range, engine);
      check_errors<T, Arch>("cos", OGIVE_FUNCTION(cos), OGIVE_EXACT(std::cos(x)), {1.6, 3.3}, -range, range, engine);
    }
  });
}

TEST_CASE("the worst arguments of the range reduction: next to multiples of π/2") {
  for_each_vector([]<class T, class Arch>() {
    using V = simd::batch<T, Arch>;
    for (int n = 1; n < 60000; n += 7) {
      const T x = static_cast<T>(static_cast<long double>(n) * 1.57079632679489661923132169163975144L);
      V s, c;
      simd::sincos(V(x), s, c);
      const long double exact_s = std::sin(static_cast<long double>(x)),
                        exact_c = std::cos(static_cast<long double>(x));
      const double slack = simd::has_fma<T, Arch> ? 1.6 : 3.3;
      if (ulps(simd::first(s), exact_s) > slack || ulps(simd::first(c), exact_c) > slack) {
        FAIL_CHECK("at " << n << " π/2: " << ulps(simd::first(s), exact_s) << " and " << ulps(simd::first(c), exact_c));
      }
    }
  });
}

TEST_CASE("the edges of the domain") {
  for_each_vector([]<class T, class Arch>() {
    using V = simd::batch<T, Arch>;
    constexpr T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
    constexpr T least = std::numeric_limits<T>::denorm_min(), most = std::numeric_limits<T>::max();
    CAPTURE(sizeof(T), V::size);
    for (const T zero : {T(0), T(-0.0)}) {
      CHECK(OGIVE_AT(exp, zero) == 1);
      CHECK(OGIVE_AT(exp2, zero) == 1);
      CHECK(OGIVE_AT(expm1, zero) == 0);
      CHECK(OGIVE_AT(log, zero) == -inf);
      CHECK(OGIVE_AT(log1p, zero) == 0);
      CHECK(OGIVE_AT(sigmoid, zero) == T(0.5));
      CHECK(OGIVE_AT(silu, zero) == 0);
      CHECK(OGIVE_AT(sin, zero) == 0);
      CHECK(OGIVE_AT(cos, zero) == 1);
    }
    for (const T below : {-inf, -most, T(-1e4)}) {
      CHECK(OGIVE_AT(exp, below) == 0);
      CHECK(OGIVE_AT(exp2, below) == 0);
      CHECK(OGIVE_AT(expm1, below) == -1);
      CHECK(std::isnan(OGIVE_AT(log, below)));
      CHECK(std::isnan(OGIVE_AT(log1p, below)));
      CHECK(OGIVE_AT(softplus, below) == 0);
      CHECK(OGIVE_AT(sigmoid, below) == 0);
      CHECK(OGIVE_AT(silu, below) == 0);
    }
    for (const T above : {inf, most, T(1e4)}) {
      CHECK(OGIVE_AT(exp, above) == inf);
      CHECK(OGIVE_AT(exp2, above) == inf);
      CHECK(OGIVE_AT(expm1, above) == inf);
      CHECK(OGIVE_AT(softplus, above) == above);
      CHECK(OGIVE_AT(sigmoid, above) == 1);
      CHECK(OGIVE_AT(silu, above) == above);
    }
    CHECK(OGIVE_AT(log, inf) == inf);
    CHECK(OGIVE_AT(log1p, inf) == inf);
    CHECK(OGIVE_AT(log1p, T(-1)) == -inf);
    CHECK(OGIVE_AT(log, T(1)) == 0);
    CHECK(OGIVE_AT(log1p, least) == least);
    for (int n = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits;
         n < std::numeric_limits<T>::max_exponent; ++n) {
      CHECK(OGIVE_AT(exp2, T(n)) == std::ldexp(T(1), n));
    }
    for (const auto value : {OGIVE_AT(exp, nan), OGIVE_AT(exp2, nan), OGIVE_AT(expm1, nan), OGIVE_AT(log, nan),
                             OGIVE_AT(log1p, nan), OGIVE_AT(softplus, nan), OGIVE_AT(sigmoid, nan), OGIVE_AT(silu, nan),
                             OGIVE_AT(sin, nan), OGIVE_AT(cos, nan), OGIVE_AT(sin, inf), OGIVE_AT(cos, -inf)}) {
      CHECK(std::isnan(value));
    }
    // softplus falls like the exponential, in float and where 1 + e^x has long been 1
    CHECK(ulps(OGIVE_AT(softplus, T(-80)), std::exp(-80.0L)) <= 1.9);
  });
}

TEST_CASE("a lane, a scalar and every width give the same bits") {
  OGIVE_SEED(seed, 15);
  std::mt19937_64 engine(seed);
  for_each_vector([&]<class T, class Arch>() {
    using V = simd::batch<T, Arch>;
    if (simd::has_fma<T, Arch> != simd::has_fma<T>) return;
    const auto check = [&](const char* name, const auto& f, double low, double high) {
      std::uniform_real_distribution<double> draw(low, high);
      for (int round = 0; round < 200; ++round) {
        T x[V::size];
        for (T& one : x) one = static_cast<T>(draw(engine));
        for (index_t count = 1; count <= simd::width<T, Arch>; ++count) {
          const auto whole = lanes_of(f(simd::load<Arch>(static_cast<const T*>(x), count)));
          for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
            if (bits_of(whole[i]) != bits_of(f(x[i]))) FAIL_CHECK(name << " in lane " << i << " at " << x[i]);
          }
        }
      }
    };
    check("exp", OGIVE_FUNCTION(exp), -100, 80);
    check("exp2", OGIVE_FUNCTION(exp2), -140, 120);
    check("expm1", OGIVE_FUNCTION(expm1), -3, 3);
    check("log", OGIVE_FUNCTION(log), 0, 10);
    check("log1p", OGIVE_FUNCTION(log1p), -1, 10);
    check("softplus", OGIVE_FUNCTION(softplus), -90, 30);
    check("sigmoid", OGIVE_FUNCTION(sigmoid), -30, 30);
    check("silu", OGIVE_FUNCTION(silu), -30, 30);
    check("sin", OGIVE_FUNCTION(sin), -1000, 1000);
    check("cos", OGIVE_FUNCTION(cos), -1e6, 1e6);
  });
}

TEST_CASE("one far lane does not change its neighbours") {
  for_each_vector([]<class T, class Arch>() {
    T x[simd::batch<T, Arch>::size];
    for (T& one : x) one = T(0.75);
    const auto near = lanes_of(simd::sin(simd::load<Arch>(x)));
    x[1] = T(1e12);
    const auto far = lanes_of(simd::sin(simd::load<Arch>(x)));
    for (std::size_t i = 0; i < near.size(); ++i) {
      if (i != 1) CHECK(bits_of(far[i]) == bits_of(near[i]));
    }
    CHECK(far[1] == std::sin(T(1e12)));
  });
}

TEST_CASE("the complex exponential") {
  for_each_vector([]<class T, class Arch>() {
    using V = simd::batch<T, Arch>;
    V re, im;
    simd::cexp(V(T(-0.5)), V(T(2)), re, im);
    CHECK(ulps(simd::first(re), std::exp(-0.5L) * std::cos(2.0L)) <= 5);
    CHECK(ulps(simd::first(im), std::exp(-0.5L) * std::sin(2.0L)) <= 5);
  });
}

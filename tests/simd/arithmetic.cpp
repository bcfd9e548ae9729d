#include <cmath>
#include <limits>

#include "vectors.hpp"

using namespace ogive;
using namespace ogive::tests;

TEST_CASE("fma rounds once where the machine has it") {
  for_each_vector([]<class T, class Arch>() {
    using V = simd::batch<T, Arch>;
    const T eps = std::numeric_limits<T>::epsilon();
    const V a(T(1) + eps), c(T(1) + 2 * eps);
    const T once = simd::has_fma<T, Arch> ? eps * eps : T(0);  // (1 + ε)² = 1 + 2ε + ε²
    for (const T x : lanes_of(simd::fma(a, a, -c))) CHECK(x == once);
    for (const T x : lanes_of(simd::fnma(a, a, c))) CHECK(x == -once);
#if defined(__FMA__)
    CHECK(simd::has_fma<T, Arch>);
#endif
  });
}

TEST_CASE("quotients and roots are rounded correctly") {
  OGIVE_SEED(seed, 6);
  std::mt19937_64 engine(seed);
  for_each_vector([&]<class T, class Arch>() {
    constexpr index_t W = simd::width<T, Arch>;
    for (int round = 0; round < 200; ++round) {
      const auto a = random_numbers<T>(W, engine), b = random_numbers<T>(W, engine);
      const auto x = simd::load<Arch>(a.data()), y = simd::load<Arch>(b.data());
      const auto quotient = lanes_of(simd::divide(x, y)), root = lanes_of(simd::sqrt(simd::abs(x)));
      for (std::size_t i = 0; i < a.size(); ++i) {
        if (bits_of(quotient[i]) != bits_of(a[i] / b[i])) FAIL_CHECK(a[i] << " / " << b[i]);
        if (bits_of(root[i]) != bits_of(std::sqrt(std::abs(a[i])))) FAIL_CHECK("root of " << a[i]);
      }
    }
  });
}

TEST_CASE("sums over lanes are the halving tree, one by one and all at once") {
  OGIVE_SEED(seed, 5);
  std::mt19937_64 engine(seed);
  for_each_vector([&]<class T, class Arch>() {
    using V = simd::batch<T, Arch>;
    constexpr std::size_t W = V::size;
    V rows[W];
    T tree[W];
    for (std::size_t i = 0; i < W; ++i) {
      auto lane = random_numbers<T>(static_cast<index_t>(W), engine);
      rows[i] = simd::load<Arch>(lane.data());
      for (std::size_t half = W / 2; half > 0; half /= 2)
        for (std::size_t j = 0; j < half; ++j) lane[j] += lane[j + half];
      tree[i] = lane[0];
      CHECK(bits_of(simd::reduce_add(rows[i])) == bits_of(tree[i]));
    }
    const auto sums = lanes_of(simd::reduce_add_all(rows));
    for (std::size_t i = 0; i < W; ++i) CHECK(bits_of(sums[i]) == bits_of(tree[i]));
  });
}

TEST_CASE("largest and smallest lane, wherever it is") {
  for_each_vector([]<class T, class Arch>() {
    constexpr index_t W = simd::width<T, Arch>;
    for (index_t place = 0; place < W; ++place) {
      T lane[simd::batch<T, Arch>::size] = {};
      lane[place] = T(5);
      CHECK(simd::reduce_max(simd::load<Arch>(lane)) == T(5));
      lane[place] = T(-5);
      CHECK(simd::reduce_min(simd::load<Arch>(lane)) == T(-5));
    }
  });
}

TEST_CASE("pairs of lanes are split and joined") {
  for_each_vector([]<class T, class Arch>() {
    using vector = simd::batch<T, Arch>;
    const auto a = simd::iota<T, Arch>(), b = a + vector(static_cast<T>(simd::width<T, Arch>));
    const auto split = simd::split_pairs(a, b);
    auto first = lanes_of(split.first), second = lanes_of(split.second);
    for (std::size_t i = 0; i < first.size(); ++i) CHECK(second[i] == first[i] + T(1));
    std::sort(first.begin(), first.end());
    for (std::size_t i = 0; i < first.size(); ++i) CHECK(first[i] == T(2 * i));
    const auto joined = simd::join_pairs(split.first, split.second);
    CHECK(lanes_of(joined.first) == lanes_of(a));
    CHECK(lanes_of(joined.second) == lanes_of(b));
  });
}

TEST_CASE("transpose") {
  for_each_vector([]<class T, class Arch>() {
    using V = simd::batch<T, Arch>;
    constexpr std::size_t W = V::size;
    V rows[W];
    for (std::size_t i = 0; i < W; ++i) rows[i] = simd::iota<T, Arch>() + V(T(100 * i));
    simd::transpose(rows);
    for (std::size_t i = 0; i < W; ++i) {
      const auto lane = lanes_of(rows[i]);
      for (std::size_t j = 0; j < W; ++j) CHECK(lane[j] == T(100 * j + i));
    }
  });
}

TEST_CASE("first_n, select, min and max") {
  for_each_vector([]<class T, class Arch>() {
    using V = simd::batch<T, Arch>;
    constexpr index_t W = simd::width<T, Arch>;
    for (index_t count = 0; count <= W; ++count) {
      const auto lane = lanes_of(simd::select(simd::first_n<T, Arch>(count), V(T(1)), V(T(2))));
      for (index_t i = 0; i < W; ++i) CHECK(lane[static_cast<std::size_t>(i)] == (i < count ? T(1) : T(2)));
    }
    CHECK(simd::first(simd::min(V(T(1)), V(T(2)))) == T(1));
    CHECK(simd::first(simd::max(V(T(1)), V(T(2)))) == T(2));
    CHECK(std::isnan(simd::first(simd::min(V(T(1)), V(std::numeric_limits<T>::quiet_NaN())))));
    CHECK(std::isnan(simd::first(simd::max(V(T(1)), V(std::numeric_limits<T>::quiet_NaN())))));
    CHECK(simd::any(simd::iota<T, Arch>() > V(T(W) - T(1.5))));
    CHECK_FALSE(simd::any(simd::iota<T, Arch>() > V(T(W))));
  });
}

TEST_CASE("scale2 rounds once, into the subnormals and to infinity") {
  for_each_vector([]<class T, class Arch>() {
    using V = simd::batch<T, Arch>;
    const int lowest = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits - 2;
    const T x = T(1) + 7 * std::numeric_limits<T>::epsilon();
    for (int n = lowest; n <= std::numeric_limits<T>::max_exponent + 1; ++n) {
      CAPTURE(n);
      CHECK(bits_of(simd::first(simd::scale2(V(x), V(T(n))))) == bits_of(std::ldexp(x, n)));
    }
  });
}

#include "vectors.hpp"

using namespace ogive;
using namespace ogive::tests;

TEST_CASE("partial loads and stores touch exactly the elements they name") {
  for_each_vector([]<class T, class Arch>() {
    constexpr index_t W = simd::width<T, Arch>;
    const guarded<T> memory;
    for (index_t count = 0; count <= W; ++count) {
      for (T* const p : {memory.begin(), memory.end() - count}) {
        CAPTURE(W, count, p == memory.begin());
        std::fill(memory.begin(), memory.end(), T(-1));
        for (index_t i = 0; i < count; ++i) p[i] = T(i + 1);
        const auto read = lanes_of(simd::load<Arch>(static_cast<const T*>(p), count));
        for (index_t i = 0; i < W; ++i) CHECK(read[static_cast<std::size_t>(i)] == (i < count ? T(i + 1) : T(0)));

        simd::store(p, simd::iota<T, Arch>() + simd::batch<T, Arch>(T(10)), count);
        for (index_t i = 0; i < count; ++i) CHECK(p[i] == T(i + 10));
        const auto untouched = std::count(memory.begin(), memory.end(), T(-1));
        CHECK(untouched == memory.size() - count);
      }
    }
  });
}

TEST_CASE("a count beyond the width means the width") {
  for_each_vector([]<class T, class Arch>() {
    constexpr index_t W = simd::width<T, Arch>;
    const guarded<T> memory;
    T* const p = memory.end() - W;
    for (index_t i = 0; i < W; ++i) p[i] = T(i);
    CHECK(lanes_of(simd::load<Arch>(static_cast<const T*>(p), W + 5)) == lanes_of(simd::iota<T, Arch>()));
    simd::store(p, simd::batch<T, Arch>(T(3)), 100 * W);
    CHECK(std::count(memory.begin(), memory.end(), T(3)) == W);
  });
}

namespace {

/// Loads and stores of S in a batch of T against one conversion at a time.
template <class S, class T, class Arch>
void check_storage(std::mt19937_64& engine) {
  constexpr index_t W = simd::width<T, Arch>;
  const guarded<S> memory;
  const auto values = random_numbers<T>(W, engine);
  for (index_t count = 0; count <= W; ++count) {
    CAPTURE(sizeof(S), sizeof(T), W, count);
    S* const p = memory.end() - count;
    simd::store_as(p, simd::load<Arch>(values.data()), count);
    for (index_t i = 0; i < count; ++i) {
      CHECK(static_cast<T>(p[i]) == static_cast<T>(static_cast<S>(values[static_cast<std::size_t>(i)])));
    }
    const auto back = lanes_of(simd::load_as<T, Arch>(static_cast<const S*>(p), count));
    for (index_t i = 0; i < W; ++i) {
      CHECK(back[static_cast<std::size_t>(i)] == (i < count ? static_cast<T>(p[i]) : T(0)));
    }
  }
  for (const index_t stride : {1, 3, 0, -2}) {
    for (index_t count = 0; count <= W; ++count) {
      CAPTURE(sizeof(S), sizeof(T), W, stride, count);
      S* const p = stride < 0 ? memory.end() - 1 : memory.begin();
      std::fill(memory.begin(), memory.end(), static_cast<S>(T(9)));
      simd::store_strided(p, stride, simd::load<Arch>(values.data()), count);
      const auto back = lanes_of(simd::load_strided<T, Arch>(static_cast<const S*>(p), stride, count));
      for (index_t i = 0; i < W; ++i) {
        CHECK(back[static_cast<std::size_t>(i)] == (i < count ? static_cast<T>(p[i * stride]) : T(0)));
      }
      const index_t written = stride == 0 ? std::min<index_t>(count, 1) : count;
      const auto untouched = std::count_if(memory.begin(), memory.end(), [](S x) { return static_cast<T>(x) == T(9); });
      CHECK(untouched == memory.size() - written);
    }
  }
}

}  // namespace

TEST_CASE("storage types are converted on the way, whole, partial and strided") {
  OGIVE_SEED(seed, 3);
  std::mt19937_64 engine(seed);
  for_each_vector([&]<class T, class Arch>() {
    check_storage<float16, T, Arch>(engine);
    check_storage<bfloat16, T, Arch>(engine);
    check_storage<float, T, Arch>(engine);
    check_storage<double, T, Arch>(engine);
  });
}

TEST_CASE("every 16-bit pattern reads as its value") {
  for_each_vector([]<class T, class Arch>() {
    const auto check = []<class S>(S) {
      S buffer[simd::batch<T, Arch>::size];
      for (std::uint32_t first = 0; first < 0x10000U; first += simd::batch<T, Arch>::size) {
        for (std::size_t i = 0; i < std::size(buffer); ++i) buffer[i].bits = static_cast<std::uint16_t>(first + i);
        const auto got = lanes_of(simd::load_as<T, Arch>(buffer));
        for (std::size_t i = 0; i < std::size(buffer); ++i) {
          const T expected = static_cast<T>(static_cast<float>(buffer[i]));
          if (bits_of(got[i]) != bits_of(expected) && !(std::isnan(got[i]) && std::isnan(expected))) {
            FAIL_CHECK("pattern " << buffer[i].bits << " read as " << got[i] << ", is " << expected);
          }
        }
      }
    };
    check(float16(0));
    check(bfloat16(0));
  });
}

TEST_CASE("rounding to 16 bits is to nearest, ties to even, on every path") {
  OGIVE_SEED(seed, 4);
  std::mt19937_64 engine(seed);
  std::vector<float> inputs;
  for (std::uint32_t high = 0; high < 0x10000U; high += 7) {  // around the halfway points of both types
    for (const std::uint32_t low : {0x0000U, 0x0fffU, 0x1000U, 0x1001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      inputs.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  for (int i = 0; i < 50000; ++i) inputs.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(engine())));
  inputs.resize(inputs.size() / 64 * 64);
  for_each_vector([&]<class T, class Arch>() {
    const auto check = [&]<class S>(S) {
      constexpr std::size_t W = simd::batch<T, Arch>::size;
      for (std::size_t i = 0; i < inputs.size(); i += W) {
        S got[W];
        simd::store_as(got, simd::load_as<T, Arch>(inputs.data() + i));
        for (std::size_t j = 0; j < W; ++j) {
          const S expected(inputs[i + j]);
          if (got[j].bits != expected.bits && !(std::isnan(float(got[j])) && std::isnan(inputs[i + j]))) {
            FAIL_CHECK(inputs[i + j] << " stored as " << got[j].bits << ", should be " << expected.bits);
          }
        }
      }
    };
    check(float16(0));
    check(bfloat16(0));
  });
}

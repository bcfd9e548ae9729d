// What the tests of simd and linalg share: every width of the build, memory with guard pages, random numbers.
#pragma once

#include <ogive/simd/batch.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "../catch.hpp"

namespace ogive::tests {

/// f.operator()<T, Arch>() for float and double on every register width.
template <class F, class... Archs>
void for_each_vector(const F& f, simd::arch_list<Archs...>) {
  ((f.template operator()<float, Archs>(), f.template operator()<double, Archs>()), ...);
}
template <class F>
void for_each_vector(const F& f) {
  for_each_vector(f, simd::all_archs{});
}

template <class T>
auto bits_of(T x) {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<std::uint32_t>(x);
  } else {
    return std::bit_cast<std::uint64_t>(x);
  }
}

/// Pages for at least `count` T between two pages that may not be touched.
template <class T>
class guarded {
 public:
  explicit guarded(index_t count = 1) : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    held_ = (static_cast<std::size_t>(count) * sizeof(T) + page_ - 1) / page_ * page_;
    void* memory = mmap(nullptr, held_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    base_ = static_cast<char*>(memory);
    REQUIRE(mprotect(base_ + page_, held_, PROT_READ | PROT_WRITE) == 0);
  }
  ~guarded() { munmap(base_, held_ + 2 * page_); }
  guarded(const guarded&) = delete;
  guarded& operator=(const guarded&) = delete;

  T* begin() const { return reinterpret_cast<T*>(base_ + page_); }
  T* end() const { return reinterpret_cast<T*>(base_ + page_ + held_); }
  index_t size() const { return end() - begin(); }

 private:
  std::size_t page_, held_;
  char* base_;
};

/// Numbers in [−1, 1).
template <class T>
std::vector<T> random_numbers(index_t count, std::mt19937_64& engine) {
  std::uniform_real_distribution<double> draw(-1.0, 1.0);
  std::vector<T> numbers(static_cast<std::size_t>(count));
  for (T& x : numbers) x = static_cast<T>(draw(engine));
  return numbers;
}

template <class T, class Arch>
std::vector<T> lanes_of(const simd::batch<T, Arch>& x) {
  std::vector<T> lanes(simd::batch<T, Arch>::size);
  simd::store(lanes.data(), x);
  return lanes;
}

}  // namespace ogive::tests

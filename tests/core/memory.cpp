#include <ogive/core/context.hpp>
#include <ogive/core/memory.hpp>
#include <ogive/core/tensor.hpp>

#include "tests/catch.hpp"

#include <limits>
#include <vector>

namespace {

bool starts_at(const void* memory, std::size_t boundary) {
  return reinterpret_cast<std::uintptr_t>(memory) % boundary == 0;
}

}  // namespace

TEST_CASE("large tensors and scratch start at a large page, small ones at a cache line") {
  const auto large = static_cast<ogive::index_t>(ogive::core::large_page);
  for (const ogive::index_t size : {large / 2, large, large + 1, 3 * large - 5}) {
    const ogive::tensor<unsigned char, 1> bytes({size}, 7);
    CHECK(starts_at(bytes.data(), ogive::core::large_page));
    CHECK(bytes(size - 1) == 7);
    ogive::tensor<unsigned char, 1> moved(bytes);
    ogive::tensor<unsigned char, 1> small({3});
    moved = std::move(small);  // each block goes back as it came
    CHECK(moved.size() == 3);
  }
  CHECK(starts_at(ogive::tensor<float, 1>({16}).data(), 64));
  ogive::context ctx;
  ctx.reserve(2 * ogive::core::large_page);
  CHECK(starts_at(ctx.scratch(0, 64).take<char>(1), ogive::core::large_page));
}

TEST_CASE("advice about memory that covers no whole large page is not taken") {
  CHECK_FALSE(ogive::advise_large_pages({}));
  std::vector<std::byte> memory(3 * ogive::core::large_page);
  CHECK_FALSE(ogive::advise_large_pages({memory.data() + 1, ogive::core::large_page - 1}));
  ogive::advise_large_pages({memory.data() + 1, memory.size() - 1});  // from where it begins, only whole pages
  memory.back() = std::byte{1};
  CHECK(memory.front() == std::byte{0});
}

TEST_CASE("memory that there cannot be is refused, and is not next to nothing") {
  using ogive::tensor;
  constexpr ogive::index_t half = ogive::index_t{1} << 32, most = std::numeric_limits<ogive::index_t>::max();
  CHECK_THROWS_AS((tensor<float, 1>({most / 2 + 2})), ogive::shape_error);  // a multiple of 2^64 bytes, and 4
  CHECK_THROWS_AS((tensor<float, 2>({half, half})), ogive::shape_error);
  CHECK_THROWS_AS((tensor<float, 3>({0, half, half})), ogive::shape_error);
  CHECK_THROWS_AS((tensor<float, 2>({2, 1}, {most / 2 + 1, 1}, 0.0F)), ogive::shape_error);
  CHECK_THROWS_AS((tensor<float, 2>({3, 1}, {most, 1}, 0.0F)), ogive::shape_error);
  ogive::context ctx;
  ctx.reserve(64);
  CHECK_THROWS_AS(ctx.reserve(std::numeric_limits<std::size_t>::max()), std::invalid_argument);
  CHECK(ctx.capacity() == 0);
  ctx.reserve(64);
  CHECK(ctx.capacity() == 64);
}

// What is prepared does not allocate any more, nor do verbs in a context that has room.
#include <ogive/ops/lti.hpp>
#include <ogive/ops/prepared.hpp>
#include <ogive/ops/s5.hpp>

#include <atomic>
#include <cstdlib>
#include <new>

#include "../catch.hpp"

namespace {

std::atomic<int> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1);
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

TEST_CASE("systems with a shared state allocate when they are prepared, and never again", "[realtime]") {
  using namespace ogive;
  constexpr index_t B = 2, L = 50, M = 5, N = 19;
  tensor<float, 3> u({B, L, M}, 0.5F), y({B, L, M});
  tensor<float, 2> A({N, N}, 0.01F), in({N, M}, 1.0F), out({M, N}, 1.0F), h({B, N});
  tensor<std::complex<float>, 1> poles({N}, {-1, 2});
  tensor<std::complex<float>, 2> in_modes({N, M}, 1), out_modes({M, N}, 1), h_modes({B, N});
  const float dt = 0.1F;
  const lti<float> dense{.u = u, .A_bar = A, .B_bar = in, .C = out};
  const s5<float> modes{.u = u, .A = poles, .B = in_modes, .C = out_modes, .dt = {&dt, {N}, {0}}};
  auto ready = prepare(dense, {.sequences = B});
  auto filter = prepare(modes, {.sequences = B});
  context ctx;
  ctx.reserve(std::max(scratch_bytes(dense), scratch_bytes(modes)));

  const view<const float, 3> all = u;
  const view<float, 3> to = y;
  allocations = 0;
  ready.step(all, to);
  filter.step(all.slice(1, 0, 1), to.slice(1, 0, 1));
  filter.set_rate(2);
  filter.forward(all, to);
  filter.reset();
  recurrent(dense, h.all(), to, {}, ctx);
  step(modes, h_modes.all(), to, {}, ctx);
  CHECK(allocations.load() == 0);
  const tensor<float, 1> seen({1});
  CHECK(allocations.load() > 0);
}

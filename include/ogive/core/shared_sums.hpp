// L1: sums that every task of a call adds to, such as gradients of parameters that all of them read.
#pragma once

#include <ogive/core/context.hpp>

namespace ogive::core {

/// Places for the sums of tasks, of each worker: so many run between two additions.
inline constexpr index_t sum_places = 8;

/// Bytes at the end of each worker's scratch that hold them.
template <class Acc>
constexpr std::size_t summed_bytes(index_t size) noexcept {
  arena counted;
  for (index_t place = 0; place < sum_places && size > 0; ++place) counted.take<Acc>(size);
  return counted.used();
}

/// `task(n, memory, sums)` for n = 0 … count−1, each with `size` zeros of its own to add to; then `to.add(sums)` for
/// each of them in the order of n, whoever ran it: the bits are the same for any number of workers. `to.clear()` comes
/// first, unless they are added to what is there. With a size of 0 there are no sums, but null. `run(count, body)` runs
/// body(task, memory), each worker in `bytes`, of which the last are summed_bytes. The members of a team share no
/// memory, so that one of them does it all.
template <class Acc, class Run, class To, class Task>
void run_summed(context& ctx, index_t count, std::size_t bytes, index_t size, const Run& run, const To& to,
                bool accumulate, const Task& task) noexcept {
  if (size == 0) {
    return run(count, [&](index_t n, const arena& memory) noexcept { task(n, memory, static_cast<Acc*>(nullptr)); });
  }
  const index_t workers = ctx.workers();
  const std::size_t before = bytes - summed_bytes<Acc>(size);
  const auto place = [&](index_t n) noexcept {
    arena own = ctx.scratch(n % workers, bytes);
    own.take<std::byte>(static_cast<index_t>(before));
    Acc* sums = nullptr;
    for (index_t i = 0; i <= n / workers; ++i) sums = own.take<Acc>(size);
    return sums;
  };
  const auto one = [&](index_t n, const arena& memory, Acc* sums) noexcept {
    std::fill_n(sums, size, Acc(0));
    task(n, memory, sums);
  };
  const auto begin = [&]() noexcept {
    if (!accumulate) to.clear();
  };
  if (workers == 1) {
    run(1, [&](index_t, const arena& memory) noexcept {
      begin();
      for (index_t n = 0; n < count; ++n) {
        one(n, memory, place(0));
        to.add(place(0));
      }
    });
    return;
  }
  run(1, [&](index_t, const arena&) noexcept { begin(); });
  for (index_t first = 0; first < count; first += sum_places * workers) {
    const index_t some = std::min(sum_places * workers, count - first);
    run(some, [&](index_t n, const arena& memory) noexcept { one(first + n, memory, place(n)); });
    run(1, [&](index_t, const arena&) noexcept {
      for (index_t n = 0; n < some; ++n) to.add(place(n));
    });
  }
}

}  // namespace ogive::core

// L5: tasks in a context, subnormal numbers as the context says.
#pragma once

#include <ogive/core/shared_sums.hpp>
#include <ogive/simd/batch.hpp>
#include <ogive/simd/flush.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// Runs body(task, arena) or body(task, arena, worker) for all tasks, with subnormal numbers flushed where the context
/// says so. The context has room. The body must be a call that is not inlined.
template <class Body>
void run_tasks(context& ctx, index_t count, std::size_t bytes, const Body& body) noexcept {
  const auto call = [&](index_t task, arena memory, int worker) noexcept {
    if constexpr (std::is_invocable_v<const Body&, index_t, arena, int>) {
      body(task, memory, worker);
    } else {
      body(task, memory);
    }
  };
  ctx.run(count, bytes, [&](index_t task, arena memory, int worker) noexcept {
    if (ctx.flush()) {
      const flush_subnormals flushed;
      call(task, memory, worker);
    } else {
      call(task, memory, worker);
    }
    simd::stream_fence();
  });
}

/// Runs body(task, arena, sums) for all tasks, which add to what they share as core::run_summed has it.
template <class Acc, class To, class Body>
void run_summed_tasks(context& ctx, index_t count, std::size_t bytes, index_t size, const To& to, bool accumulate,
                      const Body& body) noexcept {
  core::run_summed<Acc>(
      ctx, count, bytes, size, [&](index_t tasks, const auto& task) noexcept { run_tasks(ctx, tasks, bytes, task); },
      to, accumulate, body);
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

// L5: tasks in a context, subnormal numbers as the context says.
#pragma once

#include <ogive/core/context.hpp>
#include <ogive/simd/batch.hpp>
#include <ogive/simd/flush.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// Runs body(task, arena) for all tasks, with subnormal numbers flushed where the context says so. The context has
/// room. The body must be a call that is not inlined.
template <class Body>
void run_tasks(context& ctx, index_t count, std::size_t bytes, const Body& body) noexcept {
  ctx.run(count, bytes, [&](index_t task, arena memory) noexcept {
    if (ctx.flush()) {
      const flush_subnormals flushed;
      body(task, memory);
    } else {
      body(task, memory);
    }
    simd::stream_fence();
  });
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

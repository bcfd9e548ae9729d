#include <ogive/core/context.hpp>

#include <vector>

#include "../catch.hpp"

using namespace ogive;

namespace {

/// Runs 12 tasks in a context of three workers; each task adds one to its own place.
template <class Pool>
std::vector<int> run_tasks(Pool& pool) {
  context forked = context::fork_join(pool, 3);
  std::vector<int> ran(12);
  forked.run(12, 0, [&](index_t task, arena) noexcept { ++ran[static_cast<std::size_t>(task)]; });
  return ran;
}

}  // namespace

TEST_CASE("a pool may be const or not") {
  const std::vector<int> once(12, 1);
  const auto in_turn = [](int workers, const worker_body& body) {
    for (int w = 0; w < workers; ++w) body(w);
  };
  CHECK(run_tasks(in_turn) == once);

  int forks = 0;
  auto counting = [&forks](int workers, const worker_body& body) mutable {
    ++forks;
    for (int w = workers - 1; w >= 0; --w) body(w);
  };
  CHECK(run_tasks(counting) == once);
  CHECK(forks == 1);
}

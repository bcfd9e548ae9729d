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

TEST_CASE("a context keeps one object of each type, and takes them along") {
  struct counted {
    int number = 0;
  };
  struct other {
    double number = 1;
  };
  context first;
  first.cache<counted>().number = 7;
  CHECK(first.cache<other>().number == 1);
  const counted* address = &first.cache<counted>();
  context second = std::move(first);
  CHECK(&second.cache<counted>() == address);
  CHECK(second.cache<counted>().number == 7);
}

TEST_CASE("only a serial context that is no member of a team works alone") {
  const auto pool = [](int count, const worker_body& body) {
    for (int w = 0; w < count; ++w) body(w);
  };
  CHECK(context().alone());
  CHECK(context::fork_join(pool, 1).alone());
  CHECK_FALSE(context::fork_join(pool, 2).alone());
  CHECK_FALSE(context::of({.ith = 0, .nth = 2}).alone());
}

TEST_CASE("a body may ask which worker runs it") {
  const auto in_turn = [](int workers, const worker_body& body) {
    for (int w = 0; w < workers; ++w) body(w);
  };
  context forked = context::fork_join(in_turn, 3);
  std::vector<int> by(12, -1);
  forked.run(12, 0, [&](index_t task, arena, int worker) noexcept { by[static_cast<std::size_t>(task)] = worker; });
  for (const int worker : by) CHECK((worker >= 0 && worker < 3));
}

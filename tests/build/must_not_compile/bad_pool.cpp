// error: a pool is called as pool\(n, body\) with an int and a const worker_body&
#include <ogive/core/context.hpp>

struct in_turn {
#if !defined(OGIVE_BREAK)
  void operator()(int workers, const ogive::worker_body& body) {
    for (int w = 0; w < workers; ++w) body(w);
  }
#else
  void operator()(int, void (*)(int)) {}
#endif
};
in_turn pool;

const ogive::context context = ogive::context::fork_join(pool, 2);

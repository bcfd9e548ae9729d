// error: the context keeps the pool by reference: give it a variable that outlives the context
#include <ogive/core/context.hpp>

struct in_turn {
  void operator()(int workers, const ogive::worker_body& body) const {
    for (int w = 0; w < workers; ++w) body(w);
  }
};
const in_turn pool;

#if defined(OGIVE_BREAK)
const ogive::context context = ogive::context::fork_join(in_turn(), 2);
#else
const ogive::context context = ogive::context::fork_join(pool, 2);
#endif

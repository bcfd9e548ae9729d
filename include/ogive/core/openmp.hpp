// L1: OpenMP as the fork-join pool of a context. Without -fopenmp it runs the workers one after another.
#pragma once

#include <ogive/core/context.hpp>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace ogive {
inline namespace OGIVE_ABI {

struct openmp_pool {
  void operator()(int workers, const worker_body& body) const {
#if defined(_OPENMP)
#pragma omp parallel num_threads(workers)
    {
      // Inside a region that gives fewer threads than asked for, the threads there are share the bodies.
      for (int worker = omp_get_thread_num(); worker < workers; worker += omp_get_num_threads()) body(worker);
    }
#else
    for (int worker = 0; worker < workers; ++worker) body(worker);
#endif
  }
};

/// A context that forks OpenMP threads; 0 workers means as many as OpenMP would use.
inline context openmp_context(int workers = 0) {
  static openmp_pool pool;
#if defined(_OPENMP)
  if (workers <= 0) workers = omp_get_max_threads();
#endif
  return context::fork_join(pool, workers);
}

}  // namespace OGIVE_ABI
}  // namespace ogive

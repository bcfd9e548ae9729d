// How long things take.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>

namespace ogive::bench {

inline double wall_seconds() noexcept {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The processor time of the calling thread: whoever else uses the machine is not counted. Kernels of one thread never
/// wait, so on an idle machine it is the time on the wall.
inline double thread_seconds() noexcept {
#if defined(CLOCK_THREAD_CPUTIME_ID)
  std::timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
#else
  return wall_seconds();
#endif
}

/// Whether the environment asks, by OGIVE_BENCH_ONCE, that things be run and not measured: a smoke test.
inline bool only_once() noexcept { return std::getenv("OGIVE_BENCH_ONCE") != nullptr; }

class stopwatch {
 public:
  explicit stopwatch(int threads) noexcept : now_(threads == 1 ? thread_seconds : wall_seconds) {}

  /// Seconds of one call of each work: the least of several samples, since whatever disturbs a measurement makes it
  /// longer. The works take turns, so that a disturbance meets all of them; short ones are repeated within a sample.
  /// After `budget` seconds it is enough.
  template <class... Work>
  std::array<double, sizeof...(Work)> least(double budget, const Work&... work) const {
    constexpr double sample = 1e-4;
    constexpr int rounds = 3;
    constexpr double patience = 6;  // seconds after which fewer must do
    const double begin = wall_seconds();
    std::array<double, sizeof...(Work)> seconds{one(work, 1)...};
    if (only_once()) return seconds;
    seconds = {one(work, 1)...};  // the first call was a cold one
    std::array<int, sizeof...(Work)> calls{};
    for (std::size_t i = 0; i < calls.size(); ++i) {
      calls[i] = static_cast<int>(std::clamp(sample / seconds[i], 1.0, 1e4));
    }
    for (int round = 1;; ++round) {
      std::size_t i = 0;
      ((seconds[i] = std::min(seconds[i], one(work, calls[i])), ++i), ...);
      const double spent = wall_seconds() - begin;
      if (spent > patience || (round >= rounds && spent > budget)) return seconds;
    }
  }

 private:
  template <class Work>
  double one(const Work& work, int calls) const {
    const double begin = now_();
    for (int call = 0; call < calls; ++call) work();
    return std::max(now_() - begin, 1e-9) / calls;
  }

  double (*now_)() noexcept;
};

}  // namespace ogive::bench

#include <algorithm>
#include <bench/crossover/progress.hpp>
#include <cstdio>

#if __has_include(<unistd.h>)
#include <unistd.h>
#endif

namespace ogive::crossover {

progress::progress(bool quiet) : quiet_(quiet), terminal_(false) {
#if __has_include(<unistd.h>)
  terminal_ = isatty(STDERR_FILENO) == 1;
#endif
}

void progress::step(const std::string& stage, const std::string& detail, double share) {
  done_ += share_;
  share_ = share;
  if (quiet_ || (!terminal_ && stage == stage_)) return;
  stage_ = stage;
  const double percent = 100 * std::min(1.0, done_ / total_);
  if (terminal_) {
    std::fprintf(stderr, "\r\033[K[%3.0f %%] %s %s", percent, stage.c_str(), detail.c_str());
  } else {
    std::fprintf(stderr, "[%3.0f %%] %s\n", percent, stage.c_str());
  }
  std::fflush(stderr);
  shown_ = true;
}

void progress::clear() {
  if (shown_ && terminal_) std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace ogive::crossover

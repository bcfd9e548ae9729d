// What the tests of the real-time promise watch with: counts of calls that allocate, lock or look at a clock, kept by
// realtime.cpp, which stands in their place in the whole program, and a child that may not call the system.
#pragma once

#include <atomic>

#include "tests/catch.hpp"

#if defined(__linux__)
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

#if defined(__linux__) && defined(__GLIBC__) && !defined(SANITIZED)
#define HOOKED 1

namespace ogive::tests {

inline std::atomic<bool> watching{false};
inline std::atomic<int> calls{0};
inline std::atomic<const char*> last_call{""};

inline void seen(const char* what) noexcept {
  if (!watching.load(std::memory_order_relaxed)) return;
  calls.fetch_add(1);
  last_call.store(what);
}

/// Calls that `call` makes and that are watched for.
template <class Call>
int count_calls(const Call& call) {
  calls = 0;
  watching = true;
  call();
  watching = false;
  return calls.load();
}

/// Whether `call` comes back in a child that the kernel kills at its first system call other than read, write and exit.
template <class Call>
bool stays_in_user_space(const Call& call) {
  constexpr int without_the_mode = 77;
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) _exit(without_the_mode);
    call();
    syscall(SYS_exit, 0);
  }
  int how = 0;
  REQUIRE(waitpid(child, &how, 0) == child);
  REQUIRE_FALSE((WIFEXITED(how) && WEXITSTATUS(how) == without_the_mode));
  return WIFEXITED(how);
}

}  // namespace ogive::tests

#endif

// Two units of different vector width in one program: each catches the other's errors.
#include "units.hpp"

#include <cstdio>

using namespace two_isas;

int main() {
  constexpr int skipped = 77;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return skipped;
  int failed = 0;
  const auto check = [&](bool ok, const char* what) {
    if (!ok) std::printf("failed: %s\n", what);
    failed += ok ? 0 : 1;
  };
  check(narrow_catches(narrow_fails), "the narrow unit catches its own error");
  check(narrow_catches(wide_fails), "the narrow unit catches the wide unit's error");
  check(wide_catches(narrow_fails), "the wide unit catches the narrow unit's error");
  check(wide_catches(wide_fails), "the wide unit catches its own error");
  return failed;
}

// Built without exceptions: a refused call ends in the program's own handler.
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

[[noreturn]] void handler(const char* text) {
  std::exit(std::strstr(text, "5 elements cannot be seen as [2, 3]") != nullptr ? 0 : 1);
}

}  // namespace

#define OGIVE_FAIL(text) handler(text)
#include <ogive/core/tensor.hpp>

#include <vector>

int main() {
  const std::vector<float> five(5);
  static_cast<void>(ogive::view<const float, 2>(five, {2, 3}));
  std::puts("the refused call returned");
  return 1;
}

// Built without exceptions and run-time type information: a refused call ends in the program's own handler.
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

[[noreturn]] void handler(const char* text) {
  std::puts(text);
  std::exit(std::strstr(text, "ssd") != nullptr && std::strstr(text, "[1, 2, 3]") != nullptr ? 0 : 1);
}

}  // namespace

#define OGIVE_FAIL(text) handler(text)
#include <ogive/core/tensor.hpp>
#include <ogive/ops/ssd.hpp>

int main() {
  ogive::tensor<float, 4> x({1, 2, 3, 4});
  const ogive::tensor<float, 3> dt({1, 2, 3}, 1.0F);
  const ogive::tensor<float, 1> A({3}, -1.0F);
  const ogive::tensor<float, 4> B({1, 2, 1, 5});
  ogive::tensor<float, 4> y({1, 2, 3, 4});
  const ogive::ssd<float> fits{.x = x, .dt = dt, .A = A, .B = B, .C = B};
  ogive::forward(fits, {}, y);

  const ogive::tensor<float, 3> short_dt({1, 1, 3}, 1.0F);
  const ogive::ssd<float> refused{.x = x, .dt = short_dt, .A = A, .B = B, .C = B};
  ogive::forward(refused, {}, y);
  std::puts("the refused call returned");
  return 1;
}

#include <ogive/reference/activations.hpp>
#include <ogive/testing/counted.hpp>

#include <thread>

#include "tests/catch.hpp"

using namespace ogive;
using testing::counted;
using testing::counts;

TEST_CASE("a counted number counts what is done with it") {
  counted x(3), y(0.5);
  CHECK(testing::count([&] { x = x * y + x; }) == counts{.multiplications = 1, .additions = 1});
  CHECK(static_cast<double>(x) == 4.5);
  CHECK(testing::count([&] { x = -(x - y) / y; }) == counts{.additions = 1, .divisions = 1});
  CHECK(testing::count([&] { y = x; }) == counts{});
  CHECK(testing::count([&] { static_cast<void>(x < y); }) == counts{});
  CHECK(testing::count([&] { reference::sigmoid(counted(1)); }) ==
        counts{.additions = 1, .divisions = 1, .functions = 1});
  CHECK(counts{.multiplications = 3, .additions = 2, .divisions = 1, .functions = 9}.flops() == 6);
}

TEST_CASE("every thread counts for itself") {
  counted x(2);
  CHECK(testing::count([&] { std::thread([&] { x = x * x; }).join(); }) == counts{});
}

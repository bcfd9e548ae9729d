// What a refused layer is told: the field that does not fit, and what would.
#include <ogive/layers/norm.hpp>
#include <ogive/layers/short_convolution.hpp>
#include <ogive/layers/token_shift.hpp>

#include <limits>
#include <string>

#include "tests/catch.hpp"

using namespace ogive;

TEST_CASE("a norm refuses an epsilon that is negative or not a number") {
  tensor<float, 4> x({2, 3, 1, 4}), y({2, 3, 1, 4});
  const auto refused = [&](auto norm) {
    norm.x = x;
    norm.eps = 0;
    CHECK(check(norm, y));
    norm.eps = -1;
    CHECK(std::string(check(norm, y).text()) == std::string(norm.name) + ": eps is negative, must be at least 0");
    norm.eps = std::numeric_limits<float>::quiet_NaN();
    CHECK(std::string(check_backward(norm, y, {}).text()) ==
          std::string(norm.name) + ": eps is not a number, must be at least 0");
  };
  refused(rms_norm<float>());
  refused(layer_norm<float>());
  refused(l2_norm<float>());
}

TEST_CASE("the pool of a layer's inputs is refused by its name") {
  constexpr index_t B = 2, L = 3, D = 4;
  tensor<float, 3> x({B, L, D}), y({B, L, D}), few({B, D, 2}), pool({8, D, 3});
  tensor<float, 2> weight({D, 4});
  const short_convolution<float> op{.x = x, .weight = weight};
  const auto told = [&](const window_state<float>& st) { return std::string(check(op, st, y.all()).text()); };
  const std::string words = " keeps K = 2 inputs of a channel, must be at least the 3 that the layer reaches back to";
  CHECK(told({.initial = few}) == "short_convolution: initial" + words);
  CHECK(told({.final = few}) == "short_convolution: final" + words);
  CHECK(
      told({.initial = pool}) ==
      "short_convolution: initial has shape [8, 4, 3], expected [2, 4, 3] = [slots, D, K], D as x, one K for all " +
          std::string("pools; a pool that has not one slot per sequence wants initial_slots, one entry per sequence"));
  CHECK(std::string(check_backward(op, {}, y.all(), window_gradient<float>{.initial = few}, {}).text()) ==
        "short_convolution: d_st.initial" + words);
}

// Where each channel is a system of its own, no number of one reaches another: not by lanes of vectors, by a transform
// or by what is left in scratch.
#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/causal_convolution.hpp>
#include <ogive/testing/samplers/hgrn.hpp>
#include <ogive/testing/samplers/s4.hpp>
#include <ogive/testing/samplers/s4d.hpp>

#include "tests/catch.hpp"

using namespace ogive;

namespace {

/// `x` with `poison` in one channel of all tokens, in memory of its own.
template <class T>
view<const T, 3> poisoned(testing::memory& room, const view<const T, 3>& x, index_t channel, double poison) {
  const auto y = room.copy(x);
  testing::for_each(y.slice(2, channel, 1), [&](T& number, index_t) { number = static_cast<T>(poison); });
  return y;
}

/// Where the channels of x and y, axis `axis`, but for one differ in a bit.
template <class T, std::size_t Rank>
std::string others_differ(const view<T, Rank>& x, const view<T, Rank>& y, std::size_t axis, index_t channel) {
  const index_t after = channel + 1, rest = x.extent(axis) - after;
  const std::string before = testing::difference(x.slice(axis, 0, channel), y.slice(axis, 0, channel));
  return before + testing::difference(x.slice(axis, after, rest), y.slice(axis, after, rest));
}

}  // namespace

TEMPLATE_TEST_CASE("what is no number stays in its channel", "", s4d<float>, s4<float>, hgrn<float>,
                   causal_convolution<float>) {
  OGIVE_SEED(seed, 312);
  using S = testing::storage_of<TestType>;
  testing::for_seeds(seed, 6, [](std::uint64_t s) {
    testing::trial<TestType> x(s, 65);
    constexpr auto input = std::get<0>(testing::sampler<TestType>::tokens);
    const index_t channel = x.random.integer(0, (x.op.*input).extent(2) - 1);
    const auto given = testing::draw_state<S>(x.random, x.room, x.op, testing::sequence_count(x.op));
    const auto c = testing::detail::draw_cotangents(x.random, x.room, x.op);
    for (const double poison : {std::nan(""), std::numeric_limits<double>::infinity()}) {
      testing::memory room;
      auto op = x.op;
      op.*input = poisoned(room, x.op.*input, channel, poison);
      for (const testing::way& how : testing::ways<TestType>()) {
        const auto clean = testing::run<S>(how, x.op, given), got = testing::run<S>(how, op, given);
        INFO(x << how << ", " << poison << " in channel " << channel);
        CHECK(others_differ(got.o, clean.o, 2, channel).empty());
        CHECK(others_differ(got.st.final, clean.st.final, 1, channel).empty());
      }
      for (const options& how : testing::detail::backward_ways<TestType>({0})) {
        const auto clean = testing::detail::run_backward(x.op, given, c, how);
        const auto got = testing::detail::run_backward(op, given, c, how);
        INFO(x << "backward, " << poison << " in channel " << channel);
        constexpr auto d_input = std::get<0>(testing::sampler<TestType>::gradients);
        CHECK(others_differ(got.d.*d_input, clean.d.*d_input, 2, channel).empty());
        CHECK(others_differ(got.st.initial, clean.st.initial, 1, channel).empty());
      }
    }
  });
}

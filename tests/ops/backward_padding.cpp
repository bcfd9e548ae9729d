// Padding: its rows read the state, and where nobody asks for what they read, gradients do not know of them.
#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/delta_rules.hpp>
#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/samplers/gated_rfa.hpp>
#include <ogive/testing/samplers/low_rank.hpp>
#include <ogive/testing/samplers/selective_scan.hpp>
#include <ogive/testing/samplers/ssd.hpp>

#include "tests/catch.hpp"

using namespace ogive;

namespace {

/// f(tokens of padding, row of the batch) for each sequence.
template <class Op, class F>
void for_padding(const testing::trial<Op>& x, const F& f) {
  for (std::size_t s = 0; s < x.lengths.size(); ++s) {
    const index_t live = x.lengths[s];
    f(static_cast<index_t>(s), live, testing::length_of(x.op) - live);
  }
}

}  // namespace

TEMPLATE_TEST_CASE("padding that nobody asks for says nothing to a gradient, whatever it holds", "",
                   linear_attention<float>, gated_rfa<float>, ssd<float>, retention<float>, gla<float>, rwkv6<float>,
                   rwkv7<float>, gated_delta_rule<float>) {
  OGIVE_SEED(seed, 320);
  testing::for_seeds(seed, 6, [](std::uint64_t s) {
    testing::trial<TestType> x(s, 70);
    x.shorten();
    testing::memory room;
    const auto given = testing::draw_state<float>(x.random, room, x.op, testing::sequence_count(x.op));
    auto c = testing::detail::draw_cotangents(x.random, room, x.op);
    const auto d_o = room.copy(c.o);
    for_padding(x, [&](index_t row, index_t first, index_t count) {
      testing::for_each(d_o.slice(0, row, 1).slice(1, first, count), [](float& asked, index_t) { asked = 0; });
    });
    c.o = d_o;
    const auto expected = testing::detail::run_backward(x.op, given, c, {});
    for_padding(x, [&](index_t row, index_t first, index_t count) {
      testing::poison_tokens(x.op, testing::sampler<TestType>::tokens, row, first, count,
                             std::numeric_limits<double>::quiet_NaN());
    });
    INFO(x);
    CHECK(testing::detail::gradient_gap(x.op, testing::detail::run_backward(x.op, given, c, {}), expected) == "");
  });
}

TEMPLATE_TEST_CASE("a cotangent of the output that is not given is zero", "", linear_attention<double>, ssd<double>,
                   gla<double>, rwkv7<double>) {
  OGIVE_SEED(seed, 330);
  testing::for_seeds(seed, 6, [](std::uint64_t s) {
    testing::detail::gradient_trial<TestType> x(s, 70);
    const auto zero = x.kept.copy(x.c.o);
    testing::for_each(zero, [](double& number, index_t) { number = 0; });
    x.c.o = zero;
    const auto expected = testing::detail::run_backward(x.op, x.given, x.c, {});
    x.c.o = {};
    INFO(x);
    CHECK(testing::detail::gradient_gap(x.op, testing::detail::run_backward(x.op, x.given, x.c, {}), expected) == "");
  });
}

TEMPLATE_TEST_CASE("C45: no initial state has the gradients of one that is zero", "", linear_attention<double>,
                   ssd<double>, gla<double>, rwkv6<double>, rwkv7<double>, gated_delta_rule<double>,
                   selective_scan<double>) {
  OGIVE_SEED(seed, 331);
  testing::for_seeds(seed, 6, [](std::uint64_t s) {
    testing::detail::gradient_trial<TestType> x(s, 70);
    const auto expected = testing::detail::run_backward(x.op, testing::state_for<TestType, double>{}, x.c, {});
    auto zeros = testing::draw_state<double>(x.random, x.kept, x.op, testing::sequence_count(x.op));
    testing::for_pools(zeros, [&](auto& initial, auto&) {
      const auto zero = x.kept.copy(initial);
      testing::for_each(zero, [](double& number, index_t) { number = 0; });
      initial = zero;
    });
    INFO(x);
    CHECK(testing::detail::gradient_gap(x.op, expected, testing::detail::run_backward(x.op, zeros, x.c, {})) == "");
  });
}

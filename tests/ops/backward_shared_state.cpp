#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/shared_state.hpp>

#include "tests/laws/laws.hpp"

using namespace ogive;

TEMPLATE_TEST_CASE("gradients of systems whose channels share a state", "", lti<double>, s5<double>, lru<double>) {
  OGIVE_SEED(seed, 470);
  for (const testing::law& law : testing::gradient_laws<TestType>()) tests::check_law(law, seed);
}

TEST_CASE("gradients of systems whose channels share a state, in other types") {
  OGIVE_SEED(seed, 471);
  SECTION(lti<float>::name) { tests::check_law(testing::law_of_rounded_gradients<lti<float>, lti<double>>(), seed); }
  SECTION(s5<float>::name) { tests::check_law(testing::law_of_rounded_gradients<s5<float>, s5<double>>(), seed); }
  SECTION(lru<float>::name) { tests::check_law(testing::law_of_rounded_gradients<lru<float>, lru<double>>(), seed); }
}

TEST_CASE("gradients of what many sequences share have the bits of one worker") {
  OGIVE_SEED(seed, 472);
  testing::rng random(seed);
  testing::memory room;
  const lti<float> op = testing::sampler<lti<float>>::draw(random, room, 9, 40);
  const testing::state_for<lti<float>, float> nothing{};
  const auto c = testing::detail::draw_cotangents(random, room, op);
  const auto serial = testing::detail::run_backward(op, nothing, c, {});
  const testing::thread_pool pool;
  for (const int workers : {2, 3, 16}) {
    CAPTURE(workers);
    context forked = context::fork_join(pool, workers);
    forked.reserve(backward_scratch_bytes(op, {}, workers));
    const std::size_t reserved = forked.capacity();
    CHECK(testing::detail::gradient_gap(op, testing::detail::run_backward(op, nothing, c, {}, forked), serial) == "");
    CHECK(forked.capacity() == reserved);
  }
}

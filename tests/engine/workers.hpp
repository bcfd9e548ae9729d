// A scan over time with several workers: the bits of one, in the room that was reserved.
#pragma once

#include <ogive/testing/laws.hpp>

#include <initializer_list>

#include "tests/catch.hpp"

namespace ogive {

template <class S, class Trial, class Given, class Outcome>
void check_workers(std::initializer_list<int> counts, const testing::way& how, Trial& x, const Given& given,
                   const Outcome& alone, const testing::thread_pool& pool) {
  for (const int workers : counts) {
    context forked = context::fork_join(pool, workers);
    reserve(x.op, how.how(), forked);
    const std::size_t room = forked.capacity();
    CAPTURE(workers);
    CHECK(testing::difference(testing::run<S>(how, x.op, given, forked), alone) == "");
    CHECK(forked.capacity() == room);
  }
}

}  // namespace ogive

// What tests of identities between operators with a matrix state have in common.
#pragma once

#include <ogive/testing/trials.hpp>

#include "tests/catch.hpp"

namespace ogive::tests {

using namespace ogive::testing;

/// What a run of another operator left, to be held against the definition of this one.
template <class Op, class S, class Other>
outcome<Op, S> as(const outcome<Other, S>& ran) {
  outcome<Op, S> same{memory()};
  same.o = ran.o;
  same.st.initial = ran.st.initial;
  same.st.final = ran.st.final;
  return same;
}

/// `other` gives what `op` is defined to give, in every form; and its bits where the operations are the same.
template <class Op, class Other>
void check_same(const trial<Op>& x, const Op& op, const Other& other, bool to_the_bit) {
  using T = typename Op::scalar;
  memory room;
  rng random(x.seed);
  const auto given = draw_state<T>(random, room, op, sequence_count(op));
  const state_for<Other, T> same{.initial = given.initial};
  const definition<Op> expected(op, given);
  for (const way& how : ways<Op>()) {
    const auto got = run<T>(how, other, same);
    INFO(x << how);
    CHECK(expected.excess(as<Op, T>(got), length_of(op)) == "");
    const bool chosen = how.kind == way::kind::forward || (how.kind == way::kind::chunked && how.chunk == 0);
    if (!to_the_bit || chosen) continue;  // forms and chunks may be chosen by the policies
    const auto own = run<T>(how, op, given);
    CHECK(difference(got.o, own.o) == "");
    CHECK(difference(got.st.final, own.st.final) == "");
  }
}

/// g [B, L, H] for every key channel.
template <class T>
view<const T, 4> for_keys(const view<const T, 3>& g, index_t K) {
  return {g.data(), {g.extent(0), g.extent(1), g.extent(2), K}, {g.stride(0), g.stride(1), g.stride(2), 0}};
}

template <class T, std::size_t Rank>
view<const T, Rank> filled(memory& room, const shape<Rank>& extents, T number) {
  const auto x = room.take<T>(extents);
  for_each(x, [&](T& element, index_t) { element = number; });
  return x;
}

}  // namespace ogive::tests

// Whatever is written has memory of its own, and views have the extents of the call: check and check_backward of an
// operator refuse each pair that shares memory and each extent that is off by one.
#pragma once

#include <ogive/testing/gradient_laws.hpp>

#include "tests/catch.hpp"

namespace ogive::tests {

inline constexpr index_t B = 2, L = 5;

/// What a view is to a call. Which slots the pools of a state may share is another question.
enum class role { read, written, initial, final, kept };
inline bool writes(role x) { return x != role::read && x != role::initial; }
inline bool of_state(role x) { return x != role::read && x != role::written; }

struct slots {
  std::vector<std::int32_t> after, at{0, 1, 2, 3};
  slots() {
    for (std::int32_t i = 0; i < B * L; ++i) after.push_back(i);
  }
};

template <class Op>
struct forward_call {
  using S = testing::storage_of<Op>;
  Op op{};
  testing::state_for<Op, S> st{};
  testing::output_view<Op> o{};
  static constexpr bool keeps = requires { st.snapshots; }
  &&!testing::timeless<Op>;
  static constexpr bool bounds = keeps && requires { st.boundaries; };

  forward_call(testing::rng& random, testing::memory& room, const slots& of) {
    op = testing::sampler<Op>::draw(random, room, B, L);
    st = testing::draw_state<S>(random, room, op, B);
    testing::give_finals(room, op, B, st);
    o = room.template take<typename Op::scalar>(testing::sampler<Op>::output(op));
    if constexpr (keeps) {
      const auto give = [&](auto& pool, index_t count) {
        using View = std::remove_cvref_t<decltype(pool)>;
        pool = room.template take<S>(testing::pool_extents<View::rank>(count, testing::sampler<Op>::slot(op)));
      };
      give(st.snapshots, B * L);
      st.snapshot_slots = view<const std::int32_t, 2>(of.after, {B, L});
      if constexpr (bounds) {
        give(st.boundaries, 4);
        if constexpr (requires { st.z_snapshots; }) give(st.z_snapshots, B * L), give(st.z_boundaries, 4);
        st.boundary_slots = view<const std::int32_t, 2>(of.at, {B, 2});
        st.interval = 3;
      }
    }
  }
  status ask() const { return check(op, st, o); }
  template <class F>
  void views(const F& f) {
    std::apply([&](auto... field) { (f(op.*field, role::read), ...); }, testing::detail::fields_of<Op>());
    f(o, role::written), f(st.initial, role::initial), f(st.final, role::final);
    if constexpr (requires { st.z_final; }) f(st.z_initial, role::initial), f(st.z_final, role::final);
    if constexpr (keeps) f(st.snapshots, role::kept);
    if constexpr (bounds) f(st.boundaries, role::kept);
    if constexpr (keeps && requires { st.z_snapshots; }) f(st.z_snapshots, role::kept), f(st.z_boundaries, role::kept);
  }
};

template <class Op>
struct backward_call {
  Op op{};
  testing::state_for<Op, testing::storage_of<Op>> st{};
  testing::cotangents_of<Op> c{};
  gradient<Op> d{};

  backward_call(testing::rng& random, testing::memory& room, const slots&) {
    op = testing::sampler<Op>::draw(random, room, B, L);
    st = testing::draw_state<testing::storage_of<Op>>(random, room, op, B);
    c = testing::detail::draw_cotangents(random, room, op);
    const auto like = [&](const auto& x, auto& y) {
      if (x.present()) y = room.template take<typename std::remove_cvref_t<decltype(y)>::element_type>(x.extents());
    };
    testing::detail::for_gradients(op, d, like);
    like(c.st.final, c.st.initial);
    if constexpr (requires { c.st.z_final; }) like(c.st.z_final, c.st.z_initial);
  }
  status ask() const { return check_backward(op, st, c.o, c.st, d); }
  template <class F>
  void views(const F& f) {
    std::apply([&](auto... field) { (f(op.*field, role::read), ...); }, testing::detail::fields_of<Op>());
    std::apply([&](auto... field) { (f(d.*field, role::written), ...); }, testing::sampler<Op>::gradients);
    f(c.o, role::read), f(st.initial, role::read), f(c.st.final, role::read), f(c.st.initial, role::written);
    if constexpr (requires { c.st.z_final; }) {
      f(st.z_initial, role::read), f(c.st.z_final, role::read), f(c.st.z_initial, role::written);
    }
  }
};

/// f(number, view, role) for those that have elements.
template <class Call, class F>
void for_views(Call& call, const F& f) {
  int number = 0;
  call.views([&](auto& x, role as) {
    if (x.size() > 0) f(number, x, as);
    ++number;
  });
}

template <class Call>
void check_pairs(Call call) {
  for_views(call, [&](int a, const auto& x, role as) {
    Call other = call;
    for_views(other, [&](int b, const auto& y, role bs) {
      constexpr bool one_rank = std::remove_cvref_t<decltype(x)>::rank == std::remove_cvref_t<decltype(y)>::rank;
      if (a == b || !(writes(as) || writes(bs)) || (one_rank && of_state(as) && of_state(bs))) return;
      Call both = call;
      for_views(both, [&](int n, auto& moved, role) {
        using View = std::remove_cvref_t<decltype(moved)>;
        auto* memory = const_cast<void*>(static_cast<const void*>(x.data()));
        if (n == b) moved = View(static_cast<typename View::element_type*>(memory), moved.extents(), moved.strides());
      });
      CAPTURE(a, b);
      CHECK(!both.ask());
    });
  });
}

/// But for the heads, of which there may be other numbers, and extents of 1, which some fields have instead.
template <class Call>
void check_extents(Call call) {
  for_views(call, [&](int a, const auto& x, role as) {
    for (std::size_t axis = as == role::kept ? 1 : 0; axis < x.extents().size(); ++axis) {
      for (const index_t by : {-1, 1}) {
        const index_t size = x.extent(axis);
        if (as == role::read && (axis == 2 || size == 1 || size + by == 1)) continue;
        Call one = call;
        for_views(one, [&](int n, auto& wrong, role) {
          if (n != a) return;
          auto extents = wrong.extents();
          extents[axis] += by;
          wrong = std::remove_cvref_t<decltype(wrong)>(wrong.data(), extents, wrong.strides());
        });
        CAPTURE(a, axis, by);
        CHECK(!one.ask());
      }
    }
  });
}

template <class Call>
void check_door(std::uint64_t seed) {
  testing::for_seeds(seed, 3, [](std::uint64_t s) {
    CAPTURE(s);
    testing::rng random(s);
    testing::memory room;
    const slots of;
    const Call call(random, room, of);
    const status asked = call.ask();
    INFO(asked.text());
    REQUIRE(asked);
    check_pairs(call);
    check_extents(call);
  });
}

/// Both calls.
template <class Op>
void check_doors(std::uint64_t seed) {
  check_door<forward_call<Op>>(seed);
  check_door<backward_call<Op>>(seed);
}

}  // namespace ogive::tests

#include <ogive/testing/samplers/rwkv4.hpp>
#include <ogive/testing/trials.hpp>

#include "tests/catch.hpp"

using namespace ogive;
using namespace ogive::testing;

namespace {

/// Averages so far, of any size; for some sequences nothing yet.
template <class S>
view<S, 3> draw_averages(rng& random, memory& room, index_t slots, index_t channels) {
  const auto pool = room.take<S>(shape<3>{slots, 3, channels});
  for (index_t s = 0; s < slots; ++s) {
    const bool none = random.integer(0, 3) == 0;
    for (index_t c = 0; c < channels; ++c) {
      pool(s, 1, c) = none ? S(0) : static_cast<S>(random.uniform(0.1, 2));
      pool(s, 0, c) = pool(s, 1, c) * static_cast<S>(random.uniform(-1, 1));
      pool(s, 2, c) = none ? S(-1e38) : static_cast<S>(random.uniform(-20, 20));
    }
  }
  return pool;
}

/// A and B of a state, relative to one exponent for both: a representation is not unique.
std::array<double, 2> sums(const view<double, 3>& pool, index_t s, index_t c, double top) {
  const double scale = std::exp(pool(s, 2, c) - top);
  return {pool(s, 0, c) * scale, pool(s, 1, c) * scale};
}

/// Every weight is a product of exponentials whose exponents are sums of up to `length` numbers, known to some units of
/// the last place of the largest of these; a quotient of two sums of weights has that error twice.
template <class T>
double bound_of(const rwkv4<T>& op) {
  const auto L = static_cast<double>(op.k.extent(1));
  const double largest = max_abs(op.k) + max_abs(op.u) + L * max_abs(op.w) + 20;
  return tolerance<accum_t<T>>(static_cast<index_t>(2 * (8 * L + 4 * L * largest + 32)));
}

/// The definition in the next wider type, and the size of the averaged values.
template <class T>
struct expected {
  using Acc = std::conditional_t<std::is_same_v<accum_t<T>, double>, long double, double>;
  memory room{};
  view<double, 3> o, final;
  double relative;

  expected(const rwkv4<T>& op, const rwkv4_state<accum_t<T>>& st) : expected(op, st, bound_of(op)) {}
  expected(const rwkv4<T>& op, const rwkv4_state<accum_t<T>>& st, double bound)
      : o(room.take<double>(op.k.extents())),
        final(room.take<double>(shape<3>{op.sequences(), 3, op.k.extent(2)})),
        relative(bound) {
    struct {
      view<const accum_t<T>, 3> initial;
      view<double, 3> final;
      view<const std::int32_t, 1> initial_slots{}, final_slots{};
    } wide{st.initial, final, st.initial_slots, {}};
    reference::evaluate<Acc>(op, wide, o);
  }

  template <class Outcome>
  void check(const Outcome& got) const {
    const double most = max_abs(o) + 1;  // averages of values in [−1, 1]
    for_each(o, [&](const double& right, index_t i) {
      const double is = flatten(got.o)[static_cast<std::size_t>(i)];
      CHECK(std::fabs(is - right) <= (relative + unit_roundoff<T>()) * most);
    });
    memory wide;
    const auto left = wide.copy<double>(view<const accum_t<T>, 3>(got.st.final));
    for (index_t s = 0; s < final.extent(0); ++s) {
      for (index_t c = 0; c < final.extent(2); ++c) {
        const double top = std::fmax(left(s, 2, c), final(s, 2, c));
        const auto is = sums(left, s, c, top), right = sums(final, s, c, top);
        CHECK(std::fabs(is[1] - right[1]) <= relative * right[1]);
        CHECK(std::fabs(is[0] - right[0]) <= relative * right[1]);  // |A| ≤ B
      }
    }
  }
};

}  // namespace

TEMPLATE_TEST_CASE("RWKV-4 is its definition in every form, packed and padded too", "", float, double, bfloat16) {
  OGIVE_SEED(seed, 160);
  for_seeds(seed, 9, [](std::uint64_t s) {
    trial<rwkv4<TestType>> x(s, 65, s % 3 == 1 ? 1 : 0);
    if (s % 3 == 1) x.pack();
    if (s % 3 == 2) x.shorten();
    const index_t n = sequence_count(x.op);
    rwkv4_state<accum_t<TestType>> st;
    if (coin(x.random)) st.initial = draw_averages<accum_t<TestType>>(x.random, x.room, n, x.op.k.extent(2));
    const expected<TestType> right(x.op, st);
    for (const way& how : ways<rwkv4<TestType>>()) {
      if (how.kind == way::kind::steps && (s % 3 != 0 || !st.initial.present())) continue;
      INFO(x << how);
      right.check(run<accum_t<TestType>>(how, x.op, st));
      CHECK(x.room.gaps_untouched());
    }
  });
}

TEMPLATE_TEST_CASE("RWKV-4 gives the same bits in pieces, on threads, in any memory", "", float, double) {
  OGIVE_SEED(seed, 161);
  using Op = rwkv4<TestType>;
  for_seeds(seed, 6, [](std::uint64_t s) {
    trial<Op> x(s);
    const index_t n = sequence_count(x.op), L = length_of(x.op), cut = x.random.integer(0, L);
    const rwkv4_state<TestType> st{.initial = draw_averages<TestType>(x.random, x.room, n, x.op.k.extent(2))};
    const auto whole = run<TestType>({way::kind::recurrent}, x.op, st);
    INFO(x << "cut at " << cut);
    const auto head = run<TestType>({way::kind::forward}, tokens_of(x.op, 0, cut), st);
    const auto tail = run<TestType>({way::kind::step}, tokens_of(x.op, cut, L - cut),
                                    rwkv4_state<TestType>{.initial = head.st.final});
    CHECK(difference(head.o, whole.o.slice(1, 0, cut)) == "");
    CHECK(difference(tail.o, whole.o.slice(1, cut, L - cut)) == "");
    CHECK(difference(tail.st.final, whole.st.final) == "");
    CHECK(difference(run<TestType>({way::kind::steps}, x.op, st), whole) == "");
    thread_pool pool;
    context forked = context::fork_join(pool, 3);
    CHECK(difference(run<TestType>({way::kind::recurrent}, x.op, st, forked), whole) == "");
    for (const layout where : all_layouts) {
      memory room(where);
      auto elsewhere = st;
      elsewhere.initial = room.copy(st.initial);
      const auto got = run<TestType>({way::kind::recurrent}, copy_of(x.op, room), elsewhere, where);
      CHECK(difference(got, whole) == "");
      CHECK(got.room.gaps_untouched());
    }
    memory room;
    const Op poisoned = copy_of(x.op, room);
    poison_tokens(poisoned, sampler<Op>::tokens, n - 1, cut, L - cut, std::numeric_limits<double>::quiet_NaN());
    const auto seen = run<TestType>({way::kind::recurrent}, poisoned, st);
    CHECK(difference(seen.o.slice(1, 0, cut), whole.o.slice(1, 0, cut)) == "");
  });
}

TEMPLATE_TEST_CASE("RWKV-4: a key of minus infinity has no weight, and where nothing has any the average is 0", "",
                   float, double) {
  OGIVE_SEED(seed, 163);
  using Op = rwkv4<TestType>;
  constexpr auto none = -std::numeric_limits<TestType>::infinity();
  for_seeds(seed, 6, [&](std::uint64_t s) {
    trial<Op> x(s, 33, 2);
    const index_t B = x.op.k.extent(0), L = length_of(x.op), C = x.op.k.extent(2);
    const auto k = x.room.template take<TestType>(x.op.k.extents()), low = x.room.template take<TestType>(k.extents());
    for_each(k, [&](TestType& key, index_t) {
      key = coin(x.random) ? none : static_cast<TestType>(x.random.uniform(-2, 2));
    });
    for_each(low, [&](TestType& key, index_t i) { key = std::max(k(i / (L * C), i / C % L, i % C), TestType(-1e30)); });
    const auto pool = draw_averages<TestType>(x.random, x.room, B, C);
    for_each(pool, [&](TestType& number, index_t) { number = number == TestType(-1e38) ? none : number; });
    rwkv4_state<TestType> st;
    if (coin(x.random)) st.initial = pool;
    Op weightless = x.op, weighs_nothing = x.op;
    weightless.k = k, weighs_nothing.k = low;
    const expected<TestType> right(weightless, st, bound_of(x.op));
    const auto far = run<TestType>({way::kind::recurrent}, weighs_nothing, st);
    INFO(x);
    for (const way& how : ways<Op>()) {
      if (how.kind == way::kind::steps && !st.initial.present()) continue;
      const auto got = run<TestType>(how, weightless, st);
      right.check(got);
      for (index_t b = 0; b < B; ++b) {
        for (index_t c = 0; c < C; ++c) {
          bool seen = st.initial.present() && pool(b, 1, c) > 0;
          for (index_t t = 0; t < L; ++t) {
            seen |= k(b, t, c) != none;
            CHECK(got.o(b, t, c) == (seen ? far.o(b, t, c) : TestType(0)));
          }
        }
      }
    }
    const auto d_o = x.room.template take<TestType>(k.extents());
    for_each(d_o, [](TestType& one, index_t) { one = 1; });
    const auto d_k = x.room.template take<TestType>(k.extents()), d_v = x.room.template take<TestType>(k.extents());
    const auto d_w = x.room.template take<TestType>(shape<1>{C}), d_u = x.room.template take<TestType>(shape<1>{C});
    const auto d_S = x.room.template take<TestType>(shape<3>{B, 3, C});
    backward(weightless, st, view<const TestType, 3>(d_o), {.initial = d_S}, {.k = d_k, .v = d_v, .w = d_w, .u = d_u});
    for_each(d_k, [&](const TestType& slope, index_t i) {
      CHECK(std::isfinite(slope));
      if (k(i / (L * C), i / C % L, i % C) == none) CHECK((slope == 0 && d_v(i / (L * C), i / C % L, i % C) == 0));
    });
    for (const double number : flatten(d_v)) CHECK(std::isfinite(number));
    for (const double number : flatten(d_w)) CHECK(std::isfinite(number));
    for (const double number : flatten(d_u)) CHECK(std::isfinite(number));
    for (const double number : flatten(d_S)) CHECK(std::isfinite(number));
  });
}

TEST_CASE("RWKV-4 takes pools with slots and refuses what does not fit", "[rwkv4]") {
  OGIVE_SEED(seed, 162);
  trial<rwkv4<float>> x(seed, 33, 2);
  const index_t C = x.op.k.extent(2), L = length_of(x.op);
  const auto pool = draw_averages<float>(x.random, x.room, 3, C);
  const std::vector<std::int32_t> slots{2, -1};
  rwkv4_state<float> st{.initial = pool, .final = pool};
  st.initial_slots = st.final_slots = view<const std::int32_t, 1>(slots);
  const auto before = x.room.copy(pool);
  const auto o = x.room.take<float>(x.op.k.extents());
  forward(x.op, st, o);
  CHECK(difference(pool.slice(0, 0, 2), before.slice(0, 0, 2)) == "");
  const rwkv4_state<float> alone{.initial = before.slice(0, 2, 1)};
  rwkv4<float> first = x.op;
  first.k = x.op.k.slice(0, 0, 1);
  first.v = x.op.v.slice(0, 0, 1);
  const auto got = run<float>({way::kind::recurrent}, first, alone);
  CHECK(difference(got.o, o.slice(0, 0, 1)) == "");
  CHECK(difference(got.st.final, pool.slice(0, 2, 1)) == "");

  const auto refused = [&](const rwkv4<float>& op, const rwkv4_state<float>& with, const view<float, 3>& out,
                           const options& how = {}) {
    CHECK_THROWS_AS(forward(op, with, out, how), std::invalid_argument);
    CHECK_FALSE(check(op, with, out, how));
  };
  refused(x.op, {}, o.slice(1, 0, L - 1));
  refused(x.op, {}, o, {.chunk = -1});
  refused(x.op, {}, o, {.form = form::chunked});
  rwkv4<float> bad = x.op;
  bad.u = {};
  refused(bad, {}, o);
  bad = x.op;
  bad.w = x.op.w.slice(0, 0, C - 1);
  refused(bad, {}, o);
  refused(x.op, {.initial = pool.slice(1, 0, 2)}, o);
  refused(x.op, {.snapshots = pool}, o);
  refused(x.op, {.boundaries = pool, .interval = 1}, o);
}

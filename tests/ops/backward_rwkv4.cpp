// The gradient of RWKV-4.
#include <ogive/testing/samplers/rwkv4.hpp>
#include <ogive/testing/trials.hpp>

#include "tests/layers/gradients.hpp"

using namespace ogive;
using testing::coin;
using testing::draw_uniform;

namespace {

/// Arguments of one backward pass, drawn. No key comes near the exponent that it is compared with: there is an edge in
/// the derivatives of a final state.
template <class T>
struct draws {
  using accum = accum_t<T>;
  testing::memory room;
  rwkv4<T> op;
  rwkv4_state<accum> st;
  view<T, 3> d_o, k;
  rwkv4_state_gradient<accum> d_st;
  typename rwkv4<T>::gradient d;
  std::vector<std::int32_t> offsets{}, lengths{}, slots{};

  draws(std::uint64_t seed, shape<3> n, double size = 30, testing::layout where = testing::layout::dense)
      : room(where) {
    testing::rng random(seed);
    const auto [B, L, C] = n;
    op.v = draw_uniform<T>(random, room, n);
    op.w = draw_uniform<accum>(random, room, shape<1>{C}, -2, -0.5);
    op.u = draw_uniform<accum>(random, room, shape<1>{C});
    if (B == 1 && coin(random)) {
      const auto cut = static_cast<std::int32_t>(random.integer(0, L));
      offsets = {0, cut, cut, static_cast<std::int32_t>(L)};
      op.offsets = offsets;
    }
    k = room.template take<T>(n);
    op.k = k;
    const index_t sequences = op.sequences();
    if (coin(random)) {
      for (index_t s = 0; s < sequences; ++s) lengths.push_back(static_cast<std::int32_t>(random.integer(0, L)));
      op.lengths = lengths;
    }
    if (coin(random)) {
      const auto initial = draw_uniform<accum>(random, room, shape<3>{sequences + 1, 3, C});
      for (index_t s = 0; s <= sequences; ++s) {
        for (index_t c = 0; c < C; ++c) initial(s, 1, c) += accum(2);
      }
      st.initial = initial;
      for (index_t s = 0; s < sequences; ++s) slots.push_back(static_cast<std::int32_t>(sequences - s));
      if (coin(random)) slots.back() = -1;
      st.initial_slots = slots;
    }
    draw_keys(random, size);
    d_o = draw_uniform<T>(random, room, n);
    if (coin(random)) d_st.final = draw_uniform<accum>(random, room, shape<3>{sequences, 3, C});
    d_st.initial = room.template take<accum>(shape<3>{sequences, 3, C});
    d.k = room.template take<T>(n);
    d.v = room.template take<T>(n);
    d.w = room.template take<accum>(shape<1>{C});
    d.u = room.template take<accum>(shape<1>{C});
  }

  void run(const options& how = {}, context& ctx = default_context()) const {
    backward(op, st, view<const T, 3>(d_o), d_st, d, how, ctx);
  }
  /// f(name, gradient) for all of them.
  template <class F>
  void each(const F& f) const {
    f("k", d.k);
    f("v", d.v);
    f("w", d.w);
    f("u", d.u);
    f("initial", d_st.initial);
  }
  std::vector<std::vector<double>> all(double factor = 1) const {
    std::vector<std::vector<double>> numbers;
    each([&](const char*, const auto& gradient) {
      numbers.push_back(testing::flatten(gradient));
      for (double& number : numbers.back()) number *= factor;
    });
    return numbers;
  }

 private:
  void draw_keys(testing::rng& random, double size) {
    constexpr double margin = 0.2;
    for (index_t n = 0; n < op.sequences(); ++n) {
      const bool packed = op.offsets.present();
      const index_t b = packed ? 0 : n;
      const index_t first = packed ? op.offsets.at(n) : 0, last = packed ? op.offsets.at(n + 1) : k.extent(1);
      for (index_t c = 0; c < k.extent(2); ++c) {
        const bool given = st.initial.present() && slots[static_cast<std::size_t>(n)] >= 0;
        double top = given ? static_cast<double>(st.initial(slots[static_cast<std::size_t>(n)], 2, c)) : -1e38;
        for (index_t t = first; t < last; ++t) {
          top += static_cast<double>(op.w(c));
          double key = random.uniform(-size, size);
          if (std::fabs(key - top) < margin) key = top + (coin(random) ? margin : -margin);
          k(b, t, c) = static_cast<T>(key);
          top = std::fmax(top, key);
        }
      }
    }
  }
};

}  // namespace

TEST_CASE("gradients of RWKV-4 are the differences of its definition") {
  OGIVE_SEED(seed, 70);
  for (std::uint64_t i = 0; i < 30; ++i) {
    testing::rng random(seed + i);
    const index_t C = random.integer(1, 11);
    const draws<double> x(seed + i, {random.integer(1, 2), random.integer(0, i % 3 == 0 ? 70 : 20), C}, 1);
    CAPTURE(i, x.op.k.extents()[1], C);
    x.run();
    const auto loss = [&] {
      testing::memory room;
      auto st = x.st;
      if (x.d_st.final.present()) st.final = room.take<double>(x.d_st.final.extents());
      const auto o = room.take<double>(x.op.k.extents());
      reference::evaluate<double>(x.op, st, o);
      return tests::loss().add(o, x.d_o).add(st.final, x.d_st.final);
    };
    tests::check_gradient("k", x.op.k, x.d.k, loss);
    tests::check_gradient("v", x.op.v, x.d.v, loss);
    tests::check_gradient("w", x.op.w, x.d.w, loss);
    tests::check_gradient("u", x.op.u, x.d.u, loss);
    for (std::size_t s = 0; s < x.slots.size(); ++s) {
      if (x.slots[s] < 0) continue;
      tests::check_gradient("initial", x.st.initial[x.slots[s]], x.d_st.initial[static_cast<index_t>(s)], loss);
    }
    CHECK(x.room.gaps_untouched());
  }
}

TEMPLATE_TEST_CASE("gradients of RWKV-4: any strides, workers, and sums", "", float, bfloat16) {
  OGIVE_SEED(seed, 71);
  for (std::uint64_t i = 0; i < 6; ++i) {
    testing::rng random(seed + i);
    const shape<3> n{random.integer(1, 2), random.integer(0, 70), random.integer(1, 600)};
    CAPTURE(i, n[1], n[2]);
    const draws<TestType> x(seed + i, n);
    x.run();
    const auto expected = x.all();
    for (const auto& one : expected) CHECK(std::ranges::all_of(one, [](double v) { return std::isfinite(v); }));
    for (const testing::layout where : testing::all_layouts) {
      const draws<TestType> other(seed + i, n, 30, where);
      testing::thread_pool pool;
      context forked = context::fork_join(pool, 3);
      other.run({}, forked);
      CHECK(other.all() == expected);
      other.run({.accumulate = true});
      CHECK(other.all() == x.all(2));
      CHECK(other.room.gaps_untouched());
    }
    draws<TestType> some(seed + i, n);
    some.d.v = {};
    some.d.w = {};
    some.d_st.initial = {};
    tensor<std::byte, 1> scratch({static_cast<index_t>(backward_scratch_bytes(some.op))});
    context own(scratch.flat());
    some.run({}, own);
    CHECK(some.all()[0] == expected[0]);
    CHECK(some.all()[3] == expected[3]);
  }
}

TEST_CASE("gradients of RWKV-4 in float are those in double, rounded") {
  OGIVE_SEED(seed, 72);
  for (std::uint64_t i = 0; i < 8; ++i) {
    draws<float> x(seed + i, {2, 40, 50});
    draws<double> y(seed + i, {2, 40, 50});
    x.d_st.final = {};
    y.d_st.final = {};
    x.st = {};
    testing::for_each(x.d_o, [](float& number, index_t) { number = std::fabs(number); });
    y.op.k = y.room.copy<double>(x.op.k);
    y.op.v = y.room.copy<double>(x.op.v);
    y.op.w = y.room.copy<double>(x.op.w);
    y.op.u = y.room.copy<double>(x.op.u);
    y.d_o = y.room.copy<double>(x.d_o);
    y.st = {};
    x.run();
    y.run();
    // Weights are exponentials of sums of up to L numbers, known to some units in the last place of the largest of
    // these; d_v is a sum of positive terms, the others are such terms times v − o.
    const index_t L = 40;
    const double largest = testing::max_abs(y.op.k) + testing::max_abs(y.op.u) + L * testing::max_abs(y.op.w);
    const double bound = testing::tolerance<float>(static_cast<index_t>(4 * (8 * L + 4 * L * largest + 32)));
    const double weight = testing::max_abs(y.d.v), apart = 2 * testing::max_abs(y.op.v) * weight;
    CHECK(testing::compare(x.d.v, y.d.v, bound, {.scale = weight}));
    CHECK(testing::compare(x.d.k, y.d.k, bound, {.scale = apart}));
    CHECK(testing::compare(x.d.u, y.d.u, bound, {.scale = 2 * L * apart}));
    CHECK(testing::compare(x.d.w, y.d.w, bound, {.scale = 2 * L * L * apart}));
  }
}

TEST_CASE("backward of RWKV-4 refuses what does not fit, and writes nothing") {
  const auto refused = [](const char* words, const auto& spoil) {
    INFO(words);
    draws<float> x(5, {2, 9, 6});
    spoil(x);
    CHECK_THROWS_WITH(x.run(), tests::ContainsSubstring(words));
    for (const auto& one : x.all()) {
      CHECK(std::ranges::all_of(one, [](double number) { return std::isnan(number); }));
    }
  };
  const auto shorter = [](auto& x) { x = x.slice(x.rank - 1, 0, 5); };
  refused("d_o has shape", [&](auto& x) { shorter(x.d_o); });
  refused("d.k has shape", [&](auto& x) { shorter(x.d.k); });
  refused("d.v has shape", [&](auto& x) { shorter(x.d.v); });
  refused("d.w has shape", [&](auto& x) { shorter(x.d.w); });
  refused("d.u has shape", [&](auto& x) { shorter(x.d.u); });
  refused("d_st.initial has shape", [&](auto& x) { shorter(x.d_st.initial); });
  refused("overlaps d_o", [&](auto& x) { x.d_o = x.d.k; });
  refused("overlaps w", [&](auto& x) { x.op.w = x.d.w; });
  refused("is written, but several", [&](auto& x) { x.d.v = {x.d.v.data(), x.d.v.extents(), {0, 6, 1}}; });
}

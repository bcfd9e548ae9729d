// The gradient of the selective scan.
#include <ogive/reference/selective_scan.hpp>
#include <ogive/testing/samplers/selective_scan.hpp>
#include <ogive/testing/trials.hpp>

#include <barrier>

#include "tests/layers/gradients.hpp"

using namespace ogive;
using testing::coin;
using testing::draw_uniform;

namespace {

struct sizes {
  index_t batch, length, channels, states;
};

/// Arguments of one backward pass, drawn. Memories are short: differences by a rate or a step grow with the fifth power
/// of what the state still holds.
template <class T, class AType = accum_t<T>>
struct draws {
  using op_type = selective_scan<T, AType>;
  using accum = accum_t<T>;
  using operand = typename op_type::operand;
  testing::memory room;
  op_type op;
  diagonal_state<AType> st;
  view<T, 3> d_y;
  diagonal_state_gradient<AType> d_st;
  typename op_type::gradient d;
  std::vector<std::int32_t> offsets{}, lengths{}, slots{};

  draws(std::uint64_t seed, sizes n, testing::layout where = testing::layout::dense, bool plain = false) : room(where) {
    testing::rng random(seed);
    const auto [B, L, D, N] = n;
    const auto given = [&] { return !plain && coin(random); };
    const shape<3> whole{B, L, D};
    op.dt_softplus = given();
    op.u = draw_uniform<T>(random, room, whole);
    op.dt = draw_uniform<accum>(random, room, whole, op.dt_softplus ? -1 : 0.2, 1);
    const auto rates = room.template take<AType>(shape<2>{D, N});
    testing::for_each(rates, [&](AType& rate, index_t) {
      rate = AType(static_cast<accum>(-random.uniform(0.5, 2)));
      if constexpr (op_type::complex) rate += AType(0, static_cast<accum>(random.uniform(-1, 1)));
    });
    op.A = rates;
    operand_of(random, n, plain, op.B, d.B);
    operand_of(random, n, plain, op.C, d.C);
    if (given()) op.D = draw_uniform<accum>(random, room, shape<1>{D});
    if (given()) op.z = draw_uniform<T>(random, room, whole, -3, 3);
    if (given()) op.dt_bias = draw_uniform<accum>(random, room, shape<1>{D}, 0, 0.5);
    if (given()) op.rule = discretisation::zoh;
    if (B == 1 && coin(random)) {
      const auto cut = static_cast<std::int32_t>(random.integer(0, L));
      offsets = {0, cut, cut, static_cast<std::int32_t>(L)};
      op.offsets = offsets;
    }
    const index_t sequences = op.offsets.present() ? 3 : B;
    if (coin(random)) {
      for (index_t s = 0; s < sequences; ++s) lengths.push_back(static_cast<std::int32_t>(random.integer(0, L)));
      op.lengths = lengths;
    }
    if (coin(random)) {
      st.initial = draw_uniform<AType>(random, room, shape<3>{sequences + 1, D, N});
      for (index_t s = 0; s < sequences; ++s) slots.push_back(static_cast<std::int32_t>(sequences - s));
      if (coin(random)) slots.back() = -1;
      st.initial_slots = slots;
    }
    d_y = draw_uniform<T>(random, room, whole);
    if (coin(random)) d_st.final = draw_uniform<AType>(random, room, shape<3>{sequences, D, N});
    d_st.initial = room.template take<AType>(shape<3>{sequences, D, N});
    d.u = room.template take<T>(whole);
    d.dt = room.template take<accum>(whole);
    d.A = room.template take<AType>(shape<2>{D, N});
    if (op.D.present()) d.D = room.template take<accum>(shape<1>{D});
    if (op.z.present()) d.z = room.template take<T>(whole);
    if (op.dt_bias.present()) d.dt_bias = room.template take<accum>(shape<1>{D});
  }

  /// What `backward` says of the field, for a loss that is linear in output and final state.
  void run(const options& how = {}, context& ctx = default_context()) const {
    backward(op, st, view<const T, 3>(d_y), d_st, d, how, ctx);
  }

  /// f(name, gradient) for all of them.
  template <class F>
  void each(const F& f) const {
    f("u", d.u);
    f("dt", d.dt);
    f("A", d.A);
    f("B", once(d.B));
    f("C", once(d.C));
    f("D", d.D);
    f("z", d.z);
    f("dt_bias", d.dt_bias);
    f("initial", d_st.initial);
  }

  /// One index along axes that have no step.
  template <class X>
  static view<X, 4> once(view<X, 4> x) {
    for (std::size_t axis = 0; axis < 2; ++axis) {
      if (x.present() && x.stride(axis) == 0 && x.extent(axis) > 1) x = x.slice(axis, 0, 1);
    }
    return x;
  }

 private:
  void operand_of(testing::rng& random, sizes n, bool plain, view<const operand, 4>& x, view<operand, 4>& gradient) {
    const index_t kind = plain ? 3 : random.integer(0, 4);
    const index_t G = kind == 0 || kind == 1 ? n.channels : kind == 2 ? testing::divisor_of(random, n.channels) : 1;
    const bool over_time = kind == 0, over_batch = kind == 0 || kind == 4;
    const shape<4> all{n.batch, n.length, G, n.states};
    const shape<4> stored{over_batch ? 1 : n.batch, over_time ? 1 : n.length, G, n.states};
    const auto spread = [&](const auto& y) {
      shape<4> strides = y.strides();
      if (over_batch) strides[0] = 0;
      if (over_time) strides[1] = 0;
      return std::remove_cvref_t<decltype(y)>(y.data(), all, strides);
    };
    x = spread(draw_uniform<operand>(random, room, stored));
    gradient = spread(room.template take<operand>(stored));
  }
};

/// f(x) of real numbers, f(real parts) and f(imaginary parts) of complex ones.
template <class X, class G, std::size_t Rank, class F>
void each_part(const view<X, Rank>& x, const view<G, Rank>& gradient, const F& f) {
  if (!x.present()) return;
  if constexpr (detail::is_complex<G>) {
    for (const index_t part : {0, 1}) {
      const auto real = [&](const auto& y) {
        shape<Rank> strides = y.strides();
        for (index_t& step : strides) step *= 2;
        return view<double, Rank>(reinterpret_cast<double*>(const_cast<G*>(y.data())) + part, y.extents(), strides);
      };
      f(real(x), real(gradient));
    }
  } else {
    f(view<double, Rank>(const_cast<double*>(x.data()), x.extents(), x.strides()), gradient);
  }
}

template <class AType>
tests::loss loss_of(const draws<double, AType>& x) {
  testing::memory room;
  auto st = x.st;
  if (x.d_st.final.present()) st.final = room.take<AType>(x.d_st.final.extents());
  const auto y = room.take<double>(x.op.u.extents());
  reference::evaluate<double>(x.op, st, y);
  return tests::loss().add(y, x.d_y).add(st.final, x.d_st.final);
}

/// f(name, field, gradient) for the fields, element by element of those that are there.
template <class AType, class F>
void each_field(const draws<double, AType>& x, const F& f) {
  const auto part = [&](const char* name, const auto& field, const auto& gradient) {
    each_part(field, gradient, [&](const auto& a, const auto& b) { f(name, a, b); });
  };
  part("u", x.op.u, x.d.u);
  part("dt", x.op.dt, x.d.dt);
  part("A", x.op.A, x.d.A);
  part("B", x.once(x.op.B), x.once(x.d.B));
  part("C", x.once(x.op.C), x.once(x.d.C));
  part("D", x.op.D, x.d.D);
  part("z", x.op.z, x.d.z);
  part("dt_bias", x.op.dt_bias, x.d.dt_bias);
  for (std::size_t s = 0; s < x.slots.size(); ++s) {
    if (x.slots[s] < 0) continue;
    part("initial", x.st.initial[x.slots[s]], x.d_st.initial[static_cast<index_t>(s)]);
  }
}

template <class AType>
void check_differences(std::uint64_t seed, int count, index_t work) {
  constexpr index_t states[] = {1, 5, 16};
  for (int i = 0; i < count; ++i) {
    testing::rng random(seed + static_cast<std::uint64_t>(i));
    const index_t N = states[i % 3], B = random.integer(1, 2);
    const index_t D = random.integer(1, std::min<index_t>(20, work / N)), L = random.integer(0, work / (N * D * B));
    const draws<double, AType> x(seed + static_cast<std::uint64_t>(i), {B, L, D, N});
    CAPTURE(i, B, L, D, N, x.op.B.extent(2), x.op.C.extent(2), static_cast<int>(x.op.rule));
    x.run();
    each_field(x, [&](const char* name, const auto& field, const auto& gradient) {
      tests::check_gradient(name, field, gradient, [&] { return loss_of(x); });
    });
    CHECK(x.room.gaps_untouched());
  }
}

/// For larger sizes: along a direction of signs.
template <class AType>
void check_slopes(std::uint64_t seed, sizes n) {
  const draws<double, AType> x(seed, n);
  CAPTURE(seed, n.length, n.channels, n.states, x.op.B.extent(2), x.op.C.extent(2), static_cast<int>(x.op.rule));
  x.run();
  testing::rng random(seed);
  each_field(x, [&](const char* name, const auto& field, const auto& gradient) {
    const auto before = testing::flatten(field);
    const auto slopes = testing::flatten(gradient);
    std::vector<double> sign(before.size());
    double slope = 0;
    for (std::size_t i = 0; i < sign.size(); ++i) {
      sign[i] = coin(random) ? 1 : -1;
      slope += sign[i] * slopes[i];
    }
    double step = 0;
    const view<double, 1> along(&step, shape<1>{1});
    const auto loss = [&] {
      testing::for_each(field, [&](double& number, index_t i) {
        number = before[static_cast<std::size_t>(i)] + step * sign[static_cast<std::size_t>(i)];
      });
      return loss_of(x);
    };
    INFO(name);
    tests::check_gradient(name, along, view<const double, 1>(&slope, shape<1>{1}), loss);
    step = 0;
    loss();
  });
}

}  // namespace

TEST_CASE("gradients of the selective scan are the differences of its definition") {
  OGIVE_SEED(seed, 60);
  check_differences<double>(seed, 36, 240);
}

TEST_CASE("gradients of the complex selective scan are the differences of its definition") {
  OGIVE_SEED(seed, 61);
  check_differences<std::complex<double>>(seed, 24, 150);
}

TEST_CASE("gradients of the selective scan over several tiles and tasks") {
  OGIVE_SEED(seed, 62);
  for (std::uint64_t i = 0; i < 12; ++i) {
    check_slopes<double>(seed + i, {1 + static_cast<index_t>(i % 2), 75, i % 3 == 0 ? 96 : 70, i % 4 == 0 ? 5 : 16});
    check_slopes<std::complex<double>>(seed + i, {1, 40, 24, 6});
  }
}

namespace {

/// The members of a team, each a thread.
template <class F>
void in_team(int members, const F& f) {
  std::barrier meeting(members);
  const auto wait = [](void* user) { static_cast<std::barrier<>*>(user)->arrive_and_wait(); };
  std::vector<std::thread> threads;
  for (int i = 0; i < members; ++i) {
    threads.emplace_back([&, i] {
      context mine = context::of({.ith = i, .nth = members, .barrier = wait, .user = &meeting});
      f(mine);
    });
  }
  for (std::thread& one : threads) one.join();
}

template <class Draws>
std::vector<std::vector<double>> all_gradients(const Draws& x) {
  std::vector<std::vector<double>> all;
  x.each([&](const char*, const auto& gradient) { all.push_back(testing::flatten(gradient)); });
  return all;
}
template <class Draws>
std::vector<std::vector<double>> twice_all(const Draws& x) {
  auto all = all_gradients(x);
  for (auto& one : all) {
    for (double& number : one) number *= 2;
  }
  return all;
}

template <class T, class AType>
void check_bits(std::uint64_t seed) {
  for (std::uint64_t i = 0; i < 6; ++i) {
    testing::rng random(seed + i);
    const sizes n{random.integer(1, 2), random.integer(1, 70), random.integer(1, 140), random.integer(1, 9)};
    CAPTURE(i, n.batch, n.length, n.channels, n.states);
    const draws<T, AType> x(seed + i, n);
    x.run();
    const auto expected = all_gradients(x);
    for (const auto& one : expected) CHECK(std::ranges::all_of(one, [](double v) { return std::isfinite(v); }));
    for (const testing::layout where : testing::all_layouts) {
      const draws<T, AType> other(seed + i, n, where);
      testing::thread_pool pool;
      context forked = context::fork_join(pool, 3);
      other.run({}, forked);
      CHECK(all_gradients(other) == expected);
      other.run({.accumulate = true});
      CHECK(all_gradients(other) == twice_all(x));
      CHECK(other.room.gaps_untouched());
    }
    const draws<T, AType> of_team(seed + i, n);
    in_team(2, [&](context& mine) { of_team.run({}, mine); });
    CHECK(all_gradients(of_team) == expected);
  }
}

}  // namespace

TEST_CASE("gradients of the selective scan: any strides, workers, and sums") {
  OGIVE_SEED(seed, 63);
  check_bits<float, float>(seed);
  check_bits<bfloat16, float>(seed + 10);
  check_bits<float, std::complex<float>>(seed + 20);
}

TEST_CASE("gradients of the selective scan that nobody wants change nothing") {
  OGIVE_SEED(seed, 64);
  for (std::uint64_t i = 0; i < 8; ++i) {
    const draws<float> all(seed + i, {2, 37, 70, 3});
    all.run();
    std::size_t field = 0;
    all.each([&](const char* name, const auto& expected) {
      CAPTURE(i, name);
      if (!expected.present()) return void(++field);
      draws<float> x(seed + i, {2, 37, 70, 3});
      const auto only = [&, place = std::size_t{0}](auto& gradient) mutable {
        if (place++ != field) gradient = {};
      };
      auto keep = only;
      keep(x.d.u), keep(x.d.dt), keep(x.d.A), keep(x.d.B), keep(x.d.C), keep(x.d.D), keep(x.d.z), keep(x.d.dt_bias);
      keep(x.d_st.initial);
      tensor<std::byte, 1> scratch({static_cast<index_t>(backward_scratch_bytes(x.op))});
      context own(scratch.flat());
      x.run({}, own);
      std::size_t found = 0;
      x.each([&](const char*, const auto& gradient) {
        if (found++ == field) CHECK(testing::flatten(gradient) == testing::flatten(expected));
      });
      ++field;
    });
  }
}

namespace {

/// Holds the gradients in T against those in double, on operands of which the sums of magnitudes are known: with |B|,
/// |C|, |u| and so on nothing cancels but in the cotangent of d, Σ q A + Σ g B u, whose second sum is d_u u / d.
template <class T, class AType>
void check_rounding(std::uint64_t seed, sizes n) {
  using wide = decltype(reference::lift<double>(AType()));
  const draws<T, AType> x(seed, n, testing::layout::dense, true);
  x.run();
  draws<double, wide> y(seed, n, testing::layout::dense, true);
  const auto widen = [&](auto& to, const auto& from) {
    using To = typename std::remove_cvref_t<decltype(to)>::value_type;
    if (from.present()) to = y.room.template copy<To>(from);
  };
  const auto given = [&] {
    widen(y.op.u, x.op.u), widen(y.op.dt, x.op.dt), widen(y.op.A, x.op.A), widen(y.op.B, x.op.B);
    widen(y.op.C, x.op.C), widen(y.st.initial, x.st.initial), widen(y.d_y, x.d_y), widen(y.d_st.final, x.d_st.final);
  };
  given();
  y.run();
  const auto expected = all_gradients(y);

  double oblique = 1;  // |A| / |Re A|
  testing::for_each(y.op.A, [&](const wide& a, index_t) { oblique = std::fmax(oblique, std::abs(a / std::real(a))); });
  y.op = testing::sampler<selective_scan<double, wide>>::absolute(y.op, y.room);
  const auto magnitudes = [&](auto& field) {
    if (field.present()) testing::for_each(field, [](auto& number, index_t) { number = std::abs(number); });
  };
  y.st.initial = testing::absolute(y.room, y.st.initial);
  magnitudes(y.d_y);
  if (y.d_st.final.present()) y.d_st.final = testing::absolute(y.room, y.d_st.final);
  y.run();
  testing::for_each(y.d.dt, [&](double& slope, index_t i) {
    const double by_step = y.d.u.data()[i] * y.op.u.data()[i] / y.op.dt.data()[i];
    slope = by_step + (by_step - slope) * oblique;
  });
  const auto sizes_of = all_gradients(y);

  const auto got = all_gradients(x);
  const index_t length = 2 * testing::sampler<selective_scan<T, AType>>::roundings(x.op) + n.channels;
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i, n.length, n.channels, n.states);
    const double scale = testing::max_abs(sizes_of[i]);
    CHECK(testing::compare(got[i], expected[i], testing::tolerance<T>(length), {.scale = scale}));
  }
}

}  // namespace

TEST_CASE("gradients of the selective scan in float are those in double, rounded") {
  OGIVE_SEED(seed, 65);
  for (std::uint64_t i = 0; i < 4; ++i) {
    check_rounding<float, float>(seed + i, {1 + static_cast<index_t>(i % 2), 67, 70, 16});
    check_rounding<bfloat16, float>(seed + i, {1, 33, 20, 5});
    check_rounding<float, std::complex<float>>(seed + i, {1, 67, 20, 5});
  }
}

TEST_CASE("gradients of the selective scan where decays vanish") {
  OGIVE_SEED(seed, 66);
  for (std::uint64_t i = 0; i < 8; ++i) {
    const bool endless = i % 2 == 1;
    CAPTURE(i, endless);
    draws<double> x(seed + i, {1, 12, 5, 3});
    x.op.dt_softplus = false;
    x.op.dt_bias = {};
    x.d.dt_bias = {};
    x.op.rule = i % 4 < 2 ? discretisation::mamba : discretisation::zoh;
    constexpr double steps[] = {0.5, 400, 2000, 0};
    testing::for_each(x.op.dt, [&](const double& d, index_t t) {
      const_cast<double&>(d) = steps[static_cast<std::uint64_t>(t) * 7 % (endless ? 4 : 3)];
    });
    if (endless) const_cast<double&>(x.op.A(0, 0)) = -std::numeric_limits<double>::infinity();
    x.run();
    // No step changes what −∞ does: it has no part in the cotangent of a step.
    x.each([&](const char* name, const auto& gradient) {
      INFO(name);
      CHECK(std::ranges::all_of(testing::flatten(gradient), [](double v) { return std::fabs(v) < 1e100; }));
    });
    each_field(x, [&](const char* name, const auto& field, const auto& gradient) {
      if (endless && (name == std::string("dt") || name == std::string("A"))) return;  // no differences there
      tests::check_gradient(name, field, gradient, [&] { return loss_of(x); });
    });
  }
}

TEMPLATE_TEST_CASE("padding that nobody asks for says nothing, whatever it holds", "", float, std::complex<float>) {
  OGIVE_SEED(seed, 67);
  for (std::uint64_t i = 0; i < 8; ++i) {
    CAPTURE(i);
    draws<float, TestType> x(seed + i, {2, 40, 20, 3}, testing::layout::dense, i % 2 == 0);
    if (x.op.B.stride(0) == 0 || x.op.C.stride(0) == 0) continue;
    x.lengths = {17, 0};
    x.op.lengths = x.lengths;
    const auto pad = [&](const auto& field, auto value) {
      using X = decltype(value);
      for (index_t b = 0; field.present() && b < 2; ++b) {
        const index_t from = x.lengths[static_cast<std::size_t>(b)];
        const auto tail = field[b].slice(0, from, 40 - from);
        testing::for_each(tail, [&](const X& number, index_t) { const_cast<X&>(number) = value; });
      }
    };
    const auto pad_all = [&](float value) {
      pad(x.op.u, value), pad(x.op.dt, value), pad(x.op.z, value);
      pad(x.op.B, typename draws<float, TestType>::operand(value));
      pad(x.op.C, typename draws<float, TestType>::operand(value));
    };
    pad(x.d_y, 0.0F);
    pad_all(0);
    x.run();
    pad(x.d.z, 0.0F);
    const auto expected = all_gradients(x);
    pad_all(std::numeric_limits<float>::quiet_NaN());
    x.run();
    pad(x.d.z, 0.0F);  // 0 · NaN, in rows of its own
    std::size_t place = 0;
    x.each([&](const char* name, const auto& gradient) {
      INFO(name);
      CHECK(testing::flatten(gradient) == expected[place++]);
    });
  }
}

TEST_CASE("backward of the selective scan refuses what does not fit, and writes nothing") {
  using scan = draws<float>;
  const auto refused = [](const char* words, const auto& spoil) {
    INFO(words);
    scan x(5, {2, 9, 6, 4}, testing::layout::dense, true);
    options how;
    spoil(x, how);
    CHECK_THROWS_WITH(x.run(how), tests::ContainsSubstring(words));
    CHECK(!check_backward(x.op, x.st, view<const float, 3>(x.d_y), x.d_st, x.d, how));
    x.each([](const char*, const auto& gradient) {
      for (const double number : testing::flatten(gradient)) CHECK(std::isnan(number));
    });
  };
  const auto shorter = [](auto& x) { x = x.slice(x.rank - 1, 0, x.extent(x.rank - 1) - 1); };
  refused("d_y has shape", [&](scan& x, options&) { shorter(x.d_y); });
  refused("d.u has shape", [&](scan& x, options&) { shorter(x.d.u); });
  refused("d.dt has shape", [&](scan& x, options&) { shorter(x.d.dt); });
  refused("d.A has shape", [&](scan& x, options&) { shorter(x.d.A); });
  refused("d.B has shape", [&](scan& x, options&) { shorter(x.d.B); });
  refused("d.C has shape", [&](scan& x, options&) { shorter(x.d.C); });
  refused("d.D has shape", [&](scan& x, options&) { x.d.D = x.room.take<float>(shape<1>{5}); });
  refused("d.dt_bias has shape", [&](scan& x, options&) { x.d.dt_bias = x.room.take<float>(shape<1>{7}); });
  refused("d.z is asked for", [&](scan& x, options&) { x.d.z = x.room.take<float>(x.op.u.extents()); });
  refused("d_st.initial has shape", [&](scan& x, options&) { shorter(x.d_st.initial); });
  refused("d_st.final has shape", [&](scan& x, options&) { x.d_st.final = x.d_st.initial.slice(1, 0, 5); });
  refused("initial has shape", [&](scan& x, options&) { x.st = {.initial = x.op.dt.slice(1, 0, 4)}; });
  refused("dt is absent", [&](scan& x, options&) { x.op.dt = {}; });
  refused("d.u of shape", [&](scan& x, options&) { x.op.u = x.d.u; });
  refused("overlaps d_y", [&](scan& x, options&) { x.d_y = x.d.u; });
  refused("overlaps d.dt", [&](scan& x, options&) { x.d.u = x.d.dt; });
  refused("overlaps d_st.initial", [&](scan& x, options&) {
    x.d.A = view<float, 2>(x.d_st.initial.data(), x.op.A.extents());
  });
  refused("overlaps B", [&](scan& x, options&) { x.op.B = x.d.B; });
  refused("is written, but several", [&](scan& x, options&) {  // B has tokens, its gradient has none
    x.d.B = {x.d.B.data(), x.d.B.extents(), {0, 0, x.d.B.stride(2), x.d.B.stride(3)}};
  });
  refused("is written, but several", [&](scan& x, options&) { x.d.dt = {x.d.dt.data(), x.d.dt.extents(), {0, 6, 1}}; });
  refused("chunked", [&](scan&, options& how) { how.form = form::chunked; });
  refused("chunk", [&](scan&, options& how) { how.chunk = -1; });
}

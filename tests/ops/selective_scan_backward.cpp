// The gradient of the selective scan.
#include <ogive/reference/selective_scan.hpp>
#include <ogive/testing/samplers/selective_scan.hpp>
#include <ogive/testing/trials.hpp>

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
  check_differences<double>(seed, 45, 300);
}

TEST_CASE("gradients of the complex selective scan are the differences of its definition") {
  OGIVE_SEED(seed, 61);
  check_differences<std::complex<double>>(seed, 30, 200);
}

TEST_CASE("gradients of the selective scan over several tiles and tasks") {
  OGIVE_SEED(seed, 62);
  for (std::uint64_t i = 0; i < 12; ++i) {
    check_slopes<double>(seed + i, {1 + static_cast<index_t>(i % 2), 75, i % 3 == 0 ? 96 : 70, i % 4 == 0 ? 5 : 16});
    check_slopes<std::complex<double>>(seed + i, {1, 40, 24, 6});
  }
}

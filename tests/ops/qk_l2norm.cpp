// q and k over their length: as if their rows had been divided before, in all that an operator does with them, and with
// the gradient through that; rows of zeros included. Keys of a removal (κ of RWKV-7, a and b) stay what they are.
#include <ogive/testing/gradient_laws.hpp>
#include <ogive/testing/samplers/delta_rules.hpp>
#include <ogive/testing/samplers/gated.hpp>
#include <ogive/testing/samplers/gated_rfa.hpp>
#include <ogive/testing/samplers/low_rank.hpp>
#include <ogive/testing/samplers/noncausal_linear_attention.hpp>
#include <ogive/testing/samplers/ssd.hpp>

#include "tests/catch.hpp"

using namespace ogive;
using namespace ogive::testing;

namespace {

constexpr double eps = 1e-6;

/// The q and k of an operator or of its gradients, by its letters.
template <class X>
auto keys_of(X& x) {
  if constexpr (requires { x.C; }) {
    return std::array{&x.C, &x.B};
  } else if constexpr (requires { x.r; }) {
    return std::array{&x.r, &x.k};
  } else {
    return std::array{&x.q, &x.k};
  }
}

/// f(b, t, h) for every row of x.
template <class T, class F>
void for_rows(const view<T, 4>& x, const F& f) {
  for (index_t b = 0; b < x.extent(0); ++b) {
    for (index_t t = 0; t < x.extent(1); ++t) {
      for (index_t h = 0; h < x.extent(2); ++h) f(b, t, h);
    }
  }
}

/// √(Σx² + ε)
double length_of_row(const view<const double, 1>& x) {
  double square = eps;
  for (const double number : flatten(x)) square += number * number;
  return std::sqrt(square);
}

view<const double, 4> normalised(memory& room, const view<const double, 4>& x) {
  const auto y = room.copy(x);
  for_rows(x, [&](index_t b, index_t t, index_t h) {
    const double n = length_of_row(x[b][t][h]);
    for_each(y[b][t][h], [&](double& number, index_t) { number /= n; });
  });
  return y;
}

/// n times the gradient of a row x from that of the row x/n: d − (x/n) ((x/n)·d).
void pull(const view<const double, 1>& unit, const view<double, 1>& d) {
  double along = 0;
  for (index_t j = 0; j < d.extent(0); ++j) along += unit[j] * d[j];
  for (index_t j = 0; j < d.extent(0); ++j) d[j] -= unit[j] * along;
}

}  // namespace

TEMPLATE_TEST_CASE("q and k are normalised before anything else, and rows of zeros stay zeros", "", retention<double>,
                   simple_gla<double>, gla<double>, rwkv5<double>, rwkv6<double>, rwkv7<double>, dplr<double>,
                   iplr<double>, delta_rule<double>, kda<double>, ssd<double>, (linear_attention<double, maps::elu1>),
                   (linear_attention<double, maps::taylor>), (gated_rfa<double, maps::elu1>),
                   (noncausal_linear_attention<double, maps::elu1>)) {
  using Op = TestType;
  OGIVE_SEED(seed, 220);
  for_seeds(seed, 3, [](std::uint64_t s) {
    testing::detail::gradient_trial<Op> x(s, 33);
    x.op.qk_l2norm = eps;
    for (const auto* field : keys_of(x.op)) {
      for_rows(*field, [&](index_t b, index_t t, index_t h) {
        if (x.random.integer(0, 2) > 0) return;
        for_each((*field)[b][t][h], [](const double& number, index_t) { const_cast<double&>(number) = 0; });
      });
    }
    Op plain = x.op;
    plain.qk_l2norm = {};
    for (auto* field : keys_of(plain)) *field = normalised(x.room, *field);
    INFO(x);

    const auto o = x.room.template take<double>(sampler<Op>::output(plain)), right = x.room.copy(o);
    forward(x.op, x.given, o);
    forward(plain, x.given, right);
    double size = 1;
    for (const double number : flatten(right)) size = std::fmax(size, std::fabs(number));
    const index_t roundings = sampler<Op>::roundings(x.op) * std::max<index_t>(1, length_of(plain));
    const auto gap = compare(o, view<const double, 4>(right), tolerance<double>(roundings), {.scale = size});
    INFO(gap);
    CHECK(gap.ok);

    const auto found = testing::detail::run_backward(x.op, x.given, x.c, {});
    const auto expected = testing::detail::run_backward(plain, x.given, x.c, {});
    const double bound = testing::detail::gradient_bound(x.op, testing::detail::largest_gradient(plain, expected));
    for (std::size_t i = 0; i < 2; ++i) {
      const view<const double, 4> field = *keys_of(x.op)[i], unit = *keys_of(plain)[i];
      for_rows(field, [&](index_t b, index_t t, index_t h) {
        const double n = length_of_row(field[b][t][h]);
        for_each((*keys_of(found.d)[i])[b][t][h], [&](double& d, index_t) { d *= n; });
        pull(unit[b][t][h], (*keys_of(expected.d)[i])[b][t][h]);
      });
    }
    CHECK(testing::detail::gradient_gap(plain, found, expected, bound) == "");
  });
}

TEST_CASE("the key of HGRN2, 1 - f, is normalised, and has a gradient where nothing is forgotten") {
  OGIVE_SEED(seed, 221);
  rng random(seed);
  memory room;
  const shape<4> keys{2, 19, 3, 5}, values{2, 19, 3, 7};
  const auto g = room.take<double>(keys), k = room.take<double>(keys), f = room.take<double>(keys);
  for_each(g, [&](double& gate, index_t i) { gate = i / 5 % 3 == 0 ? 0 : -random.unit(); });  // whole rows of 0
  for_each(k, [&](double& key, index_t i) { key = -std::expm1(g.data()[i]); });
  for_each(f, [&](double& gate, index_t i) { gate = std::exp(g.data()[i]); });
  const auto q = draw_uniform<double>(random, room, keys), v = draw_uniform<double>(random, room, values);
  const auto d_o = draw_uniform<double>(random, room, values);
  const hgrn2<double> op{.q = q, .v = v, .g = g, .qk_l2norm = eps};
  const gla<double> same{.q = q, .k = k, .v = v, .g = g, .qk_l2norm = eps};

  const auto dq = room.take<double>(keys), dv = room.take<double>(values), dg = room.take<double>(keys);
  const auto q_of = room.take<double>(keys), k_of = room.take<double>(keys), v_of = room.take<double>(values),
             g_of = room.take<double>(keys);
  for (const index_t chunk : {0, 1, 7}) {
    backward(op, {}, d_o, {}, {.q = dq, .v = dv, .g = dg}, {.chunk = chunk});
    backward(same, {}, d_o, {}, {.q = q_of, .k = k_of, .v = v_of, .g = g_of}, {.chunk = chunk});
    for_each(g_of, [&](double& d, index_t i) { d -= f.data()[i] * k_of.data()[i]; });
    for (const auto& [d, right] : {std::pair(dq, q_of), std::pair(dv, v_of), std::pair(dg, g_of)}) {
      double size = 1;  // up to 1/√ε
      for (const double slope : flatten(right)) size = std::fmax(size, std::fabs(slope));
      const auto gap = compare(d, view<const double, 4>(right), tolerance<double>(19 + 5 + 8), {.scale = size});
      INFO(gap);
      CHECK(gap.ok);
    }
  }
}

#include <ogive/core/openmp.hpp>
#include <ogive/maps/initialisation.hpp>
#include <ogive/ops/causal_convolution.hpp>
#include <ogive/ops/s4d.hpp>
#include <ogive/testing/rng.hpp>

#include <bench/clock.hpp>
#include <bench/crossover/measures.hpp>

namespace ogive::crossover {

namespace {

/// ‖x − y‖ / ‖y‖
double apart(const tensor<float, 3>& x, const tensor<float, 3>& y) {
  double difference = 0, size = 0;
  for (index_t i = 0; i < x.size(); ++i) {
    const double exact = static_cast<double>(y.data()[i]), d = static_cast<double>(x.data()[i]) - exact;
    difference += d * d;
    size += exact * exact;
  }
  return std::sqrt(difference / size);
}

}  // namespace

/// S4D as S4D-Lin begins: A = −1/2 − iπn, Δ log-uniform, C normal. The recurrence has its coefficients, as a stream
/// would. Each convolution is held against it first.
forms_table time_forms(const settings& how, progress& shown) {
  forms_table table{.channels = 64, .modes = 32};
  const index_t D = table.channels, N = table.modes, longest = forms_longest(how.brief);
  testing::rng random(how.seed);
  tensor<std::complex<float>, 2> A({D, N}), B({D, N}, {1.0F, 0.0F}), C({D, N});
  s4d_lin(A.all());
  for (index_t i = 0; i < C.size(); ++i) {
    C.data()[i] = {static_cast<float>(random.normal()), static_cast<float>(random.normal())};
  }
  tensor<float, 1> dt({D});
  tensor<double, 1> uniform({D});
  testing::fill_uniform(random, uniform.all(), 0, 1);
  log_uniform_steps(std::as_const(uniform).all(), dt.all());

  tensor<std::complex<float>, 2> A_bar({D, N}), B_bar({D, N});
  discretise(s4d<float>{.A = A, .B = B, .C = C, .dt = dt}, A_bar.all(), B_bar.all());

  context ctx = how.threads == 1 ? context() : openmp_context(how.threads);
  const bench::stopwatch watch(how.threads);
  for (index_t n = forms_shortest; n <= longest; n *= 2) {
    shown.step("recurrence and convolutions", "n = " + std::to_string(n), side_share(how.brief));
    tensor<float, 3> u({1, n, D}), by_recurrence(u), y(u);
    tensor<float, 2> K({D, n});
    testing::fill_normal(random, u.all());
    const s4d<float> system{.u = u, .A = A, .B = B, .C = C, .dt = dt};
    const s4d<float> held{.u = u, .A = A_bar, .B = B_bar, .C = C, .rule = discretisation::none};
    kernel(system, K.all(), ctx);
    const causal_convolution<float> kept{.u = u, .kernel = K};
    const auto recurrence = [&] { recurrent(held, {}, by_recurrence, {}, ctx); };
    const auto direct = [&] { recurrent(kept, {}, y, {}, ctx); };
    const auto made = [&] { convolution(system, {}, y, {}, ctx); };
    const auto transforms = [&] { convolution(kept, {}, y, {}, ctx); };

    forms_row row{.n = n};
    recurrence();
    direct(), row.difference = apart(y, by_recurrence);
    made(), row.difference = std::max(row.difference, apart(y, by_recurrence));
    transforms(), row.difference = std::max(row.difference, apart(y, by_recurrence));
    const auto [a, b, c, d] = watch.least(side_share(how.brief), recurrence, direct, made, transforms);
    row.recurrent = a, row.direct = b, row.made = c, row.kept = d;
    table.rows.push_back(row);
  }
  return table;
}

}  // namespace ogive::crossover

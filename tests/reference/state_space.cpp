#include <ogive/reference/selective_scan.hpp>
#include <ogive/reference/ssd.hpp>
#include <ogive/testing/compare.hpp>

#include "tests/within.hpp"

using namespace ogive;
using tests::WithinDigits;
using tests::WithinRoundings;

namespace {

struct ssd_arguments {
  view<const double, 4> x;
  view<const double, 3> dt;
  view<const double, 1> A;
  view<const double, 4> B, C;
  view<const double, 2> D{};
  view<const double, 4> z{};
  view<const double, 1> dt_bias{};
  bool dt_softplus = false;
  double dt_min = 0, dt_max = std::numeric_limits<double>::infinity();
  integers lengths{}, offsets{};
  heads head_map{};
};

enum class rules { mamba, zoh };

template <class Number>
struct scan_arguments {
  view<const double, 3> u, dt;
  view<const Number, 2> A;
  view<const Number, 4> B, C;
  view<const double, 1> D{};
  view<const double, 3> z{};
  view<const double, 1> dt_bias{};
  bool dt_softplus = false;
  rules rule = rules::mamba;
  integers lengths{}, offsets{};
};

template <class T = double, std::size_t Rank>
tensor<T, Rank> random(testing::rng& source, const shape<Rank>& extents, double low = -1, double high = 1) {
  tensor<T, Rank> x(extents);
  testing::fill_uniform(source, x.all(), low, high);
  return x;
}

template <std::size_t Rank>
tensor<double, Rank> ones(const shape<Rank>& extents) {
  return tensor<double, Rank>(extents, 1.0);
}

}  // namespace

TEST_CASE("SSD through the state and through its matrix") {
  OGIVE_SEED(seed, 3);
  testing::rng source(seed);
  const index_t L = 13, H = 6, P = 5, G = 3, N = 4;
  const auto x = random(source, shape<4>{1, L, H, P});
  const auto z = random(source, shape<4>{1, L, H, P});
  const auto dt = random(source, shape<3>{1, L, H});
  const auto A = random(source, shape<1>{H}, -2, -0.5);
  const auto B = random(source, shape<4>{1, L, G, N});
  const auto C = random(source, shape<4>{1, L, G, N});
  const auto D = random(source, shape<2>{H, GENERATE(index_t{1}, index_t{5})});
  const auto bias = random(source, shape<1>{H});
  const auto h0 = random(source, shape<4>{3, H, N, P});
  tensor<double, 4> last({3, H, N, P});
  const std::vector<std::int32_t> offsets{0, 5, 5, 13};
  const std::vector<std::int32_t> lengths{3, 0, 8};
  const ssd_arguments op{.x = x,
                         .dt = dt,
                         .A = A,
                         .B = B,
                         .C = C,
                         .D = D,
                         .z = z,
                         .dt_bias = bias,
                         .dt_softplus = true,
                         .dt_min = 0.1,
                         .dt_max = 1,
                         .lengths = lengths,
                         .offsets = offsets,
                         .head_map = GENERATE(heads::consecutive, heads::tiled)};
  tensor<double, 4> y({1, L, H, P});
  tensor<double, 4> expected = y;
  reference::evaluate<double>(op, state<double>{.initial = h0, .final = last}, y.all());
  reference::evaluate_masked<double>(op, state<double>{.initial = h0}, expected.all());
  CHECK(testing::compare(y.all(), expected.all(), testing::tolerance<double>(2 * L * N)));
  CHECK(last(1, 2, 3, 4) == h0(1, 2, 3, 4));
}

TEST_CASE("SSD is a selective scan whose channels of a head share one A") {
  OGIVE_SEED(seed, 4);
  testing::rng source(seed);
  const index_t Bn = 2, L = 9, H = 4, P = 3, G = 2, N = 5;
  const auto x = random(source, shape<4>{Bn, L, H, P});
  const auto dt = random(source, shape<3>{Bn, L, H}, 0.01, 0.5);
  const auto A = random(source, shape<1>{H}, -2, -0.5);
  const auto B = random(source, shape<4>{Bn, L, G, N});
  const auto C = random(source, shape<4>{Bn, L, G, N});
  tensor<double, 4> y({Bn, L, H, P});
  tensor<double, 3> scanned({Bn, L, H * P});
  reference::evaluate<double>(ssd_arguments{.x = x, .dt = dt, .A = A, .B = B, .C = C}, {}, y.all());
  const view<const double, 3> u(x.data(), {Bn, L, H * P});
  tensor<double, 3> dt_of_channel({Bn, L, H * P});
  tensor<double, 2> A_of_channel({H * P, N});
  testing::for_each(dt_of_channel.all(), [&](double& d, index_t i) { d = dt.data()[i / P]; });
  testing::for_each(A_of_channel.all(), [&](double& a, index_t i) { a = A(i / (P * N)); });
  reference::evaluate<double>(scan_arguments<double>{.u = u, .dt = dt_of_channel, .A = A_of_channel, .B = B, .C = C},
                              {}, scanned.all());
  CHECK(
      testing::compare(testing::flatten(y.all()), testing::flatten(scanned.all()), testing::tolerance<double>(L * N)));
}

TEST_CASE("the selective scan by Mamba's rule and by the exact one") {
  const auto one = ones<3>({1, 3, 1});
  const auto weight = ones<4>({1, 3, 1, 1});
  const tensor<double, 2> A({1, 1}, -1.0);
  scan_arguments<double> op{.u = one, .dt = one, .A = A, .B = weight, .C = weight};
  tensor<double, 3> y({1, 3, 1});
  reference::evaluate<double>(op, {}, y.all());
  CHECK_THAT(y(0, 2, 0), WithinDigits(1.50321472441, 12));
  op.rule = rules::zoh;
  reference::evaluate<double>(op, {}, y.all());
  CHECK_THAT(y(0, 0, 0), WithinDigits(0.632120558829, 12));
  CHECK_THAT(y(0, 2, 0), WithinDigits(0.950212931632, 12));
}

TEST_CASE("a complex scan with its conjugates written out is a real sum") {
  OGIVE_SEED(seed, 5);
  testing::rng source(seed);
  using complex = std::complex<double>;
  const index_t L = 6, D = 4, G = 2, N = 3;
  const auto u = random(source, shape<3>{1, L, D});
  const auto dt = random(source, shape<3>{1, L, D}, 0.1, 0.5);
  auto A = random<complex>(source, shape<2>{D, N});
  auto B = random<complex>(source, shape<4>{1, L, G, N});
  auto C = random<complex>(source, shape<4>{1, L, G, N});
  tensor<complex, 2> both_A({D, 2 * N});
  tensor<complex, 4> both_B({1, L, G, 2 * N});
  tensor<complex, 4> both_C({1, L, G, 2 * N});
  const auto pair = [&](const auto& half, auto& both) {
    testing::for_each(both.all(), [&](complex& x, index_t i) {
      const index_t row = i / (2 * N), r = i % (2 * N);
      const complex kept = half.data()[row * N + r % N];
      x = r < N ? kept : std::conj(kept);
    });
  };
  pair(A, both_A);
  pair(B, both_B);
  pair(C, both_C);
  const rules rule = GENERATE(rules::mamba, rules::zoh);
  tensor<double, 3> y({1, L, D});
  tensor<double, 3> doubled({1, L, D});
  reference::evaluate<double>(scan_arguments<complex>{.u = u, .dt = dt, .A = A, .B = B, .C = C, .rule = rule}, {},
                              y.all());
  reference::evaluate<double>(
      scan_arguments<complex>{.u = u, .dt = dt, .A = both_A, .B = both_B, .C = both_C, .rule = rule}, {},
      doubled.all());
  for (double& number : doubled.flat()) number /= 2;
  CHECK(testing::compare(y.all(), doubled.all(), testing::tolerance<double>(8 * L * N)));
}

TEST_CASE("zero-order hold keeps its digits") {
  const auto [A_bar, B_bar] = reference::zoh(-1.0, 2.0, 0.5);
  // Ā is an exponential (two); B̄ one, a quotient and a product.
  CHECK_THAT(A_bar, WithinRoundings<double>(0.60653065971263342, 2));
  CHECK_THAT(B_bar, WithinRoundings<double>(0.78693868057473315, 4));
  CHECK_THAT(A_bar * B_bar + B_bar, WithinRoundings<double>(1.2642411176571153, 2 + 4 + 2));
  CHECK(reference::zoh(0.0, 3.0, 0.5).second == 1.5);
  const double small = -1e-12;  // (e^x − 1)/x = 1 + x/2 + x²/6 + …, and x² is no digit of 1
  CHECK_THAT(reference::zoh(small, 1.0, 0.5).second, WithinRoundings<double>(0.5 * (1 + 0.5 * small / 2), 4));
  CHECK(reference::zoh(-1e12, 1.0, 0.5).second == 1e-12);
  const double angle = 1e-9;  // (e^iθ − 1)/(iθ) = sin θ/θ + i (1 − cos θ)/θ, the latter θ/2 to all digits
  const auto turned = reference::zoh(std::complex(0.0, angle), std::complex(1.0), 1.0);
  CHECK_THAT(turned.second.imag(), WithinRoundings<double>(angle / 2, 6));
  CHECK(reference::generalised_bilinear(-1.0, 1.0, 0.5, 0.0) == std::pair(0.5, 0.5));
  CHECK(reference::generalised_bilinear(-1.0, 1.0, 0.5, 1.0) == std::pair(1 / 1.5, 0.5 / 1.5));
}

#include <ogive/maps/dplr.hpp>
#include <ogive/maps/hippo.hpp>

#include "tests/within.hpp"

using namespace ogive;
using tests::WithinDigits;

namespace {

using complex = std::complex<double>;

const auto normal_measures = {measure::legs,  measure::legt,    measure::lagt,
                              measure::glagt, measure::fourier, measure::fourier_decay};

struct system_of {
  tensor<double, 2> A;
  tensor<double, 1> B;
  system_of(measure of, index_t N, const hippo_parameters& with = {}) : A({N, N}), B({N}) { hippo(of, A, B, with); }
};

struct form_of {
  tensor<complex, 1> W, B;
  tensor<complex, 2> P, V;
  form_of(measure of, index_t N, index_t R, const hippo_parameters& with = {})
      : W({N / 2}), B({N / 2}), P({R, N / 2}), V({N, N / 2}) {
    nplr(of, W, P, B, V, with);
  }
};

}  // namespace

TEST_CASE("worked example: the four measures that S4 starts from, N = 4") {
  const system_of legs(measure::legs, 4);
  CHECK_THAT(legs.A(1, 0), WithinDigits(-1.7320508075688772, 16));
  CHECK(legs.A(3, 3) == -4);
  CHECK(legs.A(0, 3) == 0);
  CHECK_THAT(legs.B(3), WithinDigits(2.6457513110645907, 16));
  const system_of legt(measure::legt, 4);
  CHECK(legt.A(0, 0) == -0.5);
  CHECK_THAT(legt.A(0, 1), WithinDigits(0.8660254037844386, 15));
  CHECK_THAT(legt.A(1, 0), WithinDigits(-0.8660254037844386, 15));
  const system_of lagt(measure::lagt, 4);
  CHECK((lagt.A(2, 2) == -0.5 && lagt.A(2, 1) == -1 && lagt.A(1, 2) == 0 && lagt.B(3) == 1));
  const system_of fourier(measure::fourier, 4);
  CHECK_THAT(fourier.A(0, 2), WithinDigits(-1.4142135623730951, 16));
  CHECK_THAT(fourier.A(3, 2), WithinDigits(3.14159265358979, 15));
  CHECK_THAT(fourier.A(2, 3), WithinDigits(-3.14159265358979, 15));
}

TEST_CASE("lmu is legt in the coordinates of the polynomials that are not normalised") {
  // h_n = (−1)^n √(2n+1) g_n turns one into the other, but for the factor of the window.
  const index_t N = 7;
  const system_of legt(measure::legt, N), lmu(measure::lmu, N);
  const auto scale = [](index_t n) { return (n % 2 == 0 ? 1 : -1) * std::sqrt(2 * static_cast<double>(n) + 1); };
  for (index_t n = 0; n < N; ++n) {
    CHECK(std::abs(2 * legt.B(n) * scale(n) - lmu.B(n)) <= testing::tolerance<double>(4, std::abs(lmu.B(n))));
    for (index_t k = 0; k < N; ++k) {
      const double expected = lmu.A(n, k) * scale(k) / scale(n);
      CHECK(std::abs(2 * legt.A(n, k) - expected) <= testing::tolerance<double>(8, std::abs(expected)));
    }
  }
}

TEST_CASE("glagt at α = 0 and β = 0 is lagt; with α its columns are scaled") {
  const index_t N = 5;
  const double beta = 0.25;
  const system_of lagt(measure::lagt, N), plain(measure::glagt, N, {.alpha = 0, .beta = beta}),
      tilted(measure::glagt, N, {.alpha = 0.5, .beta = beta});
  const double few = testing::tolerance<double>(16);
  for (index_t n = 0; n < N; ++n) {
    CHECK_THAT(plain.B(n), tests::WithinRel(std::sqrt(beta), few));
    CHECK_THAT(plain.A(n, n), tests::WithinRel(-0.5 - beta / 2, few));
    // ℓ_n² / Γ(α + 1) = Π_{i ≤ n} (i + α)/i.
    double binomial = 1;
    for (index_t i = 1; i <= n; ++i) binomial *= (static_cast<double>(i) + 0.5) / static_cast<double>(i);
    const double ell = std::sqrt(binomial * std::tgamma(1.5));
    CHECK_THAT(tilted.B(n), tests::WithinRel(binomial / ell * std::pow(beta, 0.25) / std::sqrt(std::tgamma(0.5)), few));
    for (index_t k = 0; k < n; ++k) {
      CHECK_THAT(plain.A(n, k), tests::WithinRel(lagt.A(n, k), few));
      double ratio = 1;
      for (index_t i = k + 1; i <= n; ++i) ratio *= std::sqrt((static_cast<double>(i) + 0.5) / static_cast<double>(i));
      CHECK_THAT(tilted.A(n, k), tests::WithinRel(-1 / ratio, few));
    }
  }
}

TEST_CASE("normal plus low rank: A and B come back, V is orthonormal with its conjugate, W is ordered") {
  for (const measure of : normal_measures) {
    for (const index_t N : {2, 4, 8, 16, 64}) {
      const index_t R = of == measure::legt || N == 8 ? 2 : 1, M = N / 2;
      INFO(maps::detail::name_of(of) << " N " << N);
      const system_of is(of, N);
      const form_of got(of, N, R);
      const double norm = testing::norm(is.A.all()), size = testing::norm(is.B.all());
      // Backward stable, an orthogonal similarity: a few times N roundings of the norm.
      const double unit = testing::tolerance<double>(4 * N), bound = testing::tolerance<double>(4 * N, 1 + 3 * norm);
      double frequency = -std::numeric_limits<double>::infinity();
      for (index_t m = 0; m < M; ++m) {
        CHECK(got.W(m).imag() <= 0);
        CHECK(got.W(m).imag() >= frequency);
        CHECK(got.W(m).real() == (of == measure::legs ? -0.5 : of == measure::glagt ? -0.005 : 0));
        frequency = got.W(m).imag();
        for (index_t k = 0; k < M; ++k) {
          complex with = 0, conjugate = 0;
          for (index_t n = 0; n < N; ++n) {
            with += std::conj(got.V(n, m)) * got.V(n, k);
            conjugate += got.V(n, m) * got.V(n, k);
          }
          CHECK(std::abs(with - (m == k ? 1.0 : 0.0)) <= unit);
          CHECK(std::abs(conjugate) <= unit);
        }
      }
      const auto real_part = [&](index_t n, const auto& x) {
        double sum = 0;
        for (index_t m = 0; m < M; ++m) sum += 2 * (got.V(n, m) * x(m)).real();
        return sum;
      };
      for (index_t n = 0; n < N; ++n) {
        CHECK(std::abs(real_part(n, got.B) - is.B(n)) <= testing::tolerance<double>(4 * N, 1 + size));
        for (index_t k = 0; k < N; ++k) {
          double A = real_part(n, [&](index_t m) { return got.W(m) * std::conj(got.V(k, m)); });
          for (index_t r = 0; r < R; ++r) {
            const auto p = [&](index_t i) { return real_part(i, [&](index_t m) { return got.P(r, m); }); };
            A -= p(n) * p(k);
          }
          CHECK(std::abs(A - is.A(n, k)) <= bound);
        }
      }
    }
  }
}

TEST_CASE("the bilinear rule of the normal plus low-rank form is that of the HiPPO matrix") {
  for (const measure of : {measure::legs, measure::legt, measure::fourier}) {
    const index_t N = 16, M = N / 2, R = of == measure::legt ? 2 : 1;
    INFO(maps::detail::name_of(of));
    const double half = 0.025;  // Δ/2
    const system_of is(of, N);
    const form_of form(of, N, R);
    tensor<complex, 1> a({M}), b({M});
    tensor<complex, 2> U({R, M}), Q({R, M});
    discretise_dplr(2 * half, form.W.all(), form.P.all(), form.B.all(), {a, U, Q, b});

    // (I − Δ/2 A) A̅ = I + Δ/2 A and (I − Δ/2 A) B̅ = Δ B, in the coordinates h = 2 Re(V x).
    tensor<double, 2> A_bar({N, N + 1});  // and B̅, its last column
    for (index_t k = 0; k <= N; ++k) {
      tensor<complex, 1> x(b);
      for (index_t m = 0; m < M && k < N; ++m) x(m) = a(m) * std::conj(form.V(k, m));
      for (index_t r = 0; r < R && k < N; ++r) {
        double read = 0;
        for (index_t m = 0; m < M; ++m) read += 2 * (Q(r, m) * std::conj(form.V(k, m))).real();
        for (index_t m = 0; m < M; ++m) x(m) -= U(r, m) * read;
      }
      for (index_t n = 0; n < N; ++n)
        for (index_t m = 0; m < M; ++m) A_bar(n, k) += 2 * (form.V(n, m) * x(m)).real();
    }
    const double norm = half * testing::norm(is.A.all());
    const double bound = testing::tolerance<double>(8 * N, 1 + norm, 1 + testing::norm(A_bar.all()), 1 + norm);
    for (index_t n = 0; n < N; ++n) {
      for (index_t k = 0; k <= N; ++k) {
        double left = A_bar(n, k);
        for (index_t i = 0; i < N; ++i) left -= half * is.A(n, i) * A_bar(i, k);
        const double right = k == N ? 2 * half * is.B(n) : (n == k ? 1 : 0) + half * is.A(n, k);
        CHECK(std::abs(left - right) <= bound);
      }
    }
  }
}

TEST_CASE("S4D-LegS has the frequencies of LegS in every channel") {
  const form_of legs(measure::legs, 8, 1);
  tensor<complex, 2> A({3, 4});
  s4d_legs(A.all());
  for (index_t d = 0; d < 3; ++d)
    for (index_t n = 0; n < 4; ++n) CHECK(A(d, n) == legs.W(n));
  CHECK_THAT(A(2, 0).imag(), WithinDigits(-19.857410370971, 14));
  s4d_legs(A.all(), {.real = 2, .imag = 0.5});
  CHECK(A(1, 1) == complex(-1, legs.W(1).imag() / 2));
}

TEST_CASE("systems that do not exist are refused and nothing is written") {
  tensor<double, 2> A({5, 5}, 7.0);
  tensor<double, 1> B({5}, 7.0);
  CHECK_THROWS_WITH(hippo(measure::fourier, A, B), tests::ContainsSubstring("ogive::hippo: A has N = 5"));
  CHECK_THROWS_AS(hippo(measure::fourier_decay, A, B), shape_error);
  CHECK_THROWS_AS(hippo(measure::legs, A.all().slice(1, 0, 4), B), shape_error);
  CHECK_THROWS_AS(hippo(measure::legs, A, B.all().slice(0, 0, 4)), shape_error);
  CHECK_THROWS_WITH(hippo(measure::legs, tensor<double, 2>({0, 0}), tensor<double, 1>({0})),
                    tests::ContainsSubstring("N = 0"));
  CHECK_THROWS_WITH(hippo(measure::glagt, A, B, {.alpha = 1}), tests::ContainsSubstring("alpha = 1.0"));
  CHECK_THROWS_AS(hippo(measure::glagt, A, B, {.beta = 0}), std::invalid_argument);
  CHECK_THROWS_AS(hippo(measure::legs, A, A.all()[2]), shape_error);
  for (const double x : A.flat()) CHECK(x == 7);

  tensor<complex, 1> W({3}), b({3});
  tensor<complex, 2> P({1, 3}), V({6, 3}), odd({5, 3});
  CHECK_THROWS_WITH(nplr(measure::legs, W, P, b, odd), tests::ContainsSubstring("ogive::nplr: V has N = 5"));
  CHECK_THROWS_WITH(nplr(measure::legt, W, P, b, V), tests::ContainsSubstring("legt needs at least 2"));
  CHECK_THROWS_WITH(nplr(measure::lmu, W, P, b, V), tests::ContainsSubstring("use legt"));
  CHECK_THROWS_WITH(nplr(measure::glagt, W, P, b, V, {.alpha = 0.5}), tests::ContainsSubstring("alpha = 0"));
  CHECK_THROWS_AS(nplr(measure::legs, W, P, W, V), shape_error);
  CHECK_THROWS_AS(nplr(measure::legs, W.all().slice(0, 0, 2), P, b, V), shape_error);
  for (const complex& x : W.flat()) CHECK(x == 0.0);
}

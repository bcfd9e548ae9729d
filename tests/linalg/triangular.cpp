#include <ogive/linalg/trsm.hpp>

#include "panels.hpp"

using namespace ogive;
using namespace ogive::linalg;
using namespace ogive::tests;

namespace {

constexpr index_t heights[] = {0, 1, 2, 7, 8, 17, 31}, widths[] = {1, 16, 39};

template <class T>
void poison_upper(index_t m, bool diagonal, matrix<T>& a) {
  for (index_t i = 0; i < m; ++i)
    for (index_t j = diagonal ? i : i + 1; j < m; ++j) a.at(i, j) = std::numeric_limits<T>::quiet_NaN();
}

}  // namespace

TEST_CASE("the triangular product, as it is and turned round, never reads above the diagonal") {
  OGIVE_SEED(seed, 31);
  std::mt19937_64 engine(seed);
  for_each_vector([&]<class T, class Arch>() {
    for (const index_t m : heights) {
      for (const index_t n : widths) {
        for (const int which : {0, 1, 2, 3}) {
          const bool strict = which % 2 == 1, turned = which >= 2;
          CAPTURE((simd::width<T, Arch>), m, n, strict, turned);
          matrix<T> a(m, m, engine), c(m, n, engine);
          const matrix<T> b(m, n, engine);
          poison_upper(m, strict, a);
          c.fill(std::numeric_limits<T>::quiet_NaN());
          if (turned) {
            strict ? gemm_strict_tril_turned<Arch>(m, n, a, b, c.view()) : gemm_tril_turned<Arch>(m, n, a, b, c.view());
          } else {
            strict ? gemm_strict_tril<Arch>(m, n, a, b, c.view()) : gemm_tril<Arch>(m, n, a, b, c.view());
          }
          CHECK(c.frame_intact());
          for (index_t i = 0; i < m; ++i) {
            for (index_t j = 0; j < n; ++j) {
              exact_sum sum;
              for (index_t p = 0; p < m; ++p) {
                const index_t row = turned ? p : i, column = turned ? i : p;
                if (strict ? column < row : column <= row) sum.add(a.at(row, column), b.at(p, j));
              }
              if (!sum.agrees(c.at(i, j))) FAIL_CHECK("(" << i << ", " << j << ") is " << c.at(i, j));
            }
          }
        }
      }
    }
  });
}

TEST_CASE("what is not a number stays in its row and the rows below") {
  OGIVE_SEED(seed, 32);
  std::mt19937_64 engine(seed);
  constexpr index_t m = 21, n = 40;
  for_each_vector([&]<class T, class Arch>() {
    const matrix<T> a(m, m, engine);
    matrix<T> b(m, n, engine), clean(m, n, engine), c(m, n, engine);
    gemm_tril<Arch>(m, n, a, b, clean.view());
    for (index_t bad = 0; bad < m; ++bad) {
      for (const T value : {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity()}) {
        const T before = b.at(bad, n / 2);
        b.at(bad, n / 2) = value;
        for (const bool strict : {false, true}) {
          if (strict) {
            gemm_strict_tril<Arch>(m, n, a, b, c.view());
          } else {
            gemm_tril<Arch>(m, n, a, b, c.view());
          }
          for (index_t i = 0; i < m; ++i) {
            for (index_t j = 0; j < n; ++j) {
              const bool reached = j == n / 2 && (strict ? i > bad : i >= bad);
              if (std::isfinite(c.at(i, j)) == reached) FAIL_CHECK("row " << bad << " and (" << i << ", " << j << ")");
              if (!strict && !reached) CHECK(bits_of(c.at(i, j)) == bits_of(clean.at(i, j)));
            }
          }
        }
        b.at(bad, n / 2) = before;
      }
    }
  });
}

TEST_CASE("the unit lower solve undoes its product") {
  OGIVE_SEED(seed, 33);
  std::mt19937_64 engine(seed);
  for_each_vector([&]<class T, class Arch>() {
    for (const index_t m : heights) {
      for (const index_t n : widths) {
        CAPTURE((simd::width<T, Arch>), m, n);
        matrix<T> a(m, m, engine), x(m, n, engine);
        const matrix<T> b(m, n, engine);
        poison_upper(m, true, a);
        for (index_t i = 0; i < m; ++i)
          for (index_t j = 0; j < n; ++j) x.at(i, j) = b.at(i, j);
        solve_unit_lower<Arch>(m, n, a, x.view());
        CHECK(x.frame_intact());
        // Row by row: x_i = b_i − Σ_{j<i} a_ij x_j with the x_j that were found, so no condition number enters.
        for (index_t i = 0; i < m; ++i) {
          for (index_t j = 0; j < n; ++j) {
            exact_sum sum;
            sum.add(1, b.at(i, j));
            for (index_t p = 0; p < i; ++p) sum.add(-a.at(i, p), x.at(p, j));
            if (!sum.agrees(x.at(i, j))) FAIL_CHECK("(" << i << ", " << j << ") is " << x.at(i, j));
          }
        }
      }
    }
  });
}

TEST_CASE("solved a few columns at a time, the same bits") {
  OGIVE_SEED(seed, 34);
  std::mt19937_64 engine(seed);
  constexpr index_t m = 27, n = 45;
  for_each_vector([&]<class T, class Arch>() {
    const matrix<T> a(m, m, engine);
    matrix<T> whole(m, n, engine), parts(m, n, engine);
    for (index_t i = 0; i < m; ++i)
      for (index_t j = 0; j < n; ++j) parts.at(i, j) = whole.at(i, j);
    solve_unit_lower<Arch>(m, n, a, whole.view());
    for (index_t j = 0; j < n; j += 7) {
      solve_unit_lower<Arch>(m, std::min<index_t>(7, n - j), a, panel<T>{&parts.at(0, j), parts.stride()});
    }
    for (index_t i = 0; i < m; ++i)
      for (index_t j = 0; j < n; ++j) CHECK(bits_of(parts.at(i, j)) == bits_of(whole.at(i, j)));
  });
}

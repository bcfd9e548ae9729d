#include <ogive/linalg/gemm.hpp>

#include "panels.hpp"

using namespace ogive;
using namespace ogive::linalg;
using namespace ogive::tests;

namespace {

constexpr index_t heights[] = {0, 1, 5, 8, 19}, widths[] = {0, 1, 7, 16, 33, 50}, depths[] = {0, 1, 6, 35};

template <class T, class At>
void check_elements(const char* name, index_t m, index_t n, const matrix<T>& c, const At& expected) {
  CAPTURE(name, sizeof(T), m, n);
  CHECK(c.frame_intact());
  for (index_t i = 0; i < m; ++i) {
    for (index_t j = 0; j < n; ++j) {
      const exact_sum sum = expected(i, j);
      if (!sum.template agrees<T>(c.at(i, j)))
        FAIL_CHECK("(" << i << ", " << j << ") is " << c.at(i, j) << ", not " << double(sum.value));
    }
  }
}

}  // namespace

TEST_CASE("products of every shape against plain loops") {
  OGIVE_SEED(seed, 21);
  std::mt19937_64 engine(seed);
  for_each_vector([&]<class T, class Arch>() {
    for (const index_t m : heights) {
      for (const index_t n : widths) {
        for (const index_t k : depths) {
          CAPTURE((simd::width<T, Arch>), m, n, k);
          matrix<T> c(m, n, engine);
          const matrix<T> a(m, k, engine), at(k, m, engine), b(k, n, engine), bt(n, k, engine);
          std::vector<T> scratch(static_cast<std::size_t>(gemm_abt_scratch<T, Arch>(n, k)));
          const auto sum = [k](const auto& left, const auto& right) {
            exact_sum s;
            for (index_t p = 0; p < k; ++p) s.add(left(p), right(p));
            return s;
          };

          c.fill(std::numeric_limits<T>::quiet_NaN());  // overwriting reads nothing
          gemm_ab<Arch>(m, n, k, a, b, c.view());
          check_elements("A B", m, n, c, [&](index_t i, index_t j) {
            return sum([&](index_t p) { return a.at(i, p); }, [&](index_t p) { return b.at(p, j); });
          });
          c.fill(std::numeric_limits<T>::quiet_NaN());
          gemm_atb<Arch>(m, n, k, at, b, c.view());
          check_elements("A^T B", m, n, c, [&](index_t i, index_t j) {
            return sum([&](index_t p) { return at.at(p, i); }, [&](index_t p) { return b.at(p, j); });
          });
          const matrix<T> a2t(k, m, engine), b2(k, n, engine);
          c.fill(std::numeric_limits<T>::quiet_NaN());
          gemm_atb_pair<Arch>(m, n, k, at, b, a2t, b2, c.view());
          check_elements("A^T B and another", m, n, c, [&](index_t i, index_t j) {
            exact_sum s;
            for (index_t p = 0; p < k; ++p) s.add(at.at(p, i), b.at(p, j)), s.add(a2t.at(p, i), b2.at(p, j));
            return s;
          });
          const auto scores = [&](index_t i, index_t j) {
            return sum([&](index_t p) { return a.at(i, p); }, [&](index_t p) { return bt.at(j, p); });
          };
          c.fill(std::numeric_limits<T>::quiet_NaN());
          gemm_abt<Arch>(m, n, k, a, bt, c.view(), scratch.data());
          check_elements("A B^T", m, n, c, scores);
          if (n <= m) {
            c.fill(std::numeric_limits<T>::quiet_NaN());
            gemm_abt_lower<Arch>(m, n, k, a, bt, c.view(), scratch.data());
            for (index_t i = 0; i < m; ++i)
              for (index_t j = i + 1; j < n; ++j) c.at(i, j) = static_cast<T>(scores(i, j).value);
            check_elements("lower A B^T", m, n, c, scores);
          }
        }
      }
    }
  });
}

TEST_CASE("what becomes of a finished sum") {
  OGIVE_SEED(seed, 22);
  std::mt19937_64 engine(seed);
  constexpr index_t m = 11, n = 37, k = 9;
  for_each_vector([&]<class T, class Arch>() {
    const matrix<T> a(m, k, engine), b(k, n, engine), before(m, n, engine), row(1, m, engine);
    const T* r = &static_cast<panel<const T>>(row).data[0];
    const auto check = [&](const char* name, const auto& finish, const auto& old_factor, const auto& sum_factor) {
      matrix<T> c(m, n, engine);
      for (index_t i = 0; i < m; ++i)
        for (index_t j = 0; j < n; ++j) c.at(i, j) = before.at(i, j);
      gemm_ab<Arch>(m, n, k, a, b, c.view(), finish);
      check_elements(name, m, n, c, [&](index_t i, index_t j) {
        exact_sum s;
        s.add(old_factor(i), before.at(i, j));
        for (index_t p = 0; p < k; ++p) s.add(sum_factor(i) * static_cast<long double>(a.at(i, p)), b.at(p, j));
        return s;
      });
    };
    const auto constant = [](long double x) { return [x](index_t) { return x; }; };
    const auto per_row = [&](index_t i) { return static_cast<long double>(r[i]); };
    check("overwrite", overwrite{}, constant(0), constant(1));
    check("add", add{}, constant(1), constant(1));
    check("subtract", subtract{}, constant(1), constant(-1));
    check("scale_rows", scale_rows<T>{r}, constant(0), per_row);
    check("scale_rows_add", scale_rows_add<T>{r}, constant(1), per_row);
    check("decay", decay<T>{T(0.75)}, constant(0.75L), constant(1));
    check("decay_rows", decay_rows<T>{r}, per_row, constant(1));
  });
}

TEST_CASE("an element has the same bits however the product is split or placed") {
  OGIVE_SEED(seed, 23);
  std::mt19937_64 engine(seed);
  constexpr index_t m = 21, n = 53, k = 40;
  for_each_vector([&]<class T, class Arch>() {
    const matrix<T> a(m, k, engine), b(k, n, engine);
    const panel<const T> pa = a, pb = b;
    matrix<T> whole(m, n, engine), parts(m, n, engine);
    gemm_ab<Arch>(m, n, k, a, b, whole.view());
    for (const index_t rows : {1, 3, 8, 13}) {
      for (const index_t columns : {1, 5, 16, 31}) {
        parts.fill(T(0));
        for (index_t i = 0; i < m; i += rows) {
          for (index_t j = 0; j < n; j += columns) {
            const panel<T> c{&parts.at(i, j), parts.stride()};
            gemm_ab<Arch>(std::min(rows, m - i), std::min(columns, n - j), k, pa.from(i, 0), pb.from(0, j), c);
          }
        }
        for (index_t i = 0; i < m; ++i) {
          for (index_t j = 0; j < n; ++j) {
            if (bits_of(parts.at(i, j)) != bits_of(whole.at(i, j))) FAIL_CHECK("split " << rows << " x " << columns);
          }
        }
      }
    }
    // and every width that fuses agrees with every other
    if (simd::has_fma<T, Arch> == simd::has_fma<T>) {
      gemm_ab(m, n, k, a, b, parts.view());
      for (index_t i = 0; i < m; ++i)
        for (index_t j = 0; j < n; ++j) CHECK(bits_of(parts.at(i, j)) == bits_of(whole.at(i, j)));
    }
  });
}

TEST_CASE("transpose of every shape") {
  OGIVE_SEED(seed, 24);
  std::mt19937_64 engine(seed);
  for_each_vector([&]<class T, class Arch>() {
    for (const index_t n : widths) {
      for (const index_t k : {0, 1, 7, 16, 20}) {
        const matrix<T> b(n, k, engine);
        matrix<T> out(k, n, engine);
        transpose<Arch>(n, k, b, out.view());
        CHECK(out.frame_intact());
        for (index_t i = 0; i < n; ++i)
          for (index_t p = 0; p < k; ++p) CHECK(out.at(p, i) == b.at(i, p));
      }
    }
  });
}

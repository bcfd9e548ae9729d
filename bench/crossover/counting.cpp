#include <ogive/reference/linear_attention.hpp>
#include <ogive/testing/counted.hpp>

#include <bench/crossover/measures.hpp>
#include <stdexcept>

namespace ogive::crossover {

namespace {

using testing::counted;

struct flops {
  std::int64_t left;
  std::int64_t right;
  friend bool operator==(const flops&, const flops&) = default;
};

flops count(index_t n, index_t d, bool causal) {
  const tensor<counted, 2> q({n, d}), k({n, d}), v({n, d});
  tensor<counted, 2> o({n, d});
  const auto left = [&] { reference::left_product<counted>(q.all(), k.all(), v.all(), o.all(), causal); };
  const auto right = [&] { reference::right_product<counted>(q.all(), k.all(), v.all(), o.all(), causal); };
  return {testing::count(left).flops(), testing::count(right).flops()};
}

[[noreturn]] void fail(index_t d, bool causal, const std::string& fault) {
  throw std::runtime_error("counting flops, d = " + std::to_string(d) + (causal ? ", causal: " : ", non-causal: ") +
                           fault);
}

}  // namespace

/// The loops of the definitions make the counts polynomials of n: quadratic without a constant on the left, linear on
/// the right. Two counts fix them; further ones, up to beyond the crossing, must agree.
cost count_products(index_t d, bool causal) {
  const flops one = count(1, d, causal), two = count(2, d, causal);
  cost c;
  c.left_square = (two.left - 2 * one.left) / 2;
  c.left_linear = one.left - c.left_square;
  c.right_linear = one.right;
  if ((c.right_linear - c.left_linear) % c.left_square != 0) fail(d, causal, "the products cross between two n");
  c.crossing = static_cast<index_t>((c.right_linear - c.left_linear) / c.left_square);

  for (const index_t n : {index_t{2}, index_t{3}, d / 2, c.crossing - 1, c.crossing, c.crossing + 1, 2 * d + 1}) {
    const flops counts = count(n, d, causal);
    if (counts != flops{c.left(n), c.right(n)}) fail(d, causal, "they are no polynomial at n = " + std::to_string(n));
    if ((counts.left <=> counts.right) != (n <=> c.crossing)) fail(d, causal, "the products do not cross once");
  }
  if (const index_t theory = causal ? 2 * d - 1 : d; c.crossing != theory) {
    fail(d, causal,
         "the products cross at n = " + std::to_string(c.crossing) + " instead of " + std::to_string(theory));
  }
  return c;
}

}  // namespace ogive::crossover

// The kernel of fixed modes: against its definition for all lengths that tables meet, and how far powers drift.
#include <ogive/testing/samplers/s4d.hpp>
#include <ogive/testing/trials.hpp>

#include "tests/catch.hpp"

using namespace ogive;

namespace {

/// |K − K of the definition| ≤ ((2N + 16) u + 4 l u_double) Σ |c a^l|, as the engine says.
template <class Op>
std::string kernel_gap(const Op& op, const view<const accum_t<typename Op::scalar>, 2>& K, bool exact_steps) {
  using Acc = accum_t<typename Op::scalar>;
  testing::memory room;
  const auto right = room.take<double>(K.extents()), size = room.take<double>(K.extents());
  reference::kernel<long double>(op, right);
  reference::kernel<double>(testing::sampler<Op>::absolute(op, room).op, size);
  const double roundings = static_cast<double>((Op::complex ? 2 : 1) * op.A.extent(1) + 16 + (exact_steps ? 0 : 8));
  for (index_t d = 0; d < K.extent(0); ++d) {
    for (index_t l = 0; l < K.extent(1); ++l) {
      const double bound = (roundings * testing::unit_roundoff<Acc>() +
                            4 * static_cast<double>(l + 1) * testing::unit_roundoff<double>()) *
                           size(d, l) * (Op::complex ? 2 : 1);
      const double gap = std::fabs(static_cast<double>(K(d, l)) - right(d, l));
      // What is subnormal is flushed, of every term.
      if (!(gap <= bound + 4 * static_cast<double>(op.A.extent(1)) * std::numeric_limits<Acc>::min())) {
        std::ostringstream out;
        out << "K(" << d << ", " << l << ") is off by " << gap << ", more than " << bound;
        return out.str();
      }
    }
  }
  return {};
}

}  // namespace

TEMPLATE_TEST_CASE("kernels are their definition", "", s4d<float>, s4d<double>, (s4d<float, float>),
                   (s4d<double, double>), s4d<bfloat16>) {
  OGIVE_SEED(seed, 220);
  using Acc = accum_t<typename TestType::scalar>;
  testing::for_seeds(seed, 30, [](std::uint64_t s) {
    testing::rng random(s);
    testing::memory room;
    TestType op = testing::sampler<TestType>::draw(random, room, 1, 1);
    constexpr index_t lengths[] = {0, 1, 15, 16, 17, 255, 256, 257, 300, 512, 1000};
    const index_t L = lengths[random.integer(0, 10)];
    for (const testing::layout where : testing::all_layouts) {
      testing::memory out(where);
      const auto K = out.take<Acc>(shape<2>{op.A.extent(0), L});
      tensor<std::byte, 1> scratch({static_cast<index_t>(kernel_scratch_bytes(op, L))}, std::byte{0xff});
      context own(scratch.flat());
      kernel(op, K, own);
      CHECK(kernel_gap<TestType>(op, K, false) == "");
      CHECK(out.gaps_untouched());
    }
  });
}

TEMPLATE_TEST_CASE("powers up to the 16384th keep their digits", "", float, double) {
  OGIVE_SEED(seed, 221);
  testing::rng random(seed);
  using number = std::complex<TestType>;
  const index_t D = 2, N = 64, L = 16384;
  tensor<number, 2> A({D, N}), B({D, N}, number(1)), C({D, N});
  tensor<TestType, 1> dt({D});
  for (index_t d = 0; d < D; ++d) {
    dt(d) = TestType(d == 0 ? 1e-3 : 1e-1);
    for (index_t n = 0; n < N; ++n) {  // S4D-Lin
      A(d, n) = number(TestType(-0.5), static_cast<TestType>(3.14159265 * static_cast<double>(n)));
      C(d, n) = number(static_cast<TestType>(random.uniform(-1, 1)), static_cast<TestType>(random.uniform(-1, 1)));
    }
  }
  const s4d<TestType> op{.A = A, .B = B, .C = C, .dt = dt};
  tensor<number, 2> A_bar({D, N}), B_bar({D, N});
  discretise(op, A_bar.all(), B_bar.all());
  const s4d<TestType> steps{.A = A_bar, .B = B_bar, .C = C, .dt = dt, .rule = discretisation::none};
  tensor<TestType, 2> K({D, L});
  kernel(steps, K.all());
  CHECK(kernel_gap(steps, view<const TestType, 2>(K.all()), true) == "");
  kernel(op, K.all());
  CHECK(kernel_gap(op, view<const TestType, 2>(K.all()), false) == "");
}

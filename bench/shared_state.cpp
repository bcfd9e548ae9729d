// Systems whose channels share a state against what binds them: their multiply-adds at the rate that this machine
// sustains in registers, in the same run. A token costs N M + N² + P N of them where A̅ is dense, 2 N M + 4 N + 2 P N
// where it is a complex diagonal; D is left out. A step also packs the matrices, which `recurrent` does once for all
// its tokens.
#include <ogive/ops/lti.hpp>
#include <ogive/ops/s5.hpp>
#include <ogive/testing/rng.hpp>

#include <bench/limits.hpp>

namespace {

using namespace ogive;

template <class T, std::size_t Rank>
tensor<T, Rank> random(testing::rng& source, const shape<Rank>& extents, double size = 1) {
  tensor<T, Rank> x(extents);
  testing::fill_uniform(source, x.all(), -size, size);
  return x;
}

/// Arguments of both operators: M inputs, N numbers or modes of the state, as many outputs as inputs.
struct systems {
  testing::rng source{7};
  index_t M, N, L;
  tensor<float, 3> u = random<float>(source, shape<3>{1, L, M}), y{{1, L, M}};
  tensor<float, 2> A = random<float>(source, shape<2>{N, N}, 1 / static_cast<double>(N)),
                   B = random<float>(source, shape<2>{N, M}), C = random<float>(source, shape<2>{M, N}), h{{1, N}};
  tensor<std::complex<float>, 1> modes{{N}};
  tensor<std::complex<float>, 2> B_modes = random<std::complex<float>>(source, shape<2>{N, M}),
                                 C_modes = random<std::complex<float>>(source, shape<2>{M, N}), h_modes{{1, N}};
  float dt = 0.1F;

  systems(index_t inputs, index_t states, index_t length) : M(inputs), N(states), L(length) {
    for (auto& A_n : modes.flat()) A_n = {-0.5F, static_cast<float>(3 * source.uniform())};
  }
  lti<float> dense() const { return {.u = u, .A_bar = A, .B_bar = B, .C = C}; }
  s5<float> diagonal() const { return {.u = u, .A = modes, .B = B_modes, .C = C_modes, .dt = {&dt, {N}, {0}}}; }

  double limit(bool is_dense) const {
    const index_t work = is_dense ? N * (2 * M + N) : 4 * N * (M + 1);
    return 2.0 * static_cast<double>(work * L) / bench::fma_peak<float>();
  }
};

template <bool Dense, bool Step>
void run(benchmark::State& state) {
  systems s(state.range(0), state.range(1), Step ? 1 : 1024);
  const auto once = [&](const auto& op, const auto& h) {
    if constexpr (Step) {
      step(op, h, s.y);
    } else {
      recurrent(op, h, s.y);
    }
  };
  const auto seconds = bench::iterate(state, 1, [&] {
    if constexpr (Dense) {
      once(s.dense(), s.h.all());
    } else {
      once(s.diagonal(), s.h_modes.all());
    }
  });
  bench::report_limit(state, seconds, s.limit(Dense));
}

void sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"M", "N"});
  for (const std::array<std::int64_t, 2> size : {std::array<std::int64_t, 2>{1, 64}, {64, 64}, {256, 64}}) {
    b->Args({size[0], size[1]});
  }
}

BENCHMARK(run<true, false>)->Name("lti/recurrent/f32")->Apply(sizes);
BENCHMARK(run<true, true>)->Name("lti/step/f32")->Apply(sizes);
BENCHMARK(run<false, false>)->Name("s5/recurrent/f32")->Apply(sizes);
BENCHMARK(run<false, true>)->Name("s5/step/f32")->Apply(sizes);

}  // namespace

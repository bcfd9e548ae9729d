// Systems whose channels share a state against what binds them: their multiply-adds at the rate that this machine
// sustains in registers, in the same run. A token costs N M + N² + P N of them where A̅ is dense, 2 N M + 4 N + 2 P N
// where it is a complex diagonal; D is left out. A step also packs the matrices, which `recurrent` does once for all
// its tokens. As convolutions the same systems cost a transform per input and output and products for each pair of
// these: `recurrent_over_convolution` says how many times faster that is, `forward_over_best` is 1 where the choice is
// right.
//
// AVX-512, one thread, float: with one input and output the convolution overtakes at 64 to 256 tokens; at 4096 tokens
// it is 2.5 times as fast with a single state and 9.5 with 64 dense ones, for 8 sequences 4 and 32 times, since these
// share the kernel. With 4 inputs and outputs 64 dense states make it 2 and 4 times as fast, and modes as fast as the
// recurrence; with 16 the recurrence is the faster one, but for many sequences.
#include <ogive/ops/lti.hpp>
#include <ogive/ops/s5.hpp>
#include <ogive/testing/rng.hpp>

#include <bench/clock.hpp>
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
  index_t M, N, L, batch;
  tensor<float, 3> u = random<float>(source, shape<3>{batch, L, M}), y{{batch, L, M}};
  tensor<float, 2> A = random<float>(source, shape<2>{N, N}, 1 / static_cast<double>(N)),
                   B = random<float>(source, shape<2>{N, M}), C = random<float>(source, shape<2>{M, N}), h{{1, N}};
  tensor<std::complex<float>, 1> modes{{N}};
  tensor<std::complex<float>, 2> B_modes = random<std::complex<float>>(source, shape<2>{N, M}),
                                 C_modes = random<std::complex<float>>(source, shape<2>{M, N}), h_modes{{1, N}};
  float dt = 0.1F;

  systems(index_t inputs, index_t states, index_t length, index_t sequences = 1)
      : M(inputs), N(states), L(length), batch(sequences) {
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

template <bool Dense>
void forms(benchmark::State& state) {
  systems s(state.range(0), state.range(1), state.range(3), state.range(2));
  context ctx;
  const auto measure = [&](const auto& op) {
    reserve(op, {}, ctx);
    bench::iterate(state, 1, [&] { forward(op, {}, s.y, {}, ctx); });
    const auto [swept, convolved, chosen] = bench::stopwatch(1).least(
        0.1, [&] { recurrent(op, {}, s.y, {}, ctx); }, [&] { convolution(op, {}, s.y, {}, ctx); },
        [&] { forward(op, {}, s.y, {}, ctx); });
    state.counters["recurrent_over_convolution"] = swept / convolved;
    state.counters["forward_over_best"] = chosen / std::min(swept, convolved);
  };
  if constexpr (Dense) {
    measure(s.dense());
  } else {
    measure(s.diagonal());
  }
}

void shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"M", "N", "B", "L"});
  for (const std::int64_t M : {1, 4, 16}) {
    for (const std::int64_t N : {1, 64}) {
      for (const std::int64_t B : {1, 8}) {
        for (const std::int64_t L : {64, 256, 4096}) b->Args({M, N, B, L});
      }
    }
  }
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
BENCHMARK(forms<true>)->Name("lti/forms/f32")->Apply(shapes);
BENCHMARK(forms<false>)->Name("s5/forms/f32")->Apply(shapes);

}  // namespace

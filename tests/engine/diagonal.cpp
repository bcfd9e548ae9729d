// The diagonal engine through operators of the test's own: what it takes to add one, and that the engine does not know
// the selective scan.
#include <ogive/engine/diagonal.hpp>
#include <ogive/testing/samplers.hpp>

#include "tests/catch.hpp"

using namespace ogive;

namespace {

/// h_t = f_t ⊙ h_{t-1} + (1 − f_t) ⊙ i_t, y = h: the recurrence of a gated linear unit. f, i [B, L, D].
struct gated_unit {
  using scalar = float;
  using number = float;
  template <class S>
  using state_of = diagonal_state<S>;
  using default_state = diagonal_state<float>;
  static constexpr const char* name = "gated_unit";

  view<const float, 3> f, i;
  integers lengths{};
  integers offsets{};

  diagonal_extents extents() const noexcept { return {i.extent(0), i.extent(1), i.extent(2), 1}; }
  index_t shared_run() const noexcept { return 0; }
  view<const float, 3> rates() const noexcept { return {}; }
  void check_fields(core::checker& ask) const noexcept { ask.extents("f", f, i.extents(), "[B, L, D] as i"); }
  template <class X>
  void check_written(core::checker& ask, const char* field, const view<X, 3>& x) const noexcept {
    ask.apart(field, x, "f", f).apart(field, x, "i", i);
  }
  template <class Acc>
  void load(const diagonal_tile&, const diagonal_panels<Acc>&) const noexcept {}
  diagonal_ahead ahead(const diagonal_tile&, const view<float, 3>&) const noexcept { return {}; }

  static view<const float, 2> block(const view<const float, 3>& x, const diagonal_tile& at) noexcept {
    return {x.pointer(at.batch, at.token, at.channel), {at.live, at.channels}, {x.stride(1), x.stride(2)}};
  }
  template <class Acc>
  void expand(const diagonal_tile& at, const diagonal_panels<Acc>& to) const noexcept {
    using vector = simd::batch<Acc>;
    const vector one(Acc(1));
    detail::load_tile(block(f, at), to.a, to.row);
    detail::load_tile(block(i, at), to.b, to.row, [&](index_t j) {
      return [&, j](const vector& x, index_t t) { return x * (one - simd::load(to.a + t * to.row + j)); };
    });
    for (index_t t = at.live; t < at.count; ++t) {
      simd::store(to.a + t * to.row, one);
      simd::store(to.b + t * to.row, vector(Acc(0)));
    }
    for (index_t t = 0; t < at.count; ++t) simd::store(to.c + t * to.row, one);
  }
  template <class Acc>
  void store(const diagonal_tile& at, const diagonal_panels<Acc>& from, const view<float, 3>& y) const noexcept {
    detail::store_tile(
        from.y, from.row,
        view<float, 2>(y.pointer(at.batch, at.token, at.channel), {at.count, at.channels}, {y.stride(1), y.stride(2)}));
  }
};

/// h_t = λ h_{t-1} + x_t, y = Re Σ c h: a linear recurrent unit with λ, c ∈ C^{D×N}. x [B, L, D].
struct recurrent_unit {
  using scalar = double;
  using number = std::complex<double>;
  template <class S>
  using state_of = diagonal_state<S>;
  using default_state = diagonal_state<number>;
  static constexpr const char* name = "recurrent_unit";

  view<const double, 3> x;
  view<const number, 2> lambda, c;
  integers lengths{};
  integers offsets{};

  diagonal_extents extents() const noexcept { return {x.extent(0), x.extent(1), x.extent(2), lambda.extent(1)}; }
  index_t shared_run() const noexcept { return 0; }
  view<const number, 3> rates() const noexcept { return {}; }
  void check_fields(core::checker&) const noexcept {}
  template <class X>
  void check_written(core::checker&, const char*, const view<X, 3>&) const noexcept {}
  template <class Acc>
  void load(const diagonal_tile&, const diagonal_panels<Acc>&) const noexcept {}
  diagonal_ahead ahead(const diagonal_tile&, const view<double, 3>&) const noexcept { return {}; }
  template <class Acc>
  void expand(const diagonal_tile& at, const diagonal_panels<Acc>& to) const noexcept {
    for (index_t t = 0; t < at.count; ++t) {
      for (index_t n = 0; n < to.states; ++n) {
        for (index_t j = 0; j < to.row; ++j) {
          const index_t place = (t * to.states + n) * 2 * to.row + j;
          const bool real = t < at.live, held = j < at.channels;
          const index_t d = at.channel + (held ? j : 0);
          to.a[place] = real ? lambda(d, n).real() : 1;
          to.a[place + to.row] = real ? lambda(d, n).imag() : 0;
          to.b[place] = real && held ? x(at.batch, at.token + t, d) : 0;
          to.b[place + to.row] = 0;
          to.c[place] = c(d, n).real();
          to.c[place + to.row] = c(d, n).imag();
        }
      }
    }
  }
  template <class Acc>
  void store(const diagonal_tile& at, const diagonal_panels<Acc>& from, const view<double, 3>& y) const noexcept {
    for (index_t t = 0; t < at.count; ++t) {
      for (index_t j = 0; j < at.channels; ++j) y(at.batch, at.token + t, at.channel + j) = from.y[t * from.row + j];
    }
  }
};

}  // namespace

TEST_CASE("an operator that gives decays itself runs on the diagonal engine") {
  OGIVE_SEED(seed, 1);
  testing::rng random(seed);
  for (const index_t D : {1, 5, 16, 40}) {
    const index_t B = 2, L = 77;
    testing::memory room;
    gated_unit op;
    op.f = testing::draw_uniform<float>(random, room, shape<3>{B, L, D}, 0, 1);
    op.i = testing::draw_uniform<float>(random, room, shape<3>{B, L, D});
    const std::vector<std::int64_t> lengths{50, 77};
    op.lengths = lengths;
    tensor<float, 3> y({B, L, D}), h({B, D, 1});
    forward(op, diagonal_state<float>{.final = h}, y);
    for (index_t b = 0; b < B; ++b) {
      for (index_t d = 0; d < D; ++d) {
        double state = 0;
        for (index_t t = 0; t < L; ++t) {
          const double f = static_cast<double>(op.f(b, t, d));
          if (t < lengths[static_cast<std::size_t>(b)])
            state = f * state + (1 - f) * static_cast<double>(op.i(b, t, d));
          // The gates hold |h| below 1, and the errors of the past fade with it.
          REQUIRE(std::fabs(static_cast<double>(y(b, t, d)) - state) <= testing::tolerance<float>(3 * L));
        }
        REQUIRE(h(b, d, 0) == y(b, L - 1, d));
      }
    }
  }
}

TEST_CASE("an operator with complex decays runs on the diagonal engine") {
  OGIVE_SEED(seed, 2);
  testing::rng random(seed);
  const index_t L = 60, D = 11, N = 6;
  testing::memory room;
  recurrent_unit op;
  op.x = testing::draw_uniform<double>(random, room, shape<3>{1, L, D});
  const auto lambda = room.take<std::complex<double>>(shape<2>{D, N});
  testing::for_each(lambda, [&](std::complex<double>& z, index_t) {
    z = std::polar(random.uniform(0.5, 0.99), random.uniform(-3, 3));
  });
  op.lambda = lambda;
  op.c = testing::draw_uniform<std::complex<double>>(random, room, shape<2>{D, N});
  const std::vector<std::int32_t> offsets{0, 20, 20, 60};
  op.offsets = offsets;
  tensor<double, 3> y({1, L, D});
  tensor<std::complex<double>, 3> h({3, D, N});
  const diagonal_state<std::complex<double>> st{.initial = h, .final = h};
  forward(op, st, y);
  for (index_t d = 0; d < D; ++d) {
    std::vector<std::complex<double>> state(static_cast<std::size_t>(N));
    for (index_t t = 0; t < L; ++t) {
      if (t == 20) std::fill(state.begin(), state.end(), 0.0);
      std::complex<double> sum = 0;
      for (index_t n = 0; n < N; ++n) {
        auto& z = state[static_cast<std::size_t>(n)];
        z = lambda(d, n) * z + op.x(0, t, d);
        sum += op.c(d, n) * z;
      }
      REQUIRE(std::fabs(y(0, t, d) - sum.real()) <= testing::tolerance<double>(4 * L + 2 * N, 100.0 * double(N)));
      if (t != 19 && t != 59) continue;
      for (index_t n = 0; n < N; ++n) {
        REQUIRE(std::abs(h(t == 19 ? 0 : 2, d, n) - state[static_cast<std::size_t>(n)]) <=
                testing::tolerance<double>(4 * L, 100.0));
      }
    }
    for (index_t n = 0; n < N; ++n) REQUIRE(h(1, d, n) == 0.0);
  }
}

TEMPLATE_TEST_CASE("tiles read and write every layout and touch nothing else", "", float, double, bfloat16, float16) {
  using Acc = accum_t<TestType>;
  constexpr index_t W = simd::width<Acc>;
  OGIVE_SEED(seed, 3);
  testing::rng random(seed);
  for (const testing::layout layout : testing::all_layouts) {
    for (const index_t rows : {index_t(1), index_t(3), W, W + 1, 2 * W + 3}) {
      for (const index_t columns : {index_t(1), W - 1, W, W + 1, 3 * W + 2}) {
        if (columns == 0) continue;
        CAPTURE(static_cast<int>(layout), rows, columns);
        testing::memory room(layout);
        const auto x = testing::draw_uniform<TestType>(random, room, shape<3>{1, rows, columns});
        const auto y = room.take<TestType>(shape<3>{1, rows, columns});
        const index_t stride = detail::whole_vectors<Acc>(columns) + W;
        std::vector<Acc> panel(static_cast<std::size_t>(rows * stride), Acc(-5));
        detail::load_tile(view<const TestType, 2>(x[0]), panel.data(), stride,
                          [](index_t) { return [](const auto& v, index_t) { return v + v; }; });
        detail::store_tile(panel.data(), stride, y[0]);
        bool right = room.gaps_untouched();
        for (index_t i = 0; i < rows; ++i) {
          for (index_t j = 0; j < stride; ++j) {
            const Acc held = panel[static_cast<std::size_t>(i * stride + j)];
            const Acc twice = j < columns ? Acc(2) * static_cast<Acc>(x(0, i, j)) : Acc(0);
            right = right && held == (j < detail::whole_vectors<Acc>(columns) ? twice : Acc(-5));
            if (j < columns) right = right && static_cast<Acc>(y(0, i, j)) == twice;
          }
        }
        CHECK(right);
      }
    }
  }
}

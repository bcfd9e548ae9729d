// A linear layer: y = x Wᵀ + b.
//
// Panels of x and W go through the products of linalg; a few tokens at a time read W once, where it lies, at the speed
// of memory. For projections that are large in every direction a BLAS does better.
#pragma once

#include <ogive/engine/tiles.hpp>
#include <ogive/engine/unroll.hpp>
#include <ogive/layers/verbs.hpp>
#include <ogive/linalg/gemm.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

namespace detail {
struct linear_rules;
}

/// x [B, L, I], weight [O, I], bias [O]; y [B, L, O].
template <storage T, storage P = T>
struct linear {
  using scalar = T;
  using accum = accum_t<T>;
  using output = view<T, 3>;
  using rules = detail::linear_rules;

  view<const T, 3> x{};
  view<const P, 2> weight{};
  view<const P, 1> bias{};

  struct gradient {
    view<T, 3> x{};
    view<accum, 2> weight{};
    view<accum, 1> bias{};
  };
  static constexpr const char* name = "linear";
};

namespace detail {

/// C ← A B + bias, or C + A B, for A [n, M, K], B [n, K, N], C [n, M, N] of any strides and storage; C [1, M, N] is the
/// sum over n. A task makes a tile of C; sums over K go in blocks, and over n, in order.
template <class Acc, class A, class B, class C, class P>
struct tiled_product {
  view<const A, 3> a;
  view<const B, 3> b;
  view<C, 3> c;
  view<const P, 1> bias;
  bool accumulate;

  static constexpr index_t rows = 128, columns = 64, depth = 256;

  index_t tasks() const noexcept { return c.extent(0) * down() * across(); }
  static std::size_t bytes() noexcept {
    arena counted;
    carve(counted);
    return counted.used();
  }

  OGIVE_NOINLINE void run(index_t task, arena memory) const noexcept {
    using vector = simd::batch<Acc>;
    const panels p = carve(memory);
    const index_t j = task % across() * columns, i = task / across() % down() * rows;
    const index_t n = task / across() / down();
    const index_t m = std::min(rows, c.extent(1) - i), w = std::min(columns, c.extent(2) - j);
    const index_t K = a.extent(2), last = c.extent(0) == 1 ? a.extent(0) : n + 1;
    const linalg::panel<Acc> sums{p.c, columns};
    zero_tile(p.c, columns, 0, m, w);
    for (index_t s = n; s < last; ++s) {
      for (index_t k = 0; k < K; k += depth) {
        const index_t d = std::min(depth, K - k);
        load_tile(a[s].slice(0, i, m).slice(1, k, d), p.a, depth);
        load_tile(b[s].slice(0, k, d).slice(1, j, w), p.b, columns);
        linalg::gemm_ab(m, w, d, {p.a, depth}, {p.b, columns}, sums, linalg::add{});
      }
    }
    const view<C, 2> out = c[n].slice(0, i, m).slice(1, j, w);
    const auto plus = [&](const auto& terms) noexcept {
      load_tile(terms, p.c, columns, [&](index_t v) noexcept {
        return [&, v](const vector& term, index_t r) noexcept { return term + simd::load(p.c + r * columns + v); };
      });
    };
    if (bias.present()) plus(view<const P, 2>(bias.pointer(j), {m, w}, {0, bias.stride(0)}));
    if (accumulate) plus(view<const C, 2>(out));
    store_tile(p.c, columns, out);
  }

 private:
  struct panels {
    Acc *a, *b, *c;
  };
  static panels carve(arena& memory) noexcept {
    return {memory.take<Acc>(rows * depth), memory.take<Acc>(depth * columns), memory.take<Acc>(rows * columns)};
  }
  index_t down() const noexcept { return (c.extent(1) + rows - 1) / rows; }
  index_t across() const noexcept { return (c.extent(2) + columns - 1) / columns; }
};

struct linear_rules {
  template <class Op>
  static void check_fields(core::checker& ask, const Op& op, const options& how) noexcept {
    one_form(ask, how);
    ask.given("x", op.x).given("weight", op.weight).extents("x", op.x, {-1, -1, -1}, "[B, L, I]");
    ask.extents("weight", op.weight, {-1, op.x.extent(2)}, "[O, I], I as x");
    ask.extents("bias", op.bias, {op.weight.extent(0)}, "[O] as weight");
  }
  template <class Op>
  static status check(const Op& op, const typename Op::output& y, const options& how) noexcept {
    core::checker ask(Op::name);
    check_fields(ask, op, how);
    ask.given("y", y).extents("y", y, {op.x.extent(0), op.x.extent(1), op.weight.extent(0)}, "[B, L, O]");
    ask.output("y", y).apart("y", y, "x", op.x).apart("y", y, "weight", op.weight).apart("y", y, "bias", op.bias);
    return ask.result();
  }
  template <class Op>
  static status check_backward(const Op& op, const cotangent_of<Op>& d_y, const typename Op::gradient& d,
                               const options& how) noexcept {
    core::checker ask(Op::name);
    check_fields(ask, op, how);
    ask.given("d_y", d_y).extents("d_y", d_y, {op.x.extent(0), op.x.extent(1), op.weight.extent(0)}, "[B, L, O]");
    ask.extents("d.x", d.x, op.x.extents(), "[B, L, I] as x");
    ask.extents("d.weight", d.weight, op.weight.extents(), "[O, I] as weight");
    ask.extents("d.bias", d.bias, {op.weight.extent(0)}, "[O] as weight");
    const auto written = [&](const char* field, const auto& x) noexcept {
      ask.output(field, x).apart(field, x, "x", op.x).apart(field, x, "weight", op.weight);
      ask.apart(field, x, "bias", op.bias).apart(field, x, "d_y", d_y);
    };
    const auto all = [&](const auto& each) noexcept {
      each("d.x", d.x), each("d.weight", d.weight), each("d.bias", d.bias);
    };
    all(written);
    ask.apart_from_each_other(all);
    return ask.result();
  }

  template <class Op>
  static std::size_t bytes(const Op& op, const options&) noexcept {
    using Acc = typename Op::accum;
    arena counted;
    counted.take<Acc>(few * whole<Acc>(op.x.extent(2)));
    return std::max(counted.used(), tiled_product<Acc, Acc, Acc, Acc, Acc>::bytes());
  }

  template <class Op>
  static void forward(const Op& op, const typename Op::output& y, const options& how, context& ctx) {
    using Acc = typename Op::accum;
    const std::size_t room = bytes(op, how);
    reserve_for(ctx, room);
    if (op.x.extent(0) * op.x.extent(1) <= few && op.weight.stride(1) == 1) {
      const index_t O = op.weight.extent(0);
      run_tasks(ctx, (O + outputs - 1) / outputs, room, [&](index_t task, arena memory) noexcept {
        few_tokens<Acc>(op, y, task * outputs, std::min(O, task * outputs + outputs), memory);
      });
      return;
    }
    const bool merge = in_one_row(op.x) && in_one_row(y);
    product<Acc>(ctx, room, merge ? one_row(op.x) : op.x, repeated(op.weight.permute({1, 0})), merge ? one_row(y) : y,
                 op.bias, false);
  }

  template <class Op>
  static void backward(const Op& op, const cotangent_of<Op>& d_y, const typename Op::gradient& d, const options& how,
                       context& ctx) {
    using Acc = typename Op::accum;
    const std::size_t room = bytes(op, how);
    reserve_for(ctx, room);
    const view<const Acc, 1> none;
    if (d.x.present()) product<Acc>(ctx, room, d_y, repeated(op.weight), d.x, none, how.accumulate);
    if (d.weight.present()) {
      const view<Acc, 3> sum(d.weight.data(), {1, d.weight.extent(0), d.weight.extent(1)},
                             {0, d.weight.stride(0), d.weight.stride(1)});
      product<Acc>(ctx, room, d_y.permute({0, 2, 1}), op.x, sum, none, how.accumulate);
    }
    if (!d.bias.present()) return;
    const index_t O = d.bias.extent(0);
    run_tasks(ctx, (O + outputs - 1) / outputs, room, [&](index_t task, arena) noexcept {
      sum_tokens(d_y, d.bias, how.accumulate, task * outputs, std::min(O, task * outputs + outputs));
    });
  }

 private:
  static constexpr index_t few = 4;       // tokens for which W is read where it lies
  static constexpr index_t outputs = 64;  // of a task then

  template <class Acc>
  static constexpr index_t whole(index_t count) noexcept {
    constexpr index_t V = simd::width<Acc>;
    return (count + V - 1) / V * V;
  }

  /// Whether [B, L, ·] can be seen as [1, B·L, ·], and that.
  template <class X>
  static bool in_one_row(const view<X, 3>& x) noexcept {
    return x.stride(0) == x.extent(1) * x.stride(1);
  }
  template <class X>
  static view<X, 3> one_row(const view<X, 3>& x) noexcept {
    return {x.data(), {1, x.extent(0) * x.extent(1), x.extent(2)}, {0, x.stride(1), x.stride(2)}};
  }
  /// The same for every n.
  template <class X>
  static view<const X, 3> repeated(const view<const X, 2>& x) noexcept {
    return {x.data(), {1, x.extent(0), x.extent(1)}, {0, x.stride(0), x.stride(1)}};
  }

  template <class Acc, class A, class B, class C, class P>
  static void product(context& ctx, std::size_t room, const view<const A, 3>& a, const view<const B, 3>& b,
                      const view<C, 3>& c, const view<const P, 1>& bias, bool accumulate) noexcept {
    const tiled_product<Acc, A, B, C, P> all{a, b, c, bias, accumulate};
    run_tasks(ctx, all.tasks(), room, [&](index_t task, arena memory) noexcept { all.run(task, memory); });
  }

  /// Outputs [first, end) of up to `few` tokens, eight rows of W at a time.
  template <class Acc, class Op>
  OGIVE_NOINLINE static void few_tokens(const Op& op, const typename Op::output& y, index_t first, index_t end,
                                        arena memory) noexcept {
    const index_t L = op.x.extent(1), R = op.x.extent(0) * L, I = op.x.extent(2), row = whole<Acc>(I);
    Acc* x = memory.take<Acc>(few * row);
    for (index_t r = 0; r < R; ++r) {
      load_tile(op.x[r / L].slice(0, r % L, 1), x + r * row, row);
    }
    for (index_t r = 0; r < R; ++r) {
      index_t o = first;
      for (; o + 8 <= end; o += 8) dots<8, Acc>(op, x + r * row, y[r / L][r % L], o);
      for (; o < end; ++o) dots<1, Acc>(op, x + r * row, y[r / L][r % L], o);
    }
  }
  template <int N, class Acc, class Op>
  static void dots(const Op& op, const Acc* x, const view<typename Op::scalar, 1>& y, index_t o) noexcept {
    using vector = simd::batch<Acc>;
    using arch = simd::default_arch;
    constexpr index_t V = simd::width<Acc>;
    const index_t I = op.x.extent(2);
    vector sum[N];
    unroll<N>([&](auto n) __attribute__((always_inline)) { sum[n] = vector(Acc(0)); });
    const auto add = [&](index_t i, const auto& load) __attribute__((always_inline)) {
      const vector in = simd::load<arch>(x + i);
      unroll<N>([&](auto n) __attribute__((always_inline)) {
        sum[n] = simd::fma(load(op.weight.pointer(o + n, i)), in, sum[n]);
      });
    };
    index_t i = 0;
    for (; i + V <= I; i += V) add(i, [](const auto* p) { return simd::load_as<Acc, arch>(p); });
    if (i < I) add(i, [&](const auto* p) { return simd::load_as<Acc, arch>(p, I - i); });
    unroll<N>([&](auto n) __attribute__((always_inline)) {
      Acc all = simd::reduce_add(sum[n]);
      if (op.bias.present()) all += static_cast<Acc>(op.bias[o + n]);
      y[o + n] = static_cast<typename Op::scalar>(all);
    });
  }

  /// Σ over tokens of the columns [first, end), in blocks of tokens.
  template <class T, class Acc>
  OGIVE_NOINLINE static void sum_tokens(const view<const T, 3>& d_y, const view<Acc, 1>& sum, bool accumulate,
                                        index_t first, index_t end) noexcept {
    using vector = simd::batch<Acc>;
    constexpr index_t V = simd::width<Acc>, block = 64;
    for (index_t o = first; o < end; o += V) {
      const index_t lanes = std::min(V, end - o);
      vector all(Acc(0));
      for (index_t b = 0; b < d_y.extent(0); ++b) {
        for (index_t from = 0; from < d_y.extent(1); from += block) {
          vector some(Acc(0));
          for (index_t t = from; t < std::min(d_y.extent(1), from + block); ++t) {
            some = some + simd::load_strided<Acc, simd::default_arch>(d_y.pointer(b, t, o), d_y.stride(2), lanes);
          }
          all = all + some;
        }
      }
      Acc* to = sum.pointer(o);
      if (accumulate) all = all + simd::load_strided<Acc, simd::default_arch>(to, sum.stride(0), lanes);
      simd::store_strided(to, sum.stride(0), all, lanes);
    }
  }
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

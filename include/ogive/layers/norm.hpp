// Norms along the last axis: root mean square with or without a gate, layer norm, l2 norm.
//
//   rms_norm     y = n(x) ⊙ w + b                   n(u) = u / √(mean u² + ε)
//                y = (n(x) ⊙ w + b) ⊙ σ(z)          a gate after the norm       Gated DeltaNet, KDA, RetNet
//                y = n(x ⊙ σ(z)) ⊙ w + b            a gate before the norm      Mamba-2
//   layer_norm   y = n(x − mean x) ⊙ w + b
//   l2_norm      y = x / √(Σ x² + ε)                                            q and k of the delta rules
//
// With a residual r the norm is of s = x + r, and s can be had as well: the stream that goes on beside the layer.
// Zhang & Sennrich, arXiv:1910.07467; Ba et al., arXiv:1607.06450; Dao & Gu, Mamba-2, arXiv:2405.21060.
#pragma once

#include <ogive/engine/rows.hpp>
#include <ogive/engine/unroll.hpp>
#include <ogive/layers/activation.hpp>
#include <ogive/layers/row.hpp>
#include <ogive/layers/verbs.hpp>

#include <cmath>

namespace ogive {
inline namespace OGIVE_ABI {

/// [B, L, D] as [B, L, G, D/G], and [D] as [G, D/G]: channels in G groups, each with a norm of its own. G = 1 is the
/// whole row. G must divide D.
template <class X>
constexpr view<X, 4> grouped(const view<X, 3>& x, index_t groups) noexcept {
  if (!x.present()) return {};
  const index_t N = x.extent(2) / groups;
  return {x.data(), {x.extent(0), x.extent(1), groups, N}, {x.stride(0), x.stride(1), N * x.stride(2), x.stride(2)}};
}
template <class X>
constexpr view<X, 2> grouped(const view<X, 1>& x, index_t groups) noexcept {
  if (!x.present()) return {};
  const index_t N = x.extent(0) / groups;
  return {x.data(), {groups, N}, {N * x.stride(0), x.stride(0)}};
}

namespace detail {

struct norm_rules;

/// The mirror of the fields that norms share. `sum` is read: the cotangent of the sum that went on.
template <class T>
struct norm_gradient {
  view<T, 4> x{}, residual{};
  view<const T, 4> sum{};
  view<T, 4> z{};
  view<accum_t<T>, 2> weight{}, bias{};
};

/// All that a norm can have.
template <class T, class P>
struct norm_fields {
  view<const T, 4> x{}, residual{};
  view<T, 4> sum{};
  view<const T, 4> z{};
  view<const P, 2> weight{}, bias{};
  accum_t<T> eps{};
  bool centred = false;   // the mean is taken away first
  bool averaged = false;  // mean of squares, not their sum
  activation gate = activation::silu;
  bool gate_last = true;
};

}  // namespace detail

/// x, z, residual, y [B, L, G, N]; weight, bias [G, N], or [1, N] shared by all groups. A [B, L, D] tensor is seen so
/// by `grouped`; heads [B, L, H, V] are so already.
template <storage T, storage P = T>
struct rms_norm {
  using scalar = T;
  using accum = accum_t<T>;
  using output = view<T, 4>;
  using gradient = detail::norm_gradient<T>;
  using rules = detail::norm_rules;

  view<const T, 4> x{};
  view<const T, 4> residual{};  ///< added to x first
  view<T, 4> sum{};             ///< written if present: x + residual
  view<const T, 4> z{};         ///< the gate
  view<const P, 2> weight{}, bias{};
  accum eps = accum(1e-6);
  activation gate = activation::silu;  ///< σ
  bool norm_before_gate = true;        ///< false: x ⊙ σ(z) is normalised

  static constexpr const char* name = "rms_norm";
  detail::norm_fields<T, P> fields() const noexcept {
    return {x, residual, sum, z, weight, bias, eps, false, true, gate, norm_before_gate};
  }
};

/// The same without a gate.
template <storage T, storage P = T>
struct layer_norm {
  using scalar = T;
  using accum = accum_t<T>;
  using output = view<T, 4>;
  using gradient = detail::norm_gradient<T>;
  using rules = detail::norm_rules;

  view<const T, 4> x{};
  view<const T, 4> residual{};
  view<T, 4> sum{};
  view<const P, 2> weight{}, bias{};
  accum eps = accum(1e-5);

  static constexpr const char* name = "layer_norm";
  detail::norm_fields<T, P> fields() const noexcept {
    return {.x = x,
            .residual = residual,
            .sum = sum,
            .weight = weight,
            .bias = bias,
            .eps = eps,
            .centred = true,
            .averaged = true};
  }
};

/// x, y [B, L, H, K]. A row of zeros stays one.
template <storage T>
struct l2_norm {
  using scalar = T;
  using accum = accum_t<T>;
  using output = view<T, 4>;
  using gradient = detail::norm_gradient<T>;
  using rules = detail::norm_rules;

  view<const T, 4> x{};
  accum eps = accum(1e-6);

  static constexpr const char* name = "l2_norm";
  detail::norm_fields<T, T> fields() const noexcept { return {.x = x, .eps = eps}; }
};

namespace detail {

/// Σ f(j) over the vectors of a row, in four chains.
template <class Acc, class F>
OGIVE_INLINE Acc sum_over(index_t length, const F& f) noexcept {
  using vector = simd::batch<Acc>;
  constexpr index_t V = simd::width<Acc>;
  vector sum[4] = {vector(Acc(0)), vector(Acc(0)), vector(Acc(0)), vector(Acc(0))};
  index_t j = 0;
  for (; j + 3 * V < length; j += 4 * V) {
    unroll<4>([&](auto i) __attribute__((always_inline)) { sum[i] = f(j + i * V, sum[i]); });
  }
  for (; j < length; j += V) sum[0] = f(j, sum[0]);
  return simd::reduce_add((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/// One row after another: what the forward and backward passes of all norms share.
template <class T, class P>
class norm_row {
 public:
  using Acc = accum_t<T>;
  using vector = simd::batch<Acc>;
  static constexpr index_t V = simd::width<Acc>;

  norm_row(const norm_fields<T, P>& f, arena& memory) noexcept
      : f_(f), N_(f.x.extent(3)), u_(memory.take<Acc>(padded<Acc>(N_))), d_(memory.take<Acc>(padded<Acc>(N_))) {}
  static index_t rows(const norm_fields<T, P>& f) noexcept { return f.x.extent(0) * f.x.extent(1) * f.x.extent(2); }

  /// Goes to a row: u, its mean and 1/√(…).
  void go_to(index_t row, bool write_sum) noexcept {
    g_ = row % f_.x.extent(2);
    t_ = row / f_.x.extent(2) % f_.x.extent(1);
    b_ = row / f_.x.extent(2) / f_.x.extent(1);
    x_ = row_at<Acc>(f_.x, b_, t_, g_);
    r_ = row_at<Acc>(f_.residual, b_, t_, g_);
    z_ = row_at<Acc>(f_.z, b_, t_, g_);
    w_ = parameters(f_.weight);
    bias_ = parameters(f_.bias);
    const auto sum = row_at<Acc>(write_sum ? f_.sum : view<T, 4>(), b_, t_, g_);
    const auto read = [&](index_t j) __attribute__((always_inline)) {
      vector u = input(j);
      if (sum) sum.write(j, u);
      if (gate_first()) u = u * activate(f_.gate, z_(j));
      simd::store(u_ + j, u);
      return u;
    };
    const Acc count = static_cast<Acc>(N_);
    Acc squares(0);
    mean_ = Acc(0);
    if (f_.centred) {
      mean_ = sum_over<Acc>(
          N_, [&](index_t j, const vector& s) __attribute__((always_inline)) { return s + read(j); });
      mean_ /= count;
      squares = sum_over<Acc>(
          N_, [&](index_t j, const vector& s) __attribute__((always_inline)) {
            const vector c = centred(j);
            return simd::fma(c, c, s);
          });
    } else {
      squares = sum_over<Acc>(
          N_, [&](index_t j, const vector& s) __attribute__((always_inline)) {
            const vector u = read(j);
            return simd::fma(u, u, s);
          });
    }
    factor_ = Acc(1) / std::sqrt((f_.averaged ? squares / count : squares) + f_.eps);
  }

  void write(const view<T, 4>& y) const noexcept {
    const auto out = row_at<Acc>(y, b_, t_, g_);
    for (index_t j = 0; j < N_; j += V) {
      vector v = scaled(j);
      if (gate_last()) v = v * activate(f_.gate, z_(j));
      out.write(j, v);
    }
  }

  /// The gradients by what belongs to the row alone.
  void write_gradients(const view<const T, 4>& d_y, const norm_gradient<T>& d, bool accumulate) noexcept {
    const auto dy = row_at<Acc>(d_y, b_, t_, g_);
    const auto dz = row_at<Acc>(d.z, b_, t_, g_);
    // v ← dL/dn, with Σ v ⊙ n and Σ v.
    const Acc along = sum_over<Acc>(
        N_, [&](index_t j, const vector& s) __attribute__((always_inline)) {
          vector v = dy(j);
          if (gate_last()) {
            const with_slope gate(f_.gate, z_(j));
            if (dz) dz.write(j, v * scaled(j) * gate.slope, accumulate);
            v = v * gate.value;
          }
          if (w_) v = v * w_(j);
          simd::store(d_ + j, v);
          return simd::fma(v, normal(j), s);
        });
    const Acc count = static_cast<Acc>(N_);
    Acc mean(0);
    if (f_.centred) {
      mean = sum_over<Acc>(N_, [&](index_t j, const vector& s) noexcept { return s + simd::load(d_ + j); }) / count;
    }
    const auto dx = row_at<Acc>(d.x, b_, t_, g_);
    const auto dr = row_at<Acc>(d.residual, b_, t_, g_);
    const auto ds = row_at<Acc>(d.sum, b_, t_, g_);
    const vector slant(f_.averaged ? along / count : along), level(mean), factor(factor_);
    for (index_t j = 0; j < N_; j += V) {
      vector v = factor * simd::fnma(normal(j), slant, simd::load(d_ + j) - level);
      if (gate_first()) {
        const with_slope gate(f_.gate, z_(j));
        if (dz) dz.write(j, v * input(j) * gate.slope, accumulate);
        v = v * gate.value;
      }
      if (ds) v = v + ds(j);
      if (dx) dx.write(j, v, accumulate);
      if (dr) dr.write(j, v, accumulate);
    }
  }

  /// Adds what the row has to say of weight and bias, in columns [first, end), to two rows of sums.
  void add_parameters(const view<const T, 4>& d_y, index_t first, index_t end, Acc* weight, Acc* bias) const noexcept {
    const auto dy = row_at<Acc>(d_y, b_, t_, g_);
    for (index_t j = first; j < end; j += V) {
      vector v = dy(j);
      if (gate_last()) v = v * activate(f_.gate, z_(j));
      simd::store(weight + j - first, simd::fma(v, normal(j), simd::load(weight + j - first)));
      simd::store(bias + j - first, simd::load(bias + j - first) + v);
    }
  }

 private:
  row_of<Acc, const P> parameters(const view<const P, 2>& x) const noexcept {
    return row_at<Acc>(x, x.extent(0) == 1 ? 0 : g_);
  }
  bool gate_first() const noexcept { return z_ && !f_.gate_last; }
  bool gate_last() const noexcept { return z_ && f_.gate_last; }
  OGIVE_INLINE vector input(index_t j) const noexcept { return r_ ? x_(j) + r_(j) : x_(j); }
  OGIVE_INLINE vector centred(index_t j) const noexcept {
    const vector u = simd::load(u_ + j);
    if (!f_.centred) return u;
    return simd::select(simd::first_n<Acc, simd::default_arch>(N_ - j), u - vector(mean_), vector(Acc(0)));
  }
  OGIVE_INLINE vector normal(index_t j) const noexcept { return centred(j) * vector(factor_); }
  OGIVE_INLINE vector scaled(index_t j) const noexcept {
    const vector n = normal(j);
    const vector bias = bias_ ? bias_(j) : vector(Acc(0));
    if (w_) return simd::fma(n, w_(j), bias);
    return bias_ ? n + bias : n;
  }

  const norm_fields<T, P>& f_;
  index_t N_;
  Acc* u_;  // what is normalised
  Acc* d_;
  Acc mean_{}, factor_{};
  index_t b_ = 0, t_ = 0, g_ = 0;
  row_of<Acc, const T> x_, r_, z_;
  row_of<Acc, const P> w_, bias_;
};

struct norm_rules {
  template <class Op>
  static void check_fields(core::checker& ask, const Op& op, const options& how) noexcept {
    const auto f = op.fields();
    one_form(ask, how);
    ask.given("x", f.x).extents("x", f.x, {-1, -1, -1, -1}, "[B, L, G, N]");
    if (!ask) return;
    const index_t G = f.x.extent(2), N = f.x.extent(3);
    ask.extents("residual", f.residual, f.x.extents(), "[B, L, G, N] as x");
    ask.extents("z", f.z, f.x.extents(), "[B, L, G, N] as x");
    const auto parameter = [&](const char* field, const auto& x) noexcept {
      const index_t own = x.present() && x.extent(0) == 1 ? 1 : G;
      ask.extents(field, x, {own, N}, "[G, N] or [1, N], G and N as x");
    };
    parameter("weight", f.weight);
    parameter("bias", f.bias);
    if (ask && f.weight.present()) ask.extents("bias", f.bias, f.weight.extents(), "as weight");
    ask.not_negative("eps", f.eps);
  }

  template <class Op>
  static status check(const Op& op, const typename Op::output& y, const options& how) noexcept {
    core::checker ask(Op::name);
    check_fields(ask, op, how);
    const auto f = op.fields();
    ask.given("y", y).extents("y", y, f.x.extents(), "[B, L, G, N] as x").output("y", y);
    ask.extents("sum", f.sum, f.x.extents(), "[B, L, G, N] as x").output("sum", f.sum);
    apart(ask, "y", y, f);
    apart(ask, "sum", f.sum, f);
    ask.apart("y", y, "sum", f.sum);
    return ask.result();
  }

  template <class Op>
  static status check_backward(const Op& op, const cotangent_of<Op>& d_y, const typename Op::gradient& d,
                               const options& how) noexcept {
    core::checker ask(Op::name);
    check_fields(ask, op, how);
    if (!ask) return ask.result();
    const auto f = op.fields();
    constexpr const char* as_x = "[B, L, G, N] as x";
    ask.given("d_y", d_y).extents("d_y", d_y, f.x.extents(), as_x);
    ask.extents("d.sum", d.sum, f.x.extents(), as_x);
    const auto written = [&](const char* field, const auto& x, const auto& of, const char* letters) noexcept {
      if (ask && x.present() && !of.present()) ask.refuse(field) << "is wanted of a field that is absent";
      ask.extents(field, x, of.extents(), letters).output(field, x);
      apart(ask, field, x, f);
      ask.apart(field, x, "d_y", d_y).apart(field, x, "d.sum", d.sum);
    };
    written("d.x", d.x, f.x, as_x);
    written("d.residual", d.residual, f.residual, as_x);
    written("d.z", d.z, f.z, as_x);
    written("d.weight", d.weight, f.weight, "as weight");
    written("d.bias", d.bias, f.bias, "as bias");
    ask.apart_from_each_other([&](const auto& each) noexcept {
      each("d.x", d.x), each("d.residual", d.residual), each("d.z", d.z);
      each("d.weight", d.weight), each("d.bias", d.bias);
    });
    return ask.result();
  }

  template <class Op>
  static std::size_t bytes(const Op& op, const options&) noexcept {
    const auto f = op.fields();
    arena counted;
    carve(f, counted);
    return counted.used();
  }

  template <class Op>
  static void forward(const Op& op, const typename Op::output& y, const options& how, context& ctx) {
    const auto f = op.fields();
    const std::size_t room = bytes(op, how);
    reserve_for(ctx, room);
    in_blocks(
        f, ctx, room, [&](auto& row) noexcept { row.write(y); }, true);
  }

  template <class Op>
  static void backward(const Op& op, const cotangent_of<Op>& d_y, const typename Op::gradient& d, const options& how,
                       context& ctx) {
    const auto f = op.fields();
    const std::size_t room = bytes(op, how);
    reserve_for(ctx, room);
    if (d.x.present() || d.residual.present() || d.z.present()) {
      in_blocks(
          f, ctx, room, [&](auto& row) noexcept { row.write_gradients(d_y, d, how.accumulate); }, false);
    }
    if (!d.weight.present() && !d.bias.present()) return;
    // Sums over rows: a task owns some columns of a group, and goes through its rows in order.
    const index_t N = f.x.extent(3), groups = sets(f, d), blocks = (N + columns - 1) / columns;
    run_tasks(ctx, groups * blocks, room, [&](index_t task, arena memory) noexcept {
      sum_parameters(f, d_y, d, how.accumulate, groups, task / blocks, task % blocks * columns, memory);
    });
  }

 private:
  static constexpr index_t columns = 2048;     // of a task that sums parameters
  static constexpr index_t numbers = 1 << 14;  // of a task that goes through rows

  template <class T, class P>
  struct memory_of {
    norm_row<T, P> row;
    accum_t<T>* sums[4];  // of weight and bias: of some rows, and of all
  };
  template <class T, class P>
  static memory_of<T, P> carve(const norm_fields<T, P>& f, arena& memory) noexcept {
    memory_of<T, P> m{norm_row<T, P>(f, memory), {}};
    const index_t held = padded<accum_t<T>>(std::min(columns, f.x.extent(3)));
    for (auto*& sums : m.sums) sums = memory.take<accum_t<T>>(held);
    return m;
  }

  template <class X, std::size_t Rank, class T, class P>
  static void apart(core::checker& ask, const char* field, const view<X, Rank>& x,
                    const norm_fields<T, P>& f) noexcept {
    ask.apart(field, x, "x", f.x).apart(field, x, "residual", f.residual).apart(field, x, "z", f.z);
    ask.apart(field, x, "weight", f.weight).apart(field, x, "bias", f.bias);
  }

  /// body(row) at every row, in blocks of rows.
  template <class T, class P, class Body>
  static void in_blocks(const norm_fields<T, P>& f, context& ctx, std::size_t room, const Body& body,
                        bool write_sum) noexcept {
    const index_t rows = norm_row<T, P>::rows(f);
    const index_t block = std::max<index_t>(1, numbers / std::max<index_t>(1, f.x.extent(3)));
    run_tasks(ctx, (rows + block - 1) / block, room, [&](index_t task, arena memory) noexcept {
      auto m = carve(f, memory);
      walk(m.row, task * block, std::min(rows, task * block + block), body, write_sum);
    });
  }
  template <class Row, class Body>
  OGIVE_NOINLINE static void walk(Row& row, index_t from, index_t to, const Body& body, bool write_sum) noexcept {
    for (index_t i = from; i < to; ++i) {
      row.go_to(i, write_sum);
      body(row);
    }
  }

  /// Rows of parameters: one per group, or one for all.
  template <class T, class P>
  static index_t sets(const norm_fields<T, P>& f, const norm_gradient<T>& d) noexcept {
    const bool own = (d.weight.present() && d.weight.extent(0) != 1) || (d.bias.present() && d.bias.extent(0) != 1);
    return own ? f.x.extent(2) : 1;
  }

  template <class T, class P>
  OGIVE_NOINLINE static void sum_parameters(const norm_fields<T, P>& f, const view<const T, 4>& d_y,
                                            const norm_gradient<T>& d, bool accumulate, index_t groups, index_t group,
                                            index_t first, arena memory) noexcept {
    using Acc = accum_t<T>;
    constexpr index_t V = simd::width<Acc>, some = 32;
    auto m = carve(f, memory);
    const index_t end = std::min(first + columns, f.x.extent(3)), held = padded<Acc>(end - first);
    const auto& [weight, bias, all_weight, all_bias] = m.sums;
    zero_rows(all_weight, 0, 1, held);
    zero_rows(all_bias, 0, 1, held);
    const index_t rows = norm_row<T, P>::rows(f) / groups;
    for (index_t from = 0; from < rows; from += some) {
      zero_rows(weight, 0, 1, held);
      zero_rows(bias, 0, 1, held);
      for (index_t i = from; i < std::min(rows, from + some); ++i) {
        m.row.go_to(i * groups + group, false);
        m.row.add_parameters(d_y, first, end, weight, bias);
      }
      for (index_t j = 0; j < held; j += V) {
        simd::store(all_weight + j, simd::load(all_weight + j) + simd::load(weight + j));
        simd::store(all_bias + j, simd::load(all_bias + j) + simd::load(bias + j));
      }
    }
    const auto drain = [&](const view<Acc, 2>& to, const Acc* sums) noexcept {
      const auto out = row_at<Acc>(to, group);
      for (index_t j = first; out && j < end; j += V) out.write(j, simd::load(sums + j - first), accumulate);
    };
    drain(d.weight, all_weight);
    drain(d.bias, all_bias);
  }
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

// From what projections give to the log decays that operators take: g ≤ 0, the state is multiplied by exp(g).
//
//   softplus_decay   g = −exp(A_log) softplus(a + b)             Gated DeltaNet, KDA (Mamba: d A with d = softplus(…))
//   bounded_decay    g = lowest · sigmoid(exp(A_log) (a + b))    KDA with a floor: g stays in (lowest, 0)
//   log_sigmoid      g = log sigmoid(a + b) / τ                  GLA (τ = 16), HGRN2, gated RFA
//   minus_exp        g = −exp(a + b)                             RWKV-4, RWKV-5, RWKV-6
//   rwkv7            g = −e^(−1/2) sigmoid(a + b)                RWKV-7
//   log_decay        g = log(a + b)                              decays given as such, in (0, 1]
//   retnet, lightning                                            fixed per head
//
// b is dt_bias; A_log, dt_bias may be absent: factor 1, nothing added. Digits are kept at both ends: softplus falls
// like eˣ, log sigmoid like x. arXiv:2412.06464, 2510.26692, 2312.06635, 2404.05892, 2503.14456, 2307.08621,
// 2401.04658.
#pragma once

#include <ogive/layers/row.hpp>
#include <ogive/layers/verbs.hpp>
#include <ogive/maps/gates.hpp>

#include <cmath>

namespace ogive {
inline namespace OGIVE_ABI {

namespace detail {
struct gate_rules;
}

namespace gates {

using ogive::A_from_log;

// A form of gate: its name, g(u, s) of u = a + b and s = exp(A_log), its slope by u, and by log s.

struct softplus_form {
  static constexpr const char* name = "gates::softplus_decay";

  template <class V>
  OGIVE_INLINE V value(const V& u, const V& s) const noexcept {
    return -(s * simd::softplus(u));
  }
  template <class V>
  OGIVE_INLINE V by_u(const V& u, const V& s) const noexcept {
    return -(s * simd::sigmoid(u));
  }
  template <class V>
  OGIVE_INLINE V by_log_s(const V& u, const V& s) const noexcept {
    return value(u, s);
  }
};

struct bounded_form {
  static constexpr const char* name = "gates::bounded_decay";
  double lowest = -5;

  template <class V>
  OGIVE_INLINE V value(const V& u, const V& s) const noexcept {
    return bound<V>() * simd::sigmoid(s * u);
  }
  template <class V>
  OGIVE_INLINE V by_u(const V& u, const V& s) const noexcept {
    return s * bell(s * u);
  }
  template <class V>
  OGIVE_INLINE V by_log_s(const V& u, const V& s) const noexcept {
    const V x = s * u;
    return x * bell(x);
  }

 private:
  template <class V>
  OGIVE_INLINE V bound() const noexcept {
    return V(static_cast<typename V::value_type>(lowest));
  }
  template <class V>
  OGIVE_INLINE V bell(const V& x) const noexcept {
    return bound<V>() * (simd::sigmoid(x) * simd::sigmoid(-x));
  }
};

struct log_sigmoid_form {
  static constexpr const char* name = "gates::log_sigmoid";
  double tau = 1;

  template <class V>
  OGIVE_INLINE V value(const V& u, const V&) const noexcept {
    return simd::divide(-simd::softplus(-u), temperature<V>());
  }
  template <class V>
  OGIVE_INLINE V by_u(const V& u, const V&) const noexcept {
    return simd::divide(simd::sigmoid(-u), temperature<V>());
  }
  template <class V>
  OGIVE_INLINE V by_log_s(const V&, const V&) const noexcept {
    return V(0);
  }

 private:
  template <class V>
  OGIVE_INLINE V temperature() const noexcept {
    return V(static_cast<typename V::value_type>(tau));
  }
};

struct minus_exp_form {
  static constexpr const char* name = "gates::minus_exp";

  template <class V>
  OGIVE_INLINE V value(const V& u, const V&) const noexcept {
    return -simd::exp(u);
  }
  template <class V>
  OGIVE_INLINE V by_u(const V& u, const V& s) const noexcept {
    return value(u, s);
  }
  template <class V>
  OGIVE_INLINE V by_log_s(const V&, const V&) const noexcept {
    return V(0);
  }
};

struct log_form {
  static constexpr const char* name = "gates::log_decay";

  template <class V>
  OGIVE_INLINE V value(const V& u, const V&) const noexcept {
    return simd::log(u);
  }
  template <class V>
  OGIVE_INLINE V by_u(const V& u, const V&) const noexcept {
    return simd::divide(V(1), u);
  }
  template <class V>
  OGIVE_INLINE V by_log_s(const V&, const V&) const noexcept {
    return V(0);
  }
};

/// a [B, L, H, K], A_log [H], dt_bias [H, K]; g [B, L, H, K] in the accumulation type. A gate per head has K = 1.
template <storage T, class Form>
struct gate {
  using scalar = T;
  using accum = accum_t<T>;
  using output = view<accum, 4>;
  using rules = detail::gate_rules;

  view<const T, 4> a{};
  view<const accum, 1> A_log{};  ///< only of forms that have it
  view<const accum, 2> dt_bias{};
  Form form{};

  struct gradient {
    view<T, 4> a{};
    view<accum, 1> A_log{};
    view<accum, 2> dt_bias{};
  };
  static constexpr const char* name = Form::name;
  static constexpr bool scaled = std::is_same_v<Form, softplus_form> || std::is_same_v<Form, bounded_form>;
};

template <storage T>
using softplus_decay = gate<T, softplus_form>;
template <storage T>
using bounded_decay = gate<T, bounded_form>;  ///< .form = {.lowest = −5}
template <storage T>
using log_sigmoid = gate<T, log_sigmoid_form>;  ///< .form = {.tau = 16}
template <storage T>
using minus_exp = gate<T, minus_exp_form>;
template <storage T>
using log_decay = gate<T, log_form>;

/// The form of RWKV-7: −e^(−1/2) sigmoid(u), never below −0.6066.
inline constexpr bounded_form rwkv7{.lowest = -0.60653065971263342360};

/// RetNet: g_h = log(1 − 2^(−5−h)) for each head.
template <std::floating_point T>
void retnet(const view<T, 1>& g) noexcept {
  for (index_t h = 0; h < g.extent(0); ++h) {
    g[h] = static_cast<T>(std::log1p(-std::ldexp(1.0, -5 - static_cast<int>(std::min<index_t>(h, 1100)))));
  }
}

/// Lightning attention: g_h = −(8/H) (1 − layer/layers) h for each of H heads, layer counted from 0.
template <std::floating_point T>
void lightning(const view<T, 1>& g, index_t layer, index_t layers) noexcept {
  const double step =
      8.0 / static_cast<double>(g.extent(0)) * (1 - static_cast<double>(layer) / static_cast<double>(layers));
  for (index_t h = 0; h < g.extent(0); ++h) g[h] = static_cast<T>(-step * static_cast<double>(h));
}

}  // namespace gates

namespace detail {

/// A gate's fields with columns that are neighbours: K of them in each head, or, where K = 1, the heads themselves.
template <class A, class P>
struct gate_columns {
  view<A, 4> a;
  P *A_log, *bias;
  shape<2> A_stride, bias_stride;  // from head to head, from column to column

  gate_columns(const view<A, 4>& x, const view<P, 1>& log, const view<P, 2>& b) noexcept
      : a(turned(x)), A_log(log.data()), bias(b.data()) {
    const bool heads = x.extent(3) == 1;
    A_stride = heads ? shape<2>{0, log.stride(0)} : shape<2>{log.stride(0), 0};
    bias_stride = heads ? shape<2>{0, b.stride(0)} : b.strides();
  }
  template <class X>
  static view<X, 4> turned(const view<X, 4>& x) noexcept {
    return x.extent(3) == 1 ? x.permute({0, 1, 3, 2}) : x;
  }
  P* A_at(index_t h, index_t j) const noexcept { return A_log + h * A_stride[0] + j * A_stride[1]; }
  P* bias_at(index_t h, index_t j) const noexcept { return bias + h * bias_stride[0] + j * bias_stride[1]; }
};

struct gate_rules {
  template <class Op>
  static void check_fields(core::checker& ask, const Op& op, const options& how) noexcept {
    one_form(ask, how);
    ask.given("a", op.a).extents("a", op.a, {-1, -1, -1, -1}, "[B, L, H, K]");
    if (ask && !Op::scaled && op.A_log.present()) ask.refuse("A_log") << "has no place in this form of gate";
    ask.extents("A_log", op.A_log, {op.a.extent(2)}, "[H] as a");
    ask.extents("dt_bias", op.dt_bias, {op.a.extent(2), op.a.extent(3)}, "[H, K] as a");
  }
  template <class Op>
  static status check(const Op& op, const typename Op::output& g, const options& how) noexcept {
    core::checker ask(Op::name);
    check_fields(ask, op, how);
    ask.given("g", g).extents("g", g, op.a.extents(), "[B, L, H, K] as a").output("g", g);
    ask.apart("g", g, "a", op.a).apart("g", g, "A_log", op.A_log).apart("g", g, "dt_bias", op.dt_bias);
    return ask.result();
  }
  template <class Op>
  static status check_backward(const Op& op, const cotangent_of<Op>& d_g, const typename Op::gradient& d,
                               const options& how) noexcept {
    core::checker ask(Op::name);
    check_fields(ask, op, how);
    ask.given("d_g", d_g).extents("d_g", d_g, op.a.extents(), "[B, L, H, K] as a");
    ask.extents("d.a", d.a, op.a.extents(), "[B, L, H, K] as a").output("d.a", d.a);
    ask.extents("d.A_log", d.A_log, {op.a.extent(2)}, "[H] as a").output("d.A_log", d.A_log);
    ask.extents("d.dt_bias", d.dt_bias, {op.a.extent(2), op.a.extent(3)}, "[H, K] as a");
    ask.output("d.dt_bias", d.dt_bias);
    const auto apart = [&](const char* field, const auto& x) noexcept {
      ask.apart(field, x, "a", op.a).apart(field, x, "A_log", op.A_log).apart(field, x, "dt_bias", op.dt_bias);
      ask.apart(field, x, "d_g", d_g);
    };
    const auto all = [&](const auto& each) noexcept {
      each("d.a", d.a), each("d.A_log", d.A_log), each("d.dt_bias", d.dt_bias);
    };
    all(apart);
    ask.apart_from_each_other(all);
    return ask.result();
  }
  template <class Op>
  static std::size_t bytes(const Op& op, const options&) noexcept {
    using Acc = typename Op::accum;
    arena counted;
    for (int i = 0; i < 4; ++i) counted.take<Acc>(whole(std::max(op.a.extent(2), op.a.extent(3))));
    return counted.used();
  }

  /// Tasks are runs of tokens of one row of the batch.
  template <class Op>
  static void forward(const Op& op, const typename Op::output& g, const options&, context& ctx) {
    const index_t L = op.a.extent(1), per_row = (L + tile - 1) / tile;
    run_tasks(ctx, op.a.extent(0) * per_row, 0, [&](index_t task, arena) noexcept {
      const index_t first = task % per_row * tile;
      fill(op, g, task / per_row, first, std::min(tile, L - first));
    });
  }

  /// Tasks are heads, or blocks of them where K = 1: a task sums over all tokens, in order.
  template <class Op>
  static void backward(const Op& op, const cotangent_of<Op>& d_g, const typename Op::gradient& d, const options& how,
                       context& ctx) {
    const std::size_t room = bytes(op, how);
    reserve_for(ctx, room);
    const bool heads = op.a.extent(3) == 1;
    const index_t blocks = heads ? (op.a.extent(2) + columns - 1) / columns : op.a.extent(2);
    run_tasks(ctx, blocks, room, [&](index_t task, arena memory) noexcept {
      if (heads) {
        const index_t first = task * columns;
        sum(op, d_g, d, how.accumulate, 0, first, std::min(columns, op.a.extent(2) - first), memory);
      } else {
        sum(op, d_g, d, how.accumulate, task, 0, op.a.extent(3), memory);
      }
    });
  }

 private:
  static constexpr index_t tile = 16;      // tokens
  static constexpr index_t columns = 256;  // heads of a task where K = 1

  static constexpr index_t whole(index_t count) noexcept { return (count + 63) / 64 * 64; }

  template <class Op>
  struct column {
    using Acc = typename Op::accum;
    using vector = simd::batch<Acc>;
    vector s, bias;

    template <class A>
    column(const gate_columns<A, const Acc>& c, index_t h, index_t j, index_t count) noexcept
        : s(Acc(1)), bias(Acc(0)) {
      using arch = simd::default_arch;
      if (c.A_log != nullptr) s = simd::exp(simd::load_strided<Acc, arch>(c.A_at(h, j), c.A_stride[1], count));
      if (c.bias != nullptr) bias = simd::load_strided<Acc, arch>(c.bias_at(h, j), c.bias_stride[1], count);
    }
  };

  template <class Op>
  OGIVE_NOINLINE static void fill(const Op& op, const typename Op::output& given, index_t b, index_t first,
                                  index_t count) noexcept {
    using Acc = typename Op::accum;
    constexpr index_t V = simd::width<Acc>;
    const gate_columns c(op.a, op.A_log, op.dt_bias);
    const auto g = c.turned(given);
    for (index_t h = 0; h < c.a.extent(2); ++h) {
      for (index_t j = 0; j < c.a.extent(3); j += V) {
        const index_t lanes = std::min(V, c.a.extent(3) - j);
        const column<Op> own(c, h, j, lanes);
        for (index_t t = first; t < first + count; ++t) {
          row_at<Acc>(g, b, t, h).write(j, op.form.value(row_at<Acc>(c.a, b, t, h)(j) + own.bias, own.s));
        }
      }
    }
  }

  template <class Op>
  OGIVE_NOINLINE static void sum(const Op& op, const cotangent_of<Op>& given, const typename Op::gradient& d,
                                 bool accumulate, index_t h, index_t first, index_t count, arena memory) noexcept {
    using T = typename Op::scalar;
    using Acc = typename Op::accum;
    using vector = simd::batch<Acc>;
    constexpr index_t V = simd::width<Acc>;
    const gate_columns c(op.a, op.A_log, op.dt_bias);
    const gate_columns<T, Acc> to(d.a, d.A_log, d.dt_bias);
    const auto d_g = c.turned(given);
    const index_t L = c.a.extent(1);
    Acc* of_bias = memory.take<Acc>(whole(count));
    Acc* of_A = memory.take<Acc>(whole(count));
    for (index_t j = 0; j < count; j += V) {
      simd::store(of_bias + j, vector(Acc(0)));
      simd::store(of_A + j, vector(Acc(0)));
    }
    for (index_t b = 0; b < c.a.extent(0); ++b) {
      for (index_t begin = 0; begin < L; begin += tile) {
        for (index_t j = 0; j < count; j += V) {
          const index_t lanes = std::min(V, count - j), at = first + j;
          const column<Op> own(c, h, at, lanes);
          vector bias(Acc(0)), A(Acc(0));
          for (index_t t = begin; t < std::min(L, begin + tile); ++t) {
            const vector u = row_at<Acc>(c.a, b, t, h)(at) + own.bias, v = row_at<Acc>(d_g, b, t, h)(at);
            const vector d_u = v * op.form.by_u(u, own.s);
            bias = bias + d_u;
            if (to.A_log != nullptr) A = simd::fma(v, op.form.by_log_s(u, own.s), A);
            if (d.a.present()) row_at<Acc>(to.a, b, t, h).write(at, d_u, accumulate);
          }
          simd::store(of_bias + j, simd::load(of_bias + j) + bias);
          simd::store(of_A + j, simd::load(of_A + j) + A);
        }
      }
    }
    const auto drain = [accumulate](Acc* out, Acc x) noexcept { *out = accumulate ? *out + x : x; };
    if (to.bias != nullptr) {
      for (index_t j = 0; j < count; ++j) drain(to.bias_at(h, first + j), of_bias[j]);
    }
    if (to.A_log == nullptr) return;
    if (op.a.extent(3) == 1) {
      for (index_t j = 0; j < count; ++j) drain(to.A_at(h, first + j), of_A[j]);
    } else {
      Acc all(0);
      for (index_t j = 0; j < count; ++j) all += of_A[j];
      drain(to.A_at(h, 0), all);
    }
  }
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

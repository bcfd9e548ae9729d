// L5: systems whose channels share a state, as convolutions.
//
//   y_p = Σ_m K_pm ∗ u_m + C_p A̅^{t+1} h,   K_l = C A̅ˡ B̅,   K_{sj+i} = (C A̅ⁱ)(A̅^{sj} B̅)
//
// The kernel of L taps is a product of two tables of some √L powers each: N multiply-adds per element, where a sweep
// takes N². What the initial state leaves is the kernel of one more input, A̅ h. A task is some outputs of some
// sequences: it transforms the inputs of these once each, and then, an output at a time, makes the kernels, adds up the
// products of values and transforms the sum back. So its scratch grows with M tokens of a sequence, not with P M.
#pragma once

#include <ogive/engine/convolution.hpp>
#include <ogive/engine/kept_panels.hpp>
#include <ogive/engine/shared_state_task.hpp>
#include <ogive/linalg/transpose.hpp>

#include <cmath>
#include <limits>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// The tables of which kernels are products, for some outputs and all inputs.
template <class Acc, bool Diagonal>
struct shared_kernel {
  using panels = shared_state_panels<Acc>;
  static constexpr index_t planes = Diagonal ? 2 : 1;

  index_t near, far;  ///< s, and the number of multiples of it: near · far ≥ L
  index_t outputs;
  Acc* back;     ///< A̅, or the conjugate of a diagonal
  Acc* leap;     ///< (A̅ˢ)ᵀ, or a diagonal
  Acc* spare;    ///< as large
  Acc* reads;    ///< [near, outputs, row]: C A̅ⁱ
  Acc* turned;   ///< [planes, N, near]: that of one output
  Acc* written;  ///< [far, M, row]: A̅^{sj} B̅

  static index_t near_of(index_t taps) noexcept {
    index_t s = simd::width<Acc>;
    while (s * s < taps) s *= 2;
    return s;
  }
  static shared_kernel carve(const panels& p, index_t taps, index_t outputs, arena& room) noexcept {
    const index_t step = Diagonal ? p.row : p.states * p.row;
    shared_kernel k{};
    k.near = near_of(taps);
    k.far = (taps + k.near - 1) / k.near;
    k.outputs = outputs;
    k.back = room.take<Acc>(step);
    k.leap = room.take<Acc>(step);
    k.spare = room.take<Acc>(Diagonal ? 0 : step);
    k.reads = room.take<Acc>(k.near * outputs * p.row);
    k.turned = room.take<Acc>(planes * p.states * k.near);
    k.written = room.take<Acc>(k.near * p.inputs * p.row);  // far ≤ near, which grows with L
    return k;
  }
  /// Elements that `make` writes.
  index_t length() const noexcept { return near * far; }

  /// `by` onto rows of the state.
  static void apply(const panels& p, index_t rows, const Acc* from, const Acc* by, Acc* to) noexcept {
    if constexpr (Diagonal) {
      using arch = simd::default_arch;
      for (index_t j = 0; j < p.width; j += simd::width<Acc>) {
        const auto a_re = simd::load<arch>(by + j), a_im = simd::load<arch>(by + p.plane + j);
        for (index_t i = 0; i < rows; ++i) {
          const Acc* x = from + i * p.row + j;
          const auto re = simd::load<arch>(x), im = simd::load<arch>(x + p.plane);
          simd::store(to + i * p.row + j, simd::fnma(a_im, im, a_re * re));
          simd::store(to + i * p.row + p.plane + j, simd::fma(a_im, re, a_re * im));
        }
      }
    } else {
      product_of_rows(rows, p.width, p.states, from, p.row, by, p.row, to, p.row);
    }
  }

  /// The tables of outputs [first, first + count).
  template <class Op>
  void begin(const Op& op, const panels& p, index_t first, index_t count) noexcept {
    power(op, p);
    outputs = count;
    for (index_t o = 0; o < count; ++o) {
      for (index_t n = 0; n < p.states; ++n) {
        const Acc* C = p.C + n * planes * p.output_row + first + o;
        reads[o * p.row + n] = C[0];
        if constexpr (Diagonal) reads[o * p.row + p.plane + n] = C[p.output_row];
      }
    }
    for (index_t i = 1; i < near; ++i) {
      apply(p, count, reads + (i - 1) * count * p.row, back, reads + i * count * p.row);
    }
    follow(p, p.inputs, p.B, written);
  }
  /// A̅^{sj} onto some rows, for all j.
  void follow(const panels& p, index_t rows, const Acc* from, Acc* to) const noexcept {
    for (index_t i = 0; i < rows; ++i) p.hold(from + i * p.row, to + i * p.row);
    for (index_t j = 1; j < far; ++j) apply(p, rows, to + (j - 1) * rows * p.row, leap, to + j * rows * p.row);
  }

  /// Output number `o` of those begun is the one whose kernels are made.
  void choose(const panels& p, index_t o) noexcept {
    for (index_t part = 0; part < planes; ++part) {
      linalg::transpose(near, p.states, {reads + o * p.row + part * p.plane, outputs * p.row},
                        linalg::panel<Acc>{turned + part * p.states * near, near});
    }
  }
  /// Its kernel for number i of `rows` that were followed.
  void make(const panels& p, const Acc* followed, index_t rows, index_t i, Acc* to) const noexcept {
    const Acc* from = followed + i * p.row;
    product_of_rows(far, near, p.states, from, rows * p.row, turned, near, to, near);
    if constexpr (Diagonal) {
      product_of_rows(far, near, p.states, from + p.plane, rows * p.row, turned + p.states * near, near, to, near,
                      linalg::add{});
    }
  }

 private:
  template <class Op>
  void power(const Op& op, const panels& p) noexcept {
    if constexpr (Diagonal) {
      using arch = simd::default_arch;
      zero_tile(leap, 0, 0, 1, p.row);
      for (index_t j = 0; j < p.width; j += simd::width<Acc>) {
        simd::store(back + j, simd::load<arch>(p.A + j));
        simd::store(back + p.plane + j, -simd::load<arch>(p.A + p.plane + j));
      }
      for (index_t n = 0; n < p.states; ++n) {
        std::complex<double> a = op.template mode<double>(n).a;
        for (index_t s = 1; s < near; s *= 2) a *= a;
        leap[n] = static_cast<Acc>(a.real());
        leap[p.plane + n] = static_cast<Acc>(a.imag());
      }
    } else {
      linalg::transpose(p.states, p.states, {p.A, p.row}, linalg::panel<Acc>{back, p.row});
      if (far < 2) return;
      index_t squares = 0;
      for (index_t s = 1; s < near; s *= 2) ++squares;
      Acc* to = squares % 2 == 1 ? leap : spare;
      const Acc* from = p.A;
      for (; squares > 0; --squares) {
        apply(p, p.states, from, from, to);
        from = to;
        to = to == leap ? spare : leap;
      }
    }
  }
};

/// How a convolution is cut up: a function of shape.
struct shared_convolution_plan {
  index_t taps;
  index_t size;       ///< of the transforms, so large that nothing wraps
  index_t outputs;    ///< of a task
  index_t blocks;     ///< of outputs
  index_t sequences;  ///< of a task, which makes its kernels once
  index_t shares;     ///< of sequences

  template <class Acc>
  static shared_convolution_plan of(const shared_state_extents& n, index_t taps, index_t sequences) noexcept {
    constexpr index_t most_outputs = 16, most_sequences = 16, numbers = index_t{1} << 21;
    shared_convolution_plan plan{};
    plan.taps = taps;
    plan.size = polynomial_transform<Acc>::size_for(2 * taps);
    plan.outputs = std::min(n.outputs, most_outputs);
    plan.blocks = (n.outputs + most_outputs - 1) / most_outputs;
    const index_t room = std::clamp<index_t>(numbers / (plan.size * (n.inputs + 1)), 1, most_sequences);
    plan.sequences = std::clamp<index_t>(sequences, 1, room);
    plan.shares = (sequences + plan.sequences - 1) / plan.sequences;
    return plan;
  }
};

/// Vector operations, about, of a call. The constants are from measurements of bench/shared_state.cpp.
template <class Acc, bool Diagonal>
struct shared_costs {
  static constexpr double W = static_cast<double>(simd::width<Acc>), planes = Diagonal ? 2 : 1;
  double batch, length, M, N, P, taps, blocks, shares;
  double transform;  // of a sequence
  double product;    // of two
  double state;      // vectors

  shared_costs(const shared_state_extents& n, const shared_convolution_plan& plan) noexcept
      : batch(static_cast<double>(n.batch)),
        length(static_cast<double>(n.length)),
        M(static_cast<double>(n.inputs)),
        N(static_cast<double>(n.states)),
        P(static_cast<double>(n.outputs)),
        taps(static_cast<double>(plan.taps)),
        blocks(static_cast<double>(plan.blocks)),
        shares(static_cast<double>(plan.shares)),
        transform(convolution_costs<Acc>::transform(plan.size)),
        state(planes * vectors(N)) {
    const index_t sums = plan.sequences * plan.size;  // numbers, which leave the caches one after the other
    const double each = 4 + (plan.sequences > 1 ? 8 : 0) + (n.inputs * sums > (index_t{1} << 18) ? 12 : 0) +
                        (sums > (index_t{1} << 17) ? 36 : 0);
    product = each * static_cast<double>(plan.size) / (2 * W);
  }

  static double vectors(double count) noexcept { return std::ceil(count / W); }

  /// A dense step waits for its own sums, then for the rows of A̅. `packs`: every sequence makes its coefficients.
  double sweep(bool packs) const noexcept {
    const double step = Diagonal ? state : 4.7 * N * std::fmax(1, state / 4.3);
    const double token = 25 + step + 0.75 * M * state + 0.9 * planes * N * vectors(P);
    return batch * (length * token + (packs && Diagonal ? 130 * N : 0));
  }
  /// The kernels and their values.
  double kernels() const noexcept {
    const double near = std::sqrt(taps), onto = (Diagonal ? 2 : N) * state;
    const double powers = Diagonal ? 130 * N : 0.75 * N * onto * std::log2(near);
    const double tables = blocks * (powers + near * onto * M) + near * onto * P;
    return shares * (tables + P * M * (planes * N * taps / W + transform));
  }
  double products(bool initial) const noexcept {
    const double left = initial ? planes * N * taps / W : 0;
    return batch * (blocks * M * transform + P * (transform + left + M * product));
  }
};

/// The outputs of some sequences, but for padding.
template <class Acc, class Op, class State>
class shared_convolution_task {
  using T = typename Op::scalar;
  using panels = shared_state_panels<Acc>;
  static constexpr bool diagonal = is_complex<typename Op::number>;

 public:
  struct arguments {
    const Op& op;
    const State& st;
    const view<T, 3>& y;
    const Acc* values = nullptr;  ///< of kernels that are kept, as `values_of` leaves them
  };

  static std::size_t bytes(const Op& op, const shared_convolution_plan& plan) noexcept {
    arena counted;
    const auto p = panels::carve(op.extents(), diagonal, true, counted);
    shared_convolution_task({op, {}, {}}, plan, p, counted);
    return counted.used();
  }

  OGIVE_NOINLINE static void run(const arguments& of, const shared_convolution_plan& plan,
                                 const polynomial_transform<Acc>& transform, index_t task, arena memory) noexcept {
    const auto p = packed_panels<Acc>(of.op, of.op.extents(), memory);
    shared_convolution_task own(of, plan, p, memory);
    const index_t first = task % plan.blocks * plan.outputs, begin = task / plan.blocks * plan.sequences;
    own.outputs(first, std::min(plan.outputs, p.outputs - first), begin,
                std::min(begin + plan.sequences, input_sequences(of.op)), transform);
  }

  /// The values of all kernels [P, M, size] of some outputs, to be kept.
  OGIVE_NOINLINE static void values_of(const Op& op, const shared_convolution_plan& plan,
                                       const polynomial_transform<Acc>& transform, index_t block, Acc* values,
                                       arena memory) noexcept {
    const auto p = packed_panels<Acc>(op, op.extents(), memory);
    const State none{};
    const view<T, 3> nothing{};
    shared_convolution_task own({op, none, nothing}, plan, p, memory);
    const index_t first = block * plan.outputs, count = std::min(plan.outputs, p.outputs - first);
    own.kernel_.begin(op, p, first, count);
    for (index_t o = 0; o < count; ++o) {
      own.kernel_.choose(p, o);
      for (index_t m = 0; m < p.inputs; ++m) {
        own.values(first + o, m, transform, values + ((first + o) * p.inputs + m) * plan.size);
      }
    }
  }

 private:
  shared_convolution_task(const arguments& of, const shared_convolution_plan& plan, const panels& p,
                          arena& memory) noexcept
      : of_(of),
        plan_(plan),
        p_(p),
        problem_{.u = of.op.u, .lengths = of.op.lengths, .offsets = of.op.offsets},
        kernel_(shared_kernel<Acc, diagonal>::carve(p, plan.taps, plan.outputs, memory)),
        stride_(plan.size + simd::width<Acc>),
        inputs_(memory.take<Acc>(plan.sequences * p.inputs * stride_)),
        sums_(memory.take<Acc>(plan.sequences * stride_)),
        tap_(memory.take<Acc>(plan.size)),
        left_(memory.take<Acc>(plan.sequences * kernel_.near * p.row)) {}

  void outputs(index_t first, index_t count, index_t begin, index_t end,
               const polynomial_transform<Acc>& transform) noexcept {
    const index_t M = p_.inputs;
    if (of_.values == nullptr) kernel_.begin(of_.op, p_, first, count);
    for (index_t s = begin; s < end; ++s) {
      Acc* panel = inputs_ + (s - begin) * M * stride_;
      rows_of(panel, 0, M).load(problem_.sequence(s), 0, plan_.size);
      for (index_t m = 0; m < M; ++m) transform.forward(panel + m * stride_);
      if (starts(s)) start(s, s - begin);
    }
    for (index_t o = 0; o < count; ++o) {
      for (index_t i = 0; i < end - begin; ++i) zero_tile(sums_ + i * stride_, 0, 0, 1, plan_.size);
      if (of_.values == nullptr) kernel_.choose(p_, o);
      for (index_t m = 0; m < M; ++m) {
        const Acc* kept = of_.values == nullptr ? tap_ : of_.values + ((first + o) * M + m) * plan_.size;
        if (of_.values == nullptr) values(first + o, m, transform, tap_);
        for (index_t i = 0; i < end - begin; ++i) {
          transform.add_product(inputs_ + (i * M + m) * stride_, kept, sums_ + i * stride_);
        }
      }
      for (index_t s = begin; s < end; ++s) {
        Acc* sum = sums_ + (s - begin) * stride_;
        const convolution_sequence at = problem_.sequence(s);
        transform.inverse(sum);
        if (starts(s)) {
          kernel_.make(p_, left_ + (s - begin) * kernel_.far * p_.row, 1, 0, tap_);
          for (index_t t = 0; t < at.live; ++t) sum[t] += tap_[t];
        }
        rows_of(sum, first + o, 1).store(at, 0, at.live, 0, of_.y);
      }
    }
  }

  /// Of the kernel from input m to an output, the skip in its first tap and 2/n in all.
  void values(index_t output, index_t m, const polynomial_transform<Acc>& transform, Acc* to) const noexcept {
    kernel_.make(p_, kernel_.written, p_.inputs, m, to);
    if (p_.D != nullptr) {
      if constexpr (diagonal) {
        if (m == output) to[0] += p_.D[m];
      } else {
        to[0] += p_.D[m * p_.output_row + output];
      }
    }
    const Acc scale = Acc(2) / static_cast<Acc>(plan_.size);
    for (index_t l = 0; l < plan_.taps; ++l) to[l] *= scale;
    for (index_t l = plan_.taps; l < plan_.size; ++l) to[l] = Acc(0);
    transform.forward(to);
  }

  bool starts(index_t s) const noexcept {
    return of_.st.initial.present() && core::checker::slot_of(of_.st.initial_slots, s) >= 0;
  }
  void start(index_t s, index_t i) const noexcept {
    load_shared_state(p_, of_.st, s);
    kernel_.apply(p_, 1, p_.h, p_.A, p_.after(0));
    kernel_.follow(p_, 1, p_.after(0), left_ + i * kernel_.far * p_.row);
  }

  convolution_rows<Acc, T, T> rows_of(Acc* panel, index_t channel, index_t across) const noexcept {
    return {problem_, channel, across, panel, stride_};
  }

  const arguments of_;
  const shared_convolution_plan& plan_;
  const panels& p_;
  convolution_problem<T> problem_;
  shared_kernel<Acc, diagonal> kernel_;
  index_t stride_;
  Acc* inputs_;  // [sequences, M, stride]: their values
  Acc* sums_;    // [sequences, stride]
  Acc* tap_;     // [size], of one kernel
  Acc* left_;    // [sequences, far, row]: A̅^{sj+1} h
};

/// Room for the kernels of `length` taps, and one of them.
template <class Op>
std::size_t shared_kernel_bytes(const Op& op, index_t length) noexcept {
  using Acc = typename Op::accum;
  constexpr bool diagonal = is_complex<typename Op::number>;
  arena counted;
  const auto p = shared_state_panels<Acc>::carve(op.extents(), diagonal, true, counted);
  const auto plan = shared_convolution_plan::of<Acc>(op.extents(), length, 1);
  const auto k = shared_kernel<Acc, diagonal>::carve(p, length, plan.outputs, counted);
  counted.take<Acc>(k.length());
  return counted.used();
}

/// K of a block of outputs.
template <class Op>
OGIVE_NOINLINE void run_kernel_task(const Op& op, const view<typename Op::accum, 3>& K, index_t block,
                                    arena memory) noexcept {
  using Acc = typename Op::accum;
  const auto p = packed_panels<Acc>(op, op.extents(), memory);
  const auto plan = shared_convolution_plan::of<Acc>(op.extents(), K.extent(2), 1);
  auto k = shared_kernel<Acc, is_complex<typename Op::number>>::carve(p, plan.taps, plan.outputs, memory);
  Acc* row = memory.take<Acc>(k.length());
  const index_t first = block * plan.outputs, count = std::min(plan.outputs, p.outputs - first);
  k.begin(op, p, first, count);
  for (index_t o = 0; o < count; ++o) {
    k.choose(p, o);
    for (index_t m = 0; m < p.inputs; ++m) {
      k.make(p, k.written, p.inputs, m, row);
      store_tile(row, 0, view<Acc, 2>(K.pointer(first + o, m, 0), {1, plan.taps}, {0, K.stride(2)}));
    }
  }
}

/// Room for one worker, of these tokens or fewer, packed or not.
template <class Acc, class Op>
std::size_t shared_convolution_bytes(const Op& op) noexcept {
  const shared_state_extents n = op.extents();
  const index_t any = index_t{1} << 20, sequences = op.offsets.present() || n.batch == 1 ? any : n.batch;
  std::size_t most = 0;
  for (index_t size = polynomial_transform<Acc>::size_for(2 * n.length); size >= polynomial_transform<Acc>::least;
       size /= 2) {
    const auto plan = shared_convolution_plan::of<Acc>(n, std::min(n.length, size / 2), sequences);
    most = std::max(most, shared_convolution_task<Acc, Op, typename Op::default_state>::bytes(op, plan));
  }
  return most;
}

/// Whether no state grows: where one does, outputs by transforms are good to the rounding of the largest of them only.
/// Of a dense system as far as A̅ says at a glance: its rows or its columns sum to at most 1, or it is a triangle whose
/// diagonal is below 1.
template <class Op>
bool shared_state_settles(const Op& op) noexcept {
  constexpr double rounded = 1 + 4 * static_cast<double>(std::numeric_limits<typename Op::accum>::epsilon());
  const index_t N = op.input().extent(0);
  if constexpr (is_complex<typename Op::number>) {
    for (index_t n = 0; n < N; ++n) {
      if (!(std::abs(op.template mode<double>(n).a) <= rounded)) return false;
    }
    return true;
  } else {
    const auto A = op.transition();
    bool rows = true, columns = true, lower = true, upper = true;
    for (index_t i = 0; i < N; ++i) {
      double row = 0, column = 0;
      for (index_t j = 0; j < N; ++j) {
        row += std::fabs(static_cast<double>(A(i, j)));
        column += std::fabs(static_cast<double>(A(j, i)));
        lower = lower && (j <= i || A(i, j) == 0);
        upper = upper && (j >= i || A(i, j) == 0);
      }
      const bool below = std::fabs(static_cast<double>(A(i, i))) < 1;
      rows = rows && row <= rounded;
      columns = columns && column <= rounded;
      lower = lower && below;
      upper = upper && below;
    }
    return rows || columns || lower || upper;
  }
}

/// Whether a convolution costs less than the sweep: vector operations, about, from shapes and from what is asked for. A
/// final state and padding want the sweep in any case, and states that grow.
template <class Acc, class Op, class State>
bool shared_convolution_pays(const Op& op, const State& st) noexcept {
  if (st.final.present() || op.lengths.present() || op.offsets.present()) return false;
  const shared_state_extents n = op.extents();
  if (n.length < 64 || n.inputs == 0 || n.states == 0 || n.outputs == 0) return false;
  const auto plan = shared_convolution_plan::of<Acc>(n, n.length, n.batch);
  const shared_costs<Acc, is_complex<typename Op::number>> cost(n, plan);
  return cost.kernels() + cost.products(st.initial.present()) < cost.sweep(true) && shared_state_settles(op);
}

/// The kernels of an operator as a `prepared` one keeps them (ogive/engine/kept_convolution.hpp): P M transforms, where
/// the convolution of the longest sequence then costs less than its sweep, or where that is `wanted` in any case.
template <class Op>
class kept_shared_kernels {
  using T = typename Op::scalar;
  using Acc = typename Op::accum;
  using task = shared_convolution_task<Acc, with_panels<Op>, typename Op::default_state>;

 public:
  kept_shared_kernels() = default;
  kept_shared_kernels(const Op& op, index_t length, bool wanted) noexcept {
    shared_state_extents n = op.extents();
    if (length == 0 || n.inputs == 0) return;
    n.length = length;
    plan_ = shared_convolution_plan::of<Acc>(n, length, n.batch);
    if (wanted || pays(op, length)) taps_ = length;
    numbers_ = taps_ > 0 ? n.outputs * n.inputs * plan_.size : 0;
  }

  index_t taps() const noexcept { return taps_; }
  index_t numbers() const noexcept { return numbers_; }
  std::size_t bytes(const with_panels<Op>& op) const noexcept { return task::bytes(op, plan_); }
  void make_tables(context& ctx) const { ctx.cache<polynomial_transforms<Acc>>().make(plan_.size); }

  void compute(const with_panels<Op>& op, Acc* values, context& ctx) noexcept {
    settles_ = shared_state_settles(op);
    run_tasks(ctx, plan_.blocks, bytes(op), [&](index_t block, arena memory) noexcept {
      task::values_of(op, plan_, transform(ctx), block, values, memory);
    });
  }
  bool pays(const Op& op, index_t tokens) const noexcept {
    shared_state_extents n = op.extents();
    n.length = tokens;
    const shared_costs<Acc, is_complex<typename Op::number>> cost(n, plan_);
    return settles_ && cost.products(false) < cost.sweep(false);
  }
  void run(const with_panels<Op>& op, const view<T, 3>& y, const Acc* values, context& ctx) const noexcept {
    const typename Op::default_state rest{};
    const typename task::arguments all{op, rest, y, values};
    run_tasks(ctx, plan_.blocks * plan_.shares, bytes(op),
              [&](index_t i, arena memory) noexcept { task::run(all, plan_, transform(ctx), i, memory); });
  }

 private:
  const polynomial_transform<Acc>& transform(context& ctx) const noexcept {
    return ctx.cache<polynomial_transforms<Acc>>().at(plan_.size);
  }

  shared_convolution_plan plan_{};
  index_t taps_ = 0, numbers_ = 0;
  bool settles_ = true;
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

// L5: fixed modes as a convolution: y = K ∗ u + D u, and what the initial state leaves, Re Σ_n c_n a_n^{t+1} h_n, a
// kernel as well.
#pragma once

#include <ogive/engine/convolution.hpp>
#include <ogive/engine/modes_kernel.hpp>
#include <ogive/engine/modes_task.hpp>

#include <limits>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// a and, as c, c b of channel d for its kernel.
template <class Acc, class Op>
void kernel_modes(const Op& op, index_t d, const kernel_scratch<Acc>& to) noexcept {
  const index_t N = op.A.extent(1);
  for (index_t n = 0; n < N; ++n) {
    const auto [a, b] = mode_of(op, d, n);
    const auto c = wide_of<typename Op::number>(op.C(d, n)) * b;
    if constexpr (is_complex<typename Op::number>) {
      to.a[n] = a.real();
      to.a[N + n] = a.imag();
      to.c[n] = 2 * c.real();
      to.c[N + n] = 2 * c.imag();
    } else {
      to.a[n] = a;
      to.c[n] = c;
    }
  }
}

/// Makes K_0 … K_{L−1} of a channel where `convolve` wants it.
template <class Op>
struct kernel_of_modes {
  static constexpr bool complex = is_complex<typename Op::number>;
  const Op& op;
  kernel_plan plan;

  kernel_of_modes(const Op& from, index_t taps) noexcept
      : op(from), plan(kernel_plan::of(taps, from.A.extent(1), complex ? 2 : 1)) {}

  /// Of a kernel, or of what an initial state adds.
  std::size_t bytes() const noexcept {
    arena counted;
    kernel_scratch<double>::carve(plan, counted);
    counted.take<double>(plan.length);
    return counted.used();
  }
  template <class Acc>
  void operator()(index_t channel, Acc* to, arena memory) const noexcept {
    const auto s = kernel_scratch<Acc>::carve(plan, memory);
    kernel_modes(op, channel, s);
    modes_kernel<complex, Acc>::run(plan, s, view<Acc, 1>(to, {plan.length}));
  }
};

/// Adds what is left of the initial state to outputs [first, first + count).
template <class Op, class State>
struct free_response {
  const kernel_of_modes<Op>& kernel;
  const State& st;

  template <class Acc>
  void operator()(const convolution_sequence& at, index_t first, index_t count, index_t channel, Acc* row,
                  arena memory) const noexcept {
    using wide = wide_of<typename Op::number>;
    constexpr bool complex = kernel_of_modes<Op>::complex;
    const index_t slot = st.initial.present() ? core::checker::slot_of(st.initial_slots, at.number) : -1;
    if (slot < 0) return;
    const Op& op = kernel.op;
    const index_t N = op.A.extent(1);
    const auto plan = kernel_plan::of(count, N, complex ? 2 : 1);
    const auto s = kernel_scratch<Acc>::carve(plan, memory);
    Acc* left = memory.take<Acc>(count);
    kernel_modes(op, channel, s);
    for (index_t n = 0; n < N; ++n) {
      const auto& h = st.initial(slot, channel, n);
      wide c(op.C(channel, n));
      if constexpr (complex) {
        c *= 2.0 * wide(h) * power(wide(s.a[n], s.a[N + n]), first + 1);
        s.c[n] = c.real();
        s.c[N + n] = c.imag();
      } else {
        s.c[n] = c * static_cast<double>(static_cast<Acc>(h)) * power(s.a[n], first + 1);
      }
    }
    modes_kernel<complex, Acc>::run(plan, s, view<Acc, 1>(left, {count}));
    for (index_t t = 0; t < count; ++t) row[t] += left[t];
  }

 private:
  template <class X>
  static X power(X base, index_t exponent) noexcept {
    X all(1);
    for (; exponent > 0; exponent /= 2, base *= base) {
      if (exponent % 2 == 1) all *= base;
    }
    return all;
  }
};

/// With taps for the longest sequence and no more: modes that grow may overflow beyond.
template <class Op>
convolution_problem<typename Op::scalar> convolution_of_modes(const Op& op,
                                                              const view<typename Op::scalar, 3>& y) noexcept {
  convolution_problem<typename Op::scalar> p{
      .u = op.u, .y = y, .skip = op.D, .lengths = op.lengths, .offsets = op.offsets};
  p.taps = p.longest();
  return p;
}
/// The same for as many tokens or fewer, packed or not.
template <class Op>
convolution_problem<typename Op::scalar> convolution_of_row(const Op& op) noexcept {
  return {.u = op.u, .taps = op.u.extent(1), .skip = op.D};
}

/// Vector operations of a token of a channel in the sweep.
template <class Acc, class Op>
double modes_token_cost(const Op& op) noexcept {
  constexpr bool complex = is_complex<typename Op::number>;
  const double units = static_cast<double>(units_of<complex, Acc>((complex ? 2 : 1) * op.A.extent(1)));
  return (complex ? 5.5 : 2.1) * units + 3.4;  // constants: from bench/state_space.cpp
}

/// The convolution, by transforms. A kernel costs as much as several of them: it is made once for all sequences, unless
/// there are few channels.
template <class Acc, class Op>
convolution_cut cut_of_modes(const Op& op, const convolution_problem<typename Op::scalar>& p) noexcept {
  constexpr index_t enough = 16;  // tasks
  convolution_cut cut = convolution_cut_of<Acc>(p, form::convolution);
  const index_t sequences = std::max<index_t>(input_sequences(op), 1);
  const index_t groups = (op.u.extent(2) + cut.group - 1) / cut.group;
  cut.share = std::clamp<index_t>(sequences * groups / enough, cut.share, sequences);
  cut.keeps = cut.keeps || cut.share > 1;
  return cut;
}

/// Scratch of one worker for it, of these tokens or fewer.
template <class Acc, class Op>
std::size_t convolution_bytes_of_modes(const Op& op) noexcept {
  const auto p = convolution_of_row(op);
  const index_t past = convolution_cut_of<Acc>(p, form::convolution).past;
  std::size_t most = 0;
  for_transform_sizes<Acc>(op.u.extent(1), past, [&](index_t n) noexcept {
    convolution_cut cut = convolution_cut_of<Acc>(p, form::convolution, n);
    cut.keeps = true;
    most = std::max(most, convolution_bytes<Acc>(p, cut, kernel_of_modes(op, p.taps)));
  });
  return most;
}

/// Tables for it, of these tokens or fewer: the kernel is as long as the sequence.
template <class Acc, class Op>
void make_convolution_tables_of_modes(const Op& op, context& ctx) {
  using transform = polynomial_transform<Acc>;
  const auto cut = convolution_cut_of<Acc>(convolution_of_row(op), form::convolution);
  const index_t most = transform::size_for(cut.past + std::max(op.u.extent(1), simd::width<Acc>));
  for (index_t n = transform::size_for(simd::width<Acc>); n <= most; n *= 2) {
    ctx.cache<polynomial_transforms<Acc>>().make(n);
  }
}

/// Whether no mode grows: where one does, outputs by transforms are good to the rounding of the largest of them only.
/// Most rules keep a mode that fades, and no other is let in.
template <class Op>
bool modes_settle(const Op& op) noexcept {
  using enum discretisation;
  const bool kept = op.rule == generalised_bilinear ? op.alpha >= 0.5 : op.rule != none && op.rule != euler;
  for (index_t d = 0; !kept && d < op.A.extent(0); ++d) {
    for (index_t n = 0; n < op.A.extent(1); ++n) {
      constexpr double rounded = 1 + 4 * static_cast<double>(std::numeric_limits<typename Op::accum>::epsilon());
      if (!(std::abs(mode_of(op, d, n).A) <= rounded)) return false;
    }
  }
  return true;
}

/// Whether a convolution costs less than the sweep, in vector operations; a function of shapes and of what is asked
/// for, and of modes that grow. A final state and padding want the sweep in any case.
template <class Acc, class Op, class State>
bool convolution_is_faster(const Op& op, const State& st) noexcept {
  if (st.final.present() || op.lengths.present() || op.offsets.present()) return false;
  constexpr bool complex = is_complex<typename Op::number>;
  constexpr index_t least = 256;  // tokens
  const index_t L = op.u.extent(1), N = op.A.extent(1);
  if (L < least || N == 0) return false;
  const auto p = convolution_of_modes(op, {});
  const auto cut = cut_of_modes<Acc>(op, p);
  const double tokens = static_cast<double>(L), rows = static_cast<double>(std::max<index_t>(op.u.extent(0), 1));
  const double W = static_cast<double>(simd::width<Acc>), numbers = static_cast<double>((complex ? 2 : 1) * N);
  const double of_kernel = numbers * (0.75 * tokens / W + 110);  // constants: from bench/state_space.cpp
  const double transforms = convolution_costs<Acc>::transform(cut.size);
  const double blocks = std::ceil(tokens / static_cast<double>(cut.block));
  const double kernels = std::ceil(rows / static_cast<double>(cut.share));
  const double convolution =
      rows * (2 * blocks * transforms + (st.initial.present() ? of_kernel : 0)) + kernels * (transforms + of_kernel);
  return convolution < rows * tokens * modes_token_cost<Acc>(op) + 80 * numbers && modes_settle(op);
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

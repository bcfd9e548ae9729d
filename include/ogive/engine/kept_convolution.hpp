// L5: the kernels of a time-invariant operator, a channel each, as the convolutions of a `prepared` one keep them
// (ogive/ops/prepared.hpp): their values, of transforms of one size.
//
// An engine with panels to keep (ogive/engine/kept_panels.hpp) says with a type `kept<Op>`, made of an operator of
// which u has the sequences and channels, and of the tokens of the longest convolution,
//   taps()                       these tokens, 0 where nothing is kept
//   numbers()                    values to keep
//   bytes(op), make_tables(ctx)  scratch of one worker for what follows, and tables
//   compute(op, values, ctx)     the values; noexcept
//   pays(op, tokens)             whether a convolution of so many tokens costs less than the sweep, and no mode grows
//   run(op, y, values, ctx)      y from u; noexcept
#pragma once

#include <ogive/engine/convolution.hpp>
#include <ogive/engine/kept_panels.hpp>
#include <ogive/engine/verbs.hpp>

#include <algorithm>
#include <cmath>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

template <class Op>
class kept_channels {
  using T = typename Op::scalar;
  using Acc = accum_t<T>;

  /// Kernels whose values are there.
  struct values_of {
    const Acc* all;
    index_t size;
    const Acc* values(index_t channel) const noexcept { return all + channel * size; }
  };

 public:
  kept_channels() = default;
  kept_channels(const Op& op, index_t length, bool) noexcept : taps_(length), channels_(op.u.extent(2)) {
    if (length == 0) return;
    cut_ = convolution_cut_of<Acc>(problem(op, {}, length), form::convolution, 0, {.once = 0});
    cut_.keeps = false;
  }

  index_t taps() const noexcept { return taps_; }
  index_t numbers() const noexcept { return channels_ * cut_.size; }
  template <class Bound>
  std::size_t bytes(const Bound& op) const noexcept {
    return std::max(kernel_scratch_bytes(op, taps_),
                    convolution_bytes<Acc>(problem(op, {}, taps_), cut_, values_of{nullptr, cut_.size}));
  }
  void make_tables(context& ctx) const { make_convolution_tables<Acc>(cut_, ctx); }

  template <class Bound>
  void compute(const Bound& op, Acc* values, context& ctx) noexcept {
    if constexpr (requires { engine_for<Op>::settles(op); }) settles_ = engine_for<Op>::settles(op);
    kernel(prechecked, op, view<Acc, 2>(values, {channels_, taps_}, {cut_.size, 1}), ctx);
    auto p = problem(op, {}, taps_);
    p.skip = op.D;
    const auto& transform = ctx.cache<polynomial_transforms<Acc>>().at(cut_.size);
    const auto there = [](index_t, Acc*, arena) noexcept {};
    for (index_t d = 0; d < channels_; ++d) transform_taps(p, there, d, transform, values + d * cut_.size, arena());
  }

  template <class Bound>
  bool pays(const Bound& op, index_t tokens) const noexcept {
    if (!settles_) return false;
    const double blocks = std::ceil(static_cast<double>(tokens) / static_cast<double>(cut_.block));
    return 2 * blocks * convolution_costs<Acc>::transform(cut_.size) <
           static_cast<double>(tokens) * engine_for<Op>::template token_cost<Acc>(op);
  }

  template <class Bound>
  void run(const Bound& op, const view<T, 3>& y, const Acc* values, context& ctx) const noexcept {
    convolution_cut now = cut_;
    now.group = std::min(now.group, op.u.stride(2) == 1 ? simd::width<Acc> : index_t{4});
    auto p = problem(op, y, op.u.extent(1));
    p.u = op.u;
    convolve<Acc>(p, now, values_of{values, cut_.size}, ctx);
  }

 private:
  template <class Bound>
  convolution_problem<T> problem(const Bound& op, const view<T, 3>& y, index_t tokens) const noexcept {
    const view<const T, 3> shape_only(nullptr, {op.u.extent(0), tokens, op.u.extent(2)});
    return {.u = shape_only, .y = y, .taps = taps_};
  }

  index_t taps_ = 0, channels_ = 0;
  convolution_cut cut_{};
  bool settles_ = true;
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

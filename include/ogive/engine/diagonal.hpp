// L5: the diagonal engine: every operator whose state is one number, real or complex, per channel and mode.
//
//   h_t = a_t ⊙ h_{t-1} + b_t,   y_t = Re ⟨c_t, h_t⟩
//
// The decay differs per number of the state, so no chunk is a matrix product: the one form is the sweep over time, and
// its limit is the exponential, or memory where a channel has one number of state. The (B, L, D, N) states are never
// stored. Long sequences of few channels are swept in segments of time, in parallel where workers are idle.
#pragma once

#include <ogive/engine/diagonal_backward.hpp>
#include <ogive/engine/diagonal_scan.hpp>

#include <algorithm>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

template <class Acc>
std::size_t scratch_of(const diagonal_problem<Acc>& p) noexcept {
  arena counted;
  diagonal_scratch<Acc>::carve(p, counted);
  diagonal_carries<Acc>::carve(p, counted);
  return counted.used();
}

/// Tokens of a segment of time, 0 for no segments. Left to itself, a call has them where all channels are a task or
/// two; how many sequences there are, and how long they are, has no say, so a sequence keeps its bits in any company.
inline index_t segment_of(const options& how, verb asked, const diagonal_extents& n) noexcept {
  constexpr index_t usual = 2048, least = 32, few_channels = 32;
  const bool chosen = asked == verb::forward && how.form == form::automatic && n.channels <= few_channels;
  const index_t wished = how.time_split > 0 ? std::max(how.time_split, least) : chosen ? usual : 0;
  return asked == verb::step || (n.length - 1) / 2 < wished ? 0 : wished;
}

/// Every verb after the door.
template <verb Verb, class Op, class State>
void run_diagonal(const Op& op, const State& st, const view<typename Op::scalar, 3>& y, const options& how,
                  context& ctx) {
  using Acc = sweep_t<typename Op::scalar, real_of<typename State::storage_type>>;
  const diagonal_binding<Op> bound{&op, &y};
  const bool brief = Verb == verb::step || (Verb == verb::forward && how.form == form::automatic);
  diagonal_problem<Acc> p = describe_diagonal<Acc>(bound, st, brief, ctx.workers());
  p.segment = segment_of(how, Verb, p.n);
  const std::size_t bytes = scratch_of(p);
  ctx.reserve(static_cast<std::size_t>(ctx.workers()) * bytes);
  constexpr bool complex = is_complex<typename Op::number>;
  using whole = diagonal_task<Acc, simd::default_arch, complex>;
  using scan = diagonal_scan<Acc, simd::default_arch, complex>;
  run_over_time(
      ctx, p.tasks(), bytes, [&](index_t task) noexcept { return scan::segments(p, task); },
      [&](index_t task, arena memory) noexcept { whole::run(p, task, memory); },
      [&](index_t task, scan_part what, const time_shares& shares, index_t i, arena memory) noexcept {
        scan::run(p, task, what, shares, i, memory, ctx.scratch(0, bytes));
      });
}

template <class Op, class State>
status check_diagonal(const Op& op, const State& st, const view<typename Op::scalar, 3>& y,
                      const options& how) noexcept {
  core::checker ask(Op::name);
  check_diagonal_call(ask, op, st, how);
  if (!ask) return ask.result();
  const diagonal_extents n = op.extents();
  ask.extents("y", y, {n.batch, n.length, n.channels}, "[B, L, D]").output("y", y);
  check_apart(ask, st, "y", y, [&](const char* name, const auto& x) noexcept { op.check_written(ask, name, x); });
  return ask.result();
}

/// The diagonal engine's part in the verbs. `forward` is `step` for sequences of a few tokens, else `recurrent`.
struct diagonal_engine {
  static constexpr bool has_steps = true;
  static constexpr bool has_chunks = false;
  template <class Op>
  using output = view<typename Op::scalar, 3>;

  template <class Op, class Given>
  static auto own(Given& given) noexcept {
    return own_state<Op, 3>(given);
  }
  template <class Op, class State>
  static status check(const Op& op, const State& st, const output<Op>& y, const options& how) noexcept {
    return check_diagonal(op, st, y, how);
  }
  template <class Op>
  static std::size_t bytes(const Op& op, const options& how) noexcept {
    const output<Op> y;
    const diagonal_binding<Op> bound{&op, &y};
    const typename Op::default_state st{};
    const diagonal_extents n = op.extents();
    // Calls with fewer tokens count too, so that who has reserved for a prompt can step: one sequence, and as many as
    // there are tokens.
    const auto most = [&]<class Acc>(Acc) noexcept {
      diagonal_problem<Acc> p = describe_diagonal<Acc>(bound, st, true);
      p.segment = segment_of(how, verb::forward, n);
      std::size_t all = 0;
      for (const bool other : {false, true}) {  // brief, or swept in place
        for (const index_t sequences : {index_t{1}, n.batch * n.length}) {
          p.plan = plan_of<Acc>(op, sequences, other, other, 1);
          all = std::max(all, scratch_of(p));
        }
      }
      return all;
    };
    return std::max(most(accum_t<typename Op::scalar>{}), most(double{}));
  }
  template <verb Verb, class Op, class State>
  static void run(const Op& op, const State& st, const output<Op>& y, const options& how, context& ctx) {
    run_diagonal<Verb>(op, st, y, how, ctx);
  }

  template <class Op, class State, class StateGradient>
  static status check_backward(const Op& op, const State& st, const cotangent<output<Op>>& d_y,
                               const StateGradient& d_st, const gradient<Op>& d, const options& how) noexcept {
    return check_diagonal_backward(op, st, d_y, d_st, d, how);
  }
  template <class Op>
  static std::size_t backward_bytes(const Op& op, const options&) noexcept {
    return diagonal_backward_bytes(op);
  }
  template <class Op, class State, class StateGradient>
  static void backward(const Op& op, const State& st, const cotangent<output<Op>>& d_y, const StateGradient& d_st,
                       const gradient<Op>& d, const options& how, context& ctx) {
    run_diagonal_backward(op, st, d_y, d_st, d, how, ctx);
  }
};

}  // namespace detail

template <diagonal_operator Op>
struct engine_of<Op> {
  using type = detail::diagonal_engine;
};

}  // namespace OGIVE_ABI
}  // namespace ogive

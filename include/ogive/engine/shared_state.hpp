// L5: linear time-invariant systems whose channels share one state, read and written by matrices.
//
//   h_t = A̅ h_{t-1} + B̅ u_t,   y_t = Re(C h_t) + D u_t,   u ∈ R^M, y ∈ R^P
//
// with A̅ a real matrix, h ∈ R^N, or a complex diagonal, h ∈ C^N. Steps, pieces and whole sequences of the sweep agree
// to the bit. The same outputs are convolutions, y_p = Σ_m K_pm ∗ u_m + Re(C_p A̅^{t+1} h) + D_p u, with kernels that
// serve all sequences.
#pragma once

#include <ogive/engine/checks.hpp>
#include <ogive/engine/shared_state_backward.hpp>
#include <ogive/engine/shared_state_convolution.hpp>
#include <ogive/engine/tasks.hpp>
#include <ogive/engine/verbs.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// This engine's part in the verbs.
struct shared_state_engine : sweep_or_convolution<2> {
  template <class Op, class State>
  static status check(const Op& op, const State& st, const output<Op>& y, const options& how) noexcept {
    static_assert(is_complex<typename State::storage_type> == is_complex<typename Op::number>,
                  "the state is complex where the modes are complex, and only there");
    core::checker ask(Op::name);
    const index_t sequences = check_arguments(ask, op, how);
    if (!ask) return ask.result();
    const shared_state_extents n = op.extents();
    ask.extents("y", y, {n.batch, n.length, n.outputs}, "[B, L, P], B and L as u, P as C").output("y", y);
    ask.pools("initial", st.initial, "final", st.final, st.initial_slots, st.final_slots, sequences, {0, n.states},
              "[slots, N], N as C");
    check_apart(ask, st, "y", y, apart_from_fields(ask, op));
    return ask.result();
  }

  template <class Op>
  static std::size_t bytes(const Op& op, const options& how) noexcept {
    const auto most = [&]<class Acc>(Acc) noexcept {
      const std::size_t swept = shared_state_bytes<Acc>(op, op.extents());
      return how.form == form::recurrent ? swept : std::max(swept, shared_convolution_bytes<Acc>(op));
    };
    return std::max(most(typename Op::accum()), most(double()));
  }

  template <class Op>
  static void make_tables(const Op& op, const options& how, context& ctx) {
    using transform = polynomial_transform<typename Op::accum>;
    if (how.form == form::recurrent) return;
    for (index_t n = transform::least; n <= transform::size_for(2 * op.extents().length); n *= 2) {
      ctx.cache<polynomial_transforms<typename Op::accum>>().make(n);
    }
  }

  template <verb Verb, class Op, class State>
  static void run(const Op& op, const State& st, const output<Op>& y, const options& how, context& ctx) {
    using Acc = sweep_t<typename Op::scalar, real_of<typename State::storage_type>>;
    const bool asked = Verb == verb::convolution || (Verb == verb::forward && how.form == form::convolution);
    const bool free = Verb == verb::forward && how.form == form::automatic;
    if (y.present() && !op.u.empty() && (asked || (free && shared_convolution_pays<Acc>(op, st)))) {
      convolve<Acc>(op, st, y, ctx);
    } else {
      sweep<Acc>(op, st, y, shared_outputs::all, ctx);
    }
  }

  template <class Op, class State, class StateGradient>
  static status check_backward(const Op& op, const State& st, const cotangent<output<Op>>& d_y,
                               const StateGradient& d_st, const gradient<Op>& d, const options& how) noexcept {
    static_assert(is_complex<typename StateGradient::storage_type> == is_complex<typename Op::number>,
                  "the gradient of the state is complex where the state is, and only there");
    core::checker ask(Op::name);
    const index_t sequences = check_arguments(ask, op, how);
    if (!ask) return ask.result();
    const shared_state_extents n = op.extents();
    ask.pools("initial", st.initial, "final", view<typename State::storage_type, 2>(), st.initial_slots, {}, sequences,
              {0, n.states}, "[slots, N], N as C");
    ask.extents("d_y", d_y, {n.batch, n.length, n.outputs}, "[B, L, P], B and L as u, P as C");
    check_state_gradient(ask, d_st, shape<2>{sequences, n.states}, "[sequences, N]");
    check_gradients(ask, op, st, "d_y", d_y, d_st, d);
    return ask.result();
  }

  template <class Op>
  static std::size_t backward_bytes(const Op& op, const options&) noexcept {
    return std::max(shared_state_backward_bytes<typename Op::accum>(op), shared_state_backward_bytes<double>(op));
  }

  template <class Op, class State, class StateGradient>
  static void backward(const Op& op, const State& st, const cotangent<output<Op>>& d_y, const StateGradient& d_st,
                       const gradient<Op>& d, const options& how, context& ctx) {
    using Acc = sweep_t<typename Op::scalar, real_of<typename State::storage_type>>;
    const std::size_t bytes = shared_state_backward_bytes<Acc>(op);
    ctx.reserve(static_cast<std::size_t>(ctx.workers()) * bytes);
    const shared_backward_tasks<Acc, Op, State, StateGradient> all{
        op, st, d_y, d_st, d, op.wishes(d), how.accumulate, shared_state_plan::of(op)};
    all.run_all(bytes, ctx);
  }

  // Its part in `prepare`: the coefficients of one task serve all.

  template <class Op>
  using kept = kept_shared_kernels<Op>;
  template <class Op>
  static index_t inputs(const Op& op) noexcept {
    return op.input().extent(1);
  }
  template <class Op>
  static index_t outputs(const Op& op) noexcept {
    return op.output().extent(0);
  }
  template <class Op>
  static shape<2> state_shape(const Op& op, index_t slots) noexcept {
    return {slots, op.input().extent(0)};
  }
  template <class Op>
  static std::size_t panel_bytes(const Op& op) noexcept {
    return panels<Op>::coefficient_bytes(op.extents(), is_complex<typename Op::number>);
  }
  template <class Op>
  static std::size_t pack_bytes(const Op&) noexcept {
    return 0;
  }
  template <class Op>
  static void pack(const with_panels<Op>& op, arena) noexcept {
    arena nothing;  // that a call works in
    pack_shared_state(op, packed_panels<typename Op::accum>(op, op.extents(), nothing));
  }

 private:
  template <class Op>
  using panels = shared_state_panels<typename Op::accum>;

  template <class Acc, class Op, class State>
  static void sweep(const Op& op, const State& st, const output<Op>& y, shared_outputs wanted, context& ctx) {
    const shared_state_plan plan = shared_state_plan::of(op);
    const std::size_t bytes = shared_state_bytes<Acc>(op, op.extents());
    ctx.reserve(static_cast<std::size_t>(ctx.workers()) * bytes);
    run_tasks(ctx, plan.tasks, bytes, [&](index_t task, arena memory) noexcept {
      run_shared_task<Acc>(op, st, y, wanted, plan, task, memory);
    });
  }

  /// The final state, and rows of padding, which read it, are the sweep's.
  template <class Acc, class Op, class State>
  static void convolve(const Op& op, const State& st, const output<Op>& y, context& ctx) {
    using task_type = shared_convolution_task<Acc, Op, State>;
    const convolution_problem<typename Op::scalar> p{.u = op.u, .lengths = op.lengths, .offsets = op.offsets};
    const auto plan = shared_convolution_plan::of<Acc>(op.extents(), p.longest(), p.sequences());
    const std::size_t bytes = task_type::bytes(op, plan);
    ctx.cache<polynomial_transforms<Acc>>().make(plan.size);
    ctx.reserve(static_cast<std::size_t>(ctx.workers()) * bytes);
    const auto& transform = ctx.cache<polynomial_transforms<Acc>>().at(plan.size);
    const typename task_type::arguments all{op, st, y};
    run_tasks(ctx, plan.blocks * plan.shares, bytes,
              [&](index_t task, arena memory) noexcept { task_type::run(all, plan, transform, task, memory); });
    if (st.final.present() || op.lengths.present()) sweep<Acc>(op, st, y, shared_outputs::of_padding, ctx);
  }

  /// Whatever is no state and no output. Gives the number of sequences.
  template <class Op>
  static index_t check_arguments(core::checker& ask, const Op& op, const options& how) noexcept {
    op.check_fields(ask);
    check_sequences(ask, op, how);
    return ask ? input_sequences(op) : 0;
  }
};

}  // namespace detail

template <shared_state_operator Op>
struct engine_of<Op> {
  using type = detail::shared_state_engine;
};

/// Whether K fits an operator, and the operator makes sense.
template <shared_state_operator Op>
status check_kernel(const Op& op, const view<typename Op::accum, 3>& K) noexcept {
  core::checker ask(Op::name);
  op.check_fields(ask);
  const shared_state_extents n = op.extents();
  ask.given("K", K).extents("K", K, {n.outputs, n.inputs, -1}, "[P, M, L], P as C, M as u").output("K", K);
  detail::apart_from_fields(ask, op)("K", K);
  return ask.result();
}

/// Scratch, in bytes, that a kernel of this length needs for `workers` threads.
template <shared_state_operator Op>
std::size_t kernel_scratch_bytes(const Op& op, index_t length, int workers = 1) noexcept {
  return detail::shared_kernel_bytes(op, length) * static_cast<std::size_t>(std::max(workers, 1));
}

/// The convolution that an operator is: K [P, M, L], K_l = C A̅ˡ B̅ (of modes its real part, as often as it counts),
/// without D: y_t = Σ_{l ≤ t} K_l u_{t−l} + D u_t from a state of 0. Lengths, offsets and the numbers in u have no part
/// in it. N multiply-adds per element, for each of two planes where A̅ is complex.
template <shared_state_operator Op>
void kernel(prechecked_t, const Op& op, const view<typename Op::accum, 3>& K,
            context& ctx = default_context()) noexcept {
  const auto plan = detail::shared_convolution_plan::of<typename Op::accum>(op.extents(), K.extent(2), 1);
  detail::run_tasks(ctx, plan.blocks, kernel_scratch_bytes(op, K.extent(2)),
                    [&](index_t block, arena memory) noexcept { detail::run_kernel_task(op, K, block, memory); });
}
template <shared_state_operator Op>
void kernel(const Op& op, const view<typename Op::accum, 3>& K, context& ctx = default_context()) {
  require(check_kernel(op, K));
  ctx.reserve(kernel_scratch_bytes(op, K.extent(2), ctx.workers()));
  kernel(prechecked, op, K, ctx);
}

}  // namespace OGIVE_ABI
}  // namespace ogive

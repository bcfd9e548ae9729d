// L5: linear time-invariant systems whose channels share one state, read and written by matrices.
//
//   h_t = A̅ h_{t-1} + B̅ u_t,   y_t = Re(C h_t) + D u_t,   u ∈ R^M, y ∈ R^P
//
// with A̅ a real matrix, h ∈ R^N, or a complex diagonal, h ∈ C^N. Steps, pieces and whole sequences agree to the bit.
#pragma once

#include <ogive/engine/checks.hpp>
#include <ogive/engine/shared_state_backward.hpp>
#include <ogive/engine/tasks.hpp>
#include <ogive/engine/verbs.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// This engine's part in the verbs. Every verb is the one sweep.
struct shared_state_engine {
  static constexpr bool has_steps = true;
  static constexpr bool has_chunks = false;
  template <class Op>
  using output = view<typename Op::scalar, 3>;

  template <class Op, class Given>
  static auto own(Given& given) noexcept {
    return own_state<Op, 2>(given);
  }

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
  static std::size_t bytes(const Op& op, const options&) noexcept {
    return std::max(shared_state_bytes<typename Op::accum>(op, op.extents()),
                    shared_state_bytes<double>(op, op.extents()));
  }

  template <verb, class Op, class State>
  static void run(const Op& op, const State& st, const output<Op>& y, const options&, context& ctx) {
    using Acc = sweep_t<typename Op::scalar, real_of<typename State::storage_type>>;
    const shared_state_plan plan = shared_state_plan::of(op);
    const std::size_t bytes = shared_state_bytes<Acc>(op, op.extents());
    ctx.reserve(static_cast<std::size_t>(ctx.workers()) * bytes);
    run_tasks(ctx, plan.tasks, bytes,
              [&](index_t task, arena memory) noexcept { run_shared_task<Acc>(op, st, y, plan, task, memory); });
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
    op.for_gradients(d, [&](const char* field, const auto& x, const auto& of) noexcept {
      if (ask && x.present() && !of.present()) ask.refuse(field) << "is asked for, but what it belongs to is absent";
      ask.extents(field, x, of.extents(), "the shape of what it belongs to").output(field, x);
    });
    const auto gradients = [&](const auto& f) noexcept {
      op.for_gradients(d, [&](const char* field, const auto& x, const auto&) noexcept { f(field, x); });
    };
    check_gradients_apart(ask, st, "d_y", d_y, d_st, gradients, apart_from_fields(ask, op));
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

  /// Whatever is no state and no output. Gives the number of sequences.
  template <class Op>
  static index_t check_arguments(core::checker& ask, const Op& op, const options& how) noexcept {
    ask.chunk(how);
    if (ask && how.form != form::automatic && how.form != form::recurrent) {
      ask.refuse("form", status_code::value) << "has no other choice than automatic or recurrent";
    }
    op.check_fields(ask);
    if (ask) ask.offsets(op.offsets, op.extents().batch, op.extents().length);
    if (!ask) return 0;
    const index_t sequences = shared_state_sequences(op);
    ask.lengths(op.lengths, sequences);
    return sequences;
  }
  template <class Op>
  static auto apart_from_fields(core::checker& ask, const Op& op) noexcept {
    return [&](const char* name, const auto& x) noexcept {
      op.fields([&](const char* field, const auto& y) noexcept { ask.apart(name, x, field, y); });
    };
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
  op.fields([&](const char* field, const auto& x) noexcept { ask.apart("K", K, field, x); });
  return ask.result();
}

/// Scratch, in bytes, that a kernel of this length needs for `workers` threads.
template <shared_state_operator Op>
std::size_t kernel_scratch_bytes(const Op& op, index_t length, int workers = 1) noexcept {
  shared_state_extents n = op.extents();
  n.length = length;
  return detail::shared_state_bytes<typename Op::accum>(op, n) * static_cast<std::size_t>(std::max(workers, 1));
}

/// The convolution that an operator is: K [P, M, L], K_l = C A̅ˡ B̅ (of modes its real part, as often as it counts),
/// without D: y_t = Σ_{l ≤ t} K_l u_{t−l} + D u_t from a state of 0. Lengths, offsets and the numbers in u have no part
/// in it.
template <shared_state_operator Op>
void kernel(prechecked_t, const Op& op, const view<typename Op::accum, 3>& K,
            context& ctx = default_context()) noexcept {
  shared_state_extents n = op.extents();
  n.length = K.extent(2);
  detail::run_tasks(ctx, n.inputs, kernel_scratch_bytes(op, n.length),
                    [&](index_t m, arena memory) noexcept { detail::run_kernel_task(op, n, K, m, memory); });
}
template <shared_state_operator Op>
void kernel(const Op& op, const view<typename Op::accum, 3>& K, context& ctx = default_context()) {
  require(check_kernel(op, K));
  ctx.reserve(kernel_scratch_bytes(op, K.extent(2), ctx.workers()));
  kernel(prechecked, op, K, ctx);
}

}  // namespace OGIVE_ABI
}  // namespace ogive

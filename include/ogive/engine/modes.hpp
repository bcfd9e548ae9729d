// L5: the engine of fixed modes: diagonal systems that do not depend on the token, a channel each.
//
//   h_t = a ⊙ h_{t-1} + b u_t,   y_t = Re Σ_n c_n h_{t,n} + D u_t,   K_l = Re Σ_n c_n a_nˡ b_n
//
// A time-invariant system is a convolution, y = K ∗ u + D u and what the initial state leaves, C a^{t+1} h. Here are
// the sweep over time, which holds h in registers, and the kernel K, whose powers are products of two tables.
#pragma once

#include <ogive/engine/checks.hpp>
#include <ogive/engine/kept_convolution.hpp>
#include <ogive/engine/modes_backward.hpp>
#include <ogive/engine/modes_convolution.hpp>
#include <ogive/engine/tasks.hpp>
#include <ogive/engine/verbs.hpp>

#include <algorithm>
#include <cmath>

namespace ogive {
inline namespace OGIVE_ABI {

/// An operator of the engine: an aggregate of views u [B, L, D], A, B and C [D, N], dt [D] and D [D], with `rule`,
/// `alpha`, `lengths` and `offsets`, the types and names that verbs want, and fields(f), which calls f(name, view) for
/// each view that is read.
template <class Op>
concept modes_operator = requires(const Op& op) {
  typename Op::scalar;
  typename Op::number;
  typename Op::default_state;
  op.u, op.A, op.B, op.C, op.dt, op.D, op.rule, op.alpha, op.lengths, op.offsets;
  requires std::remove_cvref_t<decltype(op.A)>::rank == 2;  // modes of each channel; of rank 1 all channels share them
};

namespace detail {

template <class Op>
diagonal_extents modes_extents(const Op& op) noexcept {
  return {.batch = op.u.extent(0), .length = op.u.extent(1), .channels = op.u.extent(2), .states = op.A.extent(1)};
}
template <class Op>
inline constexpr index_t parts_of = is_complex<typename Op::number> ? 2 : 1;

/// The system: what a kernel needs. Numbers are looked at: a growing mode or a step that is none is a mistake nearly
/// always, and its kernel and state overflow.
template <class Op>
void check_system(core::checker& ask, const Op& op) noexcept {
  const index_t d = op.A.extent(0), n = op.A.extent(1);
  const bool steps = op.rule == discretisation::none;
  ask.given("A", op.A).given("B", op.B).given("C", op.C);
  if (!steps) ask.given("dt", op.dt);
  ask.extents("A", op.A, {-1, -1}, "[D, N]").extents("B", op.B, {d, n}, "[D, N] as A");
  ask.extents("C", op.C, {d, n}, "[D, N] as A").extents("dt", op.dt, {d}, "[D], D as A");
  ask.extents("D", op.D, {d}, "[D], D as A");
  if (ask && op.rule == discretisation::generalised_bilinear && !(op.alpha >= 0 && op.alpha <= 1)) {
    ask.refuse("alpha", status_code::value) << "is outside [0, 1]";
  }
  for (index_t i = 0; ask && !steps && i < d; ++i) {
    if (const auto dt = static_cast<double>(op.dt(i)); !(dt > 0 && std::isfinite(dt))) {
      ask.refuse("dt", status_code::value) << "of channel " << i << " is not positive and finite";
    }
    for (index_t j = 0; ask && j < n; ++j) {
      if (std::real(op.A(i, j)) > 0) {
        ask.refuse("A", status_code::value) << "of channel " << i << ", mode " << j
                                            << " has a positive real part, so that its mode grows without end; "
                                               "negate it, or discretise it and say rule = none";
      }
    }
  }
}

template <class Op>
void check_modes_fields(core::checker& ask, const Op& op, const options& how) noexcept {
  ask.given("u", op.u).extents("u", op.u, {-1, -1, -1}, "[B, L, D]");
  ask.given("A", op.A).extents("A", op.A, {op.u.extent(2), -1}, "[D, N], D as u");
  check_system(ask, op);
  check_sequences(ask, op, how);
}

struct modes_engine : sweep_or_convolution<3> {
  template <class Op, class State>
  static status check(const Op& op, const State& st, const output<Op>& y, const options& how) noexcept {
    static_assert(is_complex<typename State::storage_type> == is_complex<typename Op::number>,
                  "the state is complex where A is complex, and only there");
    core::checker ask(Op::name);
    check_modes_fields(ask, op, how);
    if (!ask) return ask.result();
    ask.extents("y", y, op.u.extents(), "[B, L, D] as u").output("y", y);
    ask.pools("initial", st.initial, "final", st.final, st.initial_slots, st.final_slots, input_sequences(op),
              {0, op.A.extent(0), op.A.extent(1)}, "[slots, D, N]");
    check_apart(ask, st, "y", y, apart_from_fields(ask, op));
    return ask.result();
  }

  template <class Op>
  static std::size_t bytes(const Op& op, const options&) noexcept {
    const auto most = [&]<class Acc>(Acc) noexcept {
      std::size_t all = convolution_bytes_of_modes<Acc>(op);
      diagonal_extents n = modes_extents(op);
      for (const index_t length : {n.length, std::min(n.length, modes_plan::few)}) {  // fewer tokens count too
        n.length = length;
        arena counted;
        modes_scratch<Acc>::carve(modes_plan::of<Acc, is_complex<typename Op::number>>(n, 1), counted);
        all = std::max(all, counted.used());
      }
      return all;
    };
    return std::max(most(accum_t<typename Op::scalar>{}), most(double{}));
  }

  template <class Op>
  static void make_tables(const Op& op, const options&, context& ctx) {
    make_convolution_tables_of_modes<accum_t<typename Op::scalar>>(op, ctx);
  }

  template <verb Verb, class Op, class State>
  static void run(const Op& op, const State& st, const output<Op>& y, const options& how, context& ctx) {
    using Acc = sweep_t<typename Op::scalar, real_of<typename State::storage_type>>;
    const bool asked = Verb == verb::convolution || (Verb == verb::forward && how.form == form::convolution);
    const bool free = Verb == verb::forward && how.form == form::automatic;
    if (asked || (free && convolution_is_faster<Acc>(op, st))) {
      convolve_modes<Acc>(op, st, y, ctx);
    } else {
      sweep<Acc>(op, st, y, modes_outputs::all, ctx);
    }
  }

  template <class Op, class State, class StateGradient>
  static status check_backward(const Op& op, const State& st, const cotangent<output<Op>>& d_y,
                               const StateGradient& d_st, const gradient<Op>& d, const options& how) noexcept {
    static_assert(is_complex<typename StateGradient::storage_type> == is_complex<typename Op::number>,
                  "the gradient of the state is complex where the state is, and only there");
    using S = typename State::storage_type;
    core::checker ask(Op::name);
    check_modes_fields(ask, op, how);
    if (!ask) return ask.result();
    const index_t n = input_sequences(op), D = op.A.extent(0), N = op.A.extent(1);
    ask.pools("initial", st.initial, "final", view<S, 3>(), st.initial_slots, {}, n, {0, D, N}, "[slots, D, N]");
    ask.extents("d_y", d_y, op.u.extents(), "[B, L, D] as u").extents("d.u", d.u, op.u.extents(), "[B, L, D] as u");
    ask.extents("d.A", d.A, {D, N}, "[D, N] as A").extents("d.B", d.B, {D, N}, "[D, N] as A");
    ask.extents("d.C", d.C, {D, N}, "[D, N] as A").extents("d.dt", d.dt, {D}, "[D], D as A");
    ask.extents("d.D", d.D, {D}, "[D], D as A");
    const auto gradients = [&](const auto& f) noexcept {
      f("d.u", d.u), f("d.A", d.A), f("d.B", d.B), f("d.C", d.C), f("d.dt", d.dt), f("d.D", d.D);
    };
    gradients([&](const char* field, const auto& x) noexcept { ask.output(field, x); });
    check_state_gradient(ask, d_st, shape<3>{n, D, N}, "[sequences, D, N]");
    check_gradients_apart(ask, st, "d_y", d_y, d_st, gradients, apart_from_fields(ask, op));
    return ask.result();
  }

  template <class Op>
  static std::size_t backward_bytes(const Op& op, const options&) noexcept {
    const auto of = [&]<class Acc>(Acc) noexcept {
      arena counted;
      const auto plan = modes_backward_plan<Acc, is_complex<typename Op::number>>(modes_extents(op), 1);
      modes_backward_scratch<Acc>::carve(plan, op.u.extent(1), counted);
      return counted.used();
    };
    return std::max(of(accum_t<typename Op::scalar>{}), of(double{}));
  }

  template <class Op, class State, class StateGradient>
  static void backward(const Op& op, const State& st, const cotangent<output<Op>>& d_y, const StateGradient& d_st,
                       const gradient<Op>& d, const options& how, context& ctx) {
    using Acc = sweep_t<typename Op::scalar, real_of<typename State::storage_type>>;
    using task = modes_backward_task<Acc, Op, State, StateGradient>;
    const auto plan = modes_backward_plan<Acc, is_complex<typename Op::number>>(modes_extents(op), input_sequences(op));
    const std::size_t bytes = backward_bytes(op, how);
    ctx.reserve(static_cast<std::size_t>(ctx.workers()) * bytes);
    const typename task::arguments of{op, st, d_y, d_st, d, how.accumulate};
    run_tasks(ctx, plan.blocks, bytes,
              [&](index_t block, arena memory) noexcept { task::run(of, plan, block, memory); });
  }

  // Its part in `prepare`.

  template <class Op>
  using kept = kept_channels<Op>;
  template <class Op>
  static index_t inputs(const Op& op) noexcept {
    return op.A.extent(0);
  }
  template <class Op>
  static index_t outputs(const Op& op) noexcept {
    return op.A.extent(0);
  }
  template <class Op>
  static shape<3> state_shape(const Op& op, index_t slots) noexcept {
    return {slots, op.A.extent(0), op.A.extent(1)};
  }
  template <class Op>
  static std::size_t panel_bytes(const Op& op) noexcept {
    return static_cast<std::size_t>(op.A.extent(0) * row_numbers(op)) * sizeof(accum_t<typename Op::scalar>);
  }
  template <class Op>
  static std::size_t pack_bytes(const Op& op) noexcept {
    arena counted;
    counted.take<accum_t<typename Op::scalar>>(row_numbers(op));
    return counted.used();
  }
  template <class Op>
  static void pack(const with_panels<Op>& op, arena memory) noexcept {
    using Acc = accum_t<typename Op::scalar>;
    const auto plan = modes_plan::of<Acc, is_complex<typename Op::number>>(modes_extents(op), 1);
    const index_t row = row_numbers(op);
    Acc *numbers = memory.take<Acc>(row), *to = reinterpret_cast<Acc*>(op.panels);
    for (index_t d = 0; d < op.A.extent(0); ++d) pack_modes(op, d, plan, numbers, to + d * row);
  }
  /// Vector operations of the sweep for a token of a channel.
  template <class Acc, class Op>
  static double token_cost(const Op& op) noexcept {
    return modes_token_cost<Acc>(op);
  }
  template <class Op>
  static bool settles(const Op& op) noexcept {
    return modes_settle(op);
  }

 private:
  /// Of a channel's row of packed_modes.
  template <class Op>
  static index_t row_numbers(const Op& op) noexcept {
    using Acc = accum_t<typename Op::scalar>;
    constexpr bool complex = is_complex<typename Op::number>;
    return 3 * units_of<complex, Acc>((complex ? 2 : 1) * op.A.extent(1)) * unit<complex, Acc>;
  }

  template <class Acc, class Op, class State>
  static void sweep(const Op& op, const State& st, const output<Op>& y, modes_outputs wanted, context& ctx) {
    constexpr bool complex = is_complex<typename Op::number>;
    const auto plan = modes_plan::of<Acc, complex>(modes_extents(op), input_sequences(op));
    arena counted;
    modes_scratch<Acc>::carve(plan, counted);
    ctx.reserve(static_cast<std::size_t>(ctx.workers()) * counted.used());
    run_tasks(ctx, plan.tasks(), counted.used(), [&](index_t task, arena memory) noexcept {
      modes_task<Acc, Op, State>::run(op, st, y, plan, wanted, task, memory);
    });
  }

  /// The final state, and rows of padding, which read it, are the sweep's.
  template <class Acc, class Op, class State>
  static void convolve_modes(const Op& op, const State& st, const output<Op>& y, context& ctx) {
    if (y.present()) {
      const auto p = convolution_of_modes(op, y);
      const kernel_of_modes kernel(op, p.taps);
      const convolution_cut cut = cut_of_modes<Acc>(op, p);
      make_convolution_tables<Acc>(cut, ctx);
      ctx.reserve(static_cast<std::size_t>(ctx.workers()) * convolution_bytes<Acc>(p, cut, kernel));
      convolve<Acc>(p, cut, kernel, ctx, free_response<Op, State>{kernel, st});
    }
    if (st.final.present() || op.lengths.present()) sweep<Acc>(op, st, y, modes_outputs::of_padding, ctx);
  }
};

}  // namespace detail

template <modes_operator Op>
struct engine_of<Op> {
  using type = detail::modes_engine;
};

/// Whether the arguments of `kernel` fit together.
template <modes_operator Op>
status check_kernel(const Op& op, const view<accum_t<typename Op::scalar>, 2>& K) noexcept {
  core::checker ask(Op::name);
  detail::check_system(ask, op);
  ask.given("K", K).extents("K", K, {op.A.extent(0), -1}, "[D, L], D as A").output("K", K);
  detail::apart_from_fields(ask, op)("K", K);
  return ask.result();
}

/// Scratch, in bytes, that a kernel of this length needs for `workers` threads.
template <modes_operator Op>
std::size_t kernel_scratch_bytes(const Op& op, index_t length, int workers = 1) noexcept {
  arena counted;
  detail::kernel_scratch<accum_t<typename Op::scalar>>::carve(
      detail::kernel_plan::of(length, op.A.extent(1), detail::parts_of<Op>), counted);
  return counted.used() * static_cast<std::size_t>(std::max(workers, 1));
}

/// K [D, L], K_l = 2 Re Σ_n C_n Ā_nˡ B̄_n, the first L outputs of a unit impulse but for D: two multiply-adds per mode
/// and element. u is not looked at.
template <modes_operator Op>
void kernel(prechecked_t, const Op& op, const view<accum_t<typename Op::scalar>, 2>& K,
            context& ctx = default_context()) noexcept {
  using Acc = accum_t<typename Op::scalar>;
  constexpr bool complex = detail::is_complex<typename Op::number>;
  const auto plan = detail::kernel_plan::of(K.extent(1), op.A.extent(1), detail::parts_of<Op>);
  const std::size_t bytes = kernel_scratch_bytes(op, K.extent(1));
  ctx.reserve(static_cast<std::size_t>(ctx.workers()) * bytes);
  detail::run_tasks(ctx, op.A.extent(0), bytes, [&](index_t d, arena memory) noexcept {
    const auto s = detail::kernel_scratch<Acc>::carve(plan, memory);
    detail::kernel_modes(op, d, s);
    detail::modes_kernel<complex, Acc>::run(plan, s, K[d]);
  });
}
template <modes_operator Op>
void kernel(const Op& op, const view<accum_t<typename Op::scalar>, 2>& K, context& ctx = default_context()) {
  require(check_kernel(op, K));
  ctx.reserve(kernel_scratch_bytes(op, K.extent(1), ctx.workers()));
  kernel(prechecked, op, K, ctx);
}

}  // namespace OGIVE_ABI
}  // namespace ogive

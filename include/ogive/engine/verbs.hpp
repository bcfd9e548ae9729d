// L5: the verbs, written once. Operator, state, output, options, context: learn one, know all.
//
// An engine tells how its operators take part by specialising engine_of for them; its type has
//   output<Op>                          the view that is written
//   has_steps, has_chunks               which verbs exist besides check and forward; has_convolution, if there, too
//   own<Op>(given)                      what the caller gave as the state, as the operator's own state struct
//   check(op, st, o, how)               whether the arguments fit; noexcept
//   bytes(op, how)                      scratch of one worker, for any verb and any storage of the state, for as many
//                                       tokens or fewer; noexcept
//   run<Verb>(op, st, o, how, ctx)      everything after the door
//   make_tables(op, how, ctx)           where it has tables: puts what its verbs want into the context's cache
// and where it has gradients, for operators with the types `gradient` and `default_state_gradient`,
//   check_backward(op, st, d_o, d_st, d, how), backward_bytes(op, how), backward(op, st, d_o, d_st, d, how, ctx)
// and where a forward can keep states for it,
//   forward(op, st, o, how, ctx, kept), check_checkpoints(op, st, how, kept), and backward(…, ctx, &kept)
#pragma once

#include <ogive/core/checkpoints.hpp>
#include <ogive/core/context.hpp>
#include <ogive/core/options.hpp>

#include <algorithm>

namespace ogive {
inline namespace OGIVE_ABI {

template <class Op>
struct engine_of;

template <class Op>
using engine_for = typename engine_of<std::remove_const_t<Op>>::type;

namespace detail {

enum class verb { step, recurrent, chunked, convolution, forward };

template <class Op>
concept has_engine = requires {
  typename engine_of<Op>::type;
};
template <class Op>
concept has_steps = has_engine<Op> && engine_for<Op>::has_steps;
template <class Op>
concept has_chunks = has_engine<Op> && engine_for<Op>::has_chunks;
template <class Op>
concept has_convolution = has_engine<Op> && requires {
  requires engine_for<Op>::has_convolution;
};

/// The verb for callers that have checked.
template <verb Verb, class Op, class State, class Output>
void run_checked(const Op& op, State& st, const Output& o, const options& how, context& ctx) noexcept {
  engine_for<Op>::template run<Verb>(op, engine_for<Op>::template own<Op>(st), o, how, ctx);
}

/// The verb with its door.
template <verb Verb, class Op, class State, class Output>
void check_and_run(const Op& op, State& st, const Output& o, const options& how, context& ctx) {
  const auto own = engine_for<Op>::template own<Op>(st);
  require(engine_for<Op>::check(op, own, o, how));
  engine_for<Op>::template run<Verb>(op, own, o, how, ctx);
}

/// What a verb got as its state, as a state struct: a plain pool means in place.
template <class Op, std::size_t Rank, class Given>
auto own_state(Given& given) noexcept {
  if constexpr (requires { typename Given::storage_type; }) {
    return given;
  } else {
    const view pool = [&] {
      if constexpr (requires { given.all(); }) {
        return given.all();
      } else {
        return given;
      }
    }();
    using S = typename decltype(pool)::value_type;
    static_assert(
        requires(view<S, Rank> written) { written = pool; },
        "a plain pool given as the state is read and written: it must be a mutable view of the state's rank");
    return typename Op::template state_of<S>{.initial = pool, .final = pool};
  }
}

/// How engines begin whose operators, u [B, L, ·] to y [B, L, ·], are a sweep over time or a convolution.
template <std::size_t StateRank>
struct sweep_or_convolution {
  static constexpr bool has_steps = true;
  static constexpr bool has_chunks = false;
  static constexpr bool has_convolution = true;
  template <class Op>
  using output = view<typename Op::scalar, 3>;

  template <class Op, class Given>
  static auto own(Given& given) noexcept {
    return own_state<Op, StateRank>(given);
  }
};

/// Who carries the gradients: the rules of a layer, or the operator's engine.
template <class Op>
struct gradient_rules {
  using type = engine_for<Op>;
};
template <class Op>
requires requires { typename Op::rules; }
struct gradient_rules<Op> {
  using type = typename Op::rules;
};
template <class Op>
using gradients_of = typename gradient_rules<Op>::type;

template <class Op>
concept has_gradient = has_engine<Op> && requires {
  typename Op::gradient;
  typename Op::default_state_gradient;
};

template <class Op>
concept keeps_checkpoints = has_gradient<Op> &&
    requires(const Op& op, const typename Op::default_state& st, const checkpoints& kept) {
  gradients_of<Op>::check_checkpoints(op, st, options(), kept);
};

}  // namespace detail

/// The type of an operator's outputs.
template <class Op>
using output_of = typename engine_for<Op>::template output<Op>;

/// The gradients of an operator or a layer: one mutable view per field, in the accumulation type where sums over tokens
/// are kept. An absent one is not wanted and costs nothing.
template <class Op>
using gradient = typename Op::gradient;

/// What `backward` is given of the outputs: the derivatives of a scalar by them.
template <class Output>
using cotangent = view<const typename Output::element_type, Output::rank>;

/// Whether the arguments fit together: nothing is read from the tensors or written. Every other verb asks this first
/// and throws what it says; after it has passed, the `prechecked` twins never throw.
template <detail::has_engine Op, class State = typename Op::default_state>
status check(const Op& op, State&& st, const output_of<Op>& o, const options& how = {}) noexcept {
  return engine_for<Op>::check(op, engine_for<Op>::template own<Op>(st), o, how);
}

/// Scratch, in bytes, that any verb of this operator needs for `workers` threads, whatever the state's storage; also on
/// fewer tokens, so that what a prompt needs is enough for the steps after it.
template <detail::has_engine Op>
std::size_t scratch_bytes(const Op& op, const options& how = {}, int workers = 1) noexcept {
  return engine_for<Op>::bytes(op, how) * static_cast<std::size_t>(std::max(workers, 1));
}

/// Makes room and, where an operator wants them, tables, so that no verb with these arguments allocates later.
template <detail::has_engine Op>
void reserve(const Op& op, const options& how, context& ctx) {
  ctx.reserve(scratch_bytes(op, how, ctx.workers()));
  if constexpr (requires { engine_for<Op>::make_tables(op, how, ctx); }) engine_for<Op>::make_tables(op, how, ctx);
}

/// One or a few tokens, the state swept where it lies: in place, or from slot to slot. An absent o advances the state.
template <detail::has_steps Op, class State = typename Op::default_state>
void step(prechecked_t, const Op& op, State&& st, const output_of<Op>& o, const options& how = {},
          context& ctx = default_context()) noexcept {
  detail::run_checked<detail::verb::step>(op, st, o, how, ctx);
}
template <detail::has_steps Op, class State = typename Op::default_state>
void step(const Op& op, State&& st, const output_of<Op>& o, const options& how = {}, context& ctx = default_context()) {
  detail::check_and_run<detail::verb::step>(op, st, o, how, ctx);
}

/// The whole sequence token by token, the state in cache.
template <detail::has_steps Op, class State = typename Op::default_state>
void recurrent(prechecked_t, const Op& op, State&& st, const output_of<Op>& o, const options& how = {},
               context& ctx = default_context()) noexcept {
  detail::run_checked<detail::verb::recurrent>(op, st, o, how, ctx);
}
template <detail::has_steps Op, class State = typename Op::default_state>
void recurrent(const Op& op, State&& st, const output_of<Op>& o, const options& how = {},
               context& ctx = default_context()) {
  detail::check_and_run<detail::verb::recurrent>(op, st, o, how, ctx);
}

/// Matrix products over chunks, the state between them.
template <detail::has_chunks Op, class State = typename Op::default_state>
void chunked(prechecked_t, const Op& op, State&& st, const output_of<Op>& o, const options& how = {},
             context& ctx = default_context()) noexcept {
  detail::run_checked<detail::verb::chunked>(op, st, o, how, ctx);
}
template <detail::has_chunks Op, class State = typename Op::default_state>
void chunked(const Op& op, State&& st, const output_of<Op>& o, const options& how = {},
             context& ctx = default_context()) {
  detail::check_and_run<detail::verb::chunked>(op, st, o, how, ctx);
}

/// Time-invariant operators: with their kernel, by fast Fourier transforms over the whole sequence or blocks of it. The
/// error of an output is relative to the largest terms of its sequence, and a NaN reaches all of these.
template <detail::has_convolution Op, class State = typename Op::default_state>
void convolution(prechecked_t, const Op& op, State&& st, const output_of<Op>& o, const options& how = {},
                 context& ctx = default_context()) noexcept {
  detail::run_checked<detail::verb::convolution>(op, st, o, how, ctx);
}
template <detail::has_convolution Op, class State = typename Op::default_state>
void convolution(const Op& op, State&& st, const output_of<Op>& o, const options& how = {},
                 context& ctx = default_context()) {
  detail::check_and_run<detail::verb::convolution>(op, st, o, how, ctx);
}

/// The form that suits shape, type, instruction set and whether a state is given; `how.form` forces one.
template <detail::has_engine Op, class State = typename Op::default_state>
void forward(prechecked_t, const Op& op, State&& st, const output_of<Op>& o, const options& how = {},
             context& ctx = default_context()) noexcept {
  detail::run_checked<detail::verb::forward>(op, st, o, how, ctx);
}
template <detail::has_engine Op, class State = typename Op::default_state>
void forward(const Op& op, State&& st, const output_of<Op>& o, const options& how = {},
             context& ctx = default_context()) {
  detail::check_and_run<detail::verb::forward>(op, st, o, how, ctx);
}

/// A forward that leaves checkpoints for `backward`. They grow here where they must; a team wants room that an earlier
/// call has made.
template <detail::keeps_checkpoints Op, class State = typename Op::default_state>
void forward(const Op& op, State&& st, const output_of<Op>& o, const options& how, context& ctx, checkpoints& kept) {
  const auto own = engine_for<Op>::template own<Op>(st);
  require(engine_for<Op>::check(op, own, o, how));
  require(kept.check(op.name));
  engine_for<Op>::forward(op, own, o, how, ctx, kept);
}

/// Whether the arguments of `backward` fit together.
template <detail::has_gradient Op, class State = typename Op::default_state,
          class Gradient = typename Op::default_state_gradient>
status check_backward(const Op& op, State&& st, const std::type_identity_t<cotangent<output_of<Op>>>& d_o,
                      const Gradient& d_st, const std::type_identity_t<gradient<Op>>& d,
                      const options& how = {}) noexcept {
  return detail::gradients_of<Op>::check_backward(op, engine_for<Op>::template own<Op>(st), d_o, d_st, d, how);
}

/// Scratch, in bytes, that `backward` needs for `workers` threads.
template <detail::has_gradient Op>
std::size_t backward_scratch_bytes(const Op& op, const options& how = {}, int workers = 1) noexcept {
  return detail::gradients_of<Op>::backward_bytes(op, how) * static_cast<std::size_t>(std::max(workers, 1));
}

/// Gradients from the cotangent of the output and, in d_st.final, of the final state, of which either may be absent.
/// `st` is as `forward` had it: its initial state must be unchanged, its final one is not looked at. The gradient of
/// the initial state goes to d_st.initial. Gradients overwrite, or, with `how.accumulate`, add; what is shared by many
/// tokens is summed in an order that the shape alone decides.
template <detail::has_gradient Op, class State = typename Op::default_state,
          class Gradient = typename Op::default_state_gradient>
void backward(prechecked_t, const Op& op, State&& st, const std::type_identity_t<cotangent<output_of<Op>>>& d_o,
              const Gradient& d_st, const std::type_identity_t<gradient<Op>>& d, const options& how = {},
              context& ctx = default_context()) noexcept {
  detail::gradients_of<Op>::backward(op, engine_for<Op>::template own<Op>(st), d_o, d_st, d, how, ctx);
}
template <detail::has_gradient Op, class State = typename Op::default_state,
          class Gradient = typename Op::default_state_gradient>
void backward(const Op& op, State&& st, const std::type_identity_t<cotangent<output_of<Op>>>& d_o, const Gradient& d_st,
              const std::type_identity_t<gradient<Op>>& d, const options& how = {}, context& ctx = default_context()) {
  const auto own = engine_for<Op>::template own<Op>(st);
  require(detail::gradients_of<Op>::check_backward(op, own, d_o, d_st, d, how));
  detail::gradients_of<Op>::backward(op, own, d_o, d_st, d, how, ctx);
}

/// The same from the checkpoints of the forward, which spares the sweep that makes states again. Of the initial state
/// only its being there is looked at: it may have been swept in place.
template <detail::keeps_checkpoints Op, class State = typename Op::default_state,
          class Gradient = typename Op::default_state_gradient>
void backward(const Op& op, State&& st, const std::type_identity_t<cotangent<output_of<Op>>>& d_o, const Gradient& d_st,
              const std::type_identity_t<gradient<Op>>& d, const options& how, context& ctx, const checkpoints& kept) {
  using rules = detail::gradients_of<Op>;
  const auto own = engine_for<Op>::template own<Op>(st);
  require(rules::check_backward(op, own, d_o, d_st, d, how));
  require(rules::check_checkpoints(op, own, how, kept));
  rules::backward(op, own, d_o, d_st, d, how, ctx, &kept);
}

}  // namespace OGIVE_ABI
}  // namespace ogive

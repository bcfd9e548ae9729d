// L5: the verbs, written once. Operator, state, output, options, context: learn one, know all.
//
// An engine tells how its operators take part by specialising engine_of for them; its type has
//   output<Op>                          the view that is written
//   has_steps, has_chunks               which verbs exist besides check and forward
//   own<Op>(given)                      what the caller gave as the state, as the operator's own state struct
//   check(op, st, o, how)               whether the arguments fit; noexcept
//   bytes(op, how)                      scratch of one worker, for any verb and any storage of the state, for as many
//                                       tokens or fewer; noexcept
//   run<Verb>(op, st, o, how, ctx)      everything after the door
#pragma once

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

enum class verb { step, recurrent, chunked, forward };

template <class Op>
concept has_engine = requires {
  typename engine_of<Op>::type;
};
template <class Op>
concept has_steps = has_engine<Op> && engine_for<Op>::has_steps;
template <class Op>
concept has_chunks = has_engine<Op> && engine_for<Op>::has_chunks;

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

}  // namespace detail

/// The type of an operator's outputs.
template <class Op>
using output_of = typename engine_for<Op>::template output<Op>;

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

}  // namespace OGIVE_ABI
}  // namespace ogive

// L5: the questions at the door that engines share: the pools of a state, and that whatever is written has memory of
// its own.
#pragma once

#include <ogive/core/check.hpp>

#include <type_traits>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// Sequences of a batch, or of a packed row.
template <class Op>
index_t input_sequences(const Op& op) noexcept {
  return op.offsets.present() ? op.offsets.size() - 1 : op.u.extent(0);
}

/// How to run time-invariant operators, and where their sequences are, once u and the system have been asked for.
template <class Op>
void check_sequences(core::checker& ask, const Op& op, const options& how) noexcept {
  ask.chunk(how);
  if (ask && how.form != form::automatic && how.form != form::recurrent && how.form != form::convolution) {
    ask.refuse("form", status_code::value) << "must be automatic, recurrent or convolution";
  }
  if (ask) ask.offsets(op.offsets, op.u.extent(0), op.u.extent(1));
  if (ask) ask.lengths(op.lengths, input_sequences(op));
}

/// What asks that x shares no memory with a field of an operator: `fields` below.
template <class Op>
auto apart_from_fields(core::checker& ask, const Op& op) noexcept {
  return [&](const char* name, const auto& x) noexcept {
    op.fields([&](const char* field, const auto& y) noexcept { ask.apart(name, x, field, y); });
  };
}

template <class State>
concept with_normaliser = requires(const State& st) {
  st.z_initial;
};

/// States that can keep others on the way.
template <class State>
concept with_kept = requires(const State& st) {
  st.snapshots;
  st.boundaries;
};

/// f(name, pool, whether it is written) for the pools of a state, and of its normaliser.
template <class State, class F>
void for_pools(const State& st, const F& f) noexcept {
  f("initial", st.initial, false), f("final", st.final, true);
  if constexpr (with_kept<State>) f("snapshots", st.snapshots, true), f("boundaries", st.boundaries, true);
  if constexpr (with_normaliser<State>) {
    f("z_initial", st.z_initial, false), f("z_final", st.z_final, true);
    if constexpr (with_kept<State>) f("z_snapshots", st.z_snapshots, true), f("z_boundaries", st.z_boundaries, true);
  }
}

/// The initial and the final state, of `slot` [·, H, K, V], with their slots, and z [·, H, K] beside them.
template <class Op, class State, std::size_t Rank>
void check_pools(core::checker& ask, const Op& op, const State& st, index_t sequences, const shape<Rank>& slot,
                 const char* letters) noexcept {
  ask.pools("initial", st.initial, "final", st.final, st.initial_slots, st.final_slots, sequences, slot, letters);
  if constexpr (with_normaliser<State>) {
    ask.pools("z_initial", st.z_initial, "z_final", st.z_final, st.initial_slots, st.final_slots, sequences,
              shape<3>{slot[0], slot[1], slot[2]}, "[slots, H, K]");
    const auto together = [&](const char* z_name, const auto& z, const char* name, const auto& S) noexcept {
      if (ask && (op.normalise || z.present()) && S.present() != z.present()) {
        ask.refuse(z_name) << "must come with " << name << ": the normaliser is part of the state";
      }
    };
    together("z_initial", st.z_initial, "initial", st.initial);
    together("z_final", st.z_final, "final", st.final);
  }
}

/// The state of a backward, which does not look at its end.
template <class State>
State without_end(State st) noexcept {
  st.final = {};
  st.final_slots = {};
  if constexpr (with_normaliser<State>) st.z_final = {};
  return st;
}

/// What a call writes overlaps nothing: `fields(name, x)` asks that x does not share memory with the operator's fields.
/// Pools of S may be one memory, and so may those of z: `checker::pools` and `kept` ask for their slots.
template <class State, class Output, class Fields>
void check_apart(core::checker& ask, const State& st, const char* output, const Output& o,
                 const Fields& fields) noexcept {
  fields(output, o);
  for_pools(st, [&](const char* name, const auto& pool, bool written) noexcept {
    if (!written) {
      ask.apart(output, o, name, pool);
      return;
    }
    if (!pool.present()) return;
    ask.apart(name, pool, output, o);
    fields(name, pool);
    for_pools(st, [&](const char* other, const auto& y, bool) noexcept {
      if constexpr (std::remove_cvref_t<decltype(pool)>::rank != std::remove_cvref_t<decltype(y)>::rank) {
        ask.apart(name, pool, other, y);
      }
    });
  });
}

/// The cotangent of the final state and the gradient of the initial one, and those of z, for a state of these extents.
template <class StateGradient, std::size_t Rank>
void check_state_gradient(core::checker& ask, const StateGradient& d_st, const shape<Rank>& states,
                          const char* letters) noexcept {
  ask.extents("d_st.final", d_st.final, states, letters);
  ask.extents("d_st.initial", d_st.initial, states, letters).output("d_st.initial", d_st.initial);
  if constexpr (with_normaliser<StateGradient>) {
    const shape<3> normalisers{states[0], states[1], states[2]};
    ask.extents("d_st.z_final", d_st.z_final, normalisers, "[sequences, H, K]");
    ask.extents("d_st.z_initial", d_st.z_initial, normalisers, "[sequences, H, K]");
    ask.output("d_st.z_initial", d_st.z_initial);
    const auto together = [&](const char* z_name, const auto& z, const char* name, const auto& S) noexcept {
      if (ask && z.present() && !S.present()) {
        ask.refuse(z_name) << "must come with " << name << ": the normaliser is part of the state";
      }
    };
    together("d_st.z_final", d_st.z_final, "d_st.final", d_st.final);
    together("d_st.z_initial", d_st.z_initial, "d_st.initial", d_st.initial);
  }
}

/// What a backward writes overlaps nothing that is read, and nothing else that is written. `gradients(f)` calls
/// f(name, gradient) for those of the fields, each time of the same views; `fields` as above.
template <class State, class Cotangent, class StateGradient, class Gradients, class Fields>
void check_gradients_apart(core::checker& ask, const State& st, const char* output, const Cotangent& d_o,
                           const StateGradient& d_st, const Gradients& gradients, const Fields& fields) noexcept {
  const auto for_written = [&](const auto& f) noexcept {
    gradients(f);
    f("d_st.initial", d_st.initial);
    if constexpr (with_normaliser<StateGradient>) f("d_st.z_initial", d_st.z_initial);
  };
  for_written([&](const char* name, const auto& x) noexcept {
    if (!ask || !x.present()) return;
    fields(name, x);
    ask.apart(name, x, output, d_o).apart(name, x, "initial", st.initial).apart(name, x, "d_st.final", d_st.final);
    if constexpr (with_normaliser<State>) ask.apart(name, x, "z_initial", st.z_initial);
    if constexpr (with_normaliser<StateGradient>) ask.apart(name, x, "d_st.z_final", d_st.z_final);
  });
  ask.apart_from_each_other(for_written);
}

/// The same for operators that name their gradients, f(name, gradient, field) with `for_gradients(d, f)`: each has the
/// extents of its field.
template <class Op, class State, class Cotangent, class StateGradient, class Gradient>
void check_gradients(core::checker& ask, const Op& op, const State& st, const char* output, const Cotangent& d_o,
                     const StateGradient& d_st, const Gradient& d) noexcept {
  op.for_gradients(d, [&](const char* field, const auto& x, const auto& of) noexcept {
    if (ask && x.present() && !of.present()) ask.refuse(field) << "is asked for, but what it belongs to is absent";
    ask.extents(field, x, of.extents(), "the shape of what it belongs to").output(field, x);
  });
  const auto gradients = [&](const auto& f) noexcept {
    op.for_gradients(d, [&](const char* field, const auto& x, const auto&) noexcept { f(field, x); });
  };
  check_gradients_apart(ask, st, output, d_o, d_st, gradients, apart_from_fields(ask, op));
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

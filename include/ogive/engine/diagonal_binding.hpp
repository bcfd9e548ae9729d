// L5: an operator of the diagonal engine as one call of it, which kernels can take without knowing the operator.
#pragma once

#include <ogive/engine/checks.hpp>
#include <ogive/engine/diagonal_task.hpp>
#include <ogive/engine/verbs.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// An operator and where its outputs go: what the hooks see.
template <class Op>
struct diagonal_binding {
  const Op* op;
  const view<typename Op::scalar, 3>* y;

  template <class Acc>
  diagonal_hooks<Acc> hooks() const noexcept {
    using self = diagonal_binding;
    diagonal_hooks<Acc> h{};
    h.bound = this;
    if constexpr (has_direct_operands<Op>) {
      h.sweep = [](const void* bound, const diagonal_tile& at, const diagonal_panels<Acc>& panels,
                   const direct_state<Acc>& s) noexcept {
        const auto* my = static_cast<const self*>(bound);
        my->op->sweep(at, panels, s, *my->y);
      };
    } else {
      h.load = [](const void* bound, const diagonal_tile& at, const diagonal_panels<Acc>& to) noexcept {
        static_cast<const self*>(bound)->op->load(at, to);
      };
      h.ahead = [](const void* bound, const diagonal_tile& at) noexcept {
        const auto* my = static_cast<const self*>(bound);
        return my->op->ahead(at, *my->y);
      };
      h.expand = [](const void* bound, const diagonal_tile& at, const diagonal_panels<Acc>& to) noexcept {
        static_cast<const self*>(bound)->op->expand(at, to);
      };
      h.store = [](const void* bound, const diagonal_tile& at, const diagonal_panels<Acc>& from) noexcept {
        const auto* my = static_cast<const self*>(bound);
        if (my->y->present()) my->op->store(at, from, *my->y);
      };
    }
    return h;
  }
};

template <class Op>
index_t diagonal_sequences(const Op& op) noexcept {
  return op.offsets.present() ? op.offsets.size() - 1 : op.extents().batch;
}

/// `swept_in_place`: of direct operands, whether all channels are neighbours.
template <class Acc, class Op>
diagonal_plan plan_of(const Op& op, index_t sequences, bool brief, bool swept_in_place, index_t workers) noexcept {
  if constexpr (has_direct_operands<Op>) {
    return diagonal_plan::direct_of<Acc>(op.extents(), sequences, swept_in_place, workers);
  } else {
    return diagonal_plan::of<Acc>(op.extents(), op.shared_run(), sequences, is_complex<typename Op::number>, brief);
  }
}
template <class Op, class... X>
bool swept_in_place(const Op& op, const X&... tensors) noexcept {
  if constexpr (has_direct_operands<Op>) {
    return op.swept_in_place(tensors...);
  } else {
    return false;
  }
}

template <class Acc, class Op, class State>
diagonal_problem<Acc> describe_diagonal(const diagonal_binding<Op>& bound, const State& st, bool brief,
                                        index_t workers = 1) noexcept {
  const Op& op = *bound.op;
  diagonal_problem<Acc> p{};
  p.n = op.extents();
  p.hooks = bound.template hooks<Acc>();
  p.A = diagonal_pool<Acc>::of(op.rates());
  p.initial = diagonal_pool<Acc>::of(st.initial);
  p.final = diagonal_pool<Acc>::of(st.final);
  p.initial_slots = st.initial_slots;
  p.final_slots = st.final_slots;
  p.offsets = op.offsets;
  p.lengths = op.lengths;
  p.sequences = diagonal_sequences(op);
  p.plan = plan_of<Acc>(op, p.sequences, brief, swept_in_place(op, *bound.y), workers);
  return p;
}

/// The first questions of every call: there is such a form, its fields fit, and so do sequences and states.
template <class Op, class State>
void check_diagonal_call(core::checker& ask, const Op& op, const State& st, const options& how) noexcept {
  static_assert(is_complex<typename State::storage_type> == is_complex<typename Op::number>,
                "the state is complex where A is complex, and only there");
  ask.chunk(how);
  if (ask && how.form != form::automatic && how.form != form::recurrent) {
    ask.refuse("form", status_code::value) << to_string(how.form)
                                           << " does not exist where the decay varies per channel and state; "
                                              "use automatic or recurrent";
  }
  op.check_fields(ask);
  if (!ask) return;
  const diagonal_extents n = op.extents();
  ask.offsets(op.offsets, n.batch, n.length);
  if (!ask) return;
  ask.lengths(op.lengths, diagonal_sequences(op));
  check_pools(ask, op, st, diagonal_sequences(op), shape<3>{0, n.channels, n.states}, "[slots, D, N]");
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

// L5: the backward of the matrix engine behind the verbs, one for every operator; matrix_backward_task.hpp has its
// formulas. States first, from the forward or a first sweep; then tasks, each the heads of a sequence or of one state a
// piece of columns and later chunks; then the sums that they share, in a fixed order.
#pragma once

#include <ogive/engine/matrix.hpp>
#include <ogive/engine/matrix_backward_task.hpp>
#include <ogive/engine/matrix_gradients.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// Tasks whose gradients are sums with those of others: as many at a time as there is room for, each with sums of its
/// own, which are added in the order of tasks; the bits are those of one worker. A member of a team shares no memory
/// with the others: it runs all tasks that have something in common.
template <class Engine, class Acc, class Op>
void run_joint_tasks(const matrix_backward_problem<Acc>& p, const matrix_backward_binding<Op>& gradients,
                     std::size_t bytes, context& ctx) noexcept {
  const index_t turns = p.turns(), heads = p.forward.n.heads, workers = ctx.workers();
  const joint_memory memories{ctx, bytes, sums_bytes(*gradients.op, *gradients.d, turns, false)};
  const auto own_of = [&](index_t i) noexcept {
    arena memory = ctx.scratch(i / turns, bytes);
    for (index_t turn = 0; turn < i % turns; ++turn) with_own_sums(*gradients.op, *gradients.d, memory);
    return with_own_sums(*gradients.op, *gradients.d, memory);
  };
  const auto run = [&](index_t task, index_t i, arena memory) noexcept {
    const auto own = own_of(i);
    matrix_backward_binding<Op> mine = gradients;
    mine.d = &own;
    clear_sums<Op>(own, heads);
    memory.take<std::byte>(static_cast<index_t>(memories.sums));
    Engine::run(p, task, &mine, memory);
  };
  const auto join = [&](index_t first, index_t count, index_t piece, index_t pieces, arena memory) noexcept {
    memory.take<std::byte>(static_cast<index_t>(memories.sums));
    if (p.joint_size() > 0) Engine::join(p, first, count, &gradients, memories, piece, pieces, memory);
  };
  if (!p.accumulate) {
    run_tasks(ctx, p.sums ? 1 : 0, bytes, [&](index_t, arena) noexcept { clear_sums<Op>(*gradients.d, heads); });
  }
  const index_t parts = p.parts(), blocks = p.blocks(), tasks = p.tasks();
  if (workers == 1) {
    const index_t sequences = p.sums ? p.forward.sequences : 1;  // that have something in common
    run_tasks(ctx, tasks / std::max<index_t>(1, parts * sequences), bytes, [&](index_t unit, arena memory) noexcept {
      for (index_t i = 0; i < parts * sequences; ++i) {
        const index_t task = (i / parts * blocks + unit) * parts + i % parts;
        run(task, 0, memory);
        for (index_t h = 0; h < heads; ++h) {  // no others: those another member of the team may be adding to
          if (p.block_of(h) == unit) add_sums<Op>(*gradients.d, own_of(0), h, h + 1);
        }
        join(task, 1, 0, 1, memory);
      }
    });
    return;
  }
  for (index_t first = 0; first < tasks; first += workers * turns) {
    const index_t count = std::min(workers * turns, tasks - first);
    run_tasks(ctx, count, bytes, [&](index_t i, arena memory) noexcept {
      run(first + i, i, turns == 1 ? ctx.scratch(i, bytes) : memory);  // what a task leaves is where it is looked for
    });
    run_tasks(ctx, workers, bytes, [&](index_t piece, arena memory) noexcept {
      for (index_t i = 0; i < count; ++i) {
        add_sums<Op>(*gradients.d, own_of(i), piece * heads / workers, (piece + 1) * heads / workers);
      }
      join(first, count, piece, workers, memory);
    });
  }
}

template <class State>
concept with_normaliser_gradient = requires(const State& d_st) {
  d_st.z_initial;
};

/// Where the reverse sweep starts and ends, as the state of a sweep.
template <class Op, class Gradient>
auto reversed(const Gradient& d_st) noexcept {
  typename Op::template state_of<typename Gradient::storage_type> st{.initial = d_st.final, .final = d_st.initial};
  if constexpr (with_normaliser_gradient<Gradient>) {
    st.z_initial = d_st.z_final;
    st.z_final = d_st.z_initial;
    if (!st.initial.present() && st.z_initial.present()) st.z_initial = {};
  }
  return st;
}

/// The gradient of the initial state, added to what is there.
template <class Acc, class State>
void add_state(const void* state, index_t sequence, index_t head, const Acc* S, index_t stride, const Acc* z) noexcept {
  const State& st = *static_cast<const State*>(state);
  using G = typename State::storage_type;
  for (index_t i = 0; i < st.final.extent(2); ++i) {
    for (index_t j = 0; j < st.final.extent(3); ++j) {
      G& to = st.final(sequence, head, i, j);
      to = static_cast<G>(static_cast<Acc>(to) + S[i * stride + j]);
    }
    if constexpr (with_normaliser<State>) {
      if (st.z_final.present()) {
        G& to = st.z_final(sequence, head, i);
        to = static_cast<G>(static_cast<Acc>(to) + z[i]);
      }
    }
  }
}

template <class Acc, class Op, class State, class Cotangents>
matrix_backward_problem<Acc> describe_backward(const matrix_again_binding<Op>& bound,
                                               const matrix_backward_binding<Op>& gradients, const State& st,
                                               const Cotangents& cotangents, options how,
                                               const checkpoints* kept) noexcept {
  matrix_backward_problem<Acc> p{};
  if (kept != nullptr && how.chunk == 0) how.chunk = kept->interval();
  p.forward =
      describe<Acc>(bound, st, form::chunked, false, backward_options(policies_of<Op>, bound.op->extents(), how));
  p.forward.hooks = bound.template hooks<Acc>();
  p.forward.plan.block = 0;  // states have a place of their own
  if constexpr (requires { bound.op->normalise; }) {
    p.forward.normalise = bound.op->normalise || cotangents.z_initial.present() || cotangents.z_final.present();
  }
  p.adjoints = gradients.template adjoints<Acc>();
  p.cotangents = state_access<Acc, Cotangents>::hooks(cotangents);
  if (how.accumulate) p.cotangents.save = add_state<Acc, Cotangents>;
  if constexpr (requires { bound.op->template adjoint_room<Acc>(0); }) {
    p.room = bound.op->template adjoint_room<Acc>(p.forward.plan.chunk);
  }
  p.undivided = requires { Op::gates_of_keys; };
  if constexpr (with_weights<Op>) {
    const auto weights = bound.op->weights(*gradients.d);
    if (weights.wanted()) p.weights = weights.size();
  }
  p.accumulate = how.accumulate;
  p.sums = wants_sums<Op>(*gradients.d);
  p.chunks = (p.forward.n.length + p.forward.plan.chunk - 1) / p.forward.plan.chunk;
  if (kept != nullptr) {
    arena memory(const_cast<std::byte*>(kept->data()), kept->capacity());  // nothing is written there
    p.kept = matrix_checkpoints<Acc>::of(p.forward, p.forward.plan.chunk, memory);
  }
  return p;
}

/// Bytes of what tasks of columns leave.
template <class Acc>
std::size_t columns_bytes(const matrix_backward_problem<Acc>& p) noexcept {
  arena counted;
  matrix_backward_columns<Acc>::carve(p, counted);
  return counted.used();
}

/// Pieces of V that tasks of their own work on in backward. A normaliser's gradient is a sum over all columns that the
/// chunk before waits for.
template <class Acc, class Op>
index_t value_pieces(const Op& op, const matrix_backward_problem<Acc>& p, index_t workers) noexcept {
  if constexpr (requires { op.columns(0, 0); }) {
    if (p.chunks > 1 && !p.forward.normalise && p.weights == 0) return value_pieces(op, workers);
  }
  return 1;
}

/// One state by many workers. First each takes columns of V, forwards and backwards through all chunks; they leave what
/// a chunk wants besides: the states on both sides of it, and its values and cotangents. Then chunks have nothing to do
/// with each other any more, and are tasks, each with all columns: the bits are those of one task.
template <class Engine, class Acc, class Op, class State, class Cotangents>
void run_columns(const matrix_backward_problem<Acc>& whole, const matrix_backward_binding<Op>& gradients,
                 const State& st, const Cotangents& cotangents, std::size_t bytes, context& ctx) {
  struct piece {
    index_t first;
    Op op;
    State st;
    Cotangents cotangents;
    view<const typename Op::scalar, 4> d_o;
    typename Op::gradient d;
    matrix_again_binding<Op> bound;
    matrix_backward_binding<Op> gradients;
  };
  const Op& op = *gradients.op;
  const view<typename Op::scalar, 4> o;
  const value_cut cut = value_cut::of<Acc>(whole.forward.n.value_dim, whole.pieces);
  const auto part = [&](index_t i) noexcept {
    const auto [first, count] = cut[i];
    piece p{first,
            op.columns(first, count),
            columns_of(st, first, count),
            columns_of(cotangents, first, count),
            gradients.outputs->slice(3, first, count),
            *gradients.d,
            {},
            {}};
    if constexpr (requires { op.columns(p.d, 0, 0); }) p.d = op.columns(p.d, first, count);
    return p;
  };
  auto parts = all_parts(part);
  matrix_backward_problem<Acc> problems[most_pieces];
  for (index_t i = 0; i < cut.pieces; ++i) {
    piece& p = parts[static_cast<std::size_t>(i)];
    p.bound = {{&p.op, &o}, gradients.outputs};
    p.gradients = {&p.op, &p.d_o, &p.d, gradients.accumulate};
    problems[i] = describe_backward<Acc>(p.bound, p.gradients, p.st, p.cotangents,
                                         {.chunk = whole.forward.plan.chunk, .accumulate = whole.accumulate}, nullptr);
    problems[i].pieces = whole.pieces;
    matrix_plan& plan = problems[i].forward.plan;
    plan.v_stride = whole.forward.plan.v_stride;
    plan.state_rows = whole.forward.plan.state_rows;
    problems[i].kept = whole.kept.columns(p.first, p.op.extents().value_dim);
  }
  const index_t workers = ctx.workers(), heads = whole.forward.n.heads;
  const std::size_t left = columns_bytes(whole);
  ctx.reserve(static_cast<std::size_t>(workers) * bytes + left);
  arena beside(ctx.scratch(workers, bytes).template take<std::byte>(0), left);
  const auto all = matrix_backward_columns<Acc>::carve(whole, beside);
  run_tasks(ctx, cut.pieces, bytes, [&](index_t i, arena memory) noexcept {
    const piece& p = parts[static_cast<std::size_t>(i)];
    Engine::run_columns(problems[i], all.from(p.first), &p.gradients, memory);
  });
  run_tasks(ctx, whole.chunks, bytes,
            [&](index_t c, arena memory) noexcept { Engine::run_chunk(whole, all, c, &gradients, memory); });
  if (!whole.sums) return;
  run_tasks(ctx, 1, bytes, [&](index_t, arena memory) noexcept {
    const auto own = with_own_sums(op, *gradients.d, memory);
    matrix_backward_binding<Op> mine = gradients;
    mine.d = &own;
    clear_sums<Op>(own, heads);
    Engine::run_sums(whole, all, &mine, memory);
    if (!whole.accumulate) clear_sums<Op>(*gradients.d, heads);
    add_sums<Op>(*gradients.d, own, 0, heads);
  });
}

template <class Acc>
std::size_t scratch_of(const matrix_backward_problem<Acc>& p) noexcept {
  arena counted;
  matrix_scratch<Acc>::carve(p.forward, counted);
  matrix_backward_scratch<Acc>::carve(p, counted);
  return counted.used() + core::summed_bytes<Acc>(p.weights);
}

/// "d." and the name of a field, for messages.
struct gradient_name {
  char text[24] = "d.";
  gradient_name(const char* field) noexcept {
    for (int i = 0; i < 20 && field[i] != 0; ++i) text[i + 2] = field[i];
  }
};

/// The backward of the matrix engine behind the verbs.
struct matrix_backward_engine {
  template <class Op, class State, class Gradient>
  static status check_backward(const Op& op, const State& st, const view<const typename Op::scalar, 4>& d_o,
                               const Gradient& d_st, const typename Op::gradient& d, const options& how) noexcept {
    core::checker ask(op.name);
    ask.chunk(how);
    if (ask && how.form != form::automatic && how.form != form::chunked) {
      ask.refuse("form", status_code::value) << "must be automatic or chunked for backward";
    }
    check_call(ask, op, without_end(st));
    if (!ask) return ask.result();
    const matrix_extents n = op.extents();
    ask.extents("d_o", d_o, matrix_output(n), letters_of<Op>.output);
    check_state_gradient(ask, d_st, shape<4>{sequences_of(op), n.heads, n.key_dim, n.value_dim},
                         "[sequences, H, K, V]");
    op.for_gradients(d, [&](const char* field, const auto& x, const auto& d_x) noexcept {
      const gradient_name name(field);
      if (!ask || !d_x.present()) return;
      if (!x.present()) ask.refuse(name.text) << "is asked for, but its field is absent";
      const auto fits = [&](const auto& own, const auto& of) noexcept {
        ask.extents(name.text, own, of.extents(), "as the field").output(name.text, own);
      };
      if constexpr (std::remove_cvref_t<decltype(d_x)>::rank >= 3) {
        if (summed<Op>(d, d_x)) return fits(d_x[0][0], x[0][0]);
      }
      fits(d_x, x);
    });
    const auto gradients = [&](const auto& f) noexcept {
      op.for_gradients(
          d, [&](const char* field, const auto&, const auto& d_x) noexcept { f(gradient_name(field).text, d_x); });
    };
    check_gradients_apart(ask, st, "d_o", d_o, d_st, gradients,
                          [&](const char* name, const auto& x) noexcept { op.check_written(ask, name, x); });
    return ask.result();
  }

  /// Whether checkpoints are of a call like this one, of which everything else has been asked.
  template <class Op, class State>
  static status check_checkpoints(const Op& op, const State& st, options how, const checkpoints& kept) noexcept {
    using Acc = matrix_accum<Op, State>;
    core::checker ask(op.name);
    const view<typename Op::scalar, 4> o;
    if (how.chunk == 0) how.chunk = kept.interval();
    const auto p = describe<Acc>(matrix_binding<Op>{&op, &o}, st, form::chunked, false,
                                 backward_options(policies_of<Op>, op.extents(), how));
    matrix_checkpoints<Acc>::check(ask, kept.of(), matrix_checkpoints<Acc>::call_of(op.name, p, p.plan.chunk));
    return ask.result();
  }

  template <class Op>
  static std::size_t backward_bytes(const Op& op, const options& how) noexcept {
    const auto most = [&]<class Acc>(Acc) noexcept {
      const view<typename Op::scalar, 4> o;
      const view<const typename Op::scalar, 4> d_o;
      const typename Op::gradient d{};
      const typename Op::template state_of<Acc> st{};
      const matrix_again_binding<Op> bound{{&op, &o}, &d_o};
      const matrix_backward_binding<Op> gradients{&op, &d_o, &d, false};
      auto p = describe_backward<Acc>(bound, gradients, st, st, how, nullptr);
      auto all = d;
      if constexpr (requires { all.over_time; }) all.over_time = true;
      std::size_t in_columns = 0;
      p.pieces = value_pieces(op, p, most_pieces);
      if (p.pieces > 1) {  // what they leave is shared by two workers at least
        const std::size_t sums = sums_bytes(op, all, 1, true);
        p.sums = sums > 0;
        in_columns = scratch_of(p) + sums + (columns_bytes(p) + 127) / 128 * 64;
      }
      p.pieces = 1, p.sums = false;
      if constexpr (requires { op.normalise; }) p.forward.normalise = true;
      if constexpr (with_weights<Op>) {
        auto learned = p;
        learned.weights = op.weights(d).size();
        return std::max({scratch_of(p) + sums_bytes(op, all, p.turns(), true), scratch_of(learned), in_columns});
      }
      return std::max(scratch_of(p) + sums_bytes(op, all, p.turns(), true), in_columns);
    };
    return std::max(most(accum_t<typename Op::scalar>{}), most(double{}));
  }

  template <class Op, class State, class Gradient>
  static void backward(const Op& op, const State& st, const view<const typename Op::scalar, 4>& d_o,
                       const Gradient& d_st, const typename Op::gradient& d, const options& how, context& ctx,
                       const checkpoints* kept = nullptr) {
    using Acc = matrix_accum<Op, State>;
    const view<typename Op::scalar, 4> o;
    const auto cotangents = reversed<Op>(d_st);
    const auto asked = given_or_zero(d_o, op.extents());
    const matrix_again_binding<Op> bound{{&op, &o}, &asked};
    const matrix_backward_binding<Op> gradients{&op, &asked, &d, how.accumulate};
    auto p = describe_backward<Acc>(bound, gradients, st, cotangents, how, kept);
    if (p.forward.n.heads == 0) return;
    using engine = matrix_backward_task<Acc, simd::default_arch, Op::decays, Op::writes, Op::reads>;
    if constexpr (requires { op.columns(0, 0); }) {
      p.pieces = value_pieces(op, p, ctx.workers());
      if (p.pieces > 1) {
        const std::size_t bytes = scratch_of(p) + (p.sums ? sums_bytes(op, d, 1, false) : 0);
        return run_columns<engine>(p, gradients, st, cotangents, bytes, ctx);
      }
    }
    const bool joint = p.sums || p.parts() > 1;
    const std::size_t bytes = scratch_of(p) + (joint ? sums_bytes(op, d, p.turns(), false) : 0);
    ctx.reserve(static_cast<std::size_t>(ctx.workers()) * bytes);
    if constexpr (with_weights<Op>) {
      if (p.weights > 0) {
        return run_summed_tasks<Acc>(ctx, p.tasks(), bytes, p.weights, op.weights(d), how.accumulate,
                                     [&](index_t task, arena memory, Acc* sums) noexcept {
                                       auto mine = gradients;
                                       mine.sums = sums;
                                       engine::run(p, task, &mine, memory);
                                     });
      }
    }
    if (joint) return run_joint_tasks<engine>(p, gradients, bytes, ctx);
    run_tasks(ctx, p.tasks(), bytes,
              [&](index_t task, arena memory) noexcept { engine::run(p, task, &gradients, memory); });
  }

 private:
  /// Gradients of what is the same for all tokens are views of stride 0 over them.
  template <class Op, class X>
  static bool summed(const typename Op::gradient& d, const X& d_x) noexcept {
    bool found = false;
    Op::for_sums(d, [&](auto gradient, auto, std::size_t axis) noexcept {
      found = found || (axis > 0 && static_cast<const void*>(&d_x) == &(d.*gradient));
    });
    return found;
  }
};

/// The same for an operator that is a choice of operands.
struct operands_backward_engine {
  template <class Op, class State, class Gradient>
  static status check_backward(const Op& op, const State& st, const view<const typename Op::scalar, 4>& d_o,
                               const Gradient& d_st, const typename Op::gradient& d, const options& how) noexcept {
    core::checker ask(Op::name);
    if constexpr (requires { op.check_own(ask); }) op.check_own(ask);
    if (!ask) return ask.result();
    return matrix_backward_engine::check_backward(op.operands(), st, d_o, d_st, op.gradients(d), how);
  }
  template <class Op>
  static std::size_t backward_bytes(const Op& op, const options& how) noexcept {
    return matrix_backward_engine::backward_bytes(op.operands(), how);
  }
  template <class Op, class State, class Gradient>
  static void backward(const Op& op, const State& st, const view<const typename Op::scalar, 4>& d_o,
                       const Gradient& d_st, const typename Op::gradient& d, const options& how, context& ctx,
                       const checkpoints* kept = nullptr) {
    matrix_backward_engine::backward(op.operands(), st, d_o, d_st, op.gradients(d), how, ctx, kept);
  }
  template <class Op, class State>
  static status check_checkpoints(const Op& op, const State& st, const options& how, const checkpoints& kept) noexcept {
    return matrix_backward_engine::check_checkpoints(op.operands(), st, how, kept);
  }
};

template <matrix_operator Op>
struct gradient_rules<Op> {
  using type = matrix_backward_engine;
};
template <operator_of_operands Op>
struct gradient_rules<Op> {
  using type = operands_backward_engine;
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

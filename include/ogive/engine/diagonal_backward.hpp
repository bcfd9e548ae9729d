// L5: the backward pass of the diagonal engine.
//
// A task owns a block of channels and walks through all sequences: a sweep forward keeps the state at the beginning of
// every tile of tokens, then tiles are taken from the last to the first, their states computed again. So what is summed
// over tokens has one order, whoever runs the tasks. Where the channels of a group are several tasks, these leave sums
// of B and C of their own, which are added task by task.
#pragma once

#include <ogive/engine/diagonal_adjoint.hpp>
#include <ogive/engine/diagonal_binding.hpp>
#include <ogive/engine/tasks.hpp>

#include <algorithm>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// The hooks of an operator that is bound to its cotangents and gradients, beside `load` and `expand`.
template <class Acc>
struct diagonal_backward_hooks {
  const void* bound;
  void (*cotangent)(const void* bound, const diagonal_tile& at, const diagonal_panels<Acc>& from,
                    const diagonal_adjoints<Acc>& to) noexcept;
  void (*contract)(const void* bound, const diagonal_tile& at, const diagonal_panels<Acc>& from,
                   const diagonal_adjoints<Acc>& to) noexcept;
  void (*store)(const void* bound, const diagonal_tile& at, const diagonal_panels<Acc>& from,
                const diagonal_adjoints<Acc>& sums) noexcept;
  void (*finish)(const void* bound, const diagonal_tile& at, const diagonal_panels<Acc>& from,
                 const diagonal_adjoints<Acc>& sums) noexcept;
  void (*drain)(const void* bound, int which, index_t batch, index_t token, index_t count, index_t group,
                index_t groups, Acc* panel, index_t row) noexcept;
  void (*adjoint)(const void* bound, const diagonal_tile& at, const diagonal_panels<Acc>& panels,
                  const diagonal_adjoints<Acc>& adjoints, const direct_adjoint<Acc>& w) noexcept;  // of direct operands
};

template <class Acc>
struct diagonal_backward_problem {
  diagonal_problem<Acc> forward;
  diagonal_backward_hooks<Acc> hooks;
  diagonal_shared_sum shared[2];
  diagonal_pool<Acc> d_A;
  diagonal_pool<Acc> d_final;
  diagonal_pool<Acc> d_initial;
  bool accumulate;
  bool wants_y;

  /// Numbers of one row of a sum of B or C.
  index_t sum_row(int which) const noexcept {
    return shared[which].groups * forward.plan.planes * forward.plan.shared_row;
  }
};

/// The memory of a task.
template <class Acc>
struct diagonal_backward_scratch {
  diagonal_scratch<Acc> forward;
  diagonal_adjoints<Acc> adjoints;
  Acc* kept_sum[2];     // [rows, groups, planes, shared_row]: what no tile has the whole of
  Acc* total[2];        // likewise, over tasks
  Acc* checkpoints;     // [tiles, states, planes, row]: the states before them
  Acc* g;               // [states, planes, row]
  Acc* spare;           // likewise
  Acc* lanes[2];        // of factored_adjoint
  Acc* states_of_tile;  // of the sweeps

  static diagonal_backward_scratch carve(const diagonal_backward_problem<Acc>& q, arena& memory) noexcept {
    const diagonal_plan& plan = q.forward.plan;
    const index_t per_token = plan.in_place ? 0 : plan.tokens * plan.row;
    const index_t per_state = q.forward.n.states * plan.planes * plan.row;
    const index_t tiles = (q.forward.n.length + plan.tokens - 1) / plan.tokens;
    const index_t operands = plan.factored || plan.direct ? 0 : plan.tokens * per_state;
    diagonal_backward_scratch s{};
    s.forward = diagonal_scratch<Acc>::carve(q.forward, memory);
    diagonal_adjoints<Acc>& d = s.adjoints;
    d.d_y = memory.take<Acc>(per_token);
    d.d_delta = memory.take<Acc>(per_token);
    d.d_x = memory.take<Acc>(per_token);
    d.own = memory.take<Acc>(per_token);
    d.spare = memory.take<Acc>(per_token);
    d.d_A = memory.take<Acc>(per_state);
    d.sums = memory.take<Acc>(2 * plan.row);
    d.d_a = memory.take<Acc>(operands);
    d.d_b = memory.take<Acc>(operands);
    d.d_c = memory.take<Acc>(operands);
    d.again = memory.take<Acc>(operands);
    for (const int i : {0, 1}) {
      const diagonal_shared_sum& sum = q.shared[i];
      const bool kept = sum.wanted && !sum.direct();
      d.shared[i] = sum;
      d.d_shared[i] = memory.take<Acc>(sum.wanted ? plan.tokens * q.sum_row(i) : 0);
      s.kept_sum[i] = memory.take<Acc>(kept ? sum.rows() * q.sum_row(i) : 0);
      s.total[i] = memory.take<Acc>(kept && !sum.complete ? sum.rows() * q.sum_row(i) : 0);
      s.lanes[i] =
          memory.take<Acc>(sum.wanted && plan.factored ? plan.tokens * q.forward.n.states * simd::width<Acc> : 0);
    }
    s.checkpoints = memory.take<Acc>(tiles * per_state);
    s.g = memory.take<Acc>(per_state);
    s.spare = memory.take<Acc>(per_state);
    const index_t block = plan.direct ? plan.row : adjoint_block<Acc, simd::default_arch> * simd::width<Acc>;
    s.states_of_tile = memory.take<Acc>(plan.tokens * 2 * block);
    return s;
  }
};

template <class Acc>
void zero_numbers(Acc* p, index_t count) noexcept {
  for (index_t i = 0; i < count; ++i) p[i] = Acc(0);
}

/// One task. Instantiated per (accumulator, instruction set, real or complex), never per operator.
template <class Acc, class Arch, bool Complex>
class diagonal_backward_task : diagonal_task<Acc, Arch, Complex> {
  using forward = diagonal_task<Acc, Arch, Complex>;
  using vector = simd::batch<Acc, Arch>;
  using forward::at_;
  using forward::length_;
  using forward::p_;
  using forward::plan_;
  using forward::W;

 public:
  OGIVE_NOINLINE static void run(const diagonal_backward_problem<Acc>& q, index_t block, arena memory) noexcept {
    const auto s = diagonal_backward_scratch<Acc>::carve(q, memory);
    zero_numbers(s.adjoints.d_A, q.forward.n.states * q.forward.plan.planes * q.forward.plan.row);
    zero_numbers(s.adjoints.sums, 2 * q.forward.plan.row);
    for (const int i : {0, 1}) {
      if (q.shared[i].wanted && !q.shared[i].direct()) zero_numbers(s.kept_sum[i], q.shared[i].rows() * q.sum_row(i));
    }
    for (index_t n = 0; n < q.forward.sequences; ++n) {
      diagonal_backward_task(q, s, n, block).sequence();
    }
    diagonal_backward_task(q, s, 0, block).finish();
  }

  /// Rows [begin, end) of the sums of a task that share a group with the tasks before or after it: added to the totals,
  /// which go where they belong when the group is complete.
  OGIVE_NOINLINE static void gather(const diagonal_backward_problem<Acc>& q, const diagonal_backward_scratch<Acc>& of,
                                    const diagonal_backward_scratch<Acc>& in, index_t block, int which, index_t begin,
                                    index_t end) noexcept {
    const diagonal_shared_sum& sum = q.shared[which];
    const index_t row = q.sum_row(which), step = q.forward.plan.step;
    const index_t group = block * step / sum.run;
    const bool first = block * step == group * sum.run;
    const bool last = std::min((block + 1) * step, q.forward.n.channels) == (group + 1) * sum.run;
    const Acc* from = of.kept_sum[which];
    Acc* to = in.total[which];
    for (index_t i = begin * row; i < end * row; ++i) to[i] = first ? from[i] : to[i] + from[i];
    if (last) drain_rows(q, which, group, to, begin, end);
  }

 private:
  diagonal_backward_task(const diagonal_backward_problem<Acc>& q, const diagonal_backward_scratch<Acc>& s,
                         index_t sequence, index_t block) noexcept
      : forward(q.forward, s.forward, sequence * q.forward.plan.blocks + block), q_(q), s_(s) {}

  void sequence() noexcept {
    const index_t size = p_.n.states * plan_.planes * plan_.row;
    const index_t tiles = (length_ + plan_.tokens - 1) / plan_.tokens;
    if (tiles > 0) {
      if (p_.A.present()) this->load_rates();
      this->load_state();
      for (index_t i = 0; i < tiles; ++i) {
        for (index_t j = 0; j < size; ++j) s_.checkpoints[i * size + j] = s_.forward.h[j];
        if (i + 1 < tiles) this->sweep_tile(i * plan_.tokens, plan_.tokens);
      }
    }
    if (q_.d_final.present()) {
      this->load_turned(q_.d_final, q_.d_final.offset(this->sequence_, at_.channel), s_.g);
    } else {
      zero_numbers(s_.g, size);
    }
    for (index_t i = tiles; i-- > 0;) {
      const index_t first = i * plan_.tokens;
      tile(this->tile_at(first, std::min(plan_.tokens, length_ - first)), s_.checkpoints + i * size);
    }
    if (q_.d_initial.present()) drain_turned(s_.g, q_.d_initial, this->sequence_);
  }

  void tile(const diagonal_tile& at, const Acc* h) noexcept {
    const diagonal_panels<Acc>& panels = s_.forward.panels;
    const diagonal_adjoints<Acc>& d = s_.adjoints;
    if (plan_.direct) {
      const direct_adjoint<Acc> w{s_.g, s_.states_of_tile + plan_.tokens * plan_.row, s_.states_of_tile, q_.accumulate};
      for (index_t i = 0; i < plan_.row; ++i) w.states[i] = h[i];
      return q_.hooks.adjoint(q_.hooks.bound, at, panels, d, w);
    }
    p_.hooks.load(p_.hooks.bound, at, panels);
    q_.hooks.cotangent(q_.hooks.bound, at, panels, d);
    for (Acc* panel : {panels.y, d.d_delta, d.d_x, d.own}) zero_tile(panel, plan_.row, 0, at.count, at.channels);
    if (p_.n.states > 0) {
      if (plan_.factored) {
        if constexpr (!Complex) factored(at, h);
      } else {
        expanded(at, h);
      }
    }
    q_.hooks.store(q_.hooks.bound, at, panels, d);
    for (const int i : {0, 1}) {
      if (q_.shared[i].wanted) keep(at, i);
    }
  }

  void factored(const diagonal_tile& at, const Acc* h) noexcept {
    const diagonal_panels<Acc>& panels = s_.forward.panels;
    const diagonal_adjoints<Acc>& d = s_.adjoints;
    for (index_t v = 0; v < at.channels; v += W) {
      adjoint_factored<Arch>(factored_adjoint<Acc>{
          .tokens = at.count,
          .live = at.live,
          .states = p_.n.states,
          .row = plan_.row,
          .delta = panels.delta + v,
          .x = panels.x + v,
          .B = panels.B,
          .C = panels.C,
          .shared_row = panels.shared_row,
          .A = panels.A + v,
          .h = h + v,
          .g = s_.g + v,
          .d_y = d.d_y + v,
          .y = q_.wants_y ? panels.y + v : nullptr,
          .d_delta = d.d_delta + v,
          .d_x = d.d_x + v,
          .d_A = d.d_A + v,
          .lanes = {q_.shared[0].wanted ? s_.lanes[0] : nullptr, q_.shared[1].wanted ? s_.lanes[1] : nullptr},
          .first = v == 0,
          .kept = s_.states_of_tile});
    }
    for (const int i : {0, 1}) {
      if (!q_.shared[i].wanted) continue;
      reduce_lanes<Arch>(s_.lanes[i], at.count, p_.n.states, d.d_shared[i], panels.shared_row);
    }
  }

  void expanded(const diagonal_tile& at, const Acc* h) noexcept {
    const diagonal_panels<Acc>& panels = s_.forward.panels;
    const diagonal_adjoints<Acc>& d = s_.adjoints;
    p_.hooks.expand(p_.hooks.bound, at, panels);
    adjoint_expanded<Complex, Arch>(expanded_adjoint<Acc>{.tokens = at.count,
                                                          .live = at.live,
                                                          .states = p_.n.states,
                                                          .a = panels.a,
                                                          .b = panels.b,
                                                          .c = panels.c,
                                                          .h = h,
                                                          .g = s_.g,
                                                          .d_y = d.d_y,
                                                          .y = q_.wants_y ? panels.y : nullptr,
                                                          .d_a = d.d_a,
                                                          .d_b = d.d_b,
                                                          .d_c = d.d_c,
                                                          .kept = s_.states_of_tile});
    q_.hooks.contract(q_.hooks.bound, at, panels, d);
  }

  /// The gradient of a tile's B or C to where it belongs, or to the sums of the task.
  void keep(const diagonal_tile& at, int which) noexcept {
    const diagonal_shared_sum& sum = q_.shared[which];
    const index_t row = q_.sum_row(which);
    Acc* panel = s_.adjoints.d_shared[which];
    if (sum.direct()) {
      q_.hooks.drain(q_.hooks.bound, which, at.batch, at.token, at.count, at.channel / sum.run, groups_in(at, sum),
                     panel, row);
      return;
    }
    for (index_t t = 0; t < at.count; ++t) {
      Acc* to = s_.kept_sum[which] + sum.row(at.batch, at.token + t) * row;
      for (index_t i = 0; i < row; ++i) to[i] += panel[t * row + i];
    }
  }

  void finish() noexcept {
    if (q_.d_A.present()) drain_turned(s_.adjoints.d_A, q_.d_A, 0);
    if (!plan_.direct) q_.hooks.finish(q_.hooks.bound, at_, s_.forward.panels, s_.adjoints);
    for (const int i : {0, 1}) {
      const diagonal_shared_sum& sum = q_.shared[i];
      if (!sum.wanted || sum.direct() || !sum.complete) continue;
      drain_rows(q_, i, at_.channel / sum.run, s_.kept_sum[i], 0, sum.rows(), groups_in(at_, sum));
    }
  }

  static index_t groups_in(const diagonal_tile& at, const diagonal_shared_sum& sum) noexcept {
    return std::max<index_t>(1, at.channels / sum.run);
  }

  static void drain_rows(const diagonal_backward_problem<Acc>& q, int which, index_t group, Acc* sums, index_t begin,
                         index_t end, index_t groups = 1) noexcept {
    const index_t length = q.shared[which].over_time ? 1 : q.shared[which].length;
    for (index_t i = begin; i < end;) {
      const index_t token = i % length, count = std::min(end - i, length - token);
      q.hooks.drain(q.hooks.bound, which, i / length, token, count, group, groups, sums + i * q.sum_row(which),
                    q.sum_row(which));
      i += count;
    }
  }

  /// Panels [N, planes, row] to [channels, N].
  void drain_turned(Acc* panel, const diagonal_pool<Acc>& pool, index_t slot) noexcept {
    const index_t base = pool.offset(slot, at_.channel);
    if (q_.accumulate) {
      this->load_turned(pool, base, s_.spare);
      for (index_t r = 0; r < p_.n.states * plan_.planes * plan_.row; r += plan_.row) {
        for (index_t v = 0; v < at_.channels; v += W) {
          simd::store(panel + r + v, simd::load<Arch>(s_.spare + r + v) + simd::load<Arch>(panel + r + v));
        }
      }
    }
    this->store_turned(pool, base, panel);
  }

  const diagonal_backward_problem<Acc>& q_;
  const diagonal_backward_scratch<Acc>& s_;
};

/// An operator with its cotangent and the gradients asked for: what the hooks see.
template <class Op>
struct diagonal_backward_binding {
  using output = view<typename Op::scalar, 3>;
  const Op* op;
  const cotangent<output>* d_y;
  const gradient<Op>* d;
  bool accumulate;

  template <class Acc>
  diagonal_backward_hooks<Acc> hooks() const noexcept {
    using self = diagonal_backward_binding;
    diagonal_backward_hooks<Acc> h{};
    h.bound = this;
    if constexpr (has_direct_operands<Op>) {
      h.adjoint = [](const void* bound, const diagonal_tile& at, const diagonal_panels<Acc>& panels,
                     const diagonal_adjoints<Acc>& adjoints, const direct_adjoint<Acc>& w) noexcept {
        const auto* my = static_cast<const self*>(bound);
        my->op->adjoint(at, panels, adjoints, w, *my->d_y, *my->d);
      };
    } else {
      h.cotangent = [](const void* bound, const diagonal_tile& at, const diagonal_panels<Acc>& from,
                       const diagonal_adjoints<Acc>& to) noexcept {
        const auto* my = static_cast<const self*>(bound);
        my->op->cotangent(at, from, to, *my->d_y);
      };
      h.contract = [](const void* bound, const diagonal_tile& at, const diagonal_panels<Acc>& from,
                      const diagonal_adjoints<Acc>& to) noexcept {
        static_cast<const self*>(bound)->op->contract(at, from, to);
      };
      h.store = [](const void* bound, const diagonal_tile& at, const diagonal_panels<Acc>& from,
                   const diagonal_adjoints<Acc>& sums) noexcept {
        const auto* my = static_cast<const self*>(bound);
        my->op->store_gradients(at, from, sums, *my->d_y, *my->d, my->accumulate);
      };
      h.finish = [](const void* bound, const diagonal_tile& at, const diagonal_panels<Acc>& from,
                    const diagonal_adjoints<Acc>& sums) noexcept {
        const auto* my = static_cast<const self*>(bound);
        my->op->finish_gradients(at, from, sums, *my->d, my->accumulate);
      };
    }
    if constexpr (has_shared_operands<Op>) {
      h.drain = [](const void* bound, int which, index_t batch, index_t token, index_t count, index_t group,
                   index_t groups, Acc* panel, index_t row) noexcept {
        const auto* my = static_cast<const self*>(bound);
        drain_shared(which == 0 ? my->d->B : my->d->C, batch, token, count, group, groups, panel, row, my->accumulate);
      };
    }
    return h;
  }

 private:
  /// Rows [groups, planes, shared_row] of tokens to a view [B, L, G, N].
  template <class Acc, class X>
  static void drain_shared(const view<X, 4>& to, index_t batch, index_t token, index_t count, index_t group,
                           index_t groups, Acc* panel, index_t row, bool accumulate) noexcept {
    using Real = real_of<X>;
    constexpr index_t planes = is_complex<X> ? 2 : 1;
    const index_t part_row = whole_vectors<Acc>(to.extent(3));
    for (index_t i = 0; i < groups; ++i) {
      for (index_t part = 0; part < planes; ++part) {
        auto* first = reinterpret_cast<Real*>(to.pointer(batch, token, group + i, 0)) + part;
        drain_tile(panel + (i * planes + part) * part_row, row,
                   view<Real, 2>(first, {count, to.extent(3)}, {planes * to.stride(1), planes * to.stride(3)}),
                   accumulate);
      }
    }
  }
};

/// The plan of a backward pass: longer tiles, since states are kept once in each, and more channels, over which sums of
/// lanes become cheap. No group of channels is cut that is smaller than a task, and no task reaches over the end of a
/// larger one. Factored operands have one group in a task.
template <class Acc>
diagonal_plan backward_plan(diagonal_plan p, const diagonal_extents& n, const index_t (&runs)[2]) noexcept {
  constexpr index_t W = simd::width<Acc>;
  constexpr index_t wide = 256 / static_cast<index_t>(sizeof(Acc));
  const auto fits = [&](index_t run) noexcept { return run == n.channels || p.step % run == 0 || run % p.step == 0; };
  if (p.direct) {
    p.tokens = std::min<index_t>(p.tokens, 16);
    return p;
  }
  p.brief = false;
  p.step = p.factored ? std::min({wide, runs[0], runs[1]}) : W;
  while (p.step > 1 && !(fits(runs[0]) && fits(runs[1]))) --p.step;
  p.row = whole_vectors<Acc>(p.step);
  p.tokens = p.factored ? 32 : std::clamp<index_t>(16384 / std::max<index_t>(1, n.states * p.planes * W), 8, 32);
  p.tokens = std::clamp<index_t>(n.length, 1, p.tokens);
  p.blocks = (n.channels + p.step - 1) / p.step;
  return p;
}

/// How the gradient `to` of B or C is summed.
template <class X>
diagonal_shared_sum shared_sum(const view<X, 4>& to, index_t run, const diagonal_extents& n,
                               const diagonal_plan& plan) noexcept {
  diagonal_shared_sum sum;
  sum.wanted = to.present();
  if (!sum.wanted) return sum;
  sum.over_batch = to.stride(0) == 0 && n.batch > 1;
  sum.over_time = to.stride(1) == 0 && n.length > 1;
  sum.run = run;
  sum.complete = run <= plan.step;
  sum.groups = std::max<index_t>(1, plan.step / run);
  sum.batch = n.batch;
  sum.length = n.length;
  return sum;
}

template <class Acc, class Op, class State, class StateGradient>
diagonal_backward_problem<Acc> describe_backward(const diagonal_binding<Op>& bound,
                                                 const diagonal_backward_binding<Op>& back, const State& st,
                                                 const StateGradient& d_st, bool swept_in_place,
                                                 index_t workers) noexcept {
  const Op& op = *bound.op;
  const gradient<Op>& d = *back.d;
  diagonal_backward_problem<Acc> q{};
  q.forward = describe_diagonal<Acc>(bound, st, false);
  q.forward.final = {};
  q.hooks = back.template hooks<Acc>();
  index_t runs[2] = {1, 1};
  if constexpr (has_shared_operands<Op>) {
    runs[0] = std::max<index_t>(1, op.group_size(op.B));
    runs[1] = std::max<index_t>(1, op.group_size(op.C));
  }
  const diagonal_plan plan =
      plan_of<Acc>(op, has_direct_operands<Op> ? 1 : q.forward.sequences, false, swept_in_place, workers);
  q.forward.plan = backward_plan<Acc>(plan, q.forward.n, runs);
  if constexpr (has_shared_operands<Op>) {
    q.shared[0] = shared_sum(d.B, runs[0], q.forward.n, q.forward.plan);
    q.shared[1] = shared_sum(d.C, runs[1], q.forward.n, q.forward.plan);
    if (d.A.present()) {
      q.d_A = diagonal_pool<Acc>::of(view<typename Op::number, 3>(d.A.data(), {1, d.A.extent(0), d.A.extent(1)},
                                                                  {0, d.A.stride(0), d.A.stride(1)}));
    }
  }
  q.d_final = diagonal_pool<Acc>::of(d_st.final);
  q.d_initial = diagonal_pool<Acc>::of(d_st.initial);
  q.accumulate = back.accumulate;
  if constexpr (!has_direct_operands<Op>) q.wants_y = op.gradient_reads_output(d);
  return q;
}

/// Whether direct operands are swept in place backwards too.
template <class Op>
bool gradients_in_place(const Op& op, const view<const typename Op::scalar, 3>& d_y, const gradient<Op>& d) noexcept {
  bool all = swept_in_place(op, d_y);
  if constexpr (has_direct_operands<Op>) {
    op.for_gradients(d, [&](const char*, const auto& x) noexcept { all = all && in_rows(x); });
  }
  return all;
}

template <class Acc>
std::size_t backward_scratch_of(const diagonal_backward_problem<Acc>& q) noexcept {
  arena counted;
  diagonal_backward_scratch<Acc>::carve(q, counted);
  return counted.used();
}

template <class Op, class State, class StateGradient>
void run_diagonal_backward(const Op& op, const State& st, const view<const typename Op::scalar, 3>& d_y,
                           const StateGradient& d_st, const gradient<Op>& d, const options& how, context& ctx) {
  using Acc = sweep_t<typename Op::scalar, real_of<typename State::storage_type>>;
  using engine = diagonal_backward_task<Acc, simd::default_arch, is_complex<typename Op::number>>;
  using scratch = diagonal_backward_scratch<Acc>;
  const view<typename Op::scalar, 3> no_output;
  const diagonal_binding<Op> bound{&op, &no_output};
  const diagonal_backward_binding<Op> back{&op, &d_y, &d, how.accumulate};
  const auto q = describe_backward<Acc>(bound, back, st, d_st, gradients_in_place(op, d_y, d), ctx.workers());
  const std::size_t bytes = backward_scratch_of(q);
  const index_t workers = ctx.workers(), blocks = q.forward.plan.blocks;
  ctx.reserve(static_cast<std::size_t>(workers) * bytes);

  const bool apart = q.shared[0].complete && q.shared[1].complete;
  if (apart) {
    run_tasks(ctx, blocks, bytes, [&](index_t block, arena memory) noexcept { engine::run(q, block, memory); });
    return;
  }
  // As many tasks at a time as there are memories, each in its own; then their sums, in order.
  const auto scratch_of = [&](index_t i) noexcept {
    arena memory = ctx.scratch(i, bytes);
    return scratch::carve(q, memory);
  };
  for (index_t first = 0; first < blocks; first += workers) {
    const index_t count = std::min(workers, blocks - first);
    run_tasks(ctx, count, bytes, [&](index_t i, arena) noexcept { engine::run(q, first + i, ctx.scratch(i, bytes)); });
    run_tasks(ctx, workers, bytes, [&](index_t piece, arena) noexcept {
      const scratch in = scratch_of(0);
      for (index_t i = 0; i < count; ++i) {
        const scratch of = scratch_of(i);
        for (const int which : {0, 1}) {
          const index_t rows = q.shared[which].complete ? 0 : q.shared[which].rows();
          engine::gather(q, of, in, first + i, which, piece * rows / workers, (piece + 1) * rows / workers);
        }
      }
    });
  }
}

/// Scratch of one worker, whatever gradients are asked for.
template <class Op>
std::size_t diagonal_backward_bytes(const Op& op) noexcept {
  const view<typename Op::scalar, 3> no_output;
  const diagonal_binding<Op> bound{&op, &no_output};
  const cotangent<view<typename Op::scalar, 3>> d_y;
  const auto of_gradient = [&]<class Acc>(Acc, const gradient<Op>& d) noexcept {
    const diagonal_backward_binding<Op> back{&op, &d_y, &d, false};
    const typename Op::default_state st{};
    const auto scratch = [&](bool in_place) noexcept {
      const typename Op::default_state_gradient d_st{};
      return backward_scratch_of(describe_backward<Acc>(bound, back, st, d_st, in_place, 1));
    };
    return std::max(scratch(false), scratch(true));
  };
  const auto most_of = [&](const gradient<Op>& d) noexcept {
    return std::max(of_gradient(accum_t<typename Op::scalar>{}, d), of_gradient(double{}, d));
  };
  if constexpr (has_shared_operands<Op>) {
    const auto like = [](const auto& x, bool over_batch, bool over_time) noexcept {
      using X = typename std::remove_cvref_t<decltype(x)>::value_type;
      shape<4> strides = core::row_major(x.extents());
      if (over_batch && x.stride(0) == 0) strides[0] = 0;
      if (over_time && x.stride(1) == 0) strides[1] = 0;
      return view<X, 4>(nullptr, x.extents(), strides);
    };
    std::size_t most = 0;
    for (unsigned over = 0; over < 16; ++over) {
      gradient<Op> d{};
      d.B = like(op.B, (over & 1U) != 0, (over & 2U) != 0);
      d.C = like(op.C, (over & 4U) != 0, (over & 8U) != 0);
      most = std::max(most, most_of(d));
    }
    return most;
  } else {
    return most_of({});
  }
}

template <class Op, class State, class StateGradient>
status check_diagonal_backward(const Op& op, const State& st, const view<const typename Op::scalar, 3>& d_y,
                               const StateGradient& d_st, const gradient<Op>& d, const options& how) noexcept {
  static_assert(is_complex<typename StateGradient::storage_type> == is_complex<typename Op::number>,
                "the gradient of the state is complex where the state is, and only there");
  core::checker ask(Op::name);
  check_diagonal_call(ask, op, without_end(st), how);
  if (!ask) return ask.result();
  const diagonal_extents n = op.extents();
  ask.extents("d_y", d_y, {n.batch, n.length, n.channels}, "[B, L, D]");
  check_state_gradient(ask, d_st, shape<3>{diagonal_sequences(op), n.channels, n.states}, "[sequences, D, N]");
  op.check_gradients(ask, d);
  const auto gradients = [&](const auto& f) noexcept { op.for_gradients(d, f); };
  check_gradients_apart(ask, st, "d_y", d_y, d_st, gradients,
                        [&](const char* name, const auto& x) noexcept { op.check_written(ask, name, x); });
  return ask.result();
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

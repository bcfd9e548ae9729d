// L5: gradients of systems whose channels share a state, for every operator of shared_state.hpp.
//
// Of h_t = A̅ h_{t-1} + B̅ u_t, y_t = f Re(C h_t) + D u_t with cotangents d_y and, of the final state, e:
//
//   g_t = f Cᴴ d_y,t + e,   e ← A̅ᴴ g_t                from the last token to the first; g_t is the cotangent of h_t
//   d_u = Re(B̅ᴴ g) + Dᵀ d_y                            d_A̅ = Σ g_t h_{t-1}ᴴ, of a diagonal its diagonal
//   d_B̅ = Σ g_t u_tᵀ,   d_C = f Σ d_y,t h_tᴴ,   d_D = Σ d_y,t u_tᵀ
//
// States are kept once a tile and made again inside. A task has some sequences and sums of its own; the sums are added
// in the order of tasks, which the shape decides. Of B̅ = w ⊙ B: d_B = w* ⊙ d_B̅ and d_w = Σ_m d_B̅ B*.
#pragma once

#include <ogive/engine/shared_state_task.hpp>
#include <ogive/linalg/transpose.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// What a backward pass has beside the panels of the forward one. Rows of gradients are as those of what they belong
/// to.
template <class Acc>
struct shared_state_adjoints {
  Acc* A;       ///< A̅ [N, row]; of a diagonal nothing
  Acc* B;       ///< B̅ [planes, N, input_row]
  Acc* C;       ///< [P, row]: f C*
  Acc* D;       ///< [P, input_row]; of a diagonal nothing
  Acc* g;       ///< [tokens, row]
  Acc* e;       ///< [row]
  Acc* d_u;     ///< [tokens, input_row]
  Acc* states;  ///< [tiles, row]: the state before each
  Acc *d_A, *d_B, *d_C, *d_D;
  Acc* sums;    ///< these four, of a task
  Acc* totals;  ///< likewise, of all tasks so far
  index_t size;

  static shared_state_adjoints carve(const shared_state_panels<Acc>& p, index_t length, bool diagonal,
                                     arena& room) noexcept {
    const index_t planes = diagonal ? 2 : 1, N = p.states, M = p.inputs, P = p.outputs;
    shared_state_adjoints a{};
    a.A = room.take<Acc>(diagonal ? 0 : N * p.row);
    a.B = room.take<Acc>(planes * N * p.input_row);
    a.C = room.take<Acc>(P * p.row);
    a.D = room.take<Acc>(diagonal ? 0 : P * p.input_row);
    a.g = room.take<Acc>(p.tokens * p.row);
    a.e = room.take<Acc>(p.row);
    a.d_u = room.take<Acc>(p.tokens * p.input_row);
    a.states = room.take<Acc>((length + p.tokens - 1) / p.tokens * p.row);
    const index_t sizes[] = {diagonal ? p.row : N * p.row, M * p.row, P * p.row,
                             diagonal ? p.output_row : P * p.input_row};
    for (const index_t size : sizes) a.size += size;
    a.sums = room.take<Acc>(a.size);
    a.totals = room.take<Acc>(a.size);
    Acc* at = a.sums;
    Acc** const parts[] = {&a.d_A, &a.d_B, &a.d_C, &a.d_D};
    for (int i = 0; i < 4 && at != nullptr; at += sizes[i++]) *parts[i] = at;
    return a;
  }

  /// The same, whose sums are the totals.
  shared_state_adjoints of_all() const noexcept {
    shared_state_adjoints all = *this;
    for (Acc** part : {&all.d_A, &all.d_B, &all.d_C, &all.d_D}) *part = totals + (*part - sums);
    return all;
  }
};

/// Which sums over tokens are wanted.
struct shared_state_wishes {
  bool A, B, C, D;
  bool any() const noexcept { return A || B || C || D; }
};

/// The matrices turned back, and sums of 0.
template <bool Diagonal, class Acc>
OGIVE_NOINLINE void begin_shared_adjoints(const shared_state_panels<Acc>& p,
                                          const shared_state_adjoints<Acc>& a) noexcept {
  using linalg::panel;
  using linalg::transpose;
  constexpr index_t planes = Diagonal ? 2 : 1;
  const index_t N = p.states, M = p.inputs, P = p.outputs;
  for (index_t part = 0; part < planes; ++part) {
    transpose(M, N, {p.B + part * p.plane, p.row}, panel<Acc>{a.B + part * N * p.input_row, p.input_row});
    transpose(N, P, {p.C + part * p.output_row, planes * p.output_row}, panel<Acc>{a.C + part * p.plane, p.row});
  }
  if constexpr (Diagonal) {
    zero_tile(a.d_A, 0, 0, 1, p.row);
    zero_tile(a.d_D, 0, 0, 1, p.output_row);
  } else {
    transpose(N, N, {p.A, p.row}, panel<Acc>{a.A, p.row});
    if (p.D != nullptr) transpose(M, P, {p.D, p.output_row}, panel<Acc>{a.D, p.input_row});
    zero_tile(a.d_A, p.row, 0, N, p.row);
    zero_tile(a.d_D, p.input_row, 0, P, p.input_row);
  }
  zero_tile(a.d_B, p.row, 0, M, p.row);
  zero_tile(a.d_C, p.row, 0, P, p.row);
}

/// g of a tile, from f Cᴴ d_y that it holds, and e, from its last token to its first. Padding hands e on.
template <bool Diagonal, class Acc>
OGIVE_NOINLINE void sweep_shared_back(const shared_state_panels<Acc>& p, const shared_state_adjoints<Acc>& a,
                                      index_t count, index_t live) noexcept {
  using arch = simd::default_arch;
  constexpr index_t W = simd::width<Acc>;
  if constexpr (Diagonal) {
    for (index_t j = 0; j < p.width; j += W) {
      const auto a_re = simd::load<arch>(p.A + j), a_im = simd::load<arch>(p.A + p.plane + j);
      auto re = simd::load<arch>(a.e + j), im = simd::load<arch>(a.e + p.plane + j);
      for (index_t t = count; t-- > 0;) {
        Acc* at = a.g + t * p.row + j;
        const auto g_re = simd::load<arch>(at) + re, g_im = simd::load<arch>(at + p.plane) + im;
        re = g_re;
        im = g_im;
        if (t >= live) continue;
        simd::store(at, g_re);
        simd::store(at + p.plane, g_im);
        re = simd::fma(a_re, g_re, a_im * g_im);
        im = simd::fnma(a_im, g_re, a_re * g_im);
      }
      simd::store(a.e + j, re);
      simd::store(a.e + p.plane + j, im);
    }
  } else {
    for (index_t t = count; t-- > 0;) {
      Acc* g = a.g + t * p.row;
      for (index_t j = 0; j < p.width; j += W) simd::store(g + j, simd::load<arch>(g + j) + simd::load<arch>(a.e + j));
      if (t >= live) {
        p.hold(g, a.e);
      } else {
        linalg::gemv_ab(p.states, p.states, g, {a.A, p.row}, a.e);
      }
    }
  }
}

/// d_A̅ of a diagonal: Σ g_t h_{t-1}*.
template <class Acc>
OGIVE_NOINLINE void add_mode_slopes(const shared_state_panels<Acc>& p, const shared_state_adjoints<Acc>& a,
                                    index_t live) noexcept {
  using arch = simd::default_arch;
  for (index_t j = 0; j < p.width; j += simd::width<Acc>) {
    auto re = simd::load<arch>(a.d_A + j), im = simd::load<arch>(a.d_A + p.plane + j);
    for (index_t t = 0; t < live; ++t) {
      const Acc *g = a.g + t * p.row + j, *h = p.after(t - 1) + j;
      const auto g_re = simd::load<arch>(g), g_im = simd::load<arch>(g + p.plane);
      const auto h_re = simd::load<arch>(h), h_im = simd::load<arch>(h + p.plane);
      re = simd::fma(g_re, h_re, simd::fma(g_im, h_im, re));
      im = simd::fma(g_im, h_re, simd::fnma(g_re, h_im, im));
    }
    simd::store(a.d_A + j, re);
    simd::store(a.d_A + p.plane + j, im);
  }
}

/// A tile whose u, states and d_y (in the panel of y) are there: g, e, d_u and the sums.
template <bool Diagonal, class Acc>
OGIVE_NOINLINE void shared_state_back(const shared_state_panels<Acc>& p, const shared_state_adjoints<Acc>& a,
                                      index_t count, index_t live, bool d_u, const shared_state_wishes& sums) noexcept {
  using arch = simd::default_arch;
  using linalg::add;
  using linalg::panel;
  constexpr index_t planes = Diagonal ? 2 : 1, W = simd::width<Acc>;
  const index_t N = p.states, M = p.inputs, P = p.outputs;
  for (index_t part = 0; part < planes; ++part) {
    linalg::gemm_ab(count, N, P, {p.y, p.output_row}, {a.C + part * p.plane, p.row},
                    panel<Acc>{a.g + part * p.plane, p.row});
  }
  sweep_shared_back<Diagonal>(p, a, count, live);
  for (index_t part = 0; part < planes; ++part) {
    const Acc* g = a.g + part * p.plane;
    if (sums.B)
      linalg::gemm_atb(M, N, live, {p.u, p.input_row}, {g, p.row}, panel<Acc>{a.d_B + part * p.plane, p.row}, add{});
    if (sums.C) {
      linalg::gemm_atb(P, N, count, {p.y, p.output_row}, {p.after(0) + part * p.plane, p.row},
                       panel<Acc>{a.d_C + part * p.plane, p.row}, add{});
    }
  }
  if (sums.A) {
    if constexpr (Diagonal) {
      add_mode_slopes(p, a, live);
    } else {
      linalg::gemm_atb(N, N, live, {a.g, p.row}, {p.h, p.row}, panel<Acc>{a.d_A, p.row}, add{});
    }
  }
  if (sums.D) {
    if constexpr (Diagonal) {
      for (index_t t = 0; t < count; ++t) {
        const Acc *y = p.y + t * p.output_row, *u = p.u + t * p.input_row;
        for (index_t j = 0; j < P; j += W) {
          simd::store(a.d_D + j,
                      simd::fma(simd::load<arch>(y + j), simd::load<arch>(u + j), simd::load<arch>(a.d_D + j)));
        }
      }
    } else {
      linalg::gemm_atb(P, M, count, {p.y, p.output_row}, {p.u, p.input_row}, panel<Acc>{a.d_D, p.input_row}, add{});
    }
  }
  if (!d_u) return;
  const panel<Acc> to{a.d_u, p.input_row};
  linalg::gemm_ab(live, M, N, {a.g, p.row}, {a.B, p.input_row}, to);
  if constexpr (Diagonal) {
    linalg::gemm_ab(live, M, N, {a.g + p.plane, p.row}, {a.B + N * p.input_row, p.input_row}, to, add{});
  }
  zero_tile(a.d_u, p.input_row, live, count, p.input_row);
  if (p.D == nullptr) return;
  if constexpr (Diagonal) {
    for (index_t t = 0; t < count; ++t) {
      const Acc* y = p.y + t * p.output_row;
      for (index_t j = 0; j < M; j += W) {
        Acc* at = a.d_u + t * p.input_row + j;
        simd::store(at, simd::fma(simd::load<arch>(p.D + j), simd::load<arch>(y + j), simd::load<arch>(at)));
      }
    }
  } else {
    linalg::gemm_ab(count, M, P, {p.y, p.output_row}, {a.D, p.input_row}, to, add{});
  }
}

/// x[i, j] ← panel[i, j], or added to it; complex numbers from their parts, `part` apart.
template <class Acc, class X>
void drain_numbers(Acc* panel, index_t row, index_t part, const view<X, 2>& x, bool add) noexcept {
  using Real = real_of<X>;
  constexpr index_t parts = is_complex<X> ? 2 : 1;
  for (index_t k = 0; k < parts; ++k) {
    drain_tile(
        panel + k * part, row,
        view<Real, 2>(reinterpret_cast<Real*>(x.data()) + k, x.extents(), {parts * x.stride(0), parts * x.stride(1)}),
        add);
  }
}

/// d[n] ← x, or added to it, where it is wanted.
template <class X, class Number>
void put_gradient(const view<X, 1>& d, index_t n, const Number& x, bool add) noexcept {
  if (d.present()) d[n] = add ? d[n] + X(x) : X(x);
}

/// Room for one worker: of a sequence as long as the row.
template <class Acc, class Op>
std::size_t shared_state_backward_bytes(const Op& op) noexcept {
  constexpr bool diagonal = is_complex<typename Op::number>;
  arena counted;
  const auto p = shared_state_panels<Acc>::carve(op.extents(), diagonal, true, counted);
  shared_state_adjoints<Acc>::carve(p, op.extents().length, diagonal, counted);
  return counted.used();
}

/// A sequence: forward for the states, then back.
template <class Acc, class Op, class State, class StateGradient>
void run_shared_sequence_back(const shared_state_panels<Acc>& p, const shared_state_adjoints<Acc>& a, const Op& op,
                              const State& st, const view<const typename Op::scalar, 3>& d_y, const StateGradient& d_st,
                              const typename Op::gradient& d, const shared_state_wishes& sums, bool accumulate,
                              index_t sequence) noexcept {
  constexpr bool diagonal = is_complex<typename Op::number>;
  constexpr index_t planes = diagonal ? 2 : 1;
  using T = typename Op::scalar;
  const shared_sequence at = shared_sequence::of(op, sequence);
  const auto tiles_of = [&](index_t tile, const auto& f) noexcept {
    const index_t t = at.begin + tile * p.tokens, count = std::min(p.tokens, at.end - t);
    f(t, count, std::clamp<index_t>(at.begin + at.live - t, 0, count));
  };
  const auto advance = [&](index_t t, index_t count, index_t live) noexcept {
    advance_shared_state(p, op, at.row, t, count, live, p.D != nullptr);
  };
  const index_t tiles = (at.end - at.begin + p.tokens - 1) / p.tokens;
  load_shared_state(p, st, sequence);
  for (index_t tile = 0; tile < tiles; ++tile) {
    p.hold(p.h, a.states + tile * p.row);
    if (tile + 1 == tiles) break;
    tiles_of(tile, [&](index_t t, index_t count, index_t live) noexcept {
      advance(t, count, live);
      p.hold(p.after(count - 1), p.h);
    });
  }
  for (index_t part = 0; part < planes; ++part) {
    if (d_st.final.present()) {
      load_tile(state_part(d_st.final, sequence, part), a.e + part * p.plane, p.row);
    } else {
      zero_tile(a.e + part * p.plane, 0, 0, 1, p.plane);
    }
  }
  for (index_t tile = tiles; tile-- > 0;) {
    tiles_of(tile, [&](index_t t, index_t count, index_t live) noexcept {
      p.hold(a.states + tile * p.row, p.h);
      advance(t, count, live);
      if (d_y.present()) {
        load_tile(view<const T, 2>(d_y.pointer(at.row, t, 0), {count, p.outputs}, {d_y.stride(1), d_y.stride(2)}), p.y,
                  p.output_row);
      } else {
        zero_tile(p.y, p.output_row, 0, count, p.output_row);
      }
      shared_state_back<diagonal>(p, a, count, live, d.u.present(), sums);
      if (d.u.present()) {
        drain_tile(a.d_u, p.input_row,
                   view<T, 2>(d.u.pointer(at.row, t, 0), {count, p.inputs}, {d.u.stride(1), d.u.stride(2)}),
                   accumulate);
      }
    });
  }
  if (!d_st.initial.present()) return;
  for (index_t part = 0; part < planes; ++part) {
    drain_tile(a.e + part * p.plane, p.row, state_part(d_st.initial, sequence, part), accumulate);
  }
}

/// The sums to where they are wanted.
template <class Acc, class Op>
void finish_shared_gradients(const shared_state_panels<Acc>& p, const shared_state_adjoints<Acc>& a, const Op& op,
                             const typename Op::gradient& d, bool accumulate) noexcept {
  if constexpr (is_complex<typename Op::number>) {
    using number = std::complex<Acc>;
    const auto B = op.input();
    for (index_t n = 0; n < p.states; ++n) {
      const number w(p.w[n], p.w[p.plane + n]);
      number d_w(0);
      for (index_t m = 0; m < p.inputs; ++m) {
        Acc &re = a.d_B[m * p.row + n], &im = a.d_B[m * p.row + p.plane + n];
        const number d_B(re, im);
        d_w += d_B * std::conj(number(B(n, m)));
        re = (std::conj(w) * d_B).real();
        im = (std::conj(w) * d_B).imag();
      }
      op.mode_gradient(n, number(a.d_A[n], a.d_A[p.plane + n]), d_w, d, accumulate);
    }
    for (index_t i = 0; i < p.outputs; ++i) {
      for (index_t n = 0; n < p.states; ++n) {
        a.d_C[i * p.row + n] *= Acc(Op::parts);
        a.d_C[i * p.row + p.plane + n] *= Acc(-Op::parts);
      }
    }
    if (d.D.present()) drain_tile(a.d_D, p.output_row, as_row(d.D), accumulate);
  } else {
    if (op.d_transition(d).present()) drain_tile(a.d_A, p.row, op.d_transition(d), accumulate);
    if (d.D.present()) drain_tile(a.d_D, p.input_row, d.D, accumulate);
  }
  if (op.d_input(d).present()) drain_numbers(a.d_B, p.row, p.plane, op.d_input(d).permute({1, 0}), accumulate);
  if (op.d_output(d).present()) drain_numbers(a.d_C, p.row, p.plane, op.d_output(d), accumulate);
}

/// totals ← totals + sums of another memory, or sums alone if it is the first: every `pieces`-th vector.
template <class Acc>
OGIVE_NOINLINE void add_shared_sums(const shared_state_adjoints<Acc>& all, const shared_state_adjoints<Acc>& own,
                                    bool first, index_t piece, index_t pieces) noexcept {
  constexpr index_t W = simd::width<Acc>;
  for (index_t i = piece * W; i < all.size; i += pieces * W) {
    const auto x = simd::load(own.sums + i);
    simd::store(all.totals + i, first ? x : simd::load(all.totals + i) + x);
  }
}

/// The tasks of a backward pass, each in a worker's memory.
template <class Acc, class Op, class State, class StateGradient>
struct shared_backward_tasks {
  static constexpr bool diagonal = is_complex<typename Op::number>;
  const Op& op;
  const State& st;
  const view<const typename Op::scalar, 3>& d_y;
  const StateGradient& d_st;
  const typename Op::gradient& d;
  shared_state_wishes sums;
  bool accumulate;
  shared_state_plan plan;

  OGIVE_NOINLINE void run(index_t task, arena memory) const noexcept {
    const auto p = packed_panels<Acc>(op, op.extents(), memory);
    const auto a = shared_state_adjoints<Acc>::carve(p, op.extents().length, diagonal, memory);
    begin_shared_adjoints<diagonal>(p, a);
    const index_t begin = task * plan.group, end = std::min(begin + plan.group, plan.sequences);
    for (index_t s = begin; s < end; ++s) run_shared_sequence_back(p, a, op, st, d_y, d_st, d, sums, accumulate, s);
  }
  /// Adds the sums that a task left in `of` to those in `all`.
  void add(index_t task, arena of, arena all, index_t piece, index_t pieces) const noexcept {
    add_shared_sums(adjoints(all), adjoints(of), task == 0, piece, pieces);
  }
  OGIVE_NOINLINE void finish(arena memory) const noexcept {
    const auto p = packed_panels<Acc>(op, op.extents(), memory);
    auto a = shared_state_adjoints<Acc>::carve(p, op.extents().length, diagonal, memory);
    if (plan.tasks == 0) std::fill_n(a.totals, a.size, Acc(0));
    finish_shared_gradients(p, a.of_all(), op, d, accumulate);
  }

  /// As many tasks at a time as there are memories, then what they left, in order. A member of a team shares no memory
  /// with the others: one runs all.
  void run_all(std::size_t bytes, context& ctx) const noexcept {
    const index_t workers = ctx.workers();
    if (!sums.any()) {
      run_tasks(ctx, plan.tasks, bytes, [&](index_t task, arena memory) noexcept { run(task, memory); });
      return;
    }
    if (workers == 1) {
      run_tasks(ctx, 1, bytes, [&](index_t, arena memory) noexcept {
        for (index_t task = 0; task < plan.tasks; ++task) run(task, memory), add(task, memory, memory, 0, 1);
        finish(memory);
      });
      return;
    }
    for (index_t first = 0; first < plan.tasks; first += workers) {
      const index_t count = std::min(workers, plan.tasks - first);
      run_tasks(ctx, count, bytes, [&](index_t i, arena) noexcept { run(first + i, ctx.scratch(i, bytes)); });
      run_tasks(ctx, workers, bytes, [&](index_t piece, arena) noexcept {
        for (index_t i = 0; i < count; ++i) {
          add(first + i, ctx.scratch(i, bytes), ctx.scratch(0, bytes), piece, workers);
        }
      });
    }
    run_tasks(ctx, 1, bytes, [&](index_t, arena) noexcept { finish(ctx.scratch(0, bytes)); });
  }

 private:
  shared_state_adjoints<Acc> adjoints(arena memory) const noexcept {
    const auto p = carve_panels<Acc>(op, op.extents(), memory);
    return shared_state_adjoints<Acc>::carve(p, op.extents().length, diagonal, memory);
  }
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

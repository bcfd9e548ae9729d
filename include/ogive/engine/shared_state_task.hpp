// L5: what an operator tells the engine of systems whose channels share one state, and the work on one sequence.
//
//   h_t = A̅ h_{t-1} + B̅ u_t,   y_t = Re(C h_t) + D u_t
//
// The matrices are packed once per task, transposed, in the accumulation type. Then a tile of tokens at a time: B̅ u is
// one product, the state goes through the tile token by token (a diagonal A̅ in registers, lanes across modes), C h + D
// u is a product again. A token's numbers have the same bits in any tile.
#pragma once

#include <ogive/core/scratch.hpp>
#include <ogive/engine/checks.hpp>
#include <ogive/engine/diagonal_policy.hpp>
#include <ogive/engine/kept_panels.hpp>
#include <ogive/engine/unroll.hpp>
#include <ogive/linalg/gemv.hpp>

#include <algorithm>

namespace ogive {
inline namespace OGIVE_ABI {

/// The sizes of one call.
struct shared_state_extents {
  index_t batch = 0;
  index_t length = 0;
  index_t inputs = 0;   ///< M
  index_t states = 0;   ///< N
  index_t outputs = 0;  ///< P
};

/// A complex mode: h ← a h + w (B u).
template <class Acc>
struct shared_mode {
  std::complex<Acc> a, w;
};

/// An operator of this engine: an aggregate of views with its letters, and below them
/// - `scalar` (the tensors' type), `accum`, `number` (real: A̅ is a matrix; complex: a diagonal), `state_of<S>`,
///   `default_state`, `name`;
/// - `u` [B, L, M], `offsets`, `lengths`, `extents()`, `check_fields(checker&)` of everything but offsets and lengths;
/// - `fields(f)`, which calls f(name, view) for each view that is read;
/// - `input()` (B̅, or B of the modes) [N, M], `output()` (C) [P, N], and `D`, which may be absent;
/// - real: `transition()` (A̅) [N, N], and D is [P, M];
/// - complex: `mode<Acc>(n)`, and `parts`, the number of times that Re(C h) counts; D is [M], M = P.
/// and with gradients, of type `gradient` with u and D,
/// - `for_gradients(d, f)`, which calls f(name, gradient, field) for each, and `wishes(d)`;
/// - `d_input(d)`, `d_output(d)`; real: `d_transition(d)`; complex: `mode_gradient(n, d_a, d_w, d, accumulate)`.
template <class Op>
concept shared_state_operator = requires(const Op& op) {
  typename Op::number;
  { op.extents() } -> std::same_as<shared_state_extents>;
  op.input();
  op.output();
};

/// B, C and D of an operator of N modes, and u.
template <class Op>
void check_shared_modes(core::checker& ask, const Op& op, index_t N) noexcept {
  const index_t M = op.u.extent(2);
  ask.given("u", op.u).given("B", op.B).given("C", op.C).extents("u", op.u, {-1, -1, -1}, "[B, L, M]");
  ask.extents("B", op.B, {N, M}, "[N, M], N modes, M as u").extents("D", op.D, {M}, "[M] as u");
  ask.extents("C", op.C, {op.D.present() ? M : -1, N}, "[P, N], N modes, P = M where there is a D");
}

namespace detail {

/// The panels of a task. A row of the state is a plane, or two, of real and of imaginary parts, `plane` numbers apart.
/// It is worked on in whole vectors, `width` numbers: what the last lanes hold is never read. Other rows are whole
/// vectors too.
template <class Acc>
struct shared_state_panels {
  index_t inputs, states, outputs, tokens;
  index_t width, plane, row, input_row, output_row;
  Acc* A;  ///< A̅ᵀ [N, row], or the planes of a diagonal
  Acc* w;  ///< the planes of the modes' weights, while matrices are packed
  Acc* B;  ///< B̅ᵀ [M, row]
  Acc* C;  ///< Cᵀ [N, planes, output_row], the second one −Im C
  Acc* D;  ///< Dᵀ [M, output_row], or a row; null where there is none
  Acc* u;  ///< [tokens, input_row]
  Acc* h;  ///< [1 + tokens, row]: the state before the tile, then after each token
  Acc* y;  ///< [tokens, output_row]

  static constexpr index_t most_tokens = 32;

  static shared_state_panels carve(const shared_state_extents& n, bool diagonal, bool skips, arena& room) noexcept {
    return carve(n, diagonal, skips, room, room);
  }
  /// The coefficients, A to D, from an arena of their own.
  static shared_state_panels carve(const shared_state_extents& n, bool diagonal, bool skips, arena& coefficients,
                                   arena& room) noexcept {
    constexpr index_t W = simd::width<Acc>;
    const index_t planes = diagonal ? 2 : 1;
    shared_state_panels p{};
    p.inputs = n.inputs;
    p.states = n.states;
    p.outputs = n.outputs;
    p.tokens = std::clamp<index_t>(n.length, 1, most_tokens);
    p.width = (n.states + W - 1) / W * W;
    p.plane = linalg::padded_stride<Acc>(planes * p.width) == planes * p.width ? p.width : p.width + W;
    p.row = planes * p.plane;
    p.input_row = linalg::padded_stride<Acc>(n.inputs);
    p.output_row = linalg::padded_stride<Acc>(n.outputs);
    p.A = coefficients.take<Acc>(diagonal ? 2 * p.plane : n.states * p.row);
    if (diagonal) p.w = coefficients.take<Acc>(2 * p.plane);
    p.B = coefficients.take<Acc>(n.inputs * p.row);
    p.C = coefficients.take<Acc>(planes * n.states * p.output_row);
    Acc* D = coefficients.take<Acc>((diagonal ? 1 : n.inputs) * p.output_row);
    if (skips) p.D = D;
    p.u = room.take<Acc>(p.tokens * p.input_row);
    p.h = room.take<Acc>((1 + p.tokens) * p.row);
    p.y = room.take<Acc>(p.tokens * p.output_row);
    return p;
  }

  static std::size_t coefficient_bytes(const shared_state_extents& n, bool diagonal) noexcept {
    arena counted, rest;
    carve(n, diagonal, true, counted, rest);
    return counted.used();
  }

  Acc* after(index_t token) const noexcept { return h + (1 + token) * row; }
  /// A row of the state, or of B̅ᵀ, somewhere else.
  void hold(const Acc* from, Acc* to) const noexcept {
    for (index_t j = 0; j < row; j += simd::width<Acc>) simd::store(to + j, simd::load<simd::default_arch>(from + j));
  }
};

/// C ← A B, few rows as rows: the same bits.
template <class Acc, class Finish = linalg::overwrite>
OGIVE_NOINLINE void product_of_rows(index_t m, index_t n, index_t k, const Acc* a, index_t a_row, const Acc* b,
                                    index_t b_row, Acc* c, index_t c_row, const Finish& finish = {}) noexcept {
  if (m < 4) {
    for (index_t i = 0; i < m; ++i) linalg::gemv_ab(n, k, a + i * a_row, {b, b_row}, c + i * c_row, finish);
  } else {
    linalg::gemm_ab(m, n, k, {a, a_row}, {b, b_row}, linalg::panel<Acc>{c, c_row}, finish);
  }
}

/// `Block` vectors of modes from number j on, through `live` tokens: what the rows hold of B̅ u becomes h.
template <int Block, class Acc>
OGIVE_INLINE void sweep_modes_block(const shared_state_panels<Acc>& p, index_t j, index_t live) noexcept {
  using vector = simd::batch<Acc>;
  using arch = simd::default_arch;
  constexpr index_t W = simd::width<Acc>;
  vector a_re[Block], a_im[Block], re[Block], im[Block];
  unroll<Block>([&](auto i) __attribute__((always_inline)) {
    a_re[i] = simd::load<arch>(p.A + j + i * W);
    a_im[i] = simd::load<arch>(p.A + p.plane + j + i * W);
    re[i] = simd::load<arch>(p.h + j + i * W);
    im[i] = simd::load<arch>(p.h + p.plane + j + i * W);
  });
  for (index_t t = 0; t < live; ++t) {
    Acc* row = p.after(t) + j;
    unroll<Block>([&](auto i) __attribute__((always_inline)) {
      Acc* at = row + i * W;
      const vector next = simd::fma(a_re[i], re[i], simd::fnma(a_im[i], im[i], simd::load<arch>(at)));
      im[i] = simd::fma(a_re[i], im[i], simd::fma(a_im[i], re[i], simd::load<arch>(at + p.plane)));
      re[i] = next;
      simd::store(at, re[i]);
      simd::store(at + p.plane, im[i]);
    });
  }
}

/// The state through the live tokens of a tile, and as it is then for padding.
template <bool Diagonal, class Acc>
OGIVE_NOINLINE void sweep_shared_state(const shared_state_panels<Acc>& p, index_t count, index_t live) noexcept {
  constexpr index_t W = simd::width<Acc>;
  if constexpr (Diagonal) {
    index_t j = 0;
    for (; j + 4 * W <= p.width; j += 4 * W) sweep_modes_block<4>(p, j, live);
    for (; j < p.width; j += W) sweep_modes_block<1>(p, j, live);
  } else {
    for (index_t t = 0; t < live; ++t) {
      linalg::gemv_ab(p.width, p.states, p.after(t - 1), {p.A, p.row}, p.after(t), linalg::add{});
    }
  }
  for (index_t t = live; t < count; ++t) p.hold(p.after(t - 1), p.after(t));
}

/// y = Re(C h), and D u.
template <bool Diagonal, class Acc>
OGIVE_NOINLINE void read_shared_state(const shared_state_panels<Acc>& p, index_t count, bool skip) noexcept {
  constexpr index_t W = simd::width<Acc>;
  const index_t columns = (p.outputs + W - 1) / W * W, c_row = (Diagonal ? 2 : 1) * p.output_row;
  product_of_rows(count, columns, p.states, p.after(0), p.row, p.C, c_row, p.y, p.output_row);
  if constexpr (Diagonal) {
    product_of_rows(count, columns, p.states, p.after(0) + p.plane, p.row, p.C + p.output_row, c_row, p.y, p.output_row,
                    linalg::add{});
  }
  if (!skip || p.D == nullptr) return;
  if constexpr (Diagonal) {
    for (index_t j = 0; j < columns; j += W) {
      const auto D = simd::load<simd::default_arch>(p.D + j);
      for (index_t t = 0; t < count; ++t) {
        Acc* y = p.y + t * p.output_row + j;
        simd::store(y, simd::fma(D, simd::load<simd::default_arch>(p.u + t * p.input_row + j),
                                 simd::load<simd::default_arch>(y)));
      }
    }
  } else {
    product_of_rows(count, columns, p.inputs, p.u, p.input_row, p.D, p.output_row, p.y, p.output_row, linalg::add{});
  }
}

/// x [N] as one row.
template <class X>
view<X, 2> as_row(const view<X, 1>& x) noexcept {
  return {x.data(), {1, x.extent(0)}, {0, x.stride(0)}};
}

/// panel[j, i] = x[i, j]. Of complex numbers the real and imaginary parts times two factors, [j, 2, i], each part a row
/// of its own.
template <class Acc, class X>
void load_turned(const view<const X, 2>& x, Acc* panel, index_t row, Acc re = Acc(1), Acc im = Acc(1)) noexcept {
  using Real = real_of<X>;
  if constexpr (!is_complex<X>) {
    load_tile(x.permute({1, 0}), panel, row);
  } else {
    const auto* parts = reinterpret_cast<const Real*>(x.data());
    const shape<2> extents{x.extent(1), x.extent(0)}, strides{2 * x.stride(1), 2 * x.stride(0)};
    const auto times = [](Acc even, Acc odd) noexcept {
      return [even, odd](index_t) noexcept {
        return [=](const simd::batch<Acc>& v, index_t i) noexcept {
          return v * simd::batch<Acc>(i % 2 == 0 ? even : odd);
        };
      };
    };
    if (x.stride(1) == 1) {  // parts lie side by side: rows of one real matrix
      load_tile(view<const Real, 2>(parts, {2 * extents[0], extents[1]}, {1, strides[1]}), panel, row, times(re, im));
    } else {
      load_tile(view<const Real, 2>(parts, extents, strides), panel, 2 * row, times(re, re));
      load_tile(view<const Real, 2>(parts + 1, extents, strides), panel + row, 2 * row, times(im, im));
    }
  }
}

/// B̅ = w ⊙ B, mode by mode.
template <class Acc>
OGIVE_NOINLINE void weigh_inputs(const shared_state_panels<Acc>& p) noexcept {
  using arch = simd::default_arch;
  for (index_t j = 0; j < p.width; j += simd::width<Acc>) {
    const auto w_re = simd::load<arch>(p.w + j), w_im = simd::load<arch>(p.w + p.plane + j);
    for (index_t m = 0; m < p.inputs; ++m) {
      Acc* at = p.B + m * p.row + j;
      const auto re = simd::load<arch>(at), im = simd::load<arch>(at + p.plane);
      simd::store(at, simd::fnma(w_im, im, w_re * re));
      simd::store(at + p.plane, simd::fma(w_im, re, w_re * im));
    }
  }
}

/// The operator's matrices into the panels.
template <class Acc, class Op>
void pack_shared_state(const Op& op, const shared_state_panels<Acc>& p) noexcept {
  constexpr bool diagonal = is_complex<typename Op::number>;
  load_turned(op.input(), p.B, p.plane);
  if constexpr (diagonal) {
    load_turned(op.output(), p.C, p.output_row, Acc(Op::parts), Acc(-Op::parts));
    zero_tile(p.A, 0, 0, 1, 2 * p.plane);
    zero_tile(p.w, 0, 0, 1, 2 * p.plane);
    for (index_t n = 0; n < p.states; ++n) {
      const shared_mode<Acc> mode = op.template mode<Acc>(n);
      p.A[n] = mode.a.real();
      p.A[p.plane + n] = mode.a.imag();
      p.w[n] = mode.w.real();
      p.w[p.plane + n] = mode.w.imag();
    }
    weigh_inputs(p);
    if (p.D != nullptr) load_tile(as_row(op.D), p.D, p.output_row);
  } else {
    load_turned(op.output(), p.C, p.output_row);
    load_turned(op.transition(), p.A, p.row);
    if (p.D != nullptr) load_turned(op.D, p.D, p.output_row);
  }
}

/// One slot of a pool, real or imaginary parts, as one row.
template <class S>
auto state_part(const view<S, 2>& pool, index_t slot, index_t part) noexcept {
  using Real = real_of<std::remove_const_t<S>>;
  using Kept = std::conditional_t<std::is_const_v<S>, const Real, Real>;
  constexpr index_t parts = is_complex<std::remove_const_t<S>> ? 2 : 1;
  return view<Kept, 2>(reinterpret_cast<Kept*>(pool.pointer(slot, 0)) + part, {1, pool.extent(1)},
                       {0, parts * pool.stride(1)});
}

/// Tasks of neighbouring sequences, so many that a task has some tokens for the matrices that it packs.
struct shared_state_plan {
  index_t sequences, group, tasks;

  template <class Op>
  static shared_state_plan of(const Op& op) noexcept {
    const shared_state_extents n = op.extents();
    const index_t sequences = input_sequences(op);
    const index_t average = sequences > 0 ? n.batch * n.length / sequences : 0;
    const index_t group = std::max<index_t>(1, 32 / std::max<index_t>(1, average));
    return {sequences, group, (sequences + group - 1) / group};
  }
};

template <class Acc, class Op>
std::size_t shared_state_bytes(const Op&, const shared_state_extents& n) noexcept {
  arena counted;
  shared_state_panels<Acc>::carve(n, is_complex<typename Op::number>, true, counted);
  return counted.used();
}

/// Where the tokens of a sequence are: `row` of the batch, `begin` to `end`, of which the first `live` are no padding.
struct shared_sequence {
  index_t row, begin, end, live;

  template <class Op>
  static shared_sequence of(const Op& op, index_t sequence) noexcept {
    const bool packed = op.offsets.present();
    const index_t begin = packed ? op.offsets.at(sequence) : 0;
    const index_t end = packed ? op.offsets.at(sequence + 1) : op.extents().length;
    const index_t live = op.lengths.present() ? std::min(op.lengths.at(sequence), end - begin) : end - begin;
    return {packed ? 0 : sequence, begin, end, live};
  }
};

/// The state that a sequence starts from.
template <class Acc, class State>
void load_shared_state(const shared_state_panels<Acc>& p, const State& st, index_t sequence) noexcept {
  constexpr index_t planes = is_complex<typename State::storage_type> ? 2 : 1;
  const index_t from = core::checker::slot_of(st.initial_slots, sequence);
  for (index_t part = 0; part < planes; ++part) {
    if (st.initial.present() && from >= 0) {
      load_tile(state_part(st.initial, from, part), p.h + part * p.plane, p.row);
    } else {
      zero_tile(p.h + part * p.plane, 0, 0, 1, p.plane);
    }
  }
}

/// `count` tokens from token t on, of which the first `live` are no padding: u, B̅ u, the state after each. `reads` says
/// whether u is wanted of padding too.
template <class Acc, class Op>
void advance_shared_state(const shared_state_panels<Acc>& p, const Op& op, index_t row, index_t t, index_t count,
                          index_t live, bool reads) noexcept {
  constexpr bool diagonal = is_complex<typename Op::number>;
  load_tile(view<const typename Op::scalar, 2>(op.u.pointer(row, t, 0), {reads ? count : live, p.inputs},
                                               {op.u.stride(1), op.u.stride(2)}),
            p.u, p.input_row);
  product_of_rows(live, diagonal ? p.plane + p.width : p.width, p.inputs, p.u, p.input_row, p.B, p.row, p.after(0),
                  p.row);
  sweep_shared_state<diagonal>(p, count, live);
}

/// Which outputs a sweep is to give: the others are there.
enum class shared_outputs { all, of_padding };

/// One sequence, its matrices packed.
template <class Acc, class Op, class State>
void run_shared_sequence(const shared_state_panels<Acc>& p, const Op& op, const State& st,
                         const view<typename Op::scalar, 3>& y, shared_outputs wanted, index_t sequence) noexcept {
  constexpr bool diagonal = is_complex<typename Op::number>;
  using T = typename Op::scalar;
  const shared_sequence at = shared_sequence::of(op, sequence);
  load_shared_state(p, st, sequence);
  const index_t padding = at.begin + at.live, last = y.present() ? at.end : padding;
  for (index_t t = at.begin; t < last;) {
    const bool silent = wanted == shared_outputs::of_padding && t < padding;
    const index_t count = std::min(p.tokens, (silent ? padding : last) - t);
    const index_t live = std::clamp<index_t>(padding - t, 0, count);
    const bool reads = y.present() && !silent;
    advance_shared_state(p, op, at.row, t, count, live, reads && p.D != nullptr);
    if (reads) {
      read_shared_state<diagonal>(p, count, true);
      store_tile(p.y, p.output_row,
                 view<T, 2>(y.pointer(at.row, t, 0), {count, p.outputs}, {y.stride(1), y.stride(2)}));
    }
    p.hold(p.after(count - 1), p.h);
    t += count;
  }
  const index_t to = core::checker::slot_of(st.final_slots, sequence);
  if (!st.final.present() || to < 0) return;
  for (index_t part = 0; part < (diagonal ? 2 : 1); ++part) {
    store_tile(p.h + part * p.plane, p.row, state_part(st.final, to, part));
  }
}

template <class Acc, class Op>
shared_state_panels<Acc> carve_panels(const Op& op, const shared_state_extents& n, arena& memory) noexcept {
  using panels = shared_state_panels<Acc>;
  constexpr bool diagonal = is_complex<typename Op::number>;
  if constexpr (has_panels<Op>) {
    arena kept(op.panels, panels::coefficient_bytes(n, diagonal));
    return panels::carve(n, diagonal, op.D.present(), kept, memory);
  } else {
    return panels::carve(n, diagonal, op.D.present(), memory);
  }
}
template <class Acc, class Op>
shared_state_panels<Acc> packed_panels(const Op& op, const shared_state_extents& n, arena& memory) noexcept {
  const auto p = carve_panels<Acc>(op, n, memory);
  if constexpr (!has_panels<Op>) pack_shared_state(op, p);
  return p;
}

template <class Acc, class Op, class State>
OGIVE_NOINLINE void run_shared_task(const Op& op, const State& st, const view<typename Op::scalar, 3>& y,
                                    shared_outputs wanted, const shared_state_plan& plan, index_t task,
                                    arena memory) noexcept {
  const auto p = packed_panels<Acc>(op, op.extents(), memory);
  const index_t begin = task * plan.group;
  for (index_t s = begin; s < std::min(begin + plan.group, plan.sequences); ++s) {
    run_shared_sequence(p, op, st, y, wanted, s);
  }
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

// RWKV-4 (the WKV of RWKV): an average of all values so far, weighted by exp(k) and decayed, channel by channel.
//
//   wkv_t = (A_{t-1} + e^{u + k_t} v_t) / (B_{t-1} + e^{u + k_t})
//   A_t = e^w A_{t-1} + e^{k_t} v_t,   B_t = e^w B_{t-1} + e^{k_t}
//
// kept as A = α e^ε, B = β e^ε with ε_t = max(w + ε_{t-1}, k_t), so that no exponential exceeds one. A k of −∞ has no
// weight: wkv is 0 where nothing has any, and ε stops at −1e38. A state is no matrix here, and no form but the sweep
// over time exists. Peng et al., RWKV: Reinventing RNNs for the Transformer Era, arXiv:2305.13048.
#pragma once

#include <ogive/engine/kept_states.hpp>
#include <ogive/engine/tasks.hpp>
#include <ogive/engine/verbs.hpp>
#include <ogive/simd/math.hpp>

#include <algorithm>

namespace ogive {
inline namespace OGIVE_ABI {

/// The rows α, β, ε of a pool [slots, 3, C], with slots as `state` has them. Nothing seen yet is (0, 0, −1e38), or any
/// ε below, −∞ too. A state may be scaled: (α e^x, β e^x, ε − x) is the same. Snapshots and boundaries are kept as by
/// `state`.
template <std::floating_point S>
struct rwkv4_state {
  using storage_type = S;
  view<const S, 3> initial{};
  view<S, 3> final{};
  view<const std::int32_t, 1> initial_slots{};
  view<const std::int32_t, 1> final_slots{};
  view<S, 3> snapshots{};
  view<const std::int32_t, 2> snapshot_slots{};
  view<S, 3> boundaries{};
  view<const std::int32_t, 2> boundary_slots{};
  index_t interval = 0;
  integers position{};
};

/// Derivatives by α, β and ε as they are kept, [sequences, 3, C]: that of an ε_t belongs to the larger of the two it is
/// made of.
template <std::floating_point S>
struct rwkv4_state_gradient {
  using storage_type = S;
  view<const S, 3> final{};
  view<S, 3> initial{};
};

/// k and v [B, L, C], w and u [C]; wkv [B, L, C]. State [slots, 3, C].
template <storage T>
struct rwkv4 {
  using scalar = T;
  using accum = accum_t<T>;

  view<const T, 3> k{}, v{};
  view<const accum, 1> w{};  ///< log decay: −exp of what checkpoints hold
  view<const accum, 1> u{};  ///< bonus of the token's own value, added to its k
  integers lengths{};        ///< per sequence; tokens from there on neither decay nor write, and read α/β
  integers offsets{};        ///< packed sequences, a state each

  struct gradient {
    view<T, 3> k{}, v{};
    view<accum, 1> w{}, u{};
  };

  static constexpr const char* name = "rwkv4";
  template <std::floating_point S>
  using state_of = rwkv4_state<S>;
  using default_state = rwkv4_state<accum>;
  using default_state_gradient = rwkv4_state_gradient<accum>;

  index_t sequences() const noexcept { return offsets.present() ? offsets.size() - 1 : k.extent(0); }
};

namespace detail {

/// α, β and ε of one vector of channels, or what belongs to them.
template <class Acc>
struct rwkv4_triple {
  using vector = simd::batch<Acc>;
  vector alpha, beta, epsilon;

  /// The ε of nothing, below which none is kept.
  static constexpr Acc least = Acc(-1e38);

  static rwkv4_triple nothing() noexcept { return {vector(Acc(0)), vector(Acc(0)), vector(least)}; }
  static rwkv4_triple zero() noexcept { return {vector(Acc(0)), vector(Acc(0)), vector(Acc(0))}; }

  template <class X>
  static rwkv4_triple load(const view<X, 2>& rows, index_t channel, index_t count) noexcept {
    const auto row = [&](index_t r) {
      return simd::load_strided<Acc, simd::default_arch>(rows.pointer(r, channel), rows.stride(1), count);
    };
    return {row(0), row(1), row(2)};
  }
  template <class S>
  void save(const view<S, 2>& rows, index_t channel, index_t count) const noexcept {
    const auto row = [&](index_t r, const vector& x) {
      simd::store_strided(rows.pointer(r, channel), rows.stride(1), x, count);
    };
    row(0, alpha);
    row(1, beta);
    row(2, epsilon);
  }
  static view<Acc, 2> panel(Acc* p) noexcept { return {p, {3, simd::width<Acc>}}; }
};

/// e^{x − top} and e^{y − top}, top the larger of the two: one of them is 1. Where top is the least, neither has
/// weight.
template <class Acc>
struct rwkv4_weights {
  using vector = simd::batch<Acc>;
  vector top, x, y;

  rwkv4_weights(const vector& of_x, const vector& of_y) noexcept {
    const vector zero(Acc(0)), least(rwkv4_triple<Acc>::least);
    const auto newer = of_x < of_y;
    const vector larger = simd::select(newer, of_y, of_x), smaller = simd::select(newer, of_x, of_y);
    top = simd::max(least, larger);
    const vector one = simd::select(larger < least, zero, vector(Acc(1)) + (larger - top));  // NaN stays NaN
    const vector less = simd::exp(smaller - top);
    x = simd::select(newer, less, one);
    y = simd::select(newer, one, less);
  }
};

/// Channels of one vector, through one sequence.
template <class Acc>
struct rwkv4_sweep {
  using vector = simd::batch<Acc>;
  using triple = rwkv4_triple<Acc>;
  using weights = rwkv4_weights<Acc>;
  vector w, u;
  triple h = triple::nothing();

  vector average(const vector& k, const vector& v) const noexcept {
    const weights of(h.epsilon, u + k);
    return quotient(simd::fma(of.x, h.alpha, of.y * v), simd::fma(of.x, h.beta, of.y));
  }
  /// What a row sees that has no value of its own.
  vector average() const noexcept { return quotient(h.alpha, h.beta); }
  static vector quotient(const vector& sum, const vector& weights) noexcept {
    const vector zero(Acc(0));
    return simd::select(weights == zero, zero, simd::divide(sum, weights));
  }
  void advance(const vector& k, const vector& v) noexcept {
    const weights of(w + h.epsilon, k);
    h = {simd::fma(of.x, h.alpha, of.y * v), simd::fma(of.x, h.beta, of.y), of.top};
  }
};

/// The same from its end: d is the cotangent of the state after a token, then of the one before it.
template <class Acc>
struct rwkv4_adjoint {
  using vector = simd::batch<Acc>;
  using triple = rwkv4_triple<Acc>;
  static constexpr auto quotient = &rwkv4_sweep<Acc>::quotient;
  vector w, u;
  triple d = triple::zero();
  vector d_w = vector(Acc(0)), d_u = vector(Acc(0));  // sums
  vector d_k = vector(Acc(0)), d_v = vector(Acc(0));  // of the last token

  /// A row of padding, which reads α/β of the state h.
  void average(const triple& h, const vector& d_o) noexcept {
    const vector share = quotient(d_o, h.beta), o = quotient(h.alpha, h.beta);
    d.alpha = d.alpha + share;
    d.beta = simd::fnma(share, o, d.beta);
  }

  /// A token on the state h. The quotient is the same for any common factor of its two sums, so `top` has no derivative
  /// there; in the state it goes to the larger exponent, whose own factor is 1, or to none that is not above the least.
  void token(const triple& h, const vector& k, const vector& v, const vector& d_o) noexcept {
    const vector decayed = w + h.epsilon, least(triple::least);
    const rwkv4_weights<Acc> of(decayed, k);
    const vector kept = of.x, written = of.y;
    const vector d_written = written * simd::fma(d.alpha, v, d.beta);
    const vector d_kept = kept * simd::fma(d.alpha, h.alpha, d.beta * h.beta);
    const auto newer = decayed < k, stopped = simd::max(decayed, k) < least;
    const vector d_decayed = simd::select(newer | stopped, d_kept, d.epsilon - d_written);
    d_k = simd::select(newer & !stopped, d.epsilon - d_kept, d_written);
    d_v = written * d.alpha;
    d_w = d_w + d_decayed;

    const rwkv4_weights<Acc> read(h.epsilon, u + k);
    const vector past = read.x, now = read.y;
    const vector sum = simd::fma(past, h.beta, now);
    const vector o = quotient(simd::fma(past, h.alpha, now * v), sum);
    const vector share = quotient(d_o, sum), of_past = share * past, of_now = share * now;
    const vector d_own = of_now * (v - o);
    d_k = d_k + d_own;
    d_u = d_u + d_own;
    d_v = d_v + of_now;
    d = {simd::fma(kept, d.alpha, of_past), simd::fnma(of_past, o, kept * d.beta),
         simd::fma(of_past, simd::fnma(o, h.beta, h.alpha), d_decayed)};
  }
};

struct rwkv4_engine {
  static constexpr bool has_steps = true;
  static constexpr bool has_chunks = false;
  static constexpr index_t block = 256;  // channels of a task: 64 take backward twice as long
  template <class Op>
  using output = view<typename Op::scalar, 3>;

  template <class Op, class Given>
  static auto own(Given& given) noexcept {
    return own_state<Op, 3>(given);
  }

  template <class Op, class State>
  static status check(const Op& op, const State& st, const output<Op>& o, const options& how) noexcept {
    core::checker ask(Op::name);
    check_call(ask, op, st, how);
    if (!ask) return ask.result();
    const index_t B = op.k.extent(0), L = op.k.extent(1), C = op.k.extent(2);
    check_kept(ask, op, st, {B, L}, shape<3>{-1, 3, C}, "[slots, 3, C]");
    ask.extents("o", o, op.k.extents(), "[B, L, C] as k").output("o", o);
    check_apart(ask, st, "o", o, [&](const char* name, const auto& x) noexcept { check_written(ask, op, name, x); });
    return ask.result();
  }

  template <class Op>
  static std::size_t bytes(const Op&, const options&) noexcept {
    return 0;
  }

  template <verb, class Op, class State>
  static void run(const Op& op, const State& st, const output<Op>& o, const options&, context& ctx) noexcept {
    const index_t blocks = (op.k.extent(2) + block - 1) / block;
    run_tasks(ctx, op.sequences() * blocks, 0,
              [&](index_t task, arena) noexcept { channels(op, st, o, task / blocks, task % blocks * block); });
  }

  template <class Op, class State, class StateGradient>
  static status check_backward(const Op& op, const State& st, const cotangent<output<Op>>& d_o,
                               const StateGradient& d_st, const gradient<Op>& d, const options& how) noexcept {
    core::checker ask(Op::name);
    check_call(ask, op, without_end(st), how);
    if (!ask) return ask.result();
    const index_t C = op.k.extent(2);
    ask.extents("d_o", d_o, op.k.extents(), "[B, L, C] as k");
    ask.extents("d.k", d.k, op.k.extents(), "[B, L, C]").output("d.k", d.k);
    ask.extents("d.v", d.v, op.k.extents(), "[B, L, C] as k").output("d.v", d.v);
    ask.extents("d.w", d.w, {C}, "[C], C as k").output("d.w", d.w);
    ask.extents("d.u", d.u, {C}, "[C], C as k").output("d.u", d.u);
    check_state_gradient(ask, d_st, shape<3>{op.sequences(), 3, C}, "[sequences, 3, C]");
    const auto gradients = [&](const auto& f) noexcept { f("d.k", d.k), f("d.v", d.v), f("d.w", d.w), f("d.u", d.u); };
    check_gradients_apart(ask, st, "d_o", d_o, d_st, gradients,
                          [&](const char* name, const auto& x) noexcept { check_written(ask, op, name, x); });
    return ask.result();
  }

  template <class Op>
  static std::size_t backward_bytes(const Op& op, const options&) noexcept {
    arena counted;
    counted.take<double>((tile + (op.k.extent(1) + tile - 1) / tile) * 3 * block);
    return counted.used();
  }

  /// A task owns channels and walks through all sequences: sums have one order.
  template <class Op, class State, class StateGradient>
  static void backward(const Op& op, const State& st, const cotangent<output<Op>>& d_o, const StateGradient& d_st,
                       const gradient<Op>& d, const options& how, context& ctx) {
    const index_t blocks = (op.k.extent(2) + block - 1) / block;
    const std::size_t room = backward_bytes(op, how);
    ctx.reserve(static_cast<std::size_t>(ctx.workers()) * room);
    run_tasks(ctx, blocks, room, [&](index_t task, arena memory) noexcept {
      gradients(op, st, d_o, d_st, d, how.accumulate, task * block, memory);
    });
  }

 private:
  static constexpr index_t tile = 64;  // tokens between the states that a backward pass keeps

  /// The first questions of every call: there is such a form, and fields, sequences and states fit.
  template <class Op, class State>
  static void check_call(core::checker& ask, const Op& op, const State& st, const options& how) noexcept {
    ask.chunk(how);
    if (ask && how.form != form::automatic && how.form != form::recurrent) {
      ask.refuse("form", status_code::value) << "has no other choice than automatic or recurrent";
    }
    const index_t B = op.k.extent(0), L = op.k.extent(1), C = op.k.extent(2);
    ask.given("k", op.k).given("v", op.v).given("w", op.w).given("u", op.u);
    ask.extents("v", op.v, {B, L, C}, "[B, L, C] as k");
    ask.extents("w", op.w, {C}, "[C], C as k").extents("u", op.u, {C}, "[C], C as k");
    ask.offsets(op.offsets, B, L);
    if (!ask) return;
    ask.lengths(op.lengths, op.sequences());
    check_pools(ask, op, st, op.sequences(), shape<3>{0, 3, C}, "[slots, 3, C]");
  }
  template <class Op, class X>
  static void check_written(core::checker& ask, const Op& op, const char* name, const X& x) noexcept {
    ask.apart(name, x, "k", op.k).apart(name, x, "v", op.v).apart(name, x, "w", op.w).apart(name, x, "u", op.u);
  }

  /// A sequence's row of the batch, and its tokens there.
  struct span {
    index_t b, first, live, last;
  };
  template <class Op>
  static span span_of(const Op& op, index_t sequence) noexcept {
    const bool packed = op.offsets.present();
    const index_t first = packed ? op.offsets.at(sequence) : 0;
    const index_t last = packed ? op.offsets.at(sequence + 1) : op.k.extent(1);
    const index_t live = op.lengths.present() ? std::min(first + op.lengths.at(sequence), last) : last;
    return {packed ? 0 : sequence, first, live, last};
  }

  template <class Acc, class X>
  static simd::batch<Acc> of_channels(const view<X, 1>& x, index_t c, index_t count) noexcept {
    return simd::load_strided<Acc, simd::default_arch>(x.pointer(c), x.stride(0), count);
  }
  template <class Acc, class X>
  static simd::batch<Acc> row(const view<X, 3>& x, index_t b, index_t t, index_t c, index_t count) noexcept {
    return simd::load_strided<Acc, simd::default_arch>(x.pointer(b, t, c), x.stride(2), count);
  }
  template <class Acc, class State>
  static rwkv4_triple<Acc> initial(const State& st, index_t sequence, index_t c, index_t count) noexcept {
    const index_t from = core::checker::slot_of(st.initial_slots, sequence);
    if (!st.initial.present() || from < 0) return rwkv4_triple<Acc>::nothing();
    return rwkv4_triple<Acc>::load(st.initial[from], c, count);
  }

  /// f(i, c, count) for the vectors of channels in [begin, end): the i-th begins at c.
  template <class Acc, class F>
  static void for_each_vector(index_t begin, index_t end, const F& f) noexcept {
    index_t i = 0;
    for (index_t c = begin; c < end; c += simd::width<Acc>) f(i++, c, std::min(simd::width<Acc>, end - c));
  }

  /// Time outside, vectors of channels inside: a row of tokens is read as it lies, and states stay in the first-level
  /// cache.
  template <class Op, class State>
  OGIVE_NOINLINE static void channels(const Op& op, const State& st, const output<Op>& o, index_t sequence,
                                      index_t begin) noexcept {
    using Acc = sweep_t<typename Op::scalar, typename State::storage_type>;
    constexpr index_t width = simd::width<Acc>;
    const index_t end = std::min(begin + block, op.k.extent(2));
    const span at = span_of(op, sequence);
    rwkv4_sweep<Acc> over[block / width];
    const auto for_vectors = [&](const auto& f) noexcept {
      for_each_vector<Acc>(begin, end, [&](index_t i, index_t c, index_t count) noexcept { f(over[i], c, count); });
    };
    for_vectors([&](auto& x, index_t c, index_t count) noexcept {
      x.w = of_channels<Acc>(op.w, c, count), x.u = of_channels<Acc>(op.u, c, count);
      x.h = initial<Acc>(st, sequence, c, count);
    });
    const auto put = [&](index_t t, index_t c, index_t count, const auto& x) noexcept {
      if (o.present()) simd::store_strided(o.pointer(at.b, t, c), o.stride(2), x, count);
    };
    for (index_t t = at.first; t < at.live; ++t) {
      for_vectors([&](auto& x, index_t c, index_t count) noexcept {
        const auto k = row<Acc>(op.k, at.b, t, c, count), v = row<Acc>(op.v, at.b, t, c, count);
        if (o.present()) put(t, c, count, x.average(k, v));
        x.advance(k, v);
      });
      for_kept(st, sequence, at.b, t, t - at.first, [&](const auto& pool, index_t slot) noexcept {
        for_vectors([&](auto& x, index_t c, index_t count) noexcept { x.h.save(pool[slot], c, count); });
      });
    }
    for (index_t t = at.live; t < at.last; ++t) {
      for_vectors([&](auto& x, index_t c, index_t count) noexcept { put(t, c, count, x.average()); });
    }
    const index_t to = core::checker::slot_of(st.final_slots, sequence);
    if (!st.final.present() || to < 0) return;
    for_vectors([&](auto& x, index_t c, index_t count) noexcept { x.h.save(st.final[to], c, count); });
  }

  template <class Op, class State, class StateGradient>
  OGIVE_NOINLINE static void gradients(const Op& op, const State& st, const cotangent<output<Op>>& d_o,
                                       const StateGradient& d_st, const gradient<Op>& d, bool accumulate, index_t begin,
                                       arena memory) noexcept {
    using Acc = sweep_t<typename Op::scalar, typename State::storage_type>;
    auto* panels = memory.take<Acc>((tile + (op.k.extent(1) + tile - 1) / tile) * 3 * block);
    const index_t end = std::min(begin + block, op.k.extent(2));
    rwkv4_adjoint<Acc> back[block / simd::width<Acc>];
    for_each_vector<Acc>(begin, end, [&](index_t i, index_t c, index_t count) noexcept {
      back[i].w = of_channels<Acc>(op.w, c, count), back[i].u = of_channels<Acc>(op.u, c, count);
    });
    for (index_t n = 0; n < op.sequences(); ++n)
      sweep_back(op, st, d_o, d_st, d, accumulate, n, begin, end, back, panels);
    for_each_vector<Acc>(begin, end, [&](index_t i, index_t c, index_t count) noexcept {
      if (d.w.present()) drain(d.w.pointer(c), d.w.stride(0), back[i].d_w, count, accumulate);
      if (d.u.present()) drain(d.u.pointer(c), d.u.stride(0), back[i].d_u, count, accumulate);
    });
  }

  template <class Acc, class X>
  static void drain(X* to, index_t stride, const simd::batch<Acc>& x, index_t count, bool accumulate) noexcept {
    if (!accumulate) return simd::store_strided(to, stride, x, count);
    simd::store_strided(to, stride, simd::load_strided<Acc, simd::default_arch>(to, stride, count) + x, count);
  }

  template <class Acc, class Op, class State, class StateGradient>
  static void sweep_back(const Op& op, const State& st, const cotangent<output<Op>>& d_o, const StateGradient& d_st,
                         const gradient<Op>& d, bool accumulate, index_t sequence, index_t begin, index_t end,
                         rwkv4_adjoint<Acc>* back, Acc* panels) noexcept {
    using triple = rwkv4_triple<Acc>;
    constexpr index_t width = simd::width<Acc>;
    const span at = span_of(op, sequence);
    Acc* checkpoints = panels + tile * 3 * block;
    const auto panel = [](Acc* rows, index_t row, index_t i) noexcept {
      return triple::panel(rows + (row * block / width + i) * 3 * width);
    };
    const auto each = [&](const auto& f) noexcept { for_each_vector<Acc>(begin, end, f); };
    rwkv4_sweep<Acc> over[block / width];
    each([&](index_t i, index_t c, index_t count) noexcept {
      over[i].w = back[i].w, over[i].u = back[i].u, over[i].h = initial<Acc>(st, sequence, c, count);
      back[i].d = d_st.final.present() ? triple::load(d_st.final[sequence], c, count) : triple::zero();
    });
    const auto keep = [&](Acc* rows, index_t row) noexcept {
      each([&](index_t i, index_t, index_t) noexcept { over[i].h.save(panel(rows, row, i), 0, width); });
    };
    const auto advance = [&](index_t t) noexcept {
      each([&](index_t i, index_t c, index_t count) noexcept {
        over[i].advance(row<Acc>(op.k, at.b, t, c, count), row<Acc>(op.v, at.b, t, c, count));
      });
    };
    for (index_t t = at.first; t < at.live; ++t) {
      if ((t - at.first) % tile == 0) keep(checkpoints, (t - at.first) / tile);
      advance(t);
    }
    const auto cotangent_at = [&](index_t t, index_t c, index_t count) noexcept {
      return d_o.present() ? row<Acc>(d_o, at.b, t, c, count) : simd::batch<Acc>(Acc(0));
    };
    const auto put = [&](index_t t, index_t c, index_t count, const auto& d_k, const auto& d_v) noexcept {
      if (d.k.present()) drain(d.k.pointer(at.b, t, c), d.k.stride(2), d_k, count, accumulate);
      if (d.v.present()) drain(d.v.pointer(at.b, t, c), d.v.stride(2), d_v, count, accumulate);
    };
    const simd::batch<Acc> zero(Acc(0));
    for (index_t t = at.last; t-- > at.live;) {
      each([&](index_t i, index_t c, index_t count) noexcept {
        back[i].average(over[i].h, cotangent_at(t, c, count));
        put(t, c, count, zero, zero);
      });
    }
    for (index_t behind = at.live; behind > at.first;) {
      const index_t n = (behind - 1 - at.first) / tile, first = at.first + n * tile;
      each([&](index_t i, index_t, index_t) noexcept { over[i].h = triple::load(panel(checkpoints, n, i), 0, width); });
      for (index_t t = first; t < behind; ++t) {
        keep(panels, t - first);
        if (t + 1 < behind) advance(t);
      }
      for (index_t t = behind; t-- > first;) {
        each([&](index_t i, index_t c, index_t count) noexcept {
          back[i].token(triple::load(panel(panels, t - first, i), 0, width), row<Acc>(op.k, at.b, t, c, count),
                        row<Acc>(op.v, at.b, t, c, count), cotangent_at(t, c, count));
          put(t, c, count, back[i].d_k, back[i].d_v);
        });
      }
      behind = first;
    }
    if (!d_st.initial.present()) return;
    each([&](index_t i, index_t c, index_t count) noexcept {
      triple& x = back[i].d;
      if (accumulate) {
        const triple before = triple::load(d_st.initial[sequence], c, count);
        x = {before.alpha + x.alpha, before.beta + x.beta, before.epsilon + x.epsilon};
      }
      x.save(d_st.initial[sequence], c, count);
    });
  }
};

}  // namespace detail

template <storage T>
struct engine_of<rwkv4<T>> {
  using type = detail::rwkv4_engine;
};

}  // namespace OGIVE_ABI
}  // namespace ogive

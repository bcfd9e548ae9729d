// RWKV-4 (the WKV of RWKV): an average of all values so far, weighted by exp(k) and decayed, channel by channel.
//
//   wkv_t = (A_{t-1} + e^{u + k_t} v_t) / (B_{t-1} + e^{u + k_t})
//   A_t = e^w A_{t-1} + e^{k_t} v_t,   B_t = e^w B_{t-1} + e^{k_t}
//
// kept as A = α e^ε, B = β e^ε with ε_t = max(w + ε_{t-1}, k_t), so that no exponential exceeds one. A state is no
// matrix here, and no form but the sweep over time exists. Peng et al., RWKV: Reinventing RNNs for the Transformer Era,
// arXiv:2305.13048.
#pragma once

#include <ogive/core/check.hpp>
#include <ogive/engine/verbs.hpp>
#include <ogive/simd/flush.hpp>
#include <ogive/simd/math.hpp>

#include <algorithm>

namespace ogive {
inline namespace OGIVE_ABI {

/// The rows α, β, ε of a pool [slots, 3, C], with slots as `state` has them. Nothing seen yet is (0, 0, −1e38). A state
/// may be scaled: (α e^x, β e^x, ε − x) is the same.
template <std::floating_point S>
struct rwkv4_state {
  using storage_type = S;
  view<const S, 3> initial{};
  view<S, 3> final{};
  view<const std::int32_t, 1> initial_slots{};
  view<const std::int32_t, 1> final_slots{};
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

  static constexpr const char* name = "rwkv4";
  template <std::floating_point S>
  using state_of = rwkv4_state<S>;
  using default_state = rwkv4_state<accum>;

  index_t sequences() const noexcept { return offsets.present() ? offsets.size() - 1 : k.extent(0); }
};

namespace detail {

/// Channels of one vector, through one sequence.
template <class Acc>
class rwkv4_sweep {
 public:
  using vector = simd::batch<Acc>;
  static constexpr Acc nothing = Acc(-1e38);

  rwkv4_sweep(vector log_decay, vector bonus) noexcept : w_(log_decay), u_(bonus) {}

  template <class S>
  void load(const view<const S, 2>& rows, index_t channel, index_t count) noexcept {
    const auto row = [&](index_t r) {
      return simd::load_strided<Acc, simd::default_arch>(rows.pointer(r, channel), rows.stride(1), count);
    };
    alpha_ = row(0);
    beta_ = row(1);
    epsilon_ = row(2);
  }
  template <class S>
  void save(const view<S, 2>& rows, index_t channel, index_t count) const noexcept {
    const auto row = [&](index_t r, const vector& x) {
      simd::store_strided(rows.pointer(r, channel), rows.stride(1), x, count);
    };
    row(0, alpha_);
    row(1, beta_);
    row(2, epsilon_);
  }

  vector average(const vector& k, const vector& v) const noexcept {
    const vector own = u_ + k, top = simd::max(epsilon_, own);
    const vector past = simd::exp(epsilon_ - top), now = simd::exp(own - top);
    return simd::divide(simd::fma(past, alpha_, now * v), simd::fma(past, beta_, now));
  }
  /// What a row sees that has no value of its own.
  vector average() const noexcept {
    const vector zero(Acc(0));
    return simd::select(beta_ == zero, zero, simd::divide(alpha_, beta_));
  }
  void advance(const vector& k, const vector& v) noexcept {
    const vector decayed = w_ + epsilon_, top = simd::max(decayed, k);
    const vector past = simd::exp(decayed - top), now = simd::exp(k - top);
    alpha_ = simd::fma(past, alpha_, now * v);
    beta_ = simd::fma(past, beta_, now);
    epsilon_ = top;
  }

 private:
  vector w_, u_;
  vector alpha_ = vector(Acc(0)), beta_ = vector(Acc(0)), epsilon_ = vector(nothing);
};

struct rwkv4_engine {
  static constexpr bool has_steps = true;
  static constexpr bool has_chunks = false;
  static constexpr index_t block = 256;  // channels of a task
  template <class Op>
  using output = view<typename Op::scalar, 3>;

  template <class Op, class Given>
  static auto own(Given& given) noexcept {
    return own_state<Op, 3>(given);
  }

  template <class Op, class State>
  static status check(const Op& op, const State& st, const output<Op>& o, const options& how) noexcept {
    core::checker ask(Op::name);
    ask.chunk(how);
    if (ask && how.form != form::automatic && how.form != form::recurrent) {
      ask.refuse("form", status_code::value) << "has no other choice than automatic or recurrent";
    }
    const index_t B = op.k.extent(0), L = op.k.extent(1), C = op.k.extent(2);
    ask.given("k", op.k).given("v", op.v).given("w", op.w).given("u", op.u);
    ask.extents("v", op.v, {B, L, C}, "[B, L, C] as k");
    ask.extents("w", op.w, {C}, "[C], C as k").extents("u", op.u, {C}, "[C], C as k");
    ask.offsets(op.offsets, B, L);
    if (!ask) return ask.result();
    ask.lengths(op.lengths, op.sequences());
    ask.extents("o", o, {B, L, C}, "[B, L, C] as k").output("o", o);
    ask.apart("o", o, "k", op.k).apart("o", o, "v", op.v).apart("o", o, "w", op.w).apart("o", o, "u", op.u);
    ask.pools("initial", st.initial, "final", st.final, st.initial_slots, st.final_slots, op.sequences(), {0, 3, C},
              "[slots, 3, C]");
    ask.apart("final", st.final, "o", o).apart("o", o, "initial", st.initial);
    ask.apart("final", st.final, "k", op.k).apart("final", st.final, "v", op.v);
    return ask.result();
  }

  template <class Op>
  static std::size_t bytes(const Op&, const options&) noexcept {
    return 0;
  }

  template <verb, class Op, class State>
  static void run(const Op& op, const State& st, const output<Op>& o, const options&, context& ctx) noexcept {
    const index_t blocks = (op.k.extent(2) + block - 1) / block;
    const bool flush = ctx.flush();
    ctx.run(op.sequences() * blocks, 0, [&](index_t task, arena) noexcept {
      if (flush) {
        const flush_subnormals quiet;
        channels(op, st, o, task / blocks, task % blocks * block);
      } else {
        channels(op, st, o, task / blocks, task % blocks * block);
      }
    });
  }

 private:
  template <class Op, class State>
  OGIVE_NOINLINE static void channels(const Op& op, const State& st, const output<Op>& o, index_t sequence,
                                      index_t begin) noexcept {
    using Acc = sweep_t<typename Op::scalar, typename State::storage_type>;
    const index_t end = std::min(begin + block, op.k.extent(2));
    for (index_t c = begin; c < end; c += simd::width<Acc>) {
      sweep<Acc>(op, st, o, sequence, c, std::min(simd::width<Acc>, end - c));
    }
  }

  template <class Acc, class Op, class State>
  static void sweep(const Op& op, const State& st, const output<Op>& o, index_t sequence, index_t c,
                    index_t count) noexcept {
    const auto of_channels = [&](const auto& x) noexcept {
      return simd::load_strided<Acc, simd::default_arch>(x.pointer(c), x.stride(0), count);
    };
    const auto row = [&](const auto& x, index_t b, index_t t) noexcept {
      return simd::load_strided<Acc, simd::default_arch>(x.pointer(b, t, c), x.stride(2), count);
    };
    const bool packed = op.offsets.present();
    const index_t b = packed ? 0 : sequence;
    const index_t first = packed ? op.offsets.at(sequence) : 0;
    const index_t last = packed ? op.offsets.at(sequence + 1) : op.k.extent(1);
    const index_t live = op.lengths.present() ? std::min(first + op.lengths.at(sequence), last) : last;

    rwkv4_sweep<Acc> over(of_channels(op.w), of_channels(op.u));
    const index_t from = core::checker::slot_of(st.initial_slots, sequence);
    const index_t to = core::checker::slot_of(st.final_slots, sequence);
    if (st.initial.present() && from >= 0) over.load(st.initial[from], c, count);
    for (index_t t = first; t < live; ++t) {
      const auto k = row(op.k, b, t), v = row(op.v, b, t);
      if (o.present()) simd::store_strided(o.pointer(b, t, c), o.stride(2), over.average(k, v), count);
      over.advance(k, v);
    }
    for (index_t t = live; o.present() && t < last; ++t) {
      simd::store_strided(o.pointer(b, t, c), o.stride(2), over.average(), count);
    }
    if (st.final.present() && to >= 0) over.save(st.final[to], c, count);
  }
};

}  // namespace detail

template <storage T>
struct engine_of<rwkv4<T>> {
  using type = detail::rwkv4_engine;
};

}  // namespace OGIVE_ABI
}  // namespace ogive

// L5: the backward pass over modes that a term of low rank couples.
//
//   g_t = 2 c̄ dy_t + ā ⊙ g_{t+1} + Σ_r 2 Q̄_r ds_{r,t+1},   ds_{r,t} = −Re ⟨U_r, g_t⟩,   du_t = Re ⟨b, g_t⟩ + D dy_t
//
// is the forward pass with U and Q, and b and c, exchanged and a conjugated. On the way it adds up the gradients of the
// coefficients, g_t times what they were multiplied by. A task owns a block of channels and walks through all
// sequences: a sweep forward keeps the state before every tile, then tiles are taken from the last to the first, their
// states computed again. At the end the operator leads the sums back to its own parameters, in double.
#pragma once

#include <ogive/engine/coupled_modes_sweep.hpp>
#include <ogive/engine/diagonal_policy.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// The panels of a backward pass. `d` has the planes of the coefficients: sums of g h̄ for a and of g u for b, of h dy
/// and h ds, which `gradient` turns into 2 h̄ dy and 2 h̄ ds, for c and q, and of −g s for u.
template <class Acc>
struct coupled_adjoint {
  static constexpr index_t W = simd::width<Acc>;
  coupled_panel<Acc> p;
  Acc* g;       // [states, 2, W]
  Acc* ds;      // [rank, W]
  Acc* d;       // [states, planes, W]
  Acc* states;  // [tokens + 1, states, 2, W]: before the tile, then after each token
  Acc* reads;   // [tokens, rank, W]: s of the state before each token
  Acc* kept;    // [tiles, states, 2, W]

  index_t size() const noexcept { return p.states * 2 * W; }
  Acc* state(index_t t) const noexcept { return states + t * size(); }
  void hold(const Acc* from, Acc* to, index_t count) const noexcept {
    for (index_t i = 0; i < count; i += W) simd::store(to + i, simd::load(from + i));
  }

  static coupled_adjoint carve(index_t states, index_t rank, index_t tokens, index_t tiles, arena& memory) noexcept {
    coupled_adjoint a{
        coupled_panel<Acc>::carve(states, rank, memory), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
    a.g = memory.take<Acc>(a.size());
    a.ds = memory.take<Acc>(std::max<index_t>(rank, 1) * W);
    a.d = memory.take<Acc>(states * a.p.planes() * W);
    a.states = memory.take<Acc>((tokens + 1) * a.size());
    a.reads = memory.take<Acc>(tokens * std::max<index_t>(rank, 1) * W);
    a.kept = memory.take<Acc>(tiles * a.size());
    return a;
  }

  /// The gradient of a lane's a (plane 0), b (2), c (4), q_r (6 + 4 r) or u_r (8 + 4 r).
  std::complex<double> gradient(index_t n, index_t plane, index_t lane) const noexcept {
    const Acc* at = d + (n * p.planes() + plane) * W + lane;
    const bool read = plane == 4 || (plane > 4 && plane % 4 == 2);  // of h̄ times a real number
    return {(read ? 2 : 1) * static_cast<double>(at[0]), (read ? -2 : 1) * static_cast<double>(at[W])};
  }

  /// What is read of a state h by the output, dy, and by the next token, ds: g and the gradients of c and Q.
  template <int Rank>
  OGIVE_INLINE void read_back(index_t n, const Acc* h, const simd::batch<Acc>& dy, simd::batch<Acc>& re,
                              simd::batch<Acc>& im) const noexcept {
    const Acc* m = p.modes + n * p.planes() * W;
    Acc* to = d + n * p.planes() * W;
    const auto h_re = simd::load(h), h_im = simd::load(h + W);
    const auto back = [&](index_t plane, const simd::batch<Acc>& x) __attribute__((always_inline)) {
      re = simd::fma(simd::load(m + plane * W), x, re);
      im = simd::fma(simd::load(m + (plane + 1) * W), x, im);
      Acc* sum = to + plane * W;
      simd::store(sum, simd::fma(h_re, x, simd::load(sum)));
      simd::store(sum + W, simd::fma(h_im, x, simd::load(sum + W)));
    };
    back(4, dy);
    each_rank<Rank>(
        p.rank, [&](index_t r) __attribute__((always_inline)) { back(6 + 4 * r, simd::load(ds + r * W)); });
  }

  /// Tokens of a tile from the last to the first; u and dy [tokens, W], du likewise.
  template <int Rank>
  OGIVE_NOINLINE void sweep(index_t tokens, const Acc* u, const Acc* dy, Acc* du) const noexcept {
    using vector = simd::batch<Acc>;
    for (index_t t = tokens; t-- > 0;) {
      const vector in = simd::load(u + t * W), out = simd::load(dy + t * W), zero(Acc(0));
      vector d_in = zero, next_re[rank_room<Rank>], next_im[rank_room<Rank>];
      each_rank<Rank>(
          p.rank, [&](index_t r) __attribute__((always_inline)) { next_re[r] = next_im[r] = zero; });
      for (index_t n = 0; n < p.states; ++n) {
        const Acc* m = p.modes + n * p.planes() * W;
        const auto plane = [&](index_t i) __attribute__((always_inline)) { return simd::load(m + i * W); };
        Acc* to = d + n * p.planes() * W;
        const auto add = [&](index_t i, const vector& x) __attribute__((always_inline)) {
          simd::store(to + i * W, simd::load(to + i * W) + x);
        };
        Acc* own = g + 2 * n * W;
        vector re = simd::load(own), im = simd::load(own + W);
        read_back<Rank>(n, state(t + 1) + 2 * n * W, out, re, im);
        const Acc* before = state(t) + 2 * n * W;
        const vector h_re = simd::load(before), h_im = simd::load(before + W);
        d_in = simd::fma(plane(2), re, simd::fma(plane(3), im, d_in));
        add(0, simd::fma(re, h_re, im * h_im));
        add(1, simd::fnma(re, h_im, im * h_re));
        add(2, re * in);
        add(3, im * in);
        each_rank<Rank>(
            p.rank, [&](index_t r) __attribute__((always_inline)) {
              const vector s = simd::load(reads + (t * std::max<index_t>(p.rank, 1) + r) * W);
              add(8 + 4 * r, -(re * s));
              add(9 + 4 * r, -(im * s));
              next_re[r] = simd::fma(plane(8 + 4 * r), re, next_re[r]);
              next_im[r] = simd::fma(plane(9 + 4 * r), im, next_im[r]);
            });
        simd::store(own, simd::fma(plane(0), re, plane(1) * im));
        simd::store(own + W, simd::fnma(plane(1), re, plane(0) * im));
      }
      simd::store(du + t * W, d_in);
      each_rank<Rank>(
          p.rank, [&](index_t r) __attribute__((always_inline)) { simd::store(ds + r * W, next_re[r] + next_im[r]); });
    }
  }
  void sweep(index_t tokens, const Acc* u, const Acc* dy, Acc* du) const noexcept {
    switch (p.rank) {
      case 0:
        return sweep<0>(tokens, u, dy, du);
      case 1:
        return sweep<1>(tokens, u, dy, du);
      case 2:
        return sweep<2>(tokens, u, dy, du);
      default:
        return sweep<-1>(tokens, u, dy, du);
    }
  }

  /// The state p.h is read by dy and ds and written by nothing here.
  void read_back(const simd::batch<Acc>& dy) const noexcept {
    for (index_t n = 0; n < p.states; ++n) {
      Acc* own = g + 2 * n * W;
      auto re = simd::load(own), im = simd::load(own + W);
      read_back<-1>(n, p.h + 2 * n * W, dy, re, im);
      simd::store(own, re);
      simd::store(own + W, im);
    }
  }
};

/// A block of channels through all sequences.
template <class Acc, class Op, class State>
class coupled_backward_task {
  using T = typename Op::scalar;
  using number = typename Op::number;
  using vector = simd::batch<Acc>;
  using gradients = typename Op::gradient;
  using state_gradients = typename Op::default_state_gradient;
  static constexpr index_t W = simd::width<Acc>;

 public:
  static constexpr index_t most_tokens = 32;

  struct call {
    const Op& op;
    const State& st;
    const view<const T, 3>& d_y;
    const state_gradients& d_st;
    const gradients& d;
    bool accumulate;
  };

  static std::size_t bytes(const Op& op) noexcept {
    arena counted;
    coupled_backward_task({op, {}, {}, {}, {}, false}, 0, counted);
    return counted.used();
  }
  OGIVE_NOINLINE static void run(const call& c, index_t block, arena memory) noexcept {
    coupled_backward_task own(c, block, memory);
    zero_tile(own.a_.d, W, 0, own.a_.p.states * own.a_.p.planes(), W);
    simd::store(own.skip_, vector(Acc(0)));
    own.a_.p.pack(c.op, own.channel_, own.channels_, own.is_);
    const index_t sequences = c.op.offsets.present() ? c.op.offsets.size() - 1 : c.op.u.extent(0);
    for (index_t s = 0; s < sequences; ++s) own.sequence(s);
    own.finish();
  }

 private:
  coupled_backward_task(const call& c, index_t block, arena& memory) noexcept
      : c_(c),
        tokens_(std::clamp<index_t>(c.op.u.extent(1), 1, most_tokens)),
        a_(coupled_adjoint<Acc>::carve(c.op.states(), c.op.rank(), tokens_, (c.op.u.extent(1) + tokens_ - 1) / tokens_,
                                       memory)),
        is_(coupled_coefficients::carve(c.op.states(), c.op.rank(), memory)),
        of_(coupled_coefficients::carve(c.op.states(), c.op.rank(), memory)),
        to_(coupled_coefficients::carve(c.op.states(), c.op.rank(), memory)),
        u_(memory.take<Acc>(tokens_ * W)),
        dy_(memory.take<Acc>(tokens_ * W)),
        du_(memory.take<Acc>(tokens_ * W)),
        skip_(memory.take<Acc>(W)),
        channel_(block * W),
        channels_(std::min(W, c.op.u.extent(2) - channel_)) {}

  void sequence(index_t s) noexcept {
    const bool packed = c_.op.offsets.present();
    batch_ = packed ? 0 : s;
    begin_ = packed ? c_.op.offsets.at(s) : 0;
    const index_t length = packed ? c_.op.offsets.at(s + 1) - begin_ : c_.op.u.extent(1);
    const index_t live = c_.op.lengths.present() ? std::min(c_.op.lengths.at(s), length) : length;
    const index_t tiles = (live + tokens_ - 1) / tokens_;
    load_initial(s);
    start_coupled(a_.p);
    for (index_t i = 0; i < tiles; ++i) {
      a_.hold(a_.p.h, a_.kept + i * a_.size(), a_.size());
      const index_t count = std::min(tokens_, live - i * tokens_);
      load(c_.op.u, i * tokens_, count, u_);
      sweep_coupled<true>(a_.p, count, u_, du_);
    }
    if (c_.d_st.final.present()) {
      for (const index_t part : {0, 1}) load_tile(part_of(c_.d_st.final, s, part), a_.g + part * W, 2 * W);
    } else {
      zero_tile(a_.g, W, 0, 2 * a_.p.states, W);
    }
    zero_tile(a_.ds, W, 0, a_.p.rank, W);
    padding(live, length);
    for (index_t i = tiles; i-- > 0;) tile(i, std::min(tokens_, live - i * tokens_));
    load_initial(s);
    a_.read_back(vector(Acc(0)));
    if (!c_.d_st.initial.present()) return;
    for (const index_t part : {0, 1}) {
      drain_tile(a_.g + part * W, 2 * W, part_of(c_.d_st.initial, s, part), c_.accumulate);
    }
  }

  void tile(index_t i, index_t count) noexcept {
    const index_t first = i * tokens_, rank = std::max<index_t>(a_.p.rank, 1);
    load(c_.op.u, first, count, u_);
    load_cotangent(first, count);
    a_.hold(a_.kept + i * a_.size(), a_.p.h, a_.size());
    start_coupled(a_.p);
    a_.hold(a_.p.h, a_.state(0), a_.size());
    for (index_t t = 0; t < count; ++t) {
      a_.hold(a_.p.s, a_.reads + t * rank * W, a_.p.rank * W);
      sweep_coupled<true>(a_.p, 1, u_ + t * W, du_);
      a_.hold(a_.p.h, a_.state(t + 1), a_.size());
    }
    a_.sweep(count, u_, dy_, du_);
    store_input(first, count);
  }

  /// Rows of padding read the last state and their own u.
  void padding(index_t live, index_t length) noexcept {
    vector sum(Acc(0));
    for (index_t t = live; t < length; t += tokens_) {
      const index_t count = std::min(tokens_, length - t);
      if (c_.op.D.present() || c_.d.D.present()) {
        load(c_.op.u, t, count, u_);
      } else {
        zero_tile(u_, W, 0, count, W);
      }
      load_cotangent(t, count);
      for (index_t i = 0; i < count; ++i) sum = sum + simd::load(dy_ + i * W);
      zero_tile(du_, W, 0, count, W);
      store_input(t, count);
    }
    if (live < length) a_.read_back(sum);
  }

  /// D dy to the gradient of u, and that of D.
  void store_input(index_t first, index_t count) noexcept {
    vector skip(Acc(0)), d_skip = simd::load(skip_);
    if (c_.op.D.present()) {
      skip = simd::load_strided<Acc, simd::default_arch>(c_.op.D.pointer(channel_), c_.op.D.stride(0), channels_);
    }
    for (index_t t = 0; t < count; ++t) {
      const vector dy = simd::load(dy_ + t * W);
      simd::store(du_ + t * W, simd::fma(skip, dy, simd::load(du_ + t * W)));
      d_skip = simd::fma(dy, simd::load(u_ + t * W), d_skip);
    }
    simd::store(skip_, d_skip);
    if (c_.d.u.present()) drain_tile(du_, W, block(c_.d.u, first, count), c_.accumulate);
  }

  void finish() noexcept {
    for (index_t lane = 0; lane < channels_; ++lane) {
      const index_t channel = channel_ + lane;
      for (index_t n = 0; n < a_.p.states; ++n) {
        of_.step.A[n] = a_.gradient(n, 0, lane);
        of_.step.B[n] = a_.gradient(n, 2, lane);
        for (index_t r = 0; r < a_.p.rank; ++r) {
          of_.step.Q(r, n) = a_.gradient(n, 6 + 4 * r, lane);
          of_.step.U(r, n) = a_.gradient(n, 8 + 4 * r, lane);
        }
        if (c_.d.C.present()) put(c_.d.C(channel, n), a_.gradient(n, 4, lane));
      }
      c_.op.adjoint_coefficients(channel, is_.step, of_.step, to_.step, c_.d,
                                 [&](auto& field, const auto& value) noexcept { put(field, value); });
      if (c_.d.D.present()) put(c_.d.D[channel], static_cast<double>(skip_[lane]));
    }
  }
  template <class X, class Y>
  void put(X& field, const Y& value) const noexcept {
    field = c_.accumulate ? X(Y(field) + value) : X(value);
  }

  void load_initial(index_t s) noexcept {
    const index_t slot = c_.st.initial.present() ? core::checker::slot_of(c_.st.initial_slots, s) : -1;
    if (slot < 0) return zero_tile(a_.p.h, W, 0, 2 * a_.p.states, W);
    for (const index_t part : {0, 1}) load_tile(part_of(c_.st.initial, slot, part), a_.p.h + part * W, 2 * W);
  }
  template <class X>
  void load(const view<const X, 3>& x, index_t first, index_t count, Acc* to) noexcept {
    load_tile(block(x, first, count), to, W);
  }
  void load_cotangent(index_t first, index_t count) noexcept {
    if (c_.d_y.present()) return load(c_.d_y, first, count, dy_);
    zero_tile(dy_, W, 0, count, W);
  }
  template <class X>
  view<X, 2> block(const view<X, 3>& x, index_t first, index_t count) const noexcept {
    return {x.pointer(batch_, begin_ + first, channel_), {count, channels_}, {x.stride(1), x.stride(2)}};
  }
  template <class S>
  auto part_of(const view<S, 3>& pool, index_t slot, index_t part) const noexcept {
    return coupled_part(pool, slot, channel_, channels_, part);
  }
  const call& c_;
  index_t tokens_;
  coupled_adjoint<Acc> a_;
  coupled_coefficients is_, of_, to_;
  Acc *u_, *dy_, *du_;  // [tokens, W]
  Acc* skip_;           // [W], the gradient of D
  index_t channel_, channels_;
  index_t batch_ = 0, begin_ = 0;
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

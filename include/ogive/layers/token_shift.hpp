// Token shift: every token sees the one before it.
//
//   y_{t,m} = x_t + (μ_m + mix_{t,m}) ⊙ (x_{t−1} − x_t)        m = 1 … M, one mixture for each projection that follows
//
// with x_{−1} in the state. μ alone: RWKV-4, -5 and -7 (which write x_t ⊙ (1 − μ) + x_{t−1} ⊙ μ); mix depends on the
// token: RWKV-6. μ = 1 is the plain shift. arXiv:2305.13048, 2404.05892, 2503.14456.
#pragma once

#include <ogive/layers/window_backward.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

namespace detail {
template <class Op, class Walk>
class shift_pass;
}

/// x [B, L, D], mu [M, D], mix [B, L, M, D], one of them at least; y [B, L, M, D]; state [slots, D, K], K ≥ 1. Rows of
/// padding (at and after a length) are 0.
template <storage T, storage P = T>
struct token_shift {
  using scalar = T;
  using accum = accum_t<T>;
  using output = view<T, 4>;

  view<const T, 3> x{};
  view<const P, 2> mu{};
  view<const T, 4> mix{};
  integers lengths{};  ///< per sequence; tokens from there on are padding and do not enter the state
  integers offsets{};  ///< packed sequences, a state each

  struct gradient {
    view<T, 3> x{};
    view<accum, 2> mu{};
    view<T, 4> mix{};
  };

  static constexpr const char* name = "token_shift";
  template <class S>
  using state_of = window_state<S>;
  using default_state = window_state<T>;
  using default_state_gradient = window_gradient<accum>;
  using windowed = void;
  using rules = detail::window_rules;
  template <class Walk>
  using pass = detail::shift_pass<token_shift, Walk>;

  index_t reach() const noexcept { return 1; }
  index_t mixtures() const noexcept { return mu.present() ? mu.extent(0) : mix.extent(2); }

  void check_fields(core::checker& ask) const noexcept {
    ask.given("x", x).extents("x", x, {-1, -1, -1}, "[B, L, D]");
    if (ask && !mu.present() && !mix.present()) ask.refuse("mu") << "is absent, and so is mix; give one of them";
    ask.extents("mu", mu, {-1, x.extent(2)}, "[M, D], D as x");
    ask.extents("mix", mix, {x.extent(0), x.extent(1), mixtures(), x.extent(2)}, "[B, L, M, D], M as mu, others as x");
  }
  void check_output(core::checker& ask, const output& y) const noexcept {
    ask.extents("y", y, {x.extent(0), x.extent(1), mixtures(), x.extent(2)}, "[B, L, M, D]");
  }
  template <class X, std::size_t Rank>
  void check_written(core::checker& ask, const char* field, const view<X, Rank>& written) const noexcept {
    ask.apart(field, written, "x", x).apart(field, written, "mu", mu).apart(field, written, "mix", mix);
  }
  template <class Apart>
  void check_gradients(core::checker& ask, const view<const T, 4>& d_y, const gradient& d,
                       const Apart& apart) const noexcept {
    ask.extents("d_y", d_y, {x.extent(0), x.extent(1), mixtures(), x.extent(2)}, "[B, L, M, D]");
    ask.extents("d.mu", d.mu, {mixtures(), x.extent(2)}, "[M, D]").extents("d.mix", d.mix, mix.extents(), "as mix");
    apart("d.mu", d.mu);
    apart("d.mix", d.mix);
  }

  std::size_t bytes(index_t across) const noexcept {
    arena counted;
    counted.take<double>((2 * group + 2) * across);
    return counted.used() + 3 * arena::alignment;
  }

  template <class S>
  void compute(const detail::window_problem<T, S>& p, const detail::window_piece& at, index_t channel, index_t across,
               const output& y, arena memory) const noexcept {
    using Acc = sweep_t<T, S>;
    using vector = simd::batch<Acc>;
    constexpr index_t V = simd::width<Acc>;
    Acc* in = memory.take<Acc>((group + 1) * p.row);
    Acc* out = memory.take<Acc>(group * p.row);
    Acc* share = memory.take<Acc>(p.row);
    const index_t live = std::clamp<index_t>(at.live - at.first, 0, at.count);
    for (index_t t = 0; t < at.count; t += group) {
      const index_t count = std::min(group, at.count - t), real = std::clamp<index_t>(live - t, 0, count);
      if (real > 0) p.load(at, at.first + t - 1, real + 1, channel, across, in, p.row);
      for (index_t m = 0; m < mixtures(); ++m) {
        load_share(m, channel, across, share, p.row);
        detail::zero_tile(out, p.row, real, count, across);
        if (mix.present()) {
          detail::load_tile(rows(mix, at, at.first + t, real, m, channel, across), out, p.row);
        } else {
          detail::zero_tile(out, p.row, 0, real, across);
        }
        for (index_t i = 0; i < real * p.row; i += p.row) {
          for (index_t j = 0; j < across; j += V) {
            const vector now = simd::load(in + p.row + i + j);
            const vector weight = simd::load(share + j) + simd::load(out + i + j);
            simd::store(out + i + j, simd::fma(weight, simd::load(in + i + j) - now, now));
          }
        }
        detail::store_tile(out, p.row, rows(y, at, at.first + t, count, m, channel, across));
      }
    }
  }

 private:
  template <class Op, class Walk>
  friend class detail::shift_pass;
  static constexpr index_t group = 16;  // tokens of a panel

  /// Tokens from a position on in mixture m of a tensor [B, L, M, D].
  template <class X>
  static view<X, 2> rows(const view<X, 4>& of, const detail::window_piece& at, index_t position, index_t count,
                         index_t m, index_t channel, index_t across) noexcept {
    return {of.pointer(at.batch, at.begin + position, m, channel), {count, across}, {of.stride(1), of.stride(3)}};
  }
  /// μ_m, or zeros.
  template <class Acc>
  void load_share(index_t m, index_t channel, index_t across, Acc* to, index_t row) const noexcept {
    if (!mu.present()) return detail::zero_tile(to, row, 0, 1, across);
    detail::load_tile(view<const P, 2>(mu.pointer(m, channel), {1, across}, {0, mu.stride(1)}), to, row);
  }
};

namespace detail {

/// The backward pass of a block of channels: with v the cotangent of y and s = μ + mix,
///   dx_t = Σ_m v_{t,m} ⊙ (1 − s_{t,m}) + Σ_m v_{t+1,m} ⊙ s_{t+1,m},   ds_{t,m} = v_{t,m} ⊙ (x_{t−1} − x_t)
template <class Op, class Walk>
class shift_pass {
  using Acc = typename Walk::Acc;
  using vector = simd::batch<Acc>;
  static constexpr index_t V = simd::width<Acc>;
  static constexpr index_t row = Walk::row;

 public:
  shift_pass(const Op& op, Walk& walk, const cotangent_of<Op>& d_y, const typename Op::gradient& d,
             arena& memory) noexcept
      : op_(op), walk_(walk), d_y_(d_y), d_(d), m_(scratch(op, memory)), across_(walk.across) {
    zero_tile(m_.d_mu, row, 0, op.mixtures(), across_);
  }

  struct panels {
    Acc* x;      // [1 + tile, row]
    Acc* v;      // [tile, row]
    Acc* s;      // [tile, row]
    Acc* later;  // [1 + tile, row]: what tokens say of the one before them; the last row is the token after the tile
    Acc* share;  // [row]
    Acc* d_mu;   // [M, row]
  };
  static panels scratch(const Op& op, arena& memory) noexcept {
    constexpr index_t tile = Walk::tile;
    return {memory.take<Acc>((1 + tile) * row), memory.take<Acc>(tile * row), memory.take<Acc>(tile * row),
            memory.take<Acc>((1 + tile) * row), memory.take<Acc>(row),        memory.take<Acc>(op.mixtures() * row)};
  }

  void begin() noexcept { zero_tile(m_.later, row, 0, 1, across_); }

  void tokens(const window_piece& at, index_t first, index_t count, Acc* d_in) noexcept {
    const index_t end = count * row;
    each([&](index_t j) noexcept { simd::store(m_.later + end + j, simd::load(m_.later + j)); });
    walk_.p.load(at, first - 1, 1 + count, walk_.channel, across_, m_.x, row);
    zero_tile(m_.later, row, 0, count, across_);
    zero_tile(d_in, row, 0, count, across_);
    for (index_t m = 0; m < op_.mixtures(); ++m) {
      if (d_y_.present()) {
        load_tile(rows(d_y_, at, first, count, m), m_.v, row);
      } else {
        zero_tile(m_.v, row, 0, count, across_);
      }
      op_.load_share(m, walk_.channel, across_, m_.share, row);
      if (op_.mix.present()) {
        load_tile(rows(op_.mix, at, first, count, m), m_.s, row);
      } else {
        zero_tile(m_.s, row, 0, count, across_);
      }
      each([&](index_t j) noexcept {
        const vector share = simd::load(m_.share + j);
        vector sum(Acc(0));
        for (index_t i = j; i < end; i += row) {
          const vector v = simd::load(m_.v + i), back = v * (share + simd::load(m_.s + i));
          Walk::add(m_.later + i, back);
          Walk::add(d_in + i, v - back);
          const vector d_s = v * (simd::load(m_.x + i) - simd::load(m_.x + row + i));
          simd::store(m_.v + i, d_s);
          sum = sum + d_s;
        }
        Walk::add(m_.d_mu + m * row + j, sum);
      });
      if (d_.mix.present()) walk_.drain(m_.v, rows(d_.mix, at, first, count, m));
    }
    for (index_t i = 0; i < end; i += row) {
      each([&](index_t j) noexcept { Walk::add(d_in + i + j, simd::load(m_.later + i + row + j)); });
    }
  }

  void before(index_t position, Acc* to) noexcept {
    each([&](index_t j) noexcept { simd::store(to + j, position == -1 ? simd::load(m_.later + j) : vector(Acc(0))); });
  }

  void padding(const window_piece& at, index_t first, index_t count, const Acc* zeros) noexcept {
    for (index_t m = 0; d_.mix.present() && m < op_.mixtures(); ++m) {
      store_tile(zeros, row, rows(d_.mix, at, first, count, m));
    }
  }

  void finish() noexcept {
    if (!d_.mu.present()) return;
    walk_.drain(m_.d_mu, view<typename Op::accum, 2>(d_.mu.pointer(0, walk_.channel), {op_.mixtures(), across_},
                                                     {d_.mu.stride(0), d_.mu.stride(1)}));
  }

 private:
  template <class F>
  OGIVE_INLINE void each(const F& f) noexcept {
    for (index_t j = 0; j < across_; j += V) f(j);
  }
  template <class X>
  view<X, 2> rows(const view<X, 4>& of, const window_piece& at, index_t first, index_t count,
                  index_t m) const noexcept {
    return Op::rows(of, at, first, count, m, walk_.channel, across_);
  }

  const Op& op_;
  Walk& walk_;
  const cotangent_of<Op>& d_y_;
  const typename Op::gradient& d_;
  panels m_;
  index_t across_;
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

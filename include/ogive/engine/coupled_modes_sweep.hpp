// L5: the inner loop over modes that a term of low rank couples, and their panels.
//
//   h ← a ⊙ h − Σ_r U_r s_r + b u,   y = ⟨C̄, h⟩,   s_r = ⟨Q̄_r, h⟩                ⟨x, y⟩ = 2 Re Σ_n x̄_n y_n
//
// Lanes are channels. The products s with the new state are added up while it is written, so that a token is one pass
// over the state, which with its coefficients stays in the first-level cache.
#pragma once

#include <ogive/core/scratch.hpp>
#include <ogive/engine/tiles.hpp>
#include <ogive/engine/unroll.hpp>
#include <ogive/maps/dplr.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// A channel's coefficients in double.
struct coupled_coefficients {
  dplr_step<std::complex<double>> step;

  static coupled_coefficients carve(index_t states, index_t rank, arena& memory) noexcept {
    using complex = std::complex<double>;
    const auto row = [&] { return view<complex, 1>(memory.take<complex>(states), {states}); };
    const auto rows = [&] { return view<complex, 2>(memory.take<complex>(rank * states), {rank, states}); };
    const view<complex, 1> A = row(), B = row();
    const view<complex, 2> U = rows(), Q = rows();
    return {{A, U, Q, B}};
  }
};

/// Up to W channels. `modes` has for every mode a, b, 2 c̄ and, for each r, 2 q̄ and −u, real and imaginary parts, so
/// that products of real parts and of imaginary ones are added.
template <class Acc>
struct coupled_panel {
  static constexpr index_t W = simd::width<Acc>;
  index_t states, rank;
  Acc* modes = nullptr;  // [states, planes, W]
  Acc* h = nullptr;      // [states, 2, W]
  Acc* s = nullptr;      // [rank, W]

  index_t planes() const noexcept { return 6 + 4 * rank; }
  index_t numbers() const noexcept { return states * planes() * W; }

  static coupled_panel carve(index_t states, index_t rank, arena& memory) noexcept {
    coupled_panel p{states, rank};
    p.modes = memory.take<Acc>(p.numbers());
    p.h = memory.take<Acc>(states * 2 * W);
    p.s = memory.take<Acc>(std::max<index_t>(rank, 1) * W);
    return p;
  }

  /// The coefficients of `channels` channels from `channel` on; other lanes stay zero.
  template <class Op>
  void pack(const Op& op, index_t channel, index_t channels, const coupled_coefficients& of) const noexcept {
    if (op.Q.present()) return pack_steps(op, channel, channels);
    zero_tile(modes, W, 0, states * planes(), W);
    for (index_t lane = 0; lane < channels; ++lane) {
      op.coefficients(channel + lane, of.step);
      for (index_t n = 0; n < states; ++n) {
        put(n, 0, lane, of.step.A[n]);
        put(n, 2, lane, of.step.B[n]);
        put(n, 4, lane, 2.0 * std::conj(std::complex<double>(op.C(channel + lane, n))));
        for (index_t r = 0; r < rank; ++r) {
          put(n, 6 + 4 * r, lane, 2.0 * std::conj(of.step.Q(r, n)));
          put(n, 8 + 4 * r, lane, -of.step.U(r, n));
        }
      }
    }
  }

 private:
  void put(index_t n, index_t plane, index_t lane, const std::complex<double>& x) const noexcept {
    Acc* at = modes + (n * planes() + plane) * W + lane;
    at[0] = static_cast<Acc>(x.real());
    at[W] = static_cast<Acc>(x.imag());
  }

  /// Steps as they are given, a plane at a time.
  template <class Op>
  void pack_steps(const Op& op, index_t channel, index_t channels) const noexcept {
    using Real = typename Op::accum;
    const auto put_plane = [&](const auto& x, index_t plane, Acc re, Acc im) noexcept {
      for (const index_t part : {0, 1}) {
        const view<const Real, 2> numbers(reinterpret_cast<const Real*>(x.data()) + part, {states, channels},
                                          {2 * x.stride(1), 2 * x.stride(0)});
        load_tile(numbers, modes + (plane + part) * W, planes() * W, [factor = part == 0 ? re : im](index_t) noexcept {
          return [factor](const simd::batch<Acc>& v, index_t) noexcept { return simd::batch<Acc>(factor) * v; };
        });
      }
    };
    const auto of = [&](const auto& x) noexcept { return x.slice(0, channel, channels); };
    put_plane(of(op.Lambda), 0, 1, 1);
    put_plane(of(op.B), 2, 1, 1);
    put_plane(of(op.C), 4, 2, -2);
    for (index_t r = 0; r < rank; ++r) {
      put_plane(of(op.Q.permute({1, 0, 2})[r]), 6 + 4 * r, 2, -2);
      put_plane(of(op.P.permute({1, 0, 2})[r]), 8 + 4 * r, -1, -1);
    }
  }
};

/// Real or imaginary parts of a slot of a pool [slots, D, N], modes down and channels across.
template <class S>
auto coupled_part(const view<S, 3>& pool, index_t slot, index_t channel, index_t channels, index_t part) noexcept {
  using Real = typename std::remove_const_t<S>::value_type;
  using Kept = std::conditional_t<std::is_const_v<S>, const Real, Real>;
  return view<Kept, 2>(reinterpret_cast<Kept*>(pool.pointer(slot, channel, 0)) + part, {pool.extent(2), channels},
                       {2 * pool.stride(2), 2 * pool.stride(1)});
}

/// f(r) for r < rank, which is a constant where it is known.
template <int Rank, class F>
OGIVE_INLINE void each_rank(index_t rank, const F& f) noexcept {
  if constexpr (Rank >= 0) {
    unroll<Rank>([&](auto r) __attribute__((always_inline)) { f(static_cast<index_t>(r)); });
  } else {
    for (index_t r = 0; r < rank; ++r) f(r);
  }
}
template <int Rank>
inline constexpr index_t rank_room = Rank<0 ? dplr_most_rank : Rank> 0 ? Rank : 1;

/// u and y [tokens, W]; without an input only the state goes on.
template <int Rank, bool Driven, class Acc>
OGIVE_NOINLINE void sweep_coupled(const coupled_panel<Acc>& p, index_t tokens, const Acc* u, Acc* y) noexcept {
  using vector = simd::batch<Acc>;
  constexpr index_t W = simd::width<Acc>;
  const vector zero(Acc(0));
  vector s[rank_room<Rank>];
  each_rank<Rank>(
      p.rank, [&](index_t r) __attribute__((always_inline)) { s[r] = simd::load(p.s + r * W); });
  for (index_t t = 0; t < tokens; ++t) {
    const vector input = Driven ? simd::load(u + t * W) : zero;
    vector sum_re = zero, sum_im = zero, s_re[rank_room<Rank>], s_im[rank_room<Rank>];
    each_rank<Rank>(
        p.rank, [&](index_t r) __attribute__((always_inline)) { s_re[r] = s_im[r] = zero; });
    const Acc* m = p.modes;
    Acc* h = p.h;
    for (index_t n = 0; n < p.states; ++n, m += p.planes() * W, h += 2 * W) {
      const auto plane = [&](index_t i) __attribute__((always_inline)) { return simd::load(m + i * W); };
      const vector h_re = simd::load(h), h_im = simd::load(h + W);
      vector re = plane(0) * h_re, im = plane(0) * h_im;
      if constexpr (Driven) {
        re = simd::fma(plane(2), input, re);
        im = simd::fma(plane(3), input, im);
      }
      re = simd::fnma(plane(1), h_im, re);
      im = simd::fma(plane(1), h_re, im);
      each_rank<Rank>(
          p.rank, [&](index_t r) __attribute__((always_inline)) {
            re = simd::fma(plane(8 + 4 * r), s[r], re);
            im = simd::fma(plane(9 + 4 * r), s[r], im);
          });
      simd::store(h, re);
      simd::store(h + W, im);
      if constexpr (Driven) {
        sum_re = simd::fma(plane(4), re, sum_re);
        sum_im = simd::fma(plane(5), im, sum_im);
      }
      each_rank<Rank>(
          p.rank, [&](index_t r) __attribute__((always_inline)) {
            s_re[r] = simd::fma(plane(6 + 4 * r), re, s_re[r]);
            s_im[r] = simd::fma(plane(7 + 4 * r), im, s_im[r]);
          });
    }
    if constexpr (Driven) simd::store(y + t * W, sum_re + sum_im);
    each_rank<Rank>(
        p.rank, [&](index_t r) __attribute__((always_inline)) { s[r] = s_re[r] + s_im[r]; });
  }
  each_rank<Rank>(
      p.rank, [&](index_t r) __attribute__((always_inline)) { simd::store(p.s + r * W, s[r]); });
}

template <bool Driven, class Acc>
void sweep_coupled(const coupled_panel<Acc>& p, index_t tokens, const Acc* u, Acc* y) noexcept {
  switch (p.rank) {
    case 0:
      return sweep_coupled<0, Driven>(p, tokens, u, y);
    case 1:
      return sweep_coupled<1, Driven>(p, tokens, u, y);
    case 2:
      return sweep_coupled<2, Driven>(p, tokens, u, y);
    default:
      return sweep_coupled<-1, Driven>(p, tokens, u, y);
  }
}

/// One of the products with the state as it is: that of the planes `plane` and the next.
template <class Acc>
OGIVE_NOINLINE simd::batch<Acc> read_coupled(const coupled_panel<Acc>& p, index_t plane) noexcept {
  using vector = simd::batch<Acc>;
  constexpr index_t W = simd::width<Acc>;
  vector re(Acc(0)), im(Acc(0));
  for (index_t n = 0; n < p.states; ++n) {
    const Acc* m = p.modes + (n * p.planes() + plane) * W;
    re = simd::fma(simd::load(m), simd::load(p.h + 2 * n * W), re);
    im = simd::fma(simd::load(m + W), simd::load(p.h + (2 * n + 1) * W), im);
  }
  return re + im;
}

/// s of the state that a sweep starts from.
template <class Acc>
void start_coupled(const coupled_panel<Acc>& p) noexcept {
  for (index_t r = 0; r < p.rank; ++r) simd::store(p.s + r * simd::width<Acc>, read_coupled(p, 6 + 4 * r));
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

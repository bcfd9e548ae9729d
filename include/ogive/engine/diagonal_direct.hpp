// L5: the diagonal engine's sweep where a channel has one number of state, which is its output, and the tensors are the
// operands:
//
//   h_t = exp(g_t) ⊙ h_{t-1} + x_t,   y_t = h_t                                                          h ∈ R^D
//   c_t = ȳ_t + exp(g_{t+1}) ⊙ c_{t+1},   x̄_t = c_t,   ḡ_t = c_t ⊙ exp(g_t) ⊙ h_{t-1}                   backwards
//
// Memory binds it. So rows of tokens are read and written where they lie, long runs of channels at a time, and the
// state waits in the first-level cache. Tensors whose channels are no neighbours go through panels, which may be
// narrow.
#pragma once

#include <ogive/engine/diagonal_adjoint.hpp>
#include <ogive/engine/tiles.hpp>
#include <ogive/simd/math.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

namespace detail {

/// A vector of a row, or the beginning of one at its end.
template <class Acc, class Arch>
struct whole_vector {
  template <class X>
  OGIVE_INLINE simd::batch<Acc, Arch> load(const X* p) const noexcept {
    return simd::load_as<Acc, Arch>(p);
  }
  template <class X>
  OGIVE_INLINE void store(X* p, const simd::batch<Acc, Arch>& x) const noexcept {
    simd::store_as(p, x);
  }
};
template <class Acc, class Arch>
struct part_of_vector {
  index_t count;
  template <class X>
  OGIVE_INLINE simd::batch<Acc, Arch> load(const X* p) const noexcept {
    return simd::load_as<Acc, Arch>(p, count);
  }
  template <class X>
  OGIVE_INLINE void store(X* p, const simd::batch<Acc, Arch>& x) const noexcept {
    simd::store_as(p, x, count);
  }
};

/// f(first channel, its vector) along a row.
template <class Acc, class Arch, class F>
OGIVE_INLINE void along_row(index_t channels, const F& f) noexcept {
  constexpr index_t W = simd::width<Acc, Arch>;
  constexpr whole_vector<Acc, Arch> whole{};
  index_t v = 0;
  for (; v + 2 * W <= channels; v += 2 * W) f(v, whole), f(v + W, whole);
  if (v + W <= channels) f(v, whole), v += W;
  if (v < channels) f(v, part_of_vector<Acc, Arch>{channels - v});
}

/// Where row t + 1 is from row t, to ask for it: rows are often a page apart, and no hardware prefetcher follows.
template <class X>
index_t step_ahead(const view<X, 2>& x, index_t t) noexcept {
  return t + 1 < x.extent(0) ? x.stride(0) : 0;
}

/// g and x have the tokens that are alive, y all of them, or none.
template <carried Carried, class Arch, class G, class X, class Y, class Acc>
OGIVE_NOINLINE void sweep_direct_rows(const view<const G, 2>& g, const view<const X, 2>& x, const view<Y, 2>& y,
                                      const direct_state<Acc>& s) noexcept {
  constexpr bool reads = Carried != carried::alone, apart = Carried != carried::state;
  const index_t channels = x.extent(1), live = x.extent(0);
  const bool writes = reads && y.present();
  for (index_t t = 0; t < live; ++t) {
    const G* const g_t = g.data() + t * g.stride(0);
    const X* const x_t = x.data() + t * x.stride(0);
    Y* const y_t = writes ? y.data() + t * y.stride(0) : nullptr;
    const index_t next_g = step_ahead(g, t), next_x = step_ahead(x, t), next_y = step_ahead(y, t);
    along_row<Acc, Arch>(
        channels, [&](index_t v, const auto& part) __attribute__((always_inline)) {
          __builtin_prefetch(g_t + next_g + v);
          __builtin_prefetch(x_t + next_x + v);
          const auto a = simd::exp(part.load(g_t + v)), b = part.load(x_t + v);
          if constexpr (apart) {
            simd::store(s.alone + v, simd::fma(a, simd::load<Arch>(s.alone + v), b));
            simd::store(s.decay + v, a * simd::load<Arch>(s.decay + v));
          }
          if constexpr (reads) {
            const auto h = simd::fma(a, simd::load<Arch>(s.h + v), b);
            simd::store(s.h + v, h);
            if (!writes) return;
            __builtin_prefetch(y_t + next_y + v);
            part.store(y_t + v, h);
          }
        });
  }
  for (index_t t = live; writes && t < y.extent(0); ++t) {
    along_row<Acc, Arch>(
        channels, [&](index_t v, const auto& part)
                      __attribute__((always_inline)) { part.store(y.pointer(t, v), simd::load<Arch>(s.h + v)); });
  }
}

/// y_t for a tile of tokens; an absent y is not written.
template <class Acc, class G, class X, class Y>
void sweep_direct(const view<const G, 3>& g, const view<const X, 3>& x, const view<Y, 3>& y, const diagonal_tile& at,
                  const diagonal_panels<Acc>& panels, const direct_state<Acc>& s) noexcept {
  const auto sweep = [&](const auto& g_tile, const auto& x_tile, const auto& y_tile) noexcept {
    using arch = simd::default_arch;
    switch (s.what) {
      case carried::state:
        return sweep_direct_rows<carried::state, arch>(g_tile, x_tile, y_tile, s);
      case carried::alone:
        return sweep_direct_rows<carried::alone, arch>(g_tile, x_tile, y_tile, s);
      case carried::both:
        return sweep_direct_rows<carried::both, arch>(g_tile, x_tile, y_tile, s);
    }
  };
  const auto g_tile = tile_of(g, at, at.live);
  const auto x_tile = tile_of(x, at, at.live);
  const auto y_tile = y.present() ? tile_of(y, at, at.count) : view<Y, 2>();
  if (in_rows(g, x, y)) return sweep(g_tile, x_tile, y_tile);
  const auto panel = [&](Acc* p, index_t tokens) noexcept {
    return view<Acc, 2>(p, {tokens, at.channels}, {panels.row, 1});
  };
  load_tile(g_tile, panels.delta, panels.row);
  load_tile(x_tile, panels.x, panels.row);
  sweep(view<const Acc, 2>(panel(panels.delta, at.live)), view<const Acc, 2>(panel(panels.x, at.live)),
        y.present() ? panel(panels.y, at.count) : view<Acc, 2>());
  if (y.present() && s.what != carried::alone) store_tile(panels.y, panels.row, y_tile);
}

/// d_y, d_x and d_g have all `tokens`, or are absent.
template <class Arch, class G, class X, class Y, class Acc>
OGIVE_NOINLINE void adjoint_direct_rows(const view<const G, 2>& g, const view<const X, 2>& x,
                                        const view<const Y, 2>& d_y, const view<X, 2>& d_x, const view<G, 2>& d_g,
                                        index_t tokens, index_t row, const direct_adjoint<Acc>& w) noexcept {
  using vector = simd::batch<Acc, Arch>;
  const index_t channels = x.extent(1), live = x.extent(0);
  for (index_t t = 0; t < live; ++t) {
    const G* const g_t = g.data() + t * g.stride(0);
    const X* const x_t = x.data() + t * x.stride(0);
    const index_t next_g = step_ahead(g, t), next_x = step_ahead(x, t);
    Acc *const a_t = w.decays + t * row, *const h_t = w.states + t * row;
    along_row<Acc, Arch>(
        channels, [&](index_t v, const auto& part) __attribute__((always_inline)) {
          __builtin_prefetch(g_t + next_g + v);
          __builtin_prefetch(x_t + next_x + v);
          const vector a = simd::exp(part.load(g_t + v));
          simd::store(a_t + v, a);
          if (t + 1 < live) simd::store(h_t + row + v, simd::fma(a, simd::load<Arch>(h_t + v), part.load(x_t + v)));
        });
  }
  for (index_t t = tokens; t-- > 0;) {
    const index_t before = t > 0 ? t - 1 : 0;
    const auto put = [&](const auto& part, const auto& to, index_t v, const vector& d) __attribute__((always_inline)) {
      if (!to.present()) return;
      auto* const p = to.data() + t * to.stride(0) + v;
      __builtin_prefetch(to.data() + before * to.stride(0) + v);
      part.store(p, w.accumulate ? part.load(p) + d : d);
    };
    along_row<Acc, Arch>(
        channels, [&](index_t v, const auto& part) __attribute__((always_inline)) {
          vector c = simd::load<Arch>(w.c + v), from_x(Acc(0)), from_g(Acc(0));
          if (d_y.present()) {
            __builtin_prefetch(d_y.data() + before * d_y.stride(0) + v);
            c = c + part.load(d_y.data() + t * d_y.stride(0) + v);
          }
          if (t < live) {
            from_x = c;
            c = c * simd::load<Arch>(w.decays + t * row + v);
            from_g = c * simd::load<Arch>(w.states + t * row + v);
          }
          simd::store(w.c + v, c);
          put(part, d_x, v, from_x);
          put(part, d_g, v, from_g);
        });
  }
}

/// x̄ and ḡ of a tile of tokens, where they are asked for.
template <class Acc, class G, class X, class Y>
void adjoint_direct(const view<const G, 3>& g, const view<const X, 3>& x, const view<const Y, 3>& d_y,
                    const view<X, 3>& d_x, const view<G, 3>& d_g, const diagonal_tile& at,
                    const diagonal_panels<Acc>& panels, const diagonal_adjoints<Acc>& adjoints,
                    const direct_adjoint<Acc>& w) noexcept {
  const auto g_tile = tile_of(g, at, at.live);
  const auto x_tile = tile_of(x, at, at.live);
  const auto tile = [&](const auto& all) noexcept {
    using tokens = std::remove_cvref_t<decltype(tile_of(all, at, at.count))>;
    return all.present() ? tile_of(all, at, at.count) : tokens();
  };
  if (in_rows(g, x, d_y, d_x, d_g)) {
    return adjoint_direct_rows<simd::default_arch>(g_tile, x_tile, tile(d_y), tile(d_x), tile(d_g), at.count,
                                                   panels.row, w);
  }
  const auto panel = [&](Acc* p, index_t tokens, bool present = true) noexcept {
    return present ? view<Acc, 2>(p, {tokens, at.channels}, {panels.row, 1}) : view<Acc, 2>();
  };
  load_tile(g_tile, panels.delta, panels.row);
  load_tile(x_tile, panels.x, panels.row);
  if (d_y.present()) load_tile(tile(d_y), adjoints.d_y, panels.row);
  auto fresh = w;
  fresh.accumulate = false;
  adjoint_direct_rows<simd::default_arch>(
      view<const Acc, 2>(panel(panels.delta, at.live)), view<const Acc, 2>(panel(panels.x, at.live)),
      view<const Acc, 2>(panel(adjoints.d_y, at.count, d_y.present())), panel(adjoints.d_x, at.count, d_x.present()),
      panel(adjoints.d_delta, at.count, d_g.present()), at.count, panels.row, fresh);
  if (d_x.present()) drain_tile(adjoints.d_x, panels.row, tile(d_x), w.accumulate);
  if (d_g.present()) drain_tile(adjoints.d_delta, panels.row, tile(d_g), w.accumulate);
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

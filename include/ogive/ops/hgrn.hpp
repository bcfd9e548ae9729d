// HGRN: a gated linear recurrence, channel by channel, whose state is its output.
//
//   h_t = exp(g_t) ⊙ h_{t-1} + x_t,   o_t = h_t                      h ∈ R^D
//
// g is the natural log of the forget gate, −∞ included, which forgets everything; the layer has g = log f and
// x = (1 − f) ⊙ i. Qin, Yang & Zhong 2023, arXiv:2311.04823. The same recurrence is the middle of minGRU, RG-LRU and
// QRNN.
#pragma once

#include <ogive/engine/diagonal.hpp>
#include <ogive/simd/math.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

/// x and g [B, L, D]; o [B, L, D]; state [slots, D, 1].
template <storage T>
struct hgrn {
  using scalar = T;
  using accum = accum_t<T>;
  using number = accum;

  view<const T, 3> x{};
  view<const accum, 3> g{};  ///< natural log of the decay
  integers lengths{};        ///< per sequence; tokens from there on neither decay nor write, and read the state
  integers offsets{};        ///< packed sequences, a state each

  struct gradient {
    view<T, 3> x{};
    view<accum, 3> g{};
  };

  static constexpr const char* name = "hgrn";
  template <class S>
  using state_of = diagonal_state<S>;
  using default_state = diagonal_state<accum>;
  using default_state_gradient = diagonal_state_gradient<accum>;

  diagonal_extents extents() const noexcept {
    return {.batch = x.extent(0), .length = x.extent(1), .channels = x.extent(2), .states = 1};
  }
  view<const accum, 3> rates() const noexcept { return {}; }
  index_t shared_run() const noexcept { return 0; }

  void check_fields(core::checker& ask) const noexcept {
    ask.given("x", x).given("g", g).extents("x", x, {-1, -1, -1}, "[B, L, D]");
    ask.extents("g", g, x.extents(), "[B, L, D] as x");
  }
  template <class X, std::size_t Rank>
  void check_written(core::checker& ask, const char* field, const view<X, Rank>& written) const noexcept {
    ask.apart(field, written, "x", x).apart(field, written, "g", g);
  }
  template <class F>
  void for_gradients(const gradient& d, const F& f) const noexcept {
    f("d.x", d.x), f("d.g", d.g);
  }
  void check_gradients(core::checker& ask, const gradient& d) const noexcept {
    ask.extents("d.x", d.x, x.extents(), "[B, L, D] as x").extents("d.g", d.g, x.extents(), "[B, L, D] as x");
    ask.output("d.x", d.x).output("d.g", d.g);
  }
  bool gradient_reads_output(const gradient&) const noexcept { return false; }

  template <class Acc>
  void load(const diagonal_tile&, const diagonal_panels<Acc>&) const noexcept {}
  diagonal_ahead ahead(const diagonal_tile&, const view<T, 3>&) const noexcept { return {}; }

  /// a = exp(g), b = x, c = 1.
  template <class Acc>
  void expand(const diagonal_tile& at, const diagonal_panels<Acc>& to) const noexcept {
    using vector = simd::batch<Acc>;
    const vector one(Acc(1));
    detail::load_tile(detail::tile_of(g, at, at.live), to.a, to.row, [](index_t) noexcept {
      return [](const vector& decay, index_t) noexcept { return simd::exp(decay); };
    });
    detail::load_tile(detail::tile_of(x, at, at.live), to.b, to.row);
    for (index_t t = at.live; t < at.count; ++t) simd::store(to.a + t * to.row, one);
    detail::zero_tile(to.b, to.row, at.live, at.count, at.channels);
    for (index_t t = 0; at.first && t < at.count; ++t) simd::store(to.c + t * to.row, one);
  }

  template <class Acc>
  void store(const diagonal_tile& at, const diagonal_panels<Acc>& from, const view<T, 3>& o) const noexcept {
    detail::store_tile(from.y, from.row, detail::tile_of(o, at, at.count));
  }

  template <class Acc>
  void cotangent(const diagonal_tile& at, const diagonal_panels<Acc>& from, const diagonal_adjoints<Acc>& to,
                 const view<const T, 3>& d_o) const noexcept {
    if (!d_o.present()) return detail::zero_tile(to.d_y, from.row, 0, at.count, at.channels);
    detail::load_tile(detail::tile_of(d_o, at, at.count), to.d_y, from.row);
  }

  /// ḡ = ā ⊙ a, x̄ = b̄.
  template <class Acc>
  void contract(const diagonal_tile& at, const diagonal_panels<Acc>& from,
                const diagonal_adjoints<Acc>& to) const noexcept {
    for (index_t t = 0; t < at.live; ++t) {
      const index_t row = t * from.row;
      simd::store(to.d_delta + row, simd::load(to.d_a + row) * simd::load(from.a + row));
      simd::store(to.d_x + row, simd::load(to.d_b + row));
    }
  }

  template <class Acc>
  void store_gradients(const diagonal_tile& at, const diagonal_panels<Acc>& from, const diagonal_adjoints<Acc>& to,
                       const view<const T, 3>&, const gradient& d, bool accumulate) const noexcept {
    if (d.x.present()) detail::drain_tile(to.d_x, from.row, detail::tile_of(d.x, at, at.count), accumulate);
    if (d.g.present()) detail::drain_tile(to.d_delta, from.row, detail::tile_of(d.g, at, at.count), accumulate);
  }
  template <class Acc>
  void finish_gradients(const diagonal_tile&, const diagonal_panels<Acc>&, const diagonal_adjoints<Acc>&,
                        const gradient&, bool) const noexcept {}
};

}  // namespace OGIVE_ABI
}  // namespace ogive

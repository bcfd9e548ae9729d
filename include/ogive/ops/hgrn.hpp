// HGRN: a gated linear recurrence, channel by channel, whose state is its output.
//
//   h_t = exp(g_t) ⊙ h_{t-1} + x_t,   o_t = h_t                      h ∈ R^D
//
// g is the natural log of the forget gate, −∞ included, which forgets everything; the layer has g = log f and
// x = (1 − f) ⊙ i. Qin, Yang & Zhong 2023, arXiv:2311.04823. The same recurrence is the middle of minGRU, RG-LRU and
// QRNN.
#pragma once

#include <ogive/engine/diagonal.hpp>
#include <ogive/engine/diagonal_direct.hpp>

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

  template <class... X>
  bool swept_in_place(const X&... o) const noexcept {
    return detail::in_rows(x, g, o...);
  }
  template <class Acc>
  void sweep(const diagonal_tile& at, const diagonal_panels<Acc>& panels, const direct_state<Acc>& s,
             const view<T, 3>& o) const noexcept {
    detail::sweep_direct(g, x, o, at, panels, s);
  }
  template <class Acc>
  void adjoint(const diagonal_tile& at, const diagonal_panels<Acc>& panels, const diagonal_adjoints<Acc>& adjoints,
               const direct_adjoint<Acc>& w, const view<const T, 3>& d_o, const gradient& d) const noexcept {
    detail::adjoint_direct(g, x, d_o, d.x, d.g, at, panels, adjoints, w);
  }
};

}  // namespace OGIVE_ABI
}  // namespace ogive

// A dense linear time-invariant system, one input and output or many: the recurrence that state-space layers begin
// with.
//
//   h_t = A̅ h_{t-1} + B̅ u_t,   y_t = C h_t + D u_t,   h ∈ R^N
//
// which is the convolution y_t = Σ_{l ≤ t} K_l u_{t−l} + C A̅^{t+1} h + D u_t, K_l = C A̅ˡ B̅ (`kernel`), h the initial
// state. `step` and `recurrent` go token by token, `convolution` by transforms, where errors are relative to the
// largest numbers of a sequence; `forward` takes what is cheaper for the shape. Continuous systems come in through
// `discretise_dense` (ogive/maps/discretisation_dense.hpp). Gu et al., Combining Recurrent, Convolutional, and
// Continuous-time Models with Linear State-Space Layers, arXiv:2110.13985.
#pragma once

#include <ogive/engine/shared_state.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

/// u [B, L, M], A_bar [N, N], B_bar [N, M], C [P, N], D [P, M]; y [B, L, P]. State [slots, N].
template <storage T>
struct lti {
  using scalar = T;
  using accum = accum_t<T>;
  using number = accum;

  view<const T, 3> u{};
  view<const accum, 2> A_bar{}, B_bar{}, C{};
  view<const accum, 2> D{};
  integers lengths{};  ///< per sequence; tokens from there on neither decay nor write
  integers offsets{};  ///< packed sequences, a state each

  struct gradient {
    view<T, 3> u{};
    view<accum, 2> A_bar{}, B_bar{}, C{}, D{};
  };

  static constexpr const char* name = "lti";
  template <class S>
  using state_of = vector_state<S>;
  using default_state = vector_state<accum>;
  using default_state_gradient = vector_state_gradient<accum>;

  shared_state_extents extents() const noexcept {
    return {u.extent(0), u.extent(1), u.extent(2), A_bar.extent(0), C.extent(0)};
  }
  view<const accum, 2> transition() const noexcept { return A_bar; }
  view<const accum, 2> input() const noexcept { return B_bar; }
  view<const accum, 2> output() const noexcept { return C; }

  template <class F>
  void fields(const F& f) const noexcept {
    f("u", u);
    f("A_bar", A_bar);
    f("B_bar", B_bar);
    f("C", C);
    f("D", D);
  }
  template <class F>
  void for_gradients(const gradient& d, const F& f) const noexcept {
    f("d.u", d.u, u);
    f("d.A_bar", d.A_bar, A_bar);
    f("d.B_bar", d.B_bar, B_bar);
    f("d.C", d.C, C);
    f("d.D", d.D, D);
  }
  static detail::shared_state_wishes wishes(const gradient& d) noexcept {
    return {d.A_bar.present(), d.B_bar.present(), d.C.present(), d.D.present()};
  }
  static view<accum, 2> d_transition(const gradient& d) noexcept { return d.A_bar; }
  static view<accum, 2> d_input(const gradient& d) noexcept { return d.B_bar; }
  static view<accum, 2> d_output(const gradient& d) noexcept { return d.C; }

  void check_fields(core::checker& ask) const noexcept {
    const index_t M = u.extent(2), N = A_bar.extent(0);
    ask.given("u", u).given("A_bar", A_bar).given("B_bar", B_bar).given("C", C);
    ask.extents("u", u, {-1, -1, -1}, "[B, L, M]").extents("A_bar", A_bar, {N, N}, "[N, N]");
    ask.extents("B_bar", B_bar, {N, M}, "[N, M], N as A_bar, M as u").extents("C", C, {-1, N}, "[P, N], N as A_bar");
    ask.extents("D", D, {C.extent(0), M}, "[P, M], P as C, M as u");
  }
};

}  // namespace OGIVE_ABI
}  // namespace ogive

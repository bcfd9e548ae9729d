// L1*: state space duality (Mamba-2) by its two definitions.
//
//   d_t = clamp(softplus?(dt_t + dt_bias), dt_min, dt_max),   a_t = exp(d_t A)
//   S_t = a_t S_{t-1} + B_t (d_t x_t)ᵀ,   y_t = (S_tᵀ C_t + D x_t) silu(z_t)
//   Y = M (d x),   M = (C Bᵀ) ∘ L,   L_ij = a_(j+1) ⋯ a_i
//
// per head; A is negative. Dao and Gu 2024, arXiv:2405.21060.
#pragma once

#include <ogive/reference/activations.hpp>
#include <ogive/reference/layout.hpp>
#include <ogive/reference/structured_masked_attention.hpp>

namespace ogive::reference {

template <class Op>
concept ssd_fields = requires(const Op& op) {
  op.x, op.dt, op.A, op.B, op.C, op.D, op.z, op.dt_bias, op.dt_softplus, op.dt_min, op.dt_max, op.lengths, op.head_map;
};

namespace detail {

/// d_t of one head.
template <class Acc, class Op>
Acc time_step(const Op& op, index_t b, index_t t, index_t h) {
  Acc d = lift<Acc>(op.dt(b, t, h));
  if (op.dt_bias.present()) d = d + lift<Acc>(op.dt_bias(h));
  if (op.dt_softplus) d = softplus(d);
  const Acc low = static_cast<Acc>(op.dt_min);
  const Acc high = static_cast<Acc>(op.dt_max);
  return d < low ? low : high < d ? high : d;
}

/// exp(d A); a step of 0 decays nothing, whatever A is.
template <class Acc, class Op>
Acc decay_of(const Op& op, const Acc& d, index_t h) {
  using std::exp;
  const Acc A = lift<Acc>(op.A(h));
  return d == Acc(0) && A == A ? Acc(1) : exp(d * A);
}

/// y = (y + D x) silu(z)
template <class Acc, class Op, class Out>
void skip_and_gate(const Op& op, index_t b, index_t t, index_t h, index_t c, Acc y, const view<Out, 4>& o) {
  if (op.D.present()) y = y + lift<Acc>(op.D(h, op.D.extent(1) == 1 ? 0 : c)) * lift<Acc>(op.x(b, t, h, c));
  if (op.z.present()) y = y * silu(lift<Acc>(op.z(b, t, h, c)));
  o(b, t, h, c) = lower<Out>(y);
}

}  // namespace detail

/// Token by token. x, z, y [B,L,H,P], dt [B,L,H], A, dt_bias [H], B, C [B,L,G,N], D [H,P] or [H,1]; state
/// [slots,H,N,P]. y may be absent.
template <class Acc, ssd_fields Op, class State = state<double>, class Out>
void evaluate(const Op& op, const State& given, const view<Out, 4>& y) {
  const auto st = state_of(given);
  const index_t H = op.x.extent(2);
  const index_t P = op.x.extent(3);
  const index_t N = op.B.extent(3);
  index_t n = 0;
  for (const auto& [b, begin, end, live] : sequences(op, op.x.extent(0), op.x.extent(1))) {
    for (index_t h = 0; h < H; ++h) {
      const index_t g = read_by(h, H, op.B.extent(2), op.head_map);
      auto S = load<Acc>(st.initial, st.initial_slots, n, h, {N, P});
      for (index_t t = begin; t < end; ++t) {
        if (t < live) {
          const auto B = key_row<Acc>(op, op.B, b, t, g);
          const Acc d = detail::time_step<Acc>(op, b, t, h);
          const Acc a = detail::decay_of(op, d, h);
          for (index_t r = 0; r < N; ++r) {
            for (index_t c = 0; c < P; ++c) {
              S(r, c) = a * S(r, c) + B(r) * d * lift<Acc>(op.x(b, t, h, c));
            }
          }
        }
        const auto C = key_row<Acc>(op, op.C, b, t, g);
        for (index_t c = 0; y.present() && c < P; ++c) {
          Acc sum(0);
          for (index_t r = 0; r < N; ++r) sum = sum + S(r, c) * C(r);
          detail::skip_and_gate(op, b, t, h, c, sum, y);
        }
      }
      store(st.final, st.final_slots, n, h, S);
    }
    ++n;
  }
}

/// Through the matrix M = (C Bᵀ) ∘ L, O(L²); the initial state S₀ adds a_1 ⋯ a_i S₀ᵀ C_i. Writes no state.
template <class Acc, ssd_fields Op, class State = state<double>, class Out>
void evaluate_masked(const Op& op, const State& given, const view<Out, 4>& y) {
  const auto st = state_of(given);
  const index_t H = op.x.extent(2);
  const index_t P = op.x.extent(3);
  const index_t N = op.B.extent(3);
  index_t n = 0;
  for (const auto& [b, begin, end, live] : sequences(op, op.x.extent(0), op.x.extent(1))) {
    for (index_t h = 0; h < H; ++h) {
      const index_t length = end - begin;
      const index_t g = read_by(h, H, op.B.extent(2), op.head_map);
      tensor<Acc, 1> a({length}, Acc(1));
      tensor<Acc, 2> B({length, N}, Acc(0));
      tensor<Acc, 2> C({length, N}, Acc(0));
      tensor<Acc, 2> dx({length, P}, Acc(0));
      tensor<Acc, 2> Y({length, P}, Acc(0));
      for (index_t t = 0; t < length; ++t) {
        const auto read = key_row<Acc>(op, op.C, b, begin + t, g);
        for (index_t r = 0; r < N; ++r) C(t, r) = read(r);
        if (begin + t >= live) continue;
        const Acc d = detail::time_step<Acc>(op, b, begin + t, h);
        a(t) = detail::decay_of(op, d, h);
        const auto written = key_row<Acc>(op, op.B, b, begin + t, g);
        for (index_t r = 0; r < N; ++r) B(t, r) = written(r);
        for (index_t c = 0; c < P; ++c) dx(t, c) = d * lift<Acc>(op.x(b, begin + t, h, c));
      }
      const semiseparable_mask<Acc> L{std::as_const(a).all()};
      structured_masked_attention<Acc>(C.all(), B.all(), dx.all(), L, Y.all());
      const auto S0 = load<Acc>(st.initial, st.initial_slots, n, h, {N, P});
      Acc decay(1);
      for (index_t t = 0; t < length; ++t) {
        decay = decay * a(t);
        for (index_t c = 0; c < P; ++c) {
          Acc carried(0);
          for (index_t r = 0; r < N; ++r) carried = carried + S0(r, c) * C(t, r);
          detail::skip_and_gate(op, b, begin + t, h, c, Y(t, c) + decay * carried, y);
        }
      }
    }
    ++n;
  }
}

}  // namespace ogive::reference

// Causal convolution along time, one kernel of any length per channel: what a time-invariant state-space model is to a
// whole sequence, and long convolutions are by themselves.
//
//   y_t = Σ_{l < Lk} K_l u_{t−l} + D u_t
//
// with the inputs before the first token in the history, or 0. Kernels may be longer than the sequence. As in S4 (Gu et
// al., arXiv:2111.00396); long convolutions by themselves: Poli et al., Hyena Hierarchy, arXiv:2302.10866.
//
// `step`, `recurrent`: Lk products for each output, the same to the bit in whatever pieces a sequence comes; the future
// never reaches the past. `convolution`: by transforms, O(log) for each output, blocks where the sequence is much
// longer than the kernel; there errors are relative to the largest numbers of a block. `forward` and `backward` take
// what is cheaper for the shape.
#pragma once

#include <ogive/engine/checks.hpp>
#include <ogive/engine/convolution_backward.hpp>
#include <ogive/engine/convolution_step.hpp>
#include <ogive/engine/verbs.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

/// u, y [B, L, D], kernel [D, Lk], D [D]; state [slots, D, Lk − 1], inputs as they came. Rows of padding, at and after
/// a length, are 0. A kernel of length 0 is no kernel: y = D u.
template <storage T>
struct causal_convolution {
  using scalar = T;
  using accum = accum_t<T>;

  view<const T, 3> u{};
  view<const accum, 2> kernel{};
  view<const accum, 1> D{};
  integers lengths{};  ///< per sequence; tokens from there on are padding and do not enter the state
  integers offsets{};  ///< packed sequences, a state each

  struct gradient {
    view<T, 3> u{};
    view<accum, 2> kernel{};
    view<accum, 1> D{};
  };

  static constexpr const char* name = "causal_convolution";
  template <storage S>
  using state_of = history_state<S>;
  using default_state = history_state<T>;
  using default_state_gradient = history_state_gradient<accum>;

  template <class F>
  void fields(const F& f) const noexcept {
    f("u", u);
    f("kernel", kernel);
    f("D", D);
  }
};

namespace detail {

struct causal_convolution_engine : sweep_or_convolution<3> {
  template <class Op, class State>
  static status check(const Op& op, const State& st, const output<Op>& y, const options& how) noexcept {
    core::checker ask(Op::name);
    check_fields(ask, op, how);
    if (!ask) return ask.result();
    const auto p = problem(op, st, y);
    ask.extents("y", y, op.u.extents(), "[B, L, D] as u").output("y", y);
    check_state(ask, p);
    check_apart(ask, st, "y", y, apart_from_fields(ask, op));
    return ask.result();
  }

  template <class Op>
  static std::size_t bytes(const Op& op, const options&) noexcept {
    const auto p = problem(op, typename Op::default_state{}, output<Op>{});
    const kernel_tensor<typename Op::accum> kernel{op.kernel};
    const auto of = [&]<class Acc>(Acc) noexcept {
      return std::max(convolution_bytes<Acc>(p, kernel), convolution_step_bytes<Acc>(p));
    };
    return std::max(of(typename Op::accum()), of(double()));
  }

  template <class Op>
  static void make_tables(const Op& op, const options&, context& ctx) {
    make_convolution_tables<typename Op::accum>(problem(op, typename Op::default_state{}, output<Op>{}), ctx);
  }

  template <verb Verb, class Op, class State>
  static void run(const Op& op, const State& st, const output<Op>& y, const options& how, context& ctx) {
    using Acc = sweep_t<typename Op::scalar, typename State::storage_type>;
    const auto p = problem(op, st, y);
    const auto workers = static_cast<std::size_t>(ctx.workers());
    if constexpr (Verb == verb::step) {
      ctx.reserve(workers * convolution_step_bytes<Acc>(p));
      convolve_step<Acc>(p, op.kernel, ctx);
    } else {
      constexpr form own = Verb == verb::recurrent ? form::recurrent : form::convolution;
      const convolution_cut cut = convolution_cut_of<Acc>(p, Verb == verb::forward ? how.form : own);
      const kernel_tensor<typename Op::accum> kernel{op.kernel};
      make_convolution_tables<Acc>(cut, ctx);
      ctx.reserve(workers * convolution_bytes<Acc>(p, cut, kernel));
      convolve<Acc>(p, cut, kernel, ctx);
    }
  }

  template <class Op, class State, class StateGradient>
  static status check_backward(const Op& op, const State& st, const cotangent<output<Op>>& d_y,
                               const StateGradient& d_st, const gradient<Op>& d, const options& how) noexcept {
    core::checker ask(Op::name);
    check_fields(ask, op, how);
    if (!ask) return ask.result();
    const auto p = problem(op, st, output<Op>{});
    const index_t n = p.sequences(), channels = p.channels(), H = p.reach();
    check_state(ask, p);
    ask.extents("d_y", d_y, op.u.extents(), "[B, L, D] as u").extents("d.u", d.u, op.u.extents(), "[B, L, D] as u");
    ask.extents("d.kernel", d.kernel, op.kernel.extents(), "[D, Lk] as kernel").extents("d.D", d.D, {channels}, "[D]");
    ask.output("d.u", d.u).output("d.kernel", d.kernel).output("d.D", d.D);
    check_state_gradient(ask, d_st, shape<3>{n, channels, H}, "[sequences, D, Lk - 1]");
    const auto gradients = [&](const auto& f) noexcept { f("d.u", d.u), f("d.kernel", d.kernel), f("d.D", d.D); };
    check_gradients_apart(ask, st, "d_y", d_y, d_st, gradients, apart_from_fields(ask, op));
    return ask.result();
  }

  template <class Op>
  static std::size_t backward_bytes(const Op& op, const options& how) noexcept {
    const auto p = problem(op, typename Op::default_state{}, output<Op>{});
    const kernel_tensor<typename Op::accum> kernel{op.kernel};
    const auto of = [&]<class Acc>(Acc) noexcept {
      return convolution_backward_bytes<Acc>(p, convolution_backward_cut_of<Acc>(p, how.form), kernel);
    };
    return std::max(of(typename Op::accum()), of(double()));
  }

  template <class Op, class State, class StateGradient>
  static void backward(const Op& op, const State& st, const cotangent<output<Op>>& d_y, const StateGradient& d_st,
                       const gradient<Op>& d, const options& how, context& ctx) {
    using T = typename Op::scalar;
    using P = typename Op::accum;
    using Acc = sweep_t<T, typename State::storage_type>;
    const auto p = problem(op, st, output<Op>{});
    const convolution_cut cut = convolution_backward_cut_of<Acc>(p, how.form);
    const kernel_tensor<P> kernel{op.kernel};
    make_convolution_tables<Acc>(cut, ctx);
    ctx.reserve(static_cast<std::size_t>(ctx.workers()) * convolution_backward_bytes<Acc>(p, cut, kernel));
    const convolution_gradients<T, typename StateGradient::storage_type> all{
        d_y, d_st, d.u, d.kernel.present() || d.D.present(), how.accumulate};
    convolve_backward<Acc>(
        p, cut, kernel, all,
        [&](index_t channel, const Acc* d_taps) noexcept {
          const auto put = [&](P& to, Acc x) noexcept {
            to = static_cast<P>(how.accumulate ? static_cast<Acc>(to) + x : x);
          };
          for (index_t l = 0; d.kernel.present() && l < p.taps; ++l) put(d.kernel(channel, l), d_taps[l]);
          if (d.D.present()) put(d.D(channel), d_taps[0]);
        },
        ctx);
  }

 private:
  template <class Op, class State>
  static auto problem(const Op& op, const State& st, const output<Op>& y) noexcept {
    return convolution_problem<typename Op::scalar, typename State::storage_type>{
        op.u, y, op.kernel.extent(1), op.D, st, op.lengths, op.offsets};
  }

  template <class Op>
  static void check_fields(core::checker& ask, const Op& op, const options& how) noexcept {
    const index_t channels = op.u.extent(2);
    ask.given("u", op.u).given("kernel", op.kernel).extents("u", op.u, {-1, -1, -1}, "[B, L, D]");
    ask.extents("kernel", op.kernel, {channels, -1}, "[D, Lk], D as u").extents("D", op.D, {channels}, "[D], D as u");
    check_sequences(ask, op, how);
  }
  template <class T, class S>
  static void check_state(core::checker& ask, const convolution_problem<T, S>& p) noexcept {
    const history_state<S>& st = p.st;
    ask.pools("initial", st.initial, "final", st.final, st.initial_slots, st.final_slots, p.sequences(),
              {0, p.channels(), p.reach()}, "[slots, D, Lk - 1]");
  }
};

}  // namespace detail

template <storage T>
struct engine_of<causal_convolution<T>> {
  using type = detail::causal_convolution_engine;
};

}  // namespace OGIVE_ABI
}  // namespace ogive

// L5: the engine of diagonal plus low-rank systems that do not depend on the token, a channel each.
//
//   h_t = A̅ h_{t-1} + B̅ u_t,   y_t = ⟨C̄, h_t⟩ + D u_t,   A̅ = diag(a) − Σ_r U_r Q_rᵀ         ⟨x, y⟩ = 2 Re Σ_n x̄_n y_n
//
// A sweep over time costs O(N R) a token. Without states the same outputs are a convolution with K_l = ⟨C̄, A̅ˡ B̅⟩, whose
// kernel, the dearer part, serves all sequences.
#pragma once

#include <ogive/engine/checks.hpp>
#include <ogive/engine/convolution.hpp>
#include <ogive/engine/coupled_modes_backward.hpp>
#include <ogive/engine/coupled_modes_kernel.hpp>
#include <ogive/engine/diagonal_policy.hpp>
#include <ogive/engine/kept_convolution.hpp>
#include <ogive/engine/tasks.hpp>
#include <ogive/engine/verbs.hpp>

#include <algorithm>

namespace ogive {
inline namespace OGIVE_ABI {

/// An operator of the engine: an aggregate of views with u [B, L, D], C [D, N], D [D], `lengths`, `offsets`, and
/// - `states()` (N), `rank()` (R), `channels()` (D of the parameters);
/// - `coefficients(d, step)`: A̅ and B̅ of a channel in double; noexcept, on a checked operator. Where it has Q [D, R,
/// N],
///   these are its fields Lambda, P, Q and B as they stand;
/// - `check_system(checker&)` of all but u, and `fields(f)`, which calls f(name, view) for each view that is read;
/// - for `backward` the types `gradient` and `default_state_gradient`, `for_gradients(d, f)`, which calls
///   f(name, gradient, field) for each, and `adjoint_coefficients(d, step, of, room, to, put)`: from the gradients of a
///   channel's coefficients to those of the fields, put(field, value) storing one.
template <class Op>
concept coupled_modes_operator = requires(const Op& op, const dplr_step<std::complex<double>>& step) {
  typename Op::default_state;
  op.coefficients(index_t{}, step);
  op.rank();
  op.u, op.C, op.D, op.lengths, op.offsets;
};

namespace detail {

/// How a sweep is cut up: a function of shape.
struct coupled_plan {
  index_t blocks;     // of channels
  index_t sequences;  // of a task, which makes its channels' coefficients once
  index_t groups;     // of sequences
  index_t tokens;     // of a tile

  template <class Acc>
  static coupled_plan of(index_t channels, index_t length, index_t sequences) noexcept {
    constexpr index_t wanted = 16;  // tasks
    coupled_plan p{};
    p.blocks = (channels + simd::width<Acc> - 1) / simd::width<Acc>;
    p.groups = std::clamp<index_t>((wanted + p.blocks - 1) / std::max<index_t>(1, p.blocks), 1,
                                   std::max<index_t>(1, sequences));
    // Coefficients cost as much as some tens of tokens.
    p.sequences = std::max((sequences + p.groups - 1) / p.groups, 64 / std::max<index_t>(1, length));
    p.tokens = std::clamp<index_t>(length, 1, 64);
    return p;
  }
};

/// A block of channels through some of the sequences.
template <class Acc, class Op, class State>
class coupled_task {
  using T = typename Op::scalar;
  using vector = simd::batch<Acc>;
  static constexpr index_t W = simd::width<Acc>;

 public:
  static std::size_t bytes(const Op& op, const coupled_plan& plan) noexcept {
    arena counted;
    coupled_task(op, {}, {}, plan, 0, counted);
    return counted.used();
  }
  OGIVE_NOINLINE static void run(const Op& op, const State& st, const view<T, 3>& y, const coupled_plan& plan,
                                 index_t task, arena memory) noexcept {
    coupled_task own(op, st, y, plan, task % plan.blocks, memory);
    const index_t first = task / plan.blocks * plan.sequences;
    const index_t last = std::min(first + plan.sequences, input_sequences(op));
    if (first >= last) return;
    if constexpr (has_panels<Op>) {
      own.panel_.modes = reinterpret_cast<Acc*>(op.panels) + task % plan.blocks * own.panel_.numbers();
    } else {
      own.panel_.pack(op, own.channel_, own.channels_, own.coefficients_);
    }
    for (index_t s = first; s < last; ++s) own.sequence(s);
  }

 private:
  coupled_task(const Op& op, const State& st, const view<T, 3>& y, const coupled_plan& plan, index_t block,
               arena& memory) noexcept
      : op_(op),
        st_(st),
        y_(y),
        plan_(plan),
        panel_(coupled_panel<Acc>::carve(op.states(), op.rank(), memory)),
        coefficients_(coupled_coefficients::carve(op.states(), op.rank(), memory)),
        u_(memory.take<Acc>(plan.tokens * W)),
        sums_(memory.take<Acc>(plan.tokens * W)),
        channel_(block * W),
        channels_(std::min(W, op.u.extent(2) - channel_)) {}

  void sequence(index_t s) noexcept {
    const bool packed = op_.offsets.present();
    const index_t batch = packed ? 0 : s, begin = packed ? op_.offsets.at(s) : 0;
    const index_t length = packed ? op_.offsets.at(s + 1) - begin : op_.u.extent(1);
    const index_t live = op_.lengths.present() ? std::min(op_.lengths.at(s), length) : length;
    load(s);
    start_coupled(panel_);
    const index_t last = y_.present() ? length : live;
    for (index_t t = 0; t < last; t += plan_.tokens) {
      const index_t count = std::min(plan_.tokens, last - t);
      tile(batch, begin + t, count, std::clamp<index_t>(live - t, 0, count));
    }
    save(s);
  }

  void tile(index_t batch, index_t token, index_t count, index_t live) noexcept {
    load_tile(block(op_.u, batch, token, y_.present() && op_.D.present() ? count : live), u_, W);
    sweep_coupled<true>(panel_, live, u_, sums_);
    if (!y_.present()) return;
    if (live < count) {  // padding reads the state
      const vector read = read_coupled(panel_, 4);
      for (index_t t = live; t < count; ++t) simd::store(sums_ + t * W, read);
    }
    if (op_.D.present()) {
      const vector skip =
          simd::load_strided<Acc, simd::default_arch>(op_.D.pointer(channel_), op_.D.stride(0), channels_);
      for (index_t t = 0; t < count; ++t) {
        Acc* at = sums_ + t * W;
        simd::store(at, simd::fma(skip, simd::load(u_ + t * W), simd::load(at)));
      }
    }
    store_tile(sums_, W, block(y_, batch, token, count));
  }

  template <class X>
  view<X, 2> block(const view<X, 3>& x, index_t batch, index_t token, index_t count) const noexcept {
    return {x.pointer(batch, token, channel_), {count, channels_}, {x.stride(1), x.stride(2)}};
  }

  template <class S>
  auto part_of(const view<S, 3>& pool, index_t slot, index_t part) const noexcept {
    return coupled_part(pool, slot, channel_, channels_, part);
  }
  void load(index_t s) const noexcept {
    const index_t slot = st_.initial.present() ? core::checker::slot_of(st_.initial_slots, s) : -1;
    if (slot < 0) return zero_tile(panel_.h, W, 0, 2 * panel_.states, W);
    for (const index_t part : {0, 1}) load_tile(part_of(st_.initial, slot, part), panel_.h + part * W, 2 * W);
  }
  void save(index_t s) const noexcept {
    const index_t slot = st_.final.present() ? core::checker::slot_of(st_.final_slots, s) : -1;
    if (slot < 0) return;
    for (const index_t part : {0, 1}) store_tile(panel_.h + part * W, 2 * W, part_of(st_.final, slot, part));
  }

  const Op& op_;
  const State& st_;
  const view<T, 3>& y_;
  const coupled_plan& plan_;
  coupled_panel<Acc> panel_;
  coupled_coefficients coefficients_;
  Acc *u_, *sums_;  // [tokens, W]
  index_t channel_, channels_;
};

/// The convolution of a block of channels with the kernels that it makes first.
template <class Acc, class Op>
struct coupled_convolution {
  using T = typename Op::scalar;
  using problem = convolution_problem<T>;
  static constexpr index_t W = coupled_kernel::channels;

  struct taps {
    const coupled_kernel& kernel;
    index_t count;
    void operator()(index_t channel, Acc* to, arena) const noexcept {
      for (index_t l = 0; l < count; ++l) to[l] = static_cast<Acc>(kernel.tap(channel, l));
    }
  };

  static problem of(const Op& op, const view<T, 3>& y, index_t channel, index_t channels) noexcept {
    problem p{.u = op.u.slice(2, channel, channels), .offsets = op.offsets};
    p.taps = p.longest();
    if (y.present()) p.y = y.slice(2, channel, channels);
    if (op.D.present()) p.skip = op.D.slice(0, channel, channels);
    return p;
  }
  static convolution_cut cut_of(const problem& p, index_t size = 0) noexcept {
    convolution_cut cut = convolution_cut_of<Acc>(p, form::convolution, size);
    cut.group = W;
    cut.keeps = true;
    return cut;
  }
  static index_t kernel_size(index_t taps) noexcept { return coupled_kernel::transform::size_for(taps); }

  static std::size_t bytes(const Op& op, const problem& p, const convolution_cut& cut) noexcept {
    return coupled_kernel::bytes(op.states(), op.rank(), kernel_size(p.taps)) + convolution_bytes<Acc>(p, cut, none);
  }
  /// For as many tokens or fewer, packed or not: no sequence is longer than the row.
  static std::size_t most_bytes(const Op& op) noexcept {
    const problem p = of_row(op);
    std::size_t most = 0;
    for_transform_sizes<Acc>(p.u.extent(1), cut_of(p).past,
                             [&](index_t n) noexcept { most = std::max(most, bytes(op, p, cut_of(p, n))); });
    return most;
  }
  static void make_tables(const Op& op, context& ctx) {
    const index_t most = cut_of(of_row(op)).past + op.u.extent(1);
    make_sizes<Acc>(most, ctx);
    make_sizes<double>(op.u.extent(1), ctx);
  }

  static void run(const Op& op, const view<T, 3>& y, context& ctx) {
    const index_t D = op.u.extent(2);
    const problem whole = of(op, y, 0, D);
    const convolution_cut cut = cut_of(whole);
    const std::size_t room = bytes(op, whole, cut);
    ctx.reserve(static_cast<std::size_t>(ctx.workers()) * room);
    make_convolution_tables<Acc>(cut, ctx);
    ctx.cache<polynomial_transforms<double>>().make(kernel_size(whole.taps));
    const auto& products = ctx.cache<polynomial_transforms<Acc>>().at(cut.size);
    const auto& transform = ctx.cache<polynomial_transforms<double>>().at(kernel_size(whole.taps));
    run_tasks(ctx, (D + W - 1) / W, room, [&](index_t task, arena memory) noexcept {
      const index_t channel = task * W, channels = std::min(W, D - channel);
      coupled_kernel kernel(op.states(), op.rank(), transform.size(), memory);
      kernel.run(op, channel, channels, transform);
      const problem p = of(op, y, channel, channels);
      convolve_group<Acc>(p, cut, taps{kernel, p.taps}, adds_nothing{}, &products, 0, 0, p.sequences(), memory);
    });
  }

 private:
  static problem of_row(const Op& op) noexcept {
    problem p = of(op, {}, 0, op.u.extent(2));
    p.taps = op.u.extent(1);
    return p;
  }
  template <class X>
  static void make_sizes(index_t most, context& ctx) {
    using transform = polynomial_transform<X>;
    for (index_t n = transform::least; n <= transform::size_for(most); n *= 2) {
      ctx.cache<polynomial_transforms<X>>().make(n);
    }
  }
  static constexpr auto none = [](index_t, Acc*, arena) noexcept {};
};

struct coupled_modes_engine : sweep_or_convolution<3> {
  template <class Op, class State>
  static status check(const Op& op, const State& st, const output<Op>& y, const options& how) noexcept {
    core::checker ask(Op::name);
    check_fields<State>(ask, op, how);
    if (!ask) return ask.result();
    ask.extents("y", y, op.u.extents(), "[B, L, D] as u").output("y", y);
    ask.pools("initial", st.initial, "final", st.final, st.initial_slots, st.final_slots, input_sequences(op),
              {0, op.channels(), op.states()}, "[slots, D, N]");
    check_apart(ask, st, "y", y, apart_from_fields(ask, op));
    return ask.result();
  }

  template <class Op>
  static std::size_t bytes(const Op& op, const options& how) noexcept {
    const auto sweep = [&]<class Acc>(Acc) noexcept {
      const auto plan = coupled_plan::of<Acc>(op.u.extent(2), op.u.extent(1), 1);
      return coupled_task<Acc, Op, typename Op::default_state>::bytes(op, plan);
    };
    const std::size_t swept = std::max(sweep(accum_t<typename Op::scalar>{}), sweep(double{}));
    return how.form == form::recurrent ? swept : std::max(swept, convolution_of<Op>::most_bytes(op));
  }
  template <class Op, class State, class StateGradient>
  static status check_backward(const Op& op, const State& st, const cotangent<output<Op>>& d_y,
                               const StateGradient& d_st, const gradient<Op>& d, const options& how) noexcept {
    using S = typename State::storage_type;
    core::checker ask(Op::name);
    check_fields<State>(ask, op, how);
    if (!ask) return ask.result();
    const index_t sequences = input_sequences(op);
    ask.pools("initial", st.initial, "final", view<S, 3>(), st.initial_slots, view<const std::int32_t, 1>(), sequences,
              {0, op.channels(), op.states()}, "[slots, D, N]");
    ask.extents("d_y", d_y, op.u.extents(), "[B, L, D] as u");
    check_state_gradient(ask, d_st, shape<3>{sequences, op.channels(), op.states()}, "[sequences, D, N]");
    check_gradients(ask, op, st, "d_y", d_y, d_st, d);
    return ask.result();
  }
  template <class Op>
  static std::size_t backward_bytes(const Op& op, const options&) noexcept {
    using State = typename Op::default_state;
    return std::max(coupled_backward_task<accum_t<typename Op::scalar>, Op, State>::bytes(op),
                    coupled_backward_task<double, Op, State>::bytes(op));
  }
  template <class Op, class State, class StateGradient>
  static void backward(const Op& op, const State& st, const cotangent<output<Op>>& d_y, const StateGradient& d_st,
                       const gradient<Op>& d, const options& how, context& ctx) {
    using Acc = sweep_t<typename Op::scalar, real_of<typename State::storage_type>>;
    using task = coupled_backward_task<Acc, Op, State>;
    const std::size_t room = task::bytes(op);
    ctx.reserve(static_cast<std::size_t>(ctx.workers()) * room);
    const typename task::call all{op, st, d_y, d_st, d, how.accumulate};
    const index_t blocks = (op.u.extent(2) + simd::width<Acc> - 1) / simd::width<Acc>;
    run_tasks(ctx, blocks, room, [&](index_t block, arena memory) noexcept { task::run(all, block, memory); });
  }

  template <class Op>
  static void make_tables(const Op& op, const options& how, context& ctx) {
    if (how.form != form::recurrent) convolution_of<Op>::make_tables(op, ctx);
  }

  /// With a state, or padding that reads one, the sweep has it at hand, and is what a convolution would need besides.
  template <verb Verb, class Op, class State>
  static void run(const Op& op, const State& st, const output<Op>& y, const options& how, context& ctx) {
    const bool asked = Verb == verb::convolution || (Verb == verb::forward && how.form == form::convolution);
    const bool stateless = !st.initial.present() && !st.final.present() && !op.lengths.present() && y.present();
    const bool chosen = Verb == verb::forward && how.form == form::automatic && convolution_pays(op);
    if (stateless && !op.u.empty() && (asked || chosen)) return convolution_of<Op>::run(op, y, ctx);
    using Acc = sweep_t<typename Op::scalar, real_of<typename State::storage_type>>;
    const auto plan = coupled_plan::of<Acc>(op.u.extent(2), op.u.extent(1), input_sequences(op));
    const std::size_t room = coupled_task<Acc, Op, State>::bytes(op, plan);
    ctx.reserve(static_cast<std::size_t>(ctx.workers()) * room);
    run_tasks(ctx, plan.blocks * plan.groups, room, [&](index_t task, arena memory) noexcept {
      coupled_task<Acc, Op, State>::run(op, st, y, plan, task, memory);
    });
  }

  // Its part in `prepare`: the panels of all blocks of channels.

  template <class Op>
  using kept = kept_channels<Op>;
  template <class Op>
  static index_t inputs(const Op& op) noexcept {
    return op.channels();
  }
  template <class Op>
  static index_t outputs(const Op& op) noexcept {
    return op.channels();
  }
  template <class Op>
  static shape<3> state_shape(const Op& op, index_t slots) noexcept {
    return {slots, op.channels(), op.states()};
  }
  template <class Op>
  static std::size_t panel_bytes(const Op& op) noexcept {
    using panel = coupled_panel<accum_t<typename Op::scalar>>;
    const index_t blocks = (op.channels() + panel::W - 1) / panel::W;
    return static_cast<std::size_t>(blocks * panel{op.states(), op.rank()}.numbers()) * sizeof(*panel::modes);
  }
  template <class Op>
  static std::size_t pack_bytes(const Op& op) noexcept {
    arena counted;
    coupled_coefficients::carve(op.states(), op.rank(), counted);
    return counted.used();
  }
  template <class Op>
  static void pack(const with_panels<Op>& op, arena memory) noexcept {
    using panel = coupled_panel<accum_t<typename Op::scalar>>;
    const auto coefficients = coupled_coefficients::carve(op.states(), op.rank(), memory);
    panel p{.states = op.states(), .rank = op.rank(), .modes = reinterpret_cast<decltype(panel::modes)>(op.panels)};
    for (index_t d = 0; d < op.channels(); d += panel::W, p.modes += p.numbers()) {
      p.pack(op, d, std::min(panel::W, op.channels() - d), coefficients);
    }
  }
  /// Vector operations of the sweep for a token of a channel; its lanes are channels.
  template <class Acc, class Op>
  static double token_cost(const Op& op) noexcept {
    return static_cast<double>(op.states() * (8 + 4 * op.rank())) / static_cast<double>(simd::width<Acc>) / 0.7;
  }

 private:
  template <class State, class Op>
  static void check_fields(core::checker& ask, const Op& op, const options& how) noexcept {
    static_assert(is_complex<typename State::storage_type>, "the state of conjugate pairs is complex");
    op.check_system(ask);
    ask.given("u", op.u).extents("u", op.u, {-1, -1, op.channels()}, "[B, L, D], D as the system's");
    check_sequences(ask, op, how);
  }

  template <class Op>
  using convolution_of = coupled_convolution<accum_t<typename Op::scalar>, Op>;

  /// Whether all sequences together gain by transforms what their kernel costs: nanoseconds, about, for a channel and
  /// token, from measurements of float and double on vectors of 64 bytes.
  template <class Op>
  static bool convolution_pays(const Op& op) noexcept {
    if (op.offsets.present() || op.u.extent(1) < 64) return false;
    const auto N = static_cast<double>(op.states()), R = static_cast<double>(op.rank());
    const auto batch = static_cast<double>(op.u.extent(0)), length = static_cast<double>(op.u.extent(1));
    const double width = static_cast<double>(sizeof(accum_t<typename Op::scalar>)) / 4;
    const double sweep = width * N * (0.15 + 0.08 * R), transforms = width * 3;
    const auto taps = static_cast<double>(coupled_kernel::transform::size_for(op.u.extent(1)));
    const double kernel = 0.4 * N * (1 + R) * (1 + R) * taps / length;
    return batch * (sweep - transforms) > kernel;
  }
};

}  // namespace detail

template <coupled_modes_operator Op>
struct engine_of<Op> {
  using type = detail::coupled_modes_engine;
};

/// Whether the arguments of `kernel` fit together.
template <coupled_modes_operator Op>
status check_kernel(const Op& op, const view<accum_t<typename Op::scalar>, 2>& K) noexcept {
  core::checker ask(Op::name);
  op.check_system(ask);
  ask.given("K", K);
  if (!ask) return ask.result();
  ask.extents("K", K, {op.channels(), -1}, "[D, L], D as Lambda").output("K", K);
  detail::apart_from_fields(ask, op)("K", K);
  return ask.result();
}

/// Scratch, in bytes, that a kernel of this length needs for `workers` threads.
template <coupled_modes_operator Op>
std::size_t kernel_scratch_bytes(const Op& op, index_t length, int workers = 1) noexcept {
  const index_t n = detail::coupled_kernel::transform::size_for(length);
  return detail::coupled_kernel::bytes(op.states(), op.rank(), n) * static_cast<std::size_t>(std::max(workers, 1));
}

/// K [D, L], K_l = 2 Re(C A̅ˡ B̅), the first L outputs of a unit impulse but for D. In double; u is not looked at.
template <coupled_modes_operator Op>
void kernel(prechecked_t, const Op& op, const view<accum_t<typename Op::scalar>, 2>& K,
            context& ctx = default_context()) noexcept {
  using detail::coupled_kernel;
  constexpr index_t W = coupled_kernel::channels;
  const index_t D = op.channels(), n = coupled_kernel::transform::size_for(K.extent(1));
  const std::size_t bytes = kernel_scratch_bytes(op, K.extent(1));
  ctx.reserve(static_cast<std::size_t>(ctx.workers()) * bytes);
  auto& transforms = ctx.cache<detail::polynomial_transforms<double>>();
  transforms.make(n);
  detail::run_tasks(ctx, K.empty() ? 0 : (D + W - 1) / W, bytes, [&](index_t task, arena memory) noexcept {
    const index_t channel = task * W, count = std::min(W, D - channel);
    coupled_kernel made(op.states(), op.rank(), n, memory);
    made.run(op, channel, count, transforms.at(n));
    for (index_t lane = 0; lane < count; ++lane) {
      for (index_t l = 0; l < K.extent(1); ++l) {
        K(channel + lane, l) = static_cast<accum_t<typename Op::scalar>>(made.tap(lane, l));
      }
    }
  });
}
template <coupled_modes_operator Op>
void kernel(const Op& op, const view<accum_t<typename Op::scalar>, 2>& K, context& ctx = default_context()) {
  require(check_kernel(op, K));
  kernel(prechecked, op, K, ctx);
}

}  // namespace OGIVE_ABI
}  // namespace ogive

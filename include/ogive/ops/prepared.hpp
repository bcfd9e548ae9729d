// Time-invariant operators made ready once, for streams: `prepare(op, …)` owns what calls would otherwise make again.
//
//   prepare      copies of the parameters, A̅ and B̅ in the order in which sweeps read them, the spectra of kernels for
//                sequences of up to `length` tokens, scratch, tables, and the state of each stream
//   step         u [B, L, M] → y [B, L, P], one sample or a block, on from the state it keeps
//   forward      a whole sequence from rest, which leaves the state alone: as a convolution where that costs less
//   reset        the state at rest;   set_rate   other steps Δ, and nothing else
//
// Only prepare, set_rate and set_steps compute coefficients, and only prepare allocates. A stream in blocks of any size
// has the bits of the operator's `recurrent` over the whole.
#pragma once

#include <ogive/core/tensor.hpp>
#include <ogive/engine/kept_convolution.hpp>
#include <ogive/engine/verbs.hpp>

#include <algorithm>
#include <limits>
#include <utility>

namespace ogive {

/// What `prepare` makes room for.
struct preparation {
  index_t sequences = 1;  ///< streams side by side, B
  index_t length = 0;     ///< tokens up to which `forward` may be a convolution; 0: it is always the recurrence
  /// Channels that share a state have a kernel for each pair of input and output: spectra are kept where the
  /// convolution of `length` tokens costs less than the recurrence, or, of any size, where this says convolution.
  ogive::form form = ogive::form::automatic;
};

inline namespace OGIVE_ABI {

namespace detail {

/// An operator whose engine has, besides the verbs' part,
///   inputs(op), outputs(op)           channels of u and of y
///   state_shape(op, slots)
///   panel_bytes(op)                   room for the coefficients of a with_panels
///   pack_bytes(op), pack(op, memory)  scratch to compute them, and that
///   kept<Op>                          its convolution with kept kernels (ogive/engine/kept_convolution.hpp)
/// and which calls f(name, view) for all views with `fields(f)`.
template <class Op>
concept preparable = has_steps<Op> && requires(const with_panels<Op>& op, arena memory) {
  engine_for<Op>::pack(op, memory);
};

template <class Op>
concept has_steps_in_time = requires(const Op& op) {
  op.dt;
};

/// to_i = f(from_i)
template <class X, class Y, std::size_t Rank, class F>
void assign(const view<X, Rank>& to, const F& f, const view<Y, Rank>& from) noexcept {
  for (index_t i = 0; i < to.extent(0); ++i) {
    if constexpr (Rank == 1) {
      to[i] = f(from[i]);
    } else {
      assign(to[i], f, from[i]);
    }
  }
}

}  // namespace detail

/// What `prepare` gives: an operator with its own parameters and states. It can be moved, not copied; what it was moved
/// from can only go or be assigned to. Calls of one object must not overlap in time. u and y may have any strides:
/// channels interleaved or in planes. y may be u itself, which forward then sweeps.
template <detail::preparable Op>
class prepared {
  using engine = engine_for<Op>;
  using bound = detail::with_panels<Op>;
  using stored = typename Op::default_state;

 public:
  using scalar = typename Op::scalar;
  using accum = accum_t<scalar>;
  using number = typename Op::number;
  using input = view<const scalar, 3>;
  using output = output_of<Op>;
  static constexpr std::size_t state_rank = decltype(stored::final)::rank;

  /// As `prepare`.
  prepared(const Op& op, const preparation& how, context ctx = {}) : ctx_(std::move(ctx)) {
    static_cast<Op&>(op_) = op;
    op_.lengths = op_.offsets = {};
    core::checker ask(Op::name);
    if (how.sequences < 1) ask.refuse("sequences", status_code::value) << "= " << how.sequences << " is not positive";
    if (ask && how.length < 0) ask.refuse("length", status_code::value) << "= " << how.length << " is negative";
    require(ask.result());
    op_.u = input(nullptr, {how.sequences, 0, engine::inputs(op_)});
    require(check_system(op_));
    kernels_ = {op_, how.length, how.form == form::convolution};
    arena counted;
    place(counted);
    memory_ = tensor<std::byte, 1>({static_cast<index_t>(counted.used())});
    arena room(memory_.data(), counted.used());
    place(room);
    reserve();
    compute();
  }

  /// Whether u and y fit: parameters are not looked at. An absent y advances the state only.
  status check(const input& u, const output& y) const noexcept {
    core::checker ask(Op::name);
    check_outer(ask, u, y);
    return ask.result();
  }
  /// The same of `forward`, which needs a y, and has the forms automatic, recurrent and convolution.
  status check_forward(const input& u, const output& y, const options& how = {}) const noexcept {
    core::checker ask(Op::name);
    check_outer(ask, u, y);
    ask.given("y", y).chunk(how);
    if (!ask) return ask.result();
    if (how.form == form::convolution && u.extent(1) > kernels_.taps()) {
      ask.refuse("form", status_code::value)
          << "= convolution of " << u.extent(1) << " tokens was prepared for a length of " << kernels_.taps()
          << "; prepare with a larger one and with form = convolution";
    } else if (how.form == form::convolution && in_place(u, y)) {
      ask.refuse("y") << "is u: a convolution would read what it has written; give it memory of its own, or say form = "
                         "recurrent";
    } else if (how.form != form::automatic && how.form != form::recurrent && how.form != form::convolution) {
      ask.refuse("form", status_code::value) << "must be automatic, recurrent or convolution";
    }
    return ask.result();
  }

  /// One sample or a block of any length, on from the state. \throws shape_error before anything is written
  void step(const input& u, const output& y) {
    require(check(u, y));
    step(prechecked, u, y);
  }
  void step(prechecked_t, const input& u, const output& y) noexcept {
    op_.u = u;
    engine::template run<detail::verb::step>(op_, stored{.initial = h_, .final = h_}, y, {}, ctx_);
  }

  /// A whole sequence from rest. As a convolution an output's error is relative to the largest terms of its sequence,
  /// and a NaN reaches all of these. \throws shape_error, std::invalid_argument before anything is written
  void forward(const input& u, const output& y, const options& how = {}) {
    require(check_forward(u, y, how));
    forward(prechecked, u, y, how);
  }
  void forward(prechecked_t, const input& u, const output& y, const options& how = {}) noexcept {
    op_.u = u;
    const bool free = how.form == form::automatic && u.extent(1) <= kernels_.taps() && !in_place(u, y);
    if (!u.empty() && (how.form == form::convolution || (free && kernels_.pays(op_, u.extent(1))))) {
      return kernels_.run(op_, y, values_, ctx_);
    }
    engine::template run<detail::verb::recurrent>(op_, stored{}, y, {}, ctx_);
  }

  /// The state of every stream at rest.
  void reset() noexcept {
    const auto rest = [](const number&) noexcept { return number(0); };
    detail::assign(h_, rest, h_);
  }

  /// The state, [B, D, N] or [B, N] as the operator's: to keep, to bring back, to look at.
  view<number, state_rank> state() noexcept { return h_; }

  /// Samples that come `rate` times as often as those that Δ belongs to, from the next one on: steps become Δ/rate, so
  /// that what was prepared for sound at 44.1 kHz is at 48.0/44.1 the same filter of sound at 48 kHz. The state stays,
  /// for it is the continuous system's. Costs as much as `prepare`, but allocates nothing. \throws
  /// std::invalid_argument for a rate that is not positive and finite, and where the operator was given A̅ and B̅
  void set_rate(double rate) requires detail::has_steps_in_time<Op> {
    core::checker ask(Op::name);
    if (!(rate > 0 && rate < std::numeric_limits<double>::infinity())) {
      ask.refuse("rate", status_code::value) << "must be positive and finite";
    }
    check_steps(ask);
    require(ask.result());
    take_steps([rate](const accum& dt) noexcept { return static_cast<accum>(static_cast<double>(dt) / rate); }, dt_);
  }
  /// The same with each step Δ named. \throws shape_error, std::invalid_argument where the operator would
  void set_steps(const view<const accum, 1>& dt) requires detail::has_steps_in_time<Op> {
    core::checker ask(Op::name);
    check_steps(ask);
    ask.given("dt", dt).extents("dt", dt, dt_.extents(), "as prepared");
    require(ask.result());
    take_steps([](const accum& x) noexcept { return x; }, dt);
  }

 private:
  static status check_system(const bound& op) noexcept {
    const output none(nullptr, {op.u.extent(0), 0, engine::outputs(op)});
    return engine::check(static_cast<const Op&>(op), stored{}, none, {});
  }
  void check_outer(core::checker& ask, const input& u, const output& y) const noexcept {
    ask.given("u", u).extents("u", u, {h_.extent(0), -1, engine::inputs(op_)}, "[B, L, channels] as prepared");
    ask.extents("y", y, {h_.extent(0), u.extent(1), engine::outputs(op_)}, "[B, L, channels] as u and as prepared");
    ask.output("y", y).apart("y", y, "state", h_);
    if (!in_place(u, y)) ask.apart("y", y, "u", u);
  }
  /// Sweeps read a tile of tokens before they write it: y may be u itself, element for element.
  static bool in_place(const input& u, const output& y) noexcept {
    return y.present() && u.data() == y.data() && u.extents() == y.extents() && u.strides() == y.strides();
  }
  void check_steps(core::checker& ask) const noexcept {
    bool steps = dt_.present();
    if constexpr (requires { op_.rule; }) steps = steps && op_.rule != decltype(op_.rule)::none;
    if constexpr (requires { op_.Q; }) steps = steps && !op_.Q.present();
    if (ask && !steps) ask.refuse("dt", status_code::value) << "is absent or not looked at: there is no rate to change";
  }

  /// Everything in one block of memory; an arena without memory counts.
  void place(arena& room) {
    // The views are this object's own: they go from the caller's memory to a copy.
    op_.fields([&]<class View>(const char*, const View& field) { own(const_cast<View&>(field), room); });
    if constexpr (detail::has_steps_in_time<Op>) {
      dt_ = op_.dt;
      for (auto& steps : steps_) steps = {room.take<accum>(dt_.size()), dt_.extents()};
    }
    op_.panels = room.take<std::byte>(static_cast<index_t>(engine::panel_bytes(op_)));
    const auto extents = engine::state_shape(op_, op_.u.extent(0));
    h_ = {room.take<number>(core::volume(extents)), extents};
    values_ = room.take<accum>(kernels_.numbers());
  }
  template <class X, std::size_t Rank>
  static void own(view<const X, Rank>& field, arena& room) {
    X* const data = room.take<X>(field.size());
    if (data == nullptr || field.empty()) return;
    const view<X, Rank> copy(data, field.extents());
    const auto same = [](const X& x) noexcept { return x; };
    detail::assign(copy, same, field);
    field = copy;
  }

  /// Room for every call and for set_rate. No call needs more for more tokens than these.
  void reserve() {
    constexpr index_t enough = 64;
    const auto workers = static_cast<std::size_t>(ctx_.workers());
    bound most = op_;
    most.u = input(nullptr, {op_.u.extent(0), enough, op_.u.extent(2)});
    ctx_.reserve(workers * std::max(engine::bytes(most, {.form = form::recurrent}), engine::pack_bytes(op_)));
    if (kernels_.taps() == 0) return;
    ctx_.reserve(workers * kernels_.bytes(most));
    kernels_.make_tables(ctx_);
  }

  /// The coefficients and, where there is a length, the kernel's values.
  void compute() noexcept {
    engine::pack(op_, ctx_.scratch(0, engine::pack_bytes(op_)));
    if (kernels_.taps() > 0) kernels_.compute(op_, values_, ctx_);
  }

  /// Other steps, made beside those that are in use: refused, they are gone.
  template <class F>
  void take_steps(const F& step, const view<const accum, 1>& of) {
    bound asked = op_;
    asked.u = input(nullptr, {op_.u.extent(0), 0, op_.u.extent(2)});
    detail::assign(steps_[0], step, of);
    asked.dt = steps_[0];
    require(check_system(asked));
    op_.dt = steps_[0];
    std::swap(steps_[0], steps_[1]);
    compute();
  }

  context ctx_;
  bound op_{};
  tensor<std::byte, 1> memory_;
  view<number, state_rank> h_{};
  view<const accum, 1> dt_{};  // as prepared
  view<accum, 1> steps_[2]{};  // of set_rate: the next, and those in use
  typename engine::template kept<Op> kernels_{};
  accum* values_ = nullptr;  // of the kernels
};

/// An operator of a time-invariant system made ready for streams: `auto filter = prepare(op, {.length = 4096})`. `u`,
/// lengths and offsets of `op` are not looked at; its parameters are copied. The context, serial or with a pool, is the
/// object's own. \throws shape_error, std::invalid_argument as the operator's verbs
template <detail::preparable Op>
prepared<Op> prepare(const Op& op, const preparation& how = {}, context ctx = {}) {
  return prepared<Op>(op, how, std::move(ctx));
}

}  // namespace OGIVE_ABI
}  // namespace ogive

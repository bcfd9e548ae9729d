// L5: systems whose channels share a state, made ready: their matrices are discretised and packed once.
#pragma once

#include <ogive/core/tensor.hpp>
#include <ogive/engine/prepared.hpp>
#include <ogive/engine/shared_state.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

/// \code
///   auto filter = prepare(s5<float>{.A = A, .B = B, .C = C, .dt = dt});
///   filter.step(u, y);  // [batch, any number of tokens, M], [batch, as many, P]: audio as it comes, or one sample
/// \endcode
template <shared_state_operator Op>
class prepared<Op> {
 public:
  using scalar = typename Op::scalar;
  using number = typename Op::number;
  using accum = typename Op::accum;
  using input = view<const scalar, 3>;
  using output = view<scalar, 3>;

  prepared(const Op& op, const prepare_options& how)
      : op_(checked(op, how)), state_({how.batch, op_.extents().states}) {
    arena counted;
    carve(counted);
    memory_ = tensor<std::byte, 1>({static_cast<index_t>(counted.used())});
    arena room(memory_.data(), counted.used());
    carve(room);
    detail::pack_shared_state(op_, panels_);
  }
  prepared(prepared&&) noexcept = default;
  prepared& operator=(prepared&&) noexcept = default;

  /// Whether u [batch, L, M] and y [batch, L, P] fit.
  status check(const input& u, const output& y) const noexcept {
    const shared_state_extents n = op_.extents();
    core::checker ask(Op::name);
    ask.given("u", u).extents("u", u, {n.batch, -1, n.inputs}, "[batch, L, M]");
    ask.extents("y", y, {n.batch, u.extent(1), n.outputs}, "[batch, L, P], L as u")
        .output("y", y)
        .apart("y", y, "u", u);
    return ask.result();
  }

  /// The next tokens of every stream, from the state that the last ones left. An absent y advances the state.
  void step(prechecked_t, const input& u, const output& y) noexcept { run(u, y, {.initial = state_, .final = state_}); }
  void step(const input& u, const output& y) {
    require(check(u, y));
    step(prechecked, u, y);
  }
  /// Whole sequences, from a state of 0; the streams' own is left alone.
  void forward(prechecked_t, const input& u, const output& y) noexcept { run(u, y, {}); }
  void forward(const input& u, const output& y) {
    require(check(u, y));
    forward(prechecked, u, y);
  }

  /// The state [batch, N], to be read, kept, or set.
  view<number, 2> state() noexcept { return state_; }
  void reset() noexcept {
    for (number& h : state_.flat()) h = number(0);
  }

  /// The rate of samples, in units of the one that Δ belongs to: steps become Δ/rate. The state stays.
  /// \throws std::invalid_argument for a rate that is not positive, and where the operator was given steps already.
  void set_rate(double rate) requires requires(const Op& op) { op.dt; }
  {
    if (!(rate > 0 && std::isfinite(rate)) || !op_.dt.present()) {
      raise(status(status_code::value) << Op::name << ": set_rate wants a positive rate and an operator that has dt");
    }
    for (index_t n = 0; n < steps_.size(); ++n) steps_(n) = static_cast<accum>(static_cast<double>(op_.dt[n]) / rate);
    Op now = op_;
    now.dt = view<const accum, 1>(steps_);
    detail::pack_shared_state(now, panels_);
  }

 private:
  static Op checked(Op op, const prepare_options& how) {
    core::checker ask(Op::name);
    if (how.batch < 0 || how.length < 0)
      ask.refuse("options") << "must name a batch and a length that are not negative";
    op.u = {nullptr, {how.batch, 0, op.input().extent(1)}};
    op.lengths = op.offsets = {};
    if (ask) op.check_fields(ask);
    require(ask.result());
    return op;
  }

  /// The parameters and the panels in this memory; without memory their size.
  void carve(arena& room) {
    const auto keep = [&]<class X, std::size_t Rank>(const view<const X, Rank>& x) {
      if (!x.present()) return x;
      const view<X, Rank> own(room.take<X>(x.size()), x.extents());
      if (own.data() != nullptr) copy(x, own);
      return view<const X, Rank>(own);
    };
    Op own = op_.kept(keep);
    shared_state_extents n = op_.extents();
    n.length = detail::shared_state_panels<accum>::most_tokens;
    panels_ = detail::shared_state_panels<accum>::carve(n, detail::is_complex<number>, op_.D.present(), room);
    if (panels_.h == nullptr) return;
    op_ = own;
    if constexpr (requires { op_.dt; }) steps_ = tensor<accum, 1>({op_.dt.present() ? op_.dt.extent(0) : 0});
  }
  template <class X, std::size_t Rank>
  static void copy(const view<const X, Rank>& from, const view<X, Rank>& to) {
    for (index_t i = 0; i < from.extent(0); ++i) {
      if constexpr (Rank == 1) {
        to[i] = from[i];
      } else {
        copy(from[i], to[i]);
      }
    }
  }

  void run(const input& u, const output& y, const vector_state<number>& st) noexcept {
    const flush_subnormals flushed;
    through(u, y, st);
  }
  OGIVE_NOINLINE void through(const input& u, const output& y, const vector_state<number>& st) noexcept {
    Op now = op_;
    now.u = u;
    for (index_t s = 0; s < state_.extent(0); ++s) detail::run_shared_sequence(panels_, now, st, y, s);
  }

  Op op_;  // its views lie in memory_, but for u
  tensor<number, 2> state_;
  tensor<std::byte, 1> memory_{};
  tensor<accum, 1> steps_{};
  detail::shared_state_panels<accum> panels_{};
};

}  // namespace OGIVE_ABI
}  // namespace ogive

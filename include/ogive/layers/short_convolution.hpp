// Short causal convolution along time, one filter per channel: what models put before q, k and v, or before a scan.
//
//   y_t = σ(b + Σ_{w<W} weight_w ⊙ x_{t−(W−1)+w})          σ = silu or nothing
//
// with the inputs before the first token in the state. The last tap meets the current token. As in H3
// (arXiv:2212.14052) and Mamba (arXiv:2312.00752).
#pragma once

#include <ogive/engine/unroll.hpp>
#include <ogive/layers/activation.hpp>
#include <ogive/layers/window.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

namespace detail {

/// W rows of taps and one of biases, neighbouring channels next to each other.
template <class Acc>
struct filter {
  const Acc* weight;
  index_t stride;
  const Acc* bias;
  activation f;
};

/// y_t for G tokens: x points to the input W − 1 before the first.
template <int W, int G, class Acc, class X, class Y>
OGIVE_INLINE void convolve_rows(const X* x, index_t x_row, const filter<Acc>& h, Y* y, index_t y_row,
                                index_t channels) noexcept {
  using arch = simd::default_arch;
  using vector = simd::batch<Acc>;
  constexpr index_t V = simd::width<Acc>;
  const auto column = [&](index_t j, const auto& load, const auto& store) __attribute__((always_inline)) {
    vector taps[W], in[W - 1 + G];
    unroll<W>([&](auto w) __attribute__((always_inline)) { taps[w] = simd::load<arch>(h.weight + w * h.stride + j); });
    unroll<W - 1 + G>([&](auto i) __attribute__((always_inline)) { in[i] = load(x + i * x_row + j); });
    unroll<G>([&](auto g) __attribute__((always_inline)) {
      vector sum = simd::load<arch>(h.bias + j);
      unroll<W>([&](auto w) __attribute__((always_inline)) { sum = simd::fma(taps[w], in[g + w], sum); });
      store(y + g * y_row + j, activate(h.f, sum));
    });
  };
  index_t j = 0;
  for (; j + V <= channels; j += V) {
    column(
        j, [](const X* p) __attribute__((always_inline)) { return simd::load_as<Acc, arch>(p); },
        [](Y * p, const vector& v) __attribute__((always_inline)) { simd::store_as(p, v); });
  }
  if (j < channels) {
    const index_t last = channels - j;
    column(
        j, [last](const X* p) __attribute__((always_inline)) { return simd::load_as<Acc, arch>(p, last); },
        [last](Y * p, const vector& v) __attribute__((always_inline)) { simd::store_as(p, v, last); });
  }
}

/// The same for any number of tokens.
template <int W, class Acc, class X, class Y>
OGIVE_NOINLINE void convolve_width(const X* x, index_t x_row, const filter<Acc>& h, Y* y, index_t y_row, index_t tokens,
                                   index_t channels) noexcept {
  constexpr index_t G = 4;
  index_t t = 0;
  for (; t + G <= tokens; t += G) {
    convolve_rows<W, G>(x + t * x_row, x_row, h, y + t * y_row, y_row, channels);
  }
  for (; t < tokens; ++t) convolve_rows<W, 1>(x + t * x_row, x_row, h, y + t * y_row, y_row, channels);
}

inline constexpr index_t widest_filter = 8;

template <class Acc, class X, class Y>
void convolve(index_t width, const X* x, index_t x_row, const filter<Acc>& h, Y* y, index_t y_row, index_t tokens,
              index_t channels) noexcept {
  using kernel = void (*)(const X*, index_t, const filter<Acc>&, Y*, index_t, index_t, index_t) noexcept;
  constexpr kernel of_width[widest_filter] = {convolve_width<1, Acc, X, Y>, convolve_width<2, Acc, X, Y>,
                                              convolve_width<3, Acc, X, Y>, convolve_width<4, Acc, X, Y>,
                                              convolve_width<5, Acc, X, Y>, convolve_width<6, Acc, X, Y>,
                                              convolve_width<7, Acc, X, Y>, convolve_width<8, Acc, X, Y>};
  of_width[width - 1](x, x_row, h, y, y_row, tokens, channels);
}

struct short_convolution_rules;

}  // namespace detail

/// x [B, L, D], weight [D, W] with 1 ≤ W ≤ 8, bias [D]; y [B, L, D]; state [slots, D, K], K ≥ W − 1. Parameters are of
/// a type of their own; where their neighbouring channels are neighbours in memory and their type is the accumulation
/// type they are used where they lie. Rows of padding (at and after a length) are 0.
template <storage T, storage P = T>
struct short_convolution {
  using scalar = T;
  using accum = accum_t<T>;
  using output = view<T, 3>;

  view<const T, 3> x{};
  view<const P, 2> weight{};
  view<const P, 1> bias{};
  ogive::activation activation = ogive::activation::none;
  integers lengths{};  ///< per sequence; tokens from there on are padding and do not enter the state
  integers offsets{};  ///< packed sequences, a state each
  /// If given: how many tokens each sequence has seen. Its states are then rings, the input of token n in column
  /// n mod K, and a step leaves the other columns where they are.
  integers ring{};

  struct gradient {
    view<T, 3> x{};
    view<accum, 2> weight{};
    view<accum, 1> bias{};
  };

  static constexpr const char* name = "short_convolution";
  template <class S>
  using state_of = window_state<S>;
  using default_state = window_state<T>;  // inputs as they came
  using default_state_gradient = window_gradient<accum>;
  using windowed = void;
  using rules = detail::short_convolution_rules;

  index_t reach() const noexcept { return weight.extent(1) - 1; }

  void check_fields(core::checker& ask) const noexcept {
    ask.given("x", x).given("weight", weight);
    ask.extents("x", x, {-1, -1, -1}, "[B, L, D]");
    ask.extents("weight", weight, {x.extent(2), -1}, "[D, W], D as x").extents("bias", bias, {x.extent(2)}, "[D] as x");
    if (ask && (weight.extent(1) < 1 || weight.extent(1) > detail::widest_filter)) {
      ask.refuse("weight") << "has W = " << weight.extent(1) << " taps, must be 1 to " << detail::widest_filter;
    }
    if (ask && activation != ogive::activation::none && activation != ogive::activation::silu) {
      ask.refuse("activation", status_code::value) << "must be none or silu";
    }
  }
  void check_output(core::checker& ask, const output& y) const noexcept {
    ask.extents("y", y, x.extents(), "[B, L, D] as x");
  }
  template <class X, std::size_t Rank>
  void check_written(core::checker& ask, const char* field, const view<X, Rank>& written) const noexcept {
    ask.apart(field, written, "x", x).apart(field, written, "weight", weight).apart(field, written, "bias", bias);
  }

  std::size_t bytes(index_t across) const noexcept {
    arena counted;
    counted.take<double>((2 * widest + 2 * group_of(across)) * across);
    return counted.used() + 4 * arena::alignment;
  }

  /// The rows of a piece. Where tensors have neighbouring channels next to each other, rows that see only this call's
  /// inputs are computed where they lie; everything else goes through panels.
  template <class S>
  void compute(const detail::window_problem<T, S>& p, const detail::window_piece& at, index_t channel, index_t across,
               const output& y, arena memory) const noexcept {
    using Acc = sweep_t<T, S>;
    Acc* taps = memory.take<Acc>((widest + 1) * p.row);
    const detail::filter<Acc> h = filter_of(channel, across, taps, p.row);
    const index_t width = weight.extent(1);
    const index_t live = std::clamp<index_t>(at.live - at.first, 0, at.count);
    const bool in_place = x.stride(2) == 1 && y.stride(2) == 1;
    const index_t packed = in_place ? std::clamp<index_t>(reach() - at.first, 0, live) : live;
    if (packed > 0) {
      const index_t group = group_of(p.row);
      Acc* in = memory.take<Acc>((widest - 1 + group) * p.row);
      Acc* out = memory.take<Acc>(group * p.row);
      p.load(at, at.first - reach(), reach(), channel, across, in, p.row);
      for (index_t t = 0; t < packed; t += group) {
        const index_t count = std::min(group, packed - t);
        p.load(at, at.first + t, count, channel, across, in + reach() * p.row, p.row);
        detail::convolve(width, in, p.row, h, out, p.row, count, across);
        detail::store_tile(out, p.row, rows(y, at, t, count, channel, across));
        for (index_t i = 0; i < reach(); ++i) {
          for (index_t j = 0; j < across; ++j) in[i * p.row + j] = in[(count + i) * p.row + j];
        }
      }
    }
    if (packed < live) {
      const index_t first = at.begin + at.first + packed;
      detail::convolve(width, x.pointer(at.batch, first - reach(), channel), x.stride(1), h,
                       y.pointer(at.batch, first, channel), y.stride(1), live - packed, across);
    }
    const view<T, 2> rest = rows(y, at, live, at.count - live, channel, across);
    for (index_t t = 0; t < rest.extent(0); ++t) {
      for (index_t j = 0; j < across; ++j) rest(t, j) = T(0.0F);
    }
  }

 private:
  friend detail::short_convolution_rules;
  static constexpr index_t widest = detail::widest_filter;
  /// Tokens of a panel.
  static constexpr index_t group_of(index_t row) noexcept { return row > 64 ? 16 : 64; }

  template <class X>
  static view<X, 2> rows(const view<X, 3>& of, const detail::window_piece& at, index_t t, index_t count,
                         index_t channel, index_t across) noexcept {
    return {of.pointer(at.batch, at.begin + at.first + t, channel), {count, across}, {of.stride(1), of.stride(2)}};
  }

  template <class Acc>
  detail::filter<Acc> filter_of(index_t channel, index_t across, Acc* panel, index_t row) const noexcept {
    detail::filter<Acc> h{panel, row, panel + widest * row, activation};
    const view<const P, 2> turned(weight.pointer(channel, 0), {weight.extent(1), across},
                                  {weight.stride(1), weight.stride(0)});
    bool lies = false;
    if constexpr (std::is_same_v<P, Acc>) {
      lies = weight.stride(0) == 1 && across % simd::width<Acc> == 0;
      if (lies) {
        h.weight = turned.data();
        h.stride = weight.stride(1);
      }
    }
    if (!lies) detail::load_tile(turned, panel, row);
    if (bias.present()) {
      detail::load_tile(view<const P, 2>(bias.pointer(channel), {1, across}, {0, bias.stride(0)}), panel + widest * row,
                        row);
    } else {
      detail::zero_tile(panel + widest * row, row, 0, 1, across);
    }
    return h;
  }
};

namespace detail {

/// The backward pass: a task owns a block of channels and walks all sequences backwards, tile by tile, so that sums
/// over tokens have one order.
struct short_convolution_rules {
  static constexpr index_t row = 128;  // channels of a task
  static constexpr index_t tile = 32;

  template <class Op, class S, class G>
  static status check_backward(const Op& op, const window_state<S>& st, const cotangent_of<Op>& d_y,
                               const window_gradient<G>& d_st, const typename Op::gradient& d,
                               const options& how) noexcept {
    core::checker ask(Op::name);
    one_form(ask, how);
    op.check_fields(ask);
    if (!ask) return ask.result();
    const auto p = window_engine::problem(op, st);
    check_window(ask, p, op.reach());
    if (ask && op.ring.present()) ask.refuse("ring") << "is for steps; backward wants states in order of time";
    const index_t D = op.x.extent(2), n = p.sequences();
    ask.extents("d_y", d_y, op.x.extents(), "[B, L, D] as x");
    ask.extents("d_st.final", d_st.final, {n, D, -1}, "[sequences, D, K]");
    ask.extents("d_st.initial", d_st.initial, {n, D, -1}, "[sequences, D, K]");
    for (const auto& [field, K] :
         {std::pair("d_st.final", d_st.final.present() ? d_st.final.extent(2) : op.reach()),
          std::pair("d_st.initial", d_st.initial.present() ? d_st.initial.extent(2) : op.reach())}) {
      if (ask && K < op.reach()) ask.refuse(field) << "keeps " << K << " inputs, the layer reaches to " << op.reach();
    }
    if (ask && d_st.final.present() && d_st.initial.present() && d_st.final.extent(2) != d_st.initial.extent(2)) {
      ask.refuse("d_st.initial") << "and d_st.final must keep as many inputs";
    }
    ask.extents("d.x", d.x, op.x.extents(), "[B, L, D] as x").output("d.x", d.x);
    ask.extents("d.weight", d.weight, op.weight.extents(), "[D, W] as weight").output("d.weight", d.weight);
    ask.extents("d.bias", d.bias, {D}, "[D]").output("d.bias", d.bias).output("d_st.initial", d_st.initial);
    const auto apart = [&](const char* field, const auto& x) noexcept {
      op.check_written(ask, field, x);
      ask.apart(field, x, "d_y", d_y).apart(field, x, "d_st.final", d_st.final);
      keep_apart(ask, field, x, st);
    };
    apart("d.x", d.x);
    apart("d.weight", d.weight);
    apart("d.bias", d.bias);
    apart("d_st.initial", d_st.initial);
    return ask.result();
  }

  template <class Op>
  static std::size_t bytes(const Op&) noexcept {
    arena counted;
    panels<double>::carve(counted);
    return counted.used();
  }

  template <class Op, class S, class G>
  static void backward(const Op& op, const window_state<S>& st, const cotangent_of<Op>& d_y,
                       const window_gradient<G>& d_st, const typename Op::gradient& d, const options& how,
                       context& ctx) {
    using Acc = sweep_t<typename Op::scalar, S>;
    auto p = window_engine::problem(op, st);
    p.row = row;
    const std::size_t room = bytes(op);
    reserve_for(ctx, room);
    run_tasks(ctx, p.blocks(), room, [&](index_t block, arena memory) noexcept {
      adjoint<Op, S, G, Acc>{op, p, d_y, d_st, d, how.accumulate, panels<Acc>::carve(memory), block * row}.run();
    });
  }

 private:
  template <class Acc>
  struct panels {
    Acc* x;       // [reach + tile, row]
    Acc* d;       // [tile + reach, row]: the cotangent of the sums, the tokens after the tile last
    Acc* sums;    // [tile, row], later the gradient of the tile's inputs
    Acc* taps;    // [W + 1, row]
    Acc* d_taps;  // likewise

    static panels carve(arena& memory) noexcept {
      constexpr index_t W = widest_filter;
      panels s;
      s.x = memory.take<Acc>((W - 1 + tile) * row);
      s.d = memory.take<Acc>((W - 1 + tile) * row);
      s.sums = memory.take<Acc>(tile * row);
      s.taps = memory.take<Acc>((W + 1) * row);
      s.d_taps = memory.take<Acc>((W + 1) * row);
      return s;
    }
  };

  template <class Op, class S, class G, class Acc>
  struct adjoint {
    using T = typename Op::scalar;
    using vector = simd::batch<Acc>;
    static constexpr index_t V = simd::width<Acc>;

    const Op& op;
    const window_problem<T, S>& p;
    const cotangent_of<Op>& d_y;
    const window_gradient<G>& d_st;
    const typename Op::gradient& d;
    bool accumulate;
    panels<Acc> s;
    index_t channel;
    index_t across = std::min(row, p.channels() - channel);
    index_t reach = op.reach();
    filter<Acc> h = op.filter_of(channel, across, s.taps, row);

    OGIVE_NOINLINE void run() noexcept {
      zero_tile(s.d_taps, row, 0, widest_filter + 1, across);
      for (index_t n = 0; n < p.sequences(); ++n) sequence(p.whole(n));
      if (d.weight.present()) {
        drain(s.d_taps, view<accum_t<T>, 2>(d.weight.pointer(channel, 0), {reach + 1, across},
                                            {d.weight.stride(1), d.weight.stride(0)}));
      }
      if (d.bias.present()) {
        drain(s.d_taps + widest_filter * row,
              view<accum_t<T>, 2>(d.bias.pointer(channel), {1, across}, {0, d.bias.stride(0)}));
      }
    }

    void sequence(const window_piece& at) noexcept {
      const index_t K = d_st.final.present() ? d_st.final.extent(2) : d_st.initial.extent(2);
      zero_tile(s.d, row, 0, reach, across);
      if (d.x.present()) {
        zero_tile(s.sums, row, 0, tile, across);
        for (index_t t = at.live; t < at.length; t += tile) to_inputs(at, t, std::min(tile, at.length - t));
      }
      for (index_t end = at.live; end > 0;) {
        const index_t first = (end - 1) / tile * tile;
        tokens(at, first, end - first, K);
        end = first;
      }
      if (!d_st.initial.present()) return;
      for (index_t column = 0; column < K; ++column) {
        gradient_of_input(column - K, s.sums);
        add_final(at, at.live, column - K, K, s.sums);
        drain(s.sums, columns_of(d_st.initial, at.sequence, column, 1, channel, across));
      }
    }

    /// Tokens [first, first + count). The first `reach` rows of s.d are those of the tokens after them.
    void tokens(const window_piece& at, index_t first, index_t count, index_t K) noexcept {
      move_rows(s.d, s.d + count * row, reach);
      p.load(at, first - reach, reach + count, channel, across, s.x, row);
      if (d_y.present()) {
        load_tile(view<const T, 2>(d_y.pointer(at.batch, at.begin + first, channel), {count, across},
                                   {d_y.stride(1), d_y.stride(2)}),
                  s.d, row);
      } else {
        zero_tile(s.d, row, 0, count, across);
      }
      if (h.f != activation::none) {
        convolve(reach + 1, s.x, row, filter<Acc>{h.weight, h.stride, h.bias, activation::none}, s.sums, row, count,
                 across);
        each(count, [&](index_t t, index_t j) noexcept {
          const vector inner = slope(h.f, simd::load(s.sums + t * row + j));
          simd::store(s.d + t * row + j, simd::load(s.d + t * row + j) * inner);
        });
      }
      for (index_t j = 0; j < across; j += V) {
        for (index_t w = 0; w <= reach; ++w) {
          vector sum(Acc(0));
          for (index_t t = 0; t < count; ++t) {
            sum = simd::fma(simd::load(s.d + t * row + j), simd::load(s.x + (t + w) * row + j), sum);
          }
          add_to(s.d_taps + w * row + j, sum);
        }
        vector sum(Acc(0));
        for (index_t t = 0; t < count; ++t) sum = sum + simd::load(s.d + t * row + j);
        add_to(s.d_taps + widest_filter * row + j, sum);
      }
      if (!d.x.present()) return;
      for (index_t t = 0; t < count; ++t) {
        gradient_of_input(t, s.sums + t * row);
        add_final(at, at.live, first + t, K, s.sums + t * row);
      }
      to_inputs(at, first, count);
    }

    /// Σ_w weight_w d_{i + reach − w}, where row i of s.d is token i and there is nothing before row 0.
    void gradient_of_input(index_t i, Acc* to) noexcept {
      for (index_t j = 0; j < across; j += V) {
        vector sum(Acc(0));
        for (index_t w = std::min(reach, i + reach); w >= 0; --w) {
          sum = simd::fma(simd::load(h.weight + w * h.stride + j), simd::load(s.d + (i + reach - w) * row + j), sum);
        }
        simd::store(to + j, sum);
      }
    }

    /// The final state keeps the inputs at positions live − K … live − 1.
    void add_final(const window_piece& at, index_t live, index_t position, index_t K, Acc* to) noexcept {
      const index_t column = position - (live - K);
      if (!d_st.final.present() || column < 0 || column >= K) return;
      for (index_t j = 0; j < across; j += V) {
        const auto kept = columns_of(d_st.final, at.sequence, column, 1, channel, across);
        add_to(to + j, simd::load_strided<Acc, simd::default_arch>(kept.pointer(0, j), kept.stride(1), across - j));
      }
    }

    void to_inputs(const window_piece& at, index_t first, index_t count) noexcept {
      drain(s.sums, view<T, 2>(d.x.pointer(at.batch, at.begin + first, channel), {count, across},
                               {d.x.stride(1), d.x.stride(2)}));
    }

    /// Rows of a panel into a gradient, which they overwrite or are added to.
    template <class X>
    void drain(Acc* from, const view<X, 2>& to) noexcept {
      if (accumulate) {
        load_tile(view<const X, 2>(to), from, row, [&](index_t j) noexcept {
          return
              [from, j](const vector& before, index_t i) noexcept { return before + simd::load(from + i * row + j); };
        });
      }
      store_tile(from, row, to);
    }

    template <class F>
    void each(index_t count, const F& f) noexcept {
      for (index_t t = 0; t < count; ++t) {
        for (index_t j = 0; j < across; j += V) f(t, j);
      }
    }
    static void add_to(Acc* to, const vector& term) noexcept { simd::store(to, simd::load(to) + term); }
    /// From the last to the first, since the rows may overlap.
    void move_rows(const Acc* from, Acc* to, index_t count) noexcept {
      for (index_t i = count; i-- > 0;) {
        for (index_t j = 0; j < across; j += V) simd::store(to + i * row + j, simd::load(from + i * row + j));
      }
    }
  };
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

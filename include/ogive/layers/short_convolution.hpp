// Short causal convolution along time, one filter per channel: what models put before q, k and v, or before a scan.
//
//   y_t = σ(b + Σ_{w<W} weight_w ⊙ x_{t−(W−1)+w})          σ = silu or nothing
//
// with the inputs before the first token in the state. The last tap meets the current token. As in H3
// (arXiv:2212.14052) and Mamba (arXiv:2312.00752).
#pragma once

#include <ogive/engine/unroll.hpp>
#include <ogive/layers/activation.hpp>
#include <ogive/layers/window_backward.hpp>

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

/// Where a block of channels stands on its way back through a tile of tokens: rows of `row` numbers.
template <class Acc>
struct convolution_back {
  filter<Acc> h;
  const Acc* x;  // of the input W − 1 before the first token on
  Acc* v;        // the cotangents of the outputs, then of the sums; behind them those of W − 1 later tokens
  Acc* d_taps;   // W rows, and that of the bias behind all that there may be
  Acc* d_x;      // null: not wanted
  index_t row, tokens, channels;
};

/// G tokens of it, in the channels of one vector. Everything is loaded once, and has one exponential.
template <int W, int G, class Acc>
OGIVE_INLINE void convolve_rows_back(const convolution_back<Acc>& p, index_t t, index_t j,
                                     const simd::batch<Acc> (&taps)[W], simd::batch<Acc> (&d_taps)[W + 1]) noexcept {
  using arch = simd::default_arch;
  using vector = simd::batch<Acc>;
  vector x[W - 1 + G], v[G + W - 1];
  unroll<W - 1 + G>([&](auto i) __attribute__((always_inline)) { x[i] = simd::load<arch>(p.x + (t + i) * p.row + j); });
  unroll<W - 1>([&](auto i)
                    __attribute__((always_inline)) { v[G + i] = simd::load<arch>(p.v + (t + G + i) * p.row + j); });
  unroll<G>([&](auto g) __attribute__((always_inline)) {
    v[g] = simd::load<arch>(p.v + (t + g) * p.row + j);
    if (p.h.f != activation::none) {
      vector sum = simd::load<arch>(p.h.bias + j);
      unroll<W>([&](auto w) __attribute__((always_inline)) { sum = simd::fma(taps[w], x[g + w], sum); });
      v[g] = v[g] * with_slope(activation::silu, sum).slope;
      simd::store(p.v + (t + g) * p.row + j, v[g]);
    }
  });
  unroll<W>([&](auto w) __attribute__((always_inline)) {
    unroll<G>([&](auto g) __attribute__((always_inline)) { d_taps[w] = simd::fma(v[g], x[g + w], d_taps[w]); });
  });
  unroll<G>([&](auto g) __attribute__((always_inline)) { d_taps[W] = d_taps[W] + v[g]; });
  if (p.d_x == nullptr) return;
  unroll<G>([&](auto g) __attribute__((always_inline)) {
    vector sum(Acc(0));
    unroll<W>([&](auto w) __attribute__((always_inline)) { sum = simd::fma(taps[w], v[g + (W - 1) - w], sum); });
    simd::store(p.d_x + (t + g) * p.row + j, sum);
  });
}

template <int W, class Acc>
OGIVE_NOINLINE void convolve_width_back(const convolution_back<Acc>& p) noexcept {
  using arch = simd::default_arch;
  using vector = simd::batch<Acc>;
  constexpr index_t G = 4;
  for (index_t j = 0; j < p.channels; j += simd::width<Acc>) {
    vector taps[W], d_taps[W + 1];
    unroll<W>([&](auto w) __attribute__((always_inline)) {
      taps[w] = simd::load<arch>(p.h.weight + w * p.h.stride + j);
      d_taps[w] = simd::load<arch>(p.d_taps + w * p.row + j);
    });
    Acc* d_bias = p.d_taps + widest_filter * p.row + j;
    d_taps[W] = simd::load<arch>(d_bias);
    index_t t = p.tokens;
    for (; t % G != 0; --t) convolve_rows_back<W, 1>(p, t - 1, j, taps, d_taps);
    for (; t > 0; t -= G) convolve_rows_back<W, G>(p, t - G, j, taps, d_taps);
    unroll<W>([&](auto w) __attribute__((always_inline)) { simd::store(p.d_taps + w * p.row + j, d_taps[w]); });
    simd::store(d_bias, d_taps[W]);
  }
}

template <class Acc>
void convolve_back(index_t width, const convolution_back<Acc>& p) noexcept {
  using kernel = void (*)(const convolution_back<Acc>&) noexcept;
  constexpr kernel of_width[widest_filter] = {convolve_width_back<1, Acc>, convolve_width_back<2, Acc>,
                                              convolve_width_back<3, Acc>, convolve_width_back<4, Acc>,
                                              convolve_width_back<5, Acc>, convolve_width_back<6, Acc>,
                                              convolve_width_back<7, Acc>, convolve_width_back<8, Acc>};
  of_width[width - 1](p);
}

template <class Op, class Walk>
class convolution_pass;

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
  using rules = detail::window_rules;
  template <class Walk>
  using pass = detail::convolution_pass<short_convolution, Walk>;

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

  template <class Apart>
  void check_gradients(core::checker& ask, const view<const T, 3>& d_y, const gradient& d,
                       const Apart& apart) const noexcept {
    ask.extents("d_y", d_y, x.extents(), "[B, L, D] as x");
    ask.extents("d.weight", d.weight, weight.extents(), "[D, W] as weight");
    ask.extents("d.bias", d.bias, {x.extent(2)}, "[D]");
    apart("d.weight", d.weight);
    apart("d.bias", d.bias);
  }

  std::size_t bytes(index_t across) const noexcept {
    arena counted;
    counted.take<double>((2 * widest + 2 * group_of(across)) * across);
    return counted.used() + 4 * arena::alignment;
  }

  /// The rows of a piece. Where tensors have neighbouring channels next to each other, rows that see only this call's
  /// inputs are computed where they lie; everything else goes through panels.
  template <class S, class Acc>
  void compute(const detail::window_problem<T, S>& p, const detail::window_piece& at, index_t channel, index_t across,
               const output& y, const Acc* inputs, arena memory) const noexcept {
    const detail::filter<Acc> h = filter_of(channel, across, memory.take<Acc>((widest + 1) * p.row), p.row);
    const index_t width = weight.extent(1);
    const index_t live = std::clamp<index_t>(at.live - at.first, 0, at.count);
    const bool in_place = x.stride(2) == 1 && y.stride(2) == 1 && inputs == nullptr;
    const index_t packed = in_place ? std::clamp<index_t>(reach() - at.first, 0, live) : live;
    if (packed > 0) {
      const index_t group = group_of(p.row);
      Acc* in = memory.take<Acc>((widest - 1 + group) * p.row);
      Acc* out = memory.take<Acc>(group * p.row);
      if (inputs == nullptr) p.load(at, at.first - reach(), reach(), channel, across, in, p.row);
      for (index_t t = 0; t < packed; t += group) {
        const index_t count = std::min(group, packed - t);
        if (inputs == nullptr) p.load(at, at.first + t, count, channel, across, in + reach() * p.row, p.row);
        const Acc* from = inputs == nullptr ? in : inputs + t * p.row;
        const view<T, 2> to = rows(y, at, t, count, channel, across);
        bool stored = false;
        if constexpr (std::is_same_v<T, Acc>) {
          stored = to.stride(1) == 1;
          if (stored) detail::convolve(width, from, p.row, h, to.data(), to.stride(0), count, across);
        }
        if (!stored) {
          detail::convolve(width, from, p.row, h, out, p.row, count, across);
          detail::store_tile(out, p.row, to);
        }
        for (index_t i = 0; inputs == nullptr && i < reach(); ++i) {
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
  template <class Op, class Walk>
  friend class detail::convolution_pass;
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
    if (!lies) detail::load_few(turned, panel, row);
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

/// The backward pass of a block of channels: with v_t the cotangent of the sum before σ,
///   dx_t = Σ_w weight_w ⊙ v_{t+(W−1)−w},   d_weight_w = Σ_t v_t ⊙ x_{t−(W−1)+w},   d_b = Σ_t v_t
template <class Op, class Walk>
class convolution_pass {
  using Acc = typename Walk::Acc;
  using vector = simd::batch<Acc>;
  static constexpr index_t V = simd::width<Acc>;
  static constexpr index_t row = Walk::row;

 public:
  convolution_pass(const Op& op, Walk& walk, const cotangent_of<Op>& d_y, const typename Op::gradient& d,
                   arena& memory) noexcept
      : walk_(walk), d_y_(d_y), d_(d), m_(scratch(op, memory)), reach_(op.reach()), across_(walk.across) {
    h_ = op.filter_of(walk.channel, across_, m_.taps, row);
    zero_tile(m_.d_taps, row, 0, widest_filter + 1, across_);
  }

  struct panels {
    Acc* x;       // [reach + tile, row]
    Acc* v;       // [tile + reach, row], the tokens after the tile last
    Acc* taps;    // [W + 1, row]
    Acc* d_taps;  // likewise
  };
  static panels scratch(const Op&, arena& memory) noexcept {
    constexpr index_t W = widest_filter;
    return {memory.take<Acc>((W - 1 + Walk::tile) * row), memory.take<Acc>((W - 1 + Walk::tile) * row),
            memory.take<Acc>((W + 1) * row), memory.take<Acc>((W + 1) * row)};
  }

  void begin() noexcept { zero_tile(m_.v, row, 0, reach_, across_); }

  /// The first `reach` rows of v are those of the tokens after these.
  void tokens(const window_piece& at, index_t first, index_t count, Acc* d_in) noexcept {
    for (index_t i = reach_; i-- > 0;) {  // the last first: the rows may overlap
      each([&](index_t j) noexcept { simd::store(m_.v + (count + i) * row + j, simd::load(m_.v + i * row + j)); });
    }
    walk_.p.load(at, first - reach_, reach_ + count, walk_.channel, across_, m_.x, row);
    if (d_y_.present()) {
      load_tile(walk_.rows(d_y_, at, first, count), m_.v, row);
    } else {
      zero_tile(m_.v, row, 0, count, across_);
    }
    convolve_back<Acc>(reach_ + 1, {h_, m_.x, m_.v, m_.d_taps, d_.x.present() ? d_in : nullptr, row, count, across_});
  }

  /// Row i of v is token i, and there is none before row 0.
  void before(index_t i, Acc* to) noexcept {
    each([&](index_t j) noexcept {
      vector sum(Acc(0));
      for (index_t w = std::min(reach_, i + reach_); w >= 0; --w) {
        sum = simd::fma(simd::load(h_.weight + w * h_.stride + j), simd::load(m_.v + (i + reach_ - w) * row + j), sum);
      }
      simd::store(to + j, sum);
    });
  }

  void padding(const window_piece&, index_t, index_t, const Acc*) noexcept {}

  void finish() noexcept {
    using P = typename Op::accum;
    if (d_.weight.present()) {
      walk_.drain(m_.d_taps, view<P, 2>(d_.weight.pointer(walk_.channel, 0), {reach_ + 1, across_},
                                        {d_.weight.stride(1), d_.weight.stride(0)}));
    }
    if (d_.bias.present()) {
      walk_.drain(m_.d_taps + widest_filter * row,
                  view<P, 2>(d_.bias.pointer(walk_.channel), {1, across_}, {0, d_.bias.stride(0)}));
    }
  }

 private:
  template <class F>
  OGIVE_INLINE void each(const F& f) noexcept {
    for (index_t j = 0; j < across_; j += V) f(j);
  }

  Walk& walk_;
  const cotangent_of<Op>& d_y_;
  const typename Op::gradient& d_;
  panels m_;
  index_t reach_, across_;
  filter<Acc> h_{};
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

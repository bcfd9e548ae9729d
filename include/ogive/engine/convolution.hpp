// L5: causal convolutions, one kernel per channel.
//
//   y_t = Σ_{l < Lk} K_l u_{t−l} + D u_t             u at t < 0: the history, or 0
//
// u, y [B, L, D] of any storage and strides; K and D in the accumulation type. Operators that have a kernel say
//
//   const convolution_problem<T, S> p{.u = u, .y = y, .taps = Lk, .skip = D, …};
//   const convolution_cut cut = convolution_cut_of<Acc>(p, form);      direct, or by transforms: from shape alone
//   make_convolution_tables<Acc>(cut, ctx);                            at the door; allocates when a size is new
//   ctx.reserve(ctx.workers() · convolution_bytes<Acc>(p, cut, kernel));      likewise; with p and kernel alone both
//   are
//                                                                      for every cut, of fewer tokens too
//   convolve<Acc>(p, cut, kernel, ctx);                                noexcept, allocates nothing
//
// `kernel(channel, to, memory)` writes K_0 … K_{Lk−1} of a channel to `to`, noexcept; it may take `kernel.bytes()` of
// scratch from the arena, if it has that member. It is called once for each channel and share of the sequences (a
// single one unless there are few channels and many sequences), so that kernels may be made where they are used: no [D,
// Lk] tensor is needed. `add(at, first, count, channel, row)`, an optional last argument of convolve, is called before
// outputs are stored, with those of the tokens [first, first + count) of sequence `at` in a row of Acc: to it an
// operator adds what else its outputs have. It too may take the scratch of `kernel`, as one more argument.
//
// Two ways. Direct: Lk products for each output, in an order that Lk alone decides, vectors over time; an
// output is the same to the bit in whatever pieces the sequence comes, and the future never reaches the past. By
// transforms: blocks of outputs with the Lk − 1 inputs before each (overlap-save), zeros where there are none, so that
// nothing wraps; a single block where that is cheapest. There an error is relative to the largest numbers of a block,
// and a NaN reaches all of it. A task is a group of channels; results do not depend on who runs it.
//
// Oppenheim and Schafer, Discrete-Time Signal Processing, has overlap-save; Gu et al., arXiv:2111.00396, the use.
#pragma once

#include <ogive/core/check.hpp>
#include <ogive/engine/polynomial_transform.hpp>
#include <ogive/engine/tasks.hpp>
#include <ogive/engine/tiles.hpp>
#include <ogive/engine/unroll.hpp>

#include <algorithm>
#include <limits>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// One sequence of a batch, or of a packed row; from `live` on its tokens are padding.
struct convolution_sequence {
  index_t number = 0, batch = 0, begin = 0, length = 0, live = 0;
};

/// What is convolved. Without `history` there is nothing before the first token and `st` is empty.
template <class T, class S = T>
struct convolution_problem {
  view<const T, 3> u{};
  view<T, 3> y{};
  index_t taps = 0;                  ///< Lk
  view<const accum_t<T>, 1> skip{};  ///< D [D]
  history_state<S> st{};             ///< pools [slots, D, Lk − 1]
  integers lengths{}, offsets{};     ///< rows of padding are 0

  index_t channels() const noexcept { return u.extent(2); }
  index_t sequences() const noexcept { return offsets.present() ? offsets.size() - 1 : u.extent(0); }
  index_t reach() const noexcept { return std::max<index_t>(taps - 1, 0); }
  convolution_sequence sequence(index_t number) const noexcept {
    convolution_sequence at{number, number, 0, u.extent(1), 0};
    if (offsets.present()) {
      at.batch = 0;
      at.begin = offsets.at(number);
      at.length = offsets.at(number + 1) - at.begin;
    }
    at.live = lengths.present() ? std::min(lengths.at(number), at.length) : at.length;
    return at;
  }
  /// Tokens of the longest sequence: no tap beyond them meets an input.
  index_t longest() const noexcept {
    if (!offsets.present() && !lengths.present()) return u.extent(1);
    index_t most = 0;
    for (index_t n = 0; n < sequences(); ++n) most = std::max(most, sequence(n).live);
    return most;
  }
};

/// How it is cut up: rows of inputs, `past` (whole vectors, Lk − 1 or more) of them before each block of `block`.
struct convolution_cut {
  bool direct = true;
  index_t size = 0;  ///< of the transforms
  index_t past = 0;
  index_t block = 0;
  index_t group = 1;   ///< channels of a task
  index_t share = 1;   ///< sequences of a task
  bool keeps = false;  ///< the values of all kernels of a group, for several blocks
  index_t row() const noexcept { return direct ? past + block : size; }
};

/// A kernel that lies in a tensor [D, Lk].
template <class P>
struct kernel_tensor {
  view<const P, 2> K;
  template <class Acc>
  void operator()(index_t channel, Acc* to, arena) const noexcept {
    constexpr index_t W = simd::width<Acc>;
    for (index_t l = 0; l < K.extent(1); l += W) {
      const index_t count = std::min(W, K.extent(1) - l);
      simd::store(to + l, simd::load_strided<Acc, simd::default_arch>(K.pointer(channel, l), K.stride(1), count),
                  count);
    }
  }
};

struct adds_nothing {
  template <class Acc>
  void operator()(const convolution_sequence&, index_t, index_t, index_t, Acc*) const noexcept {}
};

/// Vector operations, about, of the two ways for one row: what the choice between them goes by. The constants are from
/// measurements of bench/convolution.cpp.
template <class Acc>
struct convolution_costs {
  static constexpr double W = static_cast<double>(simd::width<Acc>);
  static double direct(index_t tokens, index_t taps) noexcept {
    const double vectors = std::ceil(static_cast<double>(tokens) / W);
    return vectors * (1.0 * static_cast<double>(taps) + 4);
  }
  static double transform(index_t size) noexcept {
    const double n = static_cast<double>(size);
    return n / (2 * W) * (4 * std::log2(n) + 12) * (sizeof(Acc) == 8 ? 1.3 : 1.0);
  }
};

/// f(n) for the sizes of transforms that may be used: for a block that is the whole, but at most eight times the
/// kernel, which a larger one could not win back; then by halves, down to a kernel and a vector.
template <class Acc, class F>
void for_transform_sizes(index_t tokens, index_t past, const F& f) noexcept {
  using transform = polynomial_transform<Acc>;
  constexpr index_t W = simd::width<Acc>;
  const index_t least = transform::size_for(past + W);
  const index_t most = std::min(transform::size_for(past + std::max(tokens, W)), transform::size_for(8 * past + W));
  for (index_t n = most; n >= least; n /= 2) f(n);
}

/// Transforms of a block, those for each kernel, and sums of products where they are direct.
struct convolution_passes {
  double each = 2, once = 1, direct = 1;
};

/// Sequences of a task, so that there are tasks enough.
inline index_t convolution_share(index_t sequences, index_t groups) noexcept {
  constexpr index_t enough = 64;
  return std::clamp<index_t>(sequences * groups / enough, 1, std::max<index_t>(sequences, 1));
}

/// From shape alone. `way` is automatic, recurrent (direct) or convolution (by transforms, of `size` if it is given:
/// else of the size that costs least).
template <class Acc, class T, class S>
convolution_cut convolution_cut_of(const convolution_problem<T, S>& p, form way, index_t size = 0,
                                   const convolution_passes& passes = {}) noexcept {
  constexpr index_t W = simd::width<Acc>;
  const auto whole = [](index_t count) noexcept { return (count + W - 1) / W * W; };
  const index_t tokens = p.u.extent(1), n = std::max<index_t>(p.sequences(), 1);
  convolution_cut cut{.past = whole(p.reach())};
  const auto blocks_of = [&](index_t transform) noexcept {
    return std::max<index_t>(1, (tokens + transform - cut.past - 1) / (transform - cut.past));
  };
  double least = std::numeric_limits<double>::infinity();
  for_transform_sizes<Acc>(tokens, cut.past, [&](index_t candidate) noexcept {
    const double transforms =
        passes.each * static_cast<double>(blocks_of(candidate)) + passes.once / static_cast<double>(n);
    const double cost = transforms * convolution_costs<Acc>::transform(candidate);
    if (size != 0 ? candidate != size : cost >= least) return;
    least = cost;
    cut.size = candidate;
  });
  const double direct = passes.direct * convolution_costs<Acc>::direct(tokens, p.taps);
  cut.direct = way == form::recurrent || (way == form::automatic && direct <= least);
  cut.block =
      cut.direct ? whole(std::clamp<index_t>(tokens, 1, std::max<index_t>(1024, 2 * cut.past))) : cut.size - cut.past;
  constexpr index_t line = 64 / static_cast<index_t>(sizeof(Acc));
  cut.group = std::clamp<index_t>(p.channels(), 1, p.u.stride(2) == 1 ? std::max(W, line) : 4);
  const index_t groups = (p.channels() + cut.group - 1) / cut.group;
  cut.share = convolution_share(n, groups);
  cut.keeps = cut.direct || cut.share > 1 || blocks_of(cut.size) > 1;
  return cut;
}

template <class Acc>
void make_convolution_tables(const convolution_cut& cut, context& ctx) {
  if (!cut.direct) ctx.cache<polynomial_transforms<Acc>>().make(cut.size);
}

/// Tables for whatever cut these arguments, or fewer tokens, may have.
template <class Acc, class T, class S>
void make_convolution_tables(const convolution_problem<T, S>& p, context& ctx) {
  const index_t past = convolution_cut_of<Acc>(p, form::recurrent).past;
  for_transform_sizes<Acc>(p.u.extent(1), past, [&](index_t n) { ctx.cache<polynomial_transforms<Acc>>().make(n); });
}

/// A kernel whose values are there: `values(channel)`, as transform_taps leaves them.
template <class Kernel>
concept kept_values = requires(const Kernel& kernel) {
  kernel.values(index_t{});
};

template <class Kernel>
std::size_t kernel_bytes(const Kernel& kernel) noexcept {
  if constexpr (requires { kernel.bytes(); }) {
    return kernel.bytes();
  } else {
    return 0;
  }
}

/// Scratch of one worker.
template <class Acc, class T, class S, class Kernel>
std::size_t convolution_bytes(const convolution_problem<T, S>& p, const convolution_cut& cut,
                              const Kernel& kernel) noexcept {
  constexpr index_t W = simd::width<Acc>;
  arena counted;
  counted.take<Acc>(cut.group * (cut.row() + W));
  counted.take<Acc>((cut.keeps ? cut.group : 1) * (cut.direct ? std::max<index_t>(p.taps, 1) + W : cut.size));
  return counted.used() + kernel_bytes(kernel);
}

/// The same for whatever cut these arguments, or fewer tokens, may have.
template <class Acc, class T, class S, class Kernel>
std::size_t convolution_bytes(const convolution_problem<T, S>& p, const Kernel& kernel) noexcept {
  const convolution_cut direct = convolution_cut_of<Acc>(p, form::recurrent);
  std::size_t most = convolution_bytes<Acc>(p, direct, kernel);
  for_transform_sizes<Acc>(p.u.extent(1), direct.past, [&](index_t n) noexcept {
    most = std::max(most, convolution_bytes<Acc>(p, convolution_cut_of<Acc>(p, form::convolution, n), kernel));
  });
  return most;
}

/// Adds the taps W apart from each of the next W, `Apart` of them: what is loaded for one output serves the tap W
/// further on and the vector before it.
template <int Apart, int G, class Acc>
OGIVE_INLINE void slide_on(const Acc* from, const Acc* k, simd::batch<Acc>* sum) noexcept {
  using vector = simd::batch<Acc>;
  constexpr index_t W = simd::width<Acc>;
  for (index_t j = 0; j < W; ++j) {
    vector tap[Apart];
    unroll<Apart>([&](auto b) __attribute__((always_inline)) { tap[b] = vector(k[j + b * W]); });
    unroll<G + Apart - 1>([&](auto i) __attribute__((always_inline)) {
      const vector x = simd::load(from + j + i * W);
      unroll<Apart>([&](auto b) __attribute__((always_inline)) {
        if constexpr (i - b >= 0 && i - b < G) sum[i - b] = simd::fma(tap[b], x, sum[i - b]);
      });
    });
  }
}

/// to_t = Σ_j k_j from_{t+j} for G vectors of t, in an order of j that the number of taps alone decides.
template <int G, class Acc>
OGIVE_INLINE void slide(const Acc* from, const Acc* k, index_t taps, Acc* to) noexcept {
  using vector = simd::batch<Acc>;
  constexpr index_t W = simd::width<Acc>;
  vector sum[G];
  unroll<G>([&](auto g) __attribute__((always_inline)) { sum[g] = vector(Acc(0)); });
  index_t j = 0;
  for (; j + 4 * W <= taps; j += 4 * W) slide_on<4, G>(from + j, k + j, sum);
  for (; j + 2 * W <= taps; j += 2 * W) slide_on<2, G>(from + j, k + j, sum);
  for (; j < taps; ++j) {
    const vector tap(k[j]);
    unroll<G>([&](auto g)
                  __attribute__((always_inline)) { sum[g] = simd::fma(tap, simd::load(from + j + g * W), sum[g]); });
  }
  unroll<G>([&](auto g) __attribute__((always_inline)) { simd::store(to + g * W, sum[g]); });
}

/// y_t = Σ_j R_j x_{t−(Lk−1)+j} for t < count, R the kernel from its end; x_t is at x[t]. Rounded up to whole vectors,
/// and in place: from the last t to the first.
template <class Acc>
OGIVE_NOINLINE void convolve_direct(Acc* x, index_t count, const Acc* reversed, index_t taps) noexcept {
  constexpr index_t W = simd::width<Acc>;
  constexpr int G = 8;
  Acc* to = x + (count + W - 1) / W * W;
  for (; (to - x) % (G * W) != 0; to -= W) slide<1>(to - W - (taps - 1), reversed, taps, to - W);
  for (; to > x; to -= G * W) slide<G>(to - G * W - (taps - 1), reversed, taps, to - G * W);
}

/// Inputs and outputs of a group of channels, and the state.
template <class Acc, class T, class S>
struct convolution_rows {
  static constexpr index_t W = simd::width<Acc>;
  const convolution_problem<T, S>& p;
  index_t channel, across;
  Acc* panel;  ///< [across, stride]
  index_t stride;

  /// The inputs at positions from … from + count, zeros where there are none. A row has room for a vector more.
  void load(const convolution_sequence& at, index_t from, index_t count) const noexcept {
    const index_t H = p.reach(), end = from + count;
    if (from < 0) {
      const index_t kept = std::clamp(-H, from, std::min<index_t>(0, end)), here = std::min<index_t>(0, end);
      zero(0, kept - from);
      const index_t slot = p.st.initial.present() ? core::checker::slot_of(p.st.initial_slots, at.number) : -1;
      if (slot < 0) {
        zero(kept - from, here - kept);
      } else {
        load_tile(columns(p.st.initial, slot, H + kept, here - kept), panel + (kept - from), stride);
      }
    }
    const index_t first = std::max<index_t>(from, 0), last = std::clamp(at.live, first, std::max(first, end));
    if (first < last) {
      load_tile(tokens(p.u, at, first, last - first), panel + (first - from), stride);
    }
    zero(last - from, end - last);
  }

  template <class X>
  void store(const convolution_sequence& at, index_t first, index_t count, index_t offset,
             const view<X, 3>& y) const noexcept {
    store_tile(static_cast<const Acc*>(panel + offset), stride, tokens(y, at, first, count), past_caches(y));
  }

  /// Whether whole lines of an output go past the caches: of one that is larger than the second of them nothing would
  /// be left there when it is read, and a line that is stored in full need not be read first.
  template <class X>
  static bool past_caches(const view<X, 3>& y) noexcept {
    constexpr index_t large = index_t{4} << 20, line = 64 / static_cast<index_t>(sizeof(X));
    return y.size() * static_cast<index_t>(sizeof(X)) >= large && y.stride(2) == 1 && y.extent(2) % line == 0 &&
           y.stride(0) % line == 0 && y.stride(1) % line == 0 && reinterpret_cast<std::uintptr_t>(y.data()) % 64 == 0;
  }

  /// The last inputs to the final state, the oldest first: in place, what is still needed comes later.
  void save(const convolution_sequence& at) const noexcept {
    const index_t slot = p.st.final.present() ? core::checker::slot_of(p.st.final_slots, at.number) : -1;
    const index_t H = p.reach();
    if (slot < 0) return;
    for (index_t column = 0; column < H;) {
      const index_t position = at.live - H + column;
      const index_t count = std::min({H - column, position < 0 ? -position : H, stride - W});
      load(at, position, count);
      store_tile(static_cast<const Acc*>(panel), stride, columns(p.st.final, slot, column, count));
      column += count;
    }
  }

  void clear_padding(const convolution_sequence& at, const view<T, 3>& y) const noexcept {
    for (index_t t = at.live; t < at.length; ++t) {
      for (index_t c = 0; c < across; ++c) y(at.batch, at.begin + t, channel + c) = T(0.0F);
    }
  }

  /// Tokens of the sequence, time along the rows.
  template <class X>
  view<X, 2> tokens(const view<X, 3>& x, const convolution_sequence& at, index_t first, index_t count) const noexcept {
    return {x.pointer(at.batch, at.begin + first, channel), {across, count}, {x.stride(2), x.stride(1)}};
  }
  template <class X>
  view<X, 2> columns(const view<X, 3>& pool, index_t slot, index_t column, index_t count) const noexcept {
    return {pool.pointer(slot, channel, column), {across, count}, {pool.stride(1), pool.stride(2)}};
  }
  void zero(index_t begin, index_t count) const noexcept {
    for (index_t c = 0; c < across && count > 0; ++c) {
      Acc* row = panel + c * stride + begin;
      for (index_t i = 0; i < count; i += W) simd::store(row + i, simd::batch<Acc>(Acc(0)), count - i);
    }
  }
};

/// The kernel of a channel as it is used, the skip in its first tap.
template <class Acc, class T, class S, class Kernel>
void load_taps(const convolution_problem<T, S>& p, const Kernel& kernel, index_t channel, Acc* to,
               arena memory) noexcept {
  if (p.taps > 0) {
    kernel(channel, to, memory);
  } else {
    to[0] = Acc(0);
  }
  if (p.skip.present()) to[0] += static_cast<Acc>(p.skip(channel));
}

/// A kernel's values, 2/n among them.
template <class Acc, class T, class S, class Kernel>
void transform_taps(const convolution_problem<T, S>& p, const Kernel& kernel, index_t channel,
                    const polynomial_transform<Acc>& transform, Acc* to, arena memory) noexcept {
  load_taps(p, kernel, channel, to, memory);
  const index_t taps = std::max<index_t>(p.taps, 1);
  const Acc scale = Acc(2) / static_cast<Acc>(transform.size());
  for (index_t l = 0; l < taps; ++l) to[l] *= scale;
  for (index_t l = taps; l < transform.size(); ++l) to[l] = Acc(0);
  transform.forward(to);
}

template <class Acc, class T, class S, class Kernel, class Add>
OGIVE_NOINLINE void convolve_group(const convolution_problem<T, S>& p, const convolution_cut& cut, const Kernel& kernel,
                                   const Add& add, const polynomial_transform<Acc>* transform, index_t channel,
                                   index_t first, index_t last, arena memory) noexcept {
  constexpr index_t W = simd::width<Acc>;
  const index_t across = std::min(cut.group, p.channels() - channel), taps = std::max<index_t>(p.taps, 1);
  const index_t stride = cut.row() + W, of_kernel = cut.direct ? taps + W : cut.size;
  const convolution_rows<Acc, T, S> rows{p, channel, across, memory.take<Acc>(cut.group * stride), stride};
  Acc* kernels = memory.take<Acc>((cut.keeps ? cut.group : 1) * of_kernel);
  if constexpr (!kept_values<Kernel>) {
    for (index_t c = 0; c < across && cut.keeps && p.y.present(); ++c) {
      Acc* own = kernels + c * of_kernel;
      if (cut.direct) {
        load_taps(p, kernel, channel + c, own, memory);
        for (index_t i = 0, j = taps - 1; i < j; ++i, --j) {
          const Acc k = own[i];
          own[i] = own[j];
          own[j] = k;
        }
      } else {
        transform_taps(p, kernel, channel + c, *transform, own, memory);
      }
    }
  }
  for (index_t n = first; n < last; ++n) {
    const convolution_sequence at = p.sequence(n);
    for (index_t t = 0; t < at.live && p.y.present(); t += cut.block) {
      const index_t count = std::min(cut.block, at.live - t);
      rows.load(at, t - cut.past, cut.past + count);
      if (!cut.direct) rows.zero(cut.past + count, cut.size - cut.past - count);
      for (index_t c = 0; c < across; ++c) {
        Acc* row = rows.panel + c * stride;
        if (cut.direct) {
          convolve_direct(row + cut.past, count, kernels + c * of_kernel, taps);
        } else {
          const Acc* values = cut.keeps ? kernels + c * of_kernel : kernels;
          if constexpr (kept_values<Kernel>) {
            values = kernel.values(channel + c);
          } else if (!cut.keeps) {
            transform_taps(p, kernel, channel + c, *transform, kernels, memory);
          }
          transform->forward(row);
          transform->multiply(row, values);
          transform->inverse(row);
        }
        if constexpr (requires { add(at, t, count, channel + c, row + cut.past, memory); }) {
          add(at, t, count, channel + c, row + cut.past, memory);
        } else {
          add(at, t, count, channel + c, row + cut.past);
        }
      }
      rows.store(at, t, count, cut.past, p.y);
    }
    if (p.y.present()) rows.clear_padding(at, p.y);
    rows.save(at);
  }
}

/// All of it. Room and tables are there.
template <class Acc, class T, class S, class Kernel, class Add = adds_nothing>
void convolve(const convolution_problem<T, S>& p, const convolution_cut& cut, const Kernel& kernel, context& ctx,
              const Add& add = {}) noexcept {
  const index_t groups = (p.channels() + cut.group - 1) / cut.group, n = p.sequences();
  const index_t shares = (n + cut.share - 1) / cut.share;
  const polynomial_transform<Acc>* transform =
      cut.direct ? nullptr : &ctx.cache<polynomial_transforms<Acc>>().at(cut.size);
  run_tasks(ctx, groups * shares, convolution_bytes<Acc>(p, cut, kernel), [&](index_t task, arena memory) noexcept {
    const index_t first = task % shares * cut.share;
    convolve_group<Acc>(p, cut, kernel, add, transform, task / shares * cut.group, first,
                        std::min(first + cut.share, n), memory);
  });
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

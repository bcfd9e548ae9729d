// L5: softmax attention, block by block.
//
//   o_i = Σ_j p_ij v_j / Σ_j p_ij,   p_ij = exp(s q_i·k_j − m_i),   m_i = max_j s q_i·k_j
//
// A maximum and a sum run along the keys; where a tile of keys raises the maximum of a row, what the row holds is
// scaled down by exp(old − new). Milakov and Gimelshein 2018, arXiv:1805.02867; Rabe and Staats 2021, arXiv:2112.05682.
// The sweep over tiles is that of the left product. A few rows (decoding) go another way: scores are dot products along
// the lanes, keys and values are read once and where they lie, so that memory alone sets the pace.
#pragma once

#include <ogive/engine/product.hpp>
#include <ogive/simd/math.hpp>

#include <limits>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// Rows where they lie, or no data.
template <class Acc>
using rows_in_place = linalg::panel<const Acc>;

/// One call: `load_q` brings s·q. The keys and values of a head that are stored as Acc with neighbouring elements can
/// be had in place; `store_maxima` may be absent.
template <class Acc>
struct softmax_problem : product_problem<Acc> {
  rows_in_place<Acc> (*keys_in_place)(const void* op, const tokens& at) noexcept = nullptr;
  rows_in_place<Acc> (*values_in_place)(const void* op, const tokens& at) noexcept = nullptr;
  void (*store_maxima)(const void* op, const tokens& at, const Acc* maxima) noexcept = nullptr;
};

template <class Acc>
inline constexpr Acc no_score = -std::numeric_limits<Acc>::infinity();

/// exp(s − maximum) of scores; 0 where there is no score, also while the maximum is that of no score.
template <class Acc, class Arch>
struct exponent {
  using vector = simd::batch<Acc, Arch>;
  vector maximum;

  OGIVE_INLINE explicit exponent(const vector& highest) noexcept
      : maximum(simd::select(highest == vector(no_score<Acc>), vector(Acc(0)), highest)) {}
  OGIVE_INLINE vector operator()(const vector& s) const noexcept { return simd::exp(s - maximum); }
};

/// How softmax weighs its scores.
template <class Acc>
class softmax_weights {
 public:
  using problem = softmax_problem<Acc>;

  static index_t scratch(index_t columns) noexcept { return 3 * columns; }

  softmax_weights(Acc* scratch, index_t columns, bool) noexcept
      : sum_(scratch), maximum_(scratch + columns), factor_(scratch + 2 * columns) {}

  void begin(index_t columns) noexcept {
    for (index_t c = 0; c < columns; ++c) {
      sum_[c] = Acc(0);
      maximum_[c] = no_score<Acc>;
    }
  }
  Acc* denominator() noexcept { return sum_; }

  template <class Arch>
  void weigh(const score_tile<Acc>& t) noexcept {
    constexpr index_t W = simd::width<Acc, Arch>;
    index_t c = t.first;
    if (t.edge) {
      for (; c < t.last; c += W) weigh_columns<Arch, true>(t, c, std::make_index_sequence<1>());
    } else {
      for (; c + 4 * W <= t.last; c += 4 * W) weigh_columns<Arch, false>(t, c, std::make_index_sequence<4>());
      for (; c < t.last; c += W) weigh_columns<Arch, false>(t, c, std::make_index_sequence<1>());
    }
  }
  linalg::decay_rows<Acc> finish(index_t first) const noexcept { return {factor_ + first}; }

  void store(const problem& p, const tokens& at, const Acc* o, index_t stride, index_t column) const noexcept {
    p.hooks.store(p.hooks.op, at, 0, p.value_dim, o, stride, sum_ + column);
    if (p.store_maxima != nullptr) p.store_maxima(p.hooks.op, at, maximum_ + column);
  }

 private:
  template <class Arch, bool Edge, std::size_t... I>
  OGIVE_INLINE void weigh_columns(const score_tile<Acc>& t, index_t c, std::index_sequence<I...>) noexcept {
    using vector = simd::batch<Acc, Arch>;
    constexpr index_t W = simd::width<Acc, Arch>;
    constexpr std::size_t N = sizeof...(I);
    const auto at = [](std::size_t i) { return static_cast<index_t>(i) * W; };
    vector before[N] = {simd::load<Arch>(maximum_ + c + at(I))...};
    vector highest[N] = {before[I]...};
    const vector query[N] = {simd::load<Arch>(t.offset + c + at(I))...};
    Acc* s = t.s + c;
    for (index_t j = 0; j < t.keys; ++j, s += t.stride) {
      if constexpr (Edge) {
        (simd::store(s + at(I), simd::select(t.template sees<Arch>(j, query[I]), simd::load<Arch>(s + at(I)),
                                             vector(no_score<Acc>))),
         ...);
      }
      ((highest[I] = simd::max(simd::load<Arch>(s + at(I)), highest[I])), ...);
    }
    const exponent<Acc, Arch> power[N] = {exponent<Acc, Arch>(highest[I])...};
    vector sum[N] = {(static_cast<void>(I), vector(Acc(0)))...};
    s = t.s + c;
    for (index_t j = 0; j < t.keys; ++j, s += t.stride) {
      const vector p[N] = {power[I](simd::load<Arch>(s + at(I)))...};
      ((sum[I] = sum[I] + p[I]), ...);
      (simd::store(s + at(I), p[I]), ...);
    }
    const vector factor[N] = {power[I](before[I])...};
    (simd::store(factor_ + c + at(I), factor[I]), ...);
    (simd::store(maximum_ + c + at(I), highest[I]), ...);
    (simd::store(sum_ + c + at(I), simd::fma(simd::load<Arch>(sum_ + c + at(I)), factor[I], sum[I])), ...);
  }

  Acc* sum_;
  Acc* maximum_;
  Acc* factor_;
};

/// A few rows (all queries of the heads that read one key head) against all keys. A tile of keys is read from memory
/// once, whatever the number of rows.
template <class Acc, class Arch>
class softmax_rows_task {
 public:
  using problem = softmax_problem<Acc>;
  static constexpr index_t most = 4;  // rows; more are better off as products of matrices

  static bool fits(const problem& p) noexcept { return p.queries * p.readers() <= most; }
  static std::size_t scratch(const problem& p) noexcept {
    arena memory;
    carve(p, memory);
    return memory.used();
  }

  /// All tasks of a call. The context has room for every worker.
  static void run(const problem& p, context& ctx) noexcept {
    run_tasks(ctx, p.queries == 0 ? 0 : p.sequences() * p.heads, scratch(p),
              [&](index_t task, arena memory) noexcept { run(p, task, memory); });
  }

 private:
  using vector = simd::batch<Acc, Arch>;
  static constexpr index_t W = simd::width<Acc, Arch>;
  static constexpr index_t tile = 64;

  struct panels {
    Acc *q, *k, *v, *s, *o, *room;
  };
  static panels carve(const problem& p, arena& memory) noexcept {
    const index_t K = padded<Acc>(p.key_dim);
    const index_t V = padded<Acc>(p.value_dim);
    panels r{};
    r.q = memory.take<Acc>(most * K);
    r.k = memory.take<Acc>(tile * K);
    r.v = memory.take<Acc>(tile * V);
    r.s = memory.take<Acc>(most * tile);
    r.o = memory.take<Acc>(most * V);
    r.room = memory.take<Acc>(tile * padded<Acc>(p.input_dim));
    return r;
  }

  OGIVE_NOINLINE static void run(const problem& p, index_t task, arena memory) noexcept;

  softmax_rows_task(const problem& p, index_t task, arena& memory) noexcept
      : p_(p), m_(carve(p, memory)), sequence_(product_sequence::of(p, task / p.heads)), head_(task % p.heads) {}

  index_t k_stride() const noexcept { return padded<Acc>(p_.key_dim); }
  index_t v_stride() const noexcept { return padded<Acc>(p_.value_dim); }

  void rows() noexcept {
    const index_t count = sequence_.queries;
    const index_t all = count * p_.readers();
    for (index_t g = 0; g < p_.readers(); ++g) {
      p_.hooks.load_q(p_.hooks.op, sequence_.queries_at(0, count, p_.reader(head_, g)), m_.q + g * count * k_stride(),
                      k_stride(), m_.room);
    }
    zero_rows(m_.o, v_stride(), all, v_stride());
    Acc sum[most] = {};
    Acc maximum[most];
    for (Acc& none : maximum) none = no_score<Acc>;

    const auto last_seen = [&](index_t i) { return p_.causal ? i + p_.position : sequence_.live - 1; };
    const auto first_seen = [&](index_t i) { return p_.window > 0 ? i + p_.position - p_.window + 1 : 0; };
    const index_t end = std::min(sequence_.live, last_seen(count - 1) + 1);
    for (index_t j = std::max<index_t>(0, first_seen(0)); j < end; j += tile) {
      const tokens at = sequence_.keys_at(j, std::min(tile, end - j), head_);
      rows_in_place<Acc> k = p_.keys_in_place(p_.hooks.op, at);
      if (k.data == nullptr) {
        p_.hooks.load_k(p_.hooks.op, at, m_.k, k_stride(), m_.room);
        k = {m_.k, k_stride()};
      }
      // Several rows want the values as a dense panel: a product sweeps them by columns, not by rows.
      rows_in_place<Acc> v{nullptr, 0};
      if (all == 1) v = p_.values_in_place(p_.hooks.op, at);
      if (v.data == nullptr) {
        p_.hooks.load_v(p_.hooks.op, at, 0, p_.value_dim, m_.v, v_stride());
        v = {m_.v, v_stride()};
      }
      switch (all) {
        case 1:
          score(k, at.count, std::make_index_sequence<1>());
          break;
        case 2:
          score(k, at.count, std::make_index_sequence<2>());
          break;
        case 3:
          score(k, at.count, std::make_index_sequence<3>());
          break;
        default:
          score(k, at.count, std::make_index_sequence<4>());
      }
      Acc factor[most];
      bool alike = all > 1;  // all rows see the whole tile
      for (index_t r = 0; r < all; ++r) {
        const index_t from = std::clamp<index_t>(first_seen(r % count) - j, 0, at.count);
        const index_t to = std::clamp<index_t>(last_seen(r % count) + 1 - j, from, at.count);
        factor[r] = weigh(r, from, to, sum[r], maximum[r]);
        alike = alike && from == 0 && to == at.count;
      }
      if (alike) {
        linalg::gemm_ab<Arch>(all, p_.value_dim, at.count, {m_.s, tile}, v, linalg::panel<Acc>{m_.o, v_stride()},
                              linalg::decay_rows<Acc>{factor});
        continue;
      }
      for (index_t r = 0; r < all; ++r) {
        const index_t from = std::clamp<index_t>(first_seen(r % count) - j, 0, at.count);
        const index_t to = std::clamp<index_t>(last_seen(r % count) + 1 - j, from, at.count);
        add_values(r, from, to, vector(factor[r]), v);
      }
    }
    for (index_t g = 0; g < p_.readers(); ++g) {
      const tokens at = sequence_.queries_at(0, count, p_.reader(head_, g));
      p_.hooks.store(p_.hooks.op, at, 0, p_.value_dim, m_.o + g * count * v_stride(), v_stride(), sum + g * count);
      if (p_.store_maxima != nullptr) p_.store_maxima(p_.hooks.op, at, maximum + g * count);
    }
  }

  /// s[r][j] = q_r·k_j; past the last key any number. Two keys at a time, so that a vector of q serves twice and one of
  /// k once per row.
  template <std::size_t... R>
  OGIVE_INLINE void score(rows_in_place<Acc> k, index_t keys, std::index_sequence<R...>) const noexcept {
    constexpr std::size_t rows = sizeof...(R), width = static_cast<std::size_t>(W);
    const simd::lanes<Acc, Arch> some(p_.key_dim % W);
    const index_t whole = p_.key_dim - p_.key_dim % W;
    for (index_t j = 0; j < keys; j += W) {
      vector sums[rows][width];
      for (index_t i = 0; i < W; i += 2) {
        const Acc* a = k.row(std::min(j + i, keys - 1));
        const Acc* b = k.row(std::min(j + i + 1, keys - 1));
        vector to_a[rows] = {(static_cast<void>(R), vector(Acc(0)))...}, to_b[rows] = {to_a[R]...};
        const auto add = [&](index_t c, const vector& k_a, const vector& k_b) __attribute__((always_inline)) {
          const vector q[rows] = {simd::load<Arch>(m_.q + static_cast<index_t>(R) * k_stride() + c)...};
          ((to_a[R] = simd::fma(q[R], k_a, to_a[R]), to_b[R] = simd::fma(q[R], k_b, to_b[R])), ...);
        };
        for (index_t c = 0; c < whole; c += W) add(c, simd::load<Arch>(a + c), simd::load<Arch>(b + c));
        if (whole < p_.key_dim) add(whole, simd::load(a + whole, some), simd::load(b + whole, some));
        ((sums[R][i] = to_a[R], sums[R][i + 1] = to_b[R]), ...);
      }
      (simd::store(m_.s + static_cast<index_t>(R) * tile + j, simd::reduce_add_all(sums[R])), ...);
    }
  }

  /// Scores of row r become weights of the keys [from, to); answers what the row held before is scaled by.
  Acc weigh(index_t r, index_t from, index_t to, Acc& sum, Acc& maximum) const noexcept {
    Acc* s = m_.s + r * tile;
    const vector lane = simd::iota<Acc, Arch>();
    const auto seen = [&](index_t j) {
      return (lane >= vector(static_cast<Acc>(from - j))) & (lane < vector(static_cast<Acc>(to - j)));
    };
    vector highest(maximum);
    for (index_t j = 0; j < to; j += W) {
      const vector x = simd::select(seen(j), simd::load<Arch>(s + j), vector(no_score<Acc>));
      simd::store(s + j, x);
      highest = simd::max(x, highest);
    }
    const Acc top = simd::reduce_max(highest);
    const exponent<Acc, Arch> power{vector(top)};
    vector total(Acc(0));
    for (index_t j = 0; j < to; j += W) {
      const vector p = power(simd::load<Arch>(s + j));
      simd::store(s + j, p);
      total = total + p;
    }
    const vector factor = power(vector(maximum));
    sum = simd::first(simd::fma(vector(sum), factor, vector(simd::reduce_add(total))));
    maximum = top;
    return simd::first(factor);
  }

  /// o_r = factor o_r + Σ_j p_rj v_j over the keys [from, to) only.
  void add_values(index_t r, index_t from, index_t to, const vector& factor, rows_in_place<Acc> v) const noexcept {
    const Acc* p = m_.s + r * tile;
    Acc* o = m_.o + r * v_stride();
    const auto columns = [&]<std::size_t... I>(index_t c, std::index_sequence<I...>) {
      vector row[sizeof...(I)] = {(simd::load<Arch>(o + c + static_cast<index_t>(I) * W) * factor)...};
      for (index_t j = from; j < to; ++j) {
        const vector weight(p[j]);
        ((row[I] = simd::fma(weight, simd::load<Arch>(v.row(j) + c + static_cast<index_t>(I) * W), row[I])), ...);
      }
      (simd::store(o + c + static_cast<index_t>(I) * W, row[I]), ...);
    };
    index_t c = 0;
    for (; c + 8 * W <= p_.value_dim; c += 8 * W) columns(c, std::make_index_sequence<8>());
    for (; c + 4 * W <= p_.value_dim; c += 4 * W) columns(c, std::make_index_sequence<4>());
    for (; c + W <= p_.value_dim; c += W) columns(c, std::make_index_sequence<1>());
    if (c == p_.value_dim) return;
    const simd::lanes<Acc, Arch> some(p_.value_dim - c);
    vector row = simd::load<Arch>(o + c) * factor;
    for (index_t j = from; j < to; ++j) row = simd::fma(vector(p[j]), simd::load(v.row(j) + c, some), row);
    simd::store(o + c, row);
  }

  const problem& p_;
  panels m_;
  product_sequence sequence_;
  index_t head_;
};

// Not inline, so that an extern template spares a unit the bodies.
template <class Acc, class Arch>
void softmax_rows_task<Acc, Arch>::run(const problem& p, index_t task, arena memory) noexcept {
  softmax_rows_task(p, task, memory).rows();
}

template <class Acc>
using softmax_blocks_task = left_task<Acc, simd::default_arch, softmax_weights<Acc>>;

/// Bytes of scratch one worker needs, for as many queries or fewer.
template <class Acc>
std::size_t softmax_bytes(const softmax_problem<Acc>& p) noexcept {
  const std::size_t rows = softmax_rows_task<Acc, simd::default_arch>::scratch(p);
  return softmax_rows_task<Acc, simd::default_arch>::fits(p) ? rows
                                                             : std::max(rows, softmax_blocks_task<Acc>::scratch(p));
}

/// The context has room for every worker.
template <class Acc>
void softmax(const softmax_problem<Acc>& p, context& ctx) noexcept {
  using few = softmax_rows_task<Acc, simd::default_arch>;
  if (few::fits(p)) {
    few::run(p, ctx);
  } else {
    softmax_blocks_task<Acc>::run(p, ctx);
  }
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

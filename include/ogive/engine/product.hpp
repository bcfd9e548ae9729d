// L5: linear attention without time: both ways to multiply three matrices.
//
//   left    O = (M ∘ Q Kᵀ) V     n·m·(K + V) multiply-adds; M lets key j reach query i where j ≤ i + position (causal)
//   right   O = Q (Kᵀ V)         (n + m)·K·V, not causal; Kᵀ V is the state S
//
// with Q = φ(q) [n, K], K = φ(k) [m, K], V [m, V]. The left product holds a block of queries against one tile of keys
// after the other, so its memory does not grow with n or m:
//
//   Wᵀ = M ∘ (K Qᵀ)  [tile, block],   O += W V,   denominator += Σ_j W_j
//
// Scores stand key by key, queries along the lanes: neither K nor V is ever turned round, sums over keys run down the
// lanes, and softmax attention is the same sweep with another way to weigh the scores (`softmax.hpp`).
#pragma once

#include <ogive/core/context.hpp>
#include <ogive/core/options.hpp>
#include <ogive/engine/rows.hpp>
#include <ogive/engine/tasks.hpp>
#include <ogive/linalg/gemm.hpp>

#include <algorithm>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// Between the pools of a state and a block of `columns` columns of S from `column` on. `load` adds nothing and answers
/// false where the state starts at zero; it fills z whatever the block. `save` writes z with the first block only.
template <class Acc>
struct product_state_hooks {
  const void* state = nullptr;
  bool (*load)(const void* state, index_t sequence, index_t head, index_t column, index_t columns, Acc* S,
               index_t stride, Acc* z) noexcept = nullptr;
  void (*save)(const void* state, index_t sequence, index_t head, index_t column, index_t columns, const Acc* S,
               index_t stride, const Acc* z) noexcept = nullptr;
};

/// Rows of an output, and whether they go past the caches.
template <class Acc>
struct rows_written {
  linalg::panel<Acc> rows{};
  bool past = false;
};

/// C = r_i Σ, written as the rows of an output are.
template <class Acc>
struct scale_rows_written {
  const Acc* r;
  bool past;
  static constexpr bool reads = false;
  template <class V>
  OGIVE_INLINE V operator()(index_t i, index_t, V sum, V) const noexcept {
    return V(r[i]) * sum;
  }
  template <class V>
  OGIVE_INLINE void put(Acc* p, const V& x) const noexcept {
    if (past) {
      simd::stream(p, x);
    } else {
      simd::store(p, x);
    }
  }
};

/// How rows of φ(q), φ(k) and v come, and rows of o go. Panels are rows of `stride` elements, one per token. A load
/// fills `at.count` rows up to their padded width, zeros where a token is padding or masked; loads of q and k may work
/// in `room`. v and o move by blocks of columns. `denominator` holds φ(q)·(z + bias) per token, null if not normalised.
template <class Acc>
struct product_hooks {
  const void* op = nullptr;
  void (*load_q)(const void* op, const tokens& at, Acc* q, index_t stride, Acc* room) noexcept = nullptr;
  void (*load_k)(const void* op, const tokens& at, Acc* k, index_t stride, Acc* room) noexcept = nullptr;
  void (*load_v)(const void* op, const tokens& at, index_t column, index_t columns, Acc* v,
                 index_t stride) noexcept = nullptr;
  void (*store)(const void* op, const tokens& at, index_t column, index_t columns, const Acc* o, index_t stride,
                const Acc* denominator) noexcept = nullptr;
  /// Rows of φ(q) where they lie, if they can be used so: whole vectors, in the accumulation type. Null otherwise.
  linalg::panel<const Acc> (*q_as_is)(const void* op, const tokens& at) noexcept = nullptr;
  /// Where rows of o may be written at once, each its sum times a factor, which takes the place of the denominator.
  /// Null where `store` is needed.
  rows_written<Acc> (*o_as_is)(const void* op, const tokens& at, index_t column, index_t columns,
                               Acc* denominator) noexcept = nullptr;
  /// Where the live rows that a load or store will touch lie.
  rows_ahead (*q_rows)(const void* op, const tokens& at) noexcept = nullptr;
  rows_ahead (*k_rows)(const void* op, const tokens& at) noexcept = nullptr;
  rows_ahead (*v_rows)(const void* op, const tokens& at, index_t column, index_t columns) noexcept = nullptr;
  rows_ahead (*o_rows)(const void* op, const tokens& at, index_t column, index_t columns) noexcept = nullptr;
};

/// A finish that asks for lines of two lists of rows as it lets go of vectors: one of each list with every vector, or
/// by turns where that is enough. Requests in excess of what is needed would fill the line buffers and stall the
/// product. (Asking between the k of a product instead, for an even pace, costs more than the bursts: 49 to 43 % of
/// peak at d = 64. Asking for more lines of q with each vector where K is larger than V changes nothing.)
template <class Finish>
struct asking_for {
  Finish finish;
  rows_ahead* lists;
  bool turns = false;
  static constexpr bool reads = Finish::reads;
  template <class V>
  OGIVE_INLINE V operator()(index_t i, index_t j, V sum, V c) const noexcept {
    constexpr index_t W = simd::width<typename V::value_type, typename V::arch_type>;
    const index_t turn = (i + j / W) % 2;
    lists[turn].ask();
    if (!turns) lists[1 - turn].ask();
    return finish(i, j, sum, c);
  }
  template <class P, class V>
  OGIVE_INLINE void put(P* p, const V& x) const noexcept requires requires {
    finish.put(p, x);
  }
  { finish.put(p, x); }
};

/// One call. Sequences are the rows of the batch, or, with `offsets`, the pieces of one packed row (queries and keys
/// the same tokens).
template <class Acc>
struct product_problem {
  index_t batch = 0;
  index_t queries = 0;  // tokens of q and o
  index_t keys = 0;     // tokens of k and v
  index_t query_heads = 0;
  index_t key_heads = 0;
  index_t heads = 0;  // of v; they own the states
  index_t key_dim = 0;
  index_t value_dim = 0;
  index_t input_dim = 0;  // elements per row of `room`
  product_hooks<Acc> hooks{};
  product_state_hooks<Acc> states{};  // no load: the state starts at zero
  integers offsets{};
  integers lengths{};  // of keys, per sequence
  ogive::heads head_map = ogive::heads::consecutive;
  bool causal = false;
  index_t position = 0;  // of query 0 among the keys: causal sees j ≤ i + position
  index_t window = 0;    // 0, or how many keys up to i + position are seen
  bool normalise = false;
  Acc bias = Acc(0);  // added to every z
  // The right product alone:
  bool outputs = true;  // false: only the state is wanted
  bool split = false;   // whether two tasks may share the columns of V: each of them maps q and k again

  index_t sequences() const noexcept { return offsets.present() ? offsets.size() - 1 : batch; }
  /// Query heads that read one value head, where there are more of them.
  index_t readers() const noexcept { return query_heads > heads && heads > 0 ? query_heads / heads : 1; }
  index_t reader(index_t h, index_t g) const noexcept {
    if (readers() == 1) return h;
    return head_map == ogive::heads::consecutive ? h * readers() + g : g * heads + h;
  }
  index_t query_head(index_t output) const noexcept {
    return read_by(output, std::max(heads, query_heads), query_heads);
  }
  index_t key_head(index_t h) const noexcept { return read_by(h, heads, key_heads); }

 private:
  index_t read_by(index_t h, index_t many, index_t few) const noexcept {
    return head_map == ogive::heads::consecutive ? h / (many / few) : h % few;
  }
};

/// The tokens of one sequence: queries [begin, begin + queries) of a batch row, keys [begin, begin + keys), of which
/// `live` count.
struct product_sequence {
  index_t batch, begin, queries, keys, live;

  template <class Acc>
  static product_sequence of(const product_problem<Acc>& p, index_t s) noexcept {
    product_sequence r{s, 0, p.queries, p.keys, p.keys};
    if (p.offsets.present()) {
      r.batch = 0;
      r.begin = p.offsets.at(s);
      r.queries = r.keys = r.live = p.offsets.at(s + 1) - r.begin;
    }
    if (p.lengths.present()) r.live = std::min(r.live, p.lengths.at(s));
    return r;
  }
  tokens queries_at(index_t first, index_t count, index_t head) const noexcept {
    return {batch, begin + first, count, count, first, head};
  }
  tokens keys_at(index_t first, index_t count, index_t head) const noexcept {
    return {batch, begin + first, count, std::clamp<index_t>(live - first, 0, count), first, head};
  }
};

/// total_j += Σ_i x_ij, the sum from zero.
template <class Acc, class Arch>
OGIVE_NOINLINE void add_rows(index_t rows, index_t columns, const Acc* x, index_t stride, Acc* total) noexcept {
  constexpr index_t W = simd::width<Acc, Arch>;
  const auto block = [&]<std::size_t... I>(index_t j, std::index_sequence<I...>) {
    simd::batch<Acc, Arch> sum[sizeof...(I)] = {(static_cast<void>(I), simd::batch<Acc, Arch>(Acc(0)))...};
    const Acc* p = x + j;
    for (index_t i = 0; i < rows; ++i, p += stride) {
      ((sum[I] = sum[I] + simd::load<Arch>(p + static_cast<index_t>(I) * W)), ...);
    }
    Acc* to = total + j;
    (simd::store(to + static_cast<index_t>(I) * W, simd::load<Arch>(to + static_cast<index_t>(I) * W) + sum[I]), ...);
  };
  index_t j = 0;
  for (; j + 4 * W <= columns; j += 4 * W) block(j, std::make_index_sequence<4>());
  for (; j < columns; j += W) block(j, std::make_index_sequence<1>());
}

/// y_i = x_i · (z + bias), rows of whole vectors.
template <class Acc, class Arch>
OGIVE_NOINLINE void dot_rows(index_t rows, index_t columns, const Acc* x, index_t stride, const Acc* z, Acc bias,
                             Acc* y) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  const auto dot = [&](index_t i) __attribute__((always_inline)) {
    vector sum(Acc(0));
    for (index_t j = 0; j < columns; j += W) {
      sum = simd::fma(simd::load<Arch>(x + i * stride + j), simd::load<Arch>(z + j) + vector(bias), sum);
    }
    return sum;
  };
  index_t i = 0;
  for (; i + W <= rows; i += W) {
    vector sums[static_cast<std::size_t>(W)];
    for (index_t r = 0; r < W; ++r) sums[r] = dot(i + r);
    simd::store(y + i, simd::reduce_add_all(sums));
  }
  for (; i < rows; ++i) y[i] = simd::reduce_add(dot(i));
}

/// y_c = Σ_j x_jc (z_j + bias), the columns in whole vectors.
template <class Acc, class Arch>
OGIVE_NOINLINE void dot_columns(index_t rows, index_t columns, const Acc* x, index_t stride, const Acc* z, Acc bias,
                                Acc* y) noexcept {
  using vector = simd::batch<Acc, Arch>;
  for (index_t c = 0; c < columns; c += simd::width<Acc, Arch>) {
    vector sum(Acc(0));
    for (index_t j = 0; j < rows; ++j) sum = simd::fma(simd::load<Arch>(x + j * stride + c), vector(z[j] + bias), sum);
    simd::store(y + c, sum);
  }
}

template <class Acc, class Arch>
OGIVE_NOINLINE bool all_finite(index_t rows, index_t columns, const Acc* x, index_t stride) noexcept {
  using vector = simd::batch<Acc, Arch>;
  vector sum(Acc(0));
  for (index_t i = 0; i < rows; ++i) {
    for (index_t j = 0; j < columns; j += simd::width<Acc, Arch>) {
      sum = simd::fma(simd::load<Arch>(x + i * stride + j), vector(Acc(0)), sum);
    }
  }
  return simd::reduce_add(sum) == Acc(0);
}

// ---- the left product ----------------------------------------------------------------------------------------------

/// Scores of a tile of keys against columns [first, last) of a block of queries: s[j][c], rows `stride` apart. Column
/// c is query `offset[c]` of the block (which may hold several heads); key j is seen by the offsets in
/// [low + j, high + j). An `edge` tile holds pairs that do not see each other.
template <class Acc>
struct score_tile {
  Acc* s;
  index_t stride;
  index_t keys;
  index_t first, last;
  const Acc* offset;
  index_t low, high;
  bool edge;

  /// Which columns of a vector of offsets see key j.
  template <class Arch>
  OGIVE_INLINE auto sees(index_t j, const simd::batch<Acc, Arch>& query) const noexcept {
    using vector = simd::batch<Acc, Arch>;
    return (query >= vector(static_cast<Acc>(low + j))) & (query < vector(static_cast<Acc>(high + j)));
  }
};

/// How linear attention weighs its scores: as they are.
template <class Acc>
class plain_weights {
 public:
  using problem = product_problem<Acc>;

  static index_t scratch(index_t columns) noexcept { return columns; }

  plain_weights(Acc* scratch, index_t, bool normalise) noexcept : denominator_(normalise ? scratch : nullptr) {}

  void begin(index_t columns) noexcept {
    if (denominator_ != nullptr) zero_rows(denominator_, 0, 1, columns);
  }
  /// Where the part of the denominator goes that a state adds.
  Acc* denominator() noexcept { return denominator_; }

  template <class Arch>
  void weigh(const score_tile<Acc>& t) noexcept {
    if (t.edge) cut<Arch>(t);
    if (denominator_ == nullptr) return;
    add_rows<Acc, Arch>(t.keys, round_up(t.last - t.first, simd::width<Acc, Arch>), t.s + t.first, t.stride,
                        denominator_ + t.first);
  }
  /// What becomes of O when the rows from column `first` on take in a tile.
  linalg::add finish(index_t) const noexcept { return {}; }

  void store(const problem& p, const tokens& at, const Acc* o, index_t stride, index_t column) const noexcept {
    p.hooks.store(p.hooks.op, at, 0, p.value_dim, o, stride, denominator_ == nullptr ? nullptr : denominator_ + column);
  }

 private:
  template <class Arch>
  static OGIVE_NOINLINE void cut(const score_tile<Acc>& t) noexcept {
    using vector = simd::batch<Acc, Arch>;
    for (index_t c = t.first; c < t.last; c += simd::width<Acc, Arch>) {
      const vector query = simd::load<Arch>(t.offset + c);
      for (index_t j = 0; j < t.keys; ++j) {
        Acc* at = t.s + j * t.stride + c;
        simd::store(at, simd::select(t.template sees<Arch>(j, query), simd::load<Arch>(at), vector(Acc(0))));
      }
    }
  }

  Acc* denominator_;
};

/// How queries are cut into blocks and keys into tiles: 64 × 128 scores stay in the first-level cache.
struct left_plan {
  static constexpr index_t tile = 64;
  static constexpr index_t edge_tile = 32;
  static constexpr index_t block = 128;

  index_t tokens;   // queries of one head in a block
  index_t blocks;   // of a sequence, at most
  index_t columns;  // room for those of all heads of a block

  template <class Acc>
  static left_plan of(const product_problem<Acc>& p) noexcept {
    index_t longest = p.offsets.present() ? 0 : p.queries;
    for (index_t s = 0; p.offsets.present() && s < p.sequences(); ++s) {
      longest = std::max(longest, p.offsets.at(s + 1) - p.offsets.at(s));
    }
    left_plan plan{};
    plan.tokens = std::clamp<index_t>(block / p.readers(), 1, std::max<index_t>(longest, 1));
    plan.blocks = (longest + plan.tokens - 1) / plan.tokens;
    plan.columns = linalg::padded_stride<Acc>(plan.tokens * p.readers());
    return plan;
  }
};

/// One block of queries (the same tokens of every head that reads one value head) against all its keys. Instantiated
/// per accumulator, instruction set and kind of weights, never per operator.
template <class Acc, class Arch, class Weights>
class left_task {
 public:
  using problem = typename Weights::problem;

  /// Of any call that has no more queries: most if they are one sequence.
  static std::size_t scratch(problem p) noexcept {
    p.offsets = {};
    return scratch(p, left_plan::of(p));
  }

  /// All tasks of a call. The context has room for every worker.
  static void run(const problem& p, context& ctx) noexcept {
    const left_plan plan = left_plan::of(p);
    run_tasks(ctx, p.sequences() * p.heads * plan.blocks, scratch(p, plan),
              [&](index_t task, arena memory) noexcept { run(p, plan, task, memory); });
  }

 private:
  using panel = linalg::panel<Acc>;

  struct panels {
    Acc *q, *qt, *k, *v, *s, *o, *offset, *weights, *room;
  };
  static panels carve(const problem& p, const left_plan& plan, arena& memory) noexcept {
    const index_t K = linalg::padded_stride<Acc>(p.key_dim);
    const index_t V = linalg::padded_stride<Acc>(p.value_dim);
    panels r{};
    r.q = memory.take<Acc>(plan.tokens * K);
    r.qt = memory.take<Acc>(K * plan.columns);
    r.k = memory.take<Acc>(left_plan::tile * K);
    r.v = memory.take<Acc>((p.states.load == nullptr ? left_plan::tile : std::max(left_plan::tile, K)) * V);
    r.s = memory.take<Acc>(left_plan::tile * plan.columns);
    r.o = memory.take<Acc>(plan.columns * V);
    r.offset = memory.take<Acc>(plan.columns);
    r.weights = memory.take<Acc>(Weights::scratch(plan.columns));
    r.room = memory.take<Acc>(std::max(plan.tokens, left_plan::tile) * padded<Acc>(p.input_dim));
    return r;
  }

  static std::size_t scratch(const problem& p, const left_plan& plan) noexcept {
    arena memory;
    carve(p, plan, memory);
    return memory.used();
  }
  OGIVE_NOINLINE static void run(const problem& p, const left_plan& plan, index_t task, arena memory) noexcept;

  left_task(const problem& p, const left_plan& plan, index_t task, arena& memory) noexcept
      : p_(p), m_(carve(p, plan, memory)), columns_(plan.columns), weights_(m_.weights, plan.columns, p.normalise) {
    first_ = task % plan.blocks * plan.tokens;
    head_ = task / plan.blocks % p.heads;
    index_ = task / (plan.blocks * p.heads);
    sequence_ = product_sequence::of(p, index_);
    count_ = std::min(plan.tokens, sequence_.queries - first_);
  }

  void block() noexcept {
    if (count_ <= 0) return;
    load_queries();
    weights_.begin(columns_);
    read_state();
    // `diagonal` is the last key that the block's first query sees, where it is causal. Tiles end there, so that all
    // before it are whole.
    const index_t diagonal = first_ + p_.position;
    const index_t end = p_.causal ? std::min(sequence_.live, diagonal + count_) : sequence_.live;
    index_t j = p_.window > 0 ? std::max<index_t>(0, diagonal - p_.window + 1) : 0;
    while (j < end) {
      const index_t whole = p_.causal ? std::clamp(diagonal + 1 - j, index_t{0}, left_plan::tile) : left_plan::tile;
      const index_t count = std::min(whole > 0 ? whole : left_plan::edge_tile, end - j);
      take_in(j, count, diagonal, std::min(left_plan::tile, end - j - count));
      j += count;
    }
    for (index_t g = 0; g < p_.readers(); ++g) {
      weights_.store(p_, sequence_.queries_at(first_, count_, p_.reader(head_, g)), m_.o + g * count_ * v_stride(),
                     v_stride(), g * count_);
    }
  }

  index_t k_stride() const noexcept { return linalg::padded_stride<Acc>(p_.key_dim); }
  index_t v_stride() const noexcept { return linalg::padded_stride<Acc>(p_.value_dim); }
  /// Columns of v and o, whole vectors.
  index_t values() const noexcept { return padded<Acc>(p_.value_dim); }

  /// Qᵀ of all heads that read this value head, side by side.
  void load_queries() noexcept {
    zero_rows(m_.qt, columns_, p_.key_dim, columns_);
    zero_rows(m_.offset, columns_, 1, columns_);
    for (index_t g = 0; g < p_.readers(); ++g) {
      const index_t head = p_.query_head(p_.reader(head_, g));
      p_.hooks.load_q(p_.hooks.op, sequence_.queries_at(first_, count_, head), m_.q, k_stride(), m_.room);
      linalg::transpose<Arch>(count_, p_.key_dim, {m_.q, k_stride()}, panel{m_.qt + g * count_, columns_});
      for (index_t i = 0; i < count_; ++i) m_.offset[g * count_ + i] = static_cast<Acc>(i);
    }
  }

  /// What the state brings: O = Q S₀, denominator = Q (z₀ + bias).
  void read_state() noexcept {
    Acc* z = m_.k;
    const bool given = p_.states.load != nullptr &&
                       p_.states.load(p_.states.state, index_, head_, 0, p_.value_dim, m_.v, v_stride(), z);
    if (given) {
      linalg::gemm_atb<Arch>(columns_, values(), p_.key_dim, {m_.qt, columns_}, {m_.v, v_stride()},
                             panel{m_.o, v_stride()}, linalg::overwrite{});
    } else {
      zero_rows(m_.o, v_stride(), columns_, values());
      zero_rows(z, 0, 1, k_stride());
    }
    if (p_.normalise && (given || p_.bias != Acc(0))) {
      dot_columns<Acc, Arch>(p_.key_dim, columns_, m_.qt, columns_, z, p_.bias, weights_.denominator());
    }
  }

  /// Keys [first, first + keys) of the sequence; `next` more will follow.
  void take_in(index_t first, index_t keys, index_t diagonal, index_t next) noexcept {
    score_tile<Acc> t{};
    t.s = m_.s;
    t.stride = columns_;
    t.keys = keys;
    t.offset = m_.offset;
    t.low = p_.causal ? first - diagonal : -keys;
    t.high = p_.window > 0 ? first - diagonal + p_.window : count_;
    t.edge = t.low + keys - 1 > 0 || t.high < count_;
    t.first = 0;
    t.last = count_ * p_.readers();
    if (p_.readers() == 1) {
      t.first = std::max<index_t>(t.low, 0) / simd::width<Acc, Arch> * simd::width<Acc, Arch>;
      t.last = std::min(t.last, t.high + keys - 1);
    }
    if (t.first >= t.last) return;

    p_.hooks.load_k(p_.hooks.op, sequence_.keys_at(first, keys, p_.key_head(head_)), m_.k, k_stride(), m_.room);
    p_.hooks.load_v(p_.hooks.op, sequence_.keys_at(first, keys, head_), 0, p_.value_dim, m_.v, v_stride());
    rows_ahead next_k[] = {p_.hooks.k_rows(p_.hooks.op, sequence_.keys_at(first + keys, next, p_.key_head(head_))), {}};
    rows_ahead next_v[] = {
        next > 0
            ? p_.hooks.v_rows(p_.hooks.op, sequence_.keys_at(first + keys, next, head_), 0, p_.value_dim)
            : p_.hooks.o_rows(p_.hooks.op, sequence_.queries_at(first_, count_, p_.reader(head_, 0)), 0, p_.value_dim),
        {}};
    linalg::gemm_ab<Arch>(keys, round_up(t.last - t.first, simd::width<Acc, Arch>), p_.key_dim, {m_.k, k_stride()},
                          {m_.qt + t.first, columns_}, panel{m_.s + t.first, columns_},
                          asking_for<linalg::overwrite>{{}, next_k});
    weights_.template weigh<Arch>(t);
    const auto own = weights_.finish(t.first);
    const asking_for<std::remove_const_t<decltype(own)>> finish{own, next_v};
    if (t.edge && !all_finite<Acc, Arch>(keys, values(), m_.v, v_stride())) {
      add_seen(t, finish);
    } else {
      linalg::gemm_atb<Arch>(t.last - t.first, values(), keys, {t.s + t.first, columns_}, {m_.v, v_stride()},
                             panel{m_.o + t.first * v_stride(), v_stride()}, finish);
    }
  }

  /// O = Wᵀ V on an edge tile whose values are not all finite: a product with zero would carry them to queries that do
  /// not see them. Rows without such a value get the same bits as from the product of whole tiles.
  template <class Finish>
  OGIVE_NOINLINE void add_seen(const score_tile<Acc>& t, const Finish& finish) noexcept {
    using vector = simd::batch<Acc, Arch>;
    for (index_t c = t.first; c < t.last; ++c) {
      const auto query = static_cast<index_t>(t.offset[c]);
      const index_t begin = std::max<index_t>(0, query - t.high + 1);
      const index_t end = std::min(t.keys, query - t.low + 1);
      for (index_t v = 0; v < values(); v += simd::width<Acc, Arch>) {
        vector sum(Acc(0));
        for (index_t j = begin; j < end; ++j) {
          sum = simd::fma(vector(t.s[j * t.stride + c]), simd::load<Arch>(m_.v + j * v_stride() + v), sum);
        }
        Acc* o = m_.o + c * v_stride() + v;
        simd::store(o, finish(c - t.first, v, sum, simd::load<Arch>(o)));
      }
    }
  }

  const problem& p_;
  panels m_;
  index_t columns_;
  Weights weights_;
  product_sequence sequence_{};
  index_t index_ = 0;
  index_t head_ = 0;
  index_t first_ = 0;
  index_t count_ = 0;
};

// Not inline, so that an extern template spares a unit the bodies.
template <class Acc, class Arch, class Weights>
void left_task<Acc, Arch, Weights>::run(const problem& p, const left_plan& plan, index_t task, arena memory) noexcept {
  left_task(p, plan, task, memory).block();
}

// ---- the right product ---------------------------------------------------------------------------------------------

struct right_plan {
  static constexpr index_t tokens = 64;  // of k, v and q at a time

  index_t members;  // value heads in a task: neighbours, whose rows share pages of memory and perhaps their keys
  index_t columns;  // of S in a task
  index_t blocks;
  index_t stride;  // of v, o and S

  template <class Acc>
  static right_plan of(const product_problem<Acc>& p) noexcept {
    constexpr index_t narrow = 2 * simd::width<Acc>;
    const index_t states = p.sequences() * p.heads;
    right_plan plan{};
    plan.members = states >= 32 && p.heads % 4 == 0 ? 4 : states >= 8 && p.heads % 2 == 0 ? 2 : 1;
    plan.blocks = p.split && states < 4 && p.value_dim > narrow ? 2 : 1;
    plan.columns = plan.blocks == 2 ? round_up((p.value_dim + 1) / 2, narrow) : p.value_dim;
    plan.stride = linalg::padded_stride<Acc>(plan.columns);
    return plan;
  }
};

/// S = S₀ + Kᵀ V of one sequence and a few value heads, a block of columns; then O = Q S for every head that reads
/// them.
template <class Acc, class Arch>
class right_task {
 public:
  using problem = product_problem<Acc>;

  static std::size_t scratch(const problem& p) noexcept {
    arena memory;
    carve(p, right_plan::of(p), memory);
    return memory.used();
  }

  /// All tasks of a call. The context has room for every worker.
  static void run(const problem& p, context& ctx) noexcept {
    const right_plan plan = right_plan::of(p);
    run_tasks(ctx, p.sequences() * (p.heads / plan.members) * plan.blocks, scratch(p),
              [&](index_t task, arena memory) noexcept { run(p, plan, task, memory); });
  }

 private:
  using panel = linalg::panel<Acc>;
  using panel_const = linalg::panel<const Acc>;

  struct panels {
    Acc *rows, *values, *states, *z, *start, *z_start, *denominator, *room;
  };
  static panels carve(const problem& p, const right_plan& plan, arena& memory) noexcept {
    const index_t K = linalg::padded_stride<Acc>(p.key_dim);
    const bool starts = p.states.load != nullptr;
    panels r{};
    r.rows = memory.take<Acc>(right_plan::tokens * K);
    r.values = memory.take<Acc>(right_plan::tokens * plan.stride);
    r.states = memory.take<Acc>(plan.members * p.key_dim * plan.stride);
    r.z = memory.take<Acc>(plan.members * K);
    r.start = memory.take<Acc>(starts ? p.key_dim * plan.stride : 0);
    r.z_start = memory.take<Acc>(starts ? K : 0);
    r.denominator = memory.take<Acc>(right_plan::tokens);
    r.room = memory.take<Acc>(right_plan::tokens * padded<Acc>(p.input_dim));
    return r;
  }

  OGIVE_NOINLINE static void run(const problem& p, const right_plan& plan, index_t task, arena memory) noexcept;

  right_task(const problem& p, const right_plan& plan, index_t task, arena& memory) noexcept
      : p_(p), plan_(plan), m_(carve(p, plan, memory)), k_stride_(linalg::padded_stride<Acc>(p.key_dim)) {
    const index_t groups = p.heads / plan.members;
    column_ = task % plan.blocks * plan.columns;
    columns_ = std::min(plan.columns, p.value_dim - column_);
    first_head_ = task / plan.blocks % groups * plan.members;
    index_ = task / (plan.blocks * groups);
    sequence_ = product_sequence::of(p, index_);
  }

  panel state(index_t member) const noexcept { return {m_.states + member * p_.key_dim * plan_.stride, plan_.stride}; }
  /// Columns of k and q, and of v and o, whole vectors.
  index_t keys() const noexcept { return padded<Acc>(p_.key_dim); }
  index_t values() const noexcept { return padded<Acc>(columns_); }
  Acc* z(index_t member) const noexcept { return m_.z + member * k_stride_; }

  void write() const noexcept {
    zero_rows(m_.z, k_stride_, plan_.members, keys());
    if (sequence_.live <= 0) {
      zero_rows(m_.states, plan_.stride, plan_.members * p_.key_dim, values());
    }
    const bool turns = right_plan::tokens * (p_.key_dim + columns_) <= p_.key_dim * columns_;
    for (index_t j = 0; j < sequence_.live; j += right_plan::tokens) {
      const index_t count = std::min(right_plan::tokens, sequence_.live - j);
      for (index_t m = 0; m < plan_.members; ++m) {
        const index_t h = first_head_ + m;
        if (m == 0 || p_.key_head(h) != p_.key_head(h - 1)) {
          p_.hooks.load_k(p_.hooks.op, sequence_.keys_at(j, count, p_.key_head(h)), m_.rows, k_stride_, m_.room);
        }
        p_.hooks.load_v(p_.hooks.op, sequence_.keys_at(j, count, h), column_, columns_, m_.values, plan_.stride);
        const bool turn = m + 1 < plan_.members;
        const index_t next = turn ? h + 1 : first_head_;
        const index_t from = turn ? j : j + count;
        rows_ahead ahead[] = {
            p_.hooks.k_rows(p_.hooks.op, sequence_.keys_at(from, right_plan::tokens, p_.key_head(next))),
            p_.hooks.v_rows(p_.hooks.op, sequence_.keys_at(from, right_plan::tokens, next), column_, columns_)};
        const auto product = [&](auto finish) {
          linalg::gemm_atb<Arch>(p_.key_dim, values(), count, {m_.rows, k_stride_}, {m_.values, plan_.stride}, state(m),
                                 asking_for<decltype(finish)>{finish, ahead, turns});
        };
        if (j == 0) {
          product(linalg::overwrite{});
        } else {
          product(linalg::add{});
        }
        add_rows<Acc, Arch>(count, keys(), m_.rows, k_stride_, z(m));
      }
    }
    for (index_t m = 0; m < plan_.members; ++m) exchange(m);
  }

  /// The state given before is added, the state wanted after is handed over.
  void exchange(index_t m) const noexcept {
    const index_t h = first_head_ + m;
    if (p_.states.load != nullptr &&
        p_.states.load(p_.states.state, index_, h, column_, columns_, m_.start, plan_.stride, m_.z_start)) {
      for (index_t i = 0; i < p_.key_dim; ++i) {
        add_rows<Acc, Arch>(1, values(), m_.start + i * plan_.stride, 0, state(m).row(i));
      }
      add_rows<Acc, Arch>(1, keys(), m_.z_start, 0, z(m));
    }
    if (p_.states.save != nullptr) {
      p_.states.save(p_.states.state, index_, h, column_, columns_, state(m).data, plan_.stride, z(m));
    }
  }

  void read() const noexcept {
    const index_t readers = plan_.members * p_.readers();
    const auto output = [&](index_t r) { return p_.reader(first_head_ + r / p_.readers(), r % p_.readers()); };
    panel_const q{};
    for (index_t i = 0; i < sequence_.queries; i += right_plan::tokens) {
      const index_t count = std::min(right_plan::tokens, sequence_.queries - i);
      for (index_t r = 0; r < readers; ++r) {
        const index_t m = r / p_.readers();
        const index_t head = p_.query_head(output(r));
        if (r == 0 || head != p_.query_head(output(r - 1))) q = queries(sequence_.queries_at(i, count, head));
        const bool turn = r + 1 < readers;
        const index_t next = p_.query_head(output(turn ? r + 1 : 0));
        const index_t from = turn ? i : i + count;
        const tokens rows = sequence_.queries_at(i, count, output(r));
        rows_ahead ahead[] = {
            p_.hooks.q_rows(p_.hooks.op,
                            sequence_.queries_at(from, std::min(right_plan::tokens, sequence_.queries - from), next)),
            p_.hooks.o_rows(p_.hooks.op, rows, column_, columns_)};
        if (p_.normalise) dot_rows<Acc, Arch>(count, keys(), q.data, q.stride, z(m), p_.bias, m_.denominator);
        const rows_written<Acc> o = p_.hooks.o_as_is(p_.hooks.op, rows, column_, columns_, m_.denominator);
        if (o.rows.data != nullptr) {
          linalg::gemm_ab<Arch>(count, columns_, p_.key_dim, q, state(m), o.rows,
                                asking_for<scale_rows_written<Acc>>{{m_.denominator, o.past}, ahead});
        } else {
          linalg::gemm_ab<Arch>(count, values(), p_.key_dim, q, state(m), panel{m_.values, plan_.stride},
                                asking_for<linalg::overwrite>{{}, ahead});
          p_.hooks.store(p_.hooks.op, rows, column_, columns_, m_.values, plan_.stride,
                         p_.normalise ? m_.denominator : nullptr);
        }
      }
    }
  }

  panel_const queries(const tokens& at) const noexcept {
    const panel_const there = p_.hooks.q_as_is(p_.hooks.op, at);
    if (there.data != nullptr) return there;
    p_.hooks.load_q(p_.hooks.op, at, m_.rows, k_stride_, m_.room);
    return {m_.rows, k_stride_};
  }

  const problem& p_;
  right_plan plan_;
  panels m_;
  index_t k_stride_;
  product_sequence sequence_{};
  index_t index_ = 0;
  index_t first_head_ = 0;
  index_t column_ = 0;
  index_t columns_ = 0;
};

// Not inline, so that an extern template spares a unit the bodies.
template <class Acc, class Arch>
void right_task<Acc, Arch>::run(const problem& p, const right_plan& plan, index_t task, arena memory) noexcept {
  const right_task mine(p, plan, task, memory);
  mine.write();
  if (p.outputs) mine.read();
}

// ---- the entries -------------------------------------------------------------------------------------------------

/// Bytes of scratch one worker needs.
template <class Acc>
std::size_t left_product_bytes(const product_problem<Acc>& p) noexcept {
  return left_task<Acc, simd::default_arch, plain_weights<Acc>>::scratch(p);
}

/// O = (M ∘ φ(Q) φ(K)ᵀ) V, plus φ(Q) S₀ where a state is given. The context has room for every worker, as below.
template <class Acc>
void left_product(const product_problem<Acc>& p, context& ctx) noexcept {
  left_task<Acc, simd::default_arch, plain_weights<Acc>>::run(p, ctx);
}

template <class Acc>
std::size_t right_product_bytes(const product_problem<Acc>& p) noexcept {
  return right_task<Acc, simd::default_arch>::scratch(p);
}

/// S = S₀ + φ(K)ᵀ V and O = φ(Q) S.
template <class Acc>
void right_product(const product_problem<Acc>& p, context& ctx) noexcept {
  right_task<Acc, simd::default_arch>::run(p, ctx);
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

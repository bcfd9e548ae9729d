// L5: the state token by token. A block of columns stays in registers and the first-level cache while time runs, so a
// state is read and written once for several tokens.
#pragma once

#include <ogive/engine/matrix_fold.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// One head's tokens and its state. `from` is read by the first pass over the state and may be `to`; rows of the
/// state are `from_stride` and `to_stride` apart, rows of panels `*_stride`.
template <class Acc>
struct sweep {
  index_t tokens = 0;
  index_t key_dim = 0;
  index_t value_dim = 0;
  const Acc* q = nullptr;
  index_t q_stride = 0;
  const Acc* k = nullptr;
  index_t k_stride = 0;
  const Acc* v = nullptr;
  Acc* o = nullptr;
  index_t v_stride = 0;
  const Acc* decay = nullptr;  // exp(g), one per token, or a row of K in panels' rows
  const Acc* from = nullptr;
  index_t from_stride = 0;
  Acc* to = nullptr;
  index_t to_stride = 0;
  const Acc* removal = nullptr;  // ρ_t of k's shape: S_{t-1}ᵀ ρ_t is what a write replaces (D_t k_t), or w_t (a_t)
  const Acc* b = nullptr;        // of k's shape
  const Acc* beta = nullptr;     // one per token, or, with a stride, rows of V
  index_t beta_stride = 0;
  const Acc* u = nullptr;      // what folds make the bonus of
  const Acc* bonus = nullptr;  // q_t·(u ⊙ k_t), one per token
  folds<Acc> folded;           // no weights: token by token; else tokens are whole folds
  lines_ahead* ahead = nullptr;
  index_t pace = 1;  // rows of the state from one line that is asked for to the next
};

/// A block of columns whose first token's removal is summed while another block is written.
template <class Acc>
struct recall_ahead {
  const Acc* from = nullptr;
  const Acc* removal = nullptr;
};

/// What a sweep that recalls leaves for the one after it, of a block of columns.
template <class Acc>
struct recalls {
  Acc* of_block = nullptr;  // room
  bool known = false;
};

/// Asks for the lines of a sweep at its pace: requests in a burst fill the line buffers, and the sweep waits.
struct even_pace {
  lines_ahead* lines;
  index_t pace;
  index_t left = pace;
  OGIVE_INLINE void operator()(index_t rows = 1) noexcept {
    for (left -= rows; left <= 0; left += pace) lines->ask();
  }
};

/// Vectors of columns that go together where there are several tokens.
template <write Write>
inline constexpr index_t swept_vectors = Write == write::additive ? 2 : 4;

/// The pace at which `lines` are asked for by the time that a sweep ends.
template <class Arch, write Write, class Acc>
index_t pace_of(const sweep<Acc>& w, index_t lines) noexcept {
  const index_t columns = swept_vectors<Write> * simd::width<Acc, Arch>;
  const index_t passes = (Write == write::additive ? w.tokens / 4 : w.tokens) * ((w.value_dim + columns - 1) / columns);
  return std::max<index_t>(1, passes * w.key_dim / std::max<index_t>(lines, 1));
}

/// p + offset where the policies have this operand.
template <bool Used, class Acc>
OGIVE_INLINE const Acc* where_used(const Acc* p, index_t offset) noexcept {
  return Used ? p + offset : nullptr;
}

/// Columns of one token that a write needs besides k: v, or u = β ⊙ (v − r), and w = r.
template <class Acc, class Arch, write Write>
OGIVE_INLINE simd::batch<Acc, Arch> written(const sweep<Acc>& w, index_t t, index_t column,
                                            const simd::batch<Acc, Arch>& recalled) noexcept {
  const auto v = simd::load<Arch>(w.v + t * w.v_stride + column);
  if constexpr (Write == write::delta) {
    const simd::batch<Acc, Arch> beta =
        w.beta_stride == 0 ? simd::batch<Acc, Arch>(w.beta[t]) : simd::load<Arch>(w.beta + t * w.beta_stride + column);
    return beta * (v - recalled);
  } else {
    return v;
  }
}

/// s ← D s + k u (+ b w), one row of the state.
template <decay Decay, write Write, class V>
OGIVE_INLINE V next_state(const V& s, const V& a, const V& k, const V& u, const V& b, const V& w) noexcept {
  V next = s;
  if constexpr (Decay != decay::none) next = next * a;
  if constexpr (Write == write::low_rank) next = simd::fma(b, w, next);
  return simd::fma(k, u, next);
}

/// A block of `Vectors` vectors of columns of a K-first state; with Tail the last one is cut off.
template <class Acc, class Arch, int Vectors, bool Tail>
struct state_columns {
  using vector = simd::batch<Acc, Arch>;
  static constexpr index_t W = simd::width<Acc, Arch>;
  const simd::lanes<Acc, Arch>& tail;

  OGIVE_INLINE void load(const Acc* row, vector* s) const noexcept {
    unroll<Vectors>([&](auto j) __attribute__((always_inline)) {
      if constexpr (Tail) {
        s[j] = simd::load(row, tail);
      } else {
        s[j] = simd::load<Arch>(row + j * W);
      }
    });
  }
  OGIVE_INLINE void store(Acc* row, const vector* s) const noexcept {
    unroll<Vectors>([&](auto j) __attribute__((always_inline)) {
      if constexpr (Tail) {
        simd::store(row, s[j], tail);
      } else {
        simd::store(row + j * W, s[j]);
      }
    });
  }
};

/// `Tokens` tokens from `t` on over `Vectors` vectors of columns from `column` on, all K rows. Every o sums over
/// k = 0 … K−1 in order, whatever the block.
template <class Acc, class Arch, decay Decay, read Read, int Vectors, int Tokens, bool Tail>
OGIVE_INLINE void sweep_block(const sweep<Acc>& w, even_pace& ask, index_t t, index_t column, const Acc* from,
                              index_t from_stride, const simd::lanes<Acc, Arch>& tail) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  const state_columns<Acc, Arch, Vectors, Tail> columns{tail};
  vector v[Tokens * Vectors];
  vector o[Tokens * Vectors];
  vector a[Tokens];
  const Acc* q = w.q + t * w.q_stride;
  const Acc* k = w.k + t * w.k_stride;
  const Acc* per_key = where_used<Decay == decay::per_key>(w.decay, t * w.k_stride);
  unroll<Tokens * Vectors>([&](auto i) __attribute__((always_inline)) {
    v[i] = simd::load<Arch>(w.v + (t + i / Vectors) * w.v_stride + column + (i % Vectors) * W);
    if constexpr (Read == read::before) {
      o[i] = vector(w.bonus[t + i / Vectors]) * v[i];
    } else {
      o[i] = vector(Acc(0));
    }
  });
  if constexpr (Decay == decay::scalar) {
    unroll<Tokens>([&](auto i) __attribute__((always_inline)) { a[i] = vector(w.decay[t + i]); });
  }
  const Acc* in = from + column;
  Acc* out = w.to + column;
  for (index_t row = 0; row < w.key_dim; ++row) {
    vector s[Vectors];
    if (Tokens > 1) ask();
    columns.load(in, s);
    unroll<Tokens>([&](auto i) __attribute__((always_inline)) {
      const vector k_i(k[i * w.k_stride + row]);
      const vector q_i(q[i * w.q_stride + row]);
      if constexpr (Decay == decay::per_key) a[i] = vector(per_key[i * w.k_stride + row]);
      unroll<Vectors>([&](auto j) __attribute__((always_inline)) {
        vector& sum = o[i * Vectors + j];
        if constexpr (Read == read::before) sum = simd::fma(q_i, s[j], sum);
        s[j] = next_state<Decay, write::additive>(s[j], a[i], k_i, v[i * Vectors + j], s[j], s[j]);
        if constexpr (Read == read::after) sum = simd::fma(q_i, s[j], sum);
      });
    });
    columns.store(out, s);
    in += from_stride;
    out += w.to_stride;
  }
  if constexpr (Read != read::none) {
    unroll<Tokens * Vectors>([&](auto i) __attribute__((always_inline)) {
      simd::store(w.o + (t + i / Vectors) * w.v_stride + column + (i % Vectors) * W, o[i]);
    });
  }
}

/// A block of folded tokens over the same columns. (As a function of its own it was no faster.)
template <class Acc, class Arch, decay Decay, read Read, int Vectors, bool Tail>
OGIVE_INLINE void sweep_folded(const sweep<Acc>& w, even_pace& ask, index_t t, index_t column, const Acc* from,
                               index_t from_stride, const simd::lanes<Acc, Arch>& tail) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  constexpr int T = folded_tokens;
  constexpr bool per_key = Decay == decay::per_key;
  const state_columns<Acc, Arch, Vectors, Tail> columns{tail};
  const Acc* q = (per_key ? w.folded.q : w.q) + t * w.q_stride;
  const Acc* k = (per_key ? w.folded.k : w.k) + t * w.k_stride;
  const Acc* whole = where_used<per_key>(w.folded.whole, t / T * w.k_stride);
  const Acc* decays = where_used<!per_key>(w.decay, t);
  const Acc* values = w.v + t * w.v_stride + column;
  vector v[T * Vectors];
  vector o[T * Vectors];
  Acc to_end = Acc(1);
  unroll<T>([&](auto later) __attribute__((always_inline)) {
    constexpr int i = T - 1 - later;
    unroll<Vectors>([&](auto j) __attribute__((always_inline)) {
      v[i * Vectors + j] = simd::load<Arch>(values + i * w.v_stride + j * W);
      if constexpr (!per_key) v[i * Vectors + j] = v[i * Vectors + j] * vector(to_end);
      o[i * Vectors + j] = vector(Acc(0));
    });
    if constexpr (!per_key) to_end *= decays[i];
  });
  vector a(to_end);
  const Acc* in = from + column;
  Acc* out = w.to + column;
  const auto pass = [&](index_t row, auto together) __attribute__((always_inline)) {
    constexpr int R = together;
    vector s[R * Vectors];
    ask(R);
    unroll<R>([&](auto r) __attribute__((always_inline)) { columns.load(in + r * from_stride, s + r * Vectors); });
    if constexpr (Read != read::none) {
      unroll<T>([&](auto i) __attribute__((always_inline)) {
        unroll<R>([&](auto r) __attribute__((always_inline)) {
          const vector q_i(q[i * w.q_stride + row + r]);
          unroll<Vectors>([&](auto j) __attribute__((always_inline)) {
            o[i * Vectors + j] = simd::fma(q_i, s[r * Vectors + j], o[i * Vectors + j]);
          });
        });
      });
    }
    vector written[R * Vectors];  // summed before the state is added, so that a long past does not round each of them
    unroll<T>([&](auto i) __attribute__((always_inline)) {
      unroll<R>([&](auto r) __attribute__((always_inline)) {
        const vector k_i(k[i * w.k_stride + row + r]);
        unroll<Vectors>([&](auto j) __attribute__((always_inline)) {
          vector& sum = written[r * Vectors + j];
          sum = i == 0 ? k_i * v[j] : simd::fma(k_i, v[i * Vectors + j], sum);
        });
      });
    });
    unroll<R>([&](auto r) __attribute__((always_inline)) {
      if constexpr (per_key) a = vector(whole[row + r]);
      unroll<Vectors>([&](auto j) __attribute__((always_inline)) {
        s[r * Vectors + j] = simd::fma(a, s[r * Vectors + j], written[r * Vectors + j]);
      });
    });
    unroll<R>([&](auto r) __attribute__((always_inline)) { columns.store(out + r * w.to_stride, s + r * Vectors); });
    in += R * from_stride;
    out += R * w.to_stride;
  };
  index_t row = 0;
  for (; row + 2 <= w.key_dim; row += 2) pass(row, std::integral_constant<int, 2>{});
  if (row < w.key_dim) pass(row, std::integral_constant<int, 1>{});
  if constexpr (Read == read::none) return;
  const Acc* weights = w.folded.weights + t / T * fold_weights;
  Acc from_start = Acc(1);
  unroll<T>([&](auto i) __attribute__((always_inline)) {
    if constexpr (!per_key && Read == read::after) from_start *= decays[i];
    unroll<Vectors>([&](auto j) __attribute__((always_inline)) {
      vector& sum = o[i * Vectors + j];
      if constexpr (!per_key) sum = sum * vector(from_start);
      unroll<i + 1>([&](auto earlier) __attribute__((always_inline)) {
        sum = simd::fma(vector(weights[i * T + earlier]), simd::load<Arch>(values + earlier * w.v_stride + j * W), sum);
      });
      simd::store(w.o + (t + i) * w.v_stride + column + j * W, sum);
    });
    if constexpr (!per_key && Read == read::before) from_start *= decays[i];
  });
}

/// Additive writes, four tokens a pass.
template <class Acc, class Arch, decay Decay, read Read, int Vectors, bool Tail>
OGIVE_INLINE void sweep_columns(const sweep<Acc>& w, even_pace& ask, index_t column,
                                const simd::lanes<Acc, Arch>& tail) noexcept {
  const Acc* from = w.from;
  index_t from_stride = w.from_stride;
  index_t t = 0;
  const auto advance = [&](auto together) __attribute__((always_inline)) {
    t += together;
    from = w.to;
    from_stride = w.to_stride;
  };
  if constexpr (Decay != decay::none) {
    while (w.folded.weights != nullptr && t < w.tokens) {
      sweep_folded<Acc, Arch, Decay, Read, Vectors, Tail>(w, ask, t, column, from, from_stride, tail);
      advance(std::integral_constant<int, folded_tokens>{});
    }
  }
  while (t + 4 <= w.tokens) {
    sweep_block<Acc, Arch, Decay, Read, Vectors, 4, Tail>(w, ask, t, column, from, from_stride, tail);
    advance(std::integral_constant<int, 4>{});
  }
  while (t < w.tokens) {
    sweep_block<Acc, Arch, Decay, Read, Vectors, 1, Tail>(w, ask, t, column, from, from_stride, tail);
    advance(std::integral_constant<int, 1>{});
  }
}

/// What a pass recalls while it writes.
enum class recalling { nothing, next_token, next_block };

/// Tokens [t, end) over a block; one, if it does not recall for the next token. `recalled` is what the first of them
/// recalls, then what has been recalled. (A function of its own: inlined into the loop over blocks, GCC kept addresses
/// of the loop over rows on the stack, and the way there and back took longer than the products.)
template <class Acc, class Arch, decay Decay, write Write, read Read, recalling Recalling, int Vectors, bool Tail>
OGIVE_NOINLINE void pass_removal(const sweep<Acc>& w, even_pace& pace, index_t t, index_t end, index_t column,
                                 const Acc* from, index_t from_stride, const recall_ahead<Acc>& soon,
                                 simd::batch<Acc, Arch>* recalled, const simd::lanes<Acc, Arch>& tail) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  constexpr bool of_token = Recalling == recalling::next_token, of_block = Recalling == recalling::next_block;
  const state_columns<Acc, Arch, Vectors, Tail> columns{tail};
  even_pace ask = pace;
  vector next[Vectors];
  unroll<Vectors>([&](auto j) __attribute__((always_inline)) { next[j] = recalled[j]; });
  const index_t rows = w.key_dim, to_stride = w.to_stride, ahead_stride = w.from_stride;
  do {
    vector u[Vectors], r[Vectors], o[Vectors];
    unroll<Vectors>([&](auto j) __attribute__((always_inline)) {
      r[j] = next[j];
      u[j] = written<Acc, Arch, Write>(w, t, column + j * W, r[j]);
      next[j] = o[j] = vector(Acc(0));
      if constexpr (Read == read::before) o[j] = vector(w.bonus[t]) * u[j];
    });
    const index_t keys = t * w.k_stride;
    const Acc* q = where_used<Read != read::none>(w.q, t * w.q_stride);
    const Acc* k = w.k + keys;
    const Acc* b = where_used<Write == write::low_rank>(w.b, keys);
    const Acc* per_key = where_used<Decay == decay::per_key>(w.decay, keys);
    const Acc* removal = of_block ? soon.removal : where_used<of_token>(w.removal, keys + w.k_stride);
    vector a(Decay == decay::scalar ? w.decay[t] : Acc(1));
    const Acc* in = from;
    const Acc* ahead = soon.from;
    Acc* out = w.to + column;
    for (index_t row = 0; row < rows; ++row) {
      vector s[Vectors];
      if (of_token) ask();
      columns.load(in, s);
      const vector k_at(k[row]);
      vector q_at = k_at, b_at = k_at, next_at = k_at;
      if constexpr (Read != read::none) q_at = vector(q[row]);
      if constexpr (Decay == decay::per_key) a = vector(per_key[row]);
      if constexpr (Write == write::low_rank) b_at = vector(b[row]);
      if constexpr (Recalling != recalling::nothing) next_at = vector(removal[row]);
      unroll<Vectors>([&](auto j) __attribute__((always_inline)) {
        if constexpr (Read == read::before) o[j] = simd::fma(q_at, s[j], o[j]);
        s[j] = next_state<Decay, Write>(s[j], a, k_at, u[j], b_at, r[j]);
        if constexpr (Read == read::after) o[j] = simd::fma(q_at, s[j], o[j]);
        if constexpr (of_token) next[j] = simd::fma(next_at, s[j], next[j]);
      });
      columns.store(out, s);
      if constexpr (of_block) {
        columns.load(ahead, s);
        unroll<Vectors>([&](auto j) __attribute__((always_inline)) { next[j] = simd::fma(next_at, s[j], next[j]); });
        ahead += ahead_stride;
      }
      in += from_stride;
      out += to_stride;
    }
    if constexpr (Read != read::none) {
      unroll<Vectors>([&](auto j)
                          __attribute__((always_inline)) { simd::store(w.o + t * w.v_stride + column + j * W, o[j]); });
    }
    from = w.to + column;
    from_stride = to_stride;
  } while (of_token && ++t < end);
  unroll<Vectors>([&](auto j) __attribute__((always_inline)) { recalled[j] = next[j]; });
  if (of_token) pace = ask;
}

/// Writes with a removal, a token a pass: what the next token recalls is summed while this one writes, so that a state
/// is read once for both; the last pass does so for the block that is swept next, `soon`, whose way to the first-level
/// cache is hidden behind its products. `recalled` is this block's, if `known`, and then the next one's. (Sums of their
/// own for even and odd rows did not help.)
template <class Acc, class Arch, decay Decay, write Write, read Read, int Vectors, bool Tail>
OGIVE_INLINE void sweep_removal(const sweep<Acc>& w, even_pace& ask, index_t column, const simd::lanes<Acc, Arch>& tail,
                                simd::batch<Acc, Arch>* recalled, bool known, const recall_ahead<Acc>& soon) noexcept {
  using vector = simd::batch<Acc, Arch>;
  const Acc* from = w.from + column;
  index_t from_stride = w.from_stride;
  if (!known) {
    const state_columns<Acc, Arch, Vectors, Tail> columns{tail};
    unroll<Vectors>([&](auto j) __attribute__((always_inline)) { recalled[j] = vector(Acc(0)); });
    const Acc* in = from;
    for (index_t row = 0; row < w.key_dim; ++row, in += from_stride) {
      vector s[Vectors];
      columns.load(in, s);
      const vector r(w.removal[row]);
      unroll<Vectors>([&](auto j) __attribute__((always_inline)) { recalled[j] = simd::fma(r, s[j], recalled[j]); });
    }
  }
  const auto pass = [&](index_t t, index_t end, auto recalls) __attribute__((always_inline)) {
    pass_removal<Acc, Arch, Decay, Write, Read, recalls(), Vectors, Tail>(w, ask, t, end, column, from, from_stride,
                                                                          soon, recalled, tail);
    from = w.to + column;
    from_stride = w.to_stride;
  };
  const index_t last = w.tokens - 1;
  if (last > 0) pass(0, last, std::integral_constant<recalling, recalling::next_token>{});
  if (soon.from != nullptr) {
    pass(last, w.tokens, std::integral_constant<recalling, recalling::next_block>{});
  } else {
    pass(last, w.tokens, std::integral_constant<recalling, recalling::nothing>{});
  }
}

/// Whole blocks of columns under a removal, each of which recalls for the one after it; the last one for the state
/// `after` that is swept next. Returns the column after them.
template <class Acc, class Arch, decay Decay, write Write, read Read, int Vectors>
OGIVE_INLINE index_t sweep_removals(const sweep<Acc>& w, even_pace& ask, const simd::lanes<Acc, Arch>& all,
                                    const recalls<Acc>& before, const recall_ahead<Acc>& after) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>, block = Vectors * W;
  vector recalled[Vectors];
  bool known = before.known;
  if (known) {
    unroll<Vectors>([&](auto j)
                        __attribute__((always_inline)) { recalled[j] = simd::load<Arch>(before.of_block + j * W); });
  }
  index_t column = 0;
  while (column + block <= w.value_dim) {
    recall_ahead<Acc> soon;
    if (column + 2 * block <= w.value_dim) {
      soon = {w.from + column + block, w.removal};
    } else if (column + block == w.value_dim) {
      soon = after;
    }
    sweep_removal<Acc, Arch, Decay, Write, Read, Vectors, false>(w, ask, column, all, recalled, known, soon);
    known = soon.from != nullptr;
    column += block;
  }
  if (after.from != nullptr) {
    unroll<Vectors>([&](auto j) __attribute__((always_inline)) { simd::store(before.of_block + j * W, recalled[j]); });
  }
  return column;
}

/// Vectors of columns of a block under a removal: beside the next one it stays in the first-level cache (K = V = 128:
/// four took 15 to 40 % longer; to ask for rows of the next block 2 to 15 %).
template <class Acc, class Arch>
int removal_vectors(const sweep<Acc>& w) noexcept {
  constexpr index_t W = simd::width<Acc, Arch>, cached = index_t{16384} / static_cast<index_t>(sizeof(Acc));
  return w.value_dim % (4 * W) == 0 && (w.tokens > 1 || 4 * W * w.key_dim <= cached) ? 4 : 2;
}
/// Whether a sweep recalls for the one after it.
template <class Acc, class Arch>
bool recalls_ahead(const sweep<Acc>& w) noexcept {
  return w.value_dim > 0 && w.value_dim % (removal_vectors<Acc, Arch>(w) * simd::width<Acc, Arch>) == 0;
}

/// `Vectors` vectors of columns, all tokens.
template <class Acc, class Arch, decay Decay, write Write, read Read, int Vectors, bool Tail>
OGIVE_INLINE void sweep_tokens(const sweep<Acc>& w, even_pace& ask, index_t column,
                               const simd::lanes<Acc, Arch>& tail) noexcept {
  if constexpr (Write == write::additive) {
    sweep_columns<Acc, Arch, Decay, Read, Vectors, Tail>(w, ask, column, tail);
  } else {
    simd::batch<Acc, Arch> recalled[Vectors];
    sweep_removal<Acc, Arch, Decay, Write, Read, Vectors, Tail>(w, ask, column, tail, recalled, false, {});
  }
}

/// K-first: a row of the state is one k, its columns are contiguous. Additive writes take two vectors of columns for
/// four tokens, few tokens four vectors of columns; a removal four, or two where a lone token's block of a state with
/// many rows would leave no room in the first-level cache for the next. A removal takes what the sweep before it has
/// recalled, and recalls for the one `after` it, whose rows are as far apart.
template <class Acc, class Arch, decay Decay, write Write, read Read>
OGIVE_NOINLINE void sweep_k_first(const sweep<Acc>& given, recalls<Acc> before = {},
                                  recall_ahead<Acc> after = {}) noexcept {
  const sweep<Acc> w = given;  // its own, so that what is asked for on the way cannot be thought to change it
  even_pace ask{w.ahead, w.pace};
  constexpr index_t W = simd::width<Acc, Arch>;
  const simd::lanes<Acc, Arch> all(W);
  index_t column = 0;
  if (w.tokens == 0) return;
  if constexpr (Write != write::additive) {
    if (removal_vectors<Acc, Arch>(w) == 4) {
      column = sweep_removals<Acc, Arch, Decay, Write, Read, 4>(w, ask, all, before, after);
    } else {
      column = sweep_removals<Acc, Arch, Decay, Write, Read, 2>(w, ask, all, before, after);
    }
  } else if (w.tokens < 4) {
    for (; column + 4 * W <= w.value_dim; column += 4 * W) {
      sweep_tokens<Acc, Arch, Decay, Write, Read, 4, false>(w, ask, column, all);
    }
  }
  if constexpr (Write == write::additive) {
    for (; column + 2 * W <= w.value_dim; column += 2 * W) {
      sweep_tokens<Acc, Arch, Decay, Write, Read, 2, false>(w, ask, column, all);
    }
  }
  for (; column < w.value_dim; column += W) {
    const simd::lanes<Acc, Arch> some(w.value_dim - column);
    sweep_tokens<Acc, Arch, Decay, Write, Read, 1, true>(w, ask, column, some);
  }
}

/// `Rows` values of one token against the contiguous keys of their state rows. The sums over k run in lanes. Few rows
/// at a time, so that memory is walked nearly in order.
template <class Acc, class Arch, decay Decay, write Write, read Read, int Rows>
OGIVE_INLINE void sweep_rows(const sweep<Acc>& w, index_t t, index_t value, const Acc* from,
                             index_t from_stride) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  constexpr int together = Rows % 4 == 0 ? 4 : 1;
  vector sum[Rows];
  const Acc* v = w.v + t * w.v_stride + value;
  const Acc* q = w.q + t * w.q_stride;
  const Acc* k = w.k + t * w.k_stride;
  const Acc* b = where_used<Write == write::low_rank>(w.b, t * w.k_stride);
  const Acc* per_key = where_used<Decay == decay::per_key>(w.decay, t * w.k_stride);
  const Acc* removal = where_used<Write != write::additive>(w.removal, t * w.k_stride);
  const vector a_all(Decay == decay::scalar ? w.decay[t] : Acc(1));
  const index_t whole = w.key_dim / W * W;
  const simd::lanes<Acc, Arch> tail(w.key_dim - whole);
  unroll<Rows / together>([&](auto block) __attribute__((always_inline)) {
    constexpr int first = block * together;
    const Acc* in = from + (value + first) * from_stride;
    Acc* out = w.to + (value + first) * w.to_stride;
    Acc recalled[together] = {};
    Acc u[together];
    if constexpr (Write != write::additive) {
      vector r[together];
      unroll<together>([&](auto i) __attribute__((always_inline)) { r[i] = vector(Acc(0)); });
      for (index_t at = 0; at < whole; at += W) {
        const vector removal_at = simd::load<Arch>(removal + at);
        unroll<together>([&](auto i) __attribute__((always_inline)) {
          r[i] = simd::fma(removal_at, simd::load<Arch>(in + i * from_stride + at), r[i]);
        });
      }
      if (whole < w.key_dim) {
        const vector removal_at = simd::load(removal + whole, tail);
        unroll<together>([&](auto i) __attribute__((always_inline)) {
          r[i] = simd::fma(removal_at, simd::load(in + i * from_stride + whole, tail), r[i]);
        });
      }
      unroll<together>([&](auto i) __attribute__((always_inline)) { recalled[i] = simd::reduce_add(r[i]); });
    }
    unroll<together>([&](auto i) __attribute__((always_inline)) {
      u[i] = v[first + i];
      if constexpr (Write == write::delta) {
        u[i] = w.beta[w.beta_stride == 0 ? t : t * w.beta_stride + value + first + i] * (u[i] - recalled[i]);
      }
      sum[first + i] = vector(Acc(0));
    });
    const auto pass = [&](index_t at, auto load, auto store) __attribute__((always_inline)) {
      const vector k_at = load(k + at);
      const vector q_at = load(q + at);
      vector a = a_all, b_at = k_at;
      if constexpr (Decay == decay::per_key) a = load(per_key + at);
      if constexpr (Write == write::low_rank) b_at = load(b + at);
      unroll<together>([&](auto i) __attribute__((always_inline)) {
        const vector s = load(in + i * from_stride + at);
        const vector next = next_state<Decay, Write>(s, a, k_at, vector(u[i]), b_at, vector(recalled[i]));
        if constexpr (Read != read::none) {
          sum[first + i] = simd::fma(q_at, Read == read::before ? s : next, sum[first + i]);
        }
        store(out + i * w.to_stride + at, next);
      });
    };
    const auto load_all = [](const Acc* p) __attribute__((always_inline)) { return simd::load<Arch>(p); };
    const auto store_all = [](Acc * p, const vector& x) __attribute__((always_inline)) { simd::store(p, x); };
    for (index_t at = 0; at < whole; at += W) pass(at, load_all, store_all);
    if (whole < w.key_dim) {
      pass(
          whole, [&](const Acc* p) __attribute__((always_inline)) { return simd::load(p, tail); },
          [&](Acc * p, const vector& x) __attribute__((always_inline)) { simd::store(p, x, tail); });
    }
  });
  if constexpr (Read == read::none) return;
  Acc* o = w.o + t * w.v_stride + value;
  if constexpr (Rows == W) {
    vector all = simd::reduce_add_all(sum);
    if constexpr (Read == read::before) all = simd::fma(vector(w.bonus[t]), simd::load<Arch>(v), all);
    simd::store(o, all);
  } else {
    unroll<Rows>([&](auto i) __attribute__((always_inline)) {
      o[i] = simd::reduce_add(sum[i]);
      if constexpr (Read == read::before) o[i] += w.bonus[t] * v[i];
    });
  }
}

template <class Acc, class Arch, decay Decay, write Write, read Read, int Rows>
OGIVE_INLINE void sweep_values(const sweep<Acc>& w, index_t value) noexcept {
  const Acc* from = w.from;
  index_t from_stride = w.from_stride;
  for (index_t t = 0; t < w.tokens; ++t) {
    sweep_rows<Acc, Arch, Decay, Write, Read, Rows>(w, t, value, from, from_stride);
    from = w.to;
    from_stride = w.to_stride;
  }
}

/// V-first: a row of the state is one v, its keys are contiguous. Additive writes give the same state to the bit as
/// K-first; the sums over keys, of o and of a removal, run in another order.
template <class Acc, class Arch, decay Decay, write Write, read Read>
OGIVE_NOINLINE void sweep_v_first(const sweep<Acc>& w) noexcept {
  constexpr int W = static_cast<int>(simd::width<Acc, Arch>);
  index_t value = 0;
  for (; value + W <= w.value_dim; value += W) sweep_values<Acc, Arch, Decay, Write, Read, W>(w, value);
  for (; value < w.value_dim; ++value) sweep_values<Acc, Arch, Decay, Write, Read, 1>(w, value);
}

/// z_t = a_t z_{t-1} + k_t and, where it is read, denominator_t = q_t·(z_t + bias), K-vectors in panels' rows.
template <class Acc, class Arch, read Read>
OGIVE_NOINLINE void sweep_normaliser(const sweep<Acc>& w, Acc* z, Acc bias, Acc* denominator) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>;
  for (index_t t = 0; t < w.tokens; ++t) {
    vector sum(Acc(0));
    const vector a(w.decay != nullptr ? w.decay[t] : Acc(1));
    for (index_t at = 0; at < w.key_dim; at += W) {
      const vector z_at = simd::fma(simd::load<Arch>(z + at), a, simd::load<Arch>(w.k + t * w.k_stride + at));
      simd::store(z + at, z_at);
      if constexpr (Read != read::none) {
        sum = simd::fma(simd::load<Arch>(w.q + t * w.q_stride + at), z_at + vector(bias), sum);
      }
    }
    if constexpr (Read != read::none) denominator[t] = simd::reduce_add(sum);
  }
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

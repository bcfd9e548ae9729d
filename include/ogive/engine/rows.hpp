// L5: between tensors of any strides and storage, and panels: dense rows in the accumulation type. One chunk at a
// time, never a whole tensor.
#pragma once

#include <ogive/core/accum.hpp>
#include <ogive/core/view.hpp>
#include <ogive/engine/unroll.hpp>
#include <ogive/simd/batch.hpp>

#include <algorithm>

namespace ogive {
inline namespace OGIVE_ABI {

/// Which rows a hook fills or drains: `count` tokens of batch row `batch` from `token` on, in head `head`. Tokens from
/// `live` on (counted like `count`) are padding: hooks give them zeros and a log decay of 0. `position` is the place of
/// the first token in its own sequence.
struct tokens {
  index_t batch = 0;
  index_t token = 0;
  index_t count = 0;
  index_t live = 0;
  index_t position = 0;
  index_t head = 0;
};

namespace detail {

constexpr index_t round_up(index_t count, index_t step) noexcept { return (count + step - 1) / step * step; }

/// Elements of a panel row that holds `count` of them: whole vectors.
template <class Acc>
constexpr index_t padded(index_t count) noexcept {
  return round_up(count, simd::width<Acc>);
}

/// panel[i][j] = x[i][j] for i < rows, j < columns; 0 for j up to the padded width.
template <class Acc, class T>
OGIVE_NOINLINE void load_rows(const view<const T, 2>& x, Acc* OGIVE_RESTRICT panel, index_t stride) noexcept {
  constexpr index_t W = simd::width<Acc>;
  const index_t columns = x.extent(1);
  for (index_t i = 0; i < x.extent(0); ++i) {
    const T* from = x.data() + i * x.stride(0);
    Acc* to = panel + i * stride;
    if (x.stride(1) == 1) {
      index_t j = 0;
      // Four at a time: of a plain loop compilers make a call of memmove for each row, a tenth of a sweep.
      for (; j + 4 * W <= columns; j += 4 * W) {
        simd::batch<Acc> four[4];
        unroll<4>([&](auto n) __attribute__((always_inline)) {
          four[n] = simd::load_as<Acc, simd::default_arch>(from + j + n * W);
        });
        unroll<4>([&](auto n) __attribute__((always_inline)) { simd::store(to + j + n * W, four[n]); });
      }
      for (; j + W <= columns; j += W) simd::store(to + j, simd::load_as<Acc, simd::default_arch>(from + j));
      if (j < columns) simd::store(to + j, simd::load_as<Acc, simd::default_arch>(from + j, columns - j));
    } else {
      for (index_t j = 0; j < columns; j += W) {
        simd::store(to + j, simd::load_strided<Acc, simd::default_arch>(from + j * x.stride(1), x.stride(1),
                                                                        std::min(W, columns - j)));
      }
    }
  }
}

/// Whether the rows of an output go past the caches: it is larger than the second one, so that no line of it would
/// still be there when it is read, and made of whole lines. A line that is stored in full is then not read first
/// (SSD and retention at 16 MiB of outputs: a third of the traffic less).
template <class Acc, class T>
bool past_caches(const view<T, 4>& o) noexcept {
  constexpr index_t large = index_t{4} << 20, line = 64 / static_cast<index_t>(sizeof(T));
  if constexpr (!std::is_same_v<T, Acc>) return false;
  index_t size = static_cast<index_t>(sizeof(T));
  for (std::size_t axis = 0; axis < 4; ++axis) size *= o.extent(axis);
  return size >= large && o.stride(3) == 1 && o.extent(3) % line == 0 && o.stride(0) % line == 0 &&
         o.stride(1) % line == 0 && o.stride(2) % line == 0 && reinterpret_cast<std::uintptr_t>(o.data()) % 64 == 0;
}

/// x[i][j] = panel[i][j], rounded to the storage type; `past` the caches where past_caches says so.
template <class Acc, class T>
OGIVE_NOINLINE void store_rows(const Acc* OGIVE_RESTRICT panel, index_t stride, const view<T, 2>& x,
                               bool past = false) noexcept {
  constexpr index_t W = simd::width<Acc>;
  const index_t columns = x.extent(1);
  if constexpr (std::is_same_v<T, Acc>) {
    if (past) {
      for (index_t i = 0; i < x.extent(0); ++i) {
        for (index_t j = 0; j < columns; j += W) {
          simd::stream(x.data() + i * x.stride(0) + j, simd::load(panel + i * stride + j));
        }
      }
      return;
    }
  }
  for (index_t i = 0; i < x.extent(0); ++i) {
    const Acc* from = panel + i * stride;
    T* to = x.data() + i * x.stride(0);
    if (x.stride(1) == 1) {
      index_t j = 0;
      for (; j + W <= columns; j += W) simd::store_as(to + j, simd::load(from + j));
      if (j < columns) simd::store_as(to + j, simd::load(from + j), columns - j);
    } else {
      for (index_t j = 0; j < columns; j += W) {
        simd::store_strided(to + j * x.stride(1), x.stride(1), simd::load(from + j), std::min(W, columns - j));
      }
    }
  }
}

/// x ← f(i, j, x) for the vector x at (i, j), rows × columns rounded up to whole vectors.
template <class Acc, class F>
OGIVE_INLINE void change_rows(Acc* panel, index_t stride, index_t rows, index_t columns, const F& f) noexcept {
  for (index_t i = 0; i < rows; ++i) {
    for (index_t j = 0; j < columns; j += simd::width<Acc>) {
      Acc* at = panel + i * stride + j;
      simd::store(at, f(i, j, simd::load(at)));
    }
  }
}

template <class Acc>
void zero_rows(Acc* panel, index_t stride, index_t rows, index_t columns) noexcept {
  for (index_t i = 0; i < rows; ++i) {
    for (index_t j = 0; j < columns; ++j) panel[i * stride + j] = Acc(0);
  }
}

/// The rows of one head of x [B, L, H, ·] that `at` names, as a matrix.
template <class T>
view<T, 2> rows_of(const view<T, 4>& x, const tokens& at, index_t count) noexcept {
  return {x.data() + at.batch * x.stride(0) + at.token * x.stride(1) + at.head * x.stride(2),
          {count, x.extent(3)},
          {x.stride(1), x.stride(3)}};
}

/// Cache lines that will be wanted soon: rows of tokens that are far apart in memory, often a page each, where no
/// hardware prefetcher follows. `ask` requests the next line; called between the products of the chunk before, it hides
/// the wait. A burst of requests does not: it fills the line buffers and stalls.
class rows_ahead {
 public:
  rows_ahead() noexcept = default;
  template <class T>
  rows_ahead(const view<T, 2>& x) noexcept : rows_(x.stride(1) == 1 && x.extent(1) > 0 ? x.extent(0) : 0) {
    constexpr index_t line = 64 / static_cast<index_t>(sizeof(T));
    at_ = row_ = reinterpret_cast<const char*>(x.data());
    step_ = x.stride(0) * static_cast<index_t>(sizeof(T));
    lines_ = left_ = (x.extent(1) + line - 1) / line;
  }

  OGIVE_INLINE bool done() const noexcept { return rows_ <= 0; }
  /// The next row and its lines, which others ask for.
  void take(const char*& row, index_t& lines) noexcept {
    row = row_;
    lines = lines_;
    at_ = row_ += step_;
    --rows_;
  }
  index_t lines() const noexcept { return rows_ * lines_; }
  OGIVE_INLINE void ask() noexcept {
    if (done()) return;
    __builtin_prefetch(at_, 0, 3);
    at_ += 64;
    if (--left_ == 0) {
      left_ = lines_;
      at_ = row_ += step_;
      --rows_;
    }
  }

 private:
  const char* at_ = nullptr;
  const char* row_ = nullptr;
  index_t step_ = 0;
  index_t lines_ = 0;
  index_t left_ = 0;
  index_t rows_ = 0;
};

/// Several of them, one after the other.
class lines_ahead {
 public:
  void add(const rows_ahead& rows) noexcept {
    if (count_ < most) lists_[count_++] = rows;
  }
  index_t lines() const noexcept {
    index_t sum = 0;
    for (int i = 0; i < count_; ++i) sum += lists_[i].lines();
    return sum;
  }
  OGIVE_INLINE void ask() noexcept {
    if (left_ == 0 && !next_row()) return;
    __builtin_prefetch(at_, 0, 3);
    at_ += 64;
    --left_;
  }
  OGIVE_INLINE void ask(index_t count) noexcept {
    while (count > 0 && (left_ > 0 || next_row())) {
      const index_t now = std::min(count, left_);
      for (index_t i = 0; i < now; ++i) __builtin_prefetch(at_ + 64 * i, 0, 3);
      at_ += 64 * now;
      left_ -= now;
      count -= now;
    }
  }

 private:
  static constexpr int most = 16;
  /// Inlined: a call would take the registers of the loop that asks.
  OGIVE_INLINE bool next_row() noexcept {
    while (list_ < count_ && lists_[list_].done()) ++list_;
    if (list_ == count_) return false;
    lists_[list_].take(at_, left_);
    return true;
  }

  const char* at_ = nullptr;
  index_t left_ = 0;  // lines of the row
  rows_ahead lists_[most];
  int count_ = 0;
  int list_ = 0;
};

/// Asks for lines in even parts while something else goes on: requests in a burst fill the line buffers, and the work
/// waits.
struct even_parts {
  lines_ahead* lines = nullptr;
  index_t part = 1;

  static even_parts over(index_t parts, lines_ahead& lines) noexcept {
    return {&lines, 1 + lines.lines() / std::max<index_t>(parts, 1)};
  }
  OGIVE_INLINE void operator()(index_t parts = 1) const noexcept { lines->ask(part * parts); }
};

/// The rows of x that follow the ones that `at` names, as far as there are any.
template <class T>
rows_ahead ahead_of(const view<T, 4>& x, tokens at) noexcept {
  at.token += at.count;
  return rows_of(x, at, std::clamp<index_t>(x.extent(1) - at.token, 0, at.count));
}

/// Rows of an output: what the panel holds of the tokens that `at` names.
template <class Acc, class T>
void store_tokens(const Acc* panel, index_t stride, const view<T, 4>& o, const tokens& at) noexcept {
  store_rows(panel, stride, rows_of(o, at, at.count), past_caches<Acc>(o));
}

/// Rows of a gradient x: what the panel holds of the live tokens, and zeros for padding; or both added to what is
/// there. The panel is not kept.
template <class Acc, class T>
void store_gradient(Acc* panel, index_t stride, const view<T, 4>& x, const tokens& at, bool accumulate,
                    Acc* room) noexcept {
  if (!x.present()) return;
  const index_t columns = padded<Acc>(x.extent(3));
  zero_rows(panel + at.live * stride, stride, at.count - at.live, columns);
  if (accumulate) {
    for (index_t i = 0; i < at.live; ++i) {
      const view<T, 2> row = rows_of(x, tokens{at.batch, at.token + i, 1, 1, 0, at.head}, 1);
      load_rows(view<const T, 2>(row), room, 0);
      change_rows(panel + i * stride, stride, 1, columns,
                  [&](index_t, index_t j, auto d) noexcept { return d + simd::load(room + j); });
    }
  }
  store_rows(static_cast<const Acc*>(panel), stride, rows_of(x, at, accumulate ? at.live : at.count),
             !accumulate && past_caches<Acc>(x));
}

/// x ← x + the sum of the live rows of the panel.
template <class Acc, class T>
void add_sum_of_rows(const Acc* panel, index_t stride, index_t rows, const view<T, 1>& x) noexcept {
  using vector = simd::batch<Acc>;
  constexpr index_t W = simd::width<Acc>;
  for (index_t j = 0; j < x.extent(0); j += W) {
    vector sum(Acc(0));
    for (index_t i = 0; i < rows; ++i) sum = sum + simd::load(panel + i * stride + j);
    const index_t count = std::min(W, x.extent(0) - j);
    const vector before =
        simd::load_strided<Acc, simd::default_arch>(static_cast<const T*>(x.pointer(j)), x.stride(0), count);
    simd::store_strided(x.pointer(j), x.stride(0), before + sum, count);
  }
}

/// The plain load: the live rows of x, zeros for padding.
template <class Acc, class T>
void load_tokens(const view<const T, 4>& x, const tokens& at, Acc* panel, index_t stride) noexcept {
  load_rows(rows_of(x, at, at.live), panel, stride);
  zero_rows(panel + at.live * stride, stride, at.count - at.live, padded<Acc>(x.extent(3)));
}

/// The same, each vector x at (i, j) becoming f(i, j, x) on its way.
template <class Acc, class T, class F>
OGIVE_INLINE void load_tokens(const view<const T, 4>& x, const tokens& at, Acc* panel, index_t stride,
                              const F& f) noexcept {
  constexpr index_t W = simd::width<Acc>;
  const view<const T, 2> rows = rows_of(x, at, at.live);
  const index_t columns = rows.extent(1);
  if (rows.stride(1) != 1 || columns % W != 0) {
    load_tokens(x, at, panel, stride);
    change_rows(panel, stride, at.live, columns, f);
    return;
  }
  for (index_t i = 0; i < at.live; ++i) {
    const T* from = rows.data() + i * rows.stride(0);
    for (index_t j = 0; j < columns; j += W) {
      simd::store(panel + i * stride + j, f(i, j, simd::load_as<Acc, simd::default_arch>(from + j)));
    }
  }
  zero_rows(panel + at.live * stride, stride, at.count - at.live, columns);
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

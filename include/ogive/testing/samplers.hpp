// Valid inputs for operators: drawn values in memory of any layout, and the little that tests need to know of an
// operator's fields to slice, copy and poison its arguments without knowing the operator.
#pragma once

#include <ogive/core/state.hpp>
#include <ogive/testing/compare.hpp>
#include <ogive/testing/rng.hpp>

#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

namespace ogive::testing {

/// How tensors lie in memory. All but `dense` have gaps between rows and start off any boundary.
enum class layout {
  dense,      ///< row-major
  padded,     ///< row-major, room after every row and every block
  tokens_in,  ///< axis 1 innermost: [B, D, L] memory, [B, H, D, L] memory
  turned,     ///< the last two axes exchanged: V-first states
  backwards,  ///< negative strides
  fused,      ///< columns of one buffer [B, L, everything], as a fused projection leaves q, k and v
};
inline constexpr layout all_layouts[] = {layout::dense,  layout::padded,    layout::tokens_in,
                                         layout::turned, layout::backwards, layout::fused};

/// Owns the tensors of a sample. Every byte that is no element is 0xFF and must stay so; elements start as 0xFF too,
/// a NaN in every floating type.
class memory {
 public:
  explicit memory(layout how = layout::dense) noexcept : how_(how) {}

  template <class T, std::size_t Rank>
  view<T, Rank> take(const shape<Rank>& extents) {
    if constexpr (Rank >= 3) {
      if (how_ == layout::fused) return take_columns<T>(extents);
    }
    std::array<std::size_t, Rank> order{};  // outermost first
    for (std::size_t axis = 0; axis < Rank; ++axis) order[axis] = axis;
    if constexpr (Rank >= 2) {
      const auto inner = order.begin() + (Rank > 2 ? 1 : 0);
      if (how_ == layout::tokens_in) std::rotate(inner, inner + 1, order.end());
      if (how_ == layout::turned) std::swap(order[Rank - 1], order[Rank - 2]);
    }
    const index_t gap = how_ == layout::dense ? 0 : 1;
    shape<Rank> strides{};
    index_t step = 1;
    for (std::size_t i = Rank; i-- > 0;) {
      strides[order[i]] = step;
      step *= extents[order[i]] + gap * (i + 1 == Rank ? 3 : 1);
    }
    T* first = allocate<T>(step + gap) + gap;
    if (how_ == layout::backwards) {
      for (std::size_t axis = 0; axis < Rank; ++axis) {
        first += std::max<index_t>(extents[axis] - 1, 0) * strides[axis];
        strides[axis] = -strides[axis];
      }
    }
    return own(view<T, Rank>(first, extents, strides));
  }

  /// The same numbers in this memory, in type To if one is named; an absent view stays absent.
  template <class To = void, class T, std::size_t Rank>
  auto copy(const view<T, Rank>& x) {
    using Kept = std::conditional_t<std::is_void_v<To>, std::remove_const_t<T>, To>;
    if (!x.present()) return view<Kept, Rank>();
    const auto y = take<Kept>(x.extents());
    assign(y, x);
    return y;
  }

  /// The elements of one view into another, in the other's type.
  template <class To, class From, std::size_t Rank>
  static void assign(const view<To, Rank>& to, const view<From, Rank>& from) {
    for (index_t i = 0; i < to.extent(0); ++i) {
      if constexpr (Rank > 1) {
        assign(to[i], from[i]);
      } else if constexpr (requires { from[i].imag(); }) {
        using Real = typename To::value_type;
        to[i] = To(static_cast<Real>(from[i].real()), static_cast<Real>(from[i].imag()));
      } else {
        to[i] = static_cast<To>(static_cast<accum_t<From>>(from[i]));
      }
    }
  }

  /// Whether everything between the elements is as it was.
  bool gaps_untouched() const {
    for (const auto& [bytes, taken] : buffers_) {
      for (std::size_t i = 0; i < taken.size(); ++i) {
        if (!taken[i] && bytes.data()[i] != std::byte{0xff}) return false;
      }
    }
    return true;
  }

 private:
  struct buffer {
    tensor<std::byte, 1> bytes;
    std::vector<bool> taken;
  };

  template <class T>
  T* allocate(index_t elements) {
    const index_t bytes = elements * static_cast<index_t>(sizeof(T));
    fused_rows_ = -1;  // columns are taken from the newest buffer
    buffers_.push_back(
        {tensor<std::byte, 1>({bytes}, std::byte{0xff}), std::vector<bool>(static_cast<std::size_t>(bytes))});
    return reinterpret_cast<T*>(buffers_.back().bytes.data());
  }

  /// Marks the elements of x in the newest buffer.
  template <class T, std::size_t Rank>
  view<T, Rank> own(const view<T, Rank>& x) {
    buffer& last = buffers_.back();
    for_each(x, [&](T& element, index_t) {
      if constexpr (std::is_same_v<T, bool>) element = false;
      const auto at = reinterpret_cast<std::byte*>(&element) - last.bytes.data();
      std::fill_n(last.taken.begin() + at, sizeof(T), true);
    });
    return x;
  }

  template <class T, std::size_t Rank>
  view<T, Rank> take_columns(const shape<Rank>& extents) {
    constexpr index_t width = 1024;
    index_t columns = 1;
    for (std::size_t axis = 2; axis < Rank; ++axis) columns *= extents[axis];
    const index_t rows = extents[0] * extents[1];
    if (rows != fused_rows_ || fused_size_ != sizeof(T) || fused_next_ + columns > width) {
      allocate<T>(rows * std::max(width, columns));
      fused_rows_ = rows;
      fused_size_ = sizeof(T);
      fused_next_ = 0;
    }
    shape<Rank> strides = core::row_major(extents);
    strides[1] = std::max(width, columns);
    strides[0] = extents[1] * strides[1];
    T* first = reinterpret_cast<T*>(buffers_.back().bytes.data()) + fused_next_;
    fused_next_ += columns;
    return own(view<T, Rank>(first, extents, strides));
  }

  layout how_;
  std::vector<buffer> buffers_;
  index_t fused_rows_ = -1;
  std::size_t fused_size_ = 0;
  index_t fused_next_ = 0;
};

/// What tests know of an operator: specialised for each in `testing/samplers/`.
///   draw(random, room, batch, length)   valid arguments of odd sizes, without lengths and offsets
///   tokens, parameters                  pointers to its view fields with and without axes [B, L, …]
///   keys                                those with axes [B, S, …], where keys have a length of their own
///   output(op), slot(op)                the shape of o, and of a state without its slots
///   define<Acc>(op, st, o)              its definition
///   define_masked<Acc>(op, st, o)       its other definition, where there is one
///   absolute(op, room)                  the operator that sums up the magnitudes of the terms of every output
///   roundings(op)                       how many roundings an output may go through
///   harden(random, op)                  extreme gates, where there are gates
///   gradients, smooth(op)               see gradient_laws.hpp
///   corrects                            there if what is written depends on the state
template <class Op>
struct sampler;

/// Calls f(op.*member) for every field of the list.
template <class Op, class Members, class F>
void for_fields(Op& op, const Members& members, const F& f) {
  std::apply([&](const auto... member) { (f(op.*member), ...); }, members);
}

/// Tokens [begin, begin + count) of every sequence.
template <class Op>
Op tokens_of(Op op, index_t begin, index_t count) {
  for_fields(op, sampler<Op>::tokens, [&](auto& x) {
    if (x.present()) x = x.slice(1, begin, count);
  });
  if constexpr (requires { op.position; }) op.position += begin;
  return op;
}

/// The fields that hold keys and values.
template <class Op>
constexpr auto keys_of() {
  if constexpr (requires { sampler<Op>::keys; }) {
    return sampler<Op>::keys;
  } else {
    return sampler<Op>::tokens;
  }
}

/// The same arguments in other memory.
template <class Op>
Op copy_of(Op op, memory& room) {
  const auto move = [&](auto& x) { x = room.copy(x); };
  for_fields(op, sampler<Op>::tokens, move);
  for_fields(op, sampler<Op>::parameters, move);
  if constexpr (requires { sampler<Op>::keys; }) for_fields(op, sampler<Op>::keys, move);
  return op;
}

/// Writes `poison` into tokens [begin, begin + count) of sequence b, in every field of numbers among `members`. The
/// arguments must lie in memory of their own.
template <class Op, class Members>
void poison_tokens(const Op& op, const Members& members, index_t b, index_t begin, index_t count, double poison) {
  for_fields(op, members, [&](const auto& x) {
    using T = typename std::remove_cvref_t<decltype(x)>::value_type;
    if constexpr (!std::is_same_v<T, bool>) {
      if (!x.present()) return;
      for_each(x.slice(0, b, 1).slice(1, begin, count), [&](const T& number, index_t) {
        if constexpr (requires { number.imag(); }) {
          const_cast<T&>(number) = T(static_cast<typename T::value_type>(poison));
        } else {
          const_cast<T&>(number) = static_cast<T>(poison);
        }
      });
    }
  });
}

/// An extent from a list that has few nice numbers, at most `most`.
inline index_t odd_extent(rng& random, index_t most) {
  constexpr index_t extents[] = {1, 2, 3, 5, 7, 8, 12, 16, 17, 24, 31, 33, 64, 65, 100};
  index_t count = 0;
  while (count < 15 && extents[count] <= most) ++count;
  return extents[random.integer(0, count - 1)];
}

/// One of the divisors of n.
inline index_t divisor_of(rng& random, index_t n) {
  index_t d = random.integer(1, n);
  while (n % d != 0) d = random.integer(1, n);
  return d;
}

inline bool coin(rng& random) { return random.integer(0, 1) == 1; }

/// A drawn tensor, uniform in [low, high).
template <class T, std::size_t Rank>
view<T, Rank> draw_uniform(rng& random, memory& room, const shape<Rank>& extents, double low = -1, double high = 1) {
  const auto x = room.take<T>(extents);
  fill_uniform(random, x, low, high);
  return x;
}

/// The elements of x as absolute values; complex ones by modulus.
template <class T, std::size_t Rank>
view<T, Rank> absolute(memory& room, const view<const T, Rank>& x) {
  const auto y = room.copy(x);
  if (!y.present()) return y;
  for_each(y, [](T& element, index_t) {
    if constexpr (requires { element.imag(); }) {
      element = T(std::abs(element));
    } else {
      element = static_cast<T>(std::fabs(static_cast<accum_t<T>>(element)));
    }
  });
  return y;
}

}  // namespace ogive::testing

// L1*: what the definitions share: numbers in and out of storage, which tokens make a sequence, which head reads which,
// and where a sequence's state lies. Plain loops, any scalar; sees core only.
#pragma once

#include <ogive/core/options.hpp>
#include <ogive/core/state.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <vector>

namespace ogive::reference {

/// A stored number as Acc; a stored complex number as std::complex<Acc>.
template <class Acc, class T>
auto lift(const T& x) {
  if constexpr (requires { x.imag(); }) {
    return std::complex<Acc>(lift<Acc>(x.real()), lift<Acc>(x.imag()));
  } else {
    return static_cast<Acc>(static_cast<accum_t<T>>(x));
  }
}

/// A number, or a complex number, rounded to the storage T.
template <class T, class Acc>
T lower(const Acc& x) {
  if constexpr (requires { x.imag(); }) {
    using Real = typename T::value_type;
    return T(lower<Real>(x.real()), lower<Real>(x.imag()));
  } else {
    return static_cast<T>(static_cast<accum_t<T>>(x));
  }
}

/// A row of q or k, divided by √(Σx² + ε) where the operator asks for it.
template <class Acc, class Op>
tensor<Acc, 1> unit_row(const Op& op, tensor<Acc, 1> row) {
  using std::sqrt;
  if constexpr (requires { op.qk_l2norm; }) {
    if (op.qk_l2norm) {
      Acc squares = static_cast<Acc>(*op.qk_l2norm);
      for (index_t r = 0; r < row.extent(0); ++r) squares = squares + row(r) * row(r);
      for (index_t r = 0; r < row.extent(0); ++r) row(r) = row(r) / sqrt(squares);
    }
  }
  return row;
}
template <class Acc, class Op, class T>
tensor<Acc, 1> key_row(const Op& op, const view<const T, 4>& x, index_t b, index_t t, index_t h) {
  tensor<Acc, 1> row({x.extent(3)}, Acc(0));
  for (index_t r = 0; r < x.extent(3); ++r) row(r) = lift<Acc>(x(b, t, h, r));
  return unit_row(op, std::move(row));
}

/// Tokens [begin, end) of row `batch` make one sequence; from `live` on they are padding, which neither decays nor
/// writes but still reads. There is one length per sequence.
struct sequence {
  index_t batch, begin, end, live;
};

template <class Op>
std::vector<sequence> sequences(const Op& op, index_t batch, index_t length) {
  std::vector<sequence> all;
  for (index_t b = 0; b < batch; ++b) all.push_back({b, 0, length, length});
  if constexpr (requires { op.offsets; }) {
    if (op.offsets.present()) all.clear();
    for (index_t s = 0; s + 1 < op.offsets.size(); ++s) {
      all.push_back({0, op.offsets.at(s), op.offsets.at(s + 1), op.offsets.at(s + 1)});
    }
  }
  for (index_t s = 0; s < op.lengths.size(); ++s) {
    sequence& one = all[static_cast<std::size_t>(s)];
    one.live = std::min(one.end, one.begin + op.lengths.at(s));
  }
  return all;
}

/// Which of `few` heads head h of `many` reads; h itself when there are not fewer.
inline index_t read_by(index_t h, index_t many, index_t few, heads map) {
  if (few >= many) return h;
  return map == heads::tiled ? h % few : h / (many / few);
}

/// The slot of sequence s in a pool: −1 is none.
inline index_t slot_of(const view<const std::int32_t, 1>& slots, index_t s) {
  return slots.present() ? static_cast<index_t>(slots(s)) : s;
}

/// A state given as a plain view is a state in place: initial and final.
template <class State>
auto state_of(const State& st) {
  if constexpr (requires { st.initial; }) {
    return st;
  } else {
    using S = typename State::value_type;
    if constexpr (State::rank == 4) {
      return state<S>{.initial = st, .final = st};
    } else if constexpr (State::rank == 2) {
      return vector_state<S>{.initial = st, .final = st};
    } else {
      return diagonal_state<S>{.initial = st, .final = st};
    }
  }
}

/// What a pool [slots, H, …] holds for sequence s and head h: zeros where nothing is given. Number is Acc or
/// std::complex<Acc>.
template <class Acc, class Number = Acc, class T, std::size_t Rank>
tensor<Number, Rank - 2> load(const view<T, Rank>& pool, const view<const std::int32_t, 1>& slots, index_t s, index_t h,
                              const shape<Rank - 2>& extents) {
  tensor<Number, Rank - 2> piece(extents, Number(Acc(0)));
  if (!pool.present() || slot_of(slots, s) < 0) return piece;
  const auto held = pool[slot_of(slots, s)][h];
  for (index_t i = 0; i < extents[0]; ++i) {
    if constexpr (Rank == 3) {
      piece(i) = lift<Acc>(held(i));
    } else {
      for (index_t j = 0; j < extents[1]; ++j) piece(i, j) = lift<Acc>(held(i, j));
    }
  }
  return piece;
}

/// A pool [slots, N] of states that all channels share, seen as [slots, 1, N].
template <class T>
view<T, 3> one_channel(const view<T, 2>& pool) {
  if (!pool.present()) return {};
  return {pool.data(), {pool.extent(0), 1, pool.extent(1)}, {pool.stride(0), 0, pool.stride(1)}};
}

/// Writes it back, rounded; nowhere if no slot wants it.
template <class T, std::size_t Rank, class Number>
void store(const view<T, Rank>& pool, const view<const std::int32_t, 1>& slots, index_t s, index_t h,
           const tensor<Number, Rank - 2>& piece) {
  if (!pool.present() || slot_of(slots, s) < 0) return;
  const auto held = pool[slot_of(slots, s)][h];
  for (index_t i = 0; i < piece.extent(0); ++i) {
    if constexpr (Rank == 3) {
      held(i) = lower<T>(piece(i));
    } else {
      for (index_t j = 0; j < piece.extent(1); ++j) held(i, j) = lower<T>(piece(i, j));
    }
  }
}

}  // namespace ogive::reference

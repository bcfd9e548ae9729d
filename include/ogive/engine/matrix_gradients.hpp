// L5: how the backward of the matrix engine reads and writes the gradients of an operator, and its sums over tokens and
// sequences.
#pragma once

#include <ogive/engine/matrix.hpp>
#include <ogive/engine/matrix_backward_problem.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// Cotangents that are not given: zeros, all in one place.
template <class T>
view<const T, 4> given_or_zero(const view<const T, 4>& d_o, const matrix_extents& n) noexcept {
  static constexpr T zero{};
  return d_o.present() ? d_o : view<const T, 4>(&zero, matrix_output(n), {0, 0, 0, 0});
}

/// Rows of padding read the state with whatever stands in their place. They count where somebody asks for their output;
/// else they are zeros, and have gradient 0.
template <class Op>
bool asked_for(const Op& op, const view<const typename Op::scalar, 4>& d_o, const tokens& at, index_t i) noexcept {
  if (i < at.live) return true;
  const index_t Hq = op.extents().query_heads, outputs = d_o.extent(2), readers = outputs / std::max<index_t>(Hq, 1);
  const bool consecutive = op.head_map == heads::consecutive;
  for (index_t r = 0; r < readers; ++r) {
    const auto row = d_o[at.batch][at.token + i][consecutive ? at.head * readers + r : at.head + r * Hq];
    for (index_t j = 0; j < row.extent(0); ++j) {
      if (static_cast<accum_t<typename Op::scalar>>(row[j]) != 0) return true;
    }
  }
  return false;
}

/// The forward of an operator, computed again for these cotangents of its outputs.
template <class Op>
struct matrix_again_binding : matrix_binding<Op> {
  const view<const typename Op::scalar, 4>* d_o;

  template <class Acc>
  matrix_hooks<Acc> hooks() const noexcept {
    matrix_hooks<Acc> all = matrix_binding<Op>::template hooks<Acc>();
    all.load_q = [](const void* bound, const tokens& at, Acc* q, index_t stride, Acc* room) noexcept {
      const auto& self = static_cast<const matrix_again_binding&>(*static_cast<const matrix_binding<Op>*>(bound));
      self.op->load_q(at, q, stride, room);
      for (index_t i = at.live; i < at.count; ++i) {
        if (!asked_for(*self.op, *self.d_o, at, i)) zero_rows(q + i * stride, stride, 1, stride);
      }
    };
    return all;
  }
};

/// An operator with a feature map, whose weights are for all heads: `weights(d)` says what core::run_summed wants to
/// know, and adjoint_q and adjoint_k get the task's sums.
template <class Op>
concept with_weights = requires(const Op& op, const typename Op::gradient& d) {
  op.weights(d);
};

/// An operator, the cotangent of its outputs and its gradients: what the adjoints see as `op`.
template <class Op>
struct matrix_backward_binding {
  const Op* op;
  const view<const typename Op::scalar, 4>* outputs;
  const typename Op::gradient* d;
  bool accumulate;
  void* sums = nullptr;  // of the task, of what all heads share

  static const matrix_backward_binding& self(const void* bound) noexcept {
    return *static_cast<const matrix_backward_binding*>(bound);
  }

  wanted_rows rows_wanted() const noexcept {
    if constexpr (requires { op->wants_rows(*d); }) return op->wants_rows(*d);
    return {};
  }

  template <class Acc>
  matrix_adjoints<Acc> adjoints() const noexcept {
    matrix_adjoints<Acc> all{
        .op = this,
        .outputs = op->wants_outputs(*d),
        .decays = op->wants_decays(*d),
        .rows = rows_wanted(),
        .ahead = [](const void* bound, const tokens& at,
                    lines_ahead& lines) noexcept { lines.add(ahead_of(*self(bound).outputs, at)); },
        .store =
            [](const void* bound, const tokens& at, const Acc* o, const Acc* denominator, Acc* panel, index_t stride,
               Acc* d_denominator, Acc* room) noexcept {
              const auto& b = self(bound);
              b.op->adjoint_store(at, *b.outputs, o, denominator, panel, stride, d_denominator, room, *b.d,
                                  b.accumulate);
            },
        .load_q =
            [](const void* bound, const tokens& at, Acc* d_q, index_t stride, Acc* room) noexcept {
              const auto& b = self(bound);
              for (index_t i = 0; i < at.count;) {
                const bool asked = asked_for(*b.op, *b.outputs, at, i);
                tokens rows = at;
                rows.token += i, rows.position += i, rows.count = 1;
                while (i + rows.count < at.count && asked_for(*b.op, *b.outputs, at, i + rows.count) == asked)
                  ++rows.count;
                rows.live = asked ? rows.count : 0;
                if constexpr (with_weights<Op>) {
                  b.op->adjoint_q(rows, d_q + i * stride, stride, room, *b.d, b.accumulate, static_cast<Acc*>(b.sums));
                } else {
                  b.op->adjoint_q(rows, d_q + i * stride, stride, room, *b.d, b.accumulate);
                }
                i += rows.count;
              }
            },
        .load_k =
            [](const void* bound, const tokens& at, Acc* d_k, index_t stride, Acc* room) noexcept {
              const auto& b = self(bound);
              if constexpr (with_weights<Op>) {
                b.op->adjoint_k(at, d_k, stride, room, *b.d, b.accumulate, static_cast<Acc*>(b.sums));
              } else {
                b.op->adjoint_k(at, d_k, stride, room, *b.d, b.accumulate);
              }
            },
        .load_v =
            [](const void* bound, const tokens& at, Acc* d_v, const Acc* d_o, index_t stride, const Acc* d_log_decay,
               Acc* room) noexcept {
              self(bound).op->adjoint_v(at, d_v, d_o, stride, d_log_decay, room, *self(bound).d,
                                        self(bound).accumulate);
            }};
    if constexpr (Op::decays == decay::per_key) {
      all.load_gates = [](const void* bound, const tokens& at, Acc* d_g, const Acc* d_k, index_t stride,
                          Acc* room) noexcept {
        self(bound).op->adjoint_gates(at, d_g, d_k, stride, room, *self(bound).d, self(bound).accumulate);
      };
    }
    if constexpr (Op::writes == write::delta) {
      all.load_beta = [](const void* bound, const tokens& at, Acc* d_beta, index_t stride, Acc* room) noexcept {
        self(bound).op->adjoint_beta(at, d_beta, stride, room, *self(bound).d, self(bound).accumulate);
      };
    }
    if constexpr (Op::writes == write::low_rank) {
      all.load_removal = [](const void* bound, const tokens& at, Acc* d_a, Acc* d_b, index_t stride,
                            Acc* room) noexcept {
        self(bound).op->adjoint_removal(at, d_a, d_b, stride, room, *self(bound).d, self(bound).accumulate);
      };
    }
    if constexpr (Op::reads == read::before) {
      all.load_bonus = [](const void* bound, index_t head, const Acc* d_u) noexcept {
        self(bound).op->adjoint_bonus(head, d_u, *self(bound).d);
      };
    }
    return all;
  }
};

/// Calls f(sum, sum of `from`) for the rows of head h, for all that are sums over tokens and sequences.
template <class Op, class F>
void for_sums_of_head(index_t h, const typename Op::gradient& to, const typename Op::gradient& from,
                      const F& f) noexcept {
  Op::for_sums(to, [&](auto gradient, auto, std::size_t axis) noexcept {
    const auto row = [&]<class X, std::size_t Rank>(const view<X, Rank>& x) noexcept {
      const bool last = axis + 1 == Rank;
      return view<X, 1>(x.data() + h * x.stride(axis), {last ? 1 : x.extent(Rank - 1)}, {x.stride(Rank - 1)});
    };
    if ((to.*gradient).present()) f(row(to.*gradient), row(from.*gradient));
  });
}

/// d with sums in memory of their own.
template <class Op>
typename Op::gradient with_own_sums(const Op& op, typename Op::gradient d, arena& memory, bool all = false) noexcept {
  Op::for_sums(d, [&](auto gradient, auto field, std::size_t axis) noexcept {
    auto& x = d.*gradient;
    using View = std::remove_cvref_t<decltype(x)>;
    if (!x.present() && !all) return;
    shape<View::rank> strides{};
    const index_t columns = axis + 1 == View::rank ? 1 : (op.*field).extent(View::rank - 1);
    strides[View::rank - 1] = 1;
    strides[axis] = columns;
    x = View(memory.take<typename View::element_type>((op.*field).extent(axis) * columns), (op.*field).extents(),
             strides);
  });
  return d;
}

template <class Op>
OGIVE_NOINLINE void clear_sums(const typename Op::gradient& d, index_t heads) noexcept {
  for (index_t h = 0; h < heads; ++h) {
    for_sums_of_head<Op>(h, d, d, [](const auto& to, const auto&) noexcept {
      for (index_t j = 0; j < to.extent(0); ++j) to[j] = 0;
    });
  }
}
template <class Op>
OGIVE_NOINLINE void add_sums(const typename Op::gradient& to, const typename Op::gradient& from, index_t begin,
                             index_t end) noexcept {
  for (index_t h = begin; h < end; ++h) {
    for_sums_of_head<Op>(h, to, from, [](const auto& all, const auto& own) noexcept {
      for (index_t j = 0; j < all.extent(0); ++j) all[j] += own[j];
    });
  }
}

/// Whether some gradients are sums over tokens and sequences.
template <class Op>
bool wants_sums(const typename Op::gradient& d) noexcept {
  bool any = false;
  Op::for_sums(d, [&](auto gradient, auto, std::size_t) noexcept { any = any || (d.*gradient).present(); });
  return any;
}

/// Bytes of a worker's own sums, of all that there may be or of those in d.
template <class Op>
std::size_t sums_bytes(const Op& op, const typename Op::gradient& d, index_t turns, bool all) noexcept {
  arena counted;
  for (index_t i = 0; i < turns; ++i) with_own_sums(op, d, counted, all);
  return counted.used();
}

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

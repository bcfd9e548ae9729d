// L7: the backward pass of layers with a window. A task owns a block of channels and walks through all sequences,
// each from its end, tile by tile: sums over tokens have one order, whoever runs the tasks.
#pragma once

#include <ogive/layers/window.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// Where a task stands, and what it is told to write. T, S, G: storage of tensors, of the state, of its gradient.
template <class Number, class T, class S, class G>
struct window_walk {
  using Acc = Number;
  using vector = simd::batch<Acc>;
  static constexpr index_t V = simd::width<Acc>;
  static constexpr index_t row = 512;  // channels of a task at most: rows of a few lines each do not stream
  static constexpr index_t tile = 16;  // tokens

  /// Channels of a task: at least four tasks, from 512 channels on.
  static index_t channels_of(index_t all) noexcept { return std::clamp<index_t>(round_up(all / 4, 128), 128, row); }

  const window_problem<T, S>& p;
  const window_gradient<G>& d_st;
  const view<T, 3>& d_x;
  bool accumulate;
  index_t channel;
  Acc* d_inputs;  // [tile, row]
  index_t across = std::min(p.row, p.channels() - channel);

  /// All sequences. A pass has
  ///   begin()                            a sequence ends here: nothing comes after
  ///   tokens(at, first, count, d_in)     adds to its sums what these tokens say, and leaves the gradient of their
  ///                                      inputs in rows of d_in
  ///   before(position, to)               the gradient of an input before the first token
  ///   padding(at, first, count, zeros)   writes the zeros where it has gradients of these tokens
  template <class Pass>
  void run(Pass& pass) noexcept {
    for (index_t n = 0; n < p.sequences(); ++n) sequence(p.whole(n), pass);
  }

  /// Rows of a panel into a gradient, which they overwrite or are added to.
  template <class X>
  void drain(Acc* from, const view<X, 2>& to) noexcept {
    drain_tile(from, row, to, accumulate);
  }

  /// The rows of a tile in a tensor [B, L, D].
  template <class X>
  view<X, 2> rows(const view<X, 3>& x, const window_piece& at, index_t first, index_t count) const noexcept {
    return {x.pointer(at.batch, at.begin + first, channel), {count, across}, {x.stride(1), x.stride(2)}};
  }

  /// to += term
  static OGIVE_INLINE void add(Acc* to, const vector& term) noexcept { simd::store(to, simd::load(to) + term); }

 private:
  template <class Pass>
  void sequence(const window_piece& at, Pass& pass) noexcept {
    pass.begin();
    if (!accumulate) {
      for (index_t t = at.live; t < at.length; t += tile) {
        const index_t count = std::min(tile, at.length - t);
        zero_tile(d_inputs, row, 0, count, across);
        if (d_x.present()) store_tile(d_inputs, row, rows(d_x, at, t, count));
        pass.padding(at, t, count, d_inputs);
      }
    }
    for (index_t end = at.live; end > 0;) {
      const index_t first = (end - 1) / tile * tile;
      pass.tokens(at, first, end - first, d_inputs);
      if (d_x.present()) {
        for (index_t t = first; t < end; ++t) add_final(at, t, d_inputs + (t - first) * row);
        drain(d_inputs, rows(d_x, at, first, end - first));
      }
      end = first;
    }
    if (!d_st.initial.present()) return;
    const index_t K = d_st.initial.extent(2);
    for (index_t column = 0; column < K; ++column) {
      pass.before(column - K, d_inputs);
      add_final(at, column - K, d_inputs);
      drain(d_inputs, columns_of(d_st.initial, at.sequence, column, 1, channel, across));
    }
  }

  /// The final state keeps the inputs at positions live − K … live − 1.
  void add_final(const window_piece& at, index_t position, Acc* to) noexcept {
    if (!d_st.final.present()) return;
    const index_t K = d_st.final.extent(2), column = position - (at.live - K);
    if (column < 0 || column >= K) return;
    const auto kept = columns_of(d_st.final, at.sequence, column, 1, channel, across);
    for (index_t j = 0; j < across; j += V) {
      add(to + j, simd::load_strided<Acc, simd::default_arch>(kept.pointer(0, j), kept.stride(1), across - j));
    }
  }
};

/// The backward verbs of layers with a window. A layer has
///   check_gradients(ask, d_y, d, apart)     extents of d_y and of its own gradients; apart(field, view) for each
///   written pass<Walk>                              made of (layer, walk, d_y, d, arena); scratch(arena), finish()
struct window_rules {
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
    if (ask && p.ring.present()) ask.refuse("ring") << "is for steps; backward wants states in order of time";
    const index_t D = op.x.extent(2), n = p.sequences();
    const index_t K = d_st.final.present()     ? d_st.final.extent(2)
                      : d_st.initial.present() ? d_st.initial.extent(2)
                                               : op.reach();
    constexpr const char* letters = "[sequences, D, K], one K for both";
    ask.extents("d_st.final", d_st.final, {n, D, K}, letters).extents("d_st.initial", d_st.initial, {n, D, K}, letters);
    if (ask && K < op.reach())
      ask.refuse(d_st.final.present() ? "d_st.final" : "d_st.initial")
          << "keeps K = " << K << " inputs of a channel, must be at least the " << op.reach()
          << " that the layer reaches back to";
    ask.extents("d.x", d.x, op.x.extents(), "[B, L, D] as x");
    const auto apart = [&](const char* field, const auto& x) noexcept {
      ask.output(field, x);
      op.check_written(ask, field, x);
      ask.apart(field, x, "d_y", d_y).apart(field, x, "d_st.final", d_st.final);
      for_pools(st, [&](const char* name, const auto& pool, bool) noexcept { ask.apart(field, x, name, pool); });
    };
    const auto all = [&](const auto& each) noexcept {
      each("d.x", d.x), each("d_st.initial", d_st.initial);
      op.check_gradients(ask, d_y, d, each);
    };
    all(apart);
    ask.apart_from_each_other(all);
    return ask.result();
  }

  template <class Op>
  static std::size_t bytes(const Op& op) noexcept {
    using walk = window_walk<double, typename Op::scalar, float, float>;
    arena counted;
    counted.take<double>(walk::tile * walk::row);
    Op::template pass<walk>::scratch(op, counted);
    return counted.used();
  }

  template <class Op>
  static std::size_t backward_bytes(const Op& op, const options&) noexcept {
    return bytes(op);
  }

  template <class Op, class S, class G>
  static void backward(const Op& op, const window_state<S>& st, const cotangent_of<Op>& d_y,
                       const window_gradient<G>& d_st, const typename Op::gradient& d, const options& how,
                       context& ctx) {
    using walk = window_walk<sweep_t<typename Op::scalar, S>, typename Op::scalar, S, G>;
    auto p = window_engine::problem(op, st);
    p.row = walk::channels_of(op.x.extent(2));
    const std::size_t room = bytes(op);
    reserve_for(ctx, room);
    run_tasks(ctx, p.blocks(), room, [&](index_t block, arena memory) noexcept {
      auto* d_inputs = memory.take<typename walk::Acc>(walk::tile * walk::row);
      go(op, walk{p, d_st, d.x, how.accumulate, block * p.row, d_inputs}, d_y, d, memory);
    });
  }

 private:
  template <class Op, class Walk>
  OGIVE_NOINLINE static void go(const Op& op, Walk walk, const cotangent_of<Op>& d_y, const typename Op::gradient& d,
                                arena memory) noexcept {
    typename Op::template pass<Walk> pass(op, walk, d_y, d, memory);
    walk.run(pass);
    pass.finish();
  }
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

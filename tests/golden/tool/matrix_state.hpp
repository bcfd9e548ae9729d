// Operators with a matrix state on a file: what the families of files have in common, and their arguments.
#pragma once

#include <memory>

#include "tests/golden/tool/sequence_forms.hpp"

namespace ogive::golden {

/// In which order a file has its axes: ogive's own, or heads before tokens.
enum class family_order { tokens_first, heads_first };

/// Views of a file's tensors in ogive's order; the tensors live as long as this does.
template <class T>
class file_views {
 public:
  using accum = accum_t<T>;
  const golden_case& file;

  file_views(const golden_case& the_file, family_order order) : file(the_file), order_(order) {}

  /// [B, L, H, ·] in the tensors' type.
  view<const T, 4> rows(const std::string& name) { return turned(plain<T, 4>(name)); }
  /// [B, L, H, ·] and [B, L, H] in the accumulation type.
  view<const accum, 4> gates(const std::string& name) { return turned(plain<accum, 4>(name)); }
  view<const accum, 3> head_gates(const std::string& name) {
    const auto x = plain<accum, 3>(name);
    return order_ == family_order::heads_first ? x.permute({0, 2, 1}) : x;
  }
  /// As it is stored.
  template <class X, std::size_t Rank>
  view<const X, Rank> plain(const std::string& name) {
    return keep(file.get<X, Rank>(name));
  }
  template <class X, std::size_t Rank>
  view<const X, Rank> keep(tensor<X, Rank> made) {
    auto kept = std::make_shared<tensor<X, Rank>>(std::move(made));
    kept_.push_back(kept);
    return std::as_const(*kept).all();
  }
  /// Its own inverse.
  template <class X>
  view<X, 4> turned(const view<X, 4>& x) const {
    return order_ == family_order::heads_first ? x.permute({0, 2, 1, 3}) : x;
  }
  std::size_t rank(const std::string& name) const { return file.shape(name).size(); }

 private:
  family_order order_;
  std::vector<std::shared_ptr<void>> kept_;
};

/// out, and the state S [slots, H, K, V] before and after; a state for each packed sequence where there are any.
template <class Op>
struct matrix_arguments {
  using T = typename Op::scalar;
  using accum = accum_t<T>;

  file_views<T> from;
  std::vector<std::int64_t> offsets;
  Op op;
  state<accum> st;
  index_t chunk = 0;

  template <class Fill>
  matrix_arguments(const golden_case& file, family_order order, const Fill& fill)
      : from(file, order), offsets(file.integers("cu_seqlens")) {
    op.v = from.rows("v");
    if constexpr (requires { op.k; }) op.k = from.rows("k");
    if (const auto scale = file.number("scale")) op.scale = static_cast<accum>(*scale);
    if constexpr (requires { op.qk_l2norm; }) {
      if (file.flag("qk_l2norm", false)) op.qk_l2norm = accum(1e-6);
    }
    fill(op, from);
    if (!offsets.empty()) op.offsets = offsets;
    if (file.has("initial_state")) st.initial = from.template plain<accum, 4>("initial_state");
  }

  template <class O>
  named_views outputs(const view<O, 4>& o, const state<accum>& left) const {
    named_views all;
    add_output(all, "out", from.turned(o));
    add_state(all, "final_state", left.final);
    return all;
  }
  template <class Acc, class State>
  void define(const Op& o, const State& given, const view<Acc, 4>& y) const {
    reference::evaluate<Acc>(o, given, y);
  }
  template <class Acc, class State>
  requires requires(const Op& o, const State& given, const view<Acc, 4>& y) {
    reference::evaluate_masked<Acc>(o, given, y);
  }
  void define_masked(const Op& o, const State& given, const view<Acc, 4>& y) const {
    reference::evaluate_masked<Acc>(o, given, y);
  }
};

/// Everything there is to run of an operator: in double and float, or in 16-bit numbers too.
template <template <class> class Op, class Fill>
void run_family_wide(trial& t, family_order order, const Fill& fill) {
  run_wide(t, [&]<class T>(T) { return matrix_arguments<Op<T>>(t.file, order, fill); });
}
template <template <class> class Op, class Fill>
void run_family(trial& t, family_order order, const Fill& fill) {
  run_all(t, [&]<class T>(T) { return matrix_arguments<Op<T>>(t.file, order, fill); });
}

/// The operators that files of packed sequences name.
void run_simple_gla(trial& t);
void run_gla(trial& t);
void run_gated_delta_rule(trial& t);
void run_kda(trial& t);

}  // namespace ogive::golden

// Operators with a matrix state on a file: what the families of files have in common, and their arguments.
#pragma once

#include <memory>

#include "tests/golden/tool/sequence_forms.hpp"

namespace ogive::golden {

/// In which order a file has its axes: ogive's own, or heads before tokens.
enum class family_order { tokens_first, heads_first };

/// What a file calls the fields of an operator, in the order of its sampler's; "" for one that it does not have.
using letters = std::vector<std::string>;

/// Views of a file's tensors in ogive's order; the tensors live as long as this does.
class file_views {
 public:
  const golden_case& file;

  file_views(const golden_case& the_file, family_order order) : file(the_file), order_(order) {}

  /// [B, L, H, ·] or [B, L, H], [H, K], [H].
  template <class X, std::size_t Rank>
  view<const X, Rank> field(const std::string& name) {
    return turned(plain<X, Rank>(name));
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
  /// What has tokens in ogive's order from the file's, or back.
  template <class X, std::size_t Rank>
  view<X, Rank> turned(const view<X, Rank>& x) const {
    if (order_ == family_order::tokens_first || !x.present()) return x;
    if constexpr (Rank == 4) {
      return x.permute({0, 2, 1, 3});
    } else if constexpr (Rank == 3) {
      return x.permute({0, 2, 1});
    } else {
      return x;
    }
  }

 private:
  family_order order_;
  std::vector<std::shared_ptr<void>> kept_;
};

/// out, and the state S [slots, H, K, V] before and after; a state for each packed sequence where there are any. What
/// an operator has beside the tensors of the file is filled in by fill(op, from).
template <class Op>
struct matrix_arguments {
  using T = typename Op::scalar;
  using accum = accum_t<T>;

  file_views from;
  letters names;
  std::vector<std::int64_t> offsets;
  Op op;
  state<accum> st;
  testing::cotangents_of<Op> c;
  index_t chunk = 0;

  template <class Fill>
  matrix_arguments(const golden_case& file, family_order order, const letters& names_of_fields, const Fill& fill)
      : from(file, order), names(names_of_fields), offsets(file.integers("cu_seqlens")) {
    auto name = names.begin();
    testing::for_fields(op, testing::detail::fields_of<Op>(),
                        [&]<class X, std::size_t Rank>(view<const X, Rank>& field) {
                          if (name == names.end()) return;
                          if (!name->empty()) field = from.template field<X, Rank>(*name);
                          ++name;
                        });
    if (const auto scale = file.number("scale")) op.scale = static_cast<accum>(*scale);
    if constexpr (requires { op.qk_l2norm; }) {
      if (file.flag("qk_l2norm", false)) op.qk_l2norm = accum(1e-6);
    }
    fill(op, from);
    if (!offsets.empty()) op.offsets = offsets;
    if (file.has("initial_state")) st.initial = from.template plain<accum, 4>("initial_state");
    if (file.has("grad_out")) c.o = from.template field<T, 4>("grad_out");
    if (file.has("grad_final_state")) c.st.final = from.template plain<accum, 4>("grad_final_state");
  }

  template <class O>
  named_views outputs(const view<O, 4>& o, const state<accum>& left) const {
    named_views all;
    add_output(all, "out", from.turned(o));
    add_state(all, "final_state", left.final);
    return all;
  }
  named_views gradients(const testing::gradients_found<Op>& found) const {
    named_views all;
    auto name = names.begin();
    testing::detail::for_gradients(op, found.d, [&](const auto&, const auto& d) {
      if (name == names.end()) return;
      if (!name->empty()) add_output(all, "d_" + *name, from.turned(d));
      ++name;
    });
    add_state(all, "d_initial_state", found.st.initial);
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

/// For operators that files give whole.
struct nothing_more {
  void operator()(auto&, auto&) const {}
};

/// Everything there is to run of an operator: in double and float, or in 16-bit numbers too.
template <template <class> class Op, class Fill = nothing_more>
void run_family_wide(trial& t, family_order order, const letters& names, const Fill& fill = {}) {
  run_wide(t, [&]<class T>(T) { return matrix_arguments<Op<T>>(t.file, order, names, fill); });
}
template <template <class> class Op, class Fill = nothing_more>
void run_family(trial& t, family_order order, const letters& names, const Fill& fill = {}) {
  run_all(t, [&]<class T>(T) { return matrix_arguments<Op<T>>(t.file, order, names, fill); });
}

/// The operators that files of packed sequences name.
void run_simple_gla(trial& t);
void run_gla(trial& t);
void run_gated_delta_rule(trial& t);
void run_kda(trial& t);

}  // namespace ogive::golden

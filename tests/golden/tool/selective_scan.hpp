// The selective scan on a file: B and C in their many shapes, real or complex.
#pragma once

#include <ogive/testing/samplers/selective_scan.hpp>

#include "tests/golden/tool/sequence_forms.hpp"

namespace ogive::golden {

/// B or C as the operator takes it, over a tensor it owns.
template <class X>
struct scan_operand {
  tensor<X, 4> all{};
  bool constant = false;
  index_t batch = 0, length = 0;
  view<const X, 4> seen{};

  scan_operand() = default;
  /// Real: D,N (constant) | B,N,L | B,G,N,L. Complex: D,N with a last axis (re, im) (constant), or the shapes of real
  /// ones with the pairs along the last axis: B,N,2L | B,G,N,2L.
  scan_operand(const golden_case& file, const std::string& name, index_t of_batch, index_t of_length)
      : batch(of_batch), length(of_length) {
    constexpr bool complex = complex_number<X>;
    std::vector<index_t> axes = file.shape(name);
    constant = complex ? file.is_complex(name) : axes.size() == 2;
    if constexpr (complex) axes.back() /= 2;
    if (constant && complex) axes.pop_back();
    if (!constant && axes.size() == 3) axes.insert(axes.begin() + 1, 1);
    axes.insert(axes.begin(), constant ? 2 : 0, 1);
    if (axes.size() != 4) throw std::runtime_error(name + " must be [D, N], [B, N, L] or [B, G, N, L]");
    all = tensor<X, 4>({axes[0], axes[1], axes[2], axes[3]});
    if constexpr (complex) {
      const auto numbers = file.numbers<typename X::value_type>(name);
      if (static_cast<index_t>(numbers.size()) != 2 * all.size()) throw std::runtime_error(name + " is not complex");
      for (std::size_t i = 0; i < numbers.size() / 2; ++i) all.data()[i] = X(numbers[2 * i], numbers[2 * i + 1]);
    } else {
      std::ranges::copy(file.numbers<X>(name), all.data());
    }
    seen = as_field(std::as_const(all).all());
  }

  /// What is stored as this is, as the operator takes it.
  template <class Y>
  view<Y, 4> as_field(const view<Y, 4>& stored) const {
    return constant ? constant_over_time(stored[0][0], batch, length) : stored.permute({0, 3, 1, 2});
  }
};

/// Everything but where the tensors come from.
template <class T, class AType>
struct scan_arguments {
  using accum = accum_t<T>;
  using op_type = selective_scan<T, AType>;
  using operand = typename op_type::operand;

  tensor<T, 3> u, z;
  tensor<accum, 3> dt;
  tensor<AType, 2> A;
  scan_operand<operand> B, C;
  tensor<accum, 1> D, dt_bias;
  tensor<AType, 3> h;
  op_type op;
  diagonal_state<AType> st;
  index_t chunk = 0;

  template <class Acc, class State>
  void define(const op_type& o, const State& from, const view<Acc, 3>& y) const {
    reference::evaluate<Acc>(o, from, y);
  }
};

}  // namespace ogive::golden

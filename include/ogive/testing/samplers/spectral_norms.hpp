// How large the terms of an output are where a sequence is convolved by transforms.
#pragma once

#include <ogive/reference/lti.hpp>
#include <ogive/testing/samplers.hpp>

namespace ogive::testing {

/// Stands for the magnitudes of a time-invariant operator, whose numbers are moduli: in y at least Σ ‖K‖ ‖u‖ of an
/// output's sequence, initial state included, since by transforms every term of it may leave its rounding in every
/// output.
template <class Op>
struct spectral_norms {
  Op op;
};
template <class Op>
struct sampler<spectral_norms<Op>> {
  template <class Acc, class State>
  static void define(const spectral_norms<Op>& x, const State& st, const view<double, 3>& y) {
    constexpr bool mixes = requires(view<double, 3> K) { reference::kernel<Acc>(x.op, K); };
    reference::evaluate<Acc>(x.op, st, y);
    const index_t L = x.op.u.extent(1), inputs = mixes ? x.op.u.extent(2) : 1;
    tensor<double, 3> K({y.extent(2), inputs, L});
    if constexpr (mixes) {
      reference::kernel<Acc>(x.op, K.all());
    } else {
      reference::kernel<Acc>(x.op, view<double, 2>(K.data(), {y.extent(2), L}));
    }
    const auto norm = [](index_t count, const auto& element) {
      double squares = 0;
      for (index_t i = 0; i < count; ++i) squares += std::pow(static_cast<double>(element(i)), 2);
      return std::sqrt(squares);
    };
    for (const reference::sequence& at : reference::sequences(x.op, x.op.u.extent(0), L)) {
      for (index_t p = 0; p < y.extent(2); ++p) {
        double most = 0;
        for (index_t m = 0; m < inputs; ++m) {
          most += norm(L, [&](index_t l) { return K(p, m, l); }) *
                  norm(at.live - at.begin, [&](index_t t) { return x.op.u(at.batch, at.begin + t, mixes ? m : p); });
        }
        for (index_t t = at.begin; t < at.live; ++t) most = std::fmax(most, y(at.batch, t, p));
        for (index_t t = at.begin; t < at.end; ++t) y(at.batch, t, p) = std::fmax(y(at.batch, t, p), most);
      }
    }
  }
};

}  // namespace ogive::testing

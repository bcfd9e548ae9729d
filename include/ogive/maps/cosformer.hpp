// L4: cosFormer, a map that knows where its token stands.
//
//   φ(x) at position p = [relu(x) sin θ, relu(x) cos θ],   θ = π (p + base) / (2 M)
//   φ(q)·φ(k) = relu(q)·relu(k) cos(π (p − p') / (2 M))
//
// Qin et al., cosFormer: Rethinking Softmax in Attention, arXiv:2202.08791.
#pragma once

#include <ogive/maps/elementwise.hpp>
#include <ogive/maps/rows.hpp>

#include <numbers>

namespace ogive {
inline namespace OGIVE_ABI {
namespace maps {

/// x [.., d] to [.., 2 d]. `M` is the longest distance the weighting allows for, max(L_q, L_k) in the paper: beyond it
/// the cosine is negative. `base` is the number of the first token; products of features do not depend on it.
struct cosformer {
  index_t M = 0;
  index_t base = 1;

  index_t features(index_t d) const noexcept { return 2 * d; }

  status check(index_t) const noexcept {
    if (M >= 1) return {};
    return status(status_code::value) << "ogive::maps::cosformer: M = " << M
                                      << " must be at least 1: the longest sequence";
  }

  template <class Acc>
  void operator()(view<const Acc, 2> x, view<Acc, 2> y, const map_site& first) const noexcept {
    for_each_row<Acc>(x, first, [&](index_t r, const auto& sine, const auto& cosine) {
      const Acc* from = x.pointer(r, 0);
      Acc* to = y.pointer(r, 0);
      detail::for_each_vector<Acc>(x.extent(1), [&](index_t i, const auto& some) {
        const simd::batch<Acc> positive = relu{}(detail::load(from + i, some));
        detail::store(to + i, positive * sine, some);
        detail::store(to + x.extent(1) + i, positive * cosine, some);
      });
    });
  }

  template <class Acc>
  void adjoint(view<const Acc, 2> x, view<const Acc, 2> d_y, view<Acc, 2> d_x, view<Acc, 2>,
               const map_site& first) const noexcept {
    const index_t d = x.extent(1);
    for_each_row<Acc>(x, first, [&](index_t r, const auto& sine, const auto& cosine) {
      const Acc* from = d_y.pointer(r, 0);
      Acc* to = d_x.pointer(r, 0);
      detail::transform(from, from + d, to, d,
                        [&](const auto& s, const auto& c) { return simd::fma(s, sine, c * cosine); });
      detail::transform(x.pointer(r, 0), to, to, d,
                        [](const auto& v, const auto& sum) { return relu{}.slope(v) * sum; });
    });
  }

 private:
  /// f(r, sin θ, cos θ)
  template <class Acc, class F>
  void for_each_row(const view<const Acc, 2>& x, const map_site& first, const F& f) const noexcept {
    for (index_t r = 0; r < x.extent(0); ++r) {
      const double position = static_cast<double>(first.position + r + base);
      const double theta = std::numbers::pi / 2 * position / static_cast<double>(M);
      f(r, simd::batch<Acc>(static_cast<Acc>(std::sin(theta))), simd::batch<Acc>(static_cast<Acc>(std::cos(theta))));
    }
  }
};

}  // namespace maps
}  // namespace OGIVE_ABI
}  // namespace ogive

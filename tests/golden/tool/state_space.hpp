// What the files of state space operators have in common.
#pragma once

#include <ogive/ops/ssd.hpp>

#include "tests/golden/tool/golden_case.hpp"

namespace ogive::golden {

/// Where packed sequences begin and end, all rows of a batch counted as one: from cu_seqlens, or from the places where
/// seq_idx [B, L] changes. Empty if nothing is packed.
inline std::vector<std::int64_t> offsets_of(const golden_case& file, index_t batch, index_t length) {
  const auto seq_idx = file.integers("seq_idx");
  if (file.has("cu_seqlens")) return file.integers("cu_seqlens");
  if (seq_idx.empty()) return {};
  const auto total = static_cast<std::size_t>(batch * length);
  if (seq_idx.size() != total) throw std::runtime_error("seq_idx must have one number for each token");
  std::vector<std::int64_t> offsets{0};
  for (std::size_t t = 1; t < total; ++t) {
    const bool new_row = static_cast<index_t>(t) % length == 0;
    if (new_row || seq_idx[t] != seq_idx[t - 1]) offsets.push_back(static_cast<std::int64_t>(t));
  }
  offsets.push_back(static_cast<std::int64_t>(total));
  return offsets;
}

/// Row-major [B, L, …] as [1, B·L, …].
template <class T, std::size_t Rank>
view<T, Rank> one_row(const view<T, Rank>& x) {
  if (!x.present()) return x;
  shape<Rank> extents = x.extents();
  extents[1] *= extents[0];
  extents[0] = 1;
  return {x.data(), extents};
}

/// D, stored as [H, P] or as [H], as ssd takes it.
template <class T>
tensor<T, 2> skips(const golden_case& file) {
  if (!file.has("D")) return {};
  if (file.shape("D").size() == 2) return file.get<T, 2>("D");
  const auto D = file.get<T, 1>("D");
  tensor<T, 2> column({D.extent(0), 1});
  std::copy(D.flat().begin(), D.flat().end(), column.data());
  return column;
}

/// SSD for files that give log decays g and weights w: S_t = exp(g_t) S_{t-1} + w_t B_t x_tᵀ. With A = −1 the time step
/// is d = −g, and B takes w/d, which the operator's d·x cancels. Where g is 0, or too small for exp to tell from 0, d
/// is a power of two that is too small as well.
template <class T>
class log_decays {
 public:
  /// g and, if it is not 1 everywhere, w: [B, L, H], row-major.
  explicit log_decays(const view<const double, 3>& g, const view<const double, 3>& w = {})
      : dt_(g.extents()), A_({g.extent(2)}, T(-1)), ratio_(g.extents()) {
    constexpr double negligible = std::is_same_v<T, double> ? 0x1p-60 : 0x1p-30;
    for (index_t i = 0; i < g.size(); ++i) {
      const T d = static_cast<T>(std::fabs(g.data()[i]) < negligible ? negligible : -g.data()[i]);
      dt_.data()[i] = d;
      ratio_.data()[i] = (w.present() ? w.data()[i] : 1) / static_cast<double>(d);
    }
  }

  /// B [B, L, G, N] for each head, with w/d in it.
  tensor<T, 4> weighted(const view<const double, 4>& B) const {
    return for_heads(B, [&](index_t b, index_t t, index_t h) { return ratio_(b, t, h); });
  }
  /// C [B, L, G, N] for each head.
  tensor<T, 4> repeated(const view<const double, 4>& C) const {
    return for_heads(C, [](index_t, index_t, index_t) { return 1.0; });
  }

  /// The operator with these decays; growing ones are allowed.
  ssd<T> on(ssd<T> op) const {
    op.dt = dt_;
    op.A = A_;
    op.dt_min = -std::numeric_limits<T>::infinity();
    return op;
  }

 private:
  template <class Factor>
  tensor<T, 4> for_heads(const view<const double, 4>& x, const Factor& factor) const {
    const index_t H = dt_.extent(2), G = x.extent(2), N = x.extent(3);
    if (x.extent(0) != dt_.extent(0) || x.extent(1) != dt_.extent(1) || G < 1 || H % G != 0) {
      throw std::runtime_error("B and C must be [b, l, g, n], b and l as the decays, g dividing their heads");
    }
    tensor<T, 4> all({x.extent(0), x.extent(1), H, N});
    for (index_t b = 0; b < x.extent(0); ++b) {
      for (index_t t = 0; t < x.extent(1); ++t) {
        for (index_t h = 0; h < H; ++h) {
          for (index_t n = 0; n < N; ++n) {
            all(b, t, h, n) = static_cast<T>(x(b, t, h / (H / G), n) * factor(b, t, h));
          }
        }
      }
    }
    return all;
  }

  tensor<T, 3> dt_;
  tensor<T, 1> A_;
  tensor<double, 3> ratio_;
};

}  // namespace ogive::golden

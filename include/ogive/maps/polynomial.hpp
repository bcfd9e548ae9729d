// L4: feature maps whose products are polynomials of q·k, or products of pairs of coordinates.
#pragma once

#include <ogive/maps/elementwise.hpp>
#include <ogive/maps/rows.hpp>

#include <optional>

namespace ogive {
inline namespace OGIVE_ABI {
namespace maps {

namespace detail {

/// y = f · (x_0 x_1, x_0 x_2, …, x_{d−2} x_{d−1}), the d(d − 1)/2 products with i < j, row by row.
template <class Acc>
void cross_products(Acc f, const Acc* x, Acc* y, index_t d) noexcept {
  for (index_t i = 0; i + 1 < d; ++i) {
    const index_t n = d - i - 1;
    const simd::batch<Acc> factor(f * x[i]);
    transform(x + i + 1, y, n, [&](const auto& v) { return factor * v; });
    y += n;
  }
}

}  // namespace detail

/// φ(x) = [1, √s x, s x_i²/√2, s x_i x_j (i < j)] so that φ(q)·φ(k) = 1 + t + t²/2 with t = s q·k: the Taylor expansion
/// of exp. x [.., d] to [.., 1 + d + d(d + 1)/2]. s is `scale`, d^-1/2 unless given.
/// Arora et al., Simple Linear Attention (Based), arXiv:2402.18668.
struct taylor {
  std::optional<double> scale{};

  index_t features(index_t d) const noexcept { return 1 + d + d * (d + 1) / 2; }

  template <class Acc>
  void operator()(view<const Acc, 2> x, view<Acc, 2> y, const map_site&) const noexcept {
    const index_t d = x.extent(1);
    const double s = scale.value_or(1 / std::sqrt(static_cast<double>(d)));
    const simd::batch<Acc> linear(static_cast<Acc>(std::sqrt(s)));
    const simd::batch<Acc> square(static_cast<Acc>(s / std::sqrt(2.0)));
    for (index_t r = 0; r < x.extent(0); ++r) {
      const Acc* from = x.pointer(r, 0);
      Acc* to = y.pointer(r, 0);
      to[0] = Acc(1);
      detail::transform(from, to + 1, d, [&](const auto& v) { return linear * v; });
      detail::transform(from, to + 1 + d, d, [&](const auto& v) { return square * (v * v); });
      detail::cross_products(static_cast<Acc>(s), from, to + 1 + 2 * d, d);
    }
  }
};

/// φ(x) = s [u_i², √2 u_i u_j (i < j)] with u = γ ⊙ norm(x) + β, so that φ(q)·φ(k) = (s u_q·u_k)². x [.., d] to
/// [.., d(d + 1)/2]. norm subtracts the mean and divides by √(variance + ε); with `normalise` off u = γ ⊙ x + β. Absent
/// γ is one, absent β zero. s is `scale`, d^-1/2 unless given.
/// Aksenov et al., Linear Transformers with Learnable Kernel Functions are Better In-Context Models (ReBased),
/// arXiv:2402.10644.
template <class P = float>
struct rebased {
  view<const P, 1> gamma{};  // [d]
  view<const P, 1> beta{};   // [d]
  bool normalise = true;
  double eps = 1e-5;
  std::optional<double> scale{};

  index_t features(index_t d) const noexcept { return d * (d + 1) / 2; }

  status check(index_t d) const noexcept {
    for (const auto& [field, weight] : {std::pair{"gamma", &gamma}, std::pair{"beta", &beta}}) {
      if (weight->present() && weight->extent(0) != d) {
        return status(status_code::shape)
               << "ogive::maps::rebased: " << field << " has " << weight->extent(0) << " elements, rows have " << d;
      }
    }
    return {};
  }

  template <class Acc>
  void operator()(view<const Acc, 2> x, view<Acc, 2> y, const map_site&) const noexcept {
    const index_t d = x.extent(1);
    const double s = scale.value_or(1 / std::sqrt(static_cast<double>(d)));
    const simd::batch<Acc> square(static_cast<Acc>(s));
    for (index_t r = 0; r < x.extent(0); ++r) {
      Acc* u = y.pointer(r, 0);  // u stands where its squares will
      affine(x.pointer(r, 0), u, d);
      detail::cross_products(static_cast<Acc>(s * std::sqrt(2.0)), u, u + d, d);
      detail::transform(u, u, d, [&](const auto& v) { return square * (v * v); });
    }
  }

 private:
  template <class Acc>
  void affine(const Acc* x, Acc* u, index_t d) const noexcept {
    using vec = simd::batch<Acc>;
    vec mean(Acc(0));
    vec inverse(Acc(1));
    if (normalise) {
      const Acc n = static_cast<Acc>(d);
      mean = vec(detail::sum_of(x, d) / n);
      detail::transform(x, u, d, [&](const vec& v) { return v - mean; });
      inverse = vec(Acc(1) / std::sqrt(detail::squared_norm(u, d) / n + static_cast<Acc>(eps)));
    }
    detail::for_each_vector<Acc>(d, [&](index_t i, const auto& some) {
      const index_t count = std::min(simd::width<Acc>, d - i);
      vec v = (detail::load(x + i, some) - mean) * inverse;
      if (gamma.present()) v = v * simd::load_strided<Acc>(gamma.pointer(i), gamma.stride(0), count);
      if (beta.present()) v = v + simd::load_strided<Acc>(beta.pointer(i), beta.stride(0), count);
      detail::store(u + i, v, some);
    });
  }
};

/// Which second half r has.
enum class dpfp_form {
  paper,  ///< r = [relu(x), relu(−x)]
  fla,    ///< r = [relu(x), −relu(x)]
};

/// φ(x) = [r ⊙ roll(r, 1), …, r ⊙ roll(r, ν)], roll(r, j)_i = r_{i−j} with indices modulo 2 d. x [.., d] to
/// [.., 2 d ν]. Schlag, Irie, Schmidhuber, Linear Transformers Are Secretly Fast Weight Programmers, arXiv:2102.11174.
struct dpfp {
  index_t nu = 1;
  dpfp_form form = dpfp_form::paper;

  static constexpr index_t most = 16;

  index_t features(index_t d) const noexcept { return 2 * d * nu; }

  status check(index_t) const noexcept {
    if (nu >= 1 && nu <= most) return {};
    return status(status_code::value) << "ogive::maps::dpfp: nu = " << nu << " must be in [1, " << most << "]";
  }

  template <class Acc>
  void operator()(view<const Acc, 2> x, view<Acc, 2> y, const map_site&) const noexcept {
    const index_t d = x.extent(1);
    const simd::batch<Acc> zero(Acc(0));
    for (index_t row = 0; row < x.extent(0); ++row) {
      const Acc* from = x.pointer(row, 0);
      Acc* to = y.pointer(row, 0);
      Acc* r = to + (nu - 1) * 2 * d;  // r stands where the last product will
      detail::transform(from, r, d, relu{});
      detail::transform(from, r + d, d,
                        [&](const auto& v) { return form == dpfp_form::paper ? relu{}(zero - v) : zero - relu{}(v); });
      for (index_t j = 1; j <= nu; ++j) rolled_product(r, to + (j - 1) * 2 * d, 2 * d, j);
    }
  }

 private:
  /// out_i = r_i r_{i−j} for n numbers, downwards, so that out may be r.
  template <class Acc>
  static void rolled_product(const Acc* r, Acc* out, index_t n, index_t j) noexcept {
    Acc wrapped[most];
    const index_t head = std::min(j, n);
    for (index_t i = 0; i < head; ++i) wrapped[i] = r[i] * r[((i - j) % n + n) % n];
    index_t end = n;
    for (; end - simd::width<Acc> >= head; end -= simd::width<Acc>) {
      const index_t i = end - simd::width<Acc>;
      simd::store(out + i, simd::load(r + i) * simd::load(r + i - j));
    }
    const index_t left = end - head;
    simd::store(out + head, simd::load(r + head, left) * simd::load(r + head - j, left), left);
    for (index_t i = 0; i < head; ++i) out[i] = wrapped[i];
  }
};

}  // namespace maps
}  // namespace OGIVE_ABI
}  // namespace ogive

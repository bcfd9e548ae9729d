// L4: feature maps whose products are polynomials of q·k, or products of pairs of coordinates.
#pragma once

#include <ogive/maps/elementwise.hpp>
#include <ogive/maps/rows.hpp>

#include <optional>

namespace ogive {
inline namespace OGIVE_ABI {
namespace maps {

namespace detail {

/// s, d^-1/2 unless given.
inline double scale_or_root(const std::optional<double>& scale, index_t d) noexcept {
  return scale.value_or(1 / std::sqrt(static_cast<double>(d)));
}

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

/// Its adjoint, added: d_x_i += f Σ_j d_y_ij x_j, the sum over all j ≠ i.
template <class Acc>
void add_cross_products_adjoint(Acc f, const Acc* x, const Acc* d_y, Acc* d_x, index_t d) noexcept {
  for (index_t i = 0; i + 1 < d; ++i) {
    const index_t n = d - i - 1;
    d_x[i] += f * dot(d_y, x + i + 1, n);
    add_multiple(f * x[i], d_y, d_x + i + 1, n);
    d_y += n;
  }
}

}  // namespace detail

/// φ(x) = [1, √s x, s x_i²/√2, s x_i x_j (i < j)] so that φ(q)·φ(k) = 1 + t + t²/2 with t = s q·k: the Taylor expansion
/// of exp. x [.., d] to [.., 1 + d + d(d + 1)/2]. s is `scale`, d^-1/2 unless given.
/// Arora et al., Simple Linear Attention (Based), arXiv:2402.18668.
struct taylor {
  std::optional<double> scale{};

  static constexpr bool placeless = true;
  index_t features(index_t d) const noexcept { return 1 + d + d * (d + 1) / 2; }

  template <class Acc>
  void operator()(view<const Acc, 2> x, view<Acc, 2> y, const map_site&) const noexcept {
    const index_t d = x.extent(1);
    const double s = detail::scale_or_root(scale, d);
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

  template <class Acc>
  void adjoint(view<const Acc, 2> x, view<const Acc, 2> d_y, view<Acc, 2> d_x, view<Acc, 2>,
               const map_site&) const noexcept {
    const index_t d = x.extent(1);
    const double s = detail::scale_or_root(scale, d);
    const simd::batch<Acc> linear(static_cast<Acc>(std::sqrt(s)));
    const simd::batch<Acc> twice_square(static_cast<Acc>(s * std::sqrt(2.0)));
    for (index_t r = 0; r < x.extent(0); ++r) {
      const Acc* at = x.pointer(r, 0);
      const Acc* from = d_y.pointer(r, 0);
      Acc* to = d_x.pointer(r, 0);
      detail::transform(from + 1, to, d, [&](const auto& v) { return linear * v; });
      detail::for_each_vector<Acc>(d, [&](index_t i, const auto& some) {
        const auto slope = twice_square * detail::load(at + i, some);
        detail::store(to + i, simd::fma(slope, detail::load(from + 1 + d + i, some), detail::load(to + i, some)), some);
      });
      detail::add_cross_products_adjoint(static_cast<Acc>(s), at, from + 1 + 2 * d, to, d);
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

  static constexpr bool placeless = true;
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
    const double s = detail::scale_or_root(scale, d);
    const simd::batch<Acc> square(static_cast<Acc>(s));
    for (index_t r = 0; r < x.extent(0); ++r) {
      Acc* u = y.pointer(r, 0);  // u stands where its squares will
      affine(x.pointer(r, 0), u, d);
      detail::cross_products(static_cast<Acc>(s * std::sqrt(2.0)), u, u + d, d);
      detail::transform(u, u, d, [&](const auto& v) { return square * (v * v); });
    }
  }

  struct gradient {
    view<accum_t<P>, 1> gamma{};
    view<accum_t<P>, 1> beta{};
  };
  template <class F>
  void for_parameters(const gradient& d, const F& f) const noexcept {
    f("map.gamma", gamma, d.gamma), f("map.beta", beta, d.beta);
  }
  index_t adjoint_room(index_t d) const noexcept { return d; }
  template <class Acc>
  void adjoint(view<const Acc, 2> x, view<const Acc, 2> d_y, view<Acc, 2> d_x, view<Acc, 2> room, const map_site&,
               Acc* sums = nullptr) const noexcept {
    const index_t d = x.extent(1);
    const double s = detail::scale_or_root(scale, d);
    const simd::batch<Acc> twice_square(static_cast<Acc>(2 * s));
    for (index_t r = 0; r < x.extent(0); ++r) {
      Acc* u = room.pointer(r, 0);
      const Acc* from = d_y.pointer(r, 0);
      Acc* to = d_x.pointer(r, 0);
      affine(x.pointer(r, 0), u, d);
      detail::transform(u, from, to, d, [&](const auto& v, const auto& d_v) { return twice_square * v * d_v; });
      detail::add_cross_products_adjoint(static_cast<Acc>(s * std::sqrt(2.0)), u, from + d, to, d);
      if (sums != nullptr) add_to_sums(x.pointer(r, 0), to, u, d, sums);
      affine_adjoint(x.pointer(r, 0), to, u, d);
    }
  }

 private:
  /// d_γ += d_u ⊙ norm(x) and d_β += d_u; c is scratch.
  template <class Acc>
  void add_to_sums(const Acc* x, const Acc* d_u, Acc* c, index_t d, Acc* sums) const noexcept {
    if (gamma.present()) {
      const simd::batch<Acc> inverse(centre(x, c, d));
      detail::transform(c, c, d, [&](const auto& v) { return v * inverse; });
      detail::add_products(d_u, c, sums, d);
      sums += d;
    }
    if (beta.present()) detail::add_multiple(Acc(1), d_u, sums, d);
  }

  /// c = x less its mean; returns 1/√(variance + ε). Without `normalise` x itself, and 1.
  template <class Acc>
  Acc centre(const Acc* x, Acc* c, index_t d) const noexcept {
    using vec = simd::batch<Acc>;
    const Acc n = static_cast<Acc>(d);
    const vec mean(normalise ? detail::sum_of(x, d) / n : Acc(0));
    detail::transform(x, c, d, [&](const vec& v) { return v - mean; });
    return normalise ? Acc(1) / std::sqrt(detail::squared_norm(c, d) / n + static_cast<Acc>(eps)) : Acc(1);
  }

  /// u = γ ⊙ norm(x) + β
  template <class Acc>
  void affine(const Acc* x, Acc* u, index_t d) const noexcept {
    using vec = simd::batch<Acc>;
    const vec inverse(centre(x, u, d));
    detail::for_each_vector<Acc>(d, [&](index_t i, const auto& some) {
      vec v = times_gamma(detail::load(u + i, some) * inverse, i, d);
      if (beta.present()) v = v + simd::load_strided<Acc>(beta.pointer(i), beta.stride(0), lanes_left<Acc>(i, d));
      detail::store(u + i, v, some);
    });
  }

  /// d_u becomes d_x = (e − mean e − n mean(e ⊙ n)) / √(variance + ε) with e = γ ⊙ d_u, n = norm(x); c is scratch.
  template <class Acc>
  void affine_adjoint(const Acc* x, Acc* d_u, Acc* c, index_t d) const noexcept {
    using vec = simd::batch<Acc>;
    detail::for_each_vector<Acc>(d, [&](index_t i, const auto& some) {
      detail::store(d_u + i, times_gamma(detail::load(d_u + i, some), i, d), some);
    });
    if (!normalise) return;
    const Acc inverse = centre(x, c, d);
    const Acc n = static_cast<Acc>(d);
    const vec mean(detail::sum_of(d_u, d) / n);
    const vec along(detail::dot(d_u, c, d) / n * inverse * inverse);
    detail::transform(d_u, c, d_u, d,
                      [&](const vec& e, const vec& v) { return vec(inverse) * simd::fnma(along, v, e - mean); });
  }

  template <class Acc>
  simd::batch<Acc> times_gamma(const simd::batch<Acc>& v, index_t i, index_t d) const noexcept {
    return gamma.present() ? v * simd::load_strided<Acc>(gamma.pointer(i), gamma.stride(0), lanes_left<Acc>(i, d)) : v;
  }
  template <class Acc>
  static index_t lanes_left(index_t i, index_t d) noexcept {
    return std::min(simd::width<Acc>, d - i);
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

  static constexpr bool placeless = true;
  index_t features(index_t d) const noexcept { return 2 * d * nu; }

  status check(index_t) const noexcept {
    if (nu >= 1 && nu <= most) return {};
    return status(status_code::value) << "ogive::maps::dpfp: nu = " << nu << " must be in [1, " << most << "]";
  }

  template <class Acc>
  void operator()(view<const Acc, 2> x, view<Acc, 2> y, const map_site&) const noexcept {
    const index_t d = x.extent(1);
    for (index_t row = 0; row < x.extent(0); ++row) {
      Acc* to = y.pointer(row, 0);
      Acc* r = to + (nu - 1) * 2 * d;  // r stands where the last product will
      halves(x.pointer(row, 0), r, d);
      for (index_t j = 1; j <= nu; ++j) rolled_product(r, to + (j - 1) * 2 * d, 2 * d, j);
    }
  }

  index_t adjoint_room(index_t d) const noexcept { return 4 * d; }
  template <class Acc>
  void adjoint(view<const Acc, 2> x, view<const Acc, 2> d_y, view<Acc, 2> d_x, view<Acc, 2> room,
               const map_site&) const noexcept {
    using vec = simd::batch<Acc>;
    const index_t d = x.extent(1);
    for (index_t row = 0; row < x.extent(0); ++row) {
      const Acc* at = x.pointer(row, 0);
      Acc* r = room.pointer(row, 0);
      Acc* d_r = r + 2 * d;
      halves(at, r, d);
      for (index_t i = 0; i < 2 * d; ++i) d_r[i] = Acc(0);
      for (index_t j = 1; j <= nu; ++j) add_rolled_adjoint(r, d_y.pointer(row, 0) + (j - 1) * 2 * d, d_r, 2 * d, j);
      detail::for_each_vector<Acc>(d, [&](index_t i, const auto& some) {
        const vec v = detail::load(at + i, some);
        const vec second = form == dpfp_form::paper ? relu{}.slope(-v) : relu{}.slope(v);
        const vec sum = relu{}.slope(v) * detail::load(d_r + i, some);
        detail::store(d_x.pointer(row, i), simd::fnma(second, detail::load(d_r + d + i, some), sum), some);
      });
    }
  }

 private:
  /// r [2 d]
  template <class Acc>
  void halves(const Acc* x, Acc* r, index_t d) const noexcept {
    const simd::batch<Acc> zero(Acc(0));
    detail::transform(x, r, d, relu{});
    detail::transform(x, r + d, d,
                      [&](const auto& v) { return form == dpfp_form::paper ? relu{}(zero - v) : zero - relu{}(v); });
  }

  /// (i − j) modulo n
  static index_t rolled(index_t i, index_t j, index_t n) noexcept { return ((i - j) % n + n) % n; }

  /// out_i = r_i r_{i−j} for n numbers, downwards, so that out may be r.
  template <class Acc>
  static void rolled_product(const Acc* r, Acc* out, index_t n, index_t j) noexcept {
    Acc wrapped[most];
    const index_t head = std::min(j, n);
    for (index_t i = 0; i < head; ++i) wrapped[i] = r[i] * r[rolled(i, j, n)];
    index_t end = n;
    for (; end - simd::width<Acc> >= head; end -= simd::width<Acc>) {
      const index_t i = end - simd::width<Acc>;
      simd::store(out + i, simd::load(r + i) * simd::load(r + i - j));
    }
    const index_t left = end - head;
    simd::store(out + head, simd::load(r + head, left) * simd::load(r + head - j, left), left);
    for (index_t i = 0; i < head; ++i) out[i] = wrapped[i];
  }

  /// Its adjoint, added: d_r_i += d_i r_{i−j} and d_r_{i−j} += d_i r_i.
  template <class Acc>
  static void add_rolled_adjoint(const Acc* r, const Acc* d_out, Acc* d_r, index_t n, index_t j) noexcept {
    const index_t head = std::min(j, n);
    for (index_t i = 0; i < head; ++i) {
      const index_t k = rolled(i, j, n);
      d_r[i] += d_out[i] * r[k];
      d_r[k] += d_out[i] * r[i];
    }
    detail::add_products(d_out + head, r, d_r + head, n - head);
    detail::add_products(d_out + head, r + head, d_r, n - head);
  }
};

}  // namespace maps
}  // namespace OGIVE_ABI
}  // namespace ogive

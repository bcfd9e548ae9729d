// L1*: every feature map by its formula: rows in, rows of features out, in any scalar.
//
// All take x [rows, d] and give [rows, features]. φ(q)·φ(k) stands for a similarity; which one, and from where, is said
// at each map.
#pragma once

#include <ogive/reference/layout.hpp>

#include <cmath>
#include <numbers>
#include <optional>
#include <type_traits>

namespace ogive::reference {

/// f at every element.
template <class Acc, class T, class F>
tensor<Acc, 2> elementwise(const view<T, 2>& x, const F& f) {
  tensor<Acc, 2> y(x.extents(), Acc(0));
  for (index_t r = 0; r < x.extent(0); ++r) {
    for (index_t c = 0; c < x.extent(1); ++c) y(r, c) = f(lift<Acc>(x(r, c)));
  }
  return y;
}

template <class Acc, class T>
tensor<Acc, 2> identity(const view<T, 2>& x) {
  return elementwise<Acc>(x, [](const Acc& a) { return a; });
}

/// elu(x) + 1: eˣ below 0, x + 1 above. Katharopoulos et al. 2020, arXiv:2006.16236.
template <class Acc, class T>
tensor<Acc, 2> elu1(const view<T, 2>& x) {
  using std::exp;
  return elementwise<Acc>(x, [](const Acc& a) { return a < Acc(0) ? exp(a) : a + Acc(1); });
}

/// max(x, 0)
template <class Acc>
Acc positive_part(const Acc& x) {
  return x < Acc(0) ? Acc(0) : x;
}

template <class Acc, class T>
tensor<Acc, 2> relu(const view<T, 2>& x) {
  return elementwise<Acc>(x, [](const Acc& a) { return positive_part(a); });
}

/// max(x, 0)²
template <class Acc, class T>
tensor<Acc, 2> squared_relu(const view<T, 2>& x) {
  return elementwise<Acc>(x, [](const Acc& a) { return positive_part(a) * positive_part(a); });
}

template <class Acc, class T>
tensor<Acc, 2> exponential(const view<T, 2>& x) {
  using std::exp;
  return elementwise<Acc>(x, [](const Acc& a) { return exp(a); });
}

/// exp(x_i) / Σ_j exp(x_j) along the row, without overflow.
template <class Acc, class T>
tensor<Acc, 2> softmax(const view<T, 2>& x) {
  using std::exp;
  tensor<Acc, 2> y = identity<Acc>(x);
  for (index_t r = 0; r < y.extent(0); ++r) {
    Acc highest = y(r, 0);
    for (index_t c = 0; c < y.extent(1); ++c) highest = highest < y(r, c) ? y(r, c) : highest;
    Acc total(0);
    for (index_t c = 0; c < y.extent(1); ++c) {
      y(r, c) = exp(y(r, c) - highest);
      total = total + y(r, c);
    }
    for (index_t c = 0; c < y.extent(1); ++c) y(r, c) = y(r, c) / total;
  }
  return y;
}

/// x Wᵀ + b. W [m, d], b [m] or absent.
template <class Acc, class T, class U>
tensor<Acc, 2> affine(const view<T, 2>& x, const view<U, 2>& W, const std::type_identity_t<view<const U, 1>>& b = {}) {
  tensor<Acc, 2> y({x.extent(0), W.extent(0)}, Acc(0));
  for (index_t r = 0; r < y.extent(0); ++r) {
    for (index_t m = 0; m < y.extent(1); ++m) {
      for (index_t c = 0; c < x.extent(1); ++c) y(r, m) = y(r, m) + lift<Acc>(W(m, c)) * lift<Acc>(x(r, c));
      if (b.present()) y(r, m) = y(r, m) + lift<Acc>(b(m));
    }
  }
  return y;
}

/// s x
template <class Acc, class T>
tensor<Acc, 2> scaled(const view<T, 2>& x, const Acc& s) {
  return elementwise<Acc>(x, [&](const Acc& a) { return s * a; });
}

/// |x|² of row r
template <class Acc, class T>
Acc squared_norm(const view<T, 2>& x, index_t r) {
  Acc sum(0);
  for (index_t c = 0; c < x.extent(1); ++c) sum = sum + lift<Acc>(x(r, c)) * lift<Acc>(x(r, c));
  return sum;
}

/// Columns of a, then columns of b.
template <class Acc>
tensor<Acc, 2> joined(const tensor<Acc, 2>& a, const tensor<Acc, 2>& b) {
  tensor<Acc, 2> y({a.extent(0), a.extent(1) + b.extent(1)}, Acc(0));
  for (index_t r = 0; r < y.extent(0); ++r) {
    for (index_t c = 0; c < y.extent(1); ++c) y(r, c) = c < a.extent(1) ? a(r, c) : b(r, c - a.extent(1));
  }
  return y;
}

/// What FAVOR+ subtracts in the exponent so that it does not overflow.
enum class stabiliser {
  none,
  row,       ///< the row's own maximum of w·x: queries, and keys of a causal pass where ε is 0 or the scale is kept
  all_rows,  ///< the maximum over all rows given: keys of a non-causal pass
};

/// FAVOR+, positive random features of exp(q·k/√d): φ_j = M^−½ (exp(w_j·s x − s²|x|²/2 − stab) + ε), s = d^−¼ (or 1
/// where the data are taken as they are). W [M, d]. Choromanski et al. 2020, arXiv:2009.14794, as performer-pytorch.
template <class Acc, class T, class U>
tensor<Acc, 2> favor(const view<T, 2>& x, const view<U, 2>& W, stabiliser stabilise, double eps = 1e-4,
                     bool normalise_data = true) {
  using std::exp;
  using std::sqrt;
  const index_t d = x.extent(1);
  const index_t M = W.extent(0);
  const Acc s = normalise_data ? Acc(1) / sqrt(sqrt(static_cast<Acc>(d))) : Acc(1);
  const auto sx = scaled<Acc>(x, s);
  auto y = affine<Acc>(sx.all(), W);
  const auto highest = [&](index_t first, index_t last) {
    Acc most = y(first, 0);
    for (index_t r = first; r < last; ++r) {
      for (index_t m = 0; m < M; ++m) most = most < y(r, m) ? y(r, m) : most;
    }
    return most;
  };
  const bool together = stabilise == stabiliser::all_rows && y.size() > 0;
  const Acc overall = together ? highest(0, y.extent(0)) : Acc(0);
  for (index_t r = 0; r < y.extent(0); ++r) {
    const Acc stab = stabilise == stabiliser::row ? highest(r, r + 1) : overall;
    const Acc half = squared_norm<Acc>(sx.all(), r) / Acc(2);
    for (index_t m = 0; m < M; ++m) {
      y(r, m) = (exp(y(r, m) - half - stab) + static_cast<Acc>(eps)) / sqrt(static_cast<Acc>(M));
    }
  }
  return y;
}

/// FAVOR+ with pairs ±w: y = √t x, φ = [exp(y·w − o), exp(−y·w − o)], o = |y|²/2 + log(n)/2, n features, plus the
/// maximum of |y|² over the rows if stabilised. W [n/2, d]; t = d^−½ unless given. As fast-transformers.
template <class Acc, class T, class U>
tensor<Acc, 2> favor_pairs(const view<T, 2>& x, const view<U, 2>& W, std::optional<double> temperature = {},
                           bool stabilise = false) {
  using std::exp;
  using std::log;
  using std::sqrt;
  const index_t n = 2 * W.extent(0);
  const Acc d = static_cast<Acc>(x.extent(1));
  const Acc t = temperature ? static_cast<Acc>(*temperature) : Acc(1) / sqrt(d);
  const auto scaled_x = scaled<Acc>(x, sqrt(t));
  const auto wy = affine<Acc>(scaled_x.all(), W);
  Acc highest(0);
  for (index_t r = 0; stabilise && r < x.extent(0); ++r) {
    const Acc norm = squared_norm<Acc>(scaled_x.all(), r);
    highest = highest < norm ? norm : highest;
  }
  tensor<Acc, 2> y({x.extent(0), n}, Acc(0));
  for (index_t r = 0; r < y.extent(0); ++r) {
    const Acc o = squared_norm<Acc>(scaled_x.all(), r) / Acc(2) + log(static_cast<Acc>(n)) / Acc(2) + highest;
    for (index_t m = 0; m < n; ++m) y(r, m) = m < n / 2 ? exp(wy(r, m) - o) : exp(-wy(r, m - n / 2) - o);
  }
  return y;
}

/// Generalised kernel features: f(W s x) + ε with f = relu, s = d^−¼ or 1. W [M, d], or absent: f(s x) + ε. With ε = 0
/// and s² the temperature it is fast-transformers' form. Choromanski et al. 2020, arXiv:2009.14794.
template <class Acc, class T, class U>
tensor<Acc, 2> generalised(const view<T, 2>& x, const view<U, 2>& W, const Acc& s, double eps = 1e-3) {
  const auto sx = scaled<Acc>(x, s);
  return elementwise<Acc>((W.present() ? affine<Acc>(sx.all(), W) : sx).all(),
                          [&](const Acc& a) { return positive_part(a) + static_cast<Acc>(eps); });
}

/// Random Fourier features of the Gaussian kernel: u = √t W x, φ = √(2/n) [cos u, sin u], and one constant more if
/// smoothed. W [n/2, d]; t = d^−½ unless given. Rahimi and Recht 2007.
template <class Acc, class T, class U>
tensor<Acc, 2> random_fourier(const view<T, 2>& x, const view<U, 2>& W, std::optional<double> temperature = {},
                              std::optional<double> smoothing = {}) {
  using std::cos;
  using std::sin;
  using std::sqrt;
  const Acc t = temperature ? static_cast<Acc>(*temperature) : Acc(1) / sqrt(static_cast<Acc>(x.extent(1)));
  const auto u = affine<Acc>(scaled<Acc>(x, sqrt(t)).all(), W);
  const Acc norm = sqrt(Acc(1) / static_cast<Acc>(W.extent(0)));
  const auto waves = joined(elementwise<Acc>(u.all(), [&](const Acc& a) { return norm * cos(a); }),
                            elementwise<Acc>(u.all(), [&](const Acc& a) { return norm * sin(a); }));
  if (!smoothing) return waves;
  return joined(waves, tensor<Acc, 2>({x.extent(0), 1}, static_cast<Acc>(*smoothing)));
}

/// Random feature attention: φ = exp(|x|²/2) D^−½ [sin(W x), cos(W x)], so that φ(q)·φ(k) ≈ exp(q·k); `normalised`:
/// x has length 1 first and the exponential is left out. W [D, d]. Peng et al. 2021, arXiv:2103.02143.
template <class Acc, class T, class U>
tensor<Acc, 2> random_features(const view<T, 2>& x, const view<U, 2>& W, bool normalised = false) {
  using std::cos;
  using std::exp;
  using std::sin;
  using std::sqrt;
  auto scaled_x = identity<Acc>(x);
  auto amplitude = tensor<Acc, 1>({x.extent(0)}, Acc(1));
  for (index_t r = 0; r < x.extent(0); ++r) {
    const Acc square = squared_norm<Acc>(x, r);
    if (!normalised) amplitude(r) = exp(square / Acc(2));
    for (index_t c = 0; normalised && c < x.extent(1); ++c) scaled_x(r, c) = scaled_x(r, c) / sqrt(square);
  }
  const index_t D = W.extent(0);
  const auto u = affine<Acc>(scaled_x.all(), W);
  tensor<Acc, 2> y({x.extent(0), 2 * D}, Acc(0));
  for (index_t r = 0; r < y.extent(0); ++r) {
    for (index_t m = 0; m < 2 * D; ++m) {
      y(r, m) = amplitude(r) / sqrt(static_cast<Acc>(D)) * (m < D ? sin(u(r, m)) : cos(u(r, m - D)));
    }
  }
  return y;
}

/// [x_i²]_i then [x_i x_j]_{i<j}, each with its factor: the quadratic part of the two maps below.
template <class Acc, class T>
tensor<Acc, 2> squares(const view<T, 2>& x, const Acc& same, const Acc& cross) {
  const index_t d = x.extent(1);
  tensor<Acc, 2> y({x.extent(0), d + d * (d - 1) / 2}, Acc(0));
  for (index_t r = 0; r < y.extent(0); ++r) {
    index_t m = d;
    for (index_t i = 0; i < d; ++i) {
      y(r, i) = same * lift<Acc>(x(r, i)) * lift<Acc>(x(r, i));
      for (index_t j = i + 1; j < d; ++j) y(r, m++) = cross * lift<Acc>(x(r, i)) * lift<Acc>(x(r, j));
    }
  }
  return y;
}

/// Taylor expansion of exp(q·k/√d) to second order: [1, x d^−¼, x_i²/√(2d), x_i x_j/√d for i < j], so that
/// φ(q)·φ(k) = 1 + s + s²/2, s = q·k/√d. Based: Arora et al. 2024, arXiv:2402.18668.
template <class Acc, class T>
tensor<Acc, 2> taylor(const view<T, 2>& x) {
  using std::sqrt;
  const Acc root = sqrt(static_cast<Acc>(x.extent(1)));
  const auto constant = tensor<Acc, 2>({x.extent(0), 1}, Acc(1));
  const auto linear = scaled<Acc>(x, Acc(1) / sqrt(root));
  return joined(joined(constant, linear), squares<Acc>(x, Acc(1) / (sqrt(Acc(2)) * root), Acc(1) / root));
}

/// ReBased: y = γ norm(x) + β, then [y_i²/√d, √(2/d) y_i y_j for i < j], so that φ(q)·φ(k) = (y_q·y_k)²/d. norm is the
/// layer norm of the row, left out if not wanted; γ, β [d] or absent. Aksenov et al. 2024, arXiv:2402.10644.
template <class Acc, class T, class U = Acc>
tensor<Acc, 2> rebased(const view<T, 2>& x, bool normalise = true, const view<const U, 1>& gamma = {},
                       const view<const U, 1>& beta = {}, double eps = 1e-5) {
  using std::sqrt;
  const index_t d = x.extent(1);
  const Acc n = static_cast<Acc>(d);
  auto y = identity<Acc>(x);
  for (index_t r = 0; r < y.extent(0); ++r) {
    Acc mean(0);
    Acc variance(0);
    for (index_t c = 0; c < d; ++c) mean = mean + y(r, c) / n;
    for (index_t c = 0; c < d; ++c) variance = variance + (y(r, c) - mean) * (y(r, c) - mean) / n;
    for (index_t c = 0; c < d; ++c) {
      if (normalise) y(r, c) = (y(r, c) - mean) / sqrt(variance + static_cast<Acc>(eps));
      if (gamma.present()) y(r, c) = y(r, c) * lift<Acc>(gamma(c));
      if (beta.present()) y(r, c) = y(r, c) + lift<Acc>(beta(c));
    }
  }
  return squares<Acc>(y.all(), Acc(1) / sqrt(n), sqrt(Acc(2) / n));
}

/// Deterministic parameter-free projection: r = [relu(x), relu(−x)], φ = concat_{j=1..ν} r ∘ roll(r, j),
/// roll(r, j)_i = r_{i−j}. `mirrored` takes −relu(x) as the second half, as flash-linear-attention does.
/// Schlag et al. 2021, arXiv:2102.11174.
template <class Acc, class T>
tensor<Acc, 2> dpfp(const view<T, 2>& x, index_t nu, bool mirrored = false) {
  const auto right = relu<Acc>(x);
  const auto r = joined(right, mirrored ? scaled<Acc>(right.all(), Acc(-1)) : relu<Acc>(scaled<Acc>(x, Acc(-1)).all()));
  const index_t n = r.extent(1);
  tensor<Acc, 2> y({x.extent(0), n * nu}, Acc(0));
  for (index_t row = 0; row < y.extent(0); ++row) {
    for (index_t j = 1; j <= nu; ++j) {
      for (index_t i = 0; i < n; ++i) y(row, (j - 1) * n + i) = r(row, i) * r(row, ((i - j) % n + n) % n);
    }
  }
  return y;
}

/// cosFormer: [relu(x) sin θ_p, relu(x) cos θ_p], θ_p = πp/(2M), p = first + row. Qin et al. 2022, arXiv:2202.08791.
template <class Acc, class T>
tensor<Acc, 2> cosformer(const view<T, 2>& x, index_t M, index_t first) {
  using std::cos;
  using std::sin;
  auto sine = relu<Acc>(x);
  auto cosine = sine;
  for (index_t r = 0; r < x.extent(0); ++r) {
    const Acc theta = static_cast<Acc>(std::numbers::pi) * static_cast<Acc>(first + r) / static_cast<Acc>(2 * M);
    for (index_t c = 0; c < x.extent(1); ++c) {
      sine(r, c) = sine(r, c) * sin(theta);
      cosine(r, c) = cosine(r, c) * cos(theta);
    }
  }
  return joined(sine, cosine);
}

/// Hedgehog: [exp(y), exp(−y)], y = x Wᵀ + b. Zhang et al. 2024, arXiv:2402.04347, equation (6).
template <class Acc, class T, class U>
tensor<Acc, 2> hedgehog(const view<T, 2>& x, const view<U, 2>& W,
                        const std::type_identity_t<view<const U, 1>>& b = {}) {
  const auto y = affine<Acc>(x, W, b);
  return joined(exponential<Acc>(y.all()), exponential<Acc>(scaled<Acc>(y.all(), Acc(-1)).all()));
}

/// Hedgehog with the row normalised: softmax([2y, −2y]), y = x Wᵀ + b. As flash-linear-attention.
template <class Acc, class T, class U>
tensor<Acc, 2> hedgehog_softmax(const view<T, 2>& x, const view<U, 2>& W,
                                const std::type_identity_t<view<const U, 1>>& b = {}) {
  const auto y = affine<Acc>(x, W, b);
  return softmax<Acc>(joined(scaled<Acc>(y.all(), Acc(2)), scaled<Acc>(y.all(), Acc(-2))).all());
}

/// T2R: relu(x Wᵀ + b), learned. Kasai et al. 2021, arXiv:2103.13076.
template <class Acc, class T, class U>
tensor<Acc, 2> t2r(const view<T, 2>& x, const view<U, 2>& W, const std::type_identity_t<view<const U, 1>>& b = {}) {
  return relu<Acc>(affine<Acc>(x, W, b).all());
}

/// A map [rows, d] → [rows, features] over every sequence and head of x [B,L,H,d]: `map(x[b, :, h, :], b, h)`.
template <class Acc, class T, class Map>
tensor<Acc, 4> for_heads(const view<T, 4>& x, const Map& map) {
  tensor<Acc, 4> y;
  for (index_t b = 0; b < x.extent(0); ++b) {
    for (index_t h = 0; h < x.extent(2); ++h) {
      const tensor<Acc, 2> rows = map(x[b].permute({1, 0, 2})[h], b, h);
      if (y.size() == 0) y = tensor<Acc, 4>({x.extent(0), x.extent(1), x.extent(2), rows.extent(1)}, Acc(0));
      for (index_t r = 0; r < rows.extent(0); ++r) {
        for (index_t c = 0; c < rows.extent(1); ++c) y(b, r, h, c) = rows(r, c);
      }
    }
  }
  return y;
}

}  // namespace ogive::reference

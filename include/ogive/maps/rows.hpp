// L4: what row maps are written with: loops over a row a vector at a time, and the product of rows with a projection.
#pragma once

#include <ogive/linalg/gemm.hpp>
#include <ogive/maps/feature_map.hpp>

#include <cmath>

namespace ogive {
inline namespace OGIVE_ABI {
namespace maps::detail {

/// Stands for simd::lanes where every lane counts.
struct all_lanes {};

template <class Acc>
OGIVE_INLINE simd::batch<Acc> load(const Acc* p, all_lanes) noexcept {
  return simd::load(p);
}
template <class Acc>
OGIVE_INLINE simd::batch<Acc> load(const Acc* p, const simd::lanes<Acc>& some) noexcept {
  return simd::load(p, some);
}
template <class Acc>
OGIVE_INLINE void store(Acc* p, const simd::batch<Acc>& x, all_lanes) noexcept {
  simd::store(p, x);
}
template <class Acc>
OGIVE_INLINE void store(Acc* p, const simd::batch<Acc>& x, const simd::lanes<Acc>& some) noexcept {
  simd::store(p, x, some);
}

/// f(i, lanes) for the vectors that cover n numbers, the last one perhaps in part.
template <class Acc, class F>
OGIVE_INLINE void for_each_vector(index_t n, const F& f) noexcept {
  index_t i = 0;
  for (; i + simd::width<Acc> <= n; i += simd::width<Acc>) f(i, all_lanes{});
  if (i < n) f(i, simd::lanes<Acc>(n - i));
}

/// y_i = f(x_i); x may be y.
template <class Acc, class F>
OGIVE_INLINE void transform(const Acc* x, Acc* y, index_t n, const F& f) noexcept {
  for_each_vector<Acc>(n,
                       [&](index_t i, const auto& some) { detail::store(y + i, f(detail::load(x + i, some)), some); });
}

/// z_i = f(x_i, y_i); z may be either.
template <class Acc, class F>
OGIVE_INLINE void transform(const Acc* x, const Acc* y, Acc* z, index_t n, const F& f) noexcept {
  for_each_vector<Acc>(n, [&](index_t i, const auto& some) {
    detail::store(z + i, f(detail::load(x + i, some), detail::load(y + i, some)), some);
  });
}

/// Σ x_i y_i
template <class Acc>
Acc dot(const Acc* x, const Acc* y, index_t n) noexcept {
  simd::batch<Acc> sum(Acc(0));
  for_each_vector<Acc>(n, [&](index_t i, const auto& some) {
    sum = simd::fma(detail::load(x + i, some), detail::load(y + i, some), sum);
  });
  return simd::reduce_add(sum);
}

/// Σ x_i²
template <class Acc>
Acc squared_norm(const Acc* x, index_t n) noexcept {
  return dot(x, x, n);
}

/// y_i += f x_i
template <class Acc>
void add_multiple(Acc f, const Acc* x, Acc* y, index_t n) noexcept {
  const simd::batch<Acc> factor(f);
  transform(x, y, y, n, [&](const auto& v, const auto& sum) { return simd::fma(factor, v, sum); });
}

/// z_i += x_i y_i
template <class Acc>
void add_products(const Acc* x, const Acc* y, Acc* z, index_t n) noexcept {
  for_each_vector<Acc>(n, [&](index_t i, const auto& some) {
    const auto sum = detail::load(z + i, some);
    detail::store(z + i, simd::fma(detail::load(x + i, some), detail::load(y + i, some), sum), some);
  });
}

/// z_i = a_i b_i − c_i d_i; z may be any of them.
template <class Acc>
void difference_of_products(const Acc* a, const Acc* b, const Acc* c, const Acc* d, Acc* z, index_t n) noexcept {
  for_each_vector<Acc>(n, [&](index_t i, const auto& some) {
    const auto less = detail::load(c + i, some) * detail::load(d + i, some);
    detail::store(z + i, detail::load(a + i, some) * detail::load(b + i, some) - less, some);
  });
}

/// Σ x_i
template <class Acc>
Acc sum_of(const Acc* x, index_t n) noexcept {
  simd::batch<Acc> sum(Acc(0));
  for_each_vector<Acc>(n, [&](index_t i, const auto& some) { sum = sum + detail::load(x + i, some); });
  return simd::reduce_add(sum);
}

/// max x_i; what lies beyond n does not count. n ≥ 1.
template <class Acc>
Acc maximum(const Acc* x, index_t n) noexcept {
  simd::batch<Acc> best(x[0]);
  index_t i = 0;
  for (; i + simd::width<Acc> <= n; i += simd::width<Acc>) best = simd::max(simd::load(x + i), best);
  Acc result = simd::reduce_max(best);
  for (; i < n; ++i) result = result < x[i] ? x[i] : result;
  return result;
}

/// C = f Σ
template <class Acc>
struct scaled {
  Acc f;
  static constexpr bool reads = false;
  template <class V>
  OGIVE_INLINE V operator()(index_t, index_t, V sum, V) const noexcept {
    return V(f) * sum;
  }
};

/// C = C + f Σ
template <class Acc>
struct scaled_add {
  Acc f;
  static constexpr bool reads = true;
  template <class V>
  OGIVE_INLINE V operator()(index_t, index_t, V sum, V c) const noexcept {
    return simd::fma(V(f), sum, c);
  }
};

/// out [d, M] = Wᵀ for W [M, d].
template <class Acc, class P>
void turn(const view<const P, 2>& W, const linalg::panel<Acc>& out) noexcept {
  if constexpr (std::is_same_v<Acc, P>) {
    if (W.stride(1) == 1) return linalg::transpose(W.extent(0), W.extent(1), {W.data(), W.stride(0)}, out);
  }
  for (index_t j = 0; j < W.extent(0); ++j)
    for (index_t i = 0; i < W.extent(1); ++i) out.row(i)[j] = static_cast<Acc>(W(j, i));
}

/// y = f · x Wᵀ: x [rows, d], W [M, d] of any strides and type, y [rows, ≥ M]. Features side by side in memory (as
/// gaussian_projection and orthogonal_projection lay them) are used as they lie, others are turned round block by
/// block on the stack.
template <class Acc, class P>
void project(Acc f, const view<const Acc, 2>& x, const view<const P, 2>& W, const view<Acc, 2>& y) noexcept {
  const index_t rows = x.extent(0);
  const index_t d = x.extent(1);
  const index_t M = W.extent(0);
  const linalg::panel<const Acc> X{x.data(), x.stride(0)};
  const linalg::panel<Acc> Y{y.data(), y.stride(0)};
  if constexpr (std::is_same_v<Acc, P>) {
    if (W.stride(0) == 1) {
      linalg::gemm_ab(rows, M, d, X, {W.data(), W.stride(1)}, Y, scaled<Acc>{f});
      return;
    }
  }
  constexpr index_t held = 4096;
  constexpr index_t width = simd::width<Acc>;
  alignas(64) Acc turned[held];
  const index_t across = std::max<index_t>(held / std::max<index_t>(d, 1) / width, 1) * width;
  const index_t deep = held / across;
  for (index_t j = 0; j < M; j += across) {
    const index_t columns = std::min(across, M - j);
    const linalg::panel<Acc> to{Y.data + j, Y.stride};
    for (index_t i = 0; i < d || i == 0; i += deep) {
      const index_t depth = std::min(deep, d - i);
      turn(W.slice(0, j, columns).slice(1, i, depth), linalg::panel<Acc>{turned, across});
      if (i == 0) {
        linalg::gemm_ab(rows, columns, depth, X, {turned, across}, to, scaled<Acc>{f});
      } else {
        linalg::gemm_ab(rows, columns, depth, {X.data + i, X.stride}, {turned, across}, to, scaled_add<Acc>{f});
      }
    }
  }
}

/// The adjoint of maps of u = f · x Wᵀ: d_x = f · d_u W, where pull(y, d_y) makes a row of d_u, M numbers, of a row
/// y = φ(x), in its place. Rows of φ(x) are in `room`.
template <class Acc, class P, class Pull>
void pull_projected(Acc f, const view<const P, 2>& W, const view<const Acc, 2>& d_y, const view<Acc, 2>& room,
                    const view<Acc, 2>& d_x, const Pull& pull) noexcept {
  for (index_t r = 0; r < room.extent(0); ++r) pull(room.pointer(r, 0), d_y.pointer(r, 0));
  project<Acc>(f, room.slice(1, 0, W.extent(0)), W.permute({1, 0}), d_x);
}

/// A projection must be there, have features, and take rows of d numbers.
template <class P>
status check_projection(const char* map, const char* field, const view<const P, 2>& W, index_t d) noexcept {
  if (W.present() && W.extent(0) >= 1 && W.extent(1) == d) return {};
  if (W.present() && W.extent(0) < 1) {
    return status(status_code::value) << map << ": " << field << " has " << W.extent(0)
                                      << " features, must have at least 1";
  }
  if (!W.present())
    return status(status_code::shape) << map << ": " << field << " is absent; give [features, " << d << "]";
  return status(status_code::shape) << map << ": " << field << " has shape " << std::span<const index_t>(W.extents())
                                    << ", rows of " << d << " numbers need [" << W.extent(0) << ", " << d << "]";
}

}  // namespace maps::detail
}  // namespace OGIVE_ABI
}  // namespace ogive

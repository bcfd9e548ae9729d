// L4: softmax over the features of a row, and the maps whose weights are learned. W is [features, d] as a linear layer
// keeps it, in any strides and either type; b may be absent. Their gradients are sums over all rows.
#pragma once

#include <ogive/maps/elementwise.hpp>
#include <ogive/maps/rows.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace maps {

/// φ(x)_i = exp x_i / Σ_j exp x_j. Shen et al., Efficient Attention, arXiv:1812.01243 (the queries' side).
struct softmax {
  index_t features(index_t d) const noexcept { return d; }

  template <class Acc>
  void operator()(view<const Acc, 2> x, view<Acc, 2> y, const map_site&) const noexcept {
    const index_t d = x.extent(1);
    if (d == 0) return;
    for (index_t r = 0; r < x.extent(0); ++r) {
      const Acc* from = x.pointer(r, 0);
      Acc* to = y.pointer(r, 0);
      const simd::batch<Acc> highest(detail::maximum(from, d));
      detail::transform(from, to, d, [&](const auto& v) { return simd::exp(v - highest); });
      const simd::batch<Acc> inverse(Acc(1) / detail::sum_of(to, d));
      detail::transform(to, to, d, [&](const auto& v) { return v * inverse; });
    }
  }

  template <class Acc>
  void adjoint(view<const Acc, 2> x, view<const Acc, 2> d_y, view<Acc, 2> d_x, view<Acc, 2>,
               const map_site& first) const noexcept {
    (*this)(x, d_x, first);
    for (index_t r = 0; r < x.extent(0); ++r)
      pull(d_x.pointer(r, 0), d_y.pointer(r, 0), d_x.pointer(r, 0), x.extent(1));
  }

  /// d_x = y ⊙ (d_y − y·d_y) for a row y = φ(x); d_x may be y.
  template <class Acc>
  static void pull(const Acc* y, const Acc* d_y, Acc* d_x, index_t n) noexcept {
    const simd::batch<Acc> mean(detail::dot(y, d_y, n));
    detail::transform(y, d_y, d_x, n, [&](const auto& v, const auto& d) { return v * (d - mean); });
  }
};

namespace detail {

/// The gradients of W and b.
template <class P>
struct affine_gradient {
  view<accum_t<P>, 2> W{};
  view<accum_t<P>, 1> b{};
};

/// x Wᵀ + b, the part that learned maps share.
template <class P>
struct affine {
  view<const P, 2> W;    // [M, d]
  view<const P, 1> b{};  // [M]

  template <class F>
  void for_parameters(const affine_gradient<P>& d, const F& f) const noexcept {
    f("map.W", W, d.W), f("map.b", b, d.b);
  }

  status check(const char* map, index_t d) const noexcept {
    status projection = check_projection(map, "W", W, d);
    if (projection && b.present() && b.extent(0) != W.extent(0)) {
      return status(status_code::shape) << map << ": b has " << b.extent(0) << " elements, W has " << W.extent(0)
                                        << " features";
    }
    return projection;
  }

  template <class Acc>
  void operator()(const view<const Acc, 2>& x, const view<Acc, 2>& y) const noexcept {
    project(Acc(1), x, W, y);
    if (!b.present()) return;
    for (index_t r = 0; r < y.extent(0); ++r) {
      for_each_vector<Acc>(W.extent(0), [&](index_t j, const auto& some) {
        const index_t count = std::min(simd::width<Acc>, W.extent(0) - j);
        const auto bias = simd::load_strided<Acc>(b.pointer(j), b.stride(0), count);
        detail::store(y.pointer(r, j), detail::load(y.pointer(r, j), some) + bias, some);
      });
    }
  }

  /// The adjoint of a map of u = f (x Wᵀ + b): pull_projected, and d_W += f d_uᵀ x, d_b += f Σ d_u in `sums`, if given.
  template <class Acc, class Pull>
  void adjoint(Acc f, const view<const Acc, 2>& x, const view<const Acc, 2>& d_y, const view<Acc, 2>& d_x,
               const view<Acc, 2>& room, Acc* sums, const Pull& pull) const noexcept {
    pull_projected(f, W, d_y, room, d_x, pull);
    if (sums == nullptr) return;
    const index_t M = W.extent(0), d = W.extent(1), rows = x.extent(0);
    linalg::gemm_atb(M, d, rows, {room.data(), room.stride(0)}, {x.data(), x.stride(0)}, linalg::panel<Acc>{sums, d},
                     scaled_add<Acc>{f});
    for (index_t r = 0; r < rows && b.present(); ++r) add_multiple(f, room.pointer(r, 0), sums + M * d, M);
  }
};

}  // namespace detail

/// φ(x) = relu(x Wᵀ + b). Kasai et al., Finetuning Pretrained Transformers into RNNs (T2R), arXiv:2103.13076.
template <class P = float>
struct t2r {
  view<const P, 2> W;    // [M, d]
  view<const P, 1> b{};  // [M]

  index_t features(index_t) const noexcept { return W.extent(0); }
  status check(index_t d) const noexcept { return detail::affine<P>{W, b}.check("ogive::maps::t2r", d); }

  template <class Acc>
  void operator()(view<const Acc, 2> x, view<Acc, 2> y, const map_site&) const noexcept {
    detail::affine<P>{W, b}(x, y);
    for (index_t r = 0; r < y.extent(0); ++r) {
      Acc* row = y.pointer(r, 0);
      detail::transform(row, row, W.extent(0), relu{});
    }
  }

  using gradient = detail::affine_gradient<P>;
  template <class F>
  void for_parameters(const gradient& d, const F& f) const noexcept {
    detail::affine<P>{W, b}.for_parameters(d, f);
  }
  index_t adjoint_room(index_t d) const noexcept { return features(d); }
  template <class Acc>
  void adjoint(view<const Acc, 2> x, view<const Acc, 2> d_y, view<Acc, 2> d_x, view<Acc, 2> room, const map_site& first,
               Acc* sums = nullptr) const noexcept {
    (*this)(x, room, first);
    detail::affine<P>{W, b}.adjoint(Acc(1), x, d_y, d_x, room, sums,
                                    [&](Acc* y, const Acc* d) { detail::pull_numbers(relu{}, y, d, y, W.extent(0)); });
  }
};

/// φ(x) = [exp y, exp −y], y = x Wᵀ + b. Zhang et al., The Hedgehog & the Porcupine, arXiv:2402.04347, equation 6.
template <class P = float>
struct hedgehog {
  view<const P, 2> W;    // [M, d]
  view<const P, 1> b{};  // [M]

  index_t features(index_t) const noexcept { return 2 * W.extent(0); }
  status check(index_t d) const noexcept { return detail::affine<P>{W, b}.check("ogive::maps::hedgehog", d); }

  template <class Acc>
  void operator()(view<const Acc, 2> x, view<Acc, 2> y, const map_site&) const noexcept {
    const index_t M = W.extent(0);
    const simd::batch<Acc> zero(Acc(0));
    detail::affine<P>{W, b}(x, y);
    for (index_t r = 0; r < y.extent(0); ++r) {
      Acc* row = y.pointer(r, 0);
      detail::transform(row, row + M, M, [&](const auto& v) { return simd::exp(zero - v); });
      detail::transform(row, row, M, [](const auto& v) { return simd::exp(v); });
    }
  }

  using gradient = detail::affine_gradient<P>;
  template <class F>
  void for_parameters(const gradient& d, const F& f) const noexcept {
    detail::affine<P>{W, b}.for_parameters(d, f);
  }
  index_t adjoint_room(index_t d) const noexcept { return features(d); }
  template <class Acc>
  void adjoint(view<const Acc, 2> x, view<const Acc, 2> d_y, view<Acc, 2> d_x, view<Acc, 2> room, const map_site& first,
               Acc* sums = nullptr) const noexcept {
    (*this)(x, room, first);
    detail::affine<P>{W, b}.adjoint(Acc(1), x, d_y, d_x, room, sums, [M = W.extent(0)](Acc* y, const Acc* d) {
      detail::difference_of_products(y, d, y + M, d + M, y, M);
    });
  }
};

/// φ(x) = softmax([2 y, −2 y]), y = x Wᵀ + b: Hedgehog as flash-linear-attention has it, which cannot overflow.
template <class P = float>
struct hedgehog_softmax {
  view<const P, 2> W;    // [M, d]
  view<const P, 1> b{};  // [M]

  index_t features(index_t) const noexcept { return 2 * W.extent(0); }
  status check(index_t d) const noexcept { return detail::affine<P>{W, b}.check("ogive::maps::hedgehog_softmax", d); }

  template <class Acc>
  void operator()(view<const Acc, 2> x, view<Acc, 2> y, const map_site& first) const noexcept {
    const index_t M = W.extent(0);
    const simd::batch<Acc> two(Acc(2));
    const simd::batch<Acc> minus_two(Acc(-2));
    detail::affine<P>{W, b}(x, y);
    for (index_t r = 0; r < y.extent(0); ++r) {
      Acc* row = y.pointer(r, 0);
      detail::transform(row, row + M, M, [&](const auto& v) { return minus_two * v; });
      detail::transform(row, row, M, [&](const auto& v) { return two * v; });
    }
    softmax{}(view<const Acc, 2>(y), y, first);
  }

  using gradient = detail::affine_gradient<P>;
  template <class F>
  void for_parameters(const gradient& d, const F& f) const noexcept {
    detail::affine<P>{W, b}.for_parameters(d, f);
  }
  index_t adjoint_room(index_t d) const noexcept { return features(d); }
  template <class Acc>
  void adjoint(view<const Acc, 2> x, view<const Acc, 2> d_y, view<Acc, 2> d_x, view<Acc, 2> room, const map_site& first,
               Acc* sums = nullptr) const noexcept {
    (*this)(x, room, first);
    detail::affine<P>{W, b}.adjoint(Acc(2), x, d_y, d_x, room, sums, [M = W.extent(0)](Acc* y, const Acc* d) {
      softmax::pull(y, d, y, 2 * M);
      detail::transform(y, y + M, y, M, [](const auto& up, const auto& down) { return up - down; });
    });
  }
};

}  // namespace maps
}  // namespace OGIVE_ABI
}  // namespace ogive

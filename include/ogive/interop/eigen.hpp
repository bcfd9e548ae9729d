// Between Eigen's matrices and view: no copies, any strides. Needs Eigen 3.3 or newer; nothing else of ogive does.
#pragma once

#include <ogive/core/view.hpp>

#include <Eigen/Core>

#include <concepts>
#include <type_traits>

namespace ogive {

/// Whatever of Eigen lies in memory with strides: matrices, arrays, maps, blocks, references, transposes.
template <class X, class Dense = std::remove_cvref_t<X>>
concept eigen_memory = std::derived_from<Dense, Eigen::DenseBase<Dense>> && requires(Dense& x) {
  x.data();
  x.innerStride();
  x.outerStride();
};

/// It as a view [rows, columns], whatever its storage order; a vector by type as a view of one axis. What the view sees
/// must outlive it.
template <eigen_memory X>
auto as_view(X&& x) noexcept {
  using Dense = std::remove_cvref_t<X>;
  constexpr bool owns = std::derived_from<Dense, Eigen::PlainObjectBase<Dense>>;
  static_assert(!owns || std::is_lvalue_reference_v<X>,
                "ogive::as_view: the matrix is a temporary, the view would dangle");
  auto* data = [&] {
    if constexpr (owns) {
      return x.data();
    } else {
      return const_cast<Dense&>(x).data();  // a constant map of mutable memory still maps mutable memory
    }
  }();
  using T = std::remove_pointer_t<decltype(data)>;
  if constexpr (Dense::IsVectorAtCompileTime) {
    return view<T, 1>(data, {x.size()}, {x.innerStride()});
  } else if constexpr (Dense::IsRowMajor) {
    return view<T, 2>(data, {x.rows(), x.cols()}, {x.outerStride(), x.innerStride()});
  } else {
    return view<T, 2>(data, {x.rows(), x.cols()}, {x.innerStride(), x.outerStride()});
  }
}

/// A view [rows, columns] as an Eigen map. Strides must not be negative.
template <class T>
auto as_eigen(const view<T, 2>& x) noexcept {
  using Matrix = Eigen::Matrix<std::remove_const_t<T>, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Seen = std::conditional_t<std::is_const_v<T>, const Matrix, Matrix>;
  using Strides = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
  return Eigen::Map<Seen, Eigen::Unaligned, Strides>(x.data(), x.extent(0), x.extent(1),
                                                     Strides(x.stride(0), x.stride(1)));
}

/// A view of one axis as an Eigen column. The stride must not be negative.
template <class T>
auto as_eigen(const view<T, 1>& x) noexcept {
  using Vector = Eigen::Matrix<std::remove_const_t<T>, Eigen::Dynamic, 1>;
  using Seen = std::conditional_t<std::is_const_v<T>, const Vector, Vector>;
  using Strides = Eigen::InnerStride<Eigen::Dynamic>;
  return Eigen::Map<Seen, Eigen::Unaligned, Strides>(x.data(), x.extent(0), Strides(x.stride(0)));
}

/// Tokens of a matrix [L, H·D] as [1, L, H, D], the last axis split into heads of equal width.
/// \throws shape_error when the heads do not divide the columns.
template <class T>
view<T, 4> split_heads(const view<T, 2>& x, index_t heads) {
  if (heads < 1 || x.extent(1) % heads != 0) {
    raise(status(status_code::shape) << "ogive::split_heads: " << heads << " heads do not divide the columns of "
                                     << std::span<const index_t>(x.extents()));
  }
  const index_t width = x.extent(1) / heads;
  return {x.data(),
          {1, x.extent(0), heads, width},
          {x.extent(0) * x.stride(0), x.stride(0), width * x.stride(1), x.stride(1)}};
}

}  // namespace ogive

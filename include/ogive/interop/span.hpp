// Between std::span, std::mdspan where the standard library has it, and view.
#pragma once

#include <ogive/core/view.hpp>

#include <version>
#if defined(__cpp_lib_mdspan)
#include <mdspan>
#endif

namespace ogive {

/// A span seen with a shape. \throws shape_error when the sizes differ.
template <class T, std::size_t Extent, std::size_t Rank>
constexpr view<T, Rank> as_view(std::span<T, Extent> x, const shape<Rank>& extents) {
  return view<T, Rank>(x, extents);
}

/// The elements of a view whose memory is row-major without gaps. \throws shape_error when it is not.
template <class T, std::size_t Rank>
constexpr std::span<T> as_span(const view<T, Rank>& x) {
  const shape<Rank> dense = core::row_major(x.extents());
  for (std::size_t axis = 0; axis < Rank; ++axis) {
    if (x.size() == 0 || x.extent(axis) == 1 || x.stride(axis) == dense[axis]) continue;
    raise(status(status_code::shape) << "ogive::as_span: a view of shape " << std::span<const index_t>(x.extents())
                                     << " and strides " << std::span<const index_t>(x.strides())
                                     << " is not row-major without gaps; copy it, or use the view");
  }
  return {x.data(), static_cast<std::size_t>(x.size())};
}

#if defined(__cpp_lib_mdspan)

/// An mdspan of any layout that has strides.
template <class T, class Extents, class Layout>
constexpr view<T, Extents::rank()> as_view(const std::mdspan<T, Extents, Layout>& x) {
  shape<Extents::rank()> extents{};
  shape<Extents::rank()> strides{};
  for (std::size_t axis = 0; axis < Extents::rank(); ++axis) {
    extents[axis] = static_cast<index_t>(x.extent(axis));
    strides[axis] = static_cast<index_t>(x.stride(axis));
  }
  return {x.data_handle(), extents, strides};
}

/// A view as an mdspan; its strides must not be negative.
template <class T, std::size_t Rank>
constexpr auto as_mdspan(const view<T, Rank>& x) {
  using extents = std::dextents<index_t, Rank>;
  return std::mdspan<T, extents, std::layout_stride>(x.data(), {extents(x.extents()), x.strides()});
}

#endif

}  // namespace ogive

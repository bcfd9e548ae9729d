// L1*: tensors as ONNX hands them over: dense, row-major, with a rank that is known when the node runs.
#pragma once

#include <ogive/core/check.hpp>

#include <initializer_list>

namespace ogive {
inline namespace OGIVE_ABI {
namespace onnx {

/// Dense data and its dims; a default-constructed one is an optional input that is left out. Data of no elements may be
/// null. The dims must outlive it.
template <class T>
class tensor_view {
 public:
  constexpr tensor_view() noexcept = default;
  constexpr tensor_view(T* data, std::span<const std::int64_t> dims) noexcept
      : data_(data), dims_(dims), present_(true) {}
  constexpr operator tensor_view<const T>() const noexcept requires(!std::is_const_v<T>) {
    return present_ ? tensor_view<const T>(data_, dims_) : tensor_view<const T>();
  }

  constexpr bool present() const noexcept { return present_; }
  constexpr T* data() const noexcept { return data_; }
  constexpr index_t rank() const noexcept { return static_cast<index_t>(dims_.size()); }
  constexpr index_t dim(std::size_t axis) const noexcept { return static_cast<index_t>(dims_[axis]); }
  constexpr index_t size() const noexcept {
    index_t product = present_ ? 1 : 0;
    for (index_t axis = 0; axis < rank(); ++axis) product *= dim(static_cast<std::size_t>(axis));
    return product;
  }

  /// As a view of that rank; absent where this is, or where the rank is another.
  template <std::size_t Rank>
  constexpr view<T, Rank> as() const noexcept {
    if (!present_ || dims_.size() != Rank) return {};
    shape<Rank> extents{};
    for (std::size_t axis = 0; axis < Rank; ++axis) extents[axis] = dim(axis);
    return {data_, extents};
  }

 private:
  T* data_ = nullptr;
  std::span<const std::int64_t> dims_{};
  bool present_ = false;
};

/// The questions that the standard asks of a node's tensors.
class node_checker : public core::checker {
 public:
  using core::checker::checker;

  /// Dims must be `want`, where −1 is any; a tensor that is left out passes if it may be.
  template <class T>
  node_checker& dims(const char* input, const tensor_view<T>& x, std::initializer_list<index_t> want,
                     const char* letters, bool optional = false) noexcept {
    if (!*this || (optional && !x.present())) return *this;
    if (!x.present()) {
      refuse(input) << "is required, as " << letters;
      return *this;
    }
    const auto rank = static_cast<index_t>(want.size());
    bool same = x.rank() == rank;
    for (std::size_t axis = 0; same && axis < want.size(); ++axis) {
      const index_t wanted = want.begin()[axis];
      same = x.dim(axis) >= 0 && (wanted == -1 || x.dim(axis) == wanted);
    }
    if (same) return *this;
    write_dims(refuse(input) << "has dims ", x) << ", expected " << letters;
    return *this;
  }

  /// A written tensor and another one have no element in common.
  template <class T, class U>
  node_checker& apart(const char* written, const tensor_view<T>& x, const char* other,
                      const tensor_view<U>& y) noexcept {
    if (!*this || !core::share(view<T, 1>(x.data(), {x.size()}), view<U, 1>(y.data(), {y.size()}))) return *this;
    status& text = write_dims(refuse(written) << "of dims ", x) << " is written and overlaps " << other;
    write_dims(text << " of dims ", y) << "; give it memory of its own";
    return *this;
  }

 private:
  template <class T>
  static status& write_dims(status& text, const tensor_view<T>& x) noexcept {
    text << "[";
    for (index_t axis = 0; axis < x.rank(); ++axis) {
      text << (axis == 0 ? "" : ", ") << x.dim(static_cast<std::size_t>(axis));
    }
    return text << "]";
  }
};

}  // namespace onnx
}  // namespace OGIVE_ABI
}  // namespace ogive

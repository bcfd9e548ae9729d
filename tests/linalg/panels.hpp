// What the tests of linalg share: panels that end at a forbidden page, and what a product should be.
#pragma once

#include <ogive/linalg/tile.hpp>

#include <cmath>
#include <limits>

#include "../simd/vectors.hpp"

namespace ogive::tests {

using linalg::panel;

/// rows × columns numbers in [−1, 1), rows further apart than they are long, the last one ending at a page that may not
/// be touched. Between the rows lies NaN.
template <class T>
class matrix {
 public:
  matrix(index_t rows, index_t columns, std::mt19937_64& engine)
      : memory_(rows * (columns + 3) + 1), rows_(rows), columns_(columns) {
    std::fill(memory_.begin(), memory_.end(), std::numeric_limits<T>::quiet_NaN());
    data_ = rows == 0 ? memory_.end() : memory_.end() - ((rows - 1) * stride() + columns);
    const auto numbers = random_numbers<T>(rows * columns, engine);
    for (index_t i = 0; i < rows; ++i) {
      for (index_t j = 0; j < columns; ++j) at(i, j) = numbers[static_cast<std::size_t>(i * columns + j)];
    }
  }

  index_t stride() const { return columns_ + 3; }
  T& at(index_t i, index_t j) { return data_[i * stride() + j]; }
  T at(index_t i, index_t j) const { return data_[i * stride() + j]; }
  operator panel<T>() { return {data_, stride()}; }
  operator panel<const T>() const { return {data_, stride()}; }
  panel<T> view() { return *this; }

  void fill(T value) {
    for (index_t i = 0; i < rows_; ++i) std::fill_n(&at(i, 0), columns_, value);
  }

  /// Whether everything but the elements is still NaN.
  bool frame_intact() const {
    index_t frame = 0;
    for (const T* p = memory_.begin(); p != memory_.end(); ++p) {
      const bool element = p >= data_ && (p - data_) % stride() < columns_;
      if (!element && std::isnan(*p)) ++frame;
    }
    return frame == memory_.size() - rows_ * columns_;
  }

 private:
  guarded<T> memory_;
  index_t rows_, columns_;
  T* data_;
};

/// Σ of terms beside the sum of their magnitudes, from which the error that rounding may leave follows.
struct exact_sum {
  long double value = 0, magnitude = 0;
  index_t terms = 0;

  void add(long double a, long double b) {
    value += a * b;
    magnitude += std::fabs(a * b);
    ++terms;
  }
  /// (terms + 1) roundings, of a product and a sum each where fma is none.
  template <class T>
  bool agrees(T got) const {
    const long double eps = std::numeric_limits<T>::epsilon();
    return std::fabs(static_cast<long double>(got) - value) <= static_cast<long double>(terms + 1) * eps * magnitude;
  }
};

}  // namespace ogive::tests

// q, k and v: from a file, or drawn.
#pragma once

#include <ogive/core/tensor.hpp>

#include <bench/crossover/settings.hpp>
#include <string>
#include <vector>

namespace ogive::crossover {

struct qkv {
  tensor<float, 4> q, k, v;  // [1, tokens, heads, d] each
};

class input {
 public:
  /// Reads the file, if one is named. \throws std::runtime_error
  explicit input(const settings& chosen);

  const std::string& description() const noexcept { return description_; }

  /// As many as are wanted: a file's tokens and channels start over where they do not suffice. Drawn q and k are normal
  /// with deviation ½, v with 1.
  qkv take(index_t tokens, index_t heads, index_t d) const;

 private:
  /// Rows of all heads' channels, one per token.
  struct table {
    std::vector<float> numbers;
    index_t tokens = 0;
    index_t width = 0;
  };
  static tensor<float, 4> cut(const table& rows, const shape<4>& extents);

  std::uint64_t seed_;
  table q_, k_, v_;
  std::string description_;
};

}  // namespace ogive::crossover

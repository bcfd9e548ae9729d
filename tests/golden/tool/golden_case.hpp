// A file of golden vectors: the arguments of an operator, its options, what it must give, and how near.
#pragma once

#include <ogive/testing/compare.hpp>
#include <ogive/testing/safetensors.hpp>

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ogive::golden {

template <class T>
constexpr const char* type_name() noexcept {
  if constexpr (std::is_same_v<T, double>) return "double";
  if constexpr (std::is_same_v<T, float>) return "float";
  if constexpr (std::is_same_v<T, bfloat16>) return "bfloat16";
  if constexpr (std::is_same_v<T, float16>) return "float16";
}

template <class T>
concept complex_number = requires(T x) {
  x.imag();
};

/// What one output must be.
struct target {
  std::vector<double> numbers;
  testing::measure how;
  double bound = 0;
};

/// Every failure to understand the file is a std::runtime_error that says what is wrong with it.
class golden_case {
 public:
  explicit golden_case(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept { return file_.path(); }
  /// The operator that the file belongs to; empty if it names none.
  std::string op() const { return entry("op"); }

  bool has(const std::string& tensor) const { return file_.has(tensor); }
  const std::vector<index_t>& shape(const std::string& tensor) const { return file_.shape(tensor); }
  /// Whether the tensor is stored as complex numbers, with a last axis (re, im).
  bool is_complex(const std::string& tensor) const { return complex_.contains(tensor); }

  /// All numbers of a tensor in row-major order.
  template <class T>
  std::vector<T> numbers(const std::string& tensor) const {
    used_.insert(tensor);
    return file_.values<T>(tensor);
  }
  /// A tensor of this rank: axes of 1 are put before those that are stored where these are fewer.
  template <class T, std::size_t Rank>
  ogive::tensor<T, Rank> get(const std::string& tensor) const {
    std::vector<index_t> axes = shape(tensor);
    if (complex_number<T> && !axes.empty()) axes.pop_back();
    if (axes.size() < Rank) axes.insert(axes.begin(), Rank - axes.size(), 1);
    return filled<T, Rank>(tensor, axes);
  }
  /// The same with `axis` left out if there is one axis too many and this one is 1.
  template <class T, std::size_t Rank>
  ogive::tensor<T, Rank> without_axis(const std::string& tensor, std::size_t axis) const {
    std::vector<index_t> axes = shape(tensor);
    if (axes.size() == Rank + 1 && axes[axis] == 1) axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(axis));
    return filled<T, Rank>(tensor, axes);
  }
  /// The same with the first axes merged into one where there are too many.
  template <class T, std::size_t Rank>
  ogive::tensor<T, Rank> merged(const std::string& tensor) const {
    std::vector<index_t> axes = shape(tensor);
    for (; axes.size() > Rank; axes.erase(axes.begin())) axes[1] *= axes[0];
    if (axes.size() < Rank) axes.insert(axes.begin(), Rank - axes.size(), 1);
    return filled<T, Rank>(tensor, axes);
  }
  /// The same numbers in another shape.
  template <class T, std::size_t Rank>
  ogive::tensor<T, Rank> shaped(const std::string& tensor, const std::vector<index_t>& axes) const {
    return filled<T, Rank>(tensor, axes);
  }
  /// A tensor that may be missing: the answer is then empty, and its view absent.
  template <class T, std::size_t Rank>
  ogive::tensor<T, Rank> get_if(const std::string& tensor) const {
    return has(tensor) ? get<T, Rank>(tensor) : ogive::tensor<T, Rank>();
  }
  std::vector<std::int64_t> integers(const std::string& tensor) const {
    return has(tensor) ? numbers<std::int64_t>(tensor) : std::vector<std::int64_t>();
  }

  /// An option that is absent or null is not given.
  std::optional<double> number(const std::string& option) const;  ///< also "inf" and "-inf"
  std::pair<double, double> interval(const std::string& option, std::pair<double, double> otherwise) const;
  std::optional<index_t> integer(const std::string& option) const;
  bool flag(const std::string& option, bool otherwise) const;
  std::string text(const std::string& option, const std::string& otherwise) const;
  const nlohmann::json& option(const std::string& name) const;

  /// Names of the outputs that the file holds and wants compared.
  const std::vector<std::string>& outputs() const noexcept { return outputs_; }
  /// Names of the gradients that it holds.
  const std::vector<std::string>& gradients() const noexcept { return gradients_; }
  /// What the file says of an output or a gradient, for arithmetic in T (double or float).
  template <class T>
  target expected(const std::string& output) const {
    target wanted{.numbers = file_.values<double>(output), .how = measure_of(output), .bound = 0};
    wanted.bound = std::is_same_v<T, double> ? double_bound() : float_bound(hint(output));
    return wanted;
  }
  /// The error in float of the plain formula, relative to the largest number; 0 where the file has none.
  double hint(const std::string& output) const;

  /// The bound for arithmetic in float. 50 times what the plain formula loses: other orders of summation and vector
  /// functions lose a few times as much. A formula that loses nothing on these numbers proves nothing about the order
  /// of sums, so there is a floor, of some 170 roundings.
  static double float_bound(double hint) noexcept { return std::max(50 * hint, 1e-5); }

  /// Inputs that nobody has asked for.
  std::vector<std::string> unused_inputs() const;

 private:
  std::string entry(const std::string& key) const;
  nlohmann::json json(const std::string& key) const;
  [[noreturn]] void refuse(const std::string& option, const char* wish) const;
  testing::measure measure_of(const std::string& output) const;
  double double_bound() const { return rule_ == testing::rule::elementwise_rel ? 1e-12 : 1e-10; }

  template <class T, std::size_t Rank>
  ogive::tensor<T, Rank> filled(const std::string& tensor, const std::vector<index_t>& axes) const {
    if (axes.size() != Rank) {
      file_.fail("has rank " + std::to_string(axes.size()) + " where " + std::to_string(Rank) + " is expected", tensor);
    }
    ogive::shape<Rank> extents{};
    std::ranges::copy(axes, extents.begin());
    const std::vector<T> all = numbers<T>(tensor);
    ogive::tensor<T, Rank> result(extents);
    if (result.size() != static_cast<index_t>(all.size())) {
      file_.fail(
          "has " + std::to_string(all.size()) + " elements where " + std::to_string(result.size()) + " are expected",
          tensor);
    }
    std::copy(all.begin(), all.end(), result.data());
    return result;
  }

  testing::safetensors file_;
  nlohmann::json options_, scales_, hints_;
  testing::rule rule_ = testing::rule::max_norm;
  std::set<std::string> complex_;
  std::vector<std::string> inputs_, outputs_, gradients_;
  mutable std::set<std::string> used_;
};

}  // namespace ogive::golden

#include <ogive/core/tensor.hpp>
#include <ogive/interop/eigen.hpp>

#include "tests/catch.hpp"

using namespace ogive;

namespace {

template <class Matrix>
void check_elements(Matrix&& x) {
  const auto seen = as_view(x);
  REQUIRE(seen.extents() == shape<2>{x.rows(), x.cols()});
  for (index_t i = 0; i < x.rows(); ++i) {
    for (index_t j = 0; j < x.cols(); ++j) CHECK(&seen(i, j) == &x.coeffRef(i, j));
  }
}

template <class T>
constexpr bool is_constant = std::is_const_v<typename T::element_type>;

}  // namespace

TEST_CASE("Eigen matrices of either order, maps, blocks and references are views") {
  Eigen::MatrixXd columns = Eigen::MatrixXd::Random(3, 5);
  Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> rows(4, 3);
  check_elements(columns);
  check_elements(rows);
  check_elements(columns.block(1, 2, 2, 2));
  check_elements(rows.rightCols(2));
  check_elements(Eigen::Ref<Eigen::MatrixXd>(columns));
  std::vector<double> numbers(60);
  using Strides = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
  check_elements(Eigen::Map<Eigen::MatrixXd, 0, Strides>(numbers.data(), 3, 4, Strides(15, 2)));
  check_elements(columns.transpose());

  const Eigen::MatrixXd& constant = columns;
  static_assert(is_constant<decltype(as_view(constant))>);
  static_assert(!is_constant<decltype(as_view(columns))>);
  static_assert(!is_constant<decltype(as_view(columns.leftCols(2)))>);
  static_assert(is_constant<decltype(as_view(constant.leftCols(2)))>);
  static_assert(is_constant<decltype(as_view(Eigen::Ref<const Eigen::MatrixXd>(columns)))>);
}

TEST_CASE("Eigen vectors are views of one axis") {
  Eigen::VectorXf x(4);
  x << 1, 2, 3, 4;
  static_assert(decltype(as_view(x))::rank == 1);
  CHECK(as_view(x)(3) == 4);
  Eigen::MatrixXf m = Eigen::MatrixXf::Random(3, 4);
  CHECK(&as_view(m.row(1))(2) == &m(1, 2));
}

TEST_CASE("views are Eigen maps") {
  tensor<double, 3> x({2, 3, 4});
  for (index_t i = 0; i < x.size(); ++i) x.data()[i] = static_cast<double>(i);
  auto slice = as_eigen(x.all()[1]);
  CHECK(slice(2, 3) == 23);
  slice(0, 1) = -1;
  CHECK(x(1, 0, 1) == -1);
  auto turned = as_eigen(x.all().permute({0, 2, 1})[0]);
  CHECK(turned.rows() == 4);
  CHECK(turned(3, 1) == 7);
  CHECK(as_eigen(x.all()[0].permute({1, 0})[2]).sum() == 2 + 6 + 10);
  const tensor<double, 3>& constant = x;
  const Eigen::MatrixXd product = as_eigen(constant.all()[0]) * turned;
  CHECK(product(0, 0) == 0 + 1 + 4 + 9);
}

TEST_CASE("the columns of a matrix are heads side by side") {
  Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> qkv(5, 12);
  for (index_t i = 0; i < qkv.size(); ++i) qkv.data()[i] = static_cast<float>(i);
  const auto k = split_heads(as_view(qkv.middleCols(4, 4)), 2);
  CHECK(k.extents() == shape<4>{1, 5, 2, 2});
  CHECK(k(0, 3, 1, 1) == qkv(3, 4 + 3));
  CHECK_THROWS_AS(split_heads(as_view(qkv), 5), shape_error);
}

#include <ogive/core/tensor.hpp>

#include <Eigen/Core>
#include <xsimd/xsimd.hpp>

int main() {
  const ogive::tensor<float, 2> x({2, 3}, 1.0F);
  return x.size() == 6 && XSIMD_VERSION_MAJOR >= 8 && EIGEN_VERSION_AT_LEAST(3, 4, 0) ? 0 : 1;
}

// Eigen on both sides: projections are Eigen's matrix products, the attention in between is ogive's, and no copy is made.
#include <ogive/interop/eigen.hpp>
#include <ogive/ops/linear_attention.hpp>
#include <ogive/maps/elementwise.hpp>

#include <Eigen/Dense>

#include <cmath>
#include <cstdio>

int main() {
  using namespace ogive;
  using tokens_by_model = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  constexpr Eigen::Index L = 96, model = 64, H = 4, D = model / H;

  tokens_by_model x(L, model), W(model, 3 * model);
  for (Eigen::Index i = 0; i < x.size(); ++i) x.data()[i] = std::sin(0.3F * static_cast<float>(i));
  for (Eigen::Index i = 0; i < W.size(); ++i) W.data()[i] = 0.1F * std::cos(0.7F * static_cast<float>(i));

  // One fused projection [q | k | v]: its rows are three times as long as a view of q, k or v, and strides say so.
  tokens_by_model qkv = x * W;
  tokens_by_model out(L, model);
  const auto heads_of = [](auto&& columns) {
    const auto rows = as_view(columns);  // [L, model] with Eigen's strides
    using T = typename decltype(rows)::element_type;
    return view<T, 4>(rows.data(), {1, L, H, D}, {0, rows.stride(0), D * rows.stride(1), rows.stride(1)});
  };

  const linear_attention<float, maps::elu1> attention{.q = heads_of(qkv.leftCols(model)),
                                                      .k = heads_of(qkv.middleCols(model, model)),
                                                      .v = heads_of(qkv.rightCols(model))};
  forward(attention, {}, heads_of(out.leftCols(model)));

  // The same with Eigen's own expressions: masked scores of one head, in double.
  double worst = 0;
  for (Eigen::Index h = 0; h < H; ++h) {
    const auto phi = [](double v) { return v < 0 ? std::exp(v) : v + 1; };
    const Eigen::MatrixXd q = qkv.middleCols(h * D, D).cast<double>().unaryExpr(phi);
    const Eigen::MatrixXd k = qkv.middleCols(model + h * D, D).cast<double>().unaryExpr(phi);
    const Eigen::MatrixXd v = qkv.middleCols(2 * model + h * D, D).cast<double>();
    const Eigen::MatrixXd scores = (q * k.transpose()).triangularView<Eigen::Lower>();
    const Eigen::MatrixXd o = (scores.rowwise().sum().array() + 1e-6).inverse().matrix().asDiagonal() * (scores * v);
    worst = std::fmax(worst, (o - out.middleCols(h * D, D).cast<double>()).cwiseAbs().maxCoeff());
  }
  std::printf("%td tokens of width %td: largest difference from Eigen in double %.1e\n", L, model, worst);
  return worst < 1e-4 ? 0 : 1;
}

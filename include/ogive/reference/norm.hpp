// L1*: the norms by their definition, for any scalar.
#pragma once

#include <ogive/reference/activations.hpp>
#include <ogive/reference/layout.hpp>

namespace ogive::reference {

namespace detail {

/// y = f(row, numbers) for every row of x [B,L,G,N]; `numbers` are x, with the residual where there is one.
template <class Acc, class Op, class Out, class F>
void for_rows(const Op& op, const view<Out, 4>& y, const F& f) {
  const index_t N = op.x.extent(3);
  for (index_t b = 0; b < op.x.extent(0); ++b) {
    for (index_t t = 0; t < op.x.extent(1); ++t) {
      for (index_t g = 0; g < op.x.extent(2); ++g) {
        std::vector<Acc> row;
        for (index_t n = 0; n < N; ++n) {
          row.push_back(lift<Acc>(op.x(b, t, g, n)));
          if constexpr (requires { op.residual; }) {
            if (op.residual.present()) row.back() = row.back() + lift<Acc>(op.residual(b, t, g, n));
          }
        }
        f(shape<3>{b, t, g}, row);
        for (index_t n = 0; n < N; ++n) y(b, t, g, n) = lower<Out>(row[static_cast<std::size_t>(n)]);
      }
    }
  }
}

/// row ← row / √(Σ row² / count + ε)
template <class Acc>
void divide_by_norm(std::vector<Acc>& row, double count, double eps) {
  using std::sqrt;
  Acc squares(0);
  for (const Acc& u : row) squares = squares + u * u;
  const Acc norm = sqrt(squares / Acc(count) + Acc(eps));
  for (Acc& u : row) u = u / norm;
}

/// row ← row ⊙ weight + bias, those of group g
template <class Acc, class Op>
void scale_row(const Op& op, index_t g, std::vector<Acc>& row) {
  for (std::size_t i = 0; i < row.size(); ++i) {
    const auto n = static_cast<index_t>(i);
    if (op.weight.present()) row[i] = row[i] * lift<Acc>(op.weight(op.weight.extent(0) == 1 ? 0 : g, n));
    if (op.bias.present()) row[i] = row[i] + lift<Acc>(op.bias(op.bias.extent(0) == 1 ? 0 : g, n));
  }
}

}  // namespace detail

/// x, z, residual, y [B,L,G,N], weight, bias [G,N] or [1,N]: y = n(x) w + b, n(u) = u/√(mean u² + ε); with a gate
/// y = (n(x) w + b) σ(z), or y = n(x σ(z)) w + b.
template <class Acc, class Op, class Out>
void rms_norm(const Op& op, const view<Out, 4>& y) {
  using Activation = std::remove_cvref_t<decltype(op.gate)>;
  detail::for_rows<Acc>(op, y, [&](const shape<3>& at, std::vector<Acc>& row) {
    const auto gate = [&] {
      if (!op.z.present()) return;
      for (std::size_t i = 0; i < row.size(); ++i) {
        const Acc z = lift<Acc>(op.z(at[0], at[1], at[2], static_cast<index_t>(i)));
        row[i] = row[i] * (op.gate == Activation::silu ? silu(z) : op.gate == Activation::sigmoid ? sigmoid(z) : z);
      }
    };
    if (!op.norm_before_gate) gate();
    detail::divide_by_norm(row, static_cast<double>(row.size()), static_cast<double>(op.eps));
    detail::scale_row(op, at[2], row);
    if (op.norm_before_gate) gate();
  });
}

/// y = (x − mean x)/√(var x + ε) w + b
template <class Acc, class Op, class Out>
void layer_norm(const Op& op, const view<Out, 4>& y) {
  detail::for_rows<Acc>(op, y, [&](const shape<3>& at, std::vector<Acc>& row) {
    Acc sum(0);
    for (const Acc& u : row) sum = sum + u;
    for (Acc& u : row) u = u - sum / Acc(static_cast<double>(row.size()));
    detail::divide_by_norm(row, static_cast<double>(row.size()), static_cast<double>(op.eps));
    detail::scale_row(op, at[2], row);
  });
}

/// y = x/√(Σ x² + ε)
template <class Acc, class Op, class Out>
void l2_norm(const Op& op, const view<Out, 4>& y) {
  detail::for_rows<Acc>(op, y, [&](const shape<3>&, std::vector<Acc>& row) {
    detail::divide_by_norm(row, 1.0, static_cast<double>(op.eps));
  });
}

}  // namespace ogive::reference

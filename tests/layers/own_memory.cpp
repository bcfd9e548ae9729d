#include <ogive/core/tensor.hpp>
#include <ogive/layers/gates.hpp>
#include <ogive/layers/linear.hpp>
#include <ogive/layers/norm.hpp>
#include <ogive/layers/short_convolution.hpp>
#include <ogive/layers/token_shift.hpp>

#include "tests/catch.hpp"

using namespace ogive;
using tests::ContainsSubstring;

namespace {

void refused(const status& asked, const char* words) {
  CHECK(!asked);
  CHECK_THAT(asked.text(), ContainsSubstring(words));
}

}  // namespace

TEST_CASE("two gradients of a layer in one memory are refused") {
  constexpr index_t N = 4;
  tensor<float, 3> x({N, N, N}), d_y({N, N, N}), d_state({N, N, 1}), one({N, N, N});
  tensor<float, 4> rows({N, N, N, N}), d_rows({N, N, N, N}), all({N, N, N, N});
  tensor<float, 2> matrix({N, N}), taps({N, 2});
  tensor<float, 1> row({N});
  const auto as_matrix = [&](auto& of) { return view<float, 2>(of.data(), {N, N}); };
  const auto as_row = [&](auto& of) { return view<float, 1>(of.data(), {N}); };

  const linear<float> project{.x = x, .weight = matrix, .bias = row};
  CHECK(check_backward(project, d_y, {.x = one, .weight = as_matrix(all)}));
  refused(check_backward(project, d_y, {.x = one, .weight = as_matrix(one)}), "d.weight");
  refused(check_backward(project, d_y, {.weight = as_matrix(one), .bias = as_row(one)}), "d.bias");

  const gates::softplus_decay<float> decay{.a = rows, .A_log = row, .dt_bias = matrix};
  CHECK(check_backward(decay, d_rows, {.a = all, .A_log = as_row(one)}));
  refused(check_backward(decay, d_rows, {.a = all, .A_log = as_row(all)}), "d.A_log");

  const rms_norm<float> norm{.x = rows, .weight = matrix};
  CHECK(check_backward(norm, d_rows, {.x = all, .weight = as_matrix(one)}));
  refused(check_backward(norm, d_rows, {.x = all, .weight = as_matrix(all)}), "d.weight");

  const short_convolution<float> mix{.x = x, .weight = taps};
  const view<float, 3> d_initial(one.data(), {N, N, 1});
  const view<float, 2> d_taps(one.data(), {N, 2});
  CHECK(check_backward(mix, {}, d_y, {.initial = d_state}, {.x = one}));
  refused(check_backward(mix, {}, d_y, {.initial = d_initial}, {.x = one}), "d_st.initial");
  refused(check_backward(mix, {}, d_y, {}, {.x = one, .weight = d_taps}), "d.weight");

  const token_shift<float> shift{.x = x, .mu = matrix.all().slice(0, 0, 1)};
  refused(check_backward(shift, {}, rows.all().slice(2, 0, 1), {}, {.x = one, .mu = as_matrix(one).slice(0, 0, 1)}),
          "d.mu");
}

// The body of both units; UNIT(name) gives the functions their names.
#include "units.hpp"

#include <ogive/maps/elementwise.hpp>
#include <ogive/ops/linear_attention.hpp>
#include <ogive/ops/ssd.hpp>

namespace two_isas {

ogive::tensor<float, 4> UNIT(run)(const arguments& in, ogive::index_t begin, ogive::index_t count,
                                  ogive::tensor<float, 4>& state) {
  const auto part = [&](const auto& x) { return x.all().slice(1, begin, count); };
  const ogive::ssd<float> op{.x = part(in.x), .dt = part(in.dt), .A = in.A, .B = part(in.B), .C = part(in.C)};
  ogive::tensor<float, 4> y(op.x.extents());
  ogive::forward(op, {.initial = state, .final = state}, y);
  return y;
}

ogive::tensor<float, 4> UNIT(attend)(const attention_arguments& in, ogive::form how) {
  ogive::tensor<float, 4> o(in.v.extents());
  const ogive::linear_attention<float, ogive::maps::elu1> op{.q = in.q, .k = in.k, .v = in.v};
  ogive::forward(op, {}, o, {.form = how});
  return o;
}

bool UNIT(catches)(run other, const arguments& in) {
  ogive::tensor<float, 4> wrong({1, 2, 3, 4});
  try {
    other(in, 0, 1, wrong);
  } catch (const ogive::shape_error&) {
    return true;
  }
  return false;
}

ogive::index_t UNIT(width)() { return ogive::simd::width<float>; }

}  // namespace two_isas

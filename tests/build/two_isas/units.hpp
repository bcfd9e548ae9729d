// What two units of different vector width offer each other: memory, results and errors cross between them.
#pragma once

#include <ogive/core/options.hpp>
#include <ogive/core/tensor.hpp>

namespace two_isas {

/// Arguments of SSD, x [B, L, H, P], dt [B, L, H], A [H], B and C [B, L, G, N].
struct arguments {
  ogive::tensor<float, 4> x, B, C;
  ogive::tensor<float, 3> dt;
  ogive::tensor<float, 1> A;
};

/// Tokens [begin, begin + count), the state [1, H, N, P] carried in place.
using run = ogive::tensor<float, 4> (*)(const arguments& in, ogive::index_t begin, ogive::index_t count,
                                        ogive::tensor<float, 4>& state);
ogive::tensor<float, 4> narrow_run(const arguments&, ogive::index_t, ogive::index_t, ogive::tensor<float, 4>&);
ogive::tensor<float, 4> wide_run(const arguments&, ogive::index_t, ogive::index_t, ogive::tensor<float, 4>&);

/// Arguments of linear attention, q, k [B, L, H, D], v [B, L, H, V].
struct attention_arguments {
  ogive::tensor<float, 4> q, k, v;
};

/// Linear attention over elu(x) + 1, by `how`, from an empty state.
using attention = ogive::tensor<float, 4> (*)(const attention_arguments& in, ogive::form how);
ogive::tensor<float, 4> narrow_attend(const attention_arguments&, ogive::form);
ogive::tensor<float, 4> wide_attend(const attention_arguments&, ogive::form);

/// Whether this unit catches as ogive::shape_error what `other` throws for a state of the wrong shape.
bool narrow_catches(run other, const arguments& in);
bool wide_catches(run other, const arguments& in);

/// Floats in a vector of this unit.
ogive::index_t narrow_width();
ogive::index_t wide_width();

}  // namespace two_isas

// Kernels depend on accumulator and policies alone, never on an operator: the test programs share one instantiation of
// each, which halves what they compile. Included before everything else; what is not listed is instantiated where it is
// used, as in any other program.
#pragma once

#include <ogive/engine/diagonal_backward.hpp>
#include <ogive/engine/diagonal_scan.hpp>
#include <ogive/engine/matrix_backward.hpp>
#include <ogive/engine/product_backward.hpp>
#include <ogive/engine/softmax.hpp>

#define OGIVE_MATRIX_KERNELS_OF(how, Acc, ...)                                                \
  how template class ogive::detail::matrix_task<Acc, ogive::simd::default_arch, __VA_ARGS__>; \
  how template class ogive::detail::matrix_backward_task<Acc, ogive::simd::default_arch, __VA_ARGS__>;

#define OGIVE_MATRIX_KERNELS(how, writes, Acc)                                                      \
  OGIVE_MATRIX_KERNELS_OF(how, Acc, ogive::decay::none, ogive::write::writes, ogive::read::after)   \
  OGIVE_MATRIX_KERNELS_OF(how, Acc, ogive::decay::scalar, ogive::write::writes, ogive::read::after) \
  OGIVE_MATRIX_KERNELS_OF(how, Acc, ogive::decay::per_key, ogive::write::writes, ogive::read::after)

#define OGIVE_BONUS_KERNELS(how, Acc) \
  OGIVE_MATRIX_KERNELS_OF(how, Acc, ogive::decay::per_key, ogive::write::additive, ogive::read::before)

#define OGIVE_PRODUCT_KERNELS(how, Acc)                                                                           \
  how template class ogive::detail::left_task<Acc, ogive::simd::default_arch, ogive::detail::plain_weights<Acc>>; \
  how template class ogive::detail::right_task<Acc, ogive::simd::default_arch>;                                   \
  how template class ogive::detail::product_backward_task<Acc, ogive::simd::default_arch>;

#define OGIVE_SOFTMAX_KERNELS(how, Acc)                                                                             \
  how template class ogive::detail::left_task<Acc, ogive::simd::default_arch, ogive::detail::softmax_weights<Acc>>; \
  how template class ogive::detail::softmax_rows_task<Acc, ogive::simd::default_arch>;

#define OGIVE_DIAGONAL_KERNELS_OF(how, Acc, complex)                                        \
  how template class ogive::detail::diagonal_task<Acc, ogive::simd::default_arch, complex>; \
  how template class ogive::detail::diagonal_scan<Acc, ogive::simd::default_arch, complex>; \
  how template class ogive::detail::diagonal_backward_task<Acc, ogive::simd::default_arch, complex>;

#define OGIVE_DIAGONAL_KERNELS(how, Acc)     \
  OGIVE_DIAGONAL_KERNELS_OF(how, Acc, false) \
  OGIVE_DIAGONAL_KERNELS_OF(how, Acc, true)

OGIVE_MATRIX_KERNELS(extern, additive, float)
OGIVE_MATRIX_KERNELS(extern, additive, double)
OGIVE_MATRIX_KERNELS(extern, delta, float)
OGIVE_MATRIX_KERNELS(extern, delta, double)
OGIVE_MATRIX_KERNELS(extern, low_rank, float)
OGIVE_MATRIX_KERNELS(extern, low_rank, double)
OGIVE_BONUS_KERNELS(extern, float)
OGIVE_BONUS_KERNELS(extern, double)
OGIVE_PRODUCT_KERNELS(extern, float)
OGIVE_PRODUCT_KERNELS(extern, double)
OGIVE_SOFTMAX_KERNELS(extern, float)
OGIVE_SOFTMAX_KERNELS(extern, double)
OGIVE_DIAGONAL_KERNELS(extern, float)
OGIVE_DIAGONAL_KERNELS(extern, double)

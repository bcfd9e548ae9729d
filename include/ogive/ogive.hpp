// Everything that needs neither Eigen nor OpenMP: all operators, layers, feature maps and contexts. A program that uses
// one operator compiles faster with that operator's own header.
#pragma once

#include <ogive/layers/gates.hpp>
#include <ogive/layers/linear.hpp>
#include <ogive/layers/norm.hpp>
#include <ogive/layers/short_convolution.hpp>
#include <ogive/layers/token_shift.hpp>
#include <ogive/maps/cosformer.hpp>
#include <ogive/maps/discretisation.hpp>
#include <ogive/maps/elementwise.hpp>
#include <ogive/maps/gates.hpp>
#include <ogive/maps/learned.hpp>
#include <ogive/maps/polynomial.hpp>
#include <ogive/maps/random.hpp>
#include <ogive/maps/random_features.hpp>
#include <ogive/ops/linear_attention.hpp>
#include <ogive/ops/noncausal_linear_attention.hpp>
#include <ogive/ops/selective_scan.hpp>
#include <ogive/ops/softmax_attention.hpp>
#include <ogive/ops/ssd.hpp>

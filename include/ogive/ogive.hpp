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
#include <ogive/maps/dplr.hpp>
#include <ogive/maps/elementwise.hpp>
#include <ogive/maps/gates.hpp>
#include <ogive/maps/initialisation.hpp>
#include <ogive/maps/learned.hpp>
#include <ogive/maps/polynomial.hpp>
#include <ogive/maps/random.hpp>
#include <ogive/maps/random_features.hpp>
#include <ogive/ops/delta_rule.hpp>
#include <ogive/ops/dplr.hpp>
#include <ogive/ops/gated_delta_rule.hpp>
#include <ogive/ops/gated_rfa.hpp>
#include <ogive/ops/gla.hpp>
#include <ogive/ops/hgrn2.hpp>
#include <ogive/ops/iplr.hpp>
#include <ogive/ops/kda.hpp>
#include <ogive/ops/linear_attention.hpp>
#include <ogive/ops/noncausal_linear_attention.hpp>
#include <ogive/ops/retention.hpp>
#include <ogive/ops/rwkv4.hpp>
#include <ogive/ops/rwkv5.hpp>
#include <ogive/ops/rwkv6.hpp>
#include <ogive/ops/rwkv7.hpp>
#include <ogive/ops/selective_scan.hpp>
#include <ogive/ops/simple_gla.hpp>
#include <ogive/ops/softmax_attention.hpp>
#include <ogive/ops/ssd.hpp>

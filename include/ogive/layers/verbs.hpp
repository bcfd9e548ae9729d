// L7: the verbs of layers, written once. A layer is an aggregate of views with its letters and
//   output, gradient                 the view that is written; the mirror of the fields, of mutable views
//   rules                            a type with the static members that the verbs below call
// Layers with a state are also operators of engine/verbs.hpp: their verbs, backward too, are the ones there.
#pragma once

#include <ogive/core/check.hpp>
#include <ogive/engine/tasks.hpp>
#include <ogive/engine/verbs.hpp>

namespace ogive {
inline namespace OGIVE_ABI {

/// The cotangents of a layer's output.
template <class Layer>
using cotangent_of = cotangent<typename Layer::output>;

namespace detail {

template <class Layer>
concept layer = requires {
  typename Layer::rules;
  typename Layer::gradient;
};
template <class Layer>
concept plain_layer = layer<Layer> && !has_engine<Layer>;

/// Room for every worker; after `reserve` with `scratch_bytes` nothing happens here.
inline void reserve_for(context& ctx, std::size_t bytes) {
  ctx.reserve(static_cast<std::size_t>(ctx.workers()) * bytes);
}

/// The only form there is.
inline void one_form(core::checker& ask, const options& how) noexcept {
  ask.chunk(how);
  if (ask && how.form != form::automatic && how.form != form::recurrent) {
    ask.refuse("form", status_code::value) << "must be automatic: a layer has one form";
  }
}

}  // namespace detail

/// Whether the arguments fit together: nothing is read from the tensors or written. `forward` asks this first and
/// throws what it says; after it has passed, the `prechecked` twin never throws.
template <detail::plain_layer Layer>
status check(const Layer& layer, const std::type_identity_t<typename Layer::output>& y,
             const options& how = {}) noexcept {
  return Layer::rules::check(layer, y, how);
}

/// The same for `backward`.
template <detail::plain_layer Layer>
status check_backward(const Layer& layer, const std::type_identity_t<cotangent_of<Layer>>& d_y,
                      const std::type_identity_t<gradient<Layer>>& d, const options& how = {}) noexcept {
  return Layer::rules::check_backward(layer, d_y, d, how);
}

/// Scratch, in bytes, that any verb of this layer needs for `workers` threads.
template <detail::plain_layer Layer>
std::size_t scratch_bytes(const Layer& layer, const options& how = {}, int workers = 1) noexcept {
  return Layer::rules::bytes(layer, how) * static_cast<std::size_t>(std::max(workers, 1));
}

template <detail::plain_layer Layer>
void forward(prechecked_t, const Layer& layer, const std::type_identity_t<typename Layer::output>& y,
             const options& how = {}, context& ctx = default_context()) noexcept {
  Layer::rules::forward(layer, y, how, ctx);
}
template <detail::plain_layer Layer>
void forward(const Layer& layer, const std::type_identity_t<typename Layer::output>& y, const options& how = {},
             context& ctx = default_context()) {
  require(check(layer, y, how));
  Layer::rules::forward(layer, y, how, ctx);
}

/// Gradients from the cotangent of the output. They overwrite, or, with `how.accumulate`, add; what is shared by many
/// tokens is summed in an order that the shape alone decides.
template <detail::plain_layer Layer>
void backward(prechecked_t, const Layer& layer, const std::type_identity_t<cotangent_of<Layer>>& d_y,
              const std::type_identity_t<gradient<Layer>>& d, const options& how = {},
              context& ctx = default_context()) noexcept {
  Layer::rules::backward(layer, d_y, d, how, ctx);
}
template <detail::plain_layer Layer>
void backward(const Layer& layer, const std::type_identity_t<cotangent_of<Layer>>& d_y,
              const std::type_identity_t<gradient<Layer>>& d, const options& how = {},
              context& ctx = default_context()) {
  require(check_backward(layer, d_y, d, how));
  Layer::rules::backward(layer, d_y, d, how, ctx);
}

}  // namespace OGIVE_ABI
}  // namespace ogive

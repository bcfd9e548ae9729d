// The operator LinearAttention of ONNX (domain ai.onnx, opset 27) over packed tensors, for every update rule:
//
//   S ← exp(g_t) S                                       gated, gated_delta; g per head or per key channel
//   w = v_t,  or  w = β_t (v_t − Sᵀ k_t)                 delta, gated_delta
//   S ← S + k_t wᵀ,   o_t = scale Sᵀ q_t                 S ∈ R^{d_k × d_v} per kv head
//
// Sums and the carried state are in float whatever the types of tensors, T, and of states, S, are; outputs are rounded
// once, the state at the end. double, of both, is more than the standard has: its sums are in double.
#pragma once

#include <ogive/engine/matrix.hpp>
#include <ogive/interop/onnx/tensor.hpp>

#include <cmath>
#include <string_view>

namespace ogive {
inline namespace OGIVE_ABI {
namespace onnx {

namespace detail {

/// One update rule as an operator of the matrix engine: gates and β are of the tensors' type.
template <storage T, decay Decay, write Write>
struct update_rule {
  using scalar = T;
  using accum = accum_t<T>;
  template <storage S>
  using state_of = state<S>;
  using default_state = state<accum>;
  static constexpr const char* name = "LinearAttention";

  matrix_operands<T, Decay, Write, read::after, T> given;
  const matrix_operands<T, Decay, Write, read::after, T>& operands() const noexcept { return given; }
};

}  // namespace detail

/// query (B, T, Hq·d_k), key (B, T, Hkv·d_k), value (B, T, Hkv·d_v), heads packed head by head; past_state
/// (B, Hkv, d_k, d_v) of type S; decay (B, T, Hkv) or (B, T, Hkv·d_k), a natural log; beta (B, T, Hkv) or (B, T, 1).
/// Hq is a multiple of Hkv; query head h reads state h div (Hq / Hkv). output (B, T, Hq·d_v), present_state as
/// past_state, which may be the same memory, or left out.
template <storage T, storage S = T>
struct linear_attention {
  tensor_view<const T> query{}, key{}, value{};
  tensor_view<const S> past_state{};
  tensor_view<const T> decay{}, beta{};
  std::int64_t q_num_heads = 0;
  std::int64_t kv_num_heads = 0;
  std::string_view update_rule = "gated_delta";  ///< linear, gated, delta or gated_delta
  float scale = 0;                               ///< 0: 1/√d_k
  std::int64_t chunk_size = 64;                  ///< a hint of the standard's; it changes nothing

  static constexpr const char* name = "LinearAttention";

  bool gated() const noexcept { return update_rule == "gated" || update_rule == "gated_delta"; }
  bool corrects() const noexcept { return update_rule == "delta" || update_rule == "gated_delta"; }
  bool known() const noexcept { return gated() || corrects() || update_rule == "linear"; }
  index_t key_dim() const noexcept { return key.dim(2) / kv_num_heads; }
  index_t value_dim() const noexcept { return value.dim(2) / kv_num_heads; }
  /// Where d_k = 1 one decay per key channel is one per head.
  bool decays_per_key() const noexcept { return gated() && decay.dim(2) != kv_num_heads; }

  /// x (B, T, H·D) as [B, T, H, D].
  template <class X>
  static view<X, 4> unpack(const tensor_view<X>& x, index_t heads) noexcept {
    if (!x.present()) return {};
    const index_t width = x.dim(2), D = width / heads;
    return {x.data(), {x.dim(0), x.dim(1), heads, D}, {x.dim(1) * width, width, D, 1}};
  }
  state<S> states(const tensor_view<S>& present_state) const noexcept {
    return {.initial = past_state.template as<4>(), .final = present_state.template as<4>()};
  }

  /// f(the operator that computes the node).
  template <class F>
  auto visit(const F& f) const noexcept {
    if (!gated()) return corrects() ? f(rule<decay::none, write::delta>()) : f(rule<decay::none, write::additive>());
    if (!decays_per_key()) {
      return corrects() ? f(rule<decay::scalar, write::delta>()) : f(rule<decay::scalar, write::additive>());
    }
    return corrects() ? f(rule<decay::per_key, write::delta>()) : f(rule<decay::per_key, write::additive>());
  }

 private:
  template <ogive::decay Decay, ogive::write Write>
  detail::update_rule<T, Decay, Write> rule() const noexcept {
    detail::update_rule<T, Decay, Write> op{};
    auto& x = op.given;
    const index_t H = kv_num_heads;
    x.name = name;
    x.q = unpack(query, q_num_heads);
    x.k = unpack(key, H);
    x.v = unpack(value, H);
    using accum = accum_t<T>;
    x.scale = scale != 0 ? accum(scale) : accum(1) / std::sqrt(static_cast<accum>(key_dim()));
    if constexpr (Decay == ogive::decay::scalar) x.g = decay.template as<3>();
    if constexpr (Decay == ogive::decay::per_key) x.gates = unpack(decay, H);
    if constexpr (Write == ogive::write::delta) {
      const bool shared = beta.dim(2) == 1;
      const index_t width = beta.dim(2);
      x.beta = {beta.data(), {beta.dim(0), beta.dim(1), H}, {beta.dim(1) * width, width, shared ? 0 : 1}};
    }
    return op;
  }
};

/// Whether the standard allows the node (heads, rule, ranks, dims, what a rule needs and forbids) and whether what is
/// written lies apart.
template <storage T, storage S>
status check(const linear_attention<T, S>& node, const std::type_identity_t<tensor_view<T>>& output,
             const std::type_identity_t<tensor_view<S>>& present_state) noexcept {
  node_checker ask(linear_attention<T, S>::name);
  const auto refuse_value = [&](const char* field) -> status& { return ask.refuse(field, status_code::value); };
  const index_t Hq = node.q_num_heads, H = node.kv_num_heads;
  if (H <= 0) refuse_value("kv_num_heads") << "= " << H << " must be at least 1";
  if (ask && (Hq <= 0 || Hq % H != 0)) {
    refuse_value("q_num_heads") << "= " << Hq << " must be a multiple of kv_num_heads = " << H;
  }
  if (ask && !node.known()) refuse_value("update_rule") << "must be linear, gated, delta or gated_delta";
  ask.dims("query", node.query, {-1, -1, -1}, "(B, T, Hq*d_k)");
  if (!ask) return ask.result();
  const index_t B = node.query.dim(0), L = node.query.dim(1);
  ask.dims("key", node.key, {B, L, -1}, "(B, T, Hkv*d_k), B and T as query");
  ask.dims("value", node.value, {B, L, -1}, "(B, T, Hkv*d_v), B and T as query");
  if (!ask) return ask.result();
  const auto divides = [&](const char* field, index_t width, index_t heads) {
    if (ask && width % heads != 0)
      ask.refuse(field) << "has width " << width << ", no multiple of " << heads << " heads";
  };
  divides("query", node.query.dim(2), Hq);
  divides("key", node.key.dim(2), H);
  divides("value", node.value.dim(2), H);
  if (!ask) return ask.result();
  const index_t K = node.key_dim(), V = node.value_dim();
  if (node.query.dim(2) / Hq != K) {
    ask.refuse("query") << "has heads of " << node.query.dim(2) / Hq << " elements, key of " << K;
  }
  const auto presence = [&](const char* field, bool present, bool needed) {
    if (ask && present != needed) {
      ask.refuse(field) << (needed ? "is required by this update rule" : "is not allowed with this update rule");
    }
  };
  presence("decay", node.decay.present(), node.gated());
  presence("beta", node.beta.present(), node.corrects());
  ask.dims("decay", node.decay, {B, L, -1}, "(B, T, Hkv) or (B, T, Hkv*d_k)", true);
  ask.dims("beta", node.beta, {B, L, -1}, "(B, T, Hkv) or (B, T, 1)", true);
  if (ask && node.gated() && node.decay.dim(2) != H && node.decay.dim(2) != H * K) {
    ask.refuse("decay") << "has width " << node.decay.dim(2) << ", expected Hkv = " << H << " or Hkv*d_k = " << H * K;
  }
  if (ask && node.corrects() && node.beta.dim(2) != H && node.beta.dim(2) != 1) {
    ask.refuse("beta") << "has width " << node.beta.dim(2) << ", expected Hkv = " << H << " or 1";
  }
  ask.dims("past_state", node.past_state, {B, H, K, V}, "(B, Hkv, d_k, d_v)", true);
  ask.dims("output", output, {B, L, Hq * V}, "(B, T, Hq*d_v)");
  ask.dims("present_state", present_state, {B, H, K, V}, "(B, Hkv, d_k, d_v)", true);
  const auto apart = [&](const char* field, const auto& x) noexcept {
    ask.apart(field, x, "query", node.query).apart(field, x, "key", node.key).apart(field, x, "value", node.value);
    ask.apart(field, x, "decay", node.decay).apart(field, x, "beta", node.beta);
  };
  apart("output", output);
  apart("present_state", present_state);
  ask.apart("output", output, "present_state", present_state).apart("output", output, "past_state", node.past_state);
  if (present_state.data() != node.past_state.data()) {
    ask.apart("present_state", present_state, "past_state", node.past_state);
  }
  if (!ask) return ask.result();
  return node.visit(
      [&](const auto& op) noexcept { return ogive::check(op, node.states(present_state), node.unpack(output, Hq)); });
}

/// Runs the node. Unless `prechecked`, \throws shape_error, or std::invalid_argument for an attribute, before anything
/// is written.
template <storage T, storage S>
void run(prechecked_t, const linear_attention<T, S>& node, const std::type_identity_t<tensor_view<T>>& output,
         const std::type_identity_t<tensor_view<S>>& present_state, context& ctx = default_context()) noexcept {
  node.visit([&](const auto& op) noexcept {
    forward(prechecked, op, node.states(present_state), node.unpack(output, node.q_num_heads), {}, ctx);
  });
}
template <storage T, storage S>
void run(const linear_attention<T, S>& node, const std::type_identity_t<tensor_view<T>>& output,
         const std::type_identity_t<tensor_view<S>>& present_state, context& ctx = default_context()) {
  require(check(node, output, present_state));
  run(prechecked, node, output, present_state, ctx);
}

/// Scratch, in bytes, that `run` needs for `workers` threads.
template <storage T, storage S>
std::size_t scratch_bytes(const linear_attention<T, S>& node, int workers = 1) noexcept {
  return node.visit([&](const auto& op) noexcept { return ogive::scratch_bytes(op, options{}, workers); });
}

}  // namespace onnx
}  // namespace OGIVE_ABI
}  // namespace ogive

// Linear attention without a mask over time: every query sees every key.
//
//   o_i = φ(q_i)ᵀ Σ_j m_j φ(k_j) v_jᵀ / (φ(q_i)·Σ_j m_j φ(k_j) + ε)     normalised; 0 where the denominator is 0
//   o_i = s φ(q_i)ᵀ Σ_j m_j φ(k_j) v_jᵀ                                 unnormalised
//
// with m_j = 1 for the keys that count. Two forms: left, (φ(Q) φ(K)ᵀ) V, O(n m d); right, φ(Q) (φ(K)ᵀ V), O((n + m)
// d²). Katharopoulos et al., Transformers are RNNs, arXiv:2006.16236; with random features, Choromanski et al.,
// Performers, arXiv:2009.14794. Four rules for ε are in use: see eps_placement.
#pragma once

#include <ogive/engine/matrix.hpp>
#include <ogive/engine/product_backward.hpp>

#include <optional>

namespace ogive {
inline namespace OGIVE_ABI {

/// q [B, L, Hq, D], k [B, S, Hk, D], v [B, S, H, V]; o [B, L, max(H, Hq), V]. Hk divides H, and Hq divides H or H
/// divides Hq. A state is optional: the initial one counts as keys seen before, the final one is Σ_j φ(k_j) v_jᵀ
/// [slots, H, K, V] and z = Σ_j φ(k_j) [slots, H, K], K = features of D, the initial one included.
template <storage T, feature_map Map = maps::identity>
struct noncausal_linear_attention {
  using scalar = T;
  using accum = accum_t<T>;
  template <storage S>
  using state_of = linear_attention_state<S>;
  using default_state = linear_attention_state<accum>;
  using default_state_gradient = linear_attention_state_gradient<accum>;

  view<const T, 4> q{}, k{}, v{};
  Map map{};
  bool normalise = true;
  std::optional<accum> scale{};      ///< s, 1/√K by default; a normalised quotient only sees it under scaled_sum
  std::optional<accum> qk_l2norm{};  ///< ε: q and k are divided by √(Σx² + ε) before the map
  accum eps = std::is_same_v<accum, double> ? accum(1e-12) : accum(1e-6);
  eps_placement eps_at = eps_placement::sum;
  view<const bool, 2> key_mask{};  ///< [B, S]; false: the key does not count
  integers lengths{};              ///< [B]; keys from there on do not count
  heads head_map = heads::consecutive;
  index_t position = 0;  ///< absolute position of the first query and key, for maps that need it

  struct gradient {
    view<T, 4> q{}, k{}, v{};
    map_gradient<Map> map{};  ///< of what the map has learned: sums over everything that is mapped, q and k
  };

  static constexpr const char* name = "noncausal_linear_attention";
};

namespace detail {

/// Multiply-adds of the two forms for one value head and its readers, queries and columns in whole vectors. The left
/// one also reads a state that is given.
template <class Acc>
bool left_is_cheaper(const product_problem<Acc>& p) noexcept {
  const auto real = [](index_t count) { return static_cast<double>(count); };
  const double n = real(p.queries * p.readers()), m = real(p.keys), K = real(p.key_dim),
               V = real(padded<Acc>(p.value_dim));
  const double blocks = real(padded<Acc>(p.queries * p.readers()));
  const double left = blocks * m * (K + V) + (p.states.load != nullptr ? blocks * K * V : 0);
  const double right = (n + m) * K * V;
  return left < right;
}

/// Whether the fields fit together.
template <class Op>
void check_product_fields(core::checker& ask, const Op& op) noexcept {
  ask.given("q", op.q).given("k", op.k).given("v", op.v);
  if (!ask) return;
  const index_t B = op.q.extent(0), Hq = op.q.extent(2), D = op.q.extent(3), S = op.k.extent(1), H = op.v.extent(2);
  ask.extents("q", op.q, {-1, -1, -1, -1}, "[B, L, Hq, D]");
  ask.extents("k", op.k, {B, -1, -1, D}, "[B, S, Hk, D], B and D as q");
  ask.extents("v", op.v, {B, S, -1, -1}, "[B, S, H, V], B as q and S as k");
  ask.divides("Hk (heads of k)", op.k.extent(2), "H (heads of v)", H);
  if (Hq <= H) {
    ask.divides("Hq (heads of q)", Hq, "H (heads of v)", H);
  } else {
    ask.divides("H (heads of v)", H, "Hq (heads of q)", Hq);
  }
  ask.extents("key_mask", op.key_mask, {B, S}, "[B, S] as k");
  ask.lengths(op.lengths, B);
  check_features(ask, op);
}

/// The extents of o.
template <class Op>
shape<4> product_output(const Op& op) noexcept {
  return {op.q.extent(0), op.q.extent(1), std::max(op.v.extent(2), op.q.extent(2)), op.v.extent(3)};
}

/// A state S [`first`, H, K, V].
template <class Op>
shape<4> product_state(const Op& op, index_t first) noexcept {
  return {first, op.v.extent(2), features(op.map, op.q.extent(3)), op.v.extent(3)};
}

/// The first questions of every call: its fields fit, and so does its state.
template <class Op, class State>
void check_product_call(core::checker& ask, const Op& op, const State& st) noexcept {
  check_product_fields(ask, op);
  if (ask) check_pools(ask, op, st, op.q.extent(0), product_state(op, 0), "[slots, H, K, V]");
}

template <class Op, class X>
void check_product_written(core::checker& ask, const Op& op, const char* name, const X& x) noexcept {
  ask.apart(name, x, "q", op.q).apart(name, x, "k", op.k).apart(name, x, "v", op.v);
  ask.apart(name, x, "key_mask", op.key_mask);
  for_parameters(op.map, {}, [&](const char* field, const auto& weight, const auto&) noexcept {
    ask.apart(name, x, field, weight);
  });
}

template <class Op, class State>
status check_product(const Op& op, const State& st, const view<typename Op::scalar, 4>& o,
                     const options& how) noexcept {
  core::checker ask(Op::name);
  ask.chunk(how);
  if (ask && how.form != form::automatic && how.form != form::left && how.form != form::right) {
    ask.refuse("form", status_code::value) << "must be automatic, left or right: there is no time to run along";
  }
  check_product_call(ask, op, st);
  if (!ask) return ask.result();
  if (st.snapshots.present() || st.boundaries.present() || st.interval != 0) {
    ask.refuse(st.snapshots.present()    ? "snapshots"
               : st.boundaries.present() ? "boundaries"
                                         : "interval")
        << "is for states on the way, and there is no order here; leave it out";
  }
  ask.extents("o", o, product_output(op), "[B, L, max(H, Hq), V]").output("o", o);
  check_apart(ask, st, "o", o,
              [&](const char* name, const auto& x) noexcept { check_product_written(ask, op, name, x); });
  return ask.result();
}

template <class Op, class State, class Gradient>
status check_product_backward(const Op& op, const State& st, const view<const typename Op::scalar, 4>& d_o,
                              const Gradient& d_st, const typename Op::gradient& d, const options& how) noexcept {
  core::checker ask(Op::name);
  ask.chunk(how);
  if (ask && how.form != form::automatic && how.form != form::right) {
    ask.refuse("form", status_code::value) << "must be automatic or right for backward";
  }
  check_product_call(ask, op, without_end(st));
  if (!ask) return ask.result();
  ask.extents("d_o", d_o, product_output(op), "[B, L, max(H, Hq), V]");
  ask.extents("d.q", d.q, op.q.extents(), "as the field").output("d.q", d.q);
  ask.extents("d.k", d.k, op.k.extents(), "as the field").output("d.k", d.k);
  ask.extents("d.v", d.v, op.v.extents(), "as the field").output("d.v", d.v);
  check_parameters(ask, op.map, d.map);
  check_state_gradient(ask, d_st, product_state(op, op.q.extent(0)), "[B, H, K, V]");
  const auto gradients = [&](const auto& f) noexcept {
    f("d.q", d.q), f("d.k", d.k), f("d.v", d.v);
    for_parameters(op.map, d.map,
                   [&](const char*, const auto&, const auto& d_weight) noexcept { f("d.map", d_weight); });
  };
  check_gradients_apart(ask, st, "d_o", d_o, d_st, gradients,
                        [&](const char* name, const auto& x) noexcept { check_product_written(ask, op, name, x); });
  return ask.result();
}

template <class Op, class State>
void run_product(const Op& op, const State& st, const view<typename Op::scalar, 4>& o, const options& how,
                 context& ctx) {
  using Acc = sweep_t<typename Op::scalar, typename State::storage_type>;
  const product_binding<Op, State, Acc> bound{op, st, o};
  product_problem<Acc> p = bound.problem();
  // Whoever wants the final state gets the outputs from it.
  const bool left =
      how.form == form::left || (how.form == form::automatic && p.states.save == nullptr && left_is_cheaper(p));
  const bool right = !left || p.states.save != nullptr;
  const std::size_t bytes = std::max(left ? left_product_bytes(p) : 0, right ? right_product_bytes(p) : 0);
  ctx.reserve(static_cast<std::size_t>(ctx.workers()) * bytes);
  if (left && p.outputs) left_product(p, ctx);
  if (right) {
    p.outputs = p.outputs && !left;
    right_product(p, ctx);
  }
}

/// The hooks of a backward and what they see: one call.
template <class Op, class State, class Gradient, class Acc>
class product_backward_call {
  using gradient_state = typename Op::template state_of<typename Gradient::storage_type>;
  using T = typename Op::scalar;

 public:
  product_backward_call(const Op& op, const State& st, const view<const T, 4>& d_o, const Gradient& d_st,
                        const typename Op::gradient& d, bool accumulate) noexcept
      : after_{.initial = d_st.final, .z_initial = d_st.z_final},
        before_{.final = d_st.initial, .z_final = d_st.z_initial},
        forward_{op, st, o_},
        cotangent_{op, after_, o_},
        gradient_{op, before_, o_},
        backward_{op, d_o, d, accumulate} {
    if (accumulate) before_.initial = before_.final, before_.z_initial = before_.z_final;
  }
  product_backward_call(const product_backward_call&) = delete;

  product_backward_problem<Acc> problem() const noexcept {
    return {forward_.problem(),         backward_.adjoints(), cotangent_.problem().states,
            gradient_.problem().states, backward_.room(),     backward_.sums()};
  }

 private:
  view<T, 4> o_{};
  gradient_state after_, before_;
  product_binding<Op, State, Acc> forward_;
  product_binding<Op, gradient_state, Acc> cotangent_, gradient_;
  product_backward_binding<Op, Acc> backward_;
};

/// The product engine behind the verbs: check, scratch_bytes, forward and backward; there is no time to step along.
struct product_engine {
  static constexpr bool has_steps = false;
  static constexpr bool has_chunks = false;
  template <class Op>
  using output = view<typename Op::scalar, 4>;

  template <class Op, class Given>
  static auto own(Given& given) noexcept {
    return as_state<Op>(given);
  }
  template <class Op, class State>
  static status check(const Op& op, const State& st, const output<Op>& o, const options& how) noexcept {
    return check_product(op, st, o, how);
  }
  template <class Op>
  static std::size_t bytes(const Op& op, const options&) noexcept {
    const output<Op> o;
    const auto most = [&]<class Acc>(Acc) noexcept {
      using State = linear_attention_state<Acc>;
      const State st{.initial = view<const Acc, 4>(nullptr, {}), .final = view<Acc, 4>(nullptr, {})};
      const auto p = product_binding<Op, State, Acc>{op, st, o}.problem();
      return std::max(left_product_bytes(p), right_product_bytes(p));
    };
    return std::max(most(accum_t<typename Op::scalar>{}), most(double{}));
  }
  template <verb, class Op, class State>
  static void run(const Op& op, const State& st, const output<Op>& o, const options& how, context& ctx) {
    run_product(op, st, o, how, ctx);
  }

  template <class Op, class State, class Gradient>
  static status check_backward(const Op& op, const State& st, const view<const typename Op::scalar, 4>& d_o,
                               const Gradient& d_st, const typename Op::gradient& d, const options& how) noexcept {
    return check_product_backward(op, st, d_o, d_st, d, how);
  }
  template <class Op>
  static std::size_t backward_bytes(const Op& op, const options&) noexcept {
    const auto most = [&]<class Acc>(Acc) noexcept {
      const linear_attention_state<Acc> st{};
      const view<const typename Op::scalar, 4> d_o;
      const linear_attention_state_gradient<Acc> d_st{};
      const typename Op::gradient d{};
      const product_backward_call<Op, linear_attention_state<Acc>, linear_attention_state_gradient<Acc>, Acc> all(
          op, st, d_o, d_st, d, false);
      auto p = all.problem();
      p.sums = weight_sums{op.map, d.map}.size();
      return product_backward_bytes(p);
    };
    return std::max(most(accum_t<typename Op::scalar>{}), most(double{}));
  }
  template <class Op, class State, class Gradient>
  static void backward(const Op& op, const State& st, const view<const typename Op::scalar, 4>& d_o,
                       const Gradient& d_st, const typename Op::gradient& d, const options& how, context& ctx) {
    using Acc = sweep_t<typename Op::scalar, typename State::storage_type>;
    const product_backward_call<Op, State, Gradient, Acc> all(op, st, d_o, d_st, d, how.accumulate);
    const product_backward_problem<Acc> p = all.problem();
    ctx.reserve(static_cast<std::size_t>(ctx.workers()) * product_backward_bytes(p));
    product_backward(p, weight_sums{op.map, d.map}, how.accumulate, ctx);
  }
};

}  // namespace detail

template <storage T, feature_map Map>
struct engine_of<noncausal_linear_attention<T, Map>> {
  using type = detail::product_engine;
};

}  // namespace OGIVE_ABI
}  // namespace ogive

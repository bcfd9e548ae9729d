// L5: the backward of linear attention without time: what passes between queries and keys passes through sums over
// tokens, as in the right product.
//
//   S = S₀ + φ(K)ᵀ V,   z = z₀ + Σ_j φ(k_j)                  N = φ(Q) S,   D = φ(Q)·z + ε,   O = N / D
//   dN = dO / D,   dD = −(dO·O) / D                          dφ(Q) = dN Sᵀ + dD zᵀ
//   dS = d(S final) + φ(Q)ᵀ dN,   dz = d(z final) + φ(Q)ᵀ dD  which are those of S₀ and z₀ too
//   dV = φ(K) dS                                             dφ(k_j) = dS v_j + dz
//
// Three products a query and three a key, O((n + m) K V); three K × V matrices per head, and panels of 64 tokens.
#pragma once

#include <ogive/engine/product_binding.hpp>
#include <ogive/linalg/transpose.hpp>

#include <numeric>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

/// How rows of cotangents come and rows of gradients go, beside product_hooks. What is null is not given, or not
/// wanted.
template <class Acc>
struct product_adjoints {
  const void* op = nullptr;
  /// Rows of dN and dD, as quotient::pull has them.
  void (*load)(const void* op, const tokens& at, const Acc* sums, const Acc* denominator, Acc* panel, index_t stride,
               Acc* d_denominator) noexcept = nullptr;
  /// Rows of dφ(q), dφ(k) and dv; they may be changed. The first two also add to the task's sums of the gradients of
  /// what the map has learned, unless null.
  void (*store_q)(const void* op, const tokens& at, Acc* d_q, index_t stride, Acc* room, Acc* sums) noexcept = nullptr;
  void (*store_k)(const void* op, const tokens& at, Acc* d_k, index_t stride, Acc* room, Acc* sums) noexcept = nullptr;
  void (*store_v)(const void* op, const tokens& at, Acc* d_v, index_t stride, Acc* room) noexcept = nullptr;
};

template <class Acc>
struct product_backward_problem {
  product_problem<Acc> forward;
  product_adjoints<Acc> adjoints;
  product_state_hooks<Acc> cotangent;  // loads that of the final state
  product_state_hooks<Acc> gradient;   // saves that of the initial state, and loads what it is added to
  index_t room = 0;                    // elements that stores want for a panel of rows
  index_t sums = 0;                    // elements of the gradients of the map's weights, where these are wanted

  bool reads_state() const noexcept {
    return adjoints.load != nullptr && (forward.normalise || adjoints.store_q != nullptr);
  }
  bool wants_state() const noexcept {
    return adjoints.store_k != nullptr || adjoints.store_v != nullptr || gradient.save != nullptr;
  }
  /// Heads that share a query head or a key head are of one unit, whose task sums their gradients; so are a few more,
  /// whose rows lie side by side, where there are many.
  index_t units() const noexcept {
    index_t all = std::gcd(std::gcd(forward.query_heads, forward.key_heads), forward.heads);
    while (all % 2 == 0 && forward.heads <= 2 * all && forward.sequences() * all >= 32) all /= 2;
    return std::max<index_t>(all, 1);
  }
};

/// One sequence and the heads of one unit.
template <class Acc, class Arch>
class product_backward_task {
 public:
  using problem = product_backward_problem<Acc>;

  static std::size_t scratch(const problem& p) noexcept {
    arena memory;
    carve(p, memory);
    return memory.used() + core::summed_bytes<Acc>(p.sums);
  }

  /// All tasks of a call. The context has room for every worker.
  template <class Weights>
  static void run(const problem& p, const Weights& weights, bool accumulate, context& ctx) noexcept {
    run_summed_tasks<Acc>(ctx, p.forward.sequences() * p.units(), scratch(p), p.sums, weights, accumulate,
                          [&](index_t task, arena memory, Acc* sums) noexcept { run(p, task, memory, sums); });
  }

 private:
  using panel = linalg::panel<Acc>;
  static constexpr index_t tokens_ = right_plan::tokens;

  struct panels {
    Acc *rows, *d_rows;               // of φ(q) or φ(k)
    Acc *values, *d_values;           // of N or V
    Acc *states, *d_states, *turned;  // S, dS, and one of them turned round, of every head
    Acc *z, *d_z, *row;
    Acc *denominator, *d_denominator, *room;
  };
  static panels carve(const problem& p, arena& memory) noexcept {
    const product_problem<Acc>& f = p.forward;
    const index_t K = linalg::padded_stride<Acc>(f.key_dim), V = linalg::padded_stride<Acc>(f.value_dim);
    const index_t heads = f.heads / p.units();
    panels r{};
    r.rows = memory.take<Acc>(tokens_ * K);
    r.d_rows = memory.take<Acc>(tokens_ * K);
    r.values = memory.take<Acc>(tokens_ * V);
    r.d_values = memory.take<Acc>(tokens_ * V);
    r.states = memory.take<Acc>(heads * f.key_dim * V);
    r.d_states = memory.take<Acc>(heads * f.key_dim * V);
    r.turned = memory.take<Acc>(heads * f.value_dim * K);
    r.z = memory.take<Acc>(heads * K);
    r.d_z = memory.take<Acc>(heads * K);
    r.row = memory.take<Acc>(K);
    r.denominator = memory.take<Acc>(tokens_);
    r.d_denominator = memory.take<Acc>(tokens_);
    r.room = memory.take<Acc>(std::max(tokens_ * padded<Acc>(f.input_dim), p.room));
    return r;
  }

  OGIVE_NOINLINE static void run(const problem& p, index_t task, arena memory, Acc* sums) noexcept;

  product_backward_task(const problem& p, index_t task, arena& memory, Acc* sums) noexcept
      : all_(p),
        p_(p.forward),
        m_(carve(p, memory)),
        sums_(sums),
        units_(p.units()),
        unit_(task % units_),
        index_(task / units_) {
    sequence_ = product_sequence::of(p_, index_);
  }

  /// The i-th of `many` heads that read head `shared` of `few`; heads of the task are those that read its unit.
  index_t reader(index_t many, index_t few, index_t shared, index_t i) const noexcept {
    return p_.head_map == heads::consecutive ? shared * (many / few) + i : shared + i * few;
  }
  index_t own(index_t many, index_t i) const noexcept { return reader(many, units_, unit_, i); }
  index_t heads_of_task() const noexcept { return p_.heads / units_; }
  index_t head(index_t n) const noexcept { return own(p_.heads, n); }
  index_t outputs() const noexcept { return std::max(p_.heads, p_.query_heads); }
  /// Where the value head of an output, or a value head itself, stands among those of the task.
  index_t place(index_t h) const noexcept {
    return p_.head_map == heads::consecutive ? h - unit_ * heads_of_task() : h / units_;
  }
  index_t place_of_output(index_t o) const noexcept {
    return place(p_.head_map == heads::consecutive ? o / p_.readers() : o % p_.heads);
  }

  index_t k_stride() const noexcept { return linalg::padded_stride<Acc>(p_.key_dim); }
  index_t v_stride() const noexcept { return linalg::padded_stride<Acc>(p_.value_dim); }
  /// Columns in whole vectors.
  index_t features() const noexcept { return padded<Acc>(p_.key_dim); }
  index_t columns() const noexcept { return padded<Acc>(p_.value_dim); }
  panel state(index_t n) const noexcept { return {m_.states + n * p_.key_dim * v_stride(), v_stride()}; }
  panel d_state(index_t n) const noexcept { return {m_.d_states + n * p_.key_dim * v_stride(), v_stride()}; }
  panel turned(index_t n) const noexcept { return {m_.turned + n * p_.value_dim * k_stride(), k_stride()}; }
  Acc* z(index_t n) const noexcept { return m_.z + n * k_stride(); }
  Acc* d_z(index_t n) const noexcept { return m_.d_z + n * k_stride(); }
  panel rows() const noexcept { return {m_.rows, k_stride()}; }
  panel d_rows() const noexcept { return {m_.d_rows, k_stride()}; }
  panel values() const noexcept { return {m_.values, v_stride()}; }
  panel d_values() const noexcept { return {m_.d_values, v_stride()}; }

  /// What a state brings, or zero.
  void start(const product_state_hooks<Acc>& given, index_t n, const panel& S, Acc* z) const noexcept {
    if (given.load != nullptr && given.load(given.state, index_, head(n), 0, p_.value_dim, S.data, S.stride, z)) {
      return;
    }
    zero_rows(S.data, S.stride, p_.key_dim, columns());
    zero_rows(z, 0, 1, features());
  }
  void turn(index_t n, const panel& S) const noexcept {
    linalg::transpose<Arch>(p_.key_dim, p_.value_dim, {S.data, S.stride}, turned(n));
  }
  void load_k(index_t j, index_t count, index_t shared) const noexcept {
    p_.hooks.load_k(p_.hooks.op, sequence_.keys_at(j, count, shared), m_.rows, k_stride(), m_.room);
  }
  void load_v(index_t j, index_t count, index_t h) const noexcept {
    p_.hooks.load_v(p_.hooks.op, sequence_.keys_at(j, count, h), 0, p_.value_dim, m_.values, v_stride());
  }

  /// S and z
  void sum_keys() const noexcept {
    for (index_t n = 0; n < heads_of_task(); ++n) start(p_.states, n, state(n), z(n));
    for (index_t j = 0; j < sequence_.live; j += tokens_) {
      const index_t count = std::min(tokens_, sequence_.live - j);
      for (index_t a = 0; a < p_.key_heads / units_; ++a) {
        const index_t shared = own(p_.key_heads, a);
        load_k(j, count, shared);
        for (index_t i = 0; i < p_.heads / p_.key_heads; ++i) {
          const index_t h = reader(p_.heads, p_.key_heads, shared, i), n = place(h);
          load_v(j, count, h);
          linalg::gemm_atb<Arch>(p_.key_dim, columns(), count, rows(), values(), state(n), linalg::add{});
          add_rows<Acc, Arch>(count, features(), m_.rows, k_stride(), z(n));
        }
      }
    }
  }

  void begin() const noexcept {
    for (index_t n = 0; n < heads_of_task(); ++n) {
      if (all_.reads_state() && all_.adjoints.store_q != nullptr) turn(n, state(n));
      if (all_.wants_state()) start(all_.cotangent, n, d_state(n), d_z(n));
    }
  }

  /// dφ(Q), and what the queries add to dS and dz.
  void queries() const noexcept {
    const bool wanted = all_.adjoints.store_q != nullptr;
    for (index_t i = 0; i < sequence_.queries; i += tokens_) {
      const index_t count = std::min(tokens_, sequence_.queries - i);
      for (index_t a = 0; a < p_.query_heads / units_; ++a) {
        const index_t shared = own(p_.query_heads, a);
        const tokens at = sequence_.queries_at(i, count, shared);
        if (wanted) zero_rows(m_.d_rows, k_stride(), count, features());
        if (all_.adjoints.load != nullptr) {
          p_.hooks.load_q(p_.hooks.op, at, m_.rows, k_stride(), m_.room);
          for (index_t r = 0; r < outputs() / p_.query_heads; ++r) {
            read(sequence_.queries_at(i, count, reader(outputs(), p_.query_heads, shared, r)));
          }
        }
        if (wanted) all_.adjoints.store_q(all_.adjoints.op, at, m_.d_rows, k_stride(), m_.room, sums_);
      }
    }
  }

  /// One output of a panel of queries.
  void read(const tokens& at) const noexcept {
    const index_t n = place_of_output(at.head);
    if (p_.normalise) {
      linalg::gemm_ab<Arch>(at.count, columns(), p_.key_dim, rows(), state(n), values());
      dot_rows<Acc, Arch>(at.count, features(), m_.rows, k_stride(), z(n), p_.bias, m_.denominator);
    }
    all_.adjoints.load(all_.adjoints.op, at, m_.values, m_.denominator, m_.d_values, v_stride(), m_.d_denominator);
    if (all_.adjoints.store_q != nullptr) {
      linalg::gemm_ab<Arch>(at.count, p_.key_dim, p_.value_dim, d_values(), turned(n), d_rows(), linalg::add{});
      if (p_.normalise) {
        change_rows(m_.d_rows, k_stride(), at.count, p_.key_dim, [&](index_t i, index_t j, vector d) noexcept {
          return simd::fma(vector(m_.d_denominator[i]), simd::load<Arch>(z(n) + j) + vector(p_.bias), d);
        });
      }
    }
    if (!all_.wants_state()) return;
    linalg::gemm_atb<Arch>(p_.key_dim, columns(), at.count, rows(), d_values(), d_state(n), linalg::add{});
    if (p_.normalise) {
      dot_columns<Acc, Arch>(at.count, features(), m_.rows, k_stride(), m_.d_denominator, Acc(0), m_.row);
      add_rows<Acc, Arch>(1, features(), m_.row, 0, d_z(n));
    }
  }

  /// dφ(K) and dV
  void keys() const noexcept {
    const product_adjoints<Acc>& out = all_.adjoints;
    for (index_t n = 0; n < heads_of_task() && out.store_k != nullptr; ++n) turn(n, d_state(n));
    for (index_t j = 0; j < sequence_.keys; j += tokens_) {
      const index_t count = std::min(tokens_, sequence_.keys - j);
      for (index_t a = 0; a < p_.key_heads / units_; ++a) {
        const index_t shared = own(p_.key_heads, a);
        const tokens at = sequence_.keys_at(j, count, shared);
        if (out.store_v != nullptr) load_k(j, count, shared);
        if (out.store_k != nullptr) zero_rows(m_.d_rows, k_stride(), count, features());
        for (index_t i = 0; i < p_.heads / p_.key_heads; ++i) {
          const index_t h = reader(p_.heads, p_.key_heads, shared, i), n = place(h);
          if (out.store_v != nullptr) {
            linalg::gemm_ab<Arch>(at.live, columns(), p_.key_dim, rows(), d_state(n), d_values());
            out.store_v(out.op, sequence_.keys_at(j, count, h), m_.d_values, v_stride(), m_.room);
          }
          if (out.store_k == nullptr) continue;
          load_v(j, count, h);
          linalg::gemm_ab<Arch>(at.live, p_.key_dim, p_.value_dim, values(), turned(n), d_rows(), linalg::add{});
          change_rows(m_.d_rows, k_stride(), at.live, p_.key_dim,
                      [&](index_t, index_t k, vector d) noexcept { return d + simd::load<Arch>(d_z(n) + k); });
        }
        if (out.store_k != nullptr) out.store_k(out.op, at, m_.d_rows, k_stride(), m_.room, sums_);
      }
    }
  }

  /// The gradient of the initial state, in place of a state that has been read.
  void end() const noexcept {
    for (index_t n = 0; n < heads_of_task(); ++n) {
      start(all_.gradient, n, state(n), z(n));
      for (index_t i = 0; i < p_.key_dim; ++i) add_rows<Acc, Arch>(1, columns(), d_state(n).row(i), 0, state(n).row(i));
      add_rows<Acc, Arch>(1, features(), d_z(n), 0, z(n));
      all_.gradient.save(all_.gradient.state, index_, head(n), 0, p_.value_dim, state(n).data, v_stride(), z(n));
    }
  }

  using vector = simd::batch<Acc, Arch>;

  const problem& all_;
  const product_problem<Acc>& p_;
  panels m_;
  Acc* sums_;
  index_t units_;
  index_t unit_;
  index_t index_;
  product_sequence sequence_{};
};

// Not inline, so that an extern template spares a unit the bodies.
template <class Acc, class Arch>
void product_backward_task<Acc, Arch>::run(const problem& p, index_t task, arena memory, Acc* sums) noexcept {
  const product_backward_task mine(p, task, memory, sums);
  if (p.reads_state()) mine.sum_keys();
  mine.begin();
  mine.queries();
  if (p.adjoints.store_k != nullptr || p.adjoints.store_v != nullptr) mine.keys();
  if (p.gradient.save != nullptr) mine.end();
}

/// Bytes of scratch one worker needs.
template <class Acc>
std::size_t product_backward_bytes(const product_backward_problem<Acc>& p) noexcept {
  return product_backward_task<Acc, simd::default_arch>::scratch(p);
}

/// The gradients of the right product; those of the map's weights go where core::run_summed brings them. The context
/// has room for every worker.
template <class Acc, class Weights>
void product_backward(const product_backward_problem<Acc>& p, const Weights& weights, bool accumulate,
                      context& ctx) noexcept {
  product_backward_task<Acc, simd::default_arch>::run(p, weights, accumulate, ctx);
}

// ---- as an operator sees it ----------------------------------------------------------------------------------------

/// An operator as product_binding has it, the cotangent of its outputs and its gradients {q, k, v}: what the hooks see.
template <class Op, class Acc>
struct product_backward_binding {
  using T = typename Op::scalar;

  const Op& op;
  const view<const T, 4>& d_o;
  const typename Op::gradient& d;
  bool accumulate;

  product_adjoints<Acc> adjoints() const noexcept {
    static_assert(explain_differentiable_map<decltype(Op::map)>());
    product_adjoints<Acc> all{};
    all.op = this;
    if (d_o.present()) all.load = load;
    if (d.q.present() || sums() > 0) all.store_q = store_q;
    if (d.k.present() || sums() > 0) all.store_k = store_k;
    if (d.v.present()) all.store_v = store_v;
    return all;
  }
  index_t sums() const noexcept {
    const weight_sums weights{op.map, d.map};
    return weights.wanted() ? weights.size() : 0;
  }
  index_t room() const noexcept {
    return std::max(pulled_room<Acc>(op.map, op.k.extent(3), right_plan::tokens), padded<Acc>(op.v.extent(3)));
  }

 private:
  static const product_backward_binding& self(const void* bound) noexcept {
    return *static_cast<const product_backward_binding*>(bound);
  }
  static void load(const void* bound, const tokens& at, const Acc* sums, const Acc* denominator, Acc* panel,
                   index_t stride, Acc* d_denominator) noexcept {
    const Op& mine = self(bound).op;
    const auto divide = quotient<Acc>::of(mine, features(mine.map, mine.k.extent(3)));
    divide.pull(self(bound).d_o, at, sums, denominator, panel, stride, d_denominator);
  }
  static void store_q(const void* bound, const tokens& at, Acc* d_q, index_t stride, Acc* room, Acc* sums) noexcept {
    const auto& [mine, d_o, d, accumulate] = self(bound);
    store_pulled(mine.map, mine.q, at, {.position = mine.position, .which = side::query}, mine.qk_l2norm, {}, d_q,
                 stride, d.q, accumulate, room, sums);
  }
  static void store_k(const void* bound, const tokens& at, Acc* d_k, index_t stride, Acc* room, Acc* sums) noexcept {
    const auto& [mine, d_o, d, accumulate] = self(bound);
    store_pulled(mine.map, mine.k, at, {.position = mine.position, .which = side::key}, mine.qk_l2norm, mine.key_mask,
                 d_k, stride, d.k, accumulate, room, sums);
  }
  static void store_v(const void* bound, const tokens& at, Acc* d_v, index_t stride, Acc* room) noexcept {
    const auto& [mine, d_o, d, accumulate] = self(bound);
    clear_masked(mine.key_mask, at, d_v, stride, padded<Acc>(mine.v.extent(3)));
    store_gradient(d_v, stride, d.v, at, accumulate, room);
  }
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

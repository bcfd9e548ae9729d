// L5: what a backward of the matrix engine is told, and the memory of its tasks.
#pragma once

#include <ogive/core/shared_sums.hpp>
#include <ogive/engine/matrix_checkpoints.hpp>
#include <ogive/engine/matrix_scores_backward.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

template <class Acc>
struct matrix_backward_problem {
  matrix_problem<Acc> forward;
  matrix_adjoints<Acc> adjoints;
  matrix_checkpoints<Acc> kept;  // no states: a first sweep makes them
  state_hooks<Acc> cotangents;   // loads that of the final state, saves the gradient of the initial one
  bool accumulate = false;
  bool sums = false;       // some gradients are sums over tokens and sequences
  index_t chunks = 0;      // of the longest sequence
  index_t room = 0;        // elements that the operator's own adjoints want
  index_t weights = 0;     // elements of the gradients of what all heads share, where these are wanted
  bool undivided = false;  // the heads of a unit share gates, to whose gradients the adjoints add
  index_t pieces = 1;      // of V, tasks of their own, where there is one state

  /// Heads that share a key or a query head with others are a unit: their gradients are summed.
  index_t units() const noexcept {
    const matrix_extents& n = forward.n;
    return std::max<index_t>(1, std::min({n.key_heads, n.query_heads, n.heads}));
  }
  index_t unit_groups() const noexcept { return forward.plan.groups / units(); }
  /// The parts of a large unit, a task each: of some of its groups, or, if it has only one, of some of its members.
  index_t parts() const noexcept {
    constexpr index_t most_heads = 8;  // of a part: the products of shared scores are made once in each
    const index_t groups = unit_groups(), members = forward.plan.members;
    if (groups * members <= most_heads || weights > 0 || undivided) return 1;
    const index_t of = groups > 1 ? groups : members,
                  at_once = std::max<index_t>(1, groups > 1 ? most_heads / members : most_heads);
    return (of + at_once - 1) / at_once;
  }
  /// Heads of one part.
  index_t part_heads() const noexcept {
    const index_t groups = unit_groups(), members = forward.plan.members, n = parts();
    return groups > 1 ? (groups + n - 1) / n * members : (members + n - 1) / n;
  }
  /// Units of one task: the rows of neighbouring heads lie side by side, but the states they keep should stay near (one
  /// head more or less changes K = V = 128 by 5 %, eight heads cost 10 %).
  index_t block() const noexcept {
    const index_t heads = forward.n.key_dim * forward.n.value_dim < 8192 ? 4 : 2;
    return std::clamp<index_t>(heads * units() / std::max<index_t>(forward.n.heads, 1), 1, units());
  }
  index_t blocks() const noexcept { return (units() + block() - 1) / block(); }
  index_t block_of(index_t head) const noexcept {
    const index_t groups = forward.plan.groups, members = forward.plan.members;
    const bool consecutive = forward.head_map == heads::consecutive;
    return (consecutive ? head / (unit_groups() * members) : head % groups % units()) / block();
  }
  index_t tasks() const noexcept { return forward.sequences * blocks() * parts(); }

  /// Panels of a chunk that the parts of a unit have in common: of keys, with what removes, and of queries.
  index_t joint_keys() const noexcept {
    const bool own = unit_groups() > 1 && forward.n.key_heads == forward.plan.groups;
    return parts() == 1 || own ? 0 : forward.policies.writes == write::low_rank ? 3 : 1;
  }
  index_t joint_queries() const noexcept {
    const bool own = unit_groups() > 1 && (forward.plan.queries > 1 || forward.n.query_heads == forward.plan.groups);
    return parts() == 1 || own ? 0 : 1;
  }
  /// Elements of them, of one chunk and of a sequence.
  index_t joint_chunk() const noexcept {
    return (joint_keys() + joint_queries()) * forward.plan.chunk * forward.plan.k_stride;
  }
  index_t joint_size() const noexcept { return chunks * joint_chunk(); }
  /// Tasks that a worker runs before what they have in common is added up.
  index_t turns() const noexcept { return joint_chunk() > 0 ? 1 : 8; }
};

/// What tasks of columns of V leave for those of chunks, in the columns of wider panels.
template <class Acc>
struct matrix_backward_columns {
  Acc* states;     // [chunks, K, V], those before each chunk; null: checkpoints have them
  Acc* d_states;   // [chunks + 1, K, V], the gradient of the initial state and the cotangents after each chunk
  Acc* corrected;  // [chunks, C, V], likewise the rest
  Acc* d_o;
  Acc* d_v;  // of the delta rule y
  Acc* d_w;

  // What chunks leave, of all columns, where gradients are sums over tokens: those go from chunk to chunk. And d_v.
  Acc* d_gates;
  Acc* d_k;
  Acc* d_u;

  static matrix_backward_columns carve(const matrix_backward_problem<Acc>& p, arena& memory) noexcept {
    const matrix_plan& plan = p.forward.plan;
    const write writes = p.forward.policies.writes;
    const index_t state = p.forward.n.key_dim * plan.state_rows, values = tile_rows(plan.chunk) * plan.v_stride;
    matrix_backward_columns all{};
    if (p.kept.states == nullptr) all.states = memory.take<Acc>(p.chunks * state);
    all.d_states = memory.take<Acc>((p.chunks + 1) * state);
    all.corrected = memory.take<Acc>(writes == write::additive ? 0 : p.chunks * values);
    all.d_o = memory.take<Acc>(p.chunks * values);
    all.d_v = memory.take<Acc>(p.chunks * values);
    all.d_w = memory.take<Acc>(writes == write::low_rank ? p.chunks * values : 0);
    const bool per_key = p.forward.policies.decays == decay::per_key;
    const index_t gates = p.sums ? p.chunks * tile_rows(plan.chunk) * (per_key ? plan.k_stride : 1) : 0;
    all.d_gates = memory.take<Acc>(gates);
    all.d_k = memory.take<Acc>(per_key ? gates : 0);
    all.d_u = memory.take<Acc>(p.sums && p.forward.policies.reads == read::before ? p.chunks * plan.k_stride : 0);
    return all;
  }
  matrix_backward_columns from(index_t column) const noexcept {
    matrix_backward_columns part = *this;
    for (Acc** x : {&part.states, &part.d_states, &part.corrected, &part.d_o, &part.d_v, &part.d_w}) {
      if (*x != nullptr) *x += column;
    }
    return part;
  }
};

/// A worker's panels beside those of the forward.
template <class Acc>
struct matrix_backward_scratch {
  Acc* room;
  Acc* states;  // of all chunks and heads
  Acc* z;
  Acc* d_state;  // of all heads
  Acc* d_z;
  Acc* turned;         // [V, K], S₀
  Acc* turned_d;       // [V, K], dS
  Acc* turned_values;  // [V, C]
  Acc* d_o;            // of every query head
  Acc* d_denominator;
  Acc* d_v;
  Acc* d_w;        // of low rank; −β ⊙ y of the delta rule, in place of y where nobody else wants that
  Acc* recalled;   // β ⊙ y
  Acc* corrected;  // V − R of the delta rule, or W, of all chunks and heads
  Acc* scaled;
  Acc* weights;
  Acc* removal;     // X
  Acc* d_scores;    // of every reader and key
  Acc* sum_scores;  // of the heads of a group
  Acc* d_x;         // of every reader
  Acc* d_y;         // of every key
  Acc* sum_q;       // over the heads that share them
  Acc* sum_k;
  Acc* sum_a;
  Acc* sum_b;
  channel_room<Acc> channels;
  Acc* boundary;
  Acc* d_gates;
  Acc* d_beta;
  Acc* d_u;
  Acc* joint;    // of a part: what its unit sums
  Acc* carried;  // the sum of the parts so far, where a unit's go on

  static matrix_backward_scratch carve(const matrix_backward_problem<Acc>& p, arena& memory) noexcept {
    const matrix_problem<Acc>& f = p.forward;
    const matrix_plan& plan = f.plan;
    const auto [decays, writes, reads] = f.policies;
    const bool removes = writes != write::additive, low_rank = writes == write::low_rank;
    const index_t heads = p.part_heads() * p.block(), state = f.n.key_dim * plan.state_rows;
    const index_t tokens = tile_rows(plan.chunk), score = tokens * padded<Acc>(tokens);
    const index_t keys = tokens * plan.k_stride, values = tokens * plan.v_stride, R = plan.queries;
    const index_t kinds = low_rank ? 2 : 1, readers = R + (removes ? 1 : 0);
    matrix_backward_scratch s{};
    s.room = memory.take<Acc>(
        std::max(p.room, 2 * plan.chunk * std::max(plan.v_stride, plan.k_stride) + 2 * padded<Acc>(plan.chunk)));
    const bool kept = p.kept.states != nullptr, whole = p.pieces == 1;
    const index_t swept = kept || !whole ? 0 : std::max<index_t>(p.chunks, 1) * heads;
    s.states = memory.take<Acc>(swept * state);
    s.d_state = memory.take<Acc>(whole ? heads * state : 0);
    s.z = memory.take<Acc>(f.normalise ? swept * plan.k_stride : 0);
    s.d_z = memory.take<Acc>(heads * plan.k_stride);
    s.turned = memory.take<Acc>(f.n.value_dim * linalg::padded_stride<Acc>(f.n.key_dim));
    s.turned_d =
        decays == decay::none ? s.turned : memory.take<Acc>(f.n.value_dim * linalg::padded_stride<Acc>(f.n.key_dim));
    s.turned_values = memory.take<Acc>(f.n.value_dim * plan.template turned<Acc>());
    s.d_o = memory.take<Acc>(whole ? R * values : 0);
    s.d_denominator = memory.take<Acc>(R * plan.chunk);
    s.d_v = memory.take<Acc>(whole ? values : 0);
    s.d_w = writes == write::delta && whole ? s.d_v : memory.take<Acc>(removes && whole == low_rank ? values : 0);
    s.recalled = memory.take<Acc>(writes == write::delta ? values : 0);
    s.corrected = memory.take<Acc>(removes && whole ? std::max<index_t>(swept, 1) * values : 0);
    s.scaled = memory.take<Acc>(decays == decay::scalar ? (removes ? 2 : 1) * values : 0);
    s.weights = memory.take<Acc>(decays == decay::scalar ? score : 0);
    s.removal = memory.take<Acc>(decays == decay::scalar && removes ? score : 0);
    s.d_scores = memory.take<Acc>(readers * kinds * score);
    s.sum_scores = memory.take<Acc>(decays == decay::per_key ? 0 : readers * kinds * score);
    s.d_x = memory.take<Acc>(readers * keys);
    s.d_y = memory.take<Acc>(kinds * keys);
    s.sum_q = memory.take<Acc>(R * keys);
    s.sum_k = memory.take<Acc>(keys);
    s.sum_a = memory.take<Acc>(low_rank ? keys : 0);
    s.sum_b = memory.take<Acc>(low_rank ? keys : 0);
    s.boundary = memory.take<Acc>(std::max(plan.k_stride, padded<Acc>(plan.chunk)));
    s.d_gates = memory.take<Acc>(decays == decay::per_key ? keys : tokens);
    s.d_beta = memory.take<Acc>(f.hooks.beta_per_value ? values : tokens);
    s.d_u = memory.take<Acc>(plan.k_stride);
    s.joint = memory.take<Acc>(p.joint_size());
    s.carried = memory.take<Acc>(p.joint_size());
    if (decays == decay::per_key)
      s.channels = channel_room<Acc>::carve(plan.chunk, readers, kinds, plan.k_stride, memory);
    return s;
  }
};

/// The memories that tasks run in, beside the sums of their own that come first.
struct joint_memory {
  const context& ctx;
  std::size_t bytes;  // of a worker
  std::size_t sums;

  arena operator()(index_t worker) const noexcept {
    arena memory = ctx.scratch(worker, bytes);
    memory.take<std::byte>(static_cast<index_t>(sums));
    return memory;
  }
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

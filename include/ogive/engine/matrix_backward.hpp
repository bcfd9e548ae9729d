// L5: the backward of the matrix engine, one for every operator: a reverse sweep over chunks.
//
// The states before each chunk are kept from a first sweep, O(L/C · K·V), and with them what removals recalled, O(L ·
// V), which costs a product with the state and a substitution; everything else inside a chunk is computed again. With
// S₀ the state before a chunk, dS the cotangent of the one after it, Γ, Λ_i, E_j the decays of the whole chunk, up to a
// token and after it, A_ij those between two, and Λ, A reading as the policies say (q̃ = Λ q, k̂ = E k):
//
//   O = q̃ S₀ + P U               dU = Pᵀ dO + k̂ dS          dP = dO Uᵀ          P_ij = A_ij q_i·k_j
//   S = Γ S₀ + k̂ᵀ U              dq̃ = dO S₀ᵀ,  dk̂ = U dSᵀ,  dS₀ = Γ dS + q̃ᵀ dO
//
// What a removal x recalls, R = x̃ S₀ + X U with X_ij = A_ij x_i·k_j strictly below the diagonal, reads as q does, with
// a cotangent of its own, Y:
//
//   delta       U = β ⊙ (V − R)      y = dU − Xᵀ (β ⊙ y),   dβ = y ⊙ (V − R),   dV = β ⊙ y = −Y
//   low rank    W = R, and b writes W as k writes U:   Y = dW + (A ∘ a bᵀ)ᵀ Y
//
// Y comes from a substitution from the last token up. The gradient of a decay is the sum of what crosses its token,
// with nothing in it that cancels; see matrix_scores_backward.hpp.
//
// dO, U, dU, Y and the states are separate by column of V, and of them only states go from chunk to chunk. One state
// alone is shared out by that: columns first, through all chunks, then chunks with all columns.
//
// Yang et al., arXiv:2312.06635 and arXiv:2406.06484; Dao and Gu, arXiv:2405.21060.
#pragma once

#include <ogive/engine/matrix.hpp>
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

/// C = the decayed state before + Σ: a state written beside the one it follows.
template <class Acc, class Arch, decay Decay>
struct carried_on {
  Acc whole;
  const Acc* per_key;
  const Acc* before;
  index_t stride;
  static constexpr bool reads = false;
  template <class V>
  OGIVE_INLINE V operator()(index_t i, index_t j, V sum, V) const noexcept {
    const V prior = simd::load<Arch>(before + i * stride + j);
    if constexpr (Decay == decay::none) return prior + sum;
    return simd::fma(V(Decay == decay::scalar ? whole : per_key[i]), prior, sum);
  }
};

/// y_j = x_j ∓ Σ_{i>j} A_ij z_i from the last row up, z = β ⊙ y, both in place; β null: z is y.
template <class Acc, class Arch, class Sign>
OGIVE_NOINLINE void substitute_upwards(index_t count, index_t value_dim, const Acc* A, index_t score_stride, Acc* y,
                                       Acc* z, index_t stride, const Acc* beta, index_t beta_stride) noexcept {
  using vector = simd::batch<Acc, Arch>;
  constexpr index_t W = simd::width<Acc, Arch>, block = 16;
  constexpr bool adds = std::is_same_v<Sign, linalg::add>;
  for (index_t first = (count - 1) / block * block; first >= 0; first -= block) {
    const index_t end = std::min(first + block, count);
    linalg::gemm_atb<Arch>(
        end - first, value_dim, count - end, linalg::panel<const Acc>{A + end * score_stride + first, score_stride},
        linalg::panel<const Acc>{z + end * stride, stride}, linalg::panel<Acc>{y + first * stride, stride}, Sign{});
    for (index_t at = 0; at < value_dim; at += W) {
      for (index_t i = end; i-- > first;) {
        vector row = simd::load<Arch>(y + i * stride + at);
        if (beta != nullptr) {
          row = row * (beta_stride == 0 ? vector(beta[i]) : simd::load<Arch>(beta + i * beta_stride + at));
          simd::store(z + i * stride + at, row);
        }
        for (index_t j = first; j < i; ++j) {
          const vector a(A[i * score_stride + j]);
          Acc* to = y + j * stride + at;
          simd::store(to, adds ? simd::fma(a, row, simd::load<Arch>(to)) : simd::fnma(a, row, simd::load<Arch>(to)));
        }
      }
    }
  }
}

/// One task: a sequence and the heads of some units, or of a part of one.
template <class Acc, class Arch, decay Decay, write Write, read Read>
class matrix_backward_task : matrix_panels<Acc, Arch, Decay, Write, Read> {
  using panels = matrix_panels<Acc, Arch, Decay, Write, Read>;
  using columns = matrix_backward_columns<Acc>;
  using panels::load_group, panels::load_head, panels::p_, panels::panels_of, panels::plan_, panels::query_head;
  using panels::query_panel, panels::s_, panels::score_panel, panels::score_stride, panels::shared;
  using vector = simd::batch<Acc, Arch>;
  static constexpr index_t W = simd::width<Acc, Arch>;
  static constexpr bool removes = Write != write::additive;
  static constexpr int keys = Write == write::low_rank ? 2 : 1;
  static constexpr bool may_normalise = Write == write::additive && Decay != decay::per_key;
  template <class T>
  using panel = linalg::panel<T>;

 public:
  /// Gradients go to `op`, what the adjoints see as theirs.
  OGIVE_NOINLINE static void run(const matrix_backward_problem<Acc>& p, index_t task, const void* op,
                                 arena memory) noexcept;

  /// Of one state: what is separate by column of V, for the columns that the problem has.
  OGIVE_NOINLINE static void run_columns(const matrix_backward_problem<Acc>& p, const columns& all, const void* op,
                                         arena memory) noexcept;
  /// The rest of a chunk, when all columns are there; but for gradients that are sums over tokens.
  OGIVE_NOINLINE static void run_chunk(const matrix_backward_problem<Acc>& p, const columns& all, index_t number,
                                       const void* op, arena memory) noexcept;
  /// Gradients that are sums over tokens, from the last chunk on, and what goes with them, when all chunks are there.
  OGIVE_NOINLINE static void run_sums(const matrix_backward_problem<Acc>& p, const columns& all, const void* op,
                                      arena memory) noexcept;

  /// Adds what the tasks [first, first + count) left, each in a memory of its own, in this order, and hands what is
  /// complete to the adjoints: every `pieces`-th chunk. The sums go on in the first memory.
  OGIVE_NOINLINE static void join(const matrix_backward_problem<Acc>& p, index_t first, index_t count, const void* op,
                                  const joint_memory& of, index_t piece, index_t pieces, arena memory) noexcept;

 private:
  enum class scope { whole, columns, chunks };
  static matrix_backward_task of_one_state(const matrix_backward_problem<Acc>& p, const columns& all, scope what,
                                           const void* op, arena memory) noexcept;

  matrix_backward_task(const matrix_backward_problem<Acc>& p, const matrix_scratch<Acc>& forward,
                       const matrix_backward_scratch<Acc>& s, index_t task, const void* op) noexcept
      : panels(p.forward, forward), all_(p), adjoint_(p.adjoints), b_(s) {
    b_.channels.a = s_.channels.a;
    adjoint_.op = op;
    const index_t parts = p.parts(), part = task % parts, block = task / parts % p.blocks();
    first_ = block * p.block();
    units_ = std::min(p.block(), p.units() - first_);
    unit_groups_ = groups_ = p.unit_groups();
    members_ = plan_.members;
    const auto cut = [&](index_t& from, index_t& count) noexcept {
      const index_t each = (count + parts - 1) / parts;
      from = std::min(part * each, count);
      count = std::min(each, count - from);
    };
    cut(groups_ > 1 ? first_group_ : first_member_, groups_ > 1 ? groups_ : members_);
    heads_ = units_ * groups_ * members_;
    sequence_ = task / parts / p.blocks();
    span_ = this->span_of(sequence_);
    chunks_ = (span_.length + plan_.chunk - 1) / plan_.chunk;
  }

  /// The heads of the task are taken unit by unit, group by group: head n belongs to group n / members.
  index_t group(index_t i) const noexcept {
    const index_t unit = first_ + i / groups_, own = first_group_ + i % groups_;
    return p_.head_map == heads::consecutive ? unit * unit_groups_ + own : unit + own * all_.units();
  }
  index_t head(index_t n) const noexcept {
    const index_t g = group(n / members_), member = first_member_ + n % members_;
    return p_.head_map == heads::consecutive ? g * plan_.members + member : member * plan_.groups + g;
  }
  index_t output_head(index_t n, index_t r) const noexcept {
    return plan_.queries == 1 ? head(n) : query_head(r, group(n / members_));
  }
  /// Whether rows have gradients that somebody wants. Those of decays are made of all rows, and per key channel of q
  /// and k together.
  bool wants_queries() const noexcept { return adjoint_.rows.queries || wants_rows_of_all(); }
  bool wants_keys() const noexcept { return adjoint_.rows.keys || wants_rows_of_all(); }
  bool wants_rows_of_all() const noexcept {
    return adjoint_.decays || (Decay == decay::per_key && (adjoint_.rows.queries || adjoint_.rows.keys));
  }
  bool kept() const noexcept { return all_.kept.states != nullptr; }
  Acc* state(index_t chunk, index_t n) const noexcept {
    if (kept()) return all_.kept.state(all_.kept.first(sequence_) + chunk, head(n));
    return b_.states + (chunk * heads_ + n) * p_.n.key_dim * plan_.state_rows;
  }
  Acc* corrected(index_t chunk, index_t n) const noexcept {
    const bool all = scope_ != scope::whole || !kept();
    return b_.corrected + (all ? chunk * heads_ + n : 0) * tile_rows(plan_.chunk) * plan_.v_stride;
  }
  Acc* z(index_t chunk, index_t n) const noexcept {
    if (kept() && p_.normalise) return all_.kept.z(all_.kept.first(sequence_) + chunk, head(n));
    return b_.z + (p_.normalise ? (chunk * heads_ + n) * plan_.k_stride : 0);
  }
  Acc* d_state(index_t n) const noexcept { return b_.d_state + n * p_.n.key_dim * plan_.state_rows; }
  Acc* d_z(index_t n) const noexcept { return b_.d_z + n * plan_.k_stride; }
  Acc* d_reader(index_t r) const noexcept { return b_.d_x + r * query_panel(); }
  Acc* d_key(int n) const noexcept { return b_.d_y + n * query_panel(); }
  Acc* d_score(index_t r, int n) const noexcept { return b_.d_scores + (r * keys + n) * score_panel(); }

  /// From now on panels are those that columns are left in.
  void leave_in(const columns& all, scope what) noexcept {
    scope_ = what;
    left_ = all;
    b_.states = all.states;
    b_.corrected = all.corrected;
    leave_in_chunk(chunks_ - 1);
  }
  void leave_in_chunk(index_t number) noexcept {
    const index_t values = number * tile_rows(plan_.chunk) * plan_.v_stride;
    b_.d_state = left_.d_states + (number + 1) * p_.n.key_dim * plan_.state_rows;
    b_.d_o = left_.d_o + values;
    b_.d_v = left_.d_v + values;
    if constexpr (Write == write::low_rank) b_.d_w = left_.d_w + values;
    if (!all_.sums) return;
    b_.d_gates = left_.d_gates + number * tile_rows(plan_.chunk) * (Decay == decay::per_key ? plan_.k_stride : 1);
    b_.d_u = left_.d_u + number * plan_.k_stride;
  }

  /// A chunk after its columns.
  void chunk_alone(index_t number) noexcept {
    this->scoring_ = Decay == decay::scalar && adjoint_.decays;
    const index_t h = head(0);
    given_ = p_.states.load(p_.states.state, sequence_, h, nullptr, 0, d_z(0));
    const bool ends = all_.cotangents.load(all_.cotangents.state, sequence_, h, nullptr, 0, d_z(0));
    resting_ = number + 1 == chunks_ && !ends;
    leave_in_chunk(number);
    retreat(number);
  }
  Acc* left_keys(index_t number) const noexcept { return left_.d_k + number * query_panel(); }
  void sums() noexcept {
    for (index_t c = chunks_; c-- > 0;) {
      tokens at = tokens_of(c);
      at.head = head(0);
      leave_in_chunk(c);
      value_gradients(at, b_.d_v, left_keys(c));
    }
  }

  void sequence() noexcept {
    const index_t s = sequence_;
    for (index_t n = 0; n < heads_; ++n) {
      if (kept()) {
        given_ = p_.states.load(p_.states.state, s, head(n), nullptr, 0, d_z(n));
        zero_rows(d_z(n), 0, 1, plan_.k_stride);
        continue;
      }
      Acc* none = nullptr;
      Acc* normaliser = p_.normalise ? z(0, n) : none;
      given_ = p_.states.load(p_.states.state, s, head(n), state(0, n), plan_.state_rows,
                              p_.normalise ? normaliser : d_z(n));
      if (!given_ && p_.normalise) zero_rows(normaliser, 0, 1, plan_.k_stride);
      zero_rows(d_z(n), 0, 1, plan_.k_stride);
    }
    for (index_t c = 0; c + 1 < chunks_ && !kept(); ++c) advance(c);
    for (index_t n = 0; n < heads_; ++n) {
      const state_hooks<Acc>& given = all_.cotangents;
      resting_ = !given.load(given.state, s, head(n), d_state(n), plan_.state_rows, d_z(n));
    }
    for (index_t c = chunks_; c-- > 0;) {
      if (scope_ == scope::columns) leave_in_chunk(c);
      retreat(c);
    }
    if (scope_ == scope::columns) b_.d_state = left_.d_states;
    for (index_t n = 0; n < heads_ && all_.cotangents.wanted(all_.cotangents.state, s); ++n) {
      if (resting_) zero_rows(d_state(n), plan_.state_rows, p_.n.key_dim, plan_.v_width);
      all_.cotangents.save(all_.cotangents.state, s, head(n), d_state(n), plan_.state_rows, d_z(n));
    }
  }

  /// The rows that head n will want in another chunk: those after `at`.
  lines_ahead rows_near(tokens at, index_t n, bool backwards) const noexcept {
    lines_ahead lines;
    const auto add = [&](operand which, index_t wanted) noexcept {
      at.head = wanted;
      p_.hooks.ahead(p_.hooks.op, which, at, lines);
    };
    const index_t g = group(n / members_);
    add(operand::value, head(n));
    if (n % members_ == 0) add(operand::key, shared(p_.n.key_heads, g));
    for (index_t r = 0; r < plan_.queries && backwards; ++r) {
      if (n % members_ == 0) add(operand::query, query_head(r, g));
      at.head = output_head(n, r);
      adjoint_.ahead(adjoint_.op, at, lines);
    }
    return lines;
  }
  /// A finish that asks for them on its way.
  template <class Finish>
  asking_ahead<Finish> asking(const Finish& finish) noexcept {
    return {finish, ask_};
  }

  tokens tokens_of(index_t chunk) const noexcept { return this->chunk_at(span_, chunk * plan_.chunk); }

  /// The state before the next chunk.
  void advance(index_t number) noexcept {
    tokens at = tokens_of(number);
    chunk<Acc> c = panels_of(at.count);
    this->reading_ = false;
    for (index_t n = 0; n < heads_; ++n) {
      if (n % members_ == 0) load_group(at, group(n / members_));
      lines_ahead ahead = rows_near(at, n, false);
      c.ask = even_parts::over(this->parts(at.count, removes ? 1 : 0, keys, 0), ahead);
      at.head = head(n);
      c.fresh = number == 0 && !given_;
      c.state = state(number, n);
      if constexpr (Write == write::additive && Decay == decay::per_key) {
        p_.hooks.load_v(p_.hooks.op, at, c.v, c.v_stride, c.decays.a, s_.room);
        this->load_channels(at);
        decay_keys(c);
      } else {
        load_head(c, at);
      }
      correct(c, number, n);
      if constexpr (Write == write::additive) {
        if (p_.normalise) {
          std::copy_n(z(number, n), plan_.k_stride, z(number + 1, n));
          write_normaliser<Acc, Arch, Decay>(c, z(number + 1, n));
        }
      }
      c.state = state(number + 1, n);
      write_next(c, state(number, n));
    }
    this->reading_ = true;
  }

  /// Keys to the chunk's end where no scores are wanted.
  void decay_keys(const chunk<Acc>& c) noexcept {
    for (index_t at = 0; at < c.key_dim; at += W) {
      vector to_end(Acc(1));
      for (index_t j = c.tokens; j-- > 0;) {
        const index_t row = j * c.k_stride + at;
        simd::store(s_.decayed_k + row, to_end * simd::load<Arch>(s_.k + row));
        to_end = to_end * simd::load<Arch>(s_.channels.a + row);
      }
    }
  }

  /// S of the next chunk from the one before this chunk; both are kept.
  void write_next(chunk<Acc>& c, const Acc* before) noexcept {
    if constexpr (Decay == decay::scalar) {
      change_rows(c.v, c.v_stride, c.tokens, c.value_dim,
                  [&](index_t i, index_t, auto v) noexcept { return decltype(v)(c.decays.to_end[i]) * v; });
    }
    const panel<Acc> S{c.state, c.state_stride};
    const auto to_state = [&](auto finish) noexcept {
      const panel<const Acc> keys_in{c.k, c.k_stride}, values{c.v, c.v_stride};
      const asking_ahead<decltype(finish)> last{finish, c.ask};
      if constexpr (Write == write::low_rank) {
        linalg::gemm_atb_pair<Arch>(c.key_dim, c.value_dim, c.tokens, keys_in, values,
                                    panel<const Acc>{c.b, c.k_stride}, panel<const Acc>{c.w, c.v_stride}, S, last);
      } else {
        linalg::gemm_atb<Arch>(c.key_dim, c.value_dim, c.tokens, keys_in, values, S, last);
      }
    };
    if (c.fresh) {
      to_state(linalg::overwrite{});
    } else {
      to_state(carried_on<Acc, Arch, Decay>{c.decays.whole, c.whole, before, c.state_stride});
    }
  }

  /// Gradients of a chunk's tokens, and the cotangent of the state before it.
  void retreat(index_t number) noexcept {
    tokens at = tokens_of(number);
    const index_t panel_rows = at.count * plan_.k_stride;
    const bool own_keys = p_.n.key_heads == plan_.groups;
    const bool own_queries = plan_.queries > 1 || p_.n.query_heads == plan_.groups;
    for (index_t i = 0; i < units_ * groups_; ++i) {
      const index_t g = group(i);
      const bool first = i % groups_ == 0, last = i % groups_ == groups_ - 1;
      single_ = groups_ * members_ == 1;
      load_group(at, g);
      if ((first || own_keys) && !single_) {
        std::fill_n(b_.sum_k, panel_rows, Acc(0));
        if constexpr (Write == write::low_rank) {
          std::fill_n(b_.sum_a, panel_rows, Acc(0));
          std::fill_n(b_.sum_b, panel_rows, Acc(0));
        }
      }
      if ((first || own_queries) && !single_) {
        for (index_t r = 0; r < plan_.queries; ++r) std::fill_n(b_.sum_q + r * query_panel(), panel_rows, Acc(0));
      }
      if (Decay != decay::per_key && !single_) {
        std::fill_n(b_.sum_scores, (plan_.queries + (removes ? 1 : 0)) * keys * score_panel(), Acc(0));
      }
      for (index_t m = 0; m < members_; ++m) retreat_head(at, number, i * members_ + m);
      if (Decay != decay::per_key && !single_ && (wants_queries() || wants_keys())) group_scores(panels_of(at.count));
      if (scope_ == scope::columns) continue;
      if (last || own_keys) {
        at.head = shared(p_.n.key_heads, g);
        Acc* own[] = {single_ ? d_key(0) : b_.sum_k, single_ ? d_reader(plan_.queries) : b_.sum_a,
                      single_ ? d_key(keys - 1) : b_.sum_b};
        if (all_.joint_keys() > 0) {
          for (index_t kind = 0; kind < all_.joint_keys(); ++kind) {
            std::copy_n(own[kind], panel_rows, joint_panel(joint_chunk(number), kind));
          }
        } else {
          key_gradients(at, own[0], own[1], own[2]);
        }
      }
      if (last || own_queries) {
        for (index_t r = 0; r < plan_.queries; ++r) {
          at.head = query_head(r, g);
          Acc* own = single_ ? d_reader(r) : b_.sum_q + r * query_panel();
          if (all_.joint_queries() > 0) {
            std::copy_n(own, panel_rows, joint_panel(joint_chunk(number), all_.joint_keys()));
          } else {
            adjoint_.load_q(adjoint_.op, at, own, plan_.k_stride, b_.room);
          }
        }
      }
    }
    resting_ = false;
  }

  void key_gradients(const tokens& at, Acc* k, Acc* a, Acc* b) const noexcept {
    if constexpr (Write == write::low_rank) adjoint_.load_removal(adjoint_.op, at, a, b, plan_.k_stride, b_.room);
    adjoint_.load_k(adjoint_.op, at, k, plan_.k_stride, b_.room);
  }

  Acc* joint_chunk(index_t number) const noexcept { return b_.joint + number * all_.joint_chunk(); }
  Acc* joint_panel(Acc* chunk, index_t kind) const noexcept { return chunk + kind * plan_.chunk * plan_.k_stride; }

  /// A chunk of a part, added to those before it; the sum of all goes to the adjoints.
  OGIVE_NOINLINE void join_chunk(index_t number, bool begins, const Acc* joint, Acc* sum) const noexcept {
    tokens at = tokens_of(number);
    const index_t kinds = all_.joint_keys() + all_.joint_queries(), rows = at.count * plan_.k_stride;
    const bool ends = first_group_ + groups_ == unit_groups_ && first_member_ + members_ == plan_.members;
    for (index_t i = 0; i < plan_.chunk * plan_.k_stride * kinds; i += W) {
      if (i % (plan_.chunk * plan_.k_stride) >= rows) continue;
      const vector x = simd::load<Arch>(joint + i);
      simd::store(sum + i, begins ? x : simd::load<Arch>(sum + i) + x);
    }
    if (!ends) return;
    if (const index_t keys_too = all_.joint_keys(); keys_too > 0) {
      at.head = shared(p_.n.key_heads, group(0));
      key_gradients(at, sum, joint_panel(sum, keys_too > 1 ? 1 : 0), joint_panel(sum, keys_too > 1 ? 2 : 0));
    }
    if (all_.joint_queries() > 0) {
      at.head = query_head(0, group(0));
      adjoint_.load_q(adjoint_.op, at, joint_panel(sum, all_.joint_keys()), plan_.k_stride, b_.room);
    }
  }

  void retreat_head(tokens at, index_t number, index_t n) noexcept {
    const index_t count = at.count, R = plan_.queries;
    const bool columns_too = scope_ != scope::chunks, rows_too = scope_ != scope::columns;
    lines_ahead ahead;
    if (number > 0 && columns_too) {
      tokens before = at;
      before.token -= 2 * plan_.chunk;
      before.count = plan_.chunk;
      ahead = rows_near(before, n, true);
    }
    const bool last = n + 1 == heads_;
    if (columns_too && (!last || number > 0)) {
      ahead.add(view<const Acc, 2>(last ? state(number - 1, 0) : state(number, n + 1), {p_.n.key_dim, p_.n.value_dim},
                                   {plan_.state_rows, 1}));
    }
    const index_t readers = R + (removes ? 1 : 0);
    ask_ =
        even_parts::over(this->parts(count, rows_too ? 2 * keys + readers : keys, columns_too ? readers : 0, R), ahead);
    at.head = head(n);
    chunk<Acc> c = panels_of(count);
    c.ask = ask_;
    load_head(c, at);
    c.state = state(number, n);
    c.fresh = number == 0 && !given_;
    const bool uncorrected = columns_too && (kept() || number + 1 == chunks_);
    if (uncorrected) correct(c, number, n);
    const Acc* X = c.removal_scores;
    if constexpr (Write == write::delta) {
      compared_ = corrected(number, n);
      if (!uncorrected) weigh(c, compared_);
      if constexpr (Decay == decay::scalar) {
        decay_scores<Acc, Arch>(count, X, c.decays.a, b_.removal, c.score_stride);
        X = b_.removal;
      }
    }
    if constexpr (Write == write::low_rank) c.w = corrected(number, n);
    if (columns_too) {
      read_cotangents(c, at, number, n);
      if (removes || adjoint_.rows.values) write_cotangents(c, n);
      if constexpr (removes) removal_cotangents(c, X);
    }
    if constexpr (Write == write::delta) {
      if (!columns_too) weigh_cotangents(c);
      value_cotangents(c);
      const index_t stride = p_.hooks.beta_per_value ? plan_.v_stride : 1;
      if (rows_too) adjoint_.load_beta(adjoint_.op, at, b_.d_beta, stride, b_.room);
    }
    const Acc* Y = b_.d_w;
    const Acc boundary = rows_too ? state_cotangents(c, number, n, Y) : Acc(0);
    if (columns_too) move_state(c, n, Y);
    if (rows_too) row_cotangents(c, at, number, boundary, Y);
  }

  /// What the states before and after a chunk give to its rows; answers what they say of the decay of the whole chunk.
  Acc state_cotangents(const chunk<Acc>& c, index_t number, index_t n, const Acc* Y) noexcept {
    read_state(c, Y);
    write_state(c, n);
    Acc boundary = decay_of_state(c);
    if (may_normalise && p_.normalise) boundary += normaliser_cotangents(c, number, n);
    return boundary;
  }

  /// What the rows of a chunk give to each other; then all gradients but those of rows that heads share go out.
  void row_cotangents(const chunk<Acc>& c, const tokens& at, index_t number, Acc boundary, const Acc* Y) noexcept {
    const index_t count = at.count, R = plan_.queries;
    if (wants_queries() || wants_keys()) {
      score_cotangents(c, Y);
      if constexpr (Decay == decay::scalar) scalar_scores(c, boundary);
      if constexpr (Decay == decay::per_key) {
        channel_scores_back(c);
      } else {
        plain_scores(c);
      }
    }
    if (may_normalise && p_.normalise) bias_cotangents(c);
    if (Read == read::before && (wants_queries() || wants_keys())) bonus_cotangents(at, c);
    Acc* d_v = Write == write::delta ? b_.recalled : b_.d_v;
    if (scope_ == scope::chunks && all_.sums) {
      if (d_v != b_.d_v) std::copy_n(d_v, count * plan_.v_stride, b_.d_v);
      if (Decay == decay::per_key) std::copy_n(d_key(0), count * plan_.k_stride, left_keys(number));
    } else {
      value_gradients(at, d_v, d_key(0));
    }

    if (Write == write::delta && wants_keys()) add_rows(count, d_reader(R), single_ ? d_key(0) : b_.sum_k);
    if (single_) return;
    for (index_t r = 0; r < R && wants_queries(); ++r) add_rows(count, d_reader(r), b_.sum_q + r * query_panel());
    if (!wants_keys()) return;
    if constexpr (Write == write::low_rank) {
      add_rows(count, d_reader(R), b_.sum_a);
      add_rows(count, d_key(1), b_.sum_b);
    }
    add_rows(count, d_key(0), b_.sum_k);
  }

  /// Gradients of what belongs to values: among them are all that may be sums over tokens.
  void value_gradients(const tokens& at, Acc* d_v, const Acc* d_k) const noexcept {
    if (Read == read::before && (wants_queries() || wants_keys())) {
      adjoint_.load_bonus(adjoint_.op, at.head, b_.d_u);
    }
    adjoint_.load_v(adjoint_.op, at, d_v, b_.d_o, plan_.v_stride, b_.d_gates, b_.room);
    if constexpr (Decay == decay::per_key) {
      if (adjoint_.decays) adjoint_.load_gates(adjoint_.op, at, b_.d_gates, d_k, plan_.k_stride, b_.room);
    }
  }

  void add_rows(index_t count, const Acc* from, Acc* to) const noexcept {
    for (index_t at = 0; at < count * plan_.k_stride; at += W) {
      simd::store(to + at, simd::load<Arch>(to + at) + simd::load<Arch>(from + at));
    }
  }

  /// What the chunk writes, where removals correct it: V − R is kept and U = β ⊙ (V − R) takes the place of v, or W is
  /// kept and is c.w.
  void correct(chunk<Acc>& c, index_t number, index_t n) noexcept {
    if constexpr (Write == write::low_rank) {
      c.w = corrected(number, n);
      recall_removals<Acc, Arch>(c);
    }
    if constexpr (Write == write::delta) {
      Acc* rest = corrected(number, n);
      const Acc* X = compare_values<Acc, Arch, Decay>(c);
      if (c.beta_stride != 0) return substitute_per_value<Acc, Arch>(c, X, rest);
      for (index_t i = 0; i < c.tokens; ++i) std::copy_n(c.v + i * c.v_stride, c.value_dim, rest + i * c.v_stride);
      for (index_t i = 1; i < c.tokens; ++i) {
        for (index_t j = 0; j < i; j += W) {
          const index_t at = i * c.score_stride + j;
          simd::store(c.solved + at, simd::load<Arch>(c.beta + j) * simd::load<Arch>(X + at));
        }
      }
      linalg::solve_unit_lower<Arch>(c.tokens, c.value_dim, panel<const Acc>{c.solved, c.score_stride},
                                     panel<Acc>{rest, c.v_stride});
      weigh(c, rest);
    }
  }
  /// U = β ⊙ (V − R).
  void weigh(const chunk<Acc>& c, const Acc* rest) const noexcept {
    change_rows(c.v, c.v_stride, c.tokens, c.value_dim, [&](index_t i, index_t at, auto) noexcept {
      const vector beta = c.beta_stride == 0 ? vector(c.beta[i]) : simd::load<Arch>(c.beta + i * c.beta_stride + at);
      return beta * simd::load<Arch>(rest + i * c.v_stride + at);
    });
  }

  /// d_o of every query head, after what the operator's store does.
  void read_cotangents(chunk<Acc>& c, tokens at, index_t number, index_t n) noexcept {
    for (index_t r = 0; r < plan_.queries; ++r) {
      if (adjoint_.outputs) {
        c.q = (Decay == decay::per_key ? s_.decayed_q : s_.q) + r * query_panel();
        c.scores = s_.scores + r * score_panel();
        c.q_b = s_.q_b + (Write == write::low_rank ? r * score_panel() : 0);
        read_chunk<Acc, Arch, Decay, Write>(c);
        if constexpr (Write == write::additive) {
          if (p_.normalise) read_normaliser<Acc, Arch, Decay>(c, z(number, n), p_.bias, s_.denominator);
        }
      }
      at.head = output_head(n, r);
      Acc* d_denominator = b_.d_denominator + r * plan_.chunk;
      std::fill_n(d_denominator, c.tokens, Acc(0));
      adjoint_.store(adjoint_.op, at, c.o, p_.normalise ? s_.denominator : nullptr, d_output(r), plan_.v_stride,
                     d_denominator, b_.room);
    }
  }
  Acc* d_output(index_t r) const noexcept { return b_.d_o + r * tile_rows(plan_.chunk) * plan_.v_stride; }

  /// dU = Pᵀ dO + k̂ dS, and dW.
  void write_cotangents(const chunk<Acc>& c, index_t n) noexcept {
    const panel<const Acc> dS{d_state(n), plan_.state_rows};
    const auto from_state = [&](const Acc* rows, Acc* to) noexcept {
      if (resting_) return zero_rows(to, c.v_stride, c.tokens, c.value_dim);
      const panel<Acc> out{to, c.v_stride};
      if constexpr (Decay == decay::scalar) {
        linalg::gemm_ab<Arch>(c.tokens, c.value_dim, c.key_dim, panel<const Acc>{rows, c.k_stride}, dS, out,
                              asking(linalg::scale_rows<Acc>{c.decays.to_end}));
      } else {
        linalg::gemm_ab<Arch>(c.tokens, c.value_dim, c.key_dim, panel<const Acc>{rows, c.k_stride}, dS, out,
                              asking(linalg::overwrite{}));
      }
    };
    const auto from_outputs = [&](const Acc* scores, index_t r, Acc* to) noexcept {
      linalg::gemm_tril_turned<Arch>(c.tokens, c.value_dim, panel<const Acc>{scores, c.score_stride},
                                     panel<const Acc>{d_output(r), c.v_stride}, panel<Acc>{to, c.v_stride},
                                     linalg::add{});
    };
    from_state(c.k, b_.d_v);
    if constexpr (Write == write::low_rank) from_state(c.b, b_.d_w);
    for (index_t r = 0; r < plan_.queries; ++r) {
      const Acc* P = s_.scores + r * score_panel();
      if constexpr (Decay == decay::scalar) {
        decay_scores<Acc, Arch>(c.tokens, P, c.decays.a, b_.weights, c.score_stride);
        P = b_.weights;
      }
      from_outputs(P, r, b_.d_v);
      if constexpr (Write == write::low_rank) from_outputs(s_.q_b + r * score_panel(), r, b_.d_w);
    }
  }

  /// Y, of the delta rule y and β ⊙ y, and the part of dU that a removal recalls.
  void removal_cotangents(const chunk<Acc>& c, const Acc* X) noexcept {
    if constexpr (Write == write::low_rank) {
      substitute_upwards<Acc, Arch, linalg::add>(c.tokens, c.value_dim, c.a_b, c.score_stride, b_.d_w, b_.d_w,
                                                 c.v_stride, nullptr, 0);
      linalg::gemm_strict_tril_turned<Arch>(c.tokens, c.value_dim, panel<const Acc>{X, c.score_stride},
                                            panel<const Acc>{b_.d_w, c.v_stride}, panel<Acc>{b_.d_v, c.v_stride},
                                            linalg::add{});
    } else {
      substitute_upwards<Acc, Arch, linalg::subtract>(c.tokens, c.value_dim, X, c.score_stride, b_.d_v, b_.recalled,
                                                      c.v_stride, c.beta, c.beta_stride);
    }
  }
  /// β ⊙ y where the columns left y.
  void weigh_cotangents(const chunk<Acc>& c) noexcept {
    change_rows(b_.recalled, c.v_stride, c.tokens, c.value_dim, [&](index_t i, index_t at, auto) noexcept {
      const vector beta = c.beta_stride == 0 ? vector(c.beta[i]) : simd::load<Arch>(c.beta + i * c.beta_stride + at);
      return simd::load<Arch>(b_.d_v + i * c.v_stride + at) * beta;
    });
  }
  /// Y = −dV and dβ of the delta rule.
  void value_cotangents(const chunk<Acc>& c) noexcept {
    for (index_t i = 0; i < c.tokens; ++i) {
      vector sum(Acc(0));
      for (index_t at = 0; at < c.value_dim; at += W) {
        const index_t row = i * c.v_stride + at;
        const vector y = simd::load<Arch>(b_.d_v + row), R = simd::load<Arch>(compared_ + row);
        sum = simd::fma(y, R, sum);
        if (c.beta_stride != 0) simd::store(b_.d_beta + row, y * R);
        simd::store(b_.d_w + row, vector(Acc(0)) - simd::load<Arch>(b_.recalled + row));
      }
      if (c.beta_stride == 0) b_.d_beta[i] = simd::reduce_add(sum);
    }
  }

  /// x Mᵀ of rows x and a state M that was turned round; under a scalar decay row i comes with by[i]. ((M xᵀ)ᵀ, which
  /// turns two panels of a chunk round, took as long: its products are a vector wide.)
  void times_turned(const chunk<Acc>& c, const Acc* x, const Acc* turned, const Acc* by, Acc* to) noexcept {
    const panel<const Acc> rows{x, c.v_stride}, M{turned, turned_stride()};
    const panel<Acc> out{to, c.k_stride};
    zero_rows(to + c.key_dim, c.k_stride, c.tokens, c.k_stride - c.key_dim);
    if constexpr (Decay == decay::scalar) {
      linalg::gemm_ab<Arch>(c.tokens, c.key_dim, p_.n.value_dim, rows, M, out, asking(linalg::scale_rows<Acc>{by}));
    } else {
      linalg::gemm_ab<Arch>(c.tokens, c.key_dim, p_.n.value_dim, rows, M, out, asking(linalg::overwrite{}));
    }
  }
  index_t turned_stride() const noexcept { return linalg::padded_stride<Acc, Arch>(p_.n.key_dim); }
  void turn_state(const Acc* M, Acc* turned) const noexcept {
    linalg::transpose<Arch>(p_.n.key_dim, p_.n.value_dim, panel<const Acc>{M, plan_.state_rows},
                            panel<Acc>{turned, turned_stride()});
  }

  /// dx = dO S₀ᵀ of every reader, under a scalar decay with its Λ.
  void read_state(const chunk<Acc>& c, const Acc* Y) noexcept {
    if (!c.fresh && (wants_queries() || (removes && wants_keys()))) turn_state(c.state, b_.turned);
    const auto read = [&](const Acc* cotangent, Acc* to) noexcept {
      if (c.fresh) return zero_rows(to, c.k_stride, c.tokens, c.k_stride);
      times_turned(c, cotangent, b_.turned, c.decays.from_start, to);
    };
    for (index_t r = 0; r < plan_.queries && wants_queries(); ++r) read(d_output(r), d_reader(r));
    if (removes && wants_keys()) read(Y, d_reader(plan_.queries));
  }

  /// dy = U dSᵀ of every key, under a scalar decay with its E.
  void write_state(const chunk<Acc>& c, index_t n) noexcept {
    if (!wants_keys()) return;
    if (!resting_) turn_state(d_state(n), b_.turned_d);
    for (int key = 0; key < keys; ++key) {
      if (resting_) {
        zero_rows(d_key(key), c.k_stride, c.tokens, c.k_stride);
      } else {
        times_turned(c, key == 0 ? c.v : c.w, b_.turned_d, c.decays.to_end, d_key(key));
      }
    }
  }

  /// The normaliser is one more column of values, all ones, whose outputs are the denominators. Answers what the decay
  /// of the whole chunk says of it.
  Acc normaliser_cotangents(const chunk<Acc>& c, index_t number, index_t n) noexcept {
    constexpr bool decays = Decay == decay::scalar;
    vector boundary(Acc(0));
    for (index_t at = 0; at < c.k_stride; at += W) {
      const vector z0 = simd::load<Arch>(z(number, n) + at), after = simd::load<Arch>(d_z(n) + at);
      vector before = decays ? vector(c.decays.whole) * after : after;
      boundary = simd::fma(z0, before, boundary);
      for (index_t i = 0; i < c.tokens; ++i) {
        Acc* key = d_key(0) + i * c.k_stride + at;
        simd::store(key, simd::fma(vector(decays ? c.decays.to_end[i] : Acc(1)), after, simd::load<Arch>(key)));
        for (index_t r = 0; r < plan_.queries; ++r) {
          const vector d(b_.d_denominator[r * plan_.chunk + i] * (decays ? c.decays.from_start[i] : Acc(1)));
          Acc* reader = d_reader(r) + i * c.k_stride + at;
          simd::store(reader, simd::fma(d, z0, simd::load<Arch>(reader)));
          before = simd::fma(d, simd::load<Arch>(s_.q + r * query_panel() + i * c.k_stride + at), before);
        }
      }
      simd::store(d_z(n) + at, before);
    }
    return simd::reduce_add(boundary);
  }
  /// What an operator adds to z is under no decay.
  void bias_cotangents(const chunk<Acc>& c) noexcept {
    for (index_t r = 0; r < plan_.queries; ++r) {
      for (index_t i = 0; i < c.tokens; ++i) {
        const vector d(p_.bias * b_.d_denominator[r * plan_.chunk + i]);
        for (index_t at = 0; at < c.k_stride; at += W) {
          Acc* reader = d_reader(r) + i * c.k_stride + at;
          simd::store(reader, simd::load<Arch>(reader) + d);
        }
      }
    }
  }

  /// What the decay of the whole chunk says: Γ Σ S₀ ⊙ dS, per key channel in `boundary`. Both states are turned round:
  /// lanes run over κ.
  Acc decay_of_state(const chunk<Acc>& c) noexcept {
    if constexpr (Decay == decay::none) return Acc(0);
    const bool nothing = c.fresh || resting_ || !adjoint_.decays;
    if constexpr (Decay == decay::per_key) zero_rows(b_.boundary, 0, 1, c.k_stride);
    if (nothing) return Acc(0);
    constexpr int chains = 4;
    const index_t stride = turned_stride(), rows = p_.n.value_dim;
    vector all(Acc(0));
    for (index_t at = 0; at < c.key_dim; at += W) {
      const Acc *S = b_.turned + at, *dS = b_.turned_d + at;
      vector sum[chains];
      unroll<chains>([&](auto i) __attribute__((always_inline)) { sum[i] = vector(Acc(0)); });
      index_t v = 0;
      for (; v + chains <= rows; v += chains, S += chains * stride, dS += chains * stride) {
        unroll<chains>([&](auto i) __attribute__((always_inline)) {
          sum[i] = simd::fma(simd::load<Arch>(S + i * stride), simd::load<Arch>(dS + i * stride), sum[i]);
        });
      }
      for (; v < rows; ++v, S += stride, dS += stride) {
        sum[0] = simd::fma(simd::load<Arch>(S), simd::load<Arch>(dS), sum[0]);
      }
      const vector column = (sum[0] + sum[1]) + (sum[2] + sum[3]);
      if constexpr (Decay == decay::per_key) {
        simd::store(b_.boundary + at, simd::load<Arch>(c.whole + at) * column);
      } else {
        all = all + (at + W <= c.key_dim
                         ? column
                         : simd::select(simd::first_n<Acc, Arch>(c.key_dim - at), column, vector(Acc(0))));
      }
    }
    return Decay == decay::per_key ? Acc(0) : c.decays.whole * simd::reduce_add(all);
  }

  /// dS₀ = Γ dS + Σ x̃ᵀ d, in its place or, where that is left, before it.
  void move_state(const chunk<Acc>& c, index_t n, const Acc* Y) noexcept {
    const index_t before = scope_ == scope::columns ? p_.n.key_dim * plan_.state_rows : 0;
    const panel<Acc> dS{d_state(n) - before, plan_.state_rows};
    const auto rows = [&](index_t r) noexcept -> panel<const Acc> {
      return {(Decay == decay::per_key ? s_.decayed_q : s_.q) + r * query_panel(), c.k_stride};
    };
    const auto decayed = [&](const Acc* cotangents, Acc* scaled) noexcept -> panel<const Acc> {
      if constexpr (Decay != decay::scalar) return {cotangents, c.v_stride};
      for (index_t i = 0; i < c.tokens; ++i) {
        const vector by(c.decays.from_start[i]);
        for (index_t at = i * c.v_stride; at < i * c.v_stride + c.value_dim; at += W) {
          simd::store(scaled + at, by * simd::load<Arch>(cotangents + at));
        }
      }
      return {scaled, c.v_stride};
    };
    const auto add = [&](index_t r, auto finish) noexcept {
      linalg::gemm_atb<Arch>(c.key_dim, c.value_dim, c.tokens, rows(r), decayed(d_output(r), b_.scaled), dS,
                             asking(finish));
    };
    const auto begin = [&](auto finish) noexcept {
      if constexpr (removes) {
        const panel<const Acc> removal{c.removal, c.k_stride};
        linalg::gemm_atb_pair<Arch>(c.key_dim, c.value_dim, c.tokens, rows(0), decayed(d_output(0), b_.scaled), removal,
                                    decayed(Y, b_.scaled + tile_rows(plan_.chunk) * plan_.v_stride), dS,
                                    asking(finish));
      } else {
        add(0, finish);
      }
    };
    if (resting_) {
      begin(linalg::overwrite{});
    } else if (scope_ == scope::columns) {
      begin(carried_on<Acc, Arch, Decay>{c.decays.whole, c.whole, d_state(n), plan_.state_rows});
    } else if constexpr (Decay == decay::scalar) {
      begin(linalg::decay<Acc>{c.decays.whole});
    } else if constexpr (Decay == decay::per_key) {
      begin(linalg::decay_rows<Acc>{c.whole});
    } else {
      begin(linalg::add{});
    }
    for (index_t r = 1; r < plan_.queries; ++r) add(r, linalg::add{});
  }

  /// dP = dO Uᵀ on and below the diagonal, of every reader and key.
  void score_cotangents(const chunk<Acc>& c, const Acc* Y) noexcept {
    const index_t turned = plan_.template turned<Acc>();
    for (int key = 0; key < keys; ++key) {
      linalg::transpose<Arch>(c.tokens, p_.n.value_dim, panel<const Acc>{key == 0 ? c.v : c.w, c.v_stride},
                              panel<Acc>{b_.turned_values, turned});
      for (index_t r = 0; r < plan_.queries + (removes && wants_keys() ? 1 : 0); ++r) {
        const Acc* cotangents = r == plan_.queries ? Y : d_output(r);
        linalg::gemm_ab_lower<Arch>(c.tokens, c.tokens, p_.n.value_dim, panel<const Acc>{cotangents, c.v_stride},
                                    panel<const Acc>{b_.turned_values, turned},
                                    panel<Acc>{d_score(r, key), c.score_stride});
        for (index_t i = 0; i < c.tokens && r < plan_.queries && p_.normalise; ++i) {
          const vector d(b_.d_denominator[r * plan_.chunk + i]);
          for (index_t j = 0; j <= i; j += W) {
            Acc* to = d_score(r, key) + i * c.score_stride + j;
            simd::store(to, simd::load<Arch>(to) + d);
          }
        }
      }
    }
  }

  const Acc* key_rows(int key) const noexcept { return key == 0 ? s_.k : s_.b; }
  const Acc* reader_rows(index_t r) const noexcept {
    if (r == plan_.queries) return Write == write::delta ? s_.k : s_.removal;
    return s_.q + r * query_panel();
  }

  /// dx += D y and dy += Dᵀ x, where no decay, or a scalar one in D, is between them. Heads that share q and k add
  /// their D first: the products are made once for all of them.
  template <class DX, class DY>
  void score_products(const chunk<Acc>& c, const Acc* scores, const DX& d_x_of, const DY& d_y_of) noexcept {
    for (int key = 0; key < keys; ++key) {
      const panel<const Acc> y{key_rows(key), c.k_stride};
      const panel<Acc> d_y{d_y_of(key), c.k_stride};
      for (index_t r = 0; r < plan_.queries + (removes ? 1 : 0); ++r) {
        const panel<const Acc> D{scores + (r * keys + key) * score_panel(), c.score_stride};
        const panel<const Acc> x{reader_rows(r), c.k_stride};
        const panel<Acc> d_x{d_x_of(r), c.k_stride};
        if (r == plan_.queries) {
          if (!wants_keys()) continue;
          linalg::gemm_strict_tril<Arch>(c.tokens, c.key_dim, D, y, d_x, linalg::add{});
          linalg::gemm_strict_tril_turned<Arch>(c.tokens, c.key_dim, D, x, d_y, linalg::add{});
        } else {
          if (wants_queries()) linalg::gemm_tril<Arch>(c.tokens, c.key_dim, D, y, d_x, linalg::add{});
          if (wants_keys()) linalg::gemm_tril_turned<Arch>(c.tokens, c.key_dim, D, x, d_y, linalg::add{});
        }
      }
    }
  }
  void plain_scores(const chunk<Acc>& c) noexcept {
    if (single_) {
      score_products(
          c, b_.d_scores, [&](index_t r) noexcept { return d_reader(r); },
          [&](int key) noexcept { return d_key(key); });
      return;
    }
    for (index_t n = 0; n < (plan_.queries + (removes ? 1 : 0)) * keys; ++n) {
      for (index_t i = 0; i < c.tokens; ++i) {
        for (index_t j = 0; j <= i; j += W) {
          const index_t at = n * score_panel() + i * c.score_stride + j;
          simd::store(b_.sum_scores + at, simd::load<Arch>(b_.sum_scores + at) + simd::load<Arch>(b_.d_scores + at));
        }
      }
    }
  }
  /// The products of a group's heads.
  void group_scores(const chunk<Acc>& c) noexcept {
    score_products(
        c, b_.sum_scores,
        [&](index_t r) noexcept {
          if (r == plan_.queries) return Write == write::delta ? b_.sum_k : b_.sum_a;
          return b_.sum_q + r * query_panel();
        },
        [&](int key) noexcept { return key == 0 ? b_.sum_k : b_.sum_b; });
  }

  Acc dot(const Acc* x, const Acc* y) const noexcept {
    vector sum(Acc(0));
    for (index_t at = 0; at < plan_.k_stride; at += W)
      sum = simd::fma(simd::load<Arch>(x + at), simd::load<Arch>(y + at), sum);
    return simd::reduce_add(sum);
  }

  /// dP under its decays, and what it gives to rows and decays.
  void scalar_scores(const chunk<Acc>& c, Acc boundary) noexcept {
    const auto decayed = [&](index_t r) noexcept {
      decay_scores<Acc, Arch>(c.tokens, d_score(r, 0), c.decays.a, d_score(r, 0), c.score_stride);
    };
    for (index_t r = 0; r < plan_.queries; ++r) decayed(r);
    if (adjoint_.decays) scalar_gates(c, boundary);
    if constexpr (removes) decayed(plan_.queries);
  }

  /// dg_m = Γ Σ S₀ ⊙ dS + Σ_{j<m} k_j·dk_j(dS) + Σ_{i≥m} x_i·dx_i(S₀) + Σ_{j<m≤i} P_ij dP_ij, one of P and dP decayed.
  void scalar_gates(const chunk<Acc>& c, Acc boundary) noexcept {
    for (index_t m = 0; m < c.tokens; ++m) {
      b_.d_gates[m] = boundary;
      boundary += dot(s_.k + m * c.k_stride, d_key(0) + m * c.k_stride);
    }
    Acc of_state = 0;
    for (index_t m = c.tokens; m-- > 0;) {
      for (index_t r = 0; r < plan_.queries + (removes ? 1 : 0); ++r) {
        of_state += dot(reader_rows(r) + m * c.k_stride, d_reader(r) + m * c.k_stride);
      }
      vector crossing(Acc(0));
      for (index_t j = 0; j < m; j += W) {  // row m of `weights`: Σ_{i≥m} P_ij dP_ij
        const index_t at = m * c.score_stride + j;
        vector sum = m + 1 < c.tokens ? simd::load<Arch>(b_.weights + at + c.score_stride) : vector(Acc(0));
        for (index_t r = 0; r < plan_.queries + (removes ? 1 : 0); ++r) {
          const Acc* P = r == plan_.queries ? b_.removal : s_.scores + r * score_panel();
          sum = simd::fma(simd::load<Arch>(P + at), simd::load<Arch>(d_score(r, 0) + at), sum);
        }
        simd::store(b_.weights + at, sum);
        crossing = crossing + simd::select(simd::first_n<Acc, Arch>(m - j), sum, vector(Acc(0)));
      }
      b_.d_gates[m] += of_state + simd::reduce_add(crossing);
    }
  }

  void channel_scores_back(const chunk<Acc>& c) noexcept {
    row_adjoint<Acc> written[keys];
    for (int key = 0; key < keys; ++key) written[key] = {key_rows(key), d_key(key)};
    const auto readers = [&](index_t r) noexcept -> row_adjoint<Acc> { return {reader_rows(r), d_reader(r)}; };
    channel_scores_adjoint<Acc, Arch, Write, Read, keys>(
        c.tokens, plan_.chunk, c.key_dim, c.k_stride, b_.channels, plan_.queries, readers, written,
        [&](index_t r, int key) noexcept { return d_score(r, key); }, c.score_stride, b_.boundary,
        adjoint_.decays ? b_.d_gates : nullptr);
  }

  /// The adjoint of q·(u ⊙ k), on the diagonal of the scores.
  void bonus_cotangents(const tokens& at, const chunk<Acc>& c) noexcept {
    zero_rows(b_.d_u, 0, 1, c.k_stride);
    for (index_t r = 0; r < plan_.queries; ++r) {
      for (index_t i = 0; i < at.live; ++i) {
        const vector e(d_score(r, 0)[i * (c.score_stride + 1)]);
        for (index_t j = 0; j < c.k_stride; j += W) {
          const index_t row = i * c.k_stride + j;
          const vector q = simd::load<Arch>(reader_rows(r) + row), k = simd::load<Arch>(s_.k + row);
          const vector u = simd::load<Arch>(s_.u + j);
          simd::store(d_reader(r) + row, simd::fma(e * u, k, simd::load<Arch>(d_reader(r) + row)));
          simd::store(d_key(0) + row, simd::fma(e * u, q, simd::load<Arch>(d_key(0) + row)));
          simd::store(b_.d_u + j, simd::fma(e * q, k, simd::load<Arch>(b_.d_u + j)));
        }
      }
    }
  }

  const matrix_backward_problem<Acc>& all_;
  matrix_adjoints<Acc> adjoint_;
  matrix_backward_scratch<Acc> b_;
  typename panels::span_of_tokens span_{};
  index_t sequence_ = 0;
  index_t first_ = 0;  // unit
  index_t units_ = 1;
  index_t unit_groups_ = 1;
  index_t first_group_ = 0;  // of a unit, those of the task
  index_t groups_ = 1;
  index_t first_member_ = 0;  // of a group, likewise
  index_t members_ = 1;
  index_t heads_ = 1;              // of the task
  index_t chunks_ = 0;             // of the sequence
  const Acc* compared_ = nullptr;  // V − R of the chunk
  even_parts ask_;                 // for rows that come next
  bool single_ = false;            // no head shares q or k with another
  bool given_ = false;             // there is an initial state
  bool resting_ = false;           // the cotangent of the state is still zero
  scope scope_ = scope::whole;
  columns left_{};
};

// Not inline, so that an extern template spares a unit the bodies.
template <class Acc, class Arch, decay Decay, write Write, read Read>
void matrix_backward_task<Acc, Arch, Decay, Write, Read>::run(const matrix_backward_problem<Acc>& p, index_t task,
                                                              const void* op, arena memory) noexcept {
  const auto forward = matrix_scratch<Acc>::carve(p.forward, memory);
  matrix_backward_task(p, forward, matrix_backward_scratch<Acc>::carve(p, memory), task, op).sequence();
}

template <class Acc, class Arch, decay Decay, write Write, read Read>
auto matrix_backward_task<Acc, Arch, Decay, Write, Read>::of_one_state(const matrix_backward_problem<Acc>& p,
                                                                       const columns& all, scope what, const void* op,
                                                                       arena memory) noexcept -> matrix_backward_task {
  const auto forward = matrix_scratch<Acc>::carve(p.forward, memory);
  matrix_backward_task task(p, forward, matrix_backward_scratch<Acc>::carve(p, memory), 0, op);
  task.leave_in(all, what);
  return task;
}
template <class Acc, class Arch, decay Decay, write Write, read Read>
void matrix_backward_task<Acc, Arch, Decay, Write, Read>::run_columns(const matrix_backward_problem<Acc>& p,
                                                                      const columns& all, const void* op,
                                                                      arena memory) noexcept {
  of_one_state(p, all, scope::columns, op, memory).sequence();
}
template <class Acc, class Arch, decay Decay, write Write, read Read>
void matrix_backward_task<Acc, Arch, Decay, Write, Read>::run_chunk(const matrix_backward_problem<Acc>& p,
                                                                    const columns& all, index_t number, const void* op,
                                                                    arena memory) noexcept {
  of_one_state(p, all, scope::chunks, op, memory).chunk_alone(number);
}
template <class Acc, class Arch, decay Decay, write Write, read Read>
void matrix_backward_task<Acc, Arch, Decay, Write, Read>::run_sums(const matrix_backward_problem<Acc>& p,
                                                                   const columns& all, const void* op,
                                                                   arena memory) noexcept {
  of_one_state(p, all, scope::chunks, op, memory).sums();
}

template <class Acc, class Arch, decay Decay, write Write, read Read>
void matrix_backward_task<Acc, Arch, Decay, Write, Read>::join(const matrix_backward_problem<Acc>& p, index_t first,
                                                               index_t count, const void* op, const joint_memory& of,
                                                               index_t piece, index_t pieces, arena memory) noexcept {
  matrix_scratch<Acc> panels;
  const auto scratch = [&](arena m) noexcept {
    panels = matrix_scratch<Acc>::carve(p.forward, m);
    return matrix_backward_scratch<Acc>::carve(p, m);
  };
  Acc* sum = scratch(of(0)).carried;
  for (index_t i = 0; i < count; ++i) {
    const Acc* joint = scratch(of(i)).joint;
    const auto mine = scratch(memory);
    const matrix_backward_task task(p, panels, mine, first + i, op);
    for (index_t c = piece; c < task.chunks_; c += pieces) {
      task.join_chunk(c, (first + i) % p.parts() == 0, joint + c * p.joint_chunk(), sum + c * p.joint_chunk());
    }
  }
}

/// Cotangents that are not given: zeros, all in one place.
template <class T>
view<const T, 4> given_or_zero(const view<const T, 4>& d_o, const matrix_extents& n) noexcept {
  static constexpr T zero{};
  return d_o.present() ? d_o : view<const T, 4>(&zero, matrix_output(n), {0, 0, 0, 0});
}

/// Rows of padding read the state with whatever stands in their place. They count where somebody asks for their output;
/// else they are zeros, and have gradient 0.
template <class Op>
bool asked_for(const Op& op, const view<const typename Op::scalar, 4>& d_o, const tokens& at, index_t i) noexcept {
  if (i < at.live) return true;
  const index_t Hq = op.extents().query_heads, outputs = d_o.extent(2), readers = outputs / std::max<index_t>(Hq, 1);
  const bool consecutive = op.head_map == heads::consecutive;
  for (index_t r = 0; r < readers; ++r) {
    const auto row = d_o[at.batch][at.token + i][consecutive ? at.head * readers + r : at.head + r * Hq];
    for (index_t j = 0; j < row.extent(0); ++j) {
      if (static_cast<accum_t<typename Op::scalar>>(row[j]) != 0) return true;
    }
  }
  return false;
}

/// The forward of an operator, computed again for these cotangents of its outputs.
template <class Op>
struct matrix_again_binding : matrix_binding<Op> {
  const view<const typename Op::scalar, 4>* d_o;

  template <class Acc>
  matrix_hooks<Acc> hooks() const noexcept {
    matrix_hooks<Acc> all = matrix_binding<Op>::template hooks<Acc>();
    all.load_q = [](const void* bound, const tokens& at, Acc* q, index_t stride, Acc* room) noexcept {
      const auto& self = static_cast<const matrix_again_binding&>(*static_cast<const matrix_binding<Op>*>(bound));
      self.op->load_q(at, q, stride, room);
      for (index_t i = at.live; i < at.count; ++i) {
        if (!asked_for(*self.op, *self.d_o, at, i)) zero_rows(q + i * stride, stride, 1, stride);
      }
    };
    return all;
  }
};

/// An operator with a feature map, whose weights are for all heads: `weights(d)` says what core::run_summed wants to
/// know, and adjoint_q and adjoint_k get the task's sums.
template <class Op>
concept with_weights = requires(const Op& op, const typename Op::gradient& d) {
  op.weights(d);
};

/// An operator, the cotangent of its outputs and its gradients: what the adjoints see as `op`.
template <class Op>
struct matrix_backward_binding {
  const Op* op;
  const view<const typename Op::scalar, 4>* outputs;
  const typename Op::gradient* d;
  bool accumulate;
  void* sums = nullptr;  // of the task, of what all heads share

  static const matrix_backward_binding& self(const void* bound) noexcept {
    return *static_cast<const matrix_backward_binding*>(bound);
  }

  wanted_rows rows_wanted() const noexcept {
    if constexpr (requires { op->wants_rows(*d); }) return op->wants_rows(*d);
    return {};
  }

  template <class Acc>
  matrix_adjoints<Acc> adjoints() const noexcept {
    matrix_adjoints<Acc> all{
        .op = this,
        .outputs = op->wants_outputs(*d),
        .decays = op->wants_decays(*d),
        .rows = rows_wanted(),
        .ahead = [](const void* bound, const tokens& at,
                    lines_ahead& lines) noexcept { lines.add(ahead_of(*self(bound).outputs, at)); },
        .store =
            [](const void* bound, const tokens& at, const Acc* o, const Acc* denominator, Acc* panel, index_t stride,
               Acc* d_denominator, Acc* room) noexcept {
              const auto& b = self(bound);
              b.op->adjoint_store(at, *b.outputs, o, denominator, panel, stride, d_denominator, room, *b.d,
                                  b.accumulate);
            },
        .load_q =
            [](const void* bound, const tokens& at, Acc* d_q, index_t stride, Acc* room) noexcept {
              const auto& b = self(bound);
              for (index_t i = 0; i < at.count;) {
                const bool asked = asked_for(*b.op, *b.outputs, at, i);
                tokens rows = at;
                rows.token += i, rows.position += i, rows.count = 1;
                while (i + rows.count < at.count && asked_for(*b.op, *b.outputs, at, i + rows.count) == asked)
                  ++rows.count;
                rows.live = asked ? rows.count : 0;
                if constexpr (with_weights<Op>) {
                  b.op->adjoint_q(rows, d_q + i * stride, stride, room, *b.d, b.accumulate, static_cast<Acc*>(b.sums));
                } else {
                  b.op->adjoint_q(rows, d_q + i * stride, stride, room, *b.d, b.accumulate);
                }
                i += rows.count;
              }
            },
        .load_k =
            [](const void* bound, const tokens& at, Acc* d_k, index_t stride, Acc* room) noexcept {
              const auto& b = self(bound);
              if constexpr (with_weights<Op>) {
                b.op->adjoint_k(at, d_k, stride, room, *b.d, b.accumulate, static_cast<Acc*>(b.sums));
              } else {
                b.op->adjoint_k(at, d_k, stride, room, *b.d, b.accumulate);
              }
            },
        .load_v =
            [](const void* bound, const tokens& at, Acc* d_v, const Acc* d_o, index_t stride, const Acc* d_log_decay,
               Acc* room) noexcept {
              self(bound).op->adjoint_v(at, d_v, d_o, stride, d_log_decay, room, *self(bound).d,
                                        self(bound).accumulate);
            }};
    if constexpr (Op::decays == decay::per_key) {
      all.load_gates = [](const void* bound, const tokens& at, Acc* d_g, const Acc* d_k, index_t stride,
                          Acc* room) noexcept {
        self(bound).op->adjoint_gates(at, d_g, d_k, stride, room, *self(bound).d, self(bound).accumulate);
      };
    }
    if constexpr (Op::writes == write::delta) {
      all.load_beta = [](const void* bound, const tokens& at, Acc* d_beta, index_t stride, Acc* room) noexcept {
        self(bound).op->adjoint_beta(at, d_beta, stride, room, *self(bound).d, self(bound).accumulate);
      };
    }
    if constexpr (Op::writes == write::low_rank) {
      all.load_removal = [](const void* bound, const tokens& at, Acc* d_a, Acc* d_b, index_t stride,
                            Acc* room) noexcept {
        self(bound).op->adjoint_removal(at, d_a, d_b, stride, room, *self(bound).d, self(bound).accumulate);
      };
    }
    if constexpr (Op::reads == read::before) {
      all.load_bonus = [](const void* bound, index_t head, const Acc* d_u) noexcept {
        self(bound).op->adjoint_bonus(head, d_u, *self(bound).d);
      };
    }
    return all;
  }
};

/// Calls f(sum, sum of `from`) for the rows of head h, for all that are sums over tokens and sequences.
template <class Op, class F>
void for_sums_of_head(index_t h, const typename Op::gradient& to, const typename Op::gradient& from,
                      const F& f) noexcept {
  Op::for_sums(to, [&](auto gradient, auto, std::size_t axis) noexcept {
    const auto row = [&]<class X, std::size_t Rank>(const view<X, Rank>& x) noexcept {
      const bool last = axis + 1 == Rank;
      return view<X, 1>(x.data() + h * x.stride(axis), {last ? 1 : x.extent(Rank - 1)}, {x.stride(Rank - 1)});
    };
    if ((to.*gradient).present()) f(row(to.*gradient), row(from.*gradient));
  });
}

/// d with sums in memory of their own.
template <class Op>
typename Op::gradient with_own_sums(const Op& op, typename Op::gradient d, arena& memory, bool all = false) noexcept {
  Op::for_sums(d, [&](auto gradient, auto field, std::size_t axis) noexcept {
    auto& x = d.*gradient;
    using View = std::remove_cvref_t<decltype(x)>;
    if (!x.present() && !all) return;
    shape<View::rank> strides{};
    const index_t columns = axis + 1 == View::rank ? 1 : (op.*field).extent(View::rank - 1);
    strides[View::rank - 1] = 1;
    strides[axis] = columns;
    x = View(memory.take<typename View::element_type>((op.*field).extent(axis) * columns), (op.*field).extents(),
             strides);
  });
  return d;
}

template <class Op>
OGIVE_NOINLINE void clear_sums(const typename Op::gradient& d, index_t heads) noexcept {
  for (index_t h = 0; h < heads; ++h) {
    for_sums_of_head<Op>(h, d, d, [](const auto& to, const auto&) noexcept {
      for (index_t j = 0; j < to.extent(0); ++j) to[j] = 0;
    });
  }
}
template <class Op>
OGIVE_NOINLINE void add_sums(const typename Op::gradient& to, const typename Op::gradient& from, index_t begin,
                             index_t end) noexcept {
  for (index_t h = begin; h < end; ++h) {
    for_sums_of_head<Op>(h, to, from, [](const auto& all, const auto& own) noexcept {
      for (index_t j = 0; j < all.extent(0); ++j) all[j] += own[j];
    });
  }
}

/// Whether some gradients are sums over tokens and sequences.
template <class Op>
bool wants_sums(const typename Op::gradient& d) noexcept {
  bool any = false;
  Op::for_sums(d, [&](auto gradient, auto, std::size_t) noexcept { any = any || (d.*gradient).present(); });
  return any;
}

/// Bytes of a worker's own sums, of all that there may be or of those in d.
template <class Op>
std::size_t sums_bytes(const Op& op, const typename Op::gradient& d, index_t turns, bool all) noexcept {
  arena counted;
  for (index_t i = 0; i < turns; ++i) with_own_sums(op, d, counted, all);
  return counted.used();
}

/// Tasks whose gradients are sums with those of others: as many at a time as there is room for, each with sums of its
/// own, which are added in the order of tasks; the bits are those of one worker. A member of a team shares no memory
/// with the others: it runs all tasks that have something in common.
template <class Engine, class Acc, class Op>
void run_joint_tasks(const matrix_backward_problem<Acc>& p, const matrix_backward_binding<Op>& gradients,
                     std::size_t bytes, context& ctx) noexcept {
  const index_t turns = p.turns(), heads = p.forward.n.heads, workers = ctx.workers();
  const joint_memory memories{ctx, bytes, sums_bytes(*gradients.op, *gradients.d, turns, false)};
  const auto own_of = [&](index_t i) noexcept {
    arena memory = ctx.scratch(i / turns, bytes);
    for (index_t turn = 0; turn < i % turns; ++turn) with_own_sums(*gradients.op, *gradients.d, memory);
    return with_own_sums(*gradients.op, *gradients.d, memory);
  };
  const auto run = [&](index_t task, index_t i, arena memory) noexcept {
    const auto own = own_of(i);
    matrix_backward_binding<Op> mine = gradients;
    mine.d = &own;
    clear_sums<Op>(own, heads);
    memory.take<std::byte>(static_cast<index_t>(memories.sums));
    Engine::run(p, task, &mine, memory);
  };
  const auto join = [&](index_t first, index_t count, index_t piece, index_t pieces, arena memory) noexcept {
    memory.take<std::byte>(static_cast<index_t>(memories.sums));
    if (p.joint_size() > 0) Engine::join(p, first, count, &gradients, memories, piece, pieces, memory);
  };
  if (!p.accumulate) {
    run_tasks(ctx, p.sums ? 1 : 0, bytes, [&](index_t, arena) noexcept { clear_sums<Op>(*gradients.d, heads); });
  }
  const index_t parts = p.parts(), blocks = p.blocks(), tasks = p.tasks();
  if (workers == 1) {
    const index_t sequences = p.sums ? p.forward.sequences : 1;  // that have something in common
    run_tasks(ctx, tasks / std::max<index_t>(1, parts * sequences), bytes, [&](index_t unit, arena memory) noexcept {
      for (index_t i = 0; i < parts * sequences; ++i) {
        const index_t task = (i / parts * blocks + unit) * parts + i % parts;
        run(task, 0, memory);
        for (index_t h = 0; h < heads; ++h) {  // no others: those another member of the team may be adding to
          if (p.block_of(h) == unit) add_sums<Op>(*gradients.d, own_of(0), h, h + 1);
        }
        join(task, 1, 0, 1, memory);
      }
    });
    return;
  }
  for (index_t first = 0; first < tasks; first += workers * turns) {
    const index_t count = std::min(workers * turns, tasks - first);
    run_tasks(ctx, count, bytes, [&](index_t i, arena memory) noexcept {
      run(first + i, i, turns == 1 ? ctx.scratch(i, bytes) : memory);  // what a task leaves is where it is looked for
    });
    run_tasks(ctx, workers, bytes, [&](index_t piece, arena memory) noexcept {
      for (index_t i = 0; i < count; ++i) {
        add_sums<Op>(*gradients.d, own_of(i), piece * heads / workers, (piece + 1) * heads / workers);
      }
      join(first, count, piece, workers, memory);
    });
  }
}

template <class State>
concept with_normaliser_gradient = requires(const State& d_st) {
  d_st.z_initial;
};

/// Where the reverse sweep starts and ends, as the state of a sweep.
template <class Op, class Gradient>
auto reversed(const Gradient& d_st) noexcept {
  typename Op::template state_of<typename Gradient::storage_type> st{.initial = d_st.final, .final = d_st.initial};
  if constexpr (with_normaliser_gradient<Gradient>) {
    st.z_initial = d_st.z_final;
    st.z_final = d_st.z_initial;
    if (!st.initial.present() && st.z_initial.present()) st.z_initial = {};
  }
  return st;
}

/// The gradient of the initial state, added to what is there.
template <class Acc, class State>
void add_state(const void* state, index_t sequence, index_t head, const Acc* S, index_t stride, const Acc* z) noexcept {
  const State& st = *static_cast<const State*>(state);
  using G = typename State::storage_type;
  for (index_t i = 0; i < st.final.extent(2); ++i) {
    for (index_t j = 0; j < st.final.extent(3); ++j) {
      G& to = st.final(sequence, head, i, j);
      to = static_cast<G>(static_cast<Acc>(to) + S[i * stride + j]);
    }
    if constexpr (with_normaliser<State>) {
      if (st.z_final.present()) {
        G& to = st.z_final(sequence, head, i);
        to = static_cast<G>(static_cast<Acc>(to) + z[i]);
      }
    }
  }
}

template <class Acc, class Op, class State, class Cotangents>
matrix_backward_problem<Acc> describe_backward(const matrix_again_binding<Op>& bound,
                                               const matrix_backward_binding<Op>& gradients, const State& st,
                                               const Cotangents& cotangents, options how,
                                               const checkpoints* kept) noexcept {
  matrix_backward_problem<Acc> p{};
  if (kept != nullptr && how.chunk == 0) how.chunk = kept->interval();
  p.forward =
      describe<Acc>(bound, st, form::chunked, false, backward_options(policies_of<Op>, bound.op->extents(), how));
  p.forward.hooks = bound.template hooks<Acc>();
  p.forward.plan.block = 0;  // states have a place of their own
  if constexpr (requires { bound.op->normalise; }) {
    p.forward.normalise = bound.op->normalise || cotangents.z_initial.present() || cotangents.z_final.present();
  }
  p.adjoints = gradients.template adjoints<Acc>();
  p.cotangents = state_access<Acc, Cotangents>::hooks(cotangents);
  if (how.accumulate) p.cotangents.save = add_state<Acc, Cotangents>;
  if constexpr (requires { bound.op->template adjoint_room<Acc>(0); }) {
    p.room = bound.op->template adjoint_room<Acc>(p.forward.plan.chunk);
  }
  p.undivided = requires { Op::gates_of_keys; };
  if constexpr (with_weights<Op>) {
    const auto weights = bound.op->weights(*gradients.d);
    if (weights.wanted()) p.weights = weights.size();
  }
  p.accumulate = how.accumulate;
  p.sums = wants_sums<Op>(*gradients.d);
  p.chunks = (p.forward.n.length + p.forward.plan.chunk - 1) / p.forward.plan.chunk;
  if (kept != nullptr) {
    arena memory(const_cast<std::byte*>(kept->data()), kept->capacity());  // nothing is written there
    p.kept = matrix_checkpoints<Acc>::of(p.forward, p.forward.plan.chunk, memory);
  }
  return p;
}

/// Bytes of what tasks of columns leave.
template <class Acc>
std::size_t columns_bytes(const matrix_backward_problem<Acc>& p) noexcept {
  arena counted;
  matrix_backward_columns<Acc>::carve(p, counted);
  return counted.used();
}

/// Pieces of V that tasks of their own work on in backward. A normaliser's gradient is a sum over all columns that the
/// chunk before waits for.
template <class Acc, class Op>
index_t value_pieces(const Op& op, const matrix_backward_problem<Acc>& p) noexcept {
  if constexpr (requires { op.columns(0, 0); }) {
    if (p.chunks > 1 && !p.forward.normalise && p.weights == 0) return value_pieces(op);
  }
  return 1;
}

/// One state by many workers. First each takes columns of V, forwards and backwards through all chunks; they leave what
/// a chunk wants besides: the states on both sides of it, and its values and cotangents. Then chunks have nothing to do
/// with each other any more, and are tasks, each with all columns: the bits are those of one task.
template <class Engine, class Acc, class Op, class State, class Cotangents>
void run_columns(const matrix_backward_problem<Acc>& whole, const matrix_backward_binding<Op>& gradients,
                 const State& st, const Cotangents& cotangents, std::size_t bytes, context& ctx) {
  constexpr int most = 4;
  struct piece {
    index_t first;
    Op op;
    State st;
    Cotangents cotangents;
    view<const typename Op::scalar, 4> d_o;
    typename Op::gradient d;
    matrix_again_binding<Op> bound;
    matrix_backward_binding<Op> gradients;
  };
  const Op& op = *gradients.op;
  const view<typename Op::scalar, 4> o;
  const value_cut cut = value_cut::of<Acc>(whole.forward.n.value_dim, whole.pieces);
  const auto part = [&](index_t i) noexcept {
    const auto [first, count] = cut[i];
    piece p{first,
            op.columns(first, count),
            columns_of(st, first, count),
            columns_of(cotangents, first, count),
            gradients.outputs->slice(3, first, count),
            *gradients.d,
            {},
            {}};
    if constexpr (requires { op.columns(p.d, 0, 0); }) p.d = op.columns(p.d, first, count);
    return p;
  };
  piece parts[most] = {part(0), part(1), part(2), part(3)};
  matrix_backward_problem<Acc> problems[most];
  for (index_t i = 0; i < cut.pieces; ++i) {
    piece& p = parts[i];
    p.bound = {{&p.op, &o}, gradients.outputs};
    p.gradients = {&p.op, &p.d_o, &p.d, gradients.accumulate};
    problems[i] = describe_backward<Acc>(p.bound, p.gradients, p.st, p.cotangents,
                                         {.chunk = whole.forward.plan.chunk, .accumulate = whole.accumulate}, nullptr);
    problems[i].pieces = whole.pieces;
    matrix_plan& plan = problems[i].forward.plan;
    plan.v_stride = whole.forward.plan.v_stride;
    plan.state_rows = whole.forward.plan.state_rows;
    problems[i].kept = whole.kept.columns(p.first, p.op.extents().value_dim);
  }
  const index_t workers = ctx.workers(), heads = whole.forward.n.heads;
  const std::size_t left = columns_bytes(whole);
  ctx.reserve(static_cast<std::size_t>(workers) * bytes + left);
  arena beside(ctx.scratch(workers, bytes).template take<std::byte>(0), left);
  const auto all = matrix_backward_columns<Acc>::carve(whole, beside);
  run_tasks(ctx, cut.pieces, bytes, [&](index_t i, arena memory) noexcept {
    Engine::run_columns(problems[i], all.from(parts[i].first), &parts[i].gradients, memory);
  });
  run_tasks(ctx, whole.chunks, bytes,
            [&](index_t c, arena memory) noexcept { Engine::run_chunk(whole, all, c, &gradients, memory); });
  if (!whole.sums) return;
  run_tasks(ctx, 1, bytes, [&](index_t, arena memory) noexcept {
    const auto own = with_own_sums(op, *gradients.d, memory);
    matrix_backward_binding<Op> mine = gradients;
    mine.d = &own;
    clear_sums<Op>(own, heads);
    Engine::run_sums(whole, all, &mine, memory);
    if (!whole.accumulate) clear_sums<Op>(*gradients.d, heads);
    add_sums<Op>(*gradients.d, own, 0, heads);
  });
}

template <class Acc>
std::size_t scratch_of(const matrix_backward_problem<Acc>& p) noexcept {
  arena counted;
  matrix_scratch<Acc>::carve(p.forward, counted);
  matrix_backward_scratch<Acc>::carve(p, counted);
  return counted.used() + core::summed_bytes<Acc>(p.weights);
}

/// "d." and the name of a field, for messages.
struct gradient_name {
  char text[24] = "d.";
  gradient_name(const char* field) noexcept {
    for (int i = 0; i < 20 && field[i] != 0; ++i) text[i + 2] = field[i];
  }
};

/// The backward of the matrix engine behind the verbs.
struct matrix_backward_engine {
  template <class Op, class State, class Gradient>
  static status check_backward(const Op& op, const State& st, const view<const typename Op::scalar, 4>& d_o,
                               const Gradient& d_st, const typename Op::gradient& d, const options& how) noexcept {
    core::checker ask(op.name);
    ask.chunk(how);
    if (ask && how.form != form::automatic && how.form != form::chunked) {
      ask.refuse("form", status_code::value) << "must be automatic or chunked for backward";
    }
    check_call(ask, op, without_end(st));
    if (!ask) return ask.result();
    const matrix_extents n = op.extents();
    ask.extents("d_o", d_o, matrix_output(n), letters_of<Op>.output);
    check_state_gradient(ask, d_st, shape<4>{sequences_of(op), n.heads, n.key_dim, n.value_dim},
                         "[sequences, H, K, V]");
    op.for_gradients(d, [&](const char* field, const auto& x, const auto& d_x) noexcept {
      const gradient_name name(field);
      if (!ask || !d_x.present()) return;
      if (!x.present()) ask.refuse(name.text) << "is asked for, but its field is absent";
      const auto fits = [&](const auto& own, const auto& of) noexcept {
        ask.extents(name.text, own, of.extents(), "as the field").output(name.text, own);
      };
      if constexpr (std::remove_cvref_t<decltype(d_x)>::rank >= 3) {
        if (summed<Op>(d, d_x)) return fits(d_x[0][0], x[0][0]);
      }
      fits(d_x, x);
    });
    const auto gradients = [&](const auto& f) noexcept {
      op.for_gradients(
          d, [&](const char* field, const auto&, const auto& d_x) noexcept { f(gradient_name(field).text, d_x); });
    };
    check_gradients_apart(ask, st, "d_o", d_o, d_st, gradients,
                          [&](const char* name, const auto& x) noexcept { op.check_written(ask, name, x); });
    return ask.result();
  }

  /// Whether checkpoints are of a call like this one, of which everything else has been asked.
  template <class Op, class State>
  static status check_checkpoints(const Op& op, const State& st, options how, const checkpoints& kept) noexcept {
    using Acc = matrix_accum<Op, State>;
    core::checker ask(op.name);
    const view<typename Op::scalar, 4> o;
    if (how.chunk == 0) how.chunk = kept.interval();
    const auto p = describe<Acc>(matrix_binding<Op>{&op, &o}, st, form::chunked, false,
                                 backward_options(policies_of<Op>, op.extents(), how));
    matrix_checkpoints<Acc>::check(ask, kept.of(), matrix_checkpoints<Acc>::call_of(op.name, p, p.plan.chunk));
    return ask.result();
  }

  template <class Op>
  static std::size_t backward_bytes(const Op& op, const options& how) noexcept {
    const auto most = [&]<class Acc>(Acc) noexcept {
      const view<typename Op::scalar, 4> o;
      const view<const typename Op::scalar, 4> d_o;
      const typename Op::gradient d{};
      const typename Op::template state_of<Acc> st{};
      const matrix_again_binding<Op> bound{{&op, &o}, &d_o};
      const matrix_backward_binding<Op> gradients{&op, &d_o, &d, false};
      auto p = describe_backward<Acc>(bound, gradients, st, st, how, nullptr);
      auto all = d;
      if constexpr (requires { all.over_time; }) all.over_time = true;
      std::size_t in_columns = 0;
      p.pieces = value_pieces(op, p);
      if (p.pieces > 1) {  // what they leave is shared by two workers at least
        const std::size_t sums = sums_bytes(op, all, 1, true);
        p.sums = sums > 0;
        in_columns = scratch_of(p) + sums + (columns_bytes(p) + 127) / 128 * 64;
      }
      p.pieces = 1, p.sums = false;
      if constexpr (requires { op.normalise; }) p.forward.normalise = true;
      if constexpr (with_weights<Op>) {
        auto learned = p;
        learned.weights = op.weights(d).size();
        return std::max({scratch_of(p) + sums_bytes(op, all, p.turns(), true), scratch_of(learned), in_columns});
      }
      return std::max(scratch_of(p) + sums_bytes(op, all, p.turns(), true), in_columns);
    };
    return std::max(most(accum_t<typename Op::scalar>{}), most(double{}));
  }

  template <class Op, class State, class Gradient>
  static void backward(const Op& op, const State& st, const view<const typename Op::scalar, 4>& d_o,
                       const Gradient& d_st, const typename Op::gradient& d, const options& how, context& ctx,
                       const checkpoints* kept = nullptr) {
    using Acc = matrix_accum<Op, State>;
    const view<typename Op::scalar, 4> o;
    const auto cotangents = reversed<Op>(d_st);
    const auto asked = given_or_zero(d_o, op.extents());
    const matrix_again_binding<Op> bound{{&op, &o}, &asked};
    const matrix_backward_binding<Op> gradients{&op, &asked, &d, how.accumulate};
    auto p = describe_backward<Acc>(bound, gradients, st, cotangents, how, kept);
    if (p.forward.n.heads == 0) return;
    using engine = matrix_backward_task<Acc, simd::default_arch, Op::decays, Op::writes, Op::reads>;
    if constexpr (requires { op.columns(0, 0); }) {
      p.pieces = std::min<index_t>(value_pieces(op, p), ctx.workers());
      if (p.pieces > 1) {
        const std::size_t bytes = scratch_of(p) + (p.sums ? sums_bytes(op, d, 1, false) : 0);
        return run_columns<engine>(p, gradients, st, cotangents, bytes, ctx);
      }
    }
    const bool joint = p.sums || p.parts() > 1;
    const std::size_t bytes = scratch_of(p) + (joint ? sums_bytes(op, d, p.turns(), false) : 0);
    ctx.reserve(static_cast<std::size_t>(ctx.workers()) * bytes);
    if constexpr (with_weights<Op>) {
      if (p.weights > 0) {
        return run_summed_tasks<Acc>(ctx, p.tasks(), bytes, p.weights, op.weights(d), how.accumulate,
                                     [&](index_t task, arena memory, Acc* sums) noexcept {
                                       auto mine = gradients;
                                       mine.sums = sums;
                                       engine::run(p, task, &mine, memory);
                                     });
      }
    }
    if (joint) return run_joint_tasks<engine>(p, gradients, bytes, ctx);
    run_tasks(ctx, p.tasks(), bytes,
              [&](index_t task, arena memory) noexcept { engine::run(p, task, &gradients, memory); });
  }

 private:
  /// Gradients of what is the same for all tokens are views of stride 0 over them.
  template <class Op, class X>
  static bool summed(const typename Op::gradient& d, const X& d_x) noexcept {
    bool found = false;
    Op::for_sums(d, [&](auto gradient, auto, std::size_t axis) noexcept {
      found = found || (axis > 0 && static_cast<const void*>(&d_x) == &(d.*gradient));
    });
    return found;
  }
};

/// The same for an operator that is a choice of operands.
struct operands_backward_engine {
  template <class Op, class State, class Gradient>
  static status check_backward(const Op& op, const State& st, const view<const typename Op::scalar, 4>& d_o,
                               const Gradient& d_st, const typename Op::gradient& d, const options& how) noexcept {
    core::checker ask(Op::name);
    if constexpr (requires { op.check_own(ask); }) op.check_own(ask);
    if (!ask) return ask.result();
    return matrix_backward_engine::check_backward(op.operands(), st, d_o, d_st, op.gradients(d), how);
  }
  template <class Op>
  static std::size_t backward_bytes(const Op& op, const options& how) noexcept {
    return matrix_backward_engine::backward_bytes(op.operands(), how);
  }
  template <class Op, class State, class Gradient>
  static void backward(const Op& op, const State& st, const view<const typename Op::scalar, 4>& d_o,
                       const Gradient& d_st, const typename Op::gradient& d, const options& how, context& ctx,
                       const checkpoints* kept = nullptr) {
    matrix_backward_engine::backward(op.operands(), st, d_o, d_st, op.gradients(d), how, ctx, kept);
  }
  template <class Op, class State>
  static status check_checkpoints(const Op& op, const State& st, const options& how, const checkpoints& kept) noexcept {
    return matrix_backward_engine::check_checkpoints(op.operands(), st, how, kept);
  }
};

template <matrix_operator Op>
struct gradient_rules<Op> {
  using type = matrix_backward_engine;
};
template <operator_of_operands Op>
struct gradient_rules<Op> {
  using type = operands_backward_engine;
};

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

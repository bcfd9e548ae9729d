// L5: a task of the backward of the matrix engine, a reverse sweep over chunks.
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

#include <ogive/engine/matrix_backward_problem.hpp>

namespace ogive {
inline namespace OGIVE_ABI {
namespace detail {

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

}  // namespace detail
}  // namespace OGIVE_ABI
}  // namespace ogive

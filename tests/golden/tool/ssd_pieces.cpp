// The three pieces that a chunked SSD is made of, each as SSD over packed sequences: a chunk is a sequence with a state
// of its own. The files give cumulative log decays; the difference of two neighbours is the decay of a token, and sums
// of differences telescope, so exp of them is off by no more than rounding times |G| e^G, G the sum: less than a bit.
#include <ogive/testing/samplers/ssd.hpp>

#include "tests/golden/tool/gradients.hpp"
#include "tests/golden/tool/sequence_forms.hpp"
#include "tests/golden/tool/state_space.hpp"

namespace ogive::golden {

namespace {

/// dt and dA_cumsum are b,h,c,l. The tokens of the other tensors may end before the last chunk does: the rest are
/// zeros, which decay what is before them all the same.
struct chunks {
  tensor<double, 3> g, w;  ///< log decays and weights [B, c·l, H]
  std::vector<std::int64_t> offsets{0};

  explicit chunks(const golden_case& file) {
    const auto dt = file.get<double, 4>("dt");
    const auto cumulative = file.get<double, 4>("dA_cumsum");
    if (cumulative.extents() != dt.extents()) throw std::runtime_error("dt and dA_cumsum must have one shape");
    const auto [B, H, C, l] = dt.extents();
    g = tensor<double, 3>({B, C * l, H});
    w = g;
    for (index_t b = 0; b < B; ++b) {
      for (index_t t = 0; t < C * l; ++t) {
        for (index_t h = 0; h < H; ++h) {
          const index_t c = t / l, i = t % l;
          g(b, t, h) = cumulative(b, h, c, i) - (i > 0 ? cumulative(b, h, c, i - 1) : 0);
          w(b, t, h) = dt(b, h, c, i);
        }
      }
      for (index_t c = 1; c <= C; ++c) offsets.push_back((b * C + c) * l);
    }
  }

  index_t length() const { return g.extent(1); }

  /// A tensor of tokens, with zeros up to the end of the last chunk.
  template <class T>
  tensor<T, 4> tokens(const golden_case& file, const std::string& name) const {
    const auto stored = file.get_if<T, 4>(name);
    if (!stored.all().present()) return {};
    if (stored.extent(1) > length()) throw std::runtime_error(name + " has more tokens than there are in the chunks");
    shape<4> extents = stored.extents();
    extents[1] = length();
    tensor<T, 4> all(extents);
    testing::memory::assign(all.all().slice(1, 0, stored.extent(1)), stored.all());
    return all;
  }
};

constexpr const char* backward_form = "backward";

/// Rows of tokens in one row as the file has them: without those up to the end of the last chunk.
template <class T>
view<const T, 4> stored_rows(const tensor<T, 4>& row, const tensor<T, 4>& all, index_t length) {
  return view<const T, 4>(row.data(), all.extents()).slice(1, 0, length);
}

/// The sum of what the heads of each of G groups have, [1, L, H, N].
template <class T>
tensor<T, 4> sum_of_groups(const tensor<T, 4>& heads, index_t G) {
  const index_t H = heads.extent(2), N = heads.extent(3);
  tensor<T, 4> sum({1, heads.extent(1), G, N});
  testing::for_each(heads.all(), [&](const T& x, index_t i) { sum(0, i / (N * H), i / N % H / (H / G), i % N) += x; });
  return sum;
}

/// Gradients of what the file calls dt, dA_cumsum and B from those of the operator's dt, d, and B, B' = (w/d) B:
///   dw = B·dB'/d,   dg = B'·dB'/d − dd,   dB = Σ (w/d) dB' over the heads of a group
template <class T>
void hold_decays(trial& t, const chunks& of, const ssd<T>& op, const tensor<T, 3>& d_dt, const tensor<T, 4>& d_B) {
  const auto B = of.tokens<double>(t.file, "B");
  const auto cumulative = t.file.get<double, 4>("dA_cumsum");
  const index_t l = cumulative.extent(3), L = of.length(), H = cumulative.extent(1), G = B.extent(2), N = B.extent(3);
  tensor<double, 4> d_w(cumulative.extents()), d_cumulative(cumulative.extents()), d_given(B.extents());
  for (index_t row = 0; row < B.extent(0) * L; ++row) {
    const index_t b = row / L, at = row % L, c = at / l, i = at % l;
    for (index_t h = 0; h < H; ++h) {
      const auto d = static_cast<double>(op.dt(0, row, h));
      double d_g = -static_cast<double>(d_dt(0, row, h));
      for (index_t n = 0, g = h / (H / G); n < N; ++n) {
        const double slope = static_cast<double>(d_B(0, row, h, n)) / d;
        d_w(b, h, c, i) += B(b, at, g, n) * slope;
        d_g += static_cast<double>(op.B(0, row, h, n)) * slope;
        d_given(b, at, g, n) += of.w(b, at, h) * slope;
      }
      d_cumulative(b, h, c, i) += d_g;
      if (i > 0) d_cumulative(b, h, c, i - 1) -= d_g;
    }
  }
  hold<T>(t, backward_form, "d_dt", d_w.all());
  hold<T>(t, backward_form, "d_dA_cumsum", d_cumulative.all());
  hold<T>(t, backward_form, "d_B", d_given.all().slice(1, 0, t.file.shape("B")[1]));
}

template <class T>
struct piece_arguments {
  ssd<T> op;
  state<T> st;
  index_t chunk = 0;

  template <class Acc, class State>
  void define(const ssd<T>& o, const State& from, const view<Acc, 4>& y) const {
    reference::evaluate<Acc>(o, from, y);
  }
};

/// ssd_chunk_state: states[b,c,h] = Σ_l exp(cum_last − cum_l) dt_l x_l B_lᵀ, what a chunk adds to the state.
template <class T>
struct chunk_state : piece_arguments<T> {
  using piece_arguments<T>::op, piece_arguments<T>::st;

  chunks of;
  log_decays<T> steps;
  tensor<T, 4> x, B;

  explicit chunk_state(const golden_case& file)
      : of(file),
        steps(of.g.all(), of.w.all()),
        x(of.tokens<T>(file, "x")),
        B(steps.weighted(of.tokens<double>(file, "B").all())) {
    op = steps.on({.x = x, .B = B, .C = B});
    op.x = one_row(op.x);
    op.dt = one_row(op.dt);
    op.B = op.C = one_row(op.B);
    op.offsets = of.offsets;
  }

  template <class O>
  named_views outputs(const view<O, 4>&, const state<T>& left) const {
    named_views all;
    add_state(all, "states", from_v_first(left.final));
    return all;
  }

  static void run_backward(trial& t) {
    const chunk_state args(t.file);
    const auto d_S = t.file.merged<T, 4>("grad_states");
    auto d_x = like(args.op.x), d_B = like(args.op.B);
    auto d_dt = like(args.op.dt);
    backward(args.op, {}, {}, state_gradient<T>{.final = from_v_first(d_S.all())}, {.x = d_x, .dt = d_dt, .B = d_B});
    hold<T>(t, backward_form, "d_x", stored_rows(d_x, args.x, t.file.shape("x")[1]));
    hold_decays(t, args.of, args.op, d_dt, d_B);
  }
};

/// ssd_chunk_scan: y = (C Bᵀ ∘ decay) (dt x) + exp(cum) C S_prev + D x, times silu(z), S_prev given for every chunk.
template <class T>
struct chunk_scan : piece_arguments<T> {
  using piece_arguments<T>::op, piece_arguments<T>::st;

  chunks of;
  log_decays<T> steps;
  tensor<T, 4> x, B, C, z, S;
  tensor<T, 2> D;
  index_t length;  ///< of x as it is stored

  explicit chunk_scan(const golden_case& file)
      : of(file),
        steps(of.g.all(), of.w.all()),
        x(of.tokens<T>(file, "x")),
        B(steps.weighted(of.tokens<double>(file, "B").all())),
        C(steps.repeated(of.tokens<double>(file, "C").all())),
        z(of.tokens<T>(file, "z")),
        S(file.merged<T, 4>("prev_states")),
        D(skips<T>(file)),
        length(file.shape("x")[1]) {
    op = steps.on({.x = x, .B = B, .C = C, .D = D, .z = z});
    op.x = one_row(op.x);
    op.dt = one_row(op.dt);
    op.B = one_row(op.B);
    op.C = one_row(op.C);
    op.z = one_row(op.z);
    op.offsets = of.offsets;
    st.initial = from_v_first(std::as_const(S).all());
  }

  template <class O>
  named_views outputs(const view<O, 4>& o, const state<T>&) const {
    const view<O, 4> rows(o.data(), x.extents(), {of.length() * o.stride(1), o.stride(1), o.stride(2), o.stride(3)});
    named_views all;
    add_output(all, "out", rows.slice(1, 0, length));
    return all;
  }

  static void run_backward(trial& t) {
    const chunk_scan args(t.file);
    const auto d_out = args.of.template tokens<T>(t.file, "grad_out");
    auto d_x = like(args.op.x), d_B = like(args.op.B), d_C = like(args.op.C), d_z = like(args.op.z);
    auto d_dt = like(args.op.dt);
    auto d_D = like(args.op.D);
    auto d_S = like(args.S.all());
    backward(args.op, args.st, one_row(d_out.all()), state_gradient<T>{.initial = from_v_first(d_S.all())},
             {.x = d_x, .dt = d_dt, .B = d_B, .C = d_C, .D = d_D, .z = d_z});
    hold<T>(t, backward_form, "d_x", stored_rows(d_x, args.x, args.length));
    hold<T>(t, backward_form, "d_D", d_D.all());
    if (args.op.z.present()) hold<T>(t, backward_form, "d_z", stored_rows(d_z, args.z, args.length));
    hold<T>(t, backward_form, "d_prev_states", d_S.all());
    const auto C = args.of.template tokens<T>(t.file, "C");
    hold<T>(t, backward_form, "d_C", stored_rows(sum_of_groups(d_C, C.extent(2)), C, args.length));
    hold_decays(t, args.of, args.op, d_dt, d_B);
  }
};

/// ssd_state_passing: S_{c+1} = exp(dA_c) S_c + states_c over chunks, out_c = S_c. The chunks are the tokens here,
/// their states the values, written under a key of 1 and read after; so out is what the reads give, one later.
template <class T>
struct state_passing : piece_arguments<T> {
  using piece_arguments<T>::op, piece_arguments<T>::st;

  log_decays<T> steps;
  tensor<T, 4> x, B, C, S;

  explicit state_passing(const golden_case& file)
      : steps(decays(file).all()), x(file.get<T, 4>("states")), C({x.extent(0), x.extent(1), x.extent(2), 1}, T(1)) {
    const tensor<double, 4> ones(C.extents(), 1.0);
    B = steps.weighted(ones.all());
    op = steps.on({.x = x, .B = B, .C = C});
    if (!file.has("initial_states")) return;
    S = file.get<T, 4>("initial_states");
    st.initial = view<const T, 4>(S.data(), {S.extent(1), S.extent(2), 1, S.extent(3)});
  }

  template <class O>
  named_views outputs(const view<O, 4>& o, const state<T>& left) const {
    tensor<O, 4> before(o.extents());
    for (index_t b = 0; b < o.extent(0); ++b) {
      for (index_t c = 0; c < o.extent(1); ++c) {
        for (index_t h = 0; h < o.extent(2); ++h) {
          for (index_t i = 0; i < o.extent(3); ++i) {
            const auto first = st.initial.present() ? static_cast<O>(st.initial(b, h, 0, i)) : O(0);
            before(b, c, h, i) = c > 0 ? o(b, c - 1, h, i) : first;
          }
        }
      }
    }
    named_views all;
    add_output(all, "out", before.all());
    add_state(all, "final", left.final);
    return all;
  }

  static void run_backward(trial& t) {
    const state_passing args(t.file);
    const auto d_out = t.file.get<T, 4>("grad_out");
    const auto d_final = t.file.get<T, 3>("grad_final");
    const auto [b, c, h, p] = d_out.extents();
    tensor<T, 4> d_o(d_out.extents());
    testing::memory::assign(d_o.all().slice(1, 0, c - 1), std::as_const(d_out).all().slice(1, 1, c - 1));
    auto d_x = like(args.op.x), d_B = like(args.op.B);
    auto d_dt = like(args.op.dt);
    tensor<T, 4> d_S({b, h, 1, p});
    state_gradient<T> d_st{.final = view<const T, 4>(d_final.data(), {b, h, 1, p})};
    if (args.st.initial.present()) d_st.initial = d_S;
    backward(args.op, args.st, d_o, d_st, {.x = d_x, .dt = d_dt, .B = d_B});
    tensor<T, 3> d_g({b, h, c});
    testing::for_each(d_g.all(), [&, H = h, C = c](T& g, index_t i) {
      const index_t n = i / (H * C), head = i / C % H, at = i % C;
      g = args.op.B(n, at, head, 0) * d_B(n, at, head, 0) / args.op.dt(n, at, head) - d_dt(n, at, head);
    });
    testing::for_each(d_S.all(), [&, H = h, P = p](T& d, index_t i) { d += d_out(i / (H * P), 0, i / P % H, i % P); });
    hold<T>(t, backward_form, "d_states", d_x.all());
    hold<T>(t, backward_form, "d_dA_chunk_cumsum", d_g.all());
    if (args.st.initial.present()) hold<T>(t, backward_form, "d_initial_states", d_S.all());
  }

 private:
  /// dA_chunk_cumsum b,h,c as [B, L, H].
  static tensor<double, 3> decays(const golden_case& file) {
    const auto given = file.get<double, 3>("dA_chunk_cumsum");
    tensor<double, 3> g({given.extent(0), given.extent(2), given.extent(1)});
    testing::memory::assign(g.all(), given.all().permute({0, 2, 1}));
    return g;
  }
};

template <template <class> class Arguments>
void run_piece(trial& t) {
  run_wide(t, [&]<class T>(T) { return Arguments<T>(t.file); });
  if (!t.file.gradients().empty()) in_both(t, []<class T>(trial& on, T) { Arguments<T>::run_backward(on); });
}

const registration states("ssd_chunk_state", run_piece<chunk_state>);
const registration scan("ssd_chunk_scan", run_piece<chunk_scan>);
const registration passing("ssd_state_passing", run_piece<state_passing>);

}  // namespace

}  // namespace ogive::golden

// The selective scan (Mamba-1): whole sequences and decoding steps.
#include "tests/golden/tool/selective_scan.hpp"

#include "tests/golden/tool/gradients.hpp"

namespace ogive::golden {

namespace {

/// u, delta, z, out: B,D,L; A: D,N; states: B,D,N.
template <class T, class AType>
struct sequence : scan_arguments<T, AType> {
  using base = scan_arguments<T, AType>;
  using base::u, base::dt, base::A, base::B, base::C, base::D, base::z, base::dt_bias, base::h, base::op, base::st;
  using accum = accum_t<T>;

  explicit sequence(const golden_case& file) {
    u = file.get<T, 3>("u");
    z = file.get_if<T, 3>("z");
    dt = file.get<accum, 3>("delta");
    A = file.get<AType, 2>("A");
    D = file.get_if<accum, 1>("D");
    dt_bias = file.get_if<accum, 1>("delta_bias");
    h = file.get_if<AType, 3>("initial_state");
    op.u = from_bdl(std::as_const(u).all());
    op.dt = from_bdl(std::as_const(dt).all());
    op.z = from_bdl(std::as_const(z).all());
    op.A = A;
    op.D = D;
    op.dt_bias = dt_bias;
    op.dt_softplus = file.flag("delta_softplus", false);
    B = {file, "B", op.u.extent(0), op.u.extent(1)};
    C = {file, "C", op.u.extent(0), op.u.extent(1)};
    op.B = B.seen;
    op.C = C.seen;
    st.initial = std::as_const(h).all();
  }

  template <class O>
  named_views outputs(const view<O, 3>& o, const diagonal_state<AType>& left) const {
    named_views all;
    add_output(all, "out", from_bdl(o));
    add_state(all, "last_state", left.final);
    return all;
  }
};

/// Every gradient that the file has.
template <class T, class AType>
void run_backward(trial& t) {
  const golden_case& file = t.file;
  if (!file.has("grad_out")) return;
  const sequence<T, AType> args(file);
  const auto d_out = file.get<T, 3>("grad_out");
  const auto d_last = file.get_if<AType, 3>("grad_last_state");
  auto d_u = like(args.u.all()), d_dt = like(args.dt.all()), d_z = like(args.z.all());
  auto d_A = like(args.A.all());
  auto d_B = like(args.B.all.all()), d_C = like(args.C.all.all());
  auto d_D = like(args.D.all()), d_bias = like(args.dt_bias.all());
  auto d_initial = like(args.h.all());
  backward(args.op, args.st, from_bdl(d_out.all()),
           diagonal_state_gradient<AType>{.final = d_last, .initial = d_initial},
           {.u = from_bdl(d_u.all()),
            .dt = from_bdl(d_dt.all()),
            .A = d_A,
            .B = args.B.as_field(d_B.all()),
            .C = args.C.as_field(d_C.all()),
            .D = d_D,
            .z = from_bdl(d_z.all()),
            .dt_bias = d_bias});
  hold<T>(t, "backward", "d_u", d_u.all());
  hold<T>(t, "backward", "d_delta", d_dt.all());
  hold<T>(t, "backward", "d_A", d_A.all());
  hold<T>(t, "backward", "d_B", d_B.all());
  hold<T>(t, "backward", "d_C", d_C.all());
  hold<T>(t, "backward", "d_D", d_D.all());
  hold<T>(t, "backward", "d_z", d_z.all());
  hold<T>(t, "backward", "d_delta_bias", d_bias.all());
  hold<T>(t, "backward", "d_initial_state", d_initial.all());
}

void run_sequence(trial& t) {
  if (t.file.is_complex("A") || t.file.flag("complex", false)) {
    run_wide(t, [&]<class T>(T) { return sequence<T, std::complex<accum_t<T>>>(t.file); });
    in_both(t, []<class T>(trial& on, T) { run_backward<T, std::complex<T>>(on); });
  } else {
    run_all(t, [&]<class T>(T) { return sequence<T, accum_t<T>>(t.file); });
    in_both(t, []<class T>(trial& on, T) { run_backward<T, T>(on); });
  }
}

/// selective_state_update: steps from a given state, stacked on a first axis T where the file has one.
///   single: state B,D,N; x, dt, z T,B,D; A D,N; B, C T,B,N; D, dt_bias D
///   heads: state B,H,P,N; x, dt, z T,B,H,P; A H,P,N; B, C T,B,G,N; D, dt_bias H,P
/// Heads of P are H·P channels: channel h·P + p.
template <class T>
struct decoding : scan_arguments<T, accum_t<T>> {
  using base = scan_arguments<T, accum_t<T>>;
  using base::u, base::dt, base::A, base::B, base::C, base::D, base::z, base::dt_bias, base::h, base::op, base::st;
  using accum = accum_t<T>;

  explicit decoding(const golden_case& file) {
    const bool heads = file.shape("state").size() == 4;
    h = channels<accum, 3>(file, "state", heads, 1);
    u = steps<T>(file, "x", heads);
    dt = steps<accum>(file, "dt", heads);
    if (file.has("z")) z = steps<T>(file, "z", heads);
    A = channels<accum, 2>(file, "A", heads, 0);
    if (file.has("D")) D = channels<accum, 1>(file, "D", heads, 0);
    if (file.has("dt_bias")) dt_bias = channels<accum, 1>(file, "dt_bias", heads, 0);
    op.u = std::as_const(u).all().permute({1, 0, 2});
    op.dt = std::as_const(dt).all().permute({1, 0, 2});
    op.z = std::as_const(z).all().permute({1, 0, 2});
    op.A = A;
    op.D = D;
    op.dt_bias = dt_bias;
    op.dt_softplus = file.flag("dt_softplus", false);
    op.B = groups(file, "B", heads, B.all);
    op.C = groups(file, "C", heads, C.all);
    st.initial = std::as_const(h).all();
  }

  template <class O>
  named_views outputs(const view<O, 3>& o, const diagonal_state<accum>& left) const {
    named_views all;
    add_output(all, "out", o.permute({1, 0, 2}));
    add_state(all, "new_state", left.final);
    return all;
  }

 private:
  /// A tensor with H and P, axes `axis` and the next, made one.
  template <class X, std::size_t Rank>
  static tensor<X, Rank> channels(const golden_case& file, const std::string& name, bool heads, std::size_t axis) {
    std::vector<index_t> axes = file.shape(name);
    if (heads && axes.size() >= axis + 2) {
      axes[axis] *= axes[axis + 1];
      axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(axis) + 1);
    }
    return file.shaped<X, Rank>(name, axes);
  }
  /// [T, B, D], T = 1 where the file has no steps.
  template <class X>
  static tensor<X, 3> steps(const golden_case& file, const std::string& name, bool heads) {
    std::vector<index_t> axes = file.shape(name);
    if (heads && axes.size() >= 2) {
      axes[axes.size() - 2] *= axes.back();
      axes.pop_back();
    }
    if (axes.size() == 2) axes.insert(axes.begin(), 1);
    return file.shaped<X, 3>(name, axes);
  }
  /// [T, B, G, N] seen as [B, T, G, N].
  static view<const T, 4> groups(const golden_case& file, const std::string& name, bool heads, tensor<T, 4>& all) {
    std::vector<index_t> axes = file.shape(name);
    if (!heads && !axes.empty()) axes.insert(axes.end() - 1, 1);
    if (axes.size() == 3) axes.insert(axes.begin(), 1);
    all = file.shaped<T, 4>(name, axes);
    return std::as_const(all).all().permute({1, 0, 2, 3});
  }
};

void run_decoding(trial& t) {
  run_all(t, [&]<class T>(T) { return decoding<T>(t.file); });
}

const registration whole("selective_scan", run_sequence);
const registration continued("selective_scan_init", run_sequence);
const registration decoded("selective_state_update", run_decoding);

}  // namespace

}  // namespace ogive::golden

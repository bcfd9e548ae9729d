// Worked examples: an associative memory, a scalar system held over a step, one operator told in three ways.
#include <ogive/reference/structured_masked_attention.hpp>
#include <ogive/testing/samplers/delta_rules.hpp>
#include <ogive/testing/samplers/linear_attention.hpp>
#include <ogive/testing/samplers/ssd.hpp>

#include "tests/golden/tool/feature_maps.hpp"
#include "tests/golden/tool/selective_scan.hpp"

namespace ogive::golden {

namespace {

/// ex_memory: pairs (key, value) are written one after the other and read with one query at the end. keys T,K; values
/// T,V; query K. `name` says by which memory: additive, S = Σ k vᵀ, or delta, where a key's value is replaced.
template <class Op>
struct memory_arguments {
  using T = typename Op::scalar;
  using accum = accum_t<T>;

  std::string name;
  tensor<T, 2> keys, values;
  tensor<T, 1> query;
  tensor<accum, 3> beta;
  Op op;
  typename Op::default_state st;
  index_t chunk = 0;

  memory_arguments(const golden_case& file, std::string its_name)
      : name(std::move(its_name)),
        keys(file.get<T, 2>("keys")),
        values(file.get<T, 2>("values")),
        query(file.get<T, 1>("query")) {
    const index_t L = keys.extent(0), K = keys.extent(1), V = values.extent(1);
    if (query.extent(0) != K || values.extent(0) != L) throw std::runtime_error("keys, values and query do not fit");
    op.q = {query.data(), {1, L, 1, K}, {0, 0, 0, 1}};
    op.k = {keys.data(), {1, L, 1, K}};
    op.v = {values.data(), {1, L, 1, V}};
    op.scale = accum(1);
    if constexpr (requires { op.normalise; }) {
      op.normalise = false;
    } else {
      beta = tensor<accum, 3>({1, L, 1}, accum(1));
      op.beta = beta;
    }
  }

  template <class O, class State>
  named_views outputs(const view<O, 4>& o, const State& left) const {
    named_views all;
    if (o.extent(1) > 0) add_output(all, name + "_read", o.slice(1, o.extent(1) - 1, 1));
    add_state(all, name + "_state", left.final);
    return all;
  }
  template <class Acc, class State>
  void define(const Op& o, const State& from, const view<Acc, 4>& y) const {
    reference::evaluate<Acc>(o, from, y);
  }
};

void run_memory(trial& t) {
  run_wide(t, [&]<class T>(T) { return memory_arguments<linear_attention<T>>(t.file, "additive"); });
  run_wide(t, [&]<class T>(T) { return memory_arguments<delta_rule<T>>(t.file, "delta"); });
}

/// ex_zoh_scalar: h_t = Ā h_{t-1} + B̄ u_t under zero-order hold, y = C h, K_l = C Āˡ B̄; all of one number, u, h, y, K
/// of L. The scan's C is read off by running it once with 1 and once with C; the kernel is its answer to an impulse.
template <class T>
struct held_arguments : scan_arguments<T, T> {
  using base = scan_arguments<T, T>;
  using base::u, base::dt, base::A, base::B, base::C, base::op;
  std::string output;

  /// `input` replaces u, `weight` stands for C.
  held_arguments(const golden_case& file, std::string name, const std::vector<double>& input, double weight)
      : output(std::move(name)) {
    const auto L = static_cast<index_t>(input.size());
    u = tensor<T, 3>({1, L, 1});
    std::ranges::transform(input, u.data(), [](double x) { return static_cast<T>(x); });
    dt = tensor<T, 3>({1, L, 1}, number<T>(file, "dt"));
    A = tensor<T, 2>({1, 1}, number<T>(file, "A"));
    B.all = tensor<T, 4>({1, L, 1, 1}, number<T>(file, "B"));
    C.all = tensor<T, 4>({1, L, 1, 1}, static_cast<T>(weight));
    op.u = u;
    op.dt = dt;
    op.A = A;
    op.B = B.all;
    op.C = C.all;
    op.rule = discretisation::zoh;
  }
  template <class X>
  static X number(const golden_case& file, const std::string& name) {
    const auto all = file.numbers<X>(name);
    if (all.size() != 1) throw std::runtime_error(name + " must be one number");
    return all[0];
  }

  template <class O>
  named_views outputs(const view<O, 3>& o, const diagonal_state<T>&) const {
    named_views all;
    add_output(all, output, o);
    return all;
  }
};

template <class T>
void run_step_pair(trial& t) {
  const auto number = [&](const std::string& name) { return held_arguments<T>::template number<T>(t.file, name); };
  const auto pair = discretise(discretisation::zoh, static_cast<double>(number("dt")), number("A"), number("B"));
  t.check<T>("discretise", "", {"Abar", {static_cast<double>(pair.A)}});
  t.check<T>("discretise", "", {"Bbar", {static_cast<double>(pair.B)}});
}

void run_held(trial& t) {
  run_step_pair<double>(t);
  run_step_pair<float>(t);
  const auto [a, b] = reference::zoh(held_arguments<double>::number<double>(t.file, "A"),
                                     held_arguments<double>::number<double>(t.file, "B"),
                                     held_arguments<double>::number<double>(t.file, "dt"));
  t.check<double>("definition", "", {"Abar", {a}});
  t.check<double>("definition", "", {"Bbar", {b}});

  const auto u = t.file.numbers<double>("u");
  const double C = held_arguments<double>::number<double>(t.file, "C");
  std::vector<double> impulse(u.size(), 0.0);
  if (!impulse.empty()) impulse[0] = 1;
  const auto run = [&](const std::string& output, const std::vector<double>& input, double weight) {
    run_wide(t, [&]<class T>(T) { return held_arguments<T>(t.file, output, input, weight); });
  };
  run("h", u, 1);
  run("y", u, C);
  run("K", impulse, C);

  std::vector<double> y(u.size(), 0.0);
  double kernel = C * b;
  for (std::size_t lag = 0; lag < u.size(); ++lag, kernel *= a) {
    for (std::size_t i = lag; i < u.size(); ++i) y[i] += kernel * u[i - lag];
  }
  t.check<double>("convolution", "", {"y", y});
}

/// ex_equivalence: SSD, the selective scan with A repeated over (p, n), and attention under a semiseparable mask are
/// one operator. x, out b,l,h,p; dt b,l,h; A h; B, C b,l,h,n.
template <class T>
struct dual_arguments {
  tensor<T, 4> x, B, C;
  tensor<T, 3> dt;
  tensor<T, 1> A;
  ssd<T> op;
  state<T> st;
  index_t chunk = 0;

  explicit dual_arguments(const golden_case& file)
      : x(file.get<T, 4>("x")),
        B(file.get<T, 4>("B")),
        C(file.get<T, 4>("C")),
        dt(file.get<T, 3>("dt")),
        A(file.get<T, 1>("A")) {
    op = {.x = x, .dt = dt, .A = A, .B = B, .C = C};
  }

  template <class O>
  named_views outputs(const view<O, 4>& o, const state<T>&) const {
    named_views all;
    add_output(all, "out", o);
    return all;
  }
  template <class Acc, class State>
  void define(const ssd<T>& o, const State& from, const view<Acc, 4>& y) const {
    reference::evaluate<Acc>(o, from, y);
  }
  /// The mask, written out.
  template <class Acc, class State>
  void define_masked(const ssd<T>& o, const State& from, const view<Acc, 4>& y) const {
    reference::evaluate_masked<Acc>(o, from, y);
  }
};

/// Channel h·P + p of the scan is channel p of head h.
template <class T>
void run_as_scan(trial& t) {
  const dual_arguments<T> dual(t.file);
  const index_t b = dual.x.extent(0), L = dual.x.extent(1), H = dual.x.extent(2), P = dual.x.extent(3);
  const index_t N = dual.B.extent(3);
  tensor<T, 3> dt({b, L, H * P});
  testing::for_each(dt.all(), [&](T& d, index_t i) { d = dual.dt.data()[i / P]; });
  tensor<T, 2> A({H * P, N});
  testing::for_each(A.all(), [&](T& a, index_t i) { a = dual.A(i / (P * N)); });
  selective_scan<T> op;
  op.u = {dual.x.data(), {b, L, H * P}};
  op.dt = dt;
  op.A = A;
  op.B = dual.op.B;
  op.C = dual.op.C;
  tensor<T, 3> y(dt.extents());
  forward(op, {}, y.all());
  t.check<T>("selective scan", "", {"out", testing::flatten(y.all())});
}

void run_equivalence(trial& t) {
  run_wide(t, [&]<class T>(T) { return dual_arguments<T>(t.file); });
  run_as_scan<double>(t);
  run_as_scan<float>(t);
}

const registration memory_of_pairs("ex_memory", run_memory);
const registration held_over_a_step("ex_zoh_scalar", run_held);
const registration three_ways("ex_equivalence", run_equivalence);

}  // namespace

}  // namespace ogive::golden

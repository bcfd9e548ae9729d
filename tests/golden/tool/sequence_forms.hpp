// The harness of operators over tokens: every form, on every storage type, against a file.
#pragma once

#include <ogive/reference/activations.hpp>
#include <ogive/testing/gradient_laws.hpp>

#include <set>
#include <sstream>

#include "tests/golden/tool/trial.hpp"

namespace ogive::golden {

/// Numbers of a run, under the name that the file has for them.
struct named_view {
  named_numbers all;
  bool of_state;  ///< stored as the state is, not as the tensors are
};
using named_views = std::vector<named_view>;

/// Adds what a run left in x, if it left anything.
template <class T, std::size_t Rank>
void add_output(named_views& list, const std::string& name, const view<T, Rank>& x, bool of_state = false) {
  if (x.present()) list.push_back({{name, testing::flatten(x)}, of_state});
}
template <class T, std::size_t Rank>
void add_state(named_views& list, const std::string& name, const view<T, Rank>& x) {
  add_output(list, name, x, true);
}

// A family describes an operator on a file as arguments, for tensors stored as T:
//   op                             the operator, its views into tensors that the arguments own
//   st                             its state with the initial pools, where it has one
//   outputs(o, st)                 what a run left behind, as the file names and orders it
//   define<Acc>(op, st, o)         the definition, computed in Acc
//   define_masked<Acc>(op, st, o)  the other definition, where there is one
//   chunk                          tokens per chunk that the file was made with, 0 if it does not say
//   cotangents                     where there is a backward: the derivatives by the outputs and the final state
//   gradients(found)               and what it left behind, as the file names and orders it

namespace detail {

using testing::has_chunks;
using testing::has_convolution;
using testing::layout;
using testing::timeless;
using testing::way;
using testing::with_state;

template <class Arguments>
using op_of = std::remove_cvref_t<decltype(std::declval<Arguments>().op)>;

template <class Op>
std::vector<way> ways_on(const Op& op, index_t chunk_of_file) {
  if constexpr (!with_state<Op> || timeless<Op>) {
    return testing::ways<Op>();
  } else {
    std::vector<way> all{{way::kind::step}, {way::kind::recurrent}, {way::kind::forward}};
    // Lengths and offsets count from the first token of a call: a later token alone has neither.
    if (!op.lengths.present() && !op.offsets.present()) all.push_back({way::kind::steps});
    if constexpr (has_chunks<Op>) {
      for (const index_t chunk : {index_t(0), index_t(1), index_t(3), index_t(16), index_t(64), chunk_of_file}) {
        all.push_back({way::kind::chunked, chunk});
      }
    }
    if constexpr (has_convolution<Op>) all.push_back({way::kind::convolution});
    return all;
  }
}

/// What the definition gives, computed in Acc, for any operator with the arguments' fields.
template <class Acc, class Arguments>
named_views defined(const Arguments& args, const op_of<Arguments>& op, bool masked = false) {
  using Op = op_of<Arguments>;
  testing::memory room;
  const auto o = room.take<Acc>(testing::sampler<Op>::output(op));
  auto st = args.st;
  if (!masked) testing::give_finals(room, op, testing::sequence_count(op), st);
  if constexpr (requires { args.template define_masked<Acc>(op, st, o); }) {
    if (masked) args.template define_masked<Acc>(op, st, o);
  }
  if (!masked) args.template define<Acc>(op, st, o);
  return args.outputs(o, st);
}

template <class T>
void check(trial& t, const std::string& form, const std::string& variant, const named_views& all) {
  for (const named_view& one : all) t.check<T>(form, variant, one.all);
}

/// The name of a way in the table, and what else there is to say of a run.
struct labels {
  std::string form, variant;
};
inline labels labels_of(way how, layout where) {
  std::ostringstream form, variant;
  if (how.chunk > 0) variant << "chunk " << how.chunk << ", ";
  variant << (where == layout::turned ? "V-first" : "K-first");
  how.chunk = 0;
  form << how;
  return {form.str(), variant.str()};
}

/// Every form in T, with K-first and V-first states; and forward for somebody who does not want the state.
template <class T, class Arguments>
void run_forms(trial& t, const Arguments& args) {
  using Op = op_of<Arguments>;
  using S = testing::storage_of<Op>;
  for (const layout where : {layout::dense, layout::turned}) {
    testing::memory room(where);
    auto st = args.st;
    testing::for_pools(st, [&](auto& initial, auto&) { initial = room.copy(initial); });
    for (const way& how : ways_on(args.op, args.chunk)) {
      const auto got = testing::run<S>(how, args.op, st, where);
      const auto [form, variant] = labels_of(how, where);
      check<T>(t, form, variant, args.outputs(got.o, got.st));
    }
  }
  std::vector<way> stateless{{way::kind::forward}};
  if constexpr (timeless<Op> || requires { testing::sampler<Op>::left_product; }) {
    stateless.push_back({way::kind::forward, 0, form::left});
  }
  for (const way& how : stateless) {
    const auto got = testing::run_without_final<S>(how, args.op, args.st);
    check<T>(t, labels_of(how, layout::dense).form, "state not wanted", args.outputs(got.o, got.st));
  }
}

/// backward in T, in chunks of several sizes, with K-first and V-first states; and once added to what is there already.
template <class T, class Arguments>
void run_backward(trial& t, const Arguments& args) {
  for (const layout where : {layout::dense, layout::turned}) {
    testing::memory room(where);
    auto st = args.st;
    auto c = args.cotangents;
    testing::for_pools(st, [&](auto& initial, auto&) { initial = room.copy(initial); });
    testing::for_pools(c.st, [&](auto&, auto& final) { final = room.copy(final); });
    for (const index_t chunk : std::set<index_t>{0, 1, 16, args.chunk}) {
      const auto found = testing::detail::run_backward(args.op, st, c, {.chunk = chunk}, where);
      const std::string variant = labels_of({way::kind::chunked, chunk}, where).variant;
      check<T>(t, "backward", variant, args.gradients(found));
      if (where == layout::dense && chunk == 0) {
        backward(args.op, st, c.o, found.st, found.d, {.accumulate = true});
        named_views sums = args.gradients(found);
        for (named_view& one : sums) {
          for (double& number : one.all.numbers) number /= 2;
        }
        check<T>(t, "backward", variant + ", half the sum of two", sums);
      }
    }
  }
}

/// d as PyTorch has it: its softplus is x itself above 20.
template <class T>
tensor<T, 3> torch_steps(const view<const T, 3>& dt, const view<const T, 1>& bias) {
  tensor<T, 3> steps(dt.extents());
  testing::for_each(dt, [&](const T& raw, index_t i) {
    const T x = raw + (bias.present() ? bias[i % dt.extent(2)] : T(0));
    steps.data()[i] = x > T(20) ? x : reference::softplus(x);
  });
  return steps;
}

/// Files were made with that softplus, the definition is exact: what a file says is moved by the difference that this
/// makes to the definition, so that nobody is blamed for being right.
template <class Arguments>
void correct_softplus(trial& t, const Arguments& args) {
  if constexpr (requires { args.op.dt_softplus; }) {
    if (!args.op.dt_softplus) return;
    const tensor<double, 3> steps = torch_steps(args.op.dt, args.op.dt_bias);
    auto torch = args.op;
    torch.dt = steps;
    torch.dt_bias = {};
    torch.dt_softplus = false;
    const named_views ours = defined<double>(args, args.op);
    const named_views theirs = defined<double>(args, torch);
    const auto move = [&]<class T>(T) {
      for (std::size_t i = 0; i < ours.size(); ++i) {
        const auto& [output, numbers] = ours[i].all;
        if (!t.file.has(output)) continue;
        target wanted = t.expected<T>(output);
        if (wanted.numbers.size() != numbers.size()) continue;
        for (std::size_t n = 0; n < numbers.size(); ++n) wanted.numbers[n] += numbers[n] - theirs[i].all.numbers[n];
        t.expect<T>(output, wanted);
      }
    };
    move(double());
    move(float());
  }
}

/// Whether float can hold what the plain formula goes through; where not, nothing is asked of float. Where the file has
/// no hint, what that formula loses against itself in double stands in; for gradients, which go through the products of
/// the outputs once more, the most it loses in any of these.
template <class Arguments>
bool expect_float(trial& t, const Arguments& args) {
  double loosest = 0;
  const named_views wide = defined<double>(args, args.op);
  const named_views narrow = defined<float>(args, args.op);
  for (std::size_t i = 0; i < wide.size(); ++i) {
    const auto& [output, numbers] = wide[i].all;
    if (!t.file.has(output)) continue;
    target wanted = t.expected<float>(output);
    const double error = testing::compare(narrow[i].all.numbers, numbers, 0, wanted.how).error;
    if (!std::isfinite(error)) return false;
    if (t.file.hint(output) == 0) wanted.bound = golden_case::float_bound(error);
    loosest = std::max(loosest, wanted.bound);
    t.expect<float>(output, wanted);
  }
  for (const std::string& gradient : t.file.gradients()) {
    target wanted = t.expected<float>(gradient);
    if (t.file.hint(gradient) == 0) wanted.bound = loosest;
    t.expect<float>(gradient, wanted);
  }
  return true;
}

/// With arguments rounded to a 16-bit T the file's numbers are not the answer any more. The definition in double on the
/// rounded arguments is, and its error in float takes the place of the file's hint. Nothing is asked where a number
/// leaves the range of T.
template <class T, class Arguments>
bool expect_rounded(trial& t, const Arguments& args) {
  const named_views wide = defined<double>(args, args.op);
  const named_views narrow = defined<float>(args, args.op);
  const double most = std::is_same_v<T, float16> ? 65504 : static_cast<double>(std::numeric_limits<float>::max());
  const double least = std::is_same_v<T, float16> ? 0x1p-25 : 0;  // half the unit of float16's subnormal numbers
  for (std::size_t i = 0; i < wide.size(); ++i) {
    const std::vector<double>& numbers = wide[i].all.numbers;
    const double scale = testing::max_abs(numbers);
    const double error = testing::compare(narrow[i].all.numbers, numbers, 0).error;
    const bool finite = std::ranges::none_of(numbers, [](double x) { return std::isnan(x); });
    if (!finite || !(scale < most) || !std::isfinite(error)) return false;
    const double stored = wide[i].of_state || scale == 0 ? 0 : testing::unit_roundoff<T>() + least / scale;
    t.expect<T>(wide[i].all.output,
                {.numbers = numbers, .how = {.scale = scale}, .bound = golden_case::float_bound(error) + stored});
  }
  return true;
}

template <class Arguments>
void require_fit(const Arguments& args) {
  using Op = op_of<Arguments>;
  testing::memory room;
  const auto o = room.take<typename Op::scalar>(testing::sampler<Op>::output(args.op));
  if constexpr (with_state<Op>) {
    require(check(args.op, args.st, o));
  } else {
    require(check(args.op, o));
  }
}

}  // namespace detail

/// Runs an operator in double and float: its definitions, every form and its backward. `make` is called with a number
/// of each storage type and gives the arguments.
template <class Make>
void run_wide(trial& t, const Make& make) {
  const auto args = make(double());
  detail::require_fit(args);
  detail::correct_softplus(t, args);
  detail::check<double>(t, "definition", "", detail::defined<double>(args, args.op));
  if constexpr (requires { args.template define_masked<double>(args.op, args.st, view<double, 4>()); }) {
    detail::check<double>(t, "masked", "", detail::defined<double>(args, args.op, true));
  }
  const auto run = [&]<class T>(T, const auto& given) {
    detail::run_forms<T>(t, given);
    if constexpr (requires { given.cotangents; }) {
      if (!t.file.gradients().empty()) detail::run_backward<T>(t, given);
    }
  };
  run(double(), args);
  const auto narrow = make(float());
  if (detail::expect_float(t, narrow)) run(float(), narrow);
}

/// And in 16-bit numbers.
template <class Make>
void run_all(trial& t, const Make& make) {
  run_wide(t, make);
  const auto run = [&]<class T>(T) {
    const auto args = make(T());
    if (detail::expect_rounded<T>(t, args)) detail::run_forms<T>(t, args);
  };
  run(bfloat16());
  run(float16());
}

}  // namespace ogive::golden

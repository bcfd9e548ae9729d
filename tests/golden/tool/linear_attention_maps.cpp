// Causal linear attention with a feature map, as fast-transformers has it, and its token by token form.
#include "tests/golden/tool/attention.hpp"

namespace ogive::golden {

void run_causal(trial& t, const attention_rules& rules, const std::string& name) {
  with_map(name, [&](const auto& map) { run_attention<linear_attention>(t, rules, map); });
}

namespace {

void run_fast_transformers(trial& t) {
  run_causal(t, {.eps = t.file.number("eps").value_or(1e-6)}, t.file.text("feature_map", "elu1"));
}

/// Per-step tensors stacked on axis 0, among them S and z after every step: state_S T,N,H,E,M; state_Z T,N,H,E.
template <class T>
void run_steps(trial& t, const attention_rules& rules) {
  using Op = linear_attention<T, maps::elu1>;
  const attention_arguments<linear_attention, T, std::remove_const_t<decltype(elu1_map)>> args(t.file, rules, elu1_map);
  detail::require_fit(args);
  for (const detail::layout where : {detail::layout::dense, detail::layout::turned}) {
    for (const detail::way& how : detail::ways_on(args.op, 0)) {
      named_numbers out{"out", {}}, S{"state_S", {}}, z{"state_Z", {}};
      for (index_t n = 0; n <= args.op.q.extent(1); ++n) {
        const auto got = testing::run<T>(how, testing::tokens_of<Op>(args.op, 0, n), args.st, where);
        out.numbers = testing::flatten(from_file(got.o, axes::lbhd));
        if (n == 0) continue;
        for (const double x : testing::flatten(got.st.final)) S.numbers.push_back(x);
        for (const double x : testing::flatten(got.st.z_final)) z.numbers.push_back(x);
      }
      const auto [form, variant] = detail::labels_of(how, where);
      for (const auto& numbers : {out, S, z}) t.check<T>(form, variant, numbers);
    }
  }
  if constexpr (std::is_same_v<T, double>) {
    detail::check<double>(t, "definition", "", detail::defined<double>(args, args.op));
  }
}

void run_recurrent(trial& t) {
  const attention_rules rules{.order = axes::lbhd, .eps = t.file.number("eps").value_or(1e-6)};
  run_steps<double>(t, rules);
  run_steps<float>(t, rules);
}

/// A mask of keys, causal or not.
void run_key_mask(trial& t) {
  const attention_rules rules{.eps = t.file.number("eps").value_or(1e-6)};
  const auto run = t.file.flag("causal", false) ? run_causal : run_noncausal;
  run(t, rules, t.file.text("feature_map", "elu1"));
}

const registration whole("linattn_causal_ft", run_fast_transformers);
const registration steps("linattn_recurrent_ft", run_recurrent);
const registration masked("linattn_key_mask", run_key_mask);

}  // namespace

}  // namespace ogive::golden

// Softmax attention: grouped heads, windows, lengths; in blocks, and row by row as in decoding.
#include <ogive/testing/samplers/softmax_attention.hpp>

#include "tests/golden/tool/sequence_forms.hpp"

namespace ogive::golden {

namespace {

/// q B,T,HQ,D; k B,S,H,D; v B,S,H,V; out B,T,HQ,V; max_logits B,T,HQ; key_lengths B.
template <class T>
struct softmax_arguments {
  using accum = accum_t<T>;

  tensor<T, 4> q, k, v;
  mutable tensor<accum, 3> maxima;  ///< every run leaves its own
  std::vector<std::int64_t> lengths;
  softmax_attention<T> op;
  testing::state_for<softmax_attention<T>, accum> st;
  index_t chunk = 0;

  explicit softmax_arguments(const golden_case& file)
      : q(file.get<T, 4>("q")), k(file.get<T, 4>("k")), v(file.get<T, 4>("v")), lengths(file.integers("key_lengths")) {
    op = {.q = q, .k = k, .v = v};
    op.causal = file.flag("causal", false);
    op.window = file.integer("window_size").value_or(0);
    if (const auto scale = file.number("scale")) op.scale = static_cast<accum>(*scale);
    if (!lengths.empty()) op.lengths = lengths;
    if (!file.has("max_logits")) return;
    maxima = tensor<accum, 3>({q.extent(0), q.extent(1), q.extent(2)});
    op.max_logits = maxima;
  }

  template <class O, class State>
  named_views outputs(const view<O, 4>& o, const State&) const {
    named_views all;
    add_output(all, "out", o);
    add_state(all, "max_logits", maxima.all());
    testing::for_each(maxima.all(), [](accum& x, index_t) { x = std::numeric_limits<accum>::quiet_NaN(); });
    return all;
  }
  template <class Acc, class State>
  void define(const softmax_attention<T>& o, const State&, const view<Acc, 4>& y) const {
    reference::evaluate<Acc>(o, y);
  }
};

/// Every query on its own, at its place among the keys.
template <class T>
void run_rows(trial& t, const softmax_arguments<T>& args) {
  using Op = softmax_attention<T>;
  testing::memory room;
  const auto o = room.take<T>(testing::sampler<Op>::output(args.op));
  for (index_t i = 0; i < o.extent(1); ++i) {
    Op row = args.op;
    row.q = row.q.slice(1, i, 1);
    row.position = i;
    if (row.max_logits.present()) row.max_logits = row.max_logits.slice(1, i, 1);
    forward(row, o.slice(1, i, 1));
  }
  detail::check<T>(t, "row by row", "", args.outputs(o, args.st));
}

void run(trial& t) {
  const auto make = [&]<class T>(T) { return softmax_arguments<T>(t.file); };
  run_all(t, make);
  run_rows(t, make(double()));
  run_rows(t, make(float()));
  for (const std::string& gradient : t.file.gradients()) t.pass_over(gradient);  // there is no backward
}

const registration plain("softmax_attn", run);
const registration with_lengths("softmax_attn_lengths", run);

}  // namespace

}  // namespace ogive::golden

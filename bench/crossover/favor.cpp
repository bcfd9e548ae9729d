#include <ogive/core/openmp.hpp>
#include <ogive/maps/random.hpp>
#include <ogive/maps/random_features.hpp>
#include <ogive/ops/noncausal_linear_attention.hpp>
#include <ogive/ops/softmax_attention.hpp>

#include <bench/crossover/measures.hpp>
#include <cmath>

namespace ogive::crossover {

namespace {

/// ‖o − expected‖ / ‖expected‖ of linear attention through FAVOR+ features of projection W.
double error_of(const qkv& all, const tensor<float, 2>& W, const tensor<float, 4>& expected, tensor<float, 4>& o,
                context& ctx) {
  using map = maps::favor<float>;
  map favor{.W = W, .eps = 0};
  tensor<float, 2> largest({1, all.k.extent(2)});
  maps::stabilisers(favor, all.k.all(), largest.all(), {}, {}, ctx);
  favor.key_stabiliser = std::as_const(largest).all();
  const noncausal_linear_attention<float, map> op{.q = all.q, .k = all.k, .v = all.v, .map = favor, .eps = 0};
  forward(op, {}, o.all(), {}, ctx);

  double apart = 0, size = 0;
  for (index_t i = 0; i < o.size(); ++i) {
    const double reference = static_cast<double>(expected.data()[i]);
    const double difference = static_cast<double>(o.data()[i]) - reference;
    apart += difference * difference;
    size += reference * reference;
  }
  return std::sqrt(apart / size);
}

}  // namespace

favor_table measure_favor(const input& from, const settings& how, progress& shown) {
  favor_table table{.d = 64, .tokens = 512, .seeds = how.brief ? 8 : 32};
  context ctx = how.threads == 1 ? context() : openmp_context(how.threads);
  const qkv all = from.take(table.tokens, 2, table.d);
  tensor<float, 4> expected(all.q.extents()), o(all.q.extents());
  forward(softmax_attention<float>{.q = all.q, .k = all.k, .v = all.v}, expected.all(), {}, ctx);

  for (index_t features = 16; features <= 4096; features *= 4) {
    shown.step("FAVOR+", std::to_string(features) + " features", side_share(how.brief));
    favor_row row{.features = features};
    for (int draw = 0; draw < table.seeds; ++draw) {
      const std::uint64_t seed = how.seed + 1 + static_cast<std::uint64_t>(draw);  // how.seed has drawn q
      row.iid += error_of(all, maps::gaussian_projection<float>(features, table.d, seed), expected, o, ctx);
      row.orthogonal += error_of(all, maps::orthogonal_projection<float>(features, table.d, seed), expected, o, ctx);
    }
    row.iid /= table.seeds;
    row.orthogonal /= table.seeds;
    table.rows.push_back(row);
  }
  return table;
}

}  // namespace ogive::crossover

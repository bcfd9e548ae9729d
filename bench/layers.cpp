// What models wrap around the operators, and RWKV-4, which has no products of matrices, on sequences that no cache
// holds. Bytes and exponentials bind: the limit is the larger of moving as much through a copy and of as many
// exponentials, both measured in the same run; `bytes_bind` is 1 where it is the first.
#include <ogive/layers/norm.hpp>
#include <ogive/layers/short_convolution.hpp>
#include <ogive/layers/token_shift.hpp>
#include <ogive/ops/rwkv4.hpp>
#include <ogive/testing/rng.hpp>

#include <bench/clock.hpp>
#include <bench/limits.hpp>
#include <cstring>

namespace {

using namespace ogive;
using namespace ogive::bench;

constexpr index_t length = 2048, channels = 2048, numbers = length * channels;
constexpr double bytes = static_cast<double>(numbers) * sizeof(float);

/// Bytes per second that a copy reads and writes.
double copy_rate() {
  static const double rate = [] {
    const tensor<float, 1> from({numbers}, 1.0F);
    tensor<float, 1> to({numbers});
    return 2 * bytes / least_seconds([&] { std::memcpy(to.data(), from.data(), static_cast<std::size_t>(bytes)); });
  }();
  return rate;
}

/// `moved` tensors of the size of x are read or written, `exponentials` taken for each number of it.
void report(benchmark::State& state, double seconds, double moved, double exponentials) {
  const double of_bytes = moved * bytes / copy_rate();
  const double of_exponentials = exponentials * static_cast<double>(numbers) / exp_rate<float, 0>();
  report_limit(state, seconds, std::max(of_bytes, of_exponentials));
  state.counters["bytes_bind"] = of_bytes > of_exponentials ? 1 : 0;
}

tensor<float, 3> drawn() {
  tensor<float, 3> x({1, length, channels});
  testing::rng random(1);
  testing::fill_normal(random, x.all());
  return x;
}

/// Causal convolution of width 4 with SiLU.
struct convolution {
  tensor<float, 3> x = drawn(), d_y = x, y = x, d_x = x;
  tensor<float, 2> weight{{channels, 4}, 0.25F}, d_weight = weight;
  short_convolution<float> layer() const { return {.x = x, .weight = weight, .activation = activation::silu}; }
  void run(context& ctx) { forward(layer(), {}, y, {}, ctx); }
  void back(context& ctx) { backward(layer(), {}, d_y, {}, {.x = d_x, .weight = d_weight}, {}, ctx); }
  static constexpr double moved = 2, exponentials = 1, moved_back = 3, exponentials_back = 1;
};

/// RMSNorm over heads of 128 with a gate behind it.
struct gated_norm {
  tensor<float, 3> x = drawn(), z = x, d_y = x, y = x, d_x = x, d_z = x;
  tensor<float, 2> weight{{1, 128}, 1.0F}, d_weight = weight;
  static view<float, 4> heads(tensor<float, 3>& of) { return {of.data(), {1, length, channels / 128, 128}}; }
  rms_norm<float> layer() { return {.x = heads(x), .z = heads(z), .weight = weight}; }
  void run(context& ctx) { forward(layer(), heads(y), {}, ctx); }
  void back(context& ctx) {
    backward(layer(), heads(d_y), {.x = heads(d_x), .z = heads(d_z), .weight = d_weight}, {}, ctx);
  }
  static constexpr double moved = 3, exponentials = 1, moved_back = 5, exponentials_back = 1;
};

/// Two mixtures of each token with the one before.
struct shift {
  tensor<float, 3> x = drawn(), d_x = x;
  tensor<float, 2> mu{{2, channels}, 0.5F}, d_mu = mu;
  tensor<float, 4> y{{1, length, 2, channels}}, d_y{{1, length, 2, channels}, 1.0F};
  token_shift<float> layer() const { return {.x = x, .mu = mu}; }
  void run(context& ctx) { forward(layer(), {}, y, {}, ctx); }
  void back(context& ctx) { backward(layer(), {}, d_y, {}, {.x = d_x, .mu = d_mu}, {}, ctx); }
  static constexpr double moved = 3, exponentials = 0, moved_back = 4, exponentials_back = 0;
};

/// An average of all values so far. Of two weights that are divided by the larger one, one is an exponential: that of
/// the average and that of the state, and on the way back the state's once more.
struct wkv {
  tensor<float, 3> k = drawn(), v = k, d_o = k, o = k, d_k = k, d_v = k;
  tensor<float, 1> w{{channels}, -0.5F}, u{{channels}, 0.5F}, d_w = w, d_u = u;
  rwkv4<float> layer() const { return {.k = k, .v = v, .w = w, .u = u}; }
  void run(context& ctx) { forward(layer(), {}, o, {}, ctx); }
  void back(context& ctx) { backward(layer(), {}, d_o, {}, {.k = d_k, .v = d_v, .w = d_w, .u = d_u}, {}, ctx); }
  static constexpr double moved = 3, exponentials = 2, moved_back = 5, exponentials_back = 3;
};

template <class Layer>
void there(benchmark::State& state) {
  Layer layer;
  context ctx;
  const double seconds = iterate(state, 1, [&] { layer.run(ctx); });
  report(state, seconds, Layer::moved, Layer::exponentials);
}

/// `to_forward`: how much longer the gradients take.
template <class Layer>
void again(benchmark::State& state) {
  Layer layer;
  context ctx;
  const double seconds = iterate(state, 1, [&] { layer.back(ctx); });
  report(state, seconds, Layer::moved_back, Layer::exponentials_back);
  const auto [one, other] = stopwatch(1).least(
      0.1, [&] { layer.run(ctx); }, [&] { layer.back(ctx); });
  state.counters["to_forward"] = other / one;
}

/// RWKV-4 for one token, the state in place: some numbers of each channel in a cache, so that exponentials bind.
void wkv_step(benchmark::State& state) {
  tensor<float, 3> k({1, 1, channels}, 0.5F), o = k, h({1, 3, channels});
  const tensor<float, 1> w({channels}, -0.5F);
  context ctx;
  const rwkv4<float> op{.k = k, .v = k, .w = w, .u = w};
  const double seconds = iterate(state, 1, [&] { step(op, h.all(), o, {}, ctx); });
  report_limit(state, seconds, wkv::exponentials * static_cast<double>(channels) / exp_rate<float, 0>());
}

template <class Layer>
void add(const std::string& name) {
  const std::string shape = name + "/f32/L2048_D2048";
  benchmark::RegisterBenchmark((shape + "/forward").c_str(), there<Layer>);
  benchmark::RegisterBenchmark((shape + "/backward").c_str(), again<Layer>);
}

const bool registered = [] {
  add<convolution>("short_convolution_silu");
  add<gated_norm>("rms_norm_gated");
  add<shift>("token_shift");
  add<wkv>("rwkv4");
  benchmark::RegisterBenchmark("rwkv4/f32/L1_D2048/step", wkv_step);
  return true;
}();

}  // namespace

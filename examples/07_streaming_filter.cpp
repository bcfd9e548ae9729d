// A filter on sound as it comes in: an S4D system whose modes are resonances, sample by sample, and once more as a
// convolution. `07_streaming_filter [in.wav [out.wav]]`; without a file it hears a chirp.
#include <ogive/ops/prepared.hpp>
#include <ogive/ops/s4d.hpp>

#include <chrono>
#include <cmath>
#include <complex>
#include <cstdio>
#include <exception>
#include <numbers>

#include "wav.hpp"

namespace {

using namespace ogive;
using number = std::complex<double>;

/// Two seconds from 40 Hz to 10 kHz, then two of silence; the channels are a quarter of a turn apart.
wav::sound chirp() {
  wav::sound s{.channels = 2};
  const double rate = s.rate, seconds = 2, ratio = std::log(10000.0 / 40);
  s.samples.resize(static_cast<std::size_t>(2 * seconds * rate) * s.channels);
  for (std::size_t t = 0; static_cast<double>(t) < seconds * rate; ++t) {
    const double x = static_cast<double>(t) / (seconds * rate);
    const double phase = 2 * std::numbers::pi * 40 * seconds / ratio * std::expm1(ratio * x);
    s.samples[2 * t] = static_cast<float>(0.5 * std::sin(phase));
    s.samples[2 * t + 1] = static_cast<float>(0.5 * std::cos(phase));
  }
  return s;
}

/// Resonances from 60 Hz to 8 kHz, a third of a second long: h' = (−3 + 2πi f) h + u, Δ a sample. Channels share them.
class resonator {
 public:
  resonator(double rate, index_t channels)
      : modes_({1, N}), ones_({1, N}, number(1)), weights_({1, N}), dt_({channels}, 1 / rate), dry_({channels}, 0.5) {
    for (index_t n = 0; n < N; ++n) {
      const double frequency = 60 * std::pow(8000.0 / 60, static_cast<double>(n) / (N - 1));
      modes_(0, n) = number(-3, 2 * std::numbers::pi * frequency);
      weights_(0, n) = number(n % 2 == 0 ? 0.5 : -0.5);
    }
  }

  prepared<s4d<double>> made_ready(index_t length) const {
    const auto each = [this](const tensor<number, 2>& x) {
      return view<const number, 2>(x.data(), {dt_.extent(0), N}, {0, 1});
    };
    return prepare(s4d<double>{.A = each(modes_), .B = each(ones_), .C = each(weights_), .dt = dt_, .D = dry_},
                   {.length = length});
  }

 private:
  static constexpr index_t N = 64;
  tensor<number, 2> modes_, ones_, weights_;
  tensor<double, 1> dt_, dry_;
};

int run(const char* from, const char* to) {
  const wav::sound in = from != nullptr ? wav::read(from) : chirp();
  const index_t channels = in.channels, L = static_cast<index_t>(in.samples.size()) / channels;
  std::vector<double> heard(in.samples.begin(), in.samples.end()), played(heard.size());
  const view<const double, 3> u(heard, {1, L, channels});  // [B, L, D]: interleaved, as sound comes
  const view<double, 3> y(played, {1, L, channels});

  const index_t compared = std::min<index_t>(L, 30 * index_t{in.rate});
  auto filter = resonator(in.rate, channels).made_ready(compared);

  const auto start = std::chrono::steady_clock::now();
  for (index_t t = 0; t < L; ++t) filter.step(u.slice(1, t, 1), y.slice(1, t, 1));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;

  tensor<double, 3> whole({1, compared, channels});
  filter.forward(u.slice(1, 0, compared), whole, {.form = form::convolution});

  double worst = 0, largest = 0;
  for (index_t t = 0; t < compared; ++t) {
    for (index_t c = 0; c < channels; ++c) {
      worst = std::fmax(worst, std::fabs(whole(0, t, c) - y(0, t, c)));
      largest = std::fmax(largest, std::fabs(y(0, t, c)));
    }
  }
  const double seconds = static_cast<double>(L) / in.rate;
  std::printf("%td channels, %.2f s at %u Hz, sample by sample in %.2f s\n", channels, seconds, in.rate, took.count());
  std::printf("as a convolution over %td samples: largest difference %.1e of %.2f\n", compared, worst, largest);

  wav::sound out{in.rate, in.channels, std::vector<float>(played.size())};
  for (std::size_t i = 0; i < played.size(); ++i) out.samples[i] = static_cast<float>(played[i]);
  wav::write(to, out);
  std::printf("wrote %s\n", to);
  return worst <= 1e-10 * largest ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : nullptr, argc > 2 ? argv[2] : "streaming_filter.wav");
  } catch (const std::exception& wrong) {
    std::fprintf(stderr, "%s\n", wrong.what());
    return 1;
  }
}

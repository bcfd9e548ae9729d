// What comes out.
#pragma once

#include <ogive/core/view.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace ogive::crossover {

inline constexpr index_t all_dims[] = {32, 64, 128, 256};

struct machine {
  std::string cpu;
  unsigned cores = 0;
  std::string isa;
  std::string compiler;
  std::string flags;
  std::string commit;
  double fma_peak = 0;  ///< float32 flops per second of one thread, measured
};

/// Flops of both products of n tokens, d = v channels, one head; exact.
struct cost {
  std::int64_t left_square = 0;  ///< left(n) = left_square n² + left_linear n
  std::int64_t left_linear = 0;
  std::int64_t right_linear = 0;  ///< right(n) = right_linear n
  index_t crossing = 0;           ///< left(n) = right(n)

  std::int64_t left(index_t n) const noexcept { return (left_square * n + left_linear) * n; }
  std::int64_t right(index_t n) const noexcept { return right_linear * n; }
};

/// Left against right product on the input: ‖left − right‖ / ‖right‖.
struct agreement {
  index_t n = 0;
  double difference = 0;
  double bound = 0;
};

/// Seconds of n tokens of one head; NaN where a kernel is not there.
struct point {
  index_t n = 0;
  double left = 0;
  double right = 0;
  double softmax = 0;
};

/// Where the first of two kernels, cheaper at few tokens, stops being so.
struct crossing {
  enum class where { below, inside, above };
  where at = where::inside;
  double n = 0;        ///< if inside; else the end of the range
  double seconds = 0;  ///< of either kernel there, if inside
};

/// Where the seconds of `second` fall below those of `first`, members of rows that have an n.
template <class Row>
crossing crossing_of(const std::vector<Row>& rows, double Row::*first, double Row::*second) {
  std::size_t last = rows.size();
  while (last > 0 && !(rows[last - 1].*first < rows[last - 1].*second)) --last;
  if (last == 0) return {crossing::where::below, static_cast<double>(rows.front().n)};
  if (last == rows.size()) return {crossing::where::above, static_cast<double>(rows.back().n)};
  // Straight lines between the neighbours, in logarithms.
  const Row& a = rows[last - 1];
  const Row& b = rows[last];
  const double before = std::log(a.*first / a.*second), after = std::log(b.*first / b.*second);
  const auto between = [share = before / (before - after)](double from, double to) {
    return std::exp(std::lerp(std::log(from), std::log(to), share));
  };
  return {crossing::where::inside, between(static_cast<double>(a.n), static_cast<double>(b.n)),
          between(a.*second, b.*second)};
}

/// One head dimension, with or without the causal mask.
struct curve {
  index_t d = 0;
  bool causal = false;
  cost counted;
  std::vector<agreement> agreements;
  std::vector<point> points;

  const char* mask() const noexcept { return causal ? "causal" : "non-causal"; }
  /// `first` and `second` are members of point.
  crossing timed(double point::*first, double point::*second) const { return crossing_of(points, first, second); }
};

/// FAVOR+ against softmax attention: ‖o − o'‖ / ‖o'‖, the mean over seeds.
struct favor_row {
  index_t features = 0;
  double iid = 0;
  double orthogonal = 0;
};

struct favor_table {
  index_t d = 0;
  index_t tokens = 0;
  int seeds = 0;
  std::vector<favor_row> rows{};
};

/// One more token after n, all heads: a cache of n keys and values against a state.
struct decoding_row {
  index_t n = 0;
  double softmax_seconds = 0;
  double softmax_bytes = 0;
  double state_seconds = 0;
  double state_bytes = 0;
};

struct decoding_table {
  index_t heads = 0;
  index_t d = 0;
  std::vector<decoding_row> rows{};
};

/// Seconds of n tokens of an S4D system: by its recurrence, whose coefficients are there, and as a convolution with a
/// kernel that is there, direct or by transforms, or that is made on the way.
struct forms_row {
  index_t n = 0;
  double recurrent = 0;
  double direct = 0;
  double made = 0;
  double kept = 0;
  double difference = 0;  ///< ‖y − y'‖ / ‖y'‖ of the convolutions against the recurrence, the largest
};

struct forms_table {
  index_t channels = 0;
  index_t modes = 0;  ///< of conjugate pairs, per channel
  std::vector<forms_row> rows{};

  /// `first` and `second` are members of forms_row.
  crossing timed(double forms_row::*first, double forms_row::*second) const { return crossing_of(rows, first, second); }
};

struct results {
  crossover::machine machine;
  std::string input;  ///< where q, k and v came from
  std::vector<curve> curves;
  favor_table favor;
  decoding_table decoding;
  forms_table forms;
  double seconds = 0;  ///< that the run took
};

}  // namespace ogive::crossover

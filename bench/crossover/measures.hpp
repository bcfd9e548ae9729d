// The measurements, in the order in which they run.
#pragma once

#include <bench/crossover/input.hpp>
#include <bench/crossover/progress.hpp>
#include <bench/crossover/results.hpp>

namespace ogive::crossover {

machine describe_machine();

/// Counts both products by running their definitions on a counting number, and checks that they cross where theory
/// says. \throws std::runtime_error if they do not
cost count_products(index_t d, bool causal);

/// The numbers of tokens that are timed, and the seconds that all of it will take at a flop rate.
std::vector<index_t> token_counts(index_t d, bool brief);
double expected_seconds(index_t d, bool causal, bool brief, double peak);

/// Fills in the agreements of a curve. \throws std::runtime_error if left and right product differ by more than
/// rounding
void compare_products(curve& c, const input& from, const settings& how);

/// Fills in the points of a curve.
void time_products(curve& c, const input& from, const settings& how, double peak, progress& shown);

/// Seconds, roughly, that a line of the tables beside the crossover may take.
constexpr double side_share(bool brief) noexcept { return brief ? 0.05 : 0.2; }
constexpr int side_lines(bool brief) noexcept { return brief ? 23 : 25; }

favor_table measure_favor(const input& from, const settings& how, progress& shown);

decoding_table time_decoding(const settings& how, progress& shown);

/// The lengths of sequences that the forms of a time-invariant system are timed on: by twos.
inline constexpr index_t forms_shortest = 16;
constexpr index_t forms_longest(bool brief) noexcept { return brief ? 4096 : 16384; }

forms_table time_forms(const settings& how, progress& shown);

}  // namespace ogive::crossover

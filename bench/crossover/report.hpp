// Results as tables, files and a picture.
#pragma once

#include <bench/crossover/results.hpp>
#include <bench/crossover/settings.hpp>
#include <iosfwd>

namespace ogive::crossover {

void print_head(std::ostream& out, const results& r, const settings& how);
void print_agreements(std::ostream& out, const results& r);
void print_measures(std::ostream& out, const results& r);

/// crossover.csv, crossover.json, crossover.md and forms.csv into `how.out`. \throws std::runtime_error if that cannot
/// be
void write_files(const results& r, const settings& how);

/// crossover and forms, .svg and .png, by gnuplot from the files that are there, and the scripts that draw them.
/// \return why there is no picture, or nothing
std::string draw(const results& r, const settings& how);

}  // namespace ogive::crossover

#include <algorithm>
#include <bench/crossover/table.hpp>
#include <cstdarg>
#include <cstdio>

namespace ogive::crossover {

namespace {

/// Characters, not bytes, of UTF-8.
std::size_t width(const std::string& s) {
  return static_cast<std::size_t>(std::ranges::count_if(s, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string right(const std::string& s, std::size_t columns) {
  return std::string(columns - std::min(columns, width(s)), ' ') + s;
}

}  // namespace

std::string text(const char* format, ...) {
  char buffer[256];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer, sizeof(buffer), format, arguments);
  va_end(arguments);
  return buffer;
}

void table::print(std::ostream& out) const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < headings.size(); ++c) {
    std::size_t most = width(headings[c]);
    for (const auto& row : rows) most = std::max(most, width(row[c]));
    widths.push_back(most + 2);
  }
  std::size_t column = 0;
  std::string line;
  for (const group& g : groups) {
    std::size_t& first = widths[column];
    first += column == 0 ? 0 : 2;
    std::size_t span = 0;
    for (std::size_t c = 0; c < g.columns; ++c) span += widths[column++];
    if (const std::size_t wanted = width(g.title) + 3; !g.title.empty() && span < wanted) {
      first += wanted - span;
      span = wanted;
    }
    line += right(g.title, span);
  }
  out << '\n' << title << "\n\n";
  if (!groups.empty()) out << line << '\n';
  const auto print_row = [&](const std::vector<std::string>& row) {
    for (std::size_t c = 0; c < row.size(); ++c) out << right(row[c], widths[c]);
    out << '\n';
  };
  print_row(headings);
  for (const auto& row : rows) print_row(row);
  if (!note.empty()) out << "\n  " << note << '\n';
}

void table::print_markdown(std::ostream& out) const {
  out << "\n### " << title << "\n\n";
  const auto print_row = [&](const std::vector<std::string>& row) {
    out << '|';
    for (const std::string& cell : row) out << ' ' << cell << " |";
    out << '\n';
  };
  std::vector<std::string> full = headings;
  std::size_t column = 0;
  for (const group& g : groups) {
    for (std::size_t c = 0; c < g.columns; ++c, ++column) {
      if (!g.title.empty()) full[column] = g.title + (full[column].empty() ? "" : ": " + full[column]);
    }
  }
  print_row(full);
  out << '|';
  for (std::size_t c = 0; c < headings.size(); ++c) out << "--:|";
  out << '\n';
  for (const auto& row : rows) print_row(row);
  if (!note.empty()) out << '\n' << note << '\n';
}

}  // namespace ogive::crossover

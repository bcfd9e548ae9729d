// A table once described, for a terminal or for Markdown.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace ogive::crossover {

/// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string text(const char* format, ...);

struct table {
  struct group {
    std::string title;
    std::size_t columns;
  };

  std::string title;
  std::vector<group> groups{};  ///< headings over several columns each
  std::vector<std::string> headings;
  std::vector<std::vector<std::string>> rows{};
  std::string note{};

  /// In columns, numbers to the right, a gap before every group.
  void print(std::ostream& out) const;
  void print_markdown(std::ostream& out) const;
};

}  // namespace ogive::crossover

// Curves over the same steps, as text and as SVG.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace chart {

struct curve {
  std::string name, colour;
  std::vector<double> values;
  char mark = '+';
  std::string width = "1.5";
};

/// What is drawn between two values, the lowest one below.
struct frame {
  std::string title;
  double lowest, highest;

  double share(double value) const { return std::clamp((value - lowest) / (highest - lowest), 0.0, 1.0); }
};

inline void draw_text(const frame& f, const std::vector<curve>& curves) {
  constexpr std::size_t rows = 17, columns = 80;
  std::vector<std::string> canvas(rows, std::string(columns, ' '));
  for (const curve& one : curves) {
    for (std::size_t column = 0; column < columns; ++column) {
      const double share = f.share(one.values[column * one.values.size() / columns]);
      char& at =
          canvas[rows - 1 - static_cast<std::size_t>(std::lround(share * static_cast<double>(rows - 1)))][column];
      at = at == ' ' || at == one.mark ? one.mark : '#';
    }
  }
  for (std::size_t row = 0; row < rows; ++row) {
    const double value = f.highest - (f.highest - f.lowest) * static_cast<double>(row) / (rows - 1);
    if (row % 4 == 0) std::printf("%6.2f |%s\n", value, canvas[row].c_str());
    if (row % 4 != 0) std::printf("       |%s\n", canvas[row].c_str());
  }
  std::printf("       +%s\n        ", std::string(columns, '-').c_str());
  for (const curve& one : curves) std::printf("%c %s, ", one.mark, one.name.c_str());
  std::printf("# both\n");
}

/// Whether the file could be written.
inline bool draw_svg(const std::string& path, const frame& f, const std::vector<curve>& curves) {
  constexpr double left = 56, top = 56, width = 724, height = 260;
  std::ofstream out(path);
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 340\" font-family=\"DejaVu "
         "Sans,Verdana,sans-serif\">\n"
      << "<rect width=\"800\" height=\"340\" fill=\"#ffffff\"/>\n"
      << "<text x=\"" << left << "\" y=\"24\" font-size=\"15\" fill=\"#333333\">" << f.title << "</text>\n";
  const auto height_of = [&](double value) { return std::round(10 * (top + height * (1 - f.share(value)))) / 10; };
  for (int line = 0; line <= 4; ++line) {
    const double value = f.lowest + (f.highest - f.lowest) * line / 4, y = height_of(value);
    out << "<path stroke=\"#dddddd\" d=\"M" << left << "," << y << " H" << left + width << "\"/>\n"
        << "<text x=\"" << left - 8 << "\" y=\"" << y + 4 << "\" font-size=\"11\" text-anchor=\"end\" fill=\"#777777\">"
        << std::round(100 * value) / 100 << "</text>\n";
  }
  double label = left;
  for (const curve& one : curves) {
    out << "<text x=\"" << label << "\" y=\"44\" font-size=\"12\" fill=\"" << one.colour << "\">" << one.name
        << "</text>\n<path fill=\"none\" stroke=\"" << one.colour << "\" stroke-width=\"" << one.width << "\" d=\"";
    for (std::size_t k = 0; k < one.values.size(); ++k) {
      const double x = left + width * (static_cast<double>(k) + 0.5) / static_cast<double>(one.values.size());
      out << (k == 0 ? "M" : " L") << std::round(10 * x) / 10 << "," << height_of(one.values[k]);
    }
    out << "\"/>\n";
    label += 30 + 8 * static_cast<double>(one.name.size());
  }
  out << "</svg>\n";
  return static_cast<bool>(out);
}

}  // namespace chart

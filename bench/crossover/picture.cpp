#include <algorithm>
#include <bench/crossover/report.hpp>
#include <bench/crossover/table.hpp>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>

// The build says where the script lies.
#if !defined(OGIVE_CROSSOVER_SCRIPT)
#define OGIVE_CROSSOVER_SCRIPT "bench/crossover/crossover.gp"
#endif

namespace ogive::crossover {

namespace {

constexpr char title[] = "Where linear attention overtakes softmax attention";

/// A gnuplot string in single quotes, where nothing but these is special.
std::string quoted(const std::string& s) {
  std::string q = "'";
  for (const char c : s) q += c == '\'' ? "''" : std::string(1, c);
  return q + '\'';
}

std::string for_shell(const std::string& s) {
  std::string q = "'";
  for (const char c : s) q += c == '\'' ? "'\\''" : std::string(1, c);
  return q + '\'';
}

template <class Value>
std::string array(const std::string& name, const results& r, const Value& value) {
  std::string line = text("array %s[%zu] = [", name.c_str(), r.curves.size());
  for (std::size_t i = 0; i < r.curves.size(); ++i) line += (i == 0 ? "" : ", ") + value(r.curves[i]);
  return line + "]\n";
}

/// What the script knows of where the right product overtakes another kernel: where in a panel, and in words.
std::string marks(const char* name, const results& r, double point::*first) {
  const auto overtaken = [first](const curve& c) { return c.timed(first, &point::right); };
  const auto number = [](const crossing& x, double value) {
    return x.at == crossing::where::inside ? text("%.5g", value) : "NaN";
  };
  const std::string prefix = name;
  return array(prefix + "_at", r,
               [&](const curve& c) {
                 const crossing x = overtaken(c);
                 return number(x, x.n / static_cast<double>(c.d));
               }) +
         array(prefix + "_height", r,
               [&](const curve& c) {
                 const crossing x = overtaken(c);
                 return number(x, 1e6 * x.seconds / x.n);
               }) +
         array(prefix + "_label", r, [&](const curve& c) {
           const crossing x = overtaken(c);
           const double ratio = x.n / static_cast<double>(c.d);
           if (x.at == crossing::where::below) return quoted(text("n* < d/%.0f", 1 / ratio));
           if (x.at == crossing::where::above) return quoted(text("n* > %.0f d", ratio));
           return quoted(text("n* = %.2f d", ratio));
         });
}

/// The range of all n/d and, with some air, of all times per token.
std::string ranges(const results& r) {
  double low = std::numeric_limits<double>::infinity(), high = 0, most = 0;
  for (const curve& c : r.curves) {
    for (const point& p : c.points) {
      most = std::max(most, static_cast<double>(p.n) / static_cast<double>(c.d));
      for (const double seconds : {p.left, p.right, p.softmax}) {
        low = std::min(low, 1e6 * seconds / static_cast<double>(p.n));
        high = std::max(high, 1e6 * seconds / static_cast<double>(p.n));
      }
    }
  }
  return text("most = %g\nlow = %.3g\nhigh = %.3g\n", most, low / 2.5, high * 1.5);
}

/// The name of the document, which a reader for the blind says first and gnuplot leaves to be its own.
void entitle(const std::filesystem::path& svg) {
  std::ostringstream drawn;
  drawn << std::ifstream(svg).rdbuf();
  std::string document = drawn.str();
  const std::string own = "<title>Gnuplot</title>";
  if (const auto at = document.find(own); at != std::string::npos) {
    document.replace(at, own.size(), text("<title>%s</title>", title));
    std::ofstream(svg) << document;
  }
}

}  // namespace

std::string draw(const results& r, const settings& how) {
  const machine& m = r.machine;
  const std::string caption = m.cpu + ", " + std::to_string(how.threads) + (how.threads == 1 ? " thread" : " threads") +
                              text(", float32, %.0f GFLOP/s at most per thread; ", 1e-9 * m.fma_peak) + m.compiler +
                              ' ' + m.flags + "; commit " + m.commit + "; q, k, v: " + r.input;
  const auto script = how.out / "crossover.gp";
  std::ofstream file(script);
  file << "# gnuplot " << script.filename().string() << " draws the picture anew.\n"
       << "data = 'crossover.csv'\n"
       << "title = " << quoted(title) << '\n'
       << "caption = " << quoted(caption) << '\n'
       << array("dims", r, [](const curve& c) { return std::to_string(c.d); })
       << array("causal", r, [](const curve& c) { return std::string(c.causal ? "1" : "0"); })
       << array("counted", r, [](const curve& c) { return std::to_string(c.counted.crossing); })
       << marks("left", r, &point::left) << marks("softmax", r, &point::softmax) << ranges(r) << "load "
       << quoted(std::filesystem::absolute(OGIVE_CROSSOVER_SCRIPT).string()) << '\n';
  if (!file.flush()) throw std::runtime_error(script.string() + " cannot be written");
  if (std::system("command -v gnuplot >/dev/null 2>&1") != 0) return "there is no gnuplot (Debian: gnuplot-nox)";
  const std::string command = "cd " + for_shell(how.out.string()) + " && gnuplot crossover.gp";
  if (std::system(command.c_str()) != 0) return "gnuplot failed";
  entitle(how.out / "crossover.svg");
  return {};
}

}  // namespace ogive::crossover
